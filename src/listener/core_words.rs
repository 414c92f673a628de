//! Methods with which a listener requests threads from the core of the pump (docs/PROTOCOL.md,
//! section 11). A listener can open threads beneath its own thread, wait for these threads, and
//! read their results.

use crate::ids::ThreadId;
use crate::system::{NAMESPACE, ThreadStatus, spawn_thread};
use crate::xml::element::{Element, Node};

use super::payload::{Reply, TypedPayload, write};
use super::request::{Received, Request};

impl Reply {
    /// Adds a request to this answer: the core opens a thread with the label `label` beneath the
    /// thread of the answered call, and `payload` opens the first call in the new thread. The new
    /// thread goes on after the answered call has ended.
    ///
    /// # Errors
    ///
    /// Fails if the payload cannot be written as XML.
    pub fn spawn<T: TypedPayload>(self, label: &str, payload: &T) -> Result<Self, String> {
        self.spawn_with(label, payload, "")
    }

    /// Adds a request for a thread as [`Reply::spawn`] does. But the new thread is bound to the
    /// answered call: when this call ends, the pump cancels the thread.
    ///
    /// # Errors
    ///
    /// Fails if the payload cannot be written as XML.
    pub fn spawn_bound<T: TypedPayload>(self, label: &str, payload: &T) -> Result<Self, String> {
        self.spawn_with(label, payload, " bound=\"true\"")
    }

    fn spawn_with<T: TypedPayload>(
        self,
        label: &str,
        payload: &T,
        bound: &str,
    ) -> Result<Self, String> {
        let payload = write(payload)?;
        Ok(self.and_raw(spawn_thread(label, &payload, bound)))
    }

    /// Adds a request to this answer: the core opens a call with `payload` in the thread `thread`,
    /// which must be beneath the thread of the answered call.
    ///
    /// # Errors
    ///
    /// Fails if the payload cannot be written as XML.
    pub fn send_to_thread<T: TypedPayload>(
        self,
        thread: &ThreadId,
        payload: &T,
    ) -> Result<Self, String> {
        let payload = write(payload)?;
        Ok(self.and_raw(format!(
            "<c:send-to-thread xmlns:c=\"{NAMESPACE}\" thread_id=\"{thread}\">{payload}\
             </c:send-to-thread>"
        )))
    }

    /// Adds a request to this answer: the core delays the next delivery of the answered call until
    /// all threads and timers of the call have ended.
    #[must_use]
    pub fn wait_for_all(self) -> Self {
        self.and_raw(format!("<c:wait xmlns:c=\"{NAMESPACE}\" for=\"all\"/>"))
    }

    /// Adds a request to this answer: the core delays the next delivery of the answered call until
    /// one of the call's threads or timers has ended.
    #[must_use]
    pub fn wait_for_any(self) -> Self {
        self.and_raw(format!("<c:wait xmlns:c=\"{NAMESPACE}\" for=\"any\"/>"))
    }
}

/// The result of a call in another thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadResult {
    pub thread: ThreadId,
    pub status: ThreadStatus,
    /// Payloads of the result: each is one XML element, byte for byte as recorded.
    pub payloads: Vec<String>,
    /// Whether the result is new: no earlier delivery of the call contains it.
    pub new: bool,
}

impl Request {
    /// Returns the results that this call has received so far from calls in other threads, oldest
    /// first.
    pub fn thread_results(&self) -> Vec<ThreadResult> {
        self.results().iter().filter_map(ThreadResult::of).collect()
    }
}

impl ThreadResult {
    fn of(message: &Received) -> Option<Self> {
        if message.kind != "system" || message.name != crate::system::name("thread-result") {
            return None;
        }
        let element = Element::read_document(&message.payload)?;
        let value = |name: &str| element.attribute(name);
        let within = element.content.iter().filter_map(|node| match node {
            Node::Element(payload) => Some(payload.origin.tag.start..payload.origin.end),
            Node::Text(_) => None,
        });

        Some(Self {
            thread: ThreadId::parse(value("thread_id")?).ok()?,
            status: ThreadStatus::parse(value("status")?)?,
            payloads: within.filter_map(|at| Some(message.payload.get(at)?.to_owned())).collect(),
            new: message.new,
        })
    }
}
