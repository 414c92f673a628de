//! Actions of operators on the organism itself, in the form of the journal record.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::DecisionSignature;
use crate::ids::{Digest, ListenerName, Position};
use crate::limits;
use crate::shorten::truncate_chars;
use crate::system::ActionReport;
use crate::word_enum::word_enum;

word_enum! {
    /// The kinds of operator actions: a closed list.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum OperatorVerb {
        /// Takes over directories or a stream that belonged to another project.
        #[serde(rename = "adopt")]
        Adopt,
        /// Accepts damage that would otherwise make a start fail: lost records, blanked payloads,
        /// or records that were authenticated with the key of another machine's pump.
        #[serde(rename = "repair")]
        Repair,
        /// Trusts the key of a pump on another machine.
        #[serde(rename = "trust-key")]
        TrustKey,
        /// Puts another config in force in a running organism.
        #[serde(rename = "reload")]
        Reload,
    }
}

/// The user who acted, as identified by the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorIdentity {
    #[serde(rename = "uid", default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Login name of the user `uid`; `None` if it is unknown.
    #[serde(rename = "login", default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Name of the machine on which the command ran; `None` if it is unknown.
    #[serde(rename = "host", default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The person who decided about a tree, and the reason for the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionOrigin {
    #[serde(rename = "who", default)]
    pub who: OperatorIdentity,
    /// Note of the operator; empty if the operator gave no note. Only the journal record shows the
    /// note.
    #[serde(rename = "note", default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Signature of the operator; `None` if the operator did not sign. Required if the config names
    /// operators.
    #[serde(rename = "signature", default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Box<DecisionSignature>>,
}

impl DecisionOrigin {
    /// Cuts the note to its maximum length.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        truncate_chars(&mut self.note, limits::REASON_CHARS_MAX);
        self
    }
}

/// Fails if `text`, the reason or the note of an operator's action, is longer than the journal
/// records. The error states both lengths. The core cuts a longer text, so whatever takes a text
/// from a person checks it first.
pub fn check_action_text(text: &str) -> Result<(), String> {
    let most = limits::REASON_CHARS_MAX;
    match text.chars().count() {
        chars if chars > most => Err(format!(
            "the text has {chars} characters, and the record takes at most {most}; shorten it"
        )),
        _ => Ok(()),
    }
}

/// A named value of an operator action, such as the path that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionDetail {
    #[serde(rename = "name")]
    pub name: String,
    #[serde(rename = "value")]
    pub value: String,
}

impl ActionDetail {
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self { name: name.to_owned(), value: value.to_string() }
    }
}

/// An action of an operator on the organism itself. The action belongs to no thread tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAction {
    #[serde(rename = "verb")]
    pub verb: OperatorVerb,
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "who", default)]
    pub who: OperatorIdentity,
    /// Note of the operator; empty if the operator gave no note.
    #[serde(rename = "note", default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    #[serde(rename = "details", default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ActionDetail>,
}

/// A loss of records that an operator accepted. Only data outside the journal shows the loss.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedLoss {
    /// Position of the last record before the loss.
    #[serde(rename = "kept")]
    pub kept: Position,
    /// Position of the last lost record, which is known from a source outside the journal.
    #[serde(rename = "acknowledged")]
    pub acknowledged: Position,
    /// Position and hash of the last acknowledged record, as a source outside the journal states
    /// them. `None` if the journal still contains that record.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(Position, Digest)>,
    /// Position and Merkle root of the last checkpoint outside the journal; `None` if this
    /// checkpoint covers no lost record.
    #[serde(rename = "checkpoint", default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<(Position, Digest)>,
    /// Id of the previous journal in the directory, if that journal is lost completely.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Uuid>,
}

impl AcceptedLoss {
    /// Whether the operator has accepted the loss of the record at `position` of this journal.
    /// Always false if the lost records belong to a previous journal.
    pub fn covers(&self, position: Position) -> bool {
        self.journal.is_none() && self.kept < position && position <= self.acknowledged
    }

    /// Returns the details that describe this loss in an operator action.
    pub fn details(&self) -> Vec<ActionDetail> {
        let mut details = vec![ActionDetail::new("kept-up-to", self.kept)];
        if self.acknowledged > self.kept {
            details.push(ActionDetail::new("acknowledged-up-to", self.acknowledged));
        }

        let evidence = [("lost-mark", self.mark), ("lost-checkpoint", self.checkpoint)];
        for (name, value) in evidence {
            if let Some((position, digest)) = value {
                details.push(ActionDetail::new(name, format!("{position} {digest}")));
            }
        }

        details.extend(self.journal.map(|journal| ActionDetail::new("journal-before", journal)));
        details
    }
}

impl OperatorAction {
    /// Name of the [`ActionDetail`] whose value is a position. From this position on, a repair gave
    /// up the records of a forked stream. The journal has a different record at this position.
    pub const GIVEN_UP_FROM: &'static str = "given-up-from";

    /// Returns the loss of records that this action accepts; `None` for any other action.
    pub fn accepted_loss(&self) -> Option<AcceptedLoss> {
        if self.verb != OperatorVerb::Repair {
            return None;
        }

        let value = |name: &str| {
            let detail = self.details.iter().find(|detail| detail.name == name);
            detail.map(|detail| detail.value.as_str())
        };

        let position = |name: &str| value(name)?.parse().ok().map(Position);
        let evidence = |name: &str| {
            let (position, digest) = value(name)?.split_once(' ')?;
            Some((Position(position.parse().ok()?), Digest::parse(digest).ok()?))
        };

        let kept = match position(Self::GIVEN_UP_FROM) {
            Some(first) => Position(first.0.saturating_sub(1)),
            None => position("kept-up-to")?,
        };
        let ends = ["acknowledged-up-to", "taken-out-to", "given-up-to"];
        let acknowledged = ends.into_iter().filter_map(position).max();
        Some(AcceptedLoss {
            kept,
            acknowledged: acknowledged.unwrap_or(kept),
            mark: evidence("lost-mark"),
            checkpoint: evidence("lost-checkpoint"),
            journal: value("journal-before").and_then(|journal| journal.parse().ok()),
        })
    }

    /// Name of the [`ActionDetail`] whose value is a position. Up to this position, an adoption of
    /// a journal accepts records without a MAC.
    pub const WITHOUT_MAC_UP_TO: &'static str = "without-mac-up-to";

    /// Returns the first and the last position of the records that this action accepts without a
    /// valid MAC; `None` if it accepts no such records.
    pub fn accepted_records(&self) -> Option<(Position, Position)> {
        let value = |name: &str| {
            let detail = self.details.iter().find(|detail| detail.name == name);
            detail.map(|detail| detail.value.as_str())
        };

        let position = |name: &str| value(name)?.parse().ok().map(Position);
        match self.verb {
            OperatorVerb::Adopt => Some((Position(1), position(Self::WITHOUT_MAC_UP_TO)?)),
            OperatorVerb::Repair if value("accepted") == Some("key") => {
                Some((position("from")?, position("to")?))
            }
            OperatorVerb::Repair | OperatorVerb::TrustKey | OperatorVerb::Reload => None,
        }
    }

    /// Returns the positions of the records that this action accepts although their payloads are
    /// blanked.
    pub fn redacted(&self) -> impl Iterator<Item = Position> {
        let details = self.details.iter().filter(|detail| detail.name == "redacted");
        let is_repair = self.verb == OperatorVerb::Repair;
        details
            .filter(move |_| is_repair)
            .filter_map(|detail| detail.value.parse().ok())
            .map(Position)
    }

    /// Name of the [`ActionDetail`] whose value is the key that the operator trusts.
    pub const TRUSTED_KEY: &'static str = "trusted-key";

    /// Returns the public key, in hexadecimal, that this action trusts. The key belongs to a pump
    /// on another machine. Returns `None` if the action trusts no key.
    pub fn trusted_key(&self) -> Option<&str> {
        if self.verb != OperatorVerb::TrustKey {
            return None;
        }
        let detail = self.details.iter().find(|detail| detail.name == Self::TRUSTED_KEY);
        detail.map(|detail| detail.value.as_str())
    }

    /// Returns the payload that reports this action in the journal record.
    pub fn report(&self) -> ActionReport {
        let details = self.details.iter();
        let details = details.map(|detail| (detail.name.clone(), detail.value.clone()));
        ActionReport {
            action: self.verb.as_str(),
            by: self.by.clone(),
            uid: self.who.uid,
            login: self.who.login.clone(),
            host: self.who.host.clone(),
            thread: None,
            reason: (!self.note.is_empty()).then(|| self.note.clone()),
            details: details.collect(),
        }
    }

    /// Cuts every text to its maximum length, and drops details beyond the maximum number.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        truncate_chars(&mut self.note, limits::REASON_CHARS_MAX);
        self.details.truncate(limits::ACTION_DETAILS_MAX);
        for detail in &mut self.details {
            truncate_chars(&mut detail.name, limits::ACTION_NAME_CHARS_MAX);
            truncate_chars(&mut detail.value, limits::ACTION_VALUE_CHARS_MAX);
        }

        self
    }
}
