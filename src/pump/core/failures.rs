//! Failed attempts. After a failed attempt, the pump either retries the call or fails it.

use std::time::Duration;

use super::event::{Alarm, Effect};
use super::outcome::AttemptSource;
use super::{Core, Step};
use crate::contract::Contract;
use crate::envelope::{AttemptFailure, Disposition};
use crate::ids::{CallId, ListenerName};
use crate::limits;
use crate::mutant::mutant;
use crate::system::ErrorCode;
use crate::thread::{Call, Fact, Input};

impl Core {
    pub(super) fn handle_failure(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        failure: AttemptFailure,
    ) {
        let AttemptSource { listener, call, attempt } = source;
        let call = *call;
        let attempt = *attempt;
        let listener = listener.clone();
        let input =
            Input::Failed { listener: listener.clone(), call, attempt, failure: failure.clone() };
        if attempt.is_preview() {
            let is_withheld = self.is_withheld(call, &failure);
            let reason = if is_withheld { NOT_CALLED } else { outward(&failure) };
            return self.preview_failed(step, source, input, reason);
        }

        let failed = Fact::AttemptFailed { call, attempt, failure: failure.clone() };
        if let Some(orphan) = self.end_orphan(source) {
            step.begin_record(orphan.thread.root(), input);
            if mutant("charge-a-stream-twice") {
                self.charge_reservation(step, call, attempt);
            }
            if !mutant("forget-a-closed-stream") {
                self.fact(step, failed);
            }
            return self.charge_reservation(step, call, attempt);
        }

        let Some((running, contract)) = self.record_attempt_end(step, source, input) else {
            return;
        };
        self.fact(step, failed);
        self.charge_reservation(step, call, attempt);
        self.record_presence(&listener);
        if let Some(text) = &running.stop_reason {
            // Without this, the attempt would be repeated after the resume.
            return self.cancel_stopped(step, call, text);
        }

        let open = self.state.call(call);
        let failures = open.map_or(0, |open| open.failures);
        let request = open.and_then(Call::request).map(|request| &request.name);
        if failure.is_retried() && failures < contract.attempts_of(request) {
            if contract.serial_per_thread {
                // Later calls of the thread wait until this call is settled.
                self.scheduler.hold_thread(&listener, &running.thread, call);
            }
            let at = step.time.plus(backoff(call, failures));
            self.calls.delay_retry(call, at);
            return step.effect(Effect::Alarm { at, alarm: Alarm::Retry { call } });
        }

        self.fail_exhausted_call(step, call, &listener, &failure);
    }

    /// Fails a call that gets no further attempt. `failure` is the failure of its last attempt.
    pub(super) fn fail_exhausted_call(
        &mut self,
        step: &mut Step,
        call: CallId,
        listener: &ListenerName,
        failure: &AttemptFailure,
    ) {
        let code = match failure {
            _ if self.is_turn_not_recorded(call, failure) => ErrorCode::NotRecorded,
            AttemptFailure::Unreachable { .. } if !self.has_handled_a_part(call) => {
                ErrorCode::Undeliverable
            }
            AttemptFailure::Lost { .. } => ErrorCode::UnknownOutcome,
            AttemptFailure::Spent { .. } => ErrorCode::BudgetSpent,
            AttemptFailure::TooLarge { .. } => ErrorCode::TooLarge,
            _ => ErrorCode::ListenerFailed,
        };

        let failures = self.state.call(call).map_or(0, |open| open.failures);
        let text = match (failure, failures) {
            // The listener is not to blame: a resource that its work requires was not available.
            (AttemptFailure::Spent { detail } | AttemptFailure::TooLarge { detail }, _) => {
                detail.clone()
            }
            (AttemptFailure::Lost { .. }, _) => format!("{listener} was given this, and {LOST}"),
            // The text depends on the cause, because a caller reacts differently to each.
            (AttemptFailure::Model { detail, .. }, _) => {
                format!("{listener} failed: its model call brought no answer: {detail}")
            }
            (failure, _) if self.is_withheld(call, failure) => self.withheld_text(call),
            (failure, 1) => format!("{listener} failed: {}", outward(failure)),
            (failure, n) => format!("{listener} failed {}, last: {}", times(n), outward(failure)),
        };

        match failure {
            // The handler may have acted before it gave an answer that cannot be read, and the same
            // request would probably get the same answer.
            AttemptFailure::Model { passing: false, .. }
            | AttemptFailure::Refused { .. }
            | AttemptFailure::Garbage { .. } => {
                self.fail_for_good(step, call, code, &text, Disposition::Failed);
            }
            _ => self.fail_with(step, call, code, &text, Disposition::Failed),
        }
    }

    /// Whether the pump withheld the attempt that ended with `failure`, because a message of its
    /// delivery was redacted. False for a refusal of the listener, whatever its text is.
    fn is_withheld(&self, call: CallId, failure: &AttemptFailure) -> bool {
        let Some(open) = self.state.call(call).filter(|_| failure.is_withheld()) else {
            return false;
        };
        let pending = open.pending.iter().map(|pending| &pending.message);
        open.handled.iter().chain(pending).any(|message| message.payload.is_redacted())
    }

    /// Returns the text for the caller of a call whose last attempt was withheld.
    fn withheld_text(&self, call: CallId) -> String {
        let Some(open) = self.state.call(call) else { return REDACTED.to_owned() };
        let listener = &open.callee;
        match (open.failures, open.turns) {
            (0 | 1, 0) => format!("{listener} was not called: {REDACTED}"),
            (0 | 1, _) => format!("{listener} was not called again: {REDACTED}"),
            (n, _) => {
                let earlier = times(n - 1);
                format!("{listener} failed {earlier}, and was not called again: {REDACTED}")
            }
        }
    }

    /// Limits the consecutive failed rounds of a call. If their number reaches the limit, fails the
    /// call. If it reaches `limits::ROUNDS_FAILED_BACKOFF` before, delays the next round. Returns
    /// true if the call was failed or delayed.
    ///
    /// A round consists of the messages that the listener gets in one delivery after an earlier
    /// answer. A round has failed if it contains results and all of them are failures. The rounds
    /// of agents are not delayed, because model calls slow agents down anyway.
    pub(super) fn bound_rounds(&mut self, step: &mut Step, call: CallId) -> bool {
        let Some(open) = self.state.call(call) else { return false };
        let failed = self.failed_rounds(open);
        if failed >= self.budgets.limits.rounds_failed && !mutant("forget-failed-rounds") {
            let listener = &open.callee;
            let text = format!(
                "{listener} went on through {failed} rounds in a row in which every result was a \
                 failure"
            );
            self.fail(step, call, ErrorCode::LimitReached, &text);
            return true;
        }

        let Some(paced) = failed.checked_sub(limits::ROUNDS_FAILED_BACKOFF) else { return false };
        let contract = self.contract_of_work(&open.callee);
        if contract.is_none_or(|contract| contract.spends()) {
            return false;
        }

        let at = step.time.plus(backoff(call, paced.saturating_add(1)));
        step.effect(Effect::Alarm { at, alarm: Alarm::Retry { call } });
        true
    }

    /// Returns the number of consecutive failed rounds of the call (see [`Core::bound_rounds`]), or
    /// 0 if the call has no bound on failed rounds.
    fn failed_rounds(&self, open: &Call) -> u32 {
        let failed = open.rounds_failed();
        if failed == 0 {
            return 0;
        }

        let contract = self.contract_of_work(&open.callee);
        let is_bounded = contract.is_none_or(|contract| contract.has_bounded_rounds());
        if is_bounded { failed } else { 0 }
    }

    /// Handles [`Alarm::Retry`]: the delay before a retry is over, so the call is queued again.
    pub(super) fn retry(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        if self.has_no_attempt_left(open) {
            return self.fail_without_attempt(step, call);
        }

        let is_paced = self.failed_rounds(open) >= limits::ROUNDS_FAILED_BACKOFF;
        let has_failed = open.failures > 0;
        // A call that is held meanwhile is queued at the end of its hold.
        if !(has_failed || is_paced) || !open.is_ready() || self.is_busy_with(call) {
            return;
        }

        // This alarm belongs to an earlier round. The failure has an alarm of its own.
        if has_failed && self.calls.awaits_retry(call, step.time) {
            return;
        }

        if let Some(alarm) = self.alarm_before_delivery(open, step.time) {
            return step.effect(Effect::Alarm { at: step.time, alarm });
        }

        let callee = open.callee.clone();
        let thread = open.thread.clone();
        step.begin_record(thread.root(), Input::Retry { call });
        self.enqueue(step, &callee, &thread, call);
    }

    /// Whether a call has no delivery in flight, but already has as many failed attempts as the
    /// config permits. This happens only if a reload or a restart has lowered the number of
    /// permitted attempts. In all other cases, the call ends when its last permitted attempt fails.
    pub(super) fn has_no_attempt_left(&self, call: &Call) -> bool {
        let contract = self.contracts.get(&call.callee);
        let request = call.request().map(|request| &request.name);
        let is_spent = |contract: &Contract| call.failures >= contract.attempts_of(request);
        call.failures > 0
            && call.handed_over.is_none()
            && contract.is_some_and(is_spent)
            && !mutant("deliver-what-was-lost")
    }

    /// Ends, as failed, a call that has no permitted attempt left (see
    /// [`Core::has_no_attempt_left`]).
    fn fail_without_attempt(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let listener = &open.callee;
        let request = open.request().map(|request| &request.name);
        let contract = self.contracts.get(listener);
        let attempts = contract.map_or(0, |contract| contract.attempts_of(request));
        let most =
            if attempts == 1 { "one attempt".to_owned() } else { format!("{attempts} attempts") };
        let failed = times(open.failures);
        let text = format!("{listener} failed {failed}, and the config now permits {most}");

        step.begin_record(open.thread.root(), Input::Retry { call });
        self.fail_with(step, call, ErrorCode::ListenerFailed, &text, Disposition::Failed);
    }

    /// Whether the listener of a call has already given an outcome for this call. If so, it may
    /// have done a part of the work.
    fn has_handled_a_part(&self, call: CallId) -> bool {
        self.state.call(call).is_some_and(|open| open.turns > 0)
    }

    /// Fails a call that cannot be delivered. The error text for the caller begins with the
    /// listener's name and `reason`. The error code is `undeliverable` only if no earlier delivery
    /// can have had effects. `contract` is the contract of the listener that got the earlier
    /// deliveries. If `is_lasting` is true, the error states that sending the call again cannot
    /// help.
    pub(super) fn fail_undelivered(
        &mut self,
        step: &mut Step,
        call: CallId,
        contract: Option<&Contract>,
        reason: &str,
        is_lasting: bool,
    ) {
        let Some(open) = self.state.call(call) else { return };
        let listener = &open.callee;
        let request = open.request().map(|request| &request.name);
        let is_repeatable = contract.is_some_and(|contract| contract.attempts_of(request) > 1);
        let code = match (open.failures, open.turns) {
            (0, 0) => ErrorCode::Undeliverable,
            (0, _) if !is_repeatable => ErrorCode::UnknownOutcome,
            _ => ErrorCode::ListenerFailed,
        };
        let text = format!("{listener} {reason}{}", earlier_deliveries(open));

        if is_lasting {
            self.fail_for_good(step, call, code, &text, Disposition::Failed);
        } else {
            self.fail_with(step, call, code, &text, Disposition::Failed);
        }
    }

    /// Handles [`Alarm::Gone`]: fails a call that its listener can no longer handle. Either the
    /// config no longer contains the listener, or the call was approved with a preview, and the
    /// listener no longer declares previews.
    pub(super) fn listener_gone(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();
        let is_there = self.contracts.get(&listener).is_some();
        step.begin_record(thread.root(), Input::Gone { call });
        if is_there && self.lacks_its_previews(open) {
            return self.fail_without_previews(step, call);
        }
        if is_there {
            // A later reload has brought the listener back.
            return self.wake(step, call);
        }

        let contract = self.contract_of_work(&listener).cloned();
        self.fail_undelivered(step, call, contract.as_deref(), GONE, true);
    }
}

/// Returns the end of the error text for a call that ends without a further delivery. The text
/// describes the earlier deliveries of the call. It is empty if the listener has neither failed nor
/// given an outcome.
pub(super) fn earlier_deliveries(call: &Call) -> String {
    let listener = &call.callee;
    match (call.failures, call.turns) {
        (0, 0) => String::new(),
        (0, _) => format!("; {listener} has handled a part of this before"),
        (n, _) => format!("; {listener} was given this before, and failed {}", times(n)),
    }
}

fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// Description of the failure that is recorded if the outcome of a delivery was lost.
const LOST: &str = "what became of it is not known: its answer was lost";

/// Reason for the failure of a call whose listener the config no longer has.
pub(super) const GONE: &str = "is no longer part of this organism";

/// Reason for the failure of a call whose listener a reload has replaced by one of another kind.
pub(super) const REPLACED: &str =
    "was replaced in a reload by a listener of another kind, which does not continue this call";

const NOT_CALLED: &str = "it was not called";

const REDACTED: &str = "a message of this call was redacted";

/// Returns a description of a failure for callers. The description names the kind of the failure,
/// without details of the listener.
pub(super) fn outward(failure: &AttemptFailure) -> &'static str {
    match failure {
        AttemptFailure::Crashed { .. } => "it ended without an answer",
        AttemptFailure::Unreachable { .. } => "it cannot be reached",
        AttemptFailure::Lost { .. } => LOST,
        AttemptFailure::Refused { .. } => "it refused the request",
        AttemptFailure::Garbage { .. } => "it gave no answer that can be read",
        AttemptFailure::CutShort { .. } => "its model's answer was cut short",
        AttemptFailure::Model { .. } => "its model call brought no answer",
        AttemptFailure::Spent { .. } | AttemptFailure::TooLarge { .. } => NOT_CALLED,
    }
}

/// Returns the delay before a retry. The delay doubles with each failure. The jitter of the delay
/// is derived from the call's id instead of a random number, so that a replay gets the same delay.
fn backoff(call: CallId, failures: u32) -> Duration {
    let doubled = limits::BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let base = doubled.min(limits::BACKOFF_MAX);
    let spread = u32::try_from((call.0.0.as_u128() >> 13) % 512).unwrap_or(0);
    base.mul_f64(0.75 + f64::from(spread) / 1024.0)
}
