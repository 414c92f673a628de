//! Remembers which replica has the earlier messages of a call. The next delivery of the call goes
//! to this replica, and contains only the new messages (docs/PROTOCOL.md, section 12).
//!
//! A delivery with only new messages is published on a subject of this replica alone, because
//! another replica of the queue group could not handle it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::bus::Delivery;
use crate::bus::memory::{CallMemory, MemoryMark};
use crate::envelope::AttemptFailure;
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::nats::{HeaderMap, Message};

use super::header_names;
use super::host::NatsShared;
use super::in_flight::{PartialDelivery, SentDelivery};
use super::subjects::ListenerSubjects;
use super::tokens::AttemptToken;

/// The calls of one listener for which a replica remembers messages.
#[derive(Debug)]
pub(super) struct ReplicaMemory {
    /// Calls whose messages a replica remembers. The answer to a delivery adds the entry of the
    /// call, and the next delivery of the call removes it. Locked, because answers and deliveries
    /// are handled on two OS threads.
    calls: Mutex<CallMemory<(String, MemoryMark)>>,
    /// The last permission error for a delivery to a replica. It has a lock of its own, so that
    /// reading permission errors does not delay answers.
    denial: Mutex<ReplicaDenial>,
}

/// The last permission error for publishing to the subjects of replicas.
#[derive(Debug, Clone, Copy)]
struct ReplicaDenial {
    /// Time up to which permission errors have been read.
    known_until: Instant,
    /// Number of the connection on which the last permission error occurred; `None` if there was
    /// none. Each reconnect begins a connection with a higher number.
    connection: Option<u64>,
}

impl ReplicaDenial {
    /// Whether the last permission error still holds on the connection with the number
    /// `connection`. If so, the pump publishes nothing to the subjects of replicas.
    fn applies(&self, connection: u64, now: Instant) -> bool {
        let is_recent = now < self.known_until + limits::NATS_DENIED_PAUSE;
        is_recent && self.connection.is_some_and(|denied| connection <= denied)
    }
}

/// Subject of a replica that remembers messages of a call, and the number of the remembered
/// messages. A delivery on this subject leaves out these messages.
pub(super) struct RecalledDelivery {
    pub subject: String,
    pub count: usize,
}

impl ReplicaMemory {
    /// Makes a [`ReplicaMemory`] without calls. Permission errors from before `now` are ignored.
    pub fn new(now: Instant) -> Self {
        let denial = ReplicaDenial { known_until: now, connection: None };
        Self { calls: Mutex::default(), denial: Mutex::new(denial) }
    }

    /// Removes the entry for the delivery's call. Returns the replica that remembers the call's
    /// messages, or `None` if the delivery must be sent with all messages. A retry is always sent
    /// with all messages, because the first attempt has removed the entry.
    pub fn recall(
        &self,
        delivery: &Delivery,
        connection: u64,
        now: Instant,
    ) -> Option<RecalledDelivery> {
        let (subject, mark) = locked(&self.calls).take(&delivery.call)?;
        let count = mark.known_of(delivery)?;
        let is_denied = locked(&self.denial).applies(connection, now);
        (!is_denied).then_some(RecalledDelivery { subject, count })
    }
}

/// Returns the subject that the headers of an answer name for the next delivery of the call.
/// Returns `None` if the headers name no subject, or if the subject is no inbox of the listener.
/// The pump must not publish deliveries to other subjects.
fn named_inbox(subjects: &ListenerSubjects, headers: &HeaderMap) -> Option<String> {
    let subject = header_names::value(headers, header_names::REMEMBERS)?;
    let token = subject.strip_prefix(&subjects.inbox()).and_then(|rest| rest.strip_prefix('.'));
    let is_token = |token: &str| {
        let is_short = (1..=limits::ID_ECHO_CHARS_MAX).contains(&token.len());
        is_short && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };

    let is_own = token.is_some_and(is_token) || mutant("publish-anywhere");
    is_own.then(|| subject.to_owned())
}

impl NatsShared {
    /// Returns the data about a delivery that the in-flight table stores. `is_partial` is true if
    /// only the new messages of the delivery are published.
    pub(super) fn sent_delivery(&self, delivery: &Delivery, is_partial: bool) -> SentDelivery {
        let partial = is_partial.then(|| Box::new(delivery.clone()));
        // The answer to a request for a preview says nothing about the call's next delivery.
        let is_preview = delivery.attempt.is_preview();
        let mark = if is_preview { None } else { MemoryMark::after(delivery) };
        SentDelivery { mark, partial }
    }

    /// Records that a replica remembers the messages of a call, if the replica's answer states
    /// this. Does nothing for agents: their hosts remember no calls, but read the whole thread.
    pub(super) fn remember(&self, token: AttemptToken, answer: &Message) {
        if self.options.remote_agents.is_some() {
            return;
        }

        let Some(headers) = &answer.headers else { return };
        let Some(subject) = named_inbox(self.subjects(), headers) else { return };
        let (key, mark) = {
            let in_flight = self.in_flight();
            (in_flight.holder(token), in_flight.mark(token))
        };

        if let (Some((call, _)), Some(mark)) = (key, mark) {
            locked(&self.memory.calls).put(call, (subject, mark), 0);
        }
    }

    /// Publishes a delivery again, with all its messages, if only its new messages were published.
    /// Called if the delivery has not reached a replica that remembers the earlier messages. The
    /// attempt stays the same, because no handler has begun the delivery. If the attempt was
    /// cancelled, ends the attempt and publishes nothing. Returns false if the delivery was already
    /// published with all its messages, or if the attempt is not in flight.
    pub(super) fn deliver_all(self: &Arc<Self>, token: AttemptToken) -> bool {
        let _ending = self.ending();
        let connection = self.wire.number_of_publish();
        let partial = self.in_flight().take_partial(token, connection, Instant::now());

        match partial {
            Some(PartialDelivery::Open(delivery)) => {
                self.publish(token, &delivery, None);
                self.wire.send();
                true
            }
            Some(PartialDelivery::Cancelled(key)) => {
                let detail = "its caller was gone before it was handed over".to_owned();
                self.ended(key, Err(AttemptFailure::Refused { detail }));
                true
            }
            None => false,
        }
    }

    /// Handles a replica's report that the replica lacks earlier messages of a call. Publishes the
    /// delivery again with all its messages, and returns `None`. If all messages of the delivery
    /// were already published, the report is wrong. In this case, returns the failure of the
    /// attempt.
    pub(super) fn missing_memory(self: &Arc<Self>, token: AttemptToken) -> Option<AttemptFailure> {
        let detail = || "asks for messages of a delivery that had them all".to_owned();
        (!self.deliver_all(token)).then(|| AttemptFailure::Garbage { detail: detail() })
    }

    /// Handles permission errors which show that this host may not publish deliveries on the
    /// subjects of single replicas. Publishes again, with all its messages, each delivery that the
    /// servers may have denied. A permission error concerns the whole connection, and does not name
    /// a delivery. Does nothing while disconnected.
    pub(super) fn deliver_what_was_denied(self: &Arc<Self>, connection: Option<u64>) {
        if connection.is_none() {
            return;
        }

        let inboxes = format!("{}.", self.subjects().inbox());
        let known_until = locked(&self.memory.denial).known_until;
        let denials = self.wire.denials().publishes_denied_below(&inboxes, known_until);
        let (Some((first, _)), Some((last, denied))) = (denials.first(), denials.last()) else {
            return;
        };

        let listener = &self.options.listener;
        tracing::warn!(
            %listener,
            "deliveries to replicas are denied, so each delivery now carries all messages of its \
             call: {denied}"
        );
        *locked(&self.memory.denial) = ReplicaDenial { known_until: *last, connection };

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
