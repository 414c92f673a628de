//! Stray answers. An answer is stray if it names an attempt, but the subject on which it arrived
//! belongs to another attempt, or to an attempt that was answered before. An answer is also stray
//! if this subject belongs to no known attempt. The pump records only stray answers that name an
//! attempt, on subjects of known attempts, and at most [`limits::STRAY_ANSWERS_MAX`] for each
//! subject. So a replica that repeats one answer without end adds few records. A replica that
//! answers each delivery twice adds one record for each delivery, because nothing restarts it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::host::NatsShared;
use super::in_flight::StrayVerdict;
use super::responses::{self, ListenerResponse};
use super::tokens::AttemptToken;
use crate::blocking_work;
use crate::bus::Outcome;
use crate::bus::answer::{ALREADY_ANSWERED, NamedAttempt};
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
        self.run_check(bytes, move || {
            shared.report_stray(named, answer);
            if let StrayVerdict::EndAttempt(key) = verdict {
                let count = limits::STRAY_ANSWERS_MAX;
                let detail =
                    format!("answered {count} times to an attempt that was not delivered to it");
                shared.ended(key, Err(AttemptFailure::Crashed { detail }));
            }
            drop(ending);
        });
        None
    }

    fn report_stray(&self, named: String, answer: Result<Outcome, AttemptFailure>) {
        let payloads = answer.map(|outcome| outcome.payloads).unwrap_or_default();
        self.sink.stray(&self.options.listener, named, payloads);
    }

    /// Runs `check`, which checks an answer of `bytes` bytes. A long answer is checked on another
    /// thread, so that the check does not delay the messages of other listeners.
    pub(super) fn run_check(&self, bytes: usize, check: impl FnOnce() + Send + 'static) {
        if bytes <= limits::NATS_INLINE_CHECK_BYTES {
            check();
        } else {
            drop(blocking_work::start(&self.runtime, check));
        }
    }

    /// Handles a message that arrived on a subject of this pump for an attempt that is not in
    /// flight. Ignores a sign of life, because a program may send it just before its answer, and
    /// the sign of life may arrive after the answer. Reports a second answer to an attempt to the
    /// sink, and counts any other message as a stray answer.
    pub(super) fn without_attempt(self: &Arc<Self>, token: AttemptToken, message: &Message) {
        if responses::is_sign_of_life(message) || self.report_repeated(token, message) {
            return;
        }
        self.stray(message);
    }

    /// Reports the message to the sink as a stray answer, and returns true. Does nothing and returns
    /// false in these cases:
    /// - The attempt with this token was not answered before.
    /// - The message is no answer that names an attempt.
    /// - The maximum number of stray answers on the attempt's subject was already reported.
    fn report_repeated(self: &Arc<Self>, token: AttemptToken, message: &Message) -> bool {
        let Some((call, attempt)) = self.in_flight().answered(token) else { return false };
        let ListenerResponse::Named(named, answer) = responses::read(message) else { return false };
        let ending = self.ending();
        if !self.in_flight().count_repeated(token) {
            return false;
        }

        let is_own = named.is(call, attempt);
        let named = format!("{named}{}", if is_own { ALREADY_ANSWERED } else { "" });
        let listener = &self.options.listener;
        tracing::warn!(
            %listener, "refused an answer to {named} on the subject of an attempt that was answered \
                        before"
        );
        let shared = Arc::clone(self);
        self.run_check(message.payload.len(), move || {
            shared.report_stray(named, answer);
            drop(ending);
        });
        true
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
