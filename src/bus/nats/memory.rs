//! Calls that a replica remembers. Their next delivery goes to that replica, with only the new
//! messages (docs/PROTOCOL.md, section 12).
//!
//! It goes to the replica's own subject instead of the queue group's, where a replica that lacks
//! the earlier messages could take it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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

/// Calls of one listener that its replicas remember.
#[derive(Debug)]
pub(super) struct ReplicaMemory {
    calls: Mutex<CallMemory<(String, MemoryMark)>>,
    denial: Mutex<ReplicaDenial>,
}

/// Permission error for publishing to the subjects of replicas.
#[derive(Debug, Clone, Copy)]
struct ReplicaDenial {
    /// Time up to which permission errors were read.
    known_until: Instant,
    /// Connection of the last permission error.
    connection: Option<u64>,
}

impl ReplicaDenial {
    /// Whether the permission is assumed to be still missing.
    fn applies(&self, connection: u64, now: Instant) -> bool {
        let is_recent = now < self.known_until + limits::NATS_DENIED_PAUSE;
        is_recent && self.connection.is_some_and(|denied| connection <= denied)
    }
}

/// Subject of a delivery that builds on remembered messages, and the number of these.
pub(super) struct RecalledDelivery {
    pub subject: String,
    pub count: usize,
}

impl ReplicaMemory {
    /// Makes the memory. Permission errors before `now` are ignored.
    pub fn new(now: Instant) -> Self {
        let denial = ReplicaDenial { known_until: now, connection: None };
        Self { calls: Mutex::default(), denial: Mutex::new(denial) }
    }

    fn denial(&self) -> MutexGuard<'_, ReplicaDenial> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, CallMemory<(String, MemoryMark)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the memory of a call, so that a retry finds none and is complete.
    pub fn recall(
        &self,
        delivery: &Delivery,
        connection: u64,
        now: Instant,
    ) -> Option<RecalledDelivery> {
        let (subject, mark) = self.calls().take(delivery.call)?;
        let count = mark.known_of(delivery)?;
        let is_denied = self.denial().applies(connection, now);
        (!is_denied).then_some(RecalledDelivery { subject, count })
    }
}

/// Subject that an answer names, if it is an inbox of the listener. Deliveries go to no other
/// subject.
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
    /// The record of a delivery for the in-flight table.
    pub(super) fn sent_delivery(&self, delivery: &Delivery, is_partial: bool) -> SentDelivery {
        let partial = is_partial.then(|| Box::new(delivery.clone()));
        SentDelivery { mark: MemoryMark::after(delivery), partial }
    }

    /// Notes that the replica that answered an attempt remembers its call. An agent host reads the
    /// whole thread instead, so nothing is noted for it.
    pub(super) fn remember(&self, token: AttemptToken, answer: &Message) {
        if self.options.far.is_some() {
            return;
        }

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

    /// Publishes all messages of a delivery whose new ones reached no replica with the earlier
    /// ones. It stays the same attempt, because no handler has begun it. Returns false if all were
    /// published already.
    pub(super) fn deliver_all(self: &Arc<Self>, token: AttemptToken) -> bool {
        let _ending = self.ending();
        let connection = self.connection_of_publish();
        let partial = self.in_flight().take_partial(token, connection, Instant::now());

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

    /// Handles a replica that lacks the earlier messages. Returns a failure if it was sent all of
    /// them.
    pub(super) fn missing_memory(self: &Arc<Self>, token: AttemptToken) -> Option<Failure> {
        let detail = || "asks for messages of a delivery that had them all".to_owned();
        (!self.deliver_all(token)).then(|| Failure::Garbage { detail: detail() })
    }

    /// Publishes all messages of each delivery to a replica that the servers denied, because no
    /// reply shows that it was lost.
    pub(super) fn deliver_what_was_denied(self: &Arc<Self>, connection: Option<u64>) {
        if connection.is_none() {
            return;
        }

        let inboxes = format!("{}.", self.subjects().inbox());
        let known_until = self.memory.denial().known_until;
        let denials = self.wire.denials().publishes_denied_below(&inboxes, known_until);
        let (Some((first, _)), Some((last, denied))) = (denials.first(), denials.last()) else {
            return;
        };

        let listener = &self.options.listener;
        tracing::warn!(%listener, "each delivery has all messages of its call for now: {denied}");
        *self.memory.denial() = ReplicaDenial { known_until: *last, connection };

        let begin = first.checked_sub(limits::NATS_ROUND_TRIP).unwrap_or(*first);
        let partials = self.in_flight().denied_partials(begin..=*last);
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
    fn a_denied_right_is_tried_again_after_a_pause_and_on_a_new_connection() {
        let at = Instant::now();
        let denial = ReplicaDenial { known_until: at, connection: Some(2) };
        assert!(denial.applies(2, at));
        assert!(!denial.applies(3, at));
        assert!(!denial.applies(2, at + limits::NATS_DENIED_PAUSE));
        let none = ReplicaDenial { known_until: at, connection: None };
        assert!(!none.applies(1, at));
    }

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
