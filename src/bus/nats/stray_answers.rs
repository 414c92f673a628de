//! Stray answers. An answer is stray if it names another attempt than the subject on which it
//! arrived, or if this subject belongs to no attempt. The pump records stray answers of the first
//! kind, up to a limit for each attempt, so that a replica that repeats its answers cannot fill the
//! journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::host::NatsShared;
use super::in_flight::StrayVerdict;
use super::responses;
use super::tokens::AttemptToken;
use crate::bus::Outcome;
use crate::bus::answer::NamedAttempt;
use crate::envelope::AttemptFailure;
use crate::limits;
use crate::nats::Message;

impl NatsShared {
    /// Returns the answer if it names the attempt on whose subject it arrived. Otherwise, reports
    /// the answer to the sink as a stray answer, and returns `None`. The third stray answer on this
    /// subject also ends the attempt as crashed. Later stray answers on this subject are ignored.
    /// `bytes` is the size of the answer.
    pub(super) fn named(
        self: &Arc<Self>,
        token: AttemptToken,
        named: &NamedAttempt,
        answer: Result<Outcome, AttemptFailure>,
        bytes: usize,
    ) -> Option<Result<Outcome, AttemptFailure>> {
        let key = self.in_flight().key_of(token);
        if key.is_some_and(|(call, attempt)| named.is(call, attempt)) {
            return Some(answer);
        }

        // The guard exists before the attempt ends, so that a drain waits for the reports.
        let ending = self.ending();
        let verdict = self.in_flight().count_stray(token);
        if verdict == StrayVerdict::Ignore {
            return None;
        }

        let listener = &self.options.listener;
        tracing::warn!(
            %listener,
            "refused an answer to {named}, because another attempt was delivered"
        );

        let shared = Arc::clone(self);
        let named = named.to_string();
        let report = move || {
            let payloads = answer.map(|outcome| outcome.payloads).unwrap_or_default();
            shared.sink.stray(&shared.options.listener, named, payloads);
            if let StrayVerdict::EndAttempt(key) = verdict {
                let count = limits::STRAY_ANSWERS_MAX;
                let detail =
                    format!("answered {count} times to an attempt that was not delivered to it");
                shared.ended(key, Err(AttemptFailure::Crashed { detail }));
            }
            drop(ending);
        };

        // A long answer is checked on another thread, so that the check does not delay the messages
        // of other listeners.
        if bytes <= limits::NATS_INLINE_CHECK_BYTES {
            report();
        } else {
            self.runtime.spawn_blocking(report);
        }
        None
    }

    /// Handles a message that arrived on a subject of this pump for an attempt that is not in
    /// flight. Ignores a sign of life, because a program may send it just before its answer, and
    /// the sign of life may arrive after the answer. Counts any other message as a stray answer.
    pub(super) fn stray_unless_sign_of_life(&self, message: &Message) {
        if !responses::is_sign_of_life(message) {
            self.stray(message);
        }
    }

    /// Counts an answer that matches no attempt or repeats an earlier answer. Because there may be
    /// many such answers, logs the answer only if the count is a power of two.
    pub(super) fn stray(&self, message: &Message) {
        let count = self.strays.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let listener = &self.options.listener;
            let subject = &message.subject;
            tracing::warn!(
                %listener, count,
                "refused an answer at {subject}, because no attempt in flight has this subject"
            );
        }
    }
}
