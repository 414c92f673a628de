//! Actions of operators on the organism itself, as they stand in the record.

use serde::{Deserialize, Serialize};

use crate::ids::{ListenerName, Position};
use crate::limits;
use crate::system::ActionReport;

/// Kinds of operator actions: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorVerb {
    /// The organism's directories or its stream were accepted as this project's.
    Adopt,
    /// What a start refused of the journal was accepted: a loss, or another key.
    Repair,
}

impl OperatorVerb {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Repair => "repair",
        }
    }
}

/// Who acted, as far as the operating system proves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorIdentity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Login name of `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Name of the host on which the command ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Who took a decision about a tree, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionOrigin {
    #[serde(default)]
    pub who: OperatorIdentity,
    /// Text of the operator, for the record alone; empty without any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl DecisionOrigin {
    /// Cuts the note to its limit.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        cut(&mut self.note, limits::REASON_CHARS_MAX);
        self
    }
}

/// A named value of an action, such as the path that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionDetail {
    pub name: String,
    pub value: String,
}

impl ActionDetail {
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self { name: name.to_owned(), value: value.to_string() }
    }
}

/// An action of an operator on the organism itself. It belongs to no tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAction {
    pub verb: OperatorVerb,
    pub by: ListenerName,
    #[serde(default)]
    pub who: OperatorIdentity,
    /// Text of the operator; empty without any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ActionDetail>,
}

impl OperatorAction {
    /// Records whose blanked payloads it accepts.
    pub fn redacted(&self) -> impl Iterator<Item = Position> {
        let details = self.details.iter().filter(|detail| detail.name == "redacted");
        let is_repair = self.verb == OperatorVerb::Repair;
        details
            .filter(move |_| is_repair)
            .filter_map(|detail| detail.value.parse().ok())
            .map(Position)
    }

    /// The payload that the record shows of it.
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

    /// Cuts every text to its limit.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        cut(&mut self.note, limits::REASON_CHARS_MAX);
        self.details.truncate(limits::ACTION_DETAILS_MAX);
        for detail in &mut self.details {
            cut(&mut detail.name, limits::ACTION_NAME_CHARS_MAX);
            cut(&mut detail.value, limits::ACTION_VALUE_CHARS_MAX);
        }
        self
    }
}

fn cut(text: &mut String, chars_max: usize) {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
}
