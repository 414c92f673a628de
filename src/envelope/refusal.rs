//! Refusals: payloads that did not pass the gate, with the rule and the location.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, PayloadName};
use crate::xml::findings::TextLocation;

/// The rules of the gate in their order; the first that fails decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Larger than a payload may be.
    #[serde(rename = "too-large")]
    TooLarge,
    #[serde(rename = "not-utf8")]
    NotUtf8,
    /// A DOCTYPE, an entity declaration or a processing instruction.
    #[serde(rename = "forbidden")]
    Forbidden,
    /// Depth, attributes, namespaces or names beyond the limits.
    #[serde(rename = "too-complex")]
    TooComplex,
    #[serde(rename = "not-well-formed")]
    NotWellFormed,
    /// No root, or something beside it.
    #[serde(rename = "not-one-root")]
    NotOneRoot,
    /// A name that only the core may write.
    #[serde(rename = "reserved-name")]
    ReservedName,
    /// The sender may not write to this thread.
    #[serde(rename = "unknown-thread")]
    UnknownThread,
    /// The name is not in the sender's vocabulary; unknown and forbidden names are treated alike.
    #[serde(rename = "not-in-vocabulary")]
    NotInVocabulary,
    #[serde(rename = "schema-invalid")]
    SchemaInvalid,
    #[serde(rename = "budget-spent")]
    BudgetSpent,
    // What the pump refuses after the gate has passed a payload.
    /// A further action in an outcome that may have no more.
    #[serde(rename = "excess-action")]
    ExcessAction,
    /// A call in an outcome that replies.
    #[serde(rename = "call-beside-reply")]
    CallBesideReply,
    /// An invalid or taken label of a child thread, root id or client key.
    #[serde(rename = "bad-label")]
    BadLabel,
    /// An answer to an outdated attempt.
    #[serde(rename = "stale-attempt")]
    StaleAttempt,
    /// An answer that names another attempt than the one that its instance was given.
    #[serde(rename = "stray-answer")]
    StrayAnswer,
    /// The journal or a queue is full; try again.
    #[serde(rename = "busy")]
    Busy,
    /// A client key that was used with another payload.
    #[serde(rename = "key-reused")]
    KeyReused,
    /// A call to an agent from beneath its own open call.
    #[serde(rename = "cycle")]
    Cycle,
    /// An incomplete or malformed action in model text.
    #[serde(rename = "malformed-action")]
    MalformedAction,
    /// A closed element, or a native call, whose name is no action of the agent.
    #[serde(rename = "unknown-action")]
    UnknownAction,
    /// The pump is shutting down.
    #[serde(rename = "draining")]
    Draining,
    /// The disk is full.
    #[serde(rename = "storage-full")]
    StorageFull,
    /// The payload's call has ended, or ends with this same outcome.
    #[serde(rename = "call-closed")]
    CallClosed,
    /// Nothing waits for the person's decision: it was made before, or its call has ended.
    #[serde(rename = "not-waiting")]
    NotWaiting,
    /// The hash of an approval does not match the payload.
    #[serde(rename = "wrong-hash")]
    WrongHash,
    /// A decision without a valid signature of an operator.
    #[serde(rename = "not-signed")]
    NotSigned,
    /// A process that the organism hosts requested something that it may not request.
    #[serde(rename = "hosted-process")]
    HostedProcess,
    /// The origin of the caller is unknown, and nothing else proves its identity.
    #[serde(rename = "unknown-caller")]
    UnknownCaller,
}

impl Rule {
    /// All rules, in the order of the gate.
    pub const ALL: [Self; 29] = [
        Self::TooLarge,
        Self::NotUtf8,
        Self::Forbidden,
        Self::TooComplex,
        Self::NotWellFormed,
        Self::NotOneRoot,
        Self::ReservedName,
        Self::UnknownThread,
        Self::NotInVocabulary,
        Self::SchemaInvalid,
        Self::BudgetSpent,
        Self::ExcessAction,
        Self::CallBesideReply,
        Self::BadLabel,
        Self::StaleAttempt,
        Self::StrayAnswer,
        Self::Busy,
        Self::KeyReused,
        Self::Cycle,
        Self::MalformedAction,
        Self::UnknownAction,
        Self::Draining,
        Self::StorageFull,
        Self::CallClosed,
        Self::NotWaiting,
        Self::WrongHash,
        Self::NotSigned,
        Self::HostedProcess,
        Self::UnknownCaller,
    ];

    /// The rule for a finding in a model's text: the same defect has the same rule on every
    /// transport.
    pub fn of_finding(code: &str) -> Self {
        match code {
            "json-type" | "json-missing" | "json-unknown" | "json-duplicate" | "json-markup"
            | "unknown-param" | "final-format" | "final-status" | "final-empty"
            | "final-invalid" => Self::SchemaInvalid,
            "unknown-action" | "unknown-tool" => Self::UnknownAction,
            _ => Self::MalformedAction,
        }
    }

    /// The code in records, feedback and docs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::NotUtf8 => "not-utf8",
            Self::Forbidden => "forbidden",
            Self::TooComplex => "too-complex",
            Self::NotWellFormed => "not-well-formed",
            Self::NotOneRoot => "not-one-root",
            Self::ReservedName => "reserved-name",
            Self::UnknownThread => "unknown-thread",
            Self::NotInVocabulary => "not-in-vocabulary",
            Self::SchemaInvalid => "schema-invalid",
            Self::BudgetSpent => "budget-spent",
            Self::ExcessAction => "excess-action",
            Self::CallBesideReply => "call-beside-reply",
            Self::BadLabel => "bad-label",
            Self::StaleAttempt => "stale-attempt",
            Self::StrayAnswer => "stray-answer",
            Self::Busy => "busy",
            Self::KeyReused => "key-reused",
            Self::Cycle => "cycle",
            Self::MalformedAction => "malformed-action",
            Self::UnknownAction => "unknown-action",
            Self::Draining => "draining",
            Self::StorageFull => "storage-full",
            Self::CallClosed => "call-closed",
            Self::NotWaiting => "not-waiting",
            Self::WrongHash => "wrong-hash",
            Self::NotSigned => "not-signed",
            Self::HostedProcess => "hosted-process",
            Self::UnknownCaller => "unknown-caller",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refused payload: enough to identify it, without its whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    #[serde(rename = "rule")]
    pub rule: Rule,
    /// The defect and the expectation. Uniform where more detail would reveal topology.
    #[serde(rename = "message")]
    pub message: String,
    #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TextLocation>,
    /// The expected form, such as an example, if the sender may know it.
    #[serde(rename = "expected", default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Length of the refused text in bytes.
    #[serde(rename = "length")]
    pub length: usize,
    #[serde(rename = "digest")]
    pub digest: Digest,
    /// The first 4 KiB, with invalid UTF-8 replaced.
    #[serde(rename = "head")]
    pub head: String,
    /// Set if the payload had passed the gate and the pump refused it.
    #[serde(rename = "name", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<PayloadName>>,
}

impl Refusal {
    pub fn new(rule: Rule, message: impl Into<String>, text: &[u8]) -> Self {
        let head = text.get(..text.len().min(crate::limits::REFUSAL_HEAD_BYTES)).unwrap_or(text);
        Self {
            rule,
            message: message.into(),
            place: None,
            expected: None,
            length: text.len(),
            digest: Digest::of(text),
            head: String::from_utf8_lossy(head).into_owned(),
            name: None,
        }
    }

    /// Whether this refusal must have the same text in every case: echoing the attempt would
    /// distinguish unknown from forbidden.
    pub fn is_uniform(&self) -> bool {
        matches!(self.rule, Rule::NotInVocabulary | Rule::UnknownThread)
    }

    /// The same text, refused for another reason.
    pub fn instead(&self, rule: Rule, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { rule, message, place: None, expected: None, ..self.clone() }
    }

    /// Adds the name of a payload that had passed the gate.
    pub fn named(mut self, name: &PayloadName) -> Self {
        self.name = Some(Box::new(name.clone()));
        self
    }

    pub fn at(mut self, place: TextLocation) -> Self {
        self.place = Some(place);
        self
    }

    pub fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)?;
        match &self.place {
            Some(place) => write!(f, " at {place}"),
            None => Ok(()),
        }
    }
}
