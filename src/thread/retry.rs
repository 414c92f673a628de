//! An operator's retry of a recorded message: a new message with the same payload from the same
//! sender.

use serde::{Deserialize, Serialize};

use super::{DecisionOrigin, Verdict};
use crate::ids::{ListenerName, MessageId, Position, ThreadId};

/// An operator's request to retry a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryAction {
    /// Id of the message that is retried, or of the refused submission that is retried.
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Position of the record that contains the retried message or submission.
    #[serde(rename = "record")]
    pub record: Position,
    /// Root of the tree that has the record of the retried message or submission.
    #[serde(rename = "source")]
    pub source: ThreadId,
    /// Root of the tree that gets the new message. Usually equal to `source`. If a submission was
    /// refused before it had a thread, its retry begins a new tree with this root.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// Id of the new message that the retry makes.
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "sender")]
    pub sender: ListenerName,
    /// The recipient of the message; `None` for a refused submission.
    #[serde(rename = "to", default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ListenerName>,
    /// The client key of the refused submission, which the retry uses as well. A client that
    /// repeats the submission then gets the result of the retry. `None` if the retry uses no client
    /// key.
    #[serde(rename = "key", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the outcome of the retried message, or of an earlier message in its chain of
    /// retries, is unknown.
    #[serde(rename = "unknown", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown: bool,
    /// Whether the operator accepts the risk that the listener does the work a second time.
    #[serde(rename = "again", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_confirmed: bool,
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
    /// The operator who signed the action; the anonymous operator if the action is not signed.
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

impl RetryAction {
    /// Returns the text that an operator signs for this retry. The text contains everything that
    /// the operator decides.
    pub fn text(&self) -> String {
        retry_text(self.message, self.is_confirmed)
    }
}

/// Returns the text that an operator signs for a retry.
pub fn retry_text(message: MessageId, is_confirmed: bool) -> String {
    let again = if is_confirmed { ", again" } else { "" };
    format!("message {message}{again}")
}
