//! Refusals of payloads. A refusal states the rule that the payload violates and, if known, the
//! location of the violation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, PayloadName};
use crate::word_enum::word_enum;
use crate::xml::findings::TextLocation;

word_enum! {
    /// Rules under which the pump refuses payloads, in the order in which the pump checks them. The
    /// first violated rule determines the refusal. Each rule has a word, which is its code in
    /// records, feedback and docs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RefusalRule {
        /// The payload exceeds the size limit.
        #[serde(rename = "too-large")]
        TooLarge,
        #[serde(rename = "not-utf8")]
        NotUtf8,
        /// The payload contains a DOCTYPE, an entity declaration or a processing instruction.
        #[serde(rename = "forbidden")]
        Forbidden,
        /// The payload exceeds the limit of depth, attributes, namespaces or name length.
        #[serde(rename = "too-complex")]
        TooComplex,
        #[serde(rename = "not-well-formed")]
        NotWellFormed,
        /// The text does not consist of exactly one root element.
        #[serde(rename = "not-one-root")]
        NotOneRoot,
        /// Only the pump's core may write a payload of this name.
        #[serde(rename = "reserved-name")]
        ReservedName,
        /// The thread does not exist, or the sender may not write to it.
        #[serde(rename = "unknown-thread")]
        UnknownThread,
        /// The payload name is not in the sender's vocabulary. Unknown and forbidden names are
        /// treated alike.
        #[serde(rename = "not-in-vocabulary")]
        NotInVocabulary,
        #[serde(rename = "schema-invalid")]
        SchemaInvalid,
        #[serde(rename = "budget-spent")]
        BudgetSpent,
        // The pump checks the rules from here on, after the gate.
        /// The outcome already contains the maximum number of actions, or the turn contains more
        /// parts than its limits permit.
        #[serde(rename = "excess-action")]
        ExcessAction,
        /// The goal of the workflow has used up its delegations.
        #[serde(rename = "delegations-spent")]
        DelegationsSpent,
        /// The outcome contains both a call and a reply.
        #[serde(rename = "call-beside-reply")]
        CallBesideReply,
        /// The label of a child thread is invalid, or the id of a root thread is invalid or already
        /// in use.
        #[serde(rename = "bad-label")]
        BadLabel,
        /// The answer belongs to an outdated attempt.
        #[serde(rename = "stale-attempt")]
        StaleAttempt,
        /// The answer names an attempt that its sender did not get, or has already answered.
        #[serde(rename = "stray-answer")]
        StrayAnswer,
        /// The journal or a queue is full; the sender should try again.
        #[serde(rename = "busy")]
        Busy,
        /// The client key of the submission is already in use. The pump recognizes repeated
        /// submissions by this key. Either an earlier submission with the key had another payload,
        /// or an operator retries a submission that the client itself has already sent again with
        /// the key.
        #[serde(rename = "key-reused")]
        KeyReused,
        /// The payload calls an agent whose current call in this thread already waits for the
        /// sender's call, directly or through other calls. Neither call could ever end.
        #[serde(rename = "cycle")]
        Cycle,
        /// The action in the model's text is incomplete or malformed.
        #[serde(rename = "malformed-action")]
        MalformedAction,
        /// The agent has no action of this name. The model used the name in a native tool call, or
        /// in an XML element with an end tag.
        #[serde(rename = "unknown-action")]
        UnknownAction,
        /// The pump is shutting down.
        #[serde(rename = "draining")]
        Draining,
        /// The disk is full, so the payload cannot be recorded. The sender may send the payload
        /// again when the disk has space.
        #[serde(rename = "storage-full")]
        StorageFull,
        /// The call to which the payload belongs has already ended, or it ends with the same
        /// outcome that contains the payload.
        #[serde(rename = "call-closed")]
        CallClosed,
        /// No call waits for this decision: the decision was made before, or the call has ended.
        #[serde(rename = "not-waiting")]
        NotWaiting,
        /// The hash in the approval does not match the payload.
        #[serde(rename = "wrong-hash")]
        WrongHash,
        /// The decision has no valid signature of an operator.
        #[serde(rename = "not-signed")]
        NotSigned,
        /// A process that the organism hosts sent a request that hosted processes may not send.
        #[serde(rename = "hosted-process")]
        HostedProcess,
        /// The origin of the caller is unknown, and the caller has not proved its identity in
        /// another way, such as with a secret.
        #[serde(rename = "unknown-caller")]
        UnknownCaller,
    }
}

impl RefusalRule {
    /// Whether a violation of this rule depends only on the refused text. If so, the text is
    /// refused under every config.
    pub const fn is_of_text(self) -> bool {
        matches!(
            self,
            Self::TooLarge
                | Self::NotUtf8
                | Self::Forbidden
                | Self::TooComplex
                | Self::NotWellFormed
                | Self::NotOneRoot
                | Self::ReservedName
        )
    }

    /// Whether the client of a request that violates this rule is unknown, so that nothing can
    /// repeat the request in the name of its client.
    pub const fn has_no_client(self) -> bool {
        matches!(self, Self::HostedProcess | Self::UnknownCaller)
    }

    /// Returns the refusal rule for a kind of defect in a model's text. `code` is the code of this
    /// kind, such as `json-type`. A defect has the same rule in a native tool call as in XML.
    pub fn of_finding(code: &str) -> Self {
        match code {
            "json-type" | "json-missing" | "json-unknown" | "json-duplicate" | "json-markup"
            | "unknown-param" | "final-format" | "final-status" | "final-empty"
            | "final-invalid" => Self::SchemaInvalid,
            "unknown-action" | "unknown-tool" => Self::UnknownAction,
            "turn-excess" => Self::ExcessAction,
            _ => Self::MalformedAction,
        }
    }
}

impl fmt::Display for RefusalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refused payload: enough data to identify the payload, without its whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    #[serde(rename = "rule")]
    pub rule: RefusalRule,
    /// Description of the defect and of the expected form. The description omits details that would
    /// reveal which listeners and names exist.
    #[serde(rename = "message")]
    pub message: String,
    #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TextLocation>,
    /// The expected form of the payload, such as an example. `None` if there is no such form, or if
    /// the sender must not get to know the form.
    #[serde(rename = "expected", default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Length of the refused text in bytes.
    #[serde(rename = "length")]
    pub length: usize,
    #[serde(rename = "digest")]
    pub digest: Digest,
    /// The first 4 KiB of the refused text, with invalid UTF-8 replaced.
    #[serde(rename = "head")]
    pub head: String,
    /// Name of the refused payload, if the payload passed the gate, which validates every payload,
    /// and was refused later. `None` if the gate refused the payload.
    #[serde(rename = "name", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<PayloadName>>,
}

impl Refusal {
    pub fn new(rule: RefusalRule, message: impl Into<String>, text: &[u8]) -> Self {
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

    /// Whether all refusals under this rule must have the same text, because any difference, such
    /// as a quotation of the refused payload, would reveal which names exist.
    pub fn is_uniform(&self) -> bool {
        matches!(self.rule, RefusalRule::NotInVocabulary | RefusalRule::UnknownThread)
    }

    /// Whether the refusal concerns only the payload inside a primitive, such as the first request
    /// of a `spawn-thread`. If so, the primitive itself was accepted.
    pub fn is_of_inner_payload(&self) -> bool {
        // The pump states a place under these rules only in this case.
        let is_of_call =
            matches!(self.rule, RefusalRule::BudgetSpent | RefusalRule::Busy | RefusalRule::Cycle);
        is_of_call && self.place.is_some()
    }

    /// Returns a refusal of the same payload under another rule.
    pub fn instead(&self, rule: RefusalRule, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { rule, message, place: None, expected: None, ..self.clone() }
    }

    /// Adds the name of the refused payload. Must be used only for a payload that passed the gate,
    /// which validates every payload, and that was refused afterwards.
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
        match self.place.as_ref().filter(|place| place.is_known()) {
            Some(place) => {
                let message = located_message(&self.message, &place.to_string());
                write!(f, "{}: {message}", self.rule)
            }
            None => write!(f, "{}: {}", self.rule, self.message),
        }
    }
}

/// Adds `place`, the place of a refusal's first defect, to the refusal's message. Usually, the
/// place follows the message. A message about several defects already ends with the place of the
/// last defect, so the place of the first one precedes the message.
pub fn located_message(message: &str, place: &str) -> String {
    let last = message.rsplit_once("; ").map(|(_, last)| last);
    let is_list = last.is_some_and(|last| last.contains(" at line ") || last.contains(" at /"));
    if is_list { format!("at {place}: {message}") } else { format!("{message} at {place}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_first_defect_never_stands_after_the_last_one() {
        let shown = |message: &str| {
            let refusal = Refusal::new(RefusalRule::SchemaInvalid, message, b"<a/>");
            refusal.at(TextLocation::at(b"<a/>", 0)).to_string()
        };
        assert_eq!(shown("`b` is missing"), "schema-invalid: `b` is missing at line 1, column 1");
        assert_eq!(
            shown("`b; c` is missing; `d` is no number at line 3, column 2 (/a/d)"),
            "schema-invalid: at line 1, column 1: `b; c` is missing; `d` is no number at line 3, \
             column 2 (/a/d)"
        );
        assert_eq!(
            located_message("`b` is missing; `d` at /a/d", "/a"),
            "at /a: `b` is missing; `d` at /a/d"
        );
    }
}
