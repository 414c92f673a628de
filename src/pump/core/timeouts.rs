//! Deadlines of attempts. A deadline is set when the delivery of its attempt starts, and fires at
//! most once. It is extended by heartbeats, and by time that must not count, such as a standstill
//! of the pump.

use std::collections::BTreeSet;
use std::time::Duration;

use super::event::Alarm;
use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::mutant::mutant;
use crate::system::ErrorCode;
use crate::thread::{Input, Map};

/// The deadlines of attempts in flight. Rebuilt from the deliveries, never recorded.
///
/// **Invariant:** a call has at most one deadline: the deadline of its current attempt.
///
/// **Invariant:** `by_call` contains all deadlines, and `by_time` only those that can still fire. A
/// deadline can no longer fire once the answer to its attempt has arrived in time.
/// [`Timeouts::extend_all`] puts all deadlines back into `by_time`. So the driver must afterwards
/// report the arrived answers once more, before any deadline fires.
///
/// **Invariant:** a heartbeat never moves a deadline to an earlier time.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeouts {
    by_time: BTreeSet<(Time, CallId, Attempt)>,
    by_call: Map<CallId, (Time, Attempt)>,
}

impl Timeouts {
    pub fn arm(&mut self, call: CallId, attempt: Attempt, deadline: Time) {
        let before = self.by_call.insert(call, (deadline, attempt));
        if let Some((deadline, attempt)) = before {
            self.by_time.remove(&(deadline, call, attempt));
        }
        self.by_time.insert((deadline, call, attempt));
    }

    pub fn disarm(&mut self, call: CallId) {
        if let Some((deadline, attempt)) = self.by_call.remove(&call) {
            self.by_time.remove(&(deadline, call, attempt));
        }
    }

    /// Extends the deadline of a call's current attempt to `until`. Has no effect if `attempt` is
    /// not the current one.
    pub fn extend(&mut self, call: CallId, attempt: Attempt, until: Time) {
        let Some((deadline, current)) = self.by_call.get(&call).copied() else { return };
        if current == attempt && deadline < until {
            self.arm(call, attempt, until);
        }
    }

    pub fn extend_all(&mut self, by: Duration) {
        for (deadline, _) in self.by_call.values_mut() {
            *deadline = deadline.plus(by);
        }
        let deadlines = self.by_call.iter();
        self.by_time =
            deadlines.map(|(call, (deadline, attempt))| (*deadline, *call, *attempt)).collect();
    }

    /// Keeps the deadline of an attempt from firing if the answer to the attempt arrived before the
    /// deadline. The pump has not processed this answer yet.
    fn meet(&mut self, call: CallId, attempt: Attempt, arrived: Time) {
        if let Some((deadline, current)) = self.by_call.get(&call).copied()
            && current == attempt
            && arrived <= deadline
        {
            self.by_time.remove(&(deadline, call, attempt));
        }
    }

    pub fn len(&self) -> usize {
        self.by_call.len()
    }

    /// Returns the earliest deadline that can still fire. Returns `None` if there is no such
    /// deadline.
    pub fn next(&self) -> Option<(Time, CallId, Attempt)> {
        self.by_time.first().copied()
    }

    /// Returns the attempts whose deadlines have passed at `now`, earliest first.
    pub fn due(&self, now: Time) -> impl Iterator<Item = (CallId, Attempt)> {
        let passed = self.by_time.iter().take_while(move |(deadline, ..)| *deadline <= now);
        passed.map(|(_, call, attempt)| (*call, *attempt))
    }

    /// Whether the deadline of an attempt in flight has passed at `now`. True even if the answer to
    /// the attempt arrived in time but is not processed yet.
    pub fn has_passed(&self, call: CallId, attempt: Attempt, now: Time) -> bool {
        let armed = self.by_call.get(&call);
        armed.is_some_and(|(deadline, current)| *current == attempt && *deadline <= now)
    }

    fn is_due(&self, call: CallId, attempt: Attempt, now: Time) -> bool {
        let deadline = self.by_call.get(&call).map(|(deadline, _)| *deadline);
        let is_armed = |deadline| self.by_time.contains(&(deadline, call, attempt));
        deadline.is_some_and(|deadline| deadline <= now && is_armed(deadline))
    }
}

impl Core {
    /// Returns the earliest deadline that can still fire, of an attempt or of a tree, with its
    /// alarm. Returns `None` if no deadline can fire any more.
    pub fn next_deadline(&self) -> Option<(Time, Alarm)> {
        let attempt = self.timeouts.next();
        let attempt = attempt.map(|(at, call, attempt)| (at, Alarm::Deadline { call, attempt }));
        let tree = self.tree_times.next().map(|(at, call)| (at, Alarm::ThreadTime { call }));
        attempt.into_iter().chain(tree).min()
    }

    /// Returns the earliest attempt deadline that can still fire. Returns `None` if no attempt
    /// deadline can fire any more.
    pub fn next_attempt_deadline(&self) -> Option<Time> {
        self.timeouts.next().map(|(at, ..)| at)
    }

    /// Returns the alarms of deadlines that have passed, at most `most`. Deadlines of attempts come
    /// first, and deadlines of trees after them. Both are sorted by time.
    pub fn due_deadlines(&self, now: Time, most: usize) -> Vec<Alarm> {
        let attempts = self.timeouts.due(now);
        let attempts = attempts.map(|(call, attempt)| Alarm::Deadline { call, attempt });
        let trees = self.tree_times.due(now).map(|call| Alarm::ThreadTime { call });
        attempts.chain(trees).take(most).collect()
    }

    /// Records that a host has read the answer to an attempt. The pump has not processed the answer
    /// yet. If the answer arrived before the deadline of the attempt, the deadline no longer fires.
    /// Ignores answers to earlier attempts, and answers of a listener other than the callee.
    pub fn answer_arrived(
        &mut self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        at: Time,
    ) {
        let is_callee = self.calls.running(call).is_some_and(|own| own.listener == *listener);
        if is_callee && !mutant("forget-the-arrival") {
            self.timeouts.meet(call, attempt, at);
        }
    }

    pub(super) fn heartbeat(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        let Some(running) = self.calls.running(call) else { return };
        // The time-out of a model call bounds the time without progress, and each heartbeat is
        // progress.
        let contract = &running.contract;
        let is_progress = contract.spends() && !mutant("cut-a-live-stream");
        let time = if is_progress { contract.timeout } else { limits::HEARTBEAT_EXTENDS };
        self.timeouts.extend(call, attempt, step.time.plus(time));
    }

    /// Handles the deadline of an attempt: fails the call, because the result of the listener's
    /// work is unknown. Exception: a recorded event of the call waits in a fork. If the event must
    /// still wait, sets a new deadline; otherwise processes the event.
    pub(super) fn deadline(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        if !self.timeouts.is_due(call, attempt, step.time) {
            return;
        }

        let Some(running) = self.calls.running(call) else { return };
        let listener = running.listener.clone();
        let thread = running.thread.clone();
        let timeout = running.contract.timeout;
        if self.waits_for_its_order(&thread.root(), call) && !timeout.is_zero() {
            return self.timeouts.extend(call, attempt, step.time.plus(timeout));
        }
        if let Some(answered) = self.recorded.take_of(&thread.root(), call) {
            return self.process_recorded(step, answered);
        }

        step.begin_record(thread.root(), Input::Deadline { call, attempt });
        let text = format!("{listener} did not answer within {} s", timeout.as_secs_f64());
        self.fail_with(step, call, ErrorCode::Timeout, &text, Disposition::Expired);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    fn call(n: u128) -> CallId {
        CallId(MessageId(Uuid::from_u128(n)))
    }

    fn attempt(n: u32) -> Attempt {
        Attempt { epoch: 1, n }
    }

    /// Returns deadlines for three calls, at 10 µs, 20 µs and 30 µs.
    fn armed() -> Timeouts {
        let mut timeouts = Timeouts::default();
        for n in [3_u8, 1, 2] {
            timeouts.arm(call(u128::from(n)), attempt(1), Time(i64::from(n) * 10));
        }
        timeouts
    }

    fn due(timeouts: &Timeouts, now: i64) -> Vec<CallId> {
        timeouts.due(Time(now)).map(|(call, _)| call).collect()
    }

    #[test]
    fn all_that_is_due_comes_in_the_order_of_its_deadlines() {
        let timeouts = armed();
        assert_eq!(timeouts.next(), Some((Time(10), call(1), attempt(1))));
        assert_eq!(due(&timeouts, 9), []);
        assert_eq!(due(&timeouts, 20), [call(1), call(2)]);
    }

    #[test]
    fn an_ended_attempt_has_no_deadline() {
        let mut timeouts = armed();
        timeouts.disarm(call(1));
        timeouts.disarm(call(1));
        assert_eq!(due(&timeouts, 100), [call(2), call(3)]);
        assert!(!timeouts.is_due(call(1), attempt(1), Time(100)));
    }

    #[test]
    fn another_attempt_takes_the_place_of_the_one_before() {
        let mut timeouts = armed();
        timeouts.arm(call(1), attempt(2), Time(40));
        assert_eq!(due(&timeouts, 39), [call(2), call(3)]);
        assert!(!timeouts.is_due(call(1), attempt(1), Time(100)));
        assert!(timeouts.is_due(call(1), attempt(2), Time(40)));
    }

    #[test]
    fn a_heartbeat_extends_its_own_attempt_and_brings_no_deadline_forward() {
        let mut timeouts = armed();
        timeouts.extend(call(1), attempt(2), Time(90));
        timeouts.extend(call(2), attempt(1), Time(50));
        timeouts.extend(call(3), attempt(1), Time(5));
        assert_eq!(due(&timeouts, 30), [call(1), call(3)]);
        assert_eq!(due(&timeouts, 50), [call(1), call(3), call(2)]);
    }

    #[test]
    fn an_answer_in_time_meets_the_deadline_of_its_own_attempt() {
        let mut timeouts = armed();
        timeouts.meet(call(1), attempt(1), Time(10));
        timeouts.meet(call(2), attempt(1), Time(21));
        timeouts.meet(call(3), attempt(2), Time(10));
        assert_eq!(due(&timeouts, 30), [call(2), call(3)]);
        assert!(!timeouts.is_due(call(1), attempt(1), Time(30)));
        assert!(timeouts.has_passed(call(1), attempt(1), Time(10)));
        assert_eq!(timeouts.len(), 3);
    }

    #[test]
    fn time_that_is_not_counted_moves_every_deadline() {
        let mut timeouts = armed();
        timeouts.extend_all(Duration::from_micros(15));
        assert_eq!(due(&timeouts, 24), []);
        assert_eq!(due(&timeouts, 35), [call(1), call(2)]);
        timeouts.disarm(call(1));
        assert_eq!(due(&timeouts, 35), [call(2)]);
    }
}
