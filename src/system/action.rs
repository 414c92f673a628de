//! The payload `operator-action`: an operator's action on a thread, or on the organism itself.

use super::core_payloads::StartTagText;
use crate::envelope::Payload;
use crate::ids::{ListenerName, ThreadId};

/// An operator's action, as `operator-action` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionReport {
    pub action: &'static str,
    pub by: ListenerName,
    pub uid: Option<u32>,
    pub login: Option<String>,
    pub host: Option<String>,
    /// The affected thread; `None` for the organism itself.
    pub thread: Option<ThreadId>,
    /// For a thread, written even when it is empty.
    pub reason: Option<String>,
    /// Names and values.
    pub details: Vec<(String, String)>,
}

impl ActionReport {
    pub fn cancel(by: ListenerName, thread: ThreadId, reason: String) -> Self {
        Self {
            action: "cancel",
            by,
            uid: None,
            login: None,
            host: None,
            thread: Some(thread),
            reason: Some(reason),
            details: Vec::new(),
        }
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
