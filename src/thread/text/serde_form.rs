//! Serialised forms of the inputs, facts and messages in a record's text. These forms leave out
//! values that other parts of the record imply.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{
    BrokenPayload, Disposition, MessageKind, Money, Spent, Turn, WrittenPayload,
};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId};
use crate::thread::{Closing, Input};
use crate::xml::findings::Finding;

pub enum InputForm<'t> {
    Submitted(Box<SubmittedForm<'t>>),
    Outcome(OutcomeForm<'t>),
    Other(Input),
}

#[derive(Deserialize)]
pub struct SubmittedForm<'t> {
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "client", borrow)]
    pub client: Cow<'t, str>,
    #[serde(rename = "thread")]
    pub thread: Option<String>,
    #[serde(rename = "suggested")]
    pub suggested: Option<String>,
    #[serde(rename = "key")]
    pub key: Option<String>,
    #[serde(rename = "verdict")]
    pub verdict: VerdictForm,
}

#[derive(Deserialize)]
pub struct OutcomeForm<'t> {
    #[serde(rename = "listener", borrow)]
    pub listener: Cow<'t, str>,
    #[serde(rename = "call")]
    pub call: CallId,
    #[serde(rename = "attempt")]
    pub attempt: Attempt,
    #[serde(rename = "verdicts")]
    pub verdicts: Vec<VerdictForm>,
    #[serde(rename = "turn")]
    pub turn: Option<TurnForm>,
    #[serde(rename = "arrived")]
    pub arrived: Option<Time>,
}

/// The form of a model turn in a record's text. Empty parts of the turn are absent.
#[derive(Deserialize)]
pub struct TurnForm {
    #[serde(rename = "note", default)]
    note: String,
    #[serde(rename = "findings", default)]
    findings: Vec<Finding>,
    #[serde(rename = "broken", default)]
    broken: Vec<BrokenPayload>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: u64,
    #[serde(rename = "tokens_out")]
    pub tokens_out: u64,
    #[serde(rename = "money", default)]
    pub money: Money,
    #[serde(rename = "spent")]
    spent: Option<Spent>,
    #[serde(rename = "written", default)]
    written: Vec<WrittenPayload>,
    #[serde(rename = "inputs")]
    inputs: Option<String>,
}

impl From<TurnForm> for Turn {
    fn from(form: TurnForm) -> Self {
        Self {
            note: form.note,
            findings: form.findings,
            broken: form.broken,
            tokens_in: form.tokens_in,
            tokens_out: form.tokens_out,
            money: form.money,
            spent: form.spent,
            written: form.written,
            inputs: form.inputs,
            recorded: None,
        }
    }
}

#[derive(Deserialize)]
pub struct OutcomeReceivedForm {
    #[serde(rename = "call")]
    pub call: Option<CallId>,
    #[serde(rename = "attempt")]
    pub attempt: Option<Attempt>,
}

#[derive(Deserialize)]
pub struct HandedOver {
    #[serde(rename = "call")]
    pub call: Option<CallId>,
    #[serde(rename = "attempt")]
    pub attempt: Attempt,
}

#[derive(Deserialize)]
pub struct DisposedForm {
    #[serde(rename = "message")]
    pub message: Option<MessageId>,
    #[serde(rename = "how")]
    pub how: Option<Disposition>,
}

#[derive(Default, Deserialize)]
pub struct UsedForm {
    #[serde(rename = "call")]
    pub call: Option<CallId>,
    #[serde(rename = "agent")]
    pub agent: Option<ListenerName>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: Option<u64>,
    #[serde(rename = "tokens_out")]
    pub tokens_out: Option<u64>,
    #[serde(rename = "money", default)]
    pub money: Money,
    #[serde(rename = "attempt")]
    pub attempt: Option<Attempt>,
}

#[derive(Deserialize)]
pub struct ClosedForm {
    #[serde(rename = "call")]
    pub call: Option<CallId>,
    #[serde(rename = "how")]
    pub how: Option<Closing>,
}

#[derive(Deserialize)]
pub struct AcceptedForm<'t> {
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "kind")]
    pub kind: Option<MessageKind>,
    /// The sender of the message. `None` if the kind of the message and the record's input imply
    /// the sender. A text that states `from` must also state `kind`, and is always written with
    /// `to`.
    #[serde(rename = "from", borrow, default, deserialize_with = "borrowed")]
    pub from: Option<Cow<'t, str>>,
    #[serde(rename = "to", borrow, default, deserialize_with = "borrowed")]
    pub to: Option<Cow<'t, str>>,
    #[serde(rename = "thread", borrow, default, deserialize_with = "borrowed")]
    pub thread: Option<Cow<'t, str>>,
    #[serde(rename = "seq")]
    pub seq: u64,
    /// The message that caused this one. `Some(None)`, which is `null` in the text, if there is no
    /// such message. If the text has no `cause`, there are two cases:
    /// - A message without `from` was caused by the message that opened the call of the record's
    ///   input.
    /// - A message with `from` was caused by no message.
    #[serde(rename = "cause", default, deserialize_with = "present")]
    pub cause: Option<Option<MessageReference>>,
    /// The call to which the message belongs. `Some(None)`, which is `null` in the text, if there
    /// is no such call. If the text has no `call`, there are three cases:
    /// - A `call` message belongs to the call that it opens.
    /// - A note without `from` belongs to the call that its `cause` opened.
    /// - Any other message belongs to no call.
    #[serde(rename = "call", default, deserialize_with = "present")]
    pub call: Option<Option<MessageReference>>,
    #[serde(rename = "time")]
    pub time: Option<Time>,
    #[serde(rename = "name", borrow)]
    pub name: Cow<'t, str>,
    #[serde(rename = "digest")]
    pub digest: Digest,
    #[serde(rename = "length")]
    pub length: usize,
    #[serde(rename = "opening", borrow)]
    pub opening: Option<OpeningForm<'t>>,
    #[serde(rename = "key")]
    pub key: Option<String>,
}

/// Deserialises a string, or `null` as `None`. Borrows the string from the text if it has no
/// escapes. By default, serde copies a string that is in an `Option`.
fn borrowed<'de: 't, 't, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<Cow<'t, str>>, D::Error> {
    #[derive(Deserialize)]
    struct BorrowedText<'t>(#[serde(borrow)] Cow<'t, str>);
    Option::<BorrowedText<'t>>::deserialize(d).map(|text| text.map(|text| text.0))
}

fn present<'t, D: serde::Deserializer<'t>>(
    d: D,
) -> Result<Option<Option<MessageReference>>, D::Error> {
    Option::deserialize(d).map(Some)
}

/// A reference to a message in the text of a record: the id of the message, or the word `input` or
/// `cause`.
pub enum MessageReference {
    /// The word `input`. Refers to the message that opened the call of the record's input.
    Input,
    /// The word `cause`, used only in the field `call`. Refers to the cause of the message that
    /// contains the reference.
    Cause,
    Id(MessageId),
}

impl<'t> Deserialize<'t> for MessageReference {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        match <&str>::deserialize(d)? {
            "input" => Ok(Self::Input),
            "cause" => Ok(Self::Cause),
            id => id.parse().map(|id| Self::Id(MessageId(id))).map_err(D::Error::custom),
        }
    }
}

#[derive(Deserialize)]
pub struct OpeningForm<'t> {
    #[serde(rename = "by")]
    pub by: OpenerKind,
    #[serde(rename = "name", borrow)]
    pub name: Option<Cow<'t, str>>,
    #[serde(rename = "call")]
    pub call: Option<CallId>,
    #[serde(rename = "thread", borrow)]
    pub thread: Option<Cow<'t, str>>,
    #[serde(rename = "group")]
    pub group: Option<(CallId, Gather)>,
    #[serde(rename = "forward", default)]
    pub forward: bool,
}

#[derive(Deserialize)]
pub enum OpenerKind {
    #[serde(rename = "client")]
    Client,
    #[serde(rename = "call")]
    Call,
}

#[derive(Deserialize)]
pub enum VerdictForm {
    #[serde(rename = "passed")]
    Passed(FactOrDigest),
    #[serde(rename = "refused")]
    Refused(FactOrDigest),
}

pub enum FactOrDigest {
    Fact(usize),
    Digest(Digest),
}

impl<'t> Deserialize<'t> for FactOrDigest {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        struct FactOrDigestVisitor;
        impl Visitor<'_> for FactOrDigestVisitor {
            type Value = FactOrDigest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fact's number or a digest")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FactOrDigest, E> {
                usize::try_from(number).map(FactOrDigest::Fact).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FactOrDigest, E> {
                Digest::parse(text).map(FactOrDigest::Digest).map_err(E::custom)
            }
        }
        d.deserialize_any(FactOrDigestVisitor)
    }
}

/// Reads an input or a fact that has no short form of its own. Uses the derived deserializer of its
/// type `T`.
pub fn other<'t, T: DeserializeOwned, A: MapAccess<'t>>(
    key: &str,
    map: &mut A,
) -> Result<T, A::Error> {
    let value: &RawValue = map.next_value()?;
    let key = serde_json::to_string(key).map_err(A::Error::custom)?;
    serde_json::from_str(&format!("{{{key}:{value}}}")).map_err(A::Error::custom)
}

impl<'t> Deserialize<'t> for InputForm<'t> {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        struct SingleField;
        impl<'t> Visitor<'t> for SingleField {
            type Value = InputForm<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of one key")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<InputForm<'t>, A::Error> {
                Ok(match map.next_key()?.unwrap_or_default() {
                    "submitted" => InputForm::Submitted(map.next_value()?),
                    "outcome" => InputForm::Outcome(map.next_value()?),
                    key => InputForm::Other(other(key, &mut map)?),
                })
            }
        }
        d.deserialize_map(SingleField)
    }
}
