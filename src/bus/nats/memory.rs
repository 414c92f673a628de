//! Calls that a replica remembers: their next delivery goes to that replica, and has only the new
//! messages (docs/PROTOCOL.md, section 12).
//!
//! It goes to a subject of the replica's own, and not to the queue group, where a replica of another
//! version could take the new messages for all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bus::Delivery;
use crate::bus::memory::{CallMemory, MemoryMark};
use crate::envelope::Failure;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{HeaderMap, Message};

use super::header_names;
use super::host::NatsShared;
use super::in_flight::{PartialDelivery, SentDelivery};
use super::subjects::ListenerSubjects;
use super::tokens::AttemptToken;

/// The calls of one listener that its replicas remember.
#[derive(Debug, Default)]
pub(super) struct ReplicaMemory {
    calls: Mutex<CallMemory<(String, MemoryMark)>>,
    /// The servers let nothing be published to the subjects of replicas.
    is_denied: AtomicBool,
}

/// Where a delivery goes that builds on messages of its call, and how many.
pub(super) struct RecalledDelivery {
    pub subject: String,
    pub count: usize,
}

impl ReplicaMemory {
    fn calls(&self) -> MutexGuard<'_, CallMemory<(String, MemoryMark)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is remembered of the call, so that a retry finds nothing and is complete.
    pub fn recall(&self, delivery: &Delivery) -> Option<RecalledDelivery> {
        let (subject, mark) = self.calls().take(delivery.call)?;
        let count = mark.known_of(delivery)?;
        let is_allowed = !self.is_denied.load(Ordering::Relaxed);
        is_allowed.then_some(RecalledDelivery { subject, count })
    }
}

/// The subject that an answer names, where it is an inbox of the listener: nothing is published for
/// a listener to any other.
fn named_inbox(subjects: &ListenerSubjects, headers: &HeaderMap) -> Option<String> {
    let subject = headers.get(header_names::REMEMBERS)?.as_str();
    let token = subject.strip_prefix(&subjects.inbox()).and_then(|rest| rest.strip_prefix('.'));
    let is_token = |token: &str| {
        let is_short = (1..=limits::ID_ECHO_CHARS_MAX).contains(&token.len());
        is_short && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let is_own = token.is_some_and(is_token) || mutant("publish-anywhere");
    is_own.then(|| subject.to_owned())
}

impl NatsShared {
    /// The record of a delivery that the desk keeps until it has ended.
    pub(super) fn sent_delivery(&self, delivery: &Delivery, is_partial: bool) -> SentDelivery {
        let partial = is_partial.then(|| Box::new(delivery.clone()));
        SentDelivery { mark: MemoryMark::after(delivery), partial }
    }

    /// Takes note that the replica that answers an attempt remembers its call.
    pub(super) fn remember(&self, token: AttemptToken, answer: &Message) {
        let Some(headers) = &answer.headers else { return };
        let Some(subject) = named_inbox(self.subjects(), headers) else { return };
        let (key, mark) = {
            let in_flight = self.in_flight();
            (in_flight.holder(token), in_flight.mark(token))
        };
        if let (Some((call, _)), Some(mark)) = (key, mark) {
            self.memory.calls().put(call, (subject, mark), 0);
        }
    }

    /// Publishes all messages of a delivery whose new ones reached no replica that remembers the
    /// others. It is the same attempt: no handler has begun it. False where all were published.
    pub(super) fn deliver_all(self: &Arc<Self>, token: AttemptToken) -> bool {
        let _ending = self.ending();
        let partial = self.in_flight().take_partial(token);
        match partial {
            Some(PartialDelivery::Open(delivery)) => {
                self.publish(token, &delivery, None);
                self.wire.send();
                true
            }
            Some(PartialDelivery::Cancelled(key)) => {
                let detail = "its caller was gone before it was handed over".to_owned();
                self.ended(key, Err(Failure::Refused { detail }));
                true
            }
            None => false,
        }
    }

    /// A replica lacks what its delivery builds on. The failure of the attempt where it had all.
    pub(super) fn missing_memory(self: &Arc<Self>, token: AttemptToken) -> Option<Failure> {
        let detail = || "asks for messages of a delivery that had them all".to_owned();
        let is_partial = self.deliver_all(token);
        (!is_partial).then(|| Failure::Garbage { detail: detail() })
    }

    /// Publishes all messages of each delivery that the servers did not let us publish to a replica:
    /// no reply shows that it went nowhere.
    pub(super) fn deliver_what_was_denied(self: &Arc<Self>) {
        let inboxes = format!("{}.", self.subjects().inbox());
        let Some(denied) = self.wire.denials().of_publishing_beneath(&inboxes) else { return };
        if !self.memory.is_denied.swap(true, Ordering::Relaxed) {
            let listener = &self.options.listener;
            tracing::warn!(%listener, "each delivery has all messages of its call: {denied}");
        }
        let partials = self.in_flight().partials();
        for token in partials {
            self.deliver_all(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerName;

    #[test]
    fn only_an_inbox_of_the_listener_is_published_to() {
        let subjects = ListenerSubjects::new("talk", &ListenerName::parse("echo").unwrap());
        let cases = [
            ("_INBOX_echo.a1B2", true),
            ("_INBOX_echo.", false),
            ("_INBOX_echo.a.b", false),
            ("_INBOX_echo.*", false),
            ("_INBOX_echo.>", false),
            ("_INBOX_echo2.a", false),
            ("_INBOX.a", false),
            ("organism.talk.to.other", false),
            ("$JS.API.STREAM.INFO.x", false),
        ];
        for (subject, is_taken) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header_names::REMEMBERS, subject);
            assert_eq!(named_inbox(&subjects, &headers).is_some(), is_taken, "{subject}");
        }
    }
}
