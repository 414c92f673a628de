//! Pumps on NATS: a process that has a partition answers for it at
//! `organism.<name>.pump.<partition>` what others ask, in the lines of the control socket.
//!
//! A question, and each line of its answer, is one message or several pieces. Each piece begins
//! with a line of JSON: whose it is, its number among all of that, and what it is. Answers go to
//! the asker's own inbox. Whoever answers says every second that it is still at it, so that one
//! that died is noticed; a piece that was lost shows by the numbers.
//!
//! Core NATS only: what is lost is asked again, and a submission carries a key for that.

mod ask;
mod projections;
mod serve;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Error;
use crate::limits;
use crate::nats::{self, Client, Subscriber};

pub(super) use projections::{KnownMembers, ProjectionResponder};
pub(super) use serve::changing_hands;

/// The connection on which an organism asks and answers.
#[derive(Clone)]
pub(super) struct Exchange {
    client: Client,
    /// Of the organism.
    name: String,
}

impl Exchange {
    pub async fn open(servers: &nats::Options, name: &str) -> Result<Self, Error> {
        let client = nats::connect(servers, &format!("organism {name}")).await?;
        Ok(Self { client, name: name.to_owned() })
    }

    /// What all processes of this organism say of themselves.
    pub async fn hear_roll(&self) -> Result<Subscriber, Error> {
        let subscribed = self.client.subscribe(self.roll()).await;
        subscribed.map_err(|error| Error::Control { detail: error.to_string() })
    }

    /// Says something of this one to all of them.
    pub async fn call_roll(&self, entry: &impl Serialize) -> Result<(), Error> {
        let strange = |detail: String| Error::Control { detail };
        let entry = serde_json::to_vec(entry).map_err(|error| strange(error.to_string()))?;
        let called = self.client.publish(self.roll(), entry.into()).await;
        called.map_err(|error| strange(error.to_string()))
    }

    fn roll(&self) -> String {
        format!("organism.{}.pump.roll", self.name)
    }

    fn subject(&self, partition: u32) -> String {
        format!("organism.{}.pump.{partition}", self.name)
    }
}

/// The first line of a piece.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Head {
    /// Of this question, or of this answer.
    of: Uuid,
    n: u64,
    is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Is {
    /// More of it follows.
    Part,
    Last,
    /// Nothing to say yet.
    Beat,
    /// Everything was said.
    End,
}

/// Numbers what is sent.
struct Speaker {
    of: Uuid,
    next: u64,
}

impl Speaker {
    fn new() -> Self {
        Self { of: Uuid::now_v7(), next: 0 }
    }

    fn one(&mut self, is: Is, bytes: &[u8]) -> Vec<u8> {
        let head = Head { of: self.of, n: self.next, is };
        self.next += 1;
        let mut piece = serde_json::to_vec(&head).expect("plain data is JSON");
        piece.push(b'\n');
        piece.extend_from_slice(bytes);
        piece
    }

    fn pieces(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut chunks = bytes.chunks(limits::EXCHANGE_PIECE_BYTES).peekable();
        let mut pieces = Vec::new();
        while let Some(chunk) = chunks.next() {
            let is = if chunks.peek().is_some() { Is::Part } else { Is::Last };
            pieces.push(self.one(is, chunk));
        }
        pieces
    }
}

/// Puts pieces together again.
#[derive(Default)]
struct Hearer {
    of: Option<Uuid>,
    next: u64,
    bytes: Vec<u8>,
}

/// What a piece completes.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Line(Vec<u8>),
    /// Nothing yet.
    More,
    End,
    /// Of somebody else.
    Stranger,
    /// Something before it is missing, or it is too much.
    Broken,
}

impl Hearer {
    fn take(&mut self, piece: &[u8]) -> Heard {
        let Some((head, bytes)) = split(piece) else { return Heard::Broken };
        if *self.of.get_or_insert(head.of) != head.of {
            return Heard::Stranger;
        }
        let fits = self.bytes.len() + bytes.len() <= limits::FRAME_BYTES_MAX;
        if head.n != self.next || !fits {
            return Heard::Broken;
        }
        self.next += 1;
        match head.is {
            Is::Beat => Heard::More,
            Is::End => Heard::End,
            Is::Part => {
                self.bytes.extend_from_slice(bytes);
                Heard::More
            }
            Is::Last => {
                self.bytes.extend_from_slice(bytes);
                Heard::Line(std::mem::take(&mut self.bytes))
            }
        }
    }
}

fn split(piece: &[u8]) -> Option<(Head, &[u8])> {
    let at = memchr::memchr(b'\n', piece)?;
    let head = serde_json::from_slice(piece.get(..at)?).ok()?;
    Some((head, piece.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../tests/data/fixtures/exchange.txt");

    #[test]
    fn a_piece_is_written_in_the_bytes_of_its_fixture() {
        let of = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
        let written = [Is::Part, Is::Last, Is::Beat, Is::End].map(|is| {
            let (name, bytes): (_, &[u8]) = match is {
                Is::Part => ("part", b"{\"sent"),
                Is::Last => ("last", b"\":1}"),
                Is::Beat => ("beat", b""),
                Is::End => ("end", b""),
            };
            let piece = Speaker { of, next: 7 }.one(is, bytes);
            let piece = String::from_utf8(piece).unwrap();
            format!("{name}\t{}\n", serde_json::to_string(&piece).unwrap())
        });
        assert_eq!(written.concat(), FIXTURE);
    }

    #[test]
    fn a_piece_of_a_fixture_is_read() {
        for line in FIXTURE.lines() {
            let (name, piece) = line.split_once('\t').unwrap();
            let piece: String = serde_json::from_str(piece).unwrap();
            let (head, _) = split(piece.as_bytes()).expect(name);
            assert_eq!(head.n, 7);
        }
    }

    #[test]
    fn whatever_its_length_a_line_is_heard_as_it_was_said() {
        let (mut speaker, mut hearer) = (Speaker::new(), Hearer::default());
        for length in [1, 7, limits::EXCHANGE_PIECE_BYTES, 3 * limits::EXCHANGE_PIECE_BYTES + 1] {
            let line = vec![b'x'; length];
            let pieces = speaker.pieces(&line);
            assert_eq!(pieces.len(), length.div_ceil(limits::EXCHANGE_PIECE_BYTES));
            let heard: Vec<_> = pieces.iter().map(|piece| hearer.take(piece)).collect();
            let (last, parts) = heard.split_last().unwrap();
            assert!(*last == Heard::Line(line) && parts.iter().all(|part| *part == Heard::More));
        }
        assert_eq!(hearer.take(&speaker.one(Is::Beat, b"")), Heard::More);
        assert_eq!(hearer.take(&speaker.one(Is::End, b"")), Heard::End);
    }

    #[test]
    fn a_lost_piece_and_a_strangers_are_noticed() {
        let (mut speaker, mut hearer) = (Speaker::new(), Hearer::default());
        assert_eq!(hearer.take(&speaker.pieces(b"one").remove(0)), Heard::Line(b"one".to_vec()));
        drop(speaker.pieces(b"two"));
        let other = Speaker::new().pieces(b"one").remove(0);
        assert_eq!(hearer.take(&other), Heard::Stranger);
        assert_eq!(hearer.take(&speaker.pieces(b"three").remove(0)), Heard::Broken);
        assert_eq!(hearer.take(b"no head"), Heard::Broken);
    }
}
