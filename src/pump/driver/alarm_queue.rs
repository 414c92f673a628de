//! Alarms of the pump. Up to a million timers may be due at once, and each timer that fires brings
//! a tree of threads back to memory and leads to a delivery. So timers fire in small batches. While
//! the pump has too many unsettled messages, some time passes between two batches. A message is
//! unsettled until the journal records how it ended. Alarms of other kinds do not wait for timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::clock::Time;
use crate::ids::CallId;
use crate::limits;
use crate::pump::core::Alarm;

#[derive(Default)]
pub(super) struct AlarmQueue {
    timers: AlarmHeap,
    others: AlarmHeap,
    /// Earliest time at which a timer may fire. While the pump has too many unsettled messages, at
    /// least [`limits::TIMERS_WHILE_FULL_INTERVAL`] passes between two batches of timers.
    timers_from: Time,
    /// Number of timer alarms that were left after the last call of [`AlarmQueue::remove_ended`].
    timers_kept: usize,
    /// The same number for the other alarms.
    others_kept: usize,
}

type AlarmHeap = BinaryHeap<Reverse<(Time, Alarm)>>;

impl AlarmQueue {
    pub fn set(&mut self, at: Time, alarm: Alarm) {
        let alarms =
            if matches!(alarm, Alarm::Timer { .. }) { &mut self.timers } else { &mut self.others };
        alarms.push(Reverse((at, alarm)));
    }

    /// Whether there are so many alarms that those of ended timers and calls should be removed.
    pub fn has_grown(&self) -> bool {
        let has_grown =
            |alarms: &AlarmHeap, kept| alarms.len() >= limits::TIMERS_PER_COMMIT_MAX.max(2 * kept);
        has_grown(&self.timers, self.timers_kept) || has_grown(&self.others, self.others_kept)
    }

    /// Removes the timer alarms of calls that have no timer any more, and the alarms for the time
    /// limits of closed calls. Without this removal, such an alarm would stay until its time comes,
    /// perhaps for a year.
    ///
    /// If several alarms for the same time limit are set, such as by pauses in a row, only the
    /// earliest one stays. The core sets it again if it fires too early.
    pub fn remove_ended(
        &mut self,
        has_timers: impl Fn(CallId) -> bool,
        is_open: impl Fn(CallId) -> bool,
    ) {
        self.timers.retain(|Reverse((_, alarm))| match alarm {
            Alarm::Timer { call, .. } => has_timers(*call),
            _ => true,
        });
        self.timers_kept = self.timers.len();

        let mut others: Vec<_> = std::mem::take(&mut self.others).into_vec();
        others.sort_unstable_by_key(|Reverse(alarm)| *alarm);
        let mut limited = HashSet::new();
        others.retain(|Reverse((_, alarm))| match alarm {
            Alarm::Held { call } | Alarm::ThreadTime { call } => {
                is_open(*call) && limited.insert(*alarm)
            }
            Alarm::Untaken { call } => is_open(*call),
            _ => true,
        });
        self.others = others.into();
        self.others_kept = self.others.len();
    }

    /// Returns the earliest time at which [`AlarmQueue::due`] returns an alarm; `None` if there is
    /// no alarm. This time may be in the past.
    pub fn next(&self) -> Option<Time> {
        let timers = earliest(&self.timers).map(|at| at.max(self.timers_from));
        [timers, earliest(&self.others)].into_iter().flatten().min()
    }

    /// Removes and returns the due alarms, with a bounded number of timer alarms. If `is_full` is
    /// true, the pump has too many unsettled messages, and the next batch of timers fires later.
    pub fn due(&mut self, now: Time, is_full: bool) -> Vec<Alarm> {
        let mut due = Vec::new();
        while let Some(alarm) = take_due(&mut self.others, now) {
            due.push(alarm);
        }
        if now < self.timers_from {
            return due;
        }

        let others = due.len();
        while due.len() - others < limits::TIMERS_PER_COMMIT_MAX {
            let Some(alarm) = take_due(&mut self.timers, now) else { break };
            due.push(alarm);
        }

        if is_full && due.len() > others {
            self.timers_from = now.plus(limits::TIMERS_WHILE_FULL_INTERVAL);
        }
        due
    }
}

fn earliest(alarms: &AlarmHeap) -> Option<Time> {
    alarms.peek().map(|Reverse((at, _))| *at)
}

/// Removes and returns the earliest alarm if it is due; otherwise returns `None`.
fn take_due(alarms: &mut AlarmHeap, now: Time) -> Option<Alarm> {
    earliest(alarms).filter(|at| *at <= now)?;
    alarms.pop().map(|Reverse((_, alarm))| alarm)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{Attempt, CallId, MessageId, TimerId};

    /// Time at which every alarm of the test queue is due. The queue contains more than two batches
    /// of timers, and one other alarm.
    const DUE: Time = Time(1_000);

    const TIMERS: usize = 2 * limits::TIMERS_PER_COMMIT_MAX + 1;

    fn queue() -> AlarmQueue {
        let mut queue = AlarmQueue::default();
        for n in 0..TIMERS {
            let timer = TimerId(Uuid::from_u128(n as u128));
            let call = CallId(MessageId(Uuid::from_u128(n as u128)));
            queue.set(DUE, Alarm::Timer { timer, call });
        }
        queue.set(DUE, Alarm::Probe);
        queue
    }

    #[test]
    fn timers_that_are_due_at_once_fire_in_batches() {
        let mut queue = queue();
        assert_eq!(queue.due(Time(999), false), []);
        assert_eq!(queue.next(), Some(DUE));

        assert_eq!(queue.due(DUE, false).len(), limits::TIMERS_PER_COMMIT_MAX + 1);
        assert_eq!(queue.next(), Some(DUE), "the next batch is due at once");
        assert_eq!(queue.due(DUE, false).len(), limits::TIMERS_PER_COMMIT_MAX);
        assert_eq!(queue.due(DUE, false).len(), 1);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_lost_attempt_is_due_before_the_time_limit_of_its_thread_at_the_same_time() {
        let call = |number: u128| CallId(MessageId(Uuid::from_u128(number)));
        let lost = Alarm::Lost { call: call(2), attempt: Attempt { epoch: 1, n: 1 } };
        let limits = [1, 2].map(|number| Alarm::ThreadTime { call: call(number) });
        let mut queue = AlarmQueue::default();
        for alarm in [limits[1], limits[0], lost] {
            queue.set(DUE, alarm);
        }
        assert_eq!(queue.due(DUE, false), [lost, limits[0], limits[1]]);
    }

    #[test]
    fn alarms_of_ended_timers_are_removed_when_the_queue_has_doubled() {
        let mut queue = queue();
        assert!(queue.has_grown());
        let live = CallId(MessageId(Uuid::from_u128(7)));
        queue.remove_ended(|call| call == live, |_| true);
        assert!(!queue.has_grown());
        assert_eq!(queue.due(DUE, false).len(), 2, "one timer, and the other alarm");
    }

    #[test]
    fn one_alarm_for_each_time_limit_of_an_open_call_stays_when_the_queue_has_doubled() {
        let mut queue = AlarmQueue::default();
        let call = |n: usize| CallId(MessageId(Uuid::from_u128(n as u128)));
        for n in 0..TIMERS {
            let later = DUE.plus(limits::TIMERS_WHILE_FULL_INTERVAL);
            let held = Alarm::Held { call: call(n) };
            for alarm in [Alarm::ThreadTime { call: call(n) }, Alarm::Untaken { call: call(n) }] {
                queue.set(DUE, alarm);
            }
            queue.set(later, held);
            queue.set(DUE, held);
        }
        queue.set(DUE, Alarm::Probe);
        assert!(queue.has_grown());

        queue.remove_ended(|_| true, |open| open == call(7));
        assert!(!queue.has_grown());
        let call = call(7);
        let mut due = queue.due(DUE, false);
        due.sort_unstable();
        let mut kept = [
            Alarm::Probe,
            Alarm::ThreadTime { call },
            Alarm::Untaken { call },
            Alarm::Held { call },
        ];
        kept.sort_unstable();
        assert_eq!(due, kept);
        assert_eq!(queue.next(), None, "the later alarm of the same limit is gone");
    }

    #[test]
    fn timers_fire_slowly_while_too_many_messages_are_in_flight() {
        let mut queue = queue();
        assert_eq!(queue.due(DUE, true).len(), limits::TIMERS_PER_COMMIT_MAX + 1);
        let later = DUE.plus(limits::TIMERS_WHILE_FULL_INTERVAL);
        assert_eq!(queue.next(), Some(later));

        queue.set(DUE, Alarm::Probe);
        assert_eq!(queue.next(), Some(DUE), "other alarms do not wait");
        assert_eq!(queue.due(DUE, true), [Alarm::Probe]);

        assert_eq!(queue.due(later, false).len(), limits::TIMERS_PER_COMMIT_MAX);
        assert_eq!(queue.due(later, false).len(), 1, "the pump is no longer full");
    }
}
