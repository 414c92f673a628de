//! Parses the text of a record: parses in place, interns names, and restores the values that the
//! text leaves out.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::implied_values::{AboutOutcome, implied_call, implied_disposition, is_by_core};
use super::serde_form::{
    AcceptedForm, ClosedForm, DisposedForm, FactOrDigest, HandedOver, InputForm, MessageReference,
    OpenerKind, OpeningForm, OutcomeReceivedForm, UsedForm, VerdictForm, other,
};
use super::{InternedNames, fast_path};
use crate::clock::Time;
use crate::envelope::{Disposition, Message, MessageKind, Payload, Turn};
use crate::ids::{CallId, Digest, IdError, ListenerName, MessageId, ThreadId};
use crate::thread::{Closing, Fact, Input, Opener, Opening, Verdict};

/// Why a text is not a valid record.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRecord {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Id(#[from] IdError),
    #[error("a verdict refers to fact {0}, which is of another kind")]
    Verdict(usize),
    #[error("a `{0}` fact names no call")]
    NoCall(&'static str),
    #[error("a `disposed` fact names no message")]
    NoMessage,
    #[error("a message states no `{0}`, and its record does not imply it")]
    NoField(&'static str),
    #[error("a `used` fact states no tokens")]
    NoSpending,
    #[error("a message refers to the `{0}`, and the record has none")]
    Reference(&'static str),
    #[error("payload {number} does not match its digest {digest}")]
    Payload { number: usize, digest: Digest },
    #[error("no input stands before the facts")]
    NoInput,
    #[error("bytes are left after the last payload")]
    Beyond,
}

/// Parses the text of a record of the thread tree `tree`, written at `time`. `payloads` are the
/// bytes of all payloads of the record, one after another, possibly redacted. If `payloads` is
/// `None`, each payload gets only its digest and length, and its bytes can be restored later.
pub fn read(
    text: &str,
    payloads: Option<&str>,
    tree: &ThreadId,
    time: Time,
    names: &mut InternedNames,
) -> Result<(Input, Vec<Fact>), UnreadableRecord> {
    let mut reader = RecordReader {
        tree,
        time,
        names,
        about: None,
        latest: None,
        latest_call: None,
        payloads,
        taken: 0,
        wrong: None,
    };
    let quick = fast_path::outcome(&mut reader, text).filter(|_| !reader.has_bytes_left());
    if let Some(read) = quick {
        return Ok(read);
    }

    // The fast path may have read a part of the record before it gave up.
    reader.about = None;
    reader.latest = None;
    reader.latest_call = None;
    reader.payloads = payloads;
    reader.taken = 0;
    let mut whole = RecordObject { reader, input: None, facts: Vec::new() };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(&mut whole).and_then(|()| json.end());
    if let Some(wrong) = whole.reader.wrong.take() {
        return Err(wrong);
    }

    read?;
    if whole.reader.has_bytes_left() {
        return Err(UnreadableRecord::Beyond);
    }

    let input = whole.input.ok_or(UnreadableRecord::NoInput)?;
    Ok((whole.reader.input(input, &whole.facts)?, whole.facts))
}

pub(super) struct RecordReader<'r> {
    tree: &'r ThreadId,
    time: Time,
    pub(super) names: &'r mut InternedNames,
    /// Values of the record's input that the texts of facts may leave out, such as the call and the
    /// listener. `None` if the input is not an outcome, that is, the payloads that a listener
    /// returned.
    pub(super) about: Option<AboutOutcome>,
    /// Message that was read last; `None` before the first message of the record.
    latest: Option<MessageId>,
    /// Call of the message that was read last. `None` before the first message, or if the last
    /// message belongs to no call.
    pub(super) latest_call: Option<CallId>,
    /// Payload bytes of the messages that are not read yet; `None` if the payloads are read without
    /// their bytes.
    payloads: Option<&'r str>,
    taken: usize,
    /// Reason why the text is no valid record, if one was found. JSON errors are not stored here,
    /// because the JSON parser reports them itself.
    wrong: Option<UnreadableRecord>,
}

impl RecordReader<'_> {
    fn has_bytes_left(&self) -> bool {
        self.payloads.is_some_and(|payloads| !payloads.is_empty())
    }

    fn input(&mut self, input: InputForm<'_>, facts: &[Fact]) -> Result<Input, UnreadableRecord> {
        Ok(match input {
            InputForm::Submitted(form) => Input::Submitted {
                id: form.id,
                client: self.names.listener(&form.client)?,
                thread: form.thread,
                suggested: form.suggested,
                key: form.key,
                verdict: form.verdict.verdict(facts)?,
            },
            InputForm::Outcome(form) => Input::Outcome {
                listener: self.names.listener(&form.listener)?,
                call: form.call,
                attempt: form.attempt,
                verdicts: form
                    .verdicts
                    .into_iter()
                    .map(|verdict| verdict.verdict(facts))
                    .collect::<Result<_, _>>()?,
                turn: form.turn.map(Turn::from),
                arrived: form.arrived,
            },
            InputForm::Other(input) => input,
        })
    }

    /// Sets `about` to the values of the record's input that the texts of the facts may leave out.
    fn follow(&mut self, input: &InputForm<'_>) -> Result<(), UnreadableRecord> {
        self.about = match input {
            InputForm::Outcome(form) => {
                let turn = form.turn.as_ref();
                Some(AboutOutcome {
                    call: form.call,
                    attempt: form.attempt,
                    listener: self.names.listener(&form.listener)?,
                    spending: turn.map(|turn| (turn.tokens_in, turn.tokens_out, turn.money)),
                })
            }
            _ => None,
        };
        Ok(())
    }

    fn outcome_received(&self, form: OutcomeReceivedForm) -> Result<Fact, UnreadableRecord> {
        let own = self.about.as_ref().map(|about| (about.call, about.attempt));
        let (call, attempt) =
            form.call.zip(form.attempt).or(own).ok_or(UnreadableRecord::NoCall("heard"))?;
        Ok(Fact::OutcomeReceived { call, attempt })
    }

    /// Returns the message to which a `disposed` fact refers if its text states no message. Returns
    /// `None` if no message stands before the fact in the record, and the input is not an outcome.
    pub(super) fn implied_message(&self) -> Option<MessageId> {
        self.latest.or(self.input_call().map(|call| call.0))
    }

    /// Returns the disposition of a `disposed` fact whose text states none. The disposition is the
    /// way in which a message ended.
    pub(super) fn implied_disposition(&self) -> Disposition {
        implied_disposition(self.latest)
    }

    fn disposed(&self, form: &DisposedForm) -> Result<Fact, UnreadableRecord> {
        let message = form.message.or_else(|| self.implied_message());
        let message = message.ok_or(UnreadableRecord::NoMessage)?;
        let how = form.how.unwrap_or_else(|| self.implied_disposition());
        Ok(Fact::Disposed { message, how })
    }

    pub(super) fn used(&self, form: UsedForm) -> Result<Fact, UnreadableRecord> {
        let about = self.about.as_ref();
        let (call, agent) = match (form.call, about) {
            (Some(call), _) => (call, form.agent),
            (None, Some(about)) => (about.call, Some(about.listener.clone())),
            (None, None) => return Err(UnreadableRecord::NoCall("used")),
        };

        let own = form.tokens_in.zip(form.tokens_out);
        let own = own.map(|(tokens_in, tokens_out)| (tokens_in, tokens_out, form.money));
        let spending = own.or_else(|| about?.spending);
        let (tokens_in, tokens_out, money) = spending.ok_or(UnreadableRecord::NoSpending)?;
        Ok(Fact::Used { call, agent, tokens_in, tokens_out, money, attempt: form.attempt })
    }

    /// Returns the call of the record's input; `None` if the input is not an outcome.
    pub(super) fn input_call(&self) -> Option<CallId> {
        self.about.as_ref().map(|about| about.call)
    }

    /// Returns the listener of the record's input, which is the sender or the recipient of a
    /// message whose text leaves out `field`. Returns an error if the input is not an outcome.
    fn listener(&self, field: &'static str) -> Result<ListenerName, UnreadableRecord> {
        let about = self.about.as_ref().ok_or(UnreadableRecord::NoField(field))?;
        Ok(about.listener.clone())
    }

    fn handed_over(&self, form: &HandedOver) -> Result<Fact, UnreadableRecord> {
        let call = form.call.or(self.latest_call).ok_or(UnreadableRecord::NoCall("handed-over"))?;
        Ok(Fact::HandedOver { call, attempt: form.attempt })
    }

    fn closed(&self, form: &ClosedForm) -> Result<Fact, UnreadableRecord> {
        let call = form.call.or_else(|| self.input_call());
        let call = call.ok_or(UnreadableRecord::NoCall("call-closed"))?;
        Ok(Fact::CallClosed { call, how: form.how.unwrap_or(Closing::Completed) })
    }

    pub(super) fn accepted(&mut self, form: AcceptedForm<'_>) -> Result<Fact, UnreadableRecord> {
        let thread = form.thread.as_ref().map(|text| self.names.thread(text)).transpose()?;
        let is_sender_implied = form.from.is_none();
        let kind = form.kind.or(is_sender_implied.then_some(MessageKind::Call));
        let kind = kind.ok_or(UnreadableRecord::NoField("kind"))?;
        let from = match &form.from {
            Some(from) => self.names.listener(from)?,
            None if is_by_core(kind) => ListenerName::core(),
            None => self.listener("from")?,
        };
        let to = match &form.to {
            Some(to) => self.names.listener(to)?,
            None => self.listener("to")?,
        };

        let cause = match form.cause {
            None if is_sender_implied => self.input_call().map(|call| call.0),
            cause => cause.flatten().map(|cause| self.message(cause, None)).transpose()?,
        };
        let call = match form.call {
            None => implied_call(form.id, kind, cause, is_sender_implied),
            Some(None) => None,
            Some(Some(call)) => Some(CallId(self.message(call, cause)?)),
        };

        let message = Message {
            id: form.id,
            kind,
            from,
            to,
            thread: thread.unwrap_or_else(|| self.tree.clone()),
            seq: form.seq,
            cause,
            call,
            time: form.time.unwrap_or(self.time),
            name: self.names.payload(&form.name)?,
            payload: self.payload(form.digest, form.length)?,
        };

        let opening = form.opening.map(|opening| self.opening(&message, opening)).transpose()?;
        self.latest = Some(message.id);
        self.latest_call = message.call;
        Ok(Fact::Accepted { message: message.into(), opening, key: form.key })
    }

    /// Returns the id of the message to which `reference` refers. `cause` is the cause of the
    /// message that contains the reference.
    fn message(
        &self,
        reference: MessageReference,
        cause: Option<MessageId>,
    ) -> Result<MessageId, UnreadableRecord> {
        match reference {
            MessageReference::Id(id) => Ok(id),
            MessageReference::Cause => cause.ok_or(UnreadableRecord::Reference("cause")),
            MessageReference::Input => {
                let call = self.input_call().ok_or(UnreadableRecord::Reference("input"))?;
                Ok(call.0)
            }
        }
    }

    fn opening(
        &mut self,
        message: &Message,
        form: OpeningForm<'_>,
    ) -> Result<Opening, UnreadableRecord> {
        let name = form.name.map(|name| self.names.listener(&name)).transpose()?;
        let name = name.unwrap_or_else(|| message.from.clone());
        let opener = match form.by {
            OpenerKind::Client => Opener::Client { name },
            OpenerKind::Call => {
                let call = form.call.or(message.cause.map(CallId));
                let call = call.ok_or(UnreadableRecord::NoCall("call's opener"))?;
                let thread = form.thread.map(|thread| self.names.thread(&thread)).transpose()?;
                let thread = thread.unwrap_or_else(|| message.thread.clone());
                Opener::Call { name, call, thread }
            }
        };

        Ok(Opening { opener, group: form.group, forward: form.forward })
    }

    fn payload(&mut self, digest: Digest, length: usize) -> Result<Payload, UnreadableRecord> {
        self.taken += 1;
        let Some(payloads) = self.payloads else { return Ok(Payload::unread(digest, length)) };
        let payload = payloads.split_at_checked(length).and_then(|(bytes, rest)| {
            self.payloads = Some(rest);
            Payload::recorded(digest, bytes)
        });
        payload.ok_or(UnreadableRecord::Payload { number: self.taken, digest })
    }
}

impl VerdictForm {
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
        digest_of: impl Fn(&Fact) -> Option<Digest>,
    ) -> Result<Digest, UnreadableRecord> {
        match self {
            Self::Fact(number) => {
                facts.get(number).and_then(digest_of).ok_or(UnreadableRecord::Verdict(number))
            }
            Self::Digest(digest) => Ok(digest),
        }
    }
}

/// The JSON object of a record. In the text, the input must come before the facts, because the
/// facts leave out values that the input contains.
struct RecordObject<'r, 't> {
    reader: RecordReader<'r>,
    input: Option<InputForm<'t>>,
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
                    if let Err(wrong) = self.reader.follow(input) {
                        self.reader.wrong = Some(wrong);
                        return Err(A::Error::custom("not a record's"));
                    }
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

/// Deserializer that appends the facts of a record to a list.
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

/// Deserializer of one fact: an object with one key, which names the kind of the fact.
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
            "disposed" => self.0.disposed(&map.next_value()?),
            "accepted" => self.0.accepted(map.next_value()?),
            "used" => self.0.used(map.next_value()?),
            "heard" => self.0.outcome_received(map.next_value()?),
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
