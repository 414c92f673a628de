//! The payload `alert`: a report about a cause that an operator must know of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::core_payloads::StartTagText;
use crate::clock::Time;
use crate::envelope::Payload;
use crate::ids::{Position, ThreadId};
use crate::word_enum::word_enum;

/// Subject of a collective alert, which stands for many alerts of one kind. The collective alert is
/// raised if too many alerts of the kind were raised within the time window of the config. While
/// the collective alert is open, a further alert of the kind only increases its count.
pub const ALL_OTHERS: &str = "all-others";

word_enum! {
    /// The kind of an alert's cause. The list of kinds is closed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum AlertKind {
        /// Many refused payloads of one sender.
        #[serde(rename = "refusals")]
        Refusals,
        /// Failed calls to one listener.
        #[serde(rename = "failures")]
        Failures,
        /// A budget of which at least four fifths are used.
        #[serde(rename = "budgets")]
        Budgets,
        /// A held call that has no decision yet.
        #[serde(rename = "waiting")]
        Waiting,
        /// A problem with the journal, with its copies or with its index.
        #[serde(rename = "record")]
        Record,
    }
}

word_enum! {
    /// An event in the life of an alert. The cause of the alert began or ended, or the alert
    /// command accepted a report of the alert or failed to accept it. The config section `[alerts]`
    /// names the alert command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum AlertEvent {
        /// The cause of the alert began.
        #[serde(rename = "raised")]
        Raised,
        /// The cause of the alert ended.
        #[serde(rename = "ended")]
        Ended,
        /// The alert command, which the config section `[alerts]` names, accepted the oldest
        /// pending report of this alert.
        #[serde(rename = "sent")]
        Sent,
        /// The alert command, which the config section `[alerts]` names, failed to accept the
        /// oldest pending report of this alert. The command does not get this report again.
        #[serde(rename = "not-sent")]
        NotSent,
    }
}

impl AlertEvent {
    /// Whether reports of this event go to the command that the config section `[alerts]` names.
    pub const fn is_for_command(self) -> bool {
        matches!(self, Self::Raised | Self::Ended)
    }
}

/// Id of an alert. Each cause has an alert with an id of its own.
///
/// The cause of an alert about the journal as a whole does not begin with a record. In the id of
/// such an alert, `cause` is 0, and `since` distinguishes the alert from others of this kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlertId {
    pub kind: AlertKind,
    pub subject: String,
    pub cause: Position,
    /// Time at which the cause began; `None` if a record began the cause.
    pub since: Option<Time>,
}

/// Formats the id for a command or a person, such as `failures/search/120`. If no record began the
/// cause, the id ends with the time at which the cause began, in microseconds since 1970. An
/// example is `record/journal/1764435217000000`.
impl fmt::Display for AlertId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.kind.as_str(), self.subject)?;
        match self.since {
            Some(since) => write!(f, "{}", since.0),
            None => write!(f, "{}", self.cause),
        }
    }
}

/// A report about one alert, in the form of the journal record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertReport {
    #[serde(rename = "event")]
    pub event: AlertEvent,
    #[serde(rename = "kind")]
    pub kind: AlertKind,
    /// Subject of the alert: a sender, a listener, a budget with its tree, the id of a held call,
    /// or the name of a part of the journal's storage, such as the index. Contains no bytes of
    /// payloads.
    #[serde(rename = "subject")]
    pub subject: String,
    /// Position of the record with which the cause of the alert began.
    #[serde(rename = "cause")]
    pub cause: Position,
    /// Position up to which `count` includes the occurrences of the cause.
    #[serde(rename = "through")]
    pub through: Position,
    /// Time at which the cause began.
    #[serde(rename = "since")]
    pub since: Time,
    /// Number of times that the cause has occurred.
    #[serde(rename = "count")]
    pub count: u64,
    #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// Description for people, as a sentence.
    #[serde(rename = "detail")]
    pub detail: String,
}

impl AlertReport {
    pub fn id(&self) -> AlertId {
        AlertId {
            kind: self.kind,
            subject: self.subject.clone(),
            cause: self.cause,
            since: (self.cause == Position(0)).then_some(self.since),
        }
    }

    pub(super) fn payload(&self, tag: StartTagText) -> Payload {
        let tag = tag.with("event", self.event.as_str()).with("kind", self.kind.as_str());
        let tag = tag.with("subject", &self.subject).with("cause", self.cause);
        let tag = tag.with("since", self.since).with("count", self.count);
        tag.maybe("thread_id", self.thread.as_ref()).text(&self.detail)
    }
}
