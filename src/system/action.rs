//! The payload `operator-action`: an action of an operator on a thread, or on the organism.

use super::core_payloads::StartTagText;
use crate::envelope::Payload;
use crate::ids::{ListenerName, ThreadId};

/// An action of an operator, as the payload `operator-action` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionReport {
    pub action: &'static str,
    pub by: ListenerName,
    pub uid: Option<u32>,
    pub login: Option<String>,
    pub host: Option<String>,
    /// The thread that the action affects; `None` if the action concerns the whole organism.
    pub thread: Option<ThreadId>,
    /// The operator's reason; `None` if the report contains no reason. The report of a cancellation
    /// always contains a reason, which may be empty.
    pub reason: Option<String>,
    /// Further details as pairs of name and value.
    pub details: Vec<(String, String)>,
}

impl ActionReport {
    /// Returns a report that names only the action and the operator.
    pub fn new(action: &'static str, by: ListenerName) -> Self {
        Self {
            action,
            by,
            uid: None,
            login: None,
            host: None,
            thread: None,
            reason: None,
            details: Vec::new(),
        }
    }

    pub fn cancel(by: ListenerName, thread: ThreadId, reason: String) -> Self {
        Self { thread: Some(thread), reason: Some(reason), ..Self::new("cancel", by) }
    }

    pub(super) fn payload(&self, tag: StartTagText) -> Payload {
        let tag = tag.with("action", self.action).with("by", &self.by);
        let tag = tag.maybe("uid", self.uid).maybe("login", self.login.as_ref());
        let tag = tag.maybe("host", self.host.as_ref());
        let tag = tag.maybe("thread_id", self.thread.as_ref());
        let tag = tag.maybe("reason", self.reason.as_ref());
        if self.details.is_empty() {
            return tag.empty();
        }

        let mut inner = String::new();
        for (name, value) in &self.details {
            inner.push_str(StartTagText::child("detail").with("name", name).text(value).as_str());
        }

        tag.raw(&inner)
    }
}
