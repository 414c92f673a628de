//! Parses the text of a record: parses in place, interns names, and restores the values that the
//! text leaves out.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::serde_form::{
    AcceptedForm, ClosedForm, DisposedForm, FactOrDigest, HandedOver, OpenerKind,
    OutcomeReceivedForm, SaidInput, SaidOpening, SaidVerdict, other,
};
use super::write::about;
use super::{InternedNames, fast_path};
use crate::clock::Time;
use crate::envelope::{Kind, Message, Payload};
use crate::ids::{Attempt, CallId, Digest, IdError, ThreadId};
use crate::thread::{Fact, Input, Opener, Opening, Verdict};

/// Why a text is not a valid record.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRecord {
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
    #[error("there is no input before its facts")]
    NoInput,
    #[error("there are bytes beyond its payloads")]
    Beyond,
}

/// Parses the text of a record of the thread tree `tree`, written at `time`. `payloads` are the
/// bytes of all payloads of the record, one after another, possibly redacted.
pub fn read(
    text: &str,
    payloads: &str,
    tree: &ThreadId,
    time: Time,
    names: &mut InternedNames,
) -> Result<(Input, Vec<Fact>), UnreadableRecord> {
    let (about, latest, taken, wrong) = (None, None, 0, None);
    let mut reader = RecordReader { tree, time, names, about, latest, payloads, taken, wrong };
    let quick = fast_path::outcome(&mut reader, text).filter(|_| reader.payloads.is_empty());
    if let Some(read) = quick {
        return Ok(read);
    }

    (reader.about, reader.latest) = (None, None);
    (reader.payloads, reader.taken) = (payloads, 0);
    let mut whole = RecordObject { reader, input: None, facts: Vec::new() };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(&mut whole).and_then(|()| json.end());
    if let Some(wrong) = whole.reader.wrong.take() {
        return Err(wrong);
    }

    read?;
    if !whole.reader.payloads.is_empty() {
        return Err(UnreadableRecord::Beyond);
    }

    let input = whole.input.ok_or(UnreadableRecord::NoInput)?;
    Ok((whole.reader.input(input, &whole.facts)?, whole.facts))
}

pub(super) struct RecordReader<'r> {
    tree: &'r ThreadId,
    time: Time,
    pub(super) names: &'r mut InternedNames,
    /// Call and attempt of the record's input.
    pub(super) about: Option<(CallId, Attempt)>,
    /// Call of the latest message that was read.
    pub(super) latest: Option<CallId>,
    /// Payload bytes that no message has yet.
    payloads: &'r str,
    taken: usize,
    /// The reason why the text is not a valid record, if the reason is no JSON error.
    wrong: Option<UnreadableRecord>,
}

impl RecordReader<'_> {
    fn input(&mut self, input: SaidInput<'_>, facts: &[Fact]) -> Result<Input, UnreadableRecord> {
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
                arrived: said.arrived,
            },
            SaidInput::Other(input) => input,
        })
    }

    fn heard(&self, said: OutcomeReceivedForm) -> Result<Fact, UnreadableRecord> {
        let (call, attempt) =
            said.call.zip(said.attempt).or(self.about).ok_or(UnreadableRecord::NoCall("heard"))?;
        Ok(Fact::OutcomeReceived { call, attempt })
    }

    fn handed_over(&self, said: &HandedOver) -> Result<Fact, UnreadableRecord> {
        let call = said.call.or(self.latest).ok_or(UnreadableRecord::NoCall("handed-over"))?;
        Ok(Fact::HandedOver { call, attempt: said.attempt })
    }

    fn closed(&self, said: &ClosedForm) -> Result<Fact, UnreadableRecord> {
        let call = said.call.or(self.about.map(|(call, _)| call));
        let call = call.ok_or(UnreadableRecord::NoCall("call-closed"))?;
        Ok(Fact::CallClosed { call, how: said.how })
    }

    pub(super) fn accepted(&mut self, said: AcceptedForm<'_>) -> Result<Fact, UnreadableRecord> {
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
        self.latest = message.call;
        Ok(Fact::Accepted { message: message.into(), opening, key: said.key })
    }

    fn opening(
        &mut self,
        message: &Message,
        said: SaidOpening<'_>,
    ) -> Result<Opening, UnreadableRecord> {
        let name = said.name.map(|name| self.names.listener(&name)).transpose()?;
        let name = name.unwrap_or_else(|| message.from.clone());
        let opener = match said.by {
            OpenerKind::Client => Opener::Client { name },
            OpenerKind::Call => {
                let call = said.call.or(message.cause.map(CallId));
                let call = call.ok_or(UnreadableRecord::NoCall("call's opener"))?;
                let thread = said.thread.map(|thread| self.names.thread(&thread)).transpose()?;
                let thread = thread.unwrap_or_else(|| message.thread.clone());
                Opener::Call { name, call, thread }
            }
        };

        Ok(Opening { opener, group: said.group, forward: said.forward })
    }

    fn payload(&mut self, digest: Digest, length: usize) -> Result<Payload, UnreadableRecord> {
        self.taken += 1;
        let payload = self.payloads.split_at_checked(length).and_then(|(bytes, rest)| {
            self.payloads = rest;
            Payload::recorded(digest, bytes)
        });
        payload.ok_or(UnreadableRecord::Payload { number: self.taken, digest })
    }
}

impl SaidVerdict {
    pub(super) fn verdict(self, facts: &[Fact]) -> Result<Verdict, UnreadableRecord> {
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
    ) -> Result<Digest, UnreadableRecord> {
        match self {
            Self::Fact(number) => {
                facts.get(number).and_then(of).ok_or(UnreadableRecord::Verdict(number))
            }
            Self::Digest(digest) => Ok(digest),
        }
    }
}

/// The JSON object of a record. The input must stand before the facts, because facts refer to it.
struct RecordObject<'r, 't> {
    reader: RecordReader<'r>,
    input: Option<SaidInput<'t>>,
    facts: Vec<Fact>,
}

impl<'t> Visitor<'t> for &mut RecordObject<'_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record's input and facts")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "input" => {
                    let input = self.input.insert(map.next_value()?);
                    self.reader.about = match input {
                        SaidInput::Submitted(_) => None,
                        SaidInput::Outcome(said) => Some((said.call, said.attempt)),
                        SaidInput::Other(input) => about(input),
                    };
                }
                "facts" if self.input.is_some() => {
                    map.next_value_seed(FactList(&mut self.reader, &mut self.facts))?;
                }
                _ => return Err(A::Error::custom("not a record's")),
            }
        }

        Ok(())
    }
}

/// Parses the facts of a record into a list.
struct FactList<'a, 'r>(&'a mut RecordReader<'r>, &'a mut Vec<Fact>);

impl<'t> DeserializeSeed<'t> for FactList<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'t> Visitor<'t> for FactList<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("facts")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut facts: A) -> Result<(), A::Error> {
        while let Some(fact) = facts.next_element_seed(OneFact(&mut *self.0))? {
            self.1.push(fact);
        }
        Ok(())
    }
}

/// Parses one fact: an object with one key, which names the kind of the fact.
struct OneFact<'a, 'r>(&'a mut RecordReader<'r>);

impl<'t> DeserializeSeed<'t> for OneFact<'_, '_> {
    type Value = Fact;

    fn deserialize<D: Deserializer<'t>>(self, d: D) -> Result<Fact, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for OneFact<'_, '_> {
    type Value = Fact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fact")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Fact, A::Error> {
        let fact = match map.next_key()?.unwrap_or_default() {
            "disposed" => {
                let DisposedForm { message, how } = map.next_value()?;
                Ok(Fact::Disposed { message, how })
            }
            "accepted" => self.0.accepted(map.next_value()?),
            "heard" => self.0.heard(map.next_value()?),
            "handed-over" => self.0.handed_over(&map.next_value()?),
            "call-closed" => self.0.closed(&map.next_value()?),
            key => Ok(other(key, &mut map)?),
        };

        fact.map_err(|wrong| {
            self.0.wrong = Some(wrong);
            A::Error::custom("not a record's")
        })
    }
}
