//! Encoding of commits as messages of a stream.
//!
//! A commit is encoded as one or more parts, and each part is one message. Only a large commit has
//! several parts. A part begins with a line of JSON, such as
//! `{"organism":3,"epoch":3,"part":1,"parts":1}`, and its body follows. The bodies of all parts,
//! joined in order, are a sequence of items. Each item begins with a line of JSON, which states the
//! kind of the item and the number of bytes that follow. Then come these bytes and a line feed:
//!
//! ```text
//! {"journal":{"id":"0197…","name":"shop","partition":0}}     the first item of the stream; with
//!                                                            several partitions, also their
//!                                                            number; also `"moving":true` for
//!                                                            a journal that is being moved
//! {"epoch":{"epoch":3,"holder":"process 12 on host"}}        the start of a pump
//! {"moved":{"records":812}}                                  the end of a move
//! {"checkpoint":{…}}                                         covers all records before it
//! {"blob":{"digest":"…","bytes":1200}}                       then 1200 bytes
//! {"step":{"position":1,…,"body":310,"payloads":72}}         then 382 bytes
//! {"mac":{"head":"0254…"}}                                    MAC, after the last step
//! ```
//!
//! If the last part of a commit is missing, the commit was never acknowledged, and its other parts
//! are ignored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::journal::log::{LogGroup, StreamItem};
use crate::journal::record_codec::{EncodedRow, StoredRow};
use crate::journal::{Checkpoint, HeadMac, RecordHeader};

/// Version of the encoding of commits. This version also determines the journal format of the
/// records in a commit: encoding 2 contains records of journal format 3, and encoding 3 contains
/// records of journal format 4.
pub const FORMAT: u32 = 3;

/// Oldest version of the encoding that this program reads.
const OLDEST_FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct PartHeader {
    #[serde(rename = "organism")]
    organism: u32,
    #[serde(rename = "epoch")]
    epoch: u32,
    #[serde(rename = "part")]
    part: usize,
    #[serde(rename = "parts")]
    parts: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CommitLine<'a> {
    #[serde(rename = "journal", borrow)]
    Journal(JournalIdentity<'a>),
    #[serde(rename = "epoch", borrow)]
    Epoch(BegunEpoch<'a>),
    #[serde(rename = "moved")]
    Moved {
        #[serde(rename = "records")]
        records: u64,
    },
    #[serde(rename = "checkpoint")]
    Checkpoint(Checkpoint),
    #[serde(rename = "blob")]
    Blob {
        #[serde(rename = "digest")]
        digest: Digest,
        #[serde(rename = "bytes")]
        bytes: usize,
    },
    #[serde(rename = "step", borrow)]
    Step(StepLine<'a>),
    /// MAC over all records up to and including the record directly before this entry.
    #[serde(rename = "mac")]
    Mac {
        #[serde(rename = "head", borrow)]
        head: Cow<'a, str>,
    },
}

/// Identity of the journal that a stream keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalIdentity<'a> {
    #[serde(rename = "id")]
    pub id: Uuid,
    #[serde(rename = "name", borrow)]
    pub name: Cow<'a, str>,
    #[serde(rename = "partition")]
    pub partition: u32,
    /// Number of partitions of the journal.
    #[serde(rename = "partitions", default = "alone", skip_serializing_if = "is_alone")]
    pub partitions: u32,
    /// Whether the journal is being moved into this stream. If so, no pump continues the journal
    /// until the whole journal has arrived.
    #[serde(rename = "moving", default, skip_serializing_if = "std::ops::Not::not")]
    pub moving: bool,
}

/// Returns 1, the default number of partitions. The default applies if the identity of a journal
/// states no number.
fn alone() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_alone(partitions: &u32) -> bool {
    *partitions == 1
}

#[derive(Debug, Serialize, Deserialize)]
struct BegunEpoch<'a> {
    #[serde(rename = "epoch")]
    epoch: u32,
    /// Name of the process that runs the pump, shown to people.
    #[serde(rename = "holder", borrow)]
    holder: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StepLine<'a> {
    #[serde(rename = "position")]
    position: Position,
    #[serde(rename = "tree", borrow)]
    tree: Cow<'a, str>,
    #[serde(rename = "previous")]
    previous: Position,
    #[serde(rename = "previous_hash")]
    previous_hash: Digest,
    /// Time of the record, in microseconds since 1970.
    #[serde(rename = "time")]
    time: i64,
    #[serde(rename = "hash")]
    hash: Digest,
    #[serde(rename = "body")]
    body: usize,
    #[serde(rename = "payloads")]
    payloads: usize,
}

/// Encodes one group of journal entries.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CommitEncoder(Vec<u8>);

impl CommitEncoder {
    pub fn about(about: JournalIdentity<'_>) -> Self {
        Self::default().with(&CommitLine::Journal(about), &[])
    }

    /// Encodes the end of a move: the statement that the stream contains all `records` records of
    /// the moved journal. `epoch` is that of the last pump that wrote to the journal before the
    /// move.
    pub fn moved(records: u64, epoch: u32) -> Self {
        Self::epoch(epoch, "the embedded journal").with(&CommitLine::Moved { records }, &[])
    }

    pub fn epoch(epoch: u32, holder: &str) -> Self {
        Self::default().with(&CommitLine::Epoch(BegunEpoch { epoch, holder: holder.into() }), &[])
    }

    /// Encodes `group`: records, checkpoints and blobs that are appended to the journal together. A
    /// checkpoint in the group covers only the records before the group.
    pub fn of(group: &LogGroup<'_>) -> Self {
        let checkpoints = group.checkpoints.iter().copied();
        let written = checkpoints.fold(Self::default(), Self::checkpoint);
        let blobs = group.blobs.iter();
        let written = blobs.fold(written, |written, (digest, bytes)| written.blob(*digest, bytes));
        let steps = group.steps.iter();
        steps.fold(written, |written, (place, row)| written.step(place, row))
    }

    /// Returns the size of the encoded group so far, in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    pub fn checkpoint(self, checkpoint: &Checkpoint) -> Self {
        self.with(&CommitLine::Checkpoint(checkpoint.clone()), &[])
    }

    pub fn blob(self, digest: Digest, bytes: &[u8]) -> Self {
        self.with(&CommitLine::Blob { digest, bytes: bytes.len() }, &[bytes])
    }

    /// Encodes a record and, if the record carries a MAC, the MAC.
    pub fn step(self, place: &RecordHeader<'_>, row: &EncodedRow<'_>) -> Self {
        let step = StepLine {
            position: place.position,
            tree: place.tree.into(),
            previous: place.previous,
            previous_hash: place.previous_hash,
            time: place.time.0,
            hash: row.hash,
            body: row.body.len(),
            payloads: row.payloads.len(),
        };

        let written = self.with(&CommitLine::Step(step), &[row.body, row.payloads]);
        match &row.mac {
            Some(mac) => written.with(&CommitLine::Mac { head: mac.to_string().into() }, &[]),
            None => written,
        }
    }

    fn with(mut self, line: &CommitLine<'_>, bytes: &[&[u8]]) -> Self {
        serde_json::to_writer(&mut self.0, line).expect("plain data is JSON");
        self.0.push(b'\n');
        bytes.iter().for_each(|bytes| self.0.extend_from_slice(bytes));
        self.0.push(b'\n');
        self
    }

    /// Splits the group into messages of at most `most` bytes. Each message states `epoch`.
    pub fn messages(&self, epoch: u32, most: usize) -> Vec<Vec<u8>> {
        // Leaves room for the header of any part.
        let room = most.saturating_sub(128).max(1);
        let parts = self.0.len().div_ceil(room);
        let numbered = self.0.chunks(room).zip(1..);
        let message = |(chunk, part): (&[u8], usize)| {
            let head = PartHeader { organism: FORMAT, epoch, part, parts };
            let mut message = serde_json::to_vec(&head).expect("plain data is JSON");
            message.push(b'\n');
            message.extend_from_slice(chunk);
            message
        };

        numbered.map(message).collect()
    }
}

/// Returns the epoch of the pump that wrote `message`; `None` if the message cannot be decoded.
pub fn epoch_of(message: &[u8]) -> Option<u32> {
    head(message).ok().map(|(head, _)| head.epoch)
}

/// Returns the version of a message's encoding if this program does not read that version; `None`
/// otherwise.
pub fn unknown_version(message: &[u8]) -> Option<u32> {
    let (head, _) = head(message).ok()?;
    Some(head.organism).filter(|version| !is_known(*version))
}

fn is_known(version: u32) -> bool {
    (OLDEST_FORMAT..=FORMAT).contains(&version)
}

fn known_head(message: &[u8]) -> Result<(PartHeader, &[u8]), String> {
    let (head, rest) = head(message)?;
    if is_known(head.organism) {
        return Ok((head, rest));
    }

    let version = head.organism;
    Err(format!("it has version {version}; this program reads {OLDEST_FORMAT} to {FORMAT}"))
}

fn head(message: &[u8]) -> Result<(PartHeader, &[u8]), String> {
    let (line, rest) = split_line(message).ok_or("it has no first line")?;
    let head: PartHeader = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    Ok((head, rest))
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'\n', bytes)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Reassembles groups whose parts arrive as separate messages.
#[derive(Debug, Default)]
pub struct CommitAssembler {
    epoch: u32,
    parts: usize,
    bytes: Vec<u8>,
}

impl CommitAssembler {
    /// Adds a message. Returns the bytes of the whole group if the message is the last part of the
    /// group, and `None` otherwise. If the message is the first part of a group, discards the parts
    /// of an earlier, incomplete group.
    pub fn take(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (head, rest) = known_head(message)?;
        if head.part == 1 {
            *self = Self { epoch: head.epoch, parts: 0, bytes: Vec::new() };
        }

        if head.part != self.parts + 1 || head.epoch != self.epoch {
            return Err(format!("it is part {} of something that did not begin", head.part));
        }

        self.parts = head.part;
        self.bytes.extend_from_slice(rest);
        if head.part < head.parts {
            return Ok(None);
        }

        Ok(Some(std::mem::take(self).bytes))
    }
}

/// Decoded content of a commit, which is a group of records, checkpoints and blobs that became
/// durable together. `taken` contains these entries in the order of the encoding.
#[derive(Default)]
pub struct CommitContents<'a> {
    pub journal: Option<JournalIdentity<'a>>,
    pub epoch: Option<u32>,
    /// Number of records of the moved journal, if this commit states that the move into the stream
    /// is complete; `None` otherwise.
    pub moved: Option<u64>,
    pub taken: Vec<StreamItem<'a>>,
}

impl<'a> CommitContents<'a> {
    pub fn read(mut bytes: &'a [u8]) -> Result<Self, String> {
        let mut contents = Self::default();
        while !bytes.is_empty() {
            let (line, rest) = split_line(bytes).ok_or("a line in it has no end")?;
            let line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
            bytes = contents.add(line, rest)?;
        }

        Ok(contents)
    }

    /// Decodes the item that begins with `line`, and returns the bytes after the item.
    fn add(&mut self, line: CommitLine<'a>, rest: &'a [u8]) -> Result<&'a [u8], String> {
        let short = || "it is shorter than it says".to_owned();
        let length = match &line {
            CommitLine::Blob { bytes, .. } => *bytes,
            CommitLine::Step(step) => step.body.saturating_add(step.payloads),
            _ => 0,
        };

        let (bytes, rest) = rest.split_at_checked(length).ok_or_else(short)?;
        let rest = rest.strip_prefix(b"\n").ok_or_else(short)?;

        match line {
            CommitLine::Journal(about) => self.journal = Some(about),
            CommitLine::Epoch(begun) => self.epoch = Some(begun.epoch),
            CommitLine::Moved { records } => self.moved = Some(records),
            CommitLine::Checkpoint(checkpoint) => {
                self.taken.push(StreamItem::Checkpoint(checkpoint))
            }
            CommitLine::Blob { digest, .. } => self.taken.push(StreamItem::Blob(digest, bytes)),
            CommitLine::Step(step) => self.taken.push(StreamItem::Step(row(step, bytes)?)),
            CommitLine::Mac { head } => {
                let mac = HeadMac::parse(&head).ok_or("the MAC in it is damaged")?;
                let Some(StreamItem::Step(StoredRow { mac: none @ None, .. })) =
                    self.taken.last_mut()
                else {
                    return Err("a MAC in it does not follow a record".to_owned());
                };
                *none = Some(mac);
            }
        }

        Ok(rest)
    }
}

fn row<'a>(step: StepLine<'a>, bytes: &'a [u8]) -> Result<StoredRow<'a>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let (body, payloads) =
        text.split_at_checked(step.body).ok_or("a record's text ends within a character")?;
    let Cow::Borrowed(tree) = step.tree else {
        return Err("the name of a tree has letters that no name has".to_owned());
    };

    let place = RecordHeader {
        position: step.position,
        tree,
        previous: step.previous,
        previous_hash: step.previous_hash,
        time: Time(step.time),
    };

    Ok(StoredRow { place, hash: step.hash, body, payloads, mac: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/data/fixtures/stream.txt");

    /// The messages of [`FIXTURE`] in version 1 of the encoding.
    const FIXTURE_1: &str = include_str!("../../../tests/data/fixtures/stream-1.txt");

    /// The messages of [`FIXTURE`] in version 2 of the encoding.
    const FIXTURE_2: &str = include_str!("../../../tests/data/fixtures/stream-2.txt");

    /// Returns messages that together contain every kind of item of a commit, each message with a
    /// description.
    fn messages() -> Vec<(&'static str, Vec<u8>)> {
        let id = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
        let about = |partitions, moving| JournalIdentity {
            id,
            name: "desk".into(),
            partition: 2,
            partitions,
            moving,
        };

        let checkpoint = Checkpoint {
            journal: id,
            position: Position(8),
            count: 8,
            merkle_root: Digest::of(b"heads"),
            time: Time(12),
            proved_from: None,
            key: "0f".repeat(32),
            signature: "1e".repeat(64),
        };

        let mac = HeadMac::parse(&"02".repeat(41)).unwrap();
        let message = |group: CommitEncoder| group.messages(3, 1 << 20).remove(0);
        let mut messages = vec![
            ("a journal", message(CommitEncoder::about(about(1, false)))),
            ("a journal of several partitions", message(CommitEncoder::about(about(4, false)))),
            ("a journal that moves here", message(CommitEncoder::about(about(1, true)))),
            ("an epoch", message(CommitEncoder::epoch(3, "process 12 on host"))),
            ("what was moved here", message(CommitEncoder::moved(812, 2))),
            ("a checkpoint", message(CommitEncoder::default().checkpoint(&checkpoint))),
            ("a group of a blob and steps", message(group(None))),
            ("a group with the MAC of its head", message(group(Some(mac)))),
        ];
        let parts = group(None).messages(3, 400);
        messages.extend(["part 1", "part 2", "part 3"].into_iter().zip(parts));
        messages
    }

    #[test]
    fn a_message_is_written_in_the_bytes_of_its_fixture() {
        let line = |(name, bytes): (&str, Vec<u8>)| {
            let text = String::from_utf8(bytes).unwrap();
            format!("{name}\t{}\n", serde_json::to_string(&text).unwrap())
        };
        let written: String = messages().into_iter().map(line).collect();
        assert_eq!(written, FIXTURE);
    }

    #[test]
    fn a_message_of_a_fixture_is_read() {
        let mut assembly = CommitAssembler::default();
        for line in [FIXTURE, FIXTURE_1, FIXTURE_2].into_iter().flat_map(str::lines) {
            let (name, message) = line.split_once('\t').unwrap();
            let message: String = serde_json::from_str(message).unwrap();
            let whole = assembly.take(message.as_bytes()).unwrap();
            let read = whole.map(|whole| CommitContents::read(&whole).map(drop));
            assert!(matches!(read, Some(Ok(())) | None), "{name}: {read:?}");
        }
    }

    fn group(mac: Option<HeadMac>) -> CommitEncoder {
        let place = RecordHeader {
            position: Position(7),
            tree: "sess-abcdefgh",
            previous: Position(3),
            previous_hash: Digest::of(b"before"),
            time: Time(12),
        };

        let hash = Digest::of(b"this");
        let row =
            EncodedRow { hash, body: b"{\"a\":1}\n", payloads: "<ü/>\n\n".as_bytes(), mac: None };
        let blob = b"\0\n{\"step\"";
        let group = CommitEncoder::epoch(3, "process 1").blob_after(blob).step(&place, &row);
        group.step(&RecordHeader { position: Position(8), ..place }, &EncodedRow { mac, ..row })
    }

    impl CommitEncoder {
        fn blob_after(self, bytes: &[u8]) -> Self {
            self.blob(Digest::of(bytes), bytes)
        }
    }

    #[test]
    fn what_is_written_is_read_however_it_is_cut() {
        let group = group(None);
        for most in (129..700).chain([1 << 20]) {
            let messages = group.messages(3, most);
            assert!(messages.iter().all(|message| message.len() <= most));
            let mut assembly = CommitAssembler::default();
            let mut whole = None;
            for (at, message) in messages.iter().enumerate() {
                assert_eq!(epoch_of(message), Some(3));
                whole = assembly.take(message).unwrap();
                assert_eq!(whole.is_some(), at + 1 == messages.len());
            }
            let whole = whole.unwrap();
            let contents = CommitContents::read(&whole).unwrap();
            assert_eq!((contents.epoch, contents.taken.len()), (Some(3), 3));
            let StreamItem::Step(row) = &contents.taken[2] else { panic!("a step") };
            assert_eq!((row.place.position, row.body), (Position(8), "{\"a\":1}\n"));
            assert_eq!(row.payloads, "<ü/>\n\n");
        }
    }

    #[test]
    fn parts_without_their_end_count_for_nothing_and_an_end_without_parts_is_damage() {
        let cut = group(None).messages(3, 200);
        let whole = CommitEncoder::epoch(4, "process 2").messages(4, 1 << 20);
        let mut assembly = CommitAssembler::default();
        assert_eq!(assembly.take(&cut[0]), Ok(None));
        assert!(assembly.take(&whole[0]).unwrap().is_some());
        assert!(assembly.take(&cut[1]).is_err());
    }

    #[test]
    fn damage_anywhere_is_an_error_or_other_bytes_never_a_panic() {
        let message = group(None).messages(3, 1 << 20).remove(0);
        for at in 0..message.len() {
            let mut damaged = message.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(Some(whole)) = CommitAssembler::default().take(&damaged) {
                // The hash chain detects these changes.
                CommitContents::read(&whole).map(drop).unwrap_or_default();
            }
            assert!(
                CommitAssembler::default()
                    .take(&message[..at])
                    .map(|whole| whole.is_none_or(|whole| {
                        CommitContents::read(&whole).is_ok_and(|c| c.taken.len() < 3)
                            || CommitContents::read(&whole).is_err()
                    }))
                    .unwrap_or(true),
                "{at}"
            );
        }
    }
}
