//! What a listener with core words writes and is given (docs/PROTOCOL.md, section 11): threads
//! beneath its own, and their results.

use crate::ids::ThreadId;
use crate::system::{NAMESPACE, ThreadStatus, WaitFor};
use crate::xml::element::{Element, Node};
use crate::xml::escape::escape_attribute;

use super::payload::{Payload, Reply, write};
use super::request::{Received, Request};

impl Reply {
    /// Opens a thread beneath this one, with `payload` as its first call.
    ///
    /// # Errors
    /// The payload has no form in XML.
    pub fn spawn<T: Payload>(self, label: &str, payload: &T) -> Result<Self, String> {
        let label = escape_attribute(label);
        let payload = write(payload)?;
        Ok(self.and_raw(format!(
            "<c:spawn-thread xmlns:c=\"{NAMESPACE}\" suggested_sub_id=\"{label}\">\
             <c:initial-payload>{payload}</c:initial-payload></c:spawn-thread>"
        )))
    }

    /// Opens a call in a thread beneath this one.
    ///
    /// # Errors
    /// The payload has no form in XML.
    pub fn send_to_thread<T: Payload>(
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

    /// Has the next delivery of the call wait until the threads and timers of the call, all of them or
    /// any, are done.
    #[must_use]
    pub fn wait(self, until: WaitFor) -> Self {
        let until = match until {
            WaitFor::All => "all",
            WaitFor::Any => "any",
        };
        self.and_raw(format!("<c:wait xmlns:c=\"{NAMESPACE}\" for=\"{until}\"/>"))
    }
}

/// The result of a call in another thread, as its opener gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadResult {
    pub thread: ThreadId,
    pub status: ThreadStatus,
    /// One element each, byte for byte as it was recorded.
    pub payloads: Vec<String>,
    /// Whether no earlier delivery of this call had it.
    pub new: bool,
}

impl Request {
    /// The results of threads so far, oldest first.
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
