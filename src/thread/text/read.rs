//! Reading: names shared, texts in place, and what was left out put back in.

use super::Names;
use super::said::{
    Accepted, By, Closed, Disposed, FactOrDigest, Heard, SaidFact, SaidInput, SaidOpening,
    SaidVerdict, Text,
};
use super::write::about;
use crate::clock::Time;
use crate::envelope::{Kind, Message, Payload};
use crate::ids::{Attempt, CallId, Digest, IdError, ThreadId};
use crate::thread::{Fact, Input, Opener, Opening, Verdict};

/// Why a text is not that of a record.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Id(#[from] IdError),
    #[error("verdict of fact {0}, which is none of its kind")]
    Verdict(usize),
    #[error("a {0} that does not say of which call")]
    NoCall(&'static str),
    #[error("payload {number} is not what its digest says ({digest})")]
    Payload { number: usize, digest: Digest },
    #[error("there are bytes beyond its payloads")]
    Beyond,
}

/// What the text of a record of `tree` at `time` says; `payloads` are the bytes of its payloads,
/// one after another, which may be redacted.
pub fn read(
    text: &str,
    payloads: &str,
    tree: &ThreadId,
    time: Time,
    names: &mut Names,
) -> Result<(Input, Vec<Fact>), Unreadable> {
    let text: Text<'_> = serde_json::from_str(text)?;
    let about = match &text.input {
        SaidInput::Submitted(_) => None,
        SaidInput::Outcome(said) => Some((said.call, said.attempt)),
        SaidInput::Other(input) => about(input),
    };
    let mut reader = Reader { tree, time, names, about, payloads, taken: 0 };
    let facts = text.facts.into_iter().map(|fact| reader.fact(fact));
    let facts = facts.collect::<Result<Vec<_>, _>>()?;
    if !reader.payloads.is_empty() {
        return Err(Unreadable::Beyond);
    }
    Ok((reader.input(text.input, &facts)?, facts))
}

struct Reader<'r> {
    tree: &'r ThreadId,
    time: Time,
    names: &'r mut Names,
    about: Option<(CallId, Attempt)>,
    /// Those not yet taken.
    payloads: &'r str,
    taken: usize,
}

impl Reader<'_> {
    fn input(&mut self, input: SaidInput<'_>, facts: &[Fact]) -> Result<Input, Unreadable> {
        Ok(match input {
            SaidInput::Submitted(said) => Input::Submitted {
                id: said.id,
                client: self.names.listener(&said.client)?,
                thread: said.thread,
                suggested: said.suggested,
                key: said.key,
                verdict: said.verdict.verdict(facts)?,
            },
            SaidInput::Outcome(said) => Input::Outcome {
                listener: self.names.listener(&said.listener)?,
                call: said.call,
                attempt: said.attempt,
                verdicts: said
                    .verdicts
                    .into_iter()
                    .map(|verdict| verdict.verdict(facts))
                    .collect::<Result<_, _>>()?,
                turn: said.turn,
            },
            SaidInput::Other(input) => input,
        })
    }

    fn fact(&mut self, fact: SaidFact<'_>) -> Result<Fact, Unreadable> {
        Ok(match fact {
            SaidFact::Heard(Heard { call, attempt }) => {
                let own = call.zip(attempt).or(self.about);
                let (call, attempt) = own.ok_or(Unreadable::NoCall("heard"))?;
                Fact::Heard { call, attempt }
            }
            SaidFact::Disposed(Disposed { message, how }) => Fact::Disposed { message, how },
            SaidFact::Closed(Closed { call, how }) => {
                let own = call.or(self.about.map(|(call, _)| call));
                Fact::CallClosed { call: own.ok_or(Unreadable::NoCall("call-closed"))?, how }
            }
            SaidFact::Accepted(said) => self.accepted(*said)?,
            SaidFact::Other(fact) => *fact,
        })
    }

    fn accepted(&mut self, said: Accepted<'_>) -> Result<Fact, Unreadable> {
        let thread = said.thread.as_ref().map(|text| self.names.thread(text)).transpose()?;
        let own = (said.kind == Kind::Call).then_some(CallId(said.id));
        let message = Message {
            id: said.id,
            kind: said.kind,
            from: self.names.listener(&said.from)?,
            to: self.names.listener(&said.to)?,
            thread: thread.unwrap_or_else(|| self.tree.clone()),
            seq: said.seq,
            cause: said.cause,
            call: said.call.unwrap_or(own),
            time: said.time.unwrap_or(self.time),
            name: self.names.payload(&said.name)?,
            payload: self.payload(said.digest, said.length)?,
        };
        let opening = said.opening.map(|opening| self.opening(&message, opening)).transpose()?;
        Ok(Fact::Accepted { message, opening, key: said.key })
    }

    fn opening(&mut self, message: &Message, said: SaidOpening<'_>) -> Result<Opening, Unreadable> {
        let name = said.name.map(|name| self.names.listener(&name)).transpose()?;
        let name = name.unwrap_or_else(|| message.from.clone());
        let opener = match said.by {
            By::Client => Opener::Client { name },
            By::Call => {
                let call = said.call.or(message.cause.map(CallId));
                let call = call.ok_or(Unreadable::NoCall("call's opener"))?;
                let thread = said.thread.map(|thread| self.names.thread(&thread)).transpose()?;
                let thread = thread.unwrap_or_else(|| message.thread.clone());
                Opener::Call { name, call, thread }
            }
        };
        Ok(Opening { opener, group: said.group, forward: said.forward })
    }

    fn payload(&mut self, digest: Digest, length: usize) -> Result<Payload, Unreadable> {
        self.taken += 1;
        let payload = self.payloads.split_at_checked(length).and_then(|(bytes, rest)| {
            self.payloads = rest;
            Payload::recorded(digest, bytes)
        });
        payload.ok_or(Unreadable::Payload { number: self.taken, digest })
    }
}

impl SaidVerdict {
    fn verdict(self, facts: &[Fact]) -> Result<Verdict, Unreadable> {
        let passed = |fact: &Fact| match fact {
            Fact::Accepted { message, .. } => Some(message.payload.digest),
            _ => None,
        };
        let refused = |fact: &Fact| match fact {
            Fact::Refused { refusal, .. } => Some(refusal.digest),
            _ => None,
        };
        Ok(match self {
            Self::Passed(what) => Verdict::Passed(what.digest(facts, passed)?),
            Self::Refused(what) => Verdict::Refused(what.digest(facts, refused)?),
        })
    }
}

impl FactOrDigest {
    fn digest(
        self,
        facts: &[Fact],
        of: impl Fn(&Fact) -> Option<Digest>,
    ) -> Result<Digest, Unreadable> {
        match self {
            Self::Fact(number) => facts.get(number).and_then(of).ok_or(Unreadable::Verdict(number)),
            Self::Digest(digest) => Ok(digest),
        }
    }
}
