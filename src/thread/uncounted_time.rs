//! Time that does not count against the time limit of a workflow run: periods in which a pause kept
//! work of the run from being handed over, and forward steps of the system clock.
//!
//! For the time limits of threads, the core itself leaves this time out. But a workflow measures
//! the time of its run by the times of its messages, so it must know which part does not count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Call;
use crate::clock::Time;

/// The time that does not count for an open call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountedTime {
    /// Beginning of the part of a pause that `totals` does not include yet. When the call receives
    /// a message, the time up to this message is added to `totals`. `None` if no pause keeps the
    /// call, or a call beneath it, from being handed over.
    #[serde(rename = "still_since", default, skip_serializing_if = "Option::is_none")]
    still_since: Option<Time>,
    #[serde(rename = "totals", default, skip_serializing_if = "Vec::is_empty")]
    totals: Vec<UncountedTotal>,
}

/// A running total of a call's uncounted time. For each message of the call, the last total whose
/// `after` is earlier than the message applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountedTotal {
    /// Time of the latest message that the call had received when the total changed. The total
    /// applies only to later messages.
    #[serde(rename = "after")]
    pub after: Time,
    #[serde(rename = "total")]
    pub total: Duration,
}

/// Returns the uncounted time of a call up to a message whose time is `time`. `totals` are the
/// running totals of the call's uncounted time, oldest first.
pub fn uncounted_at(totals: &[UncountedTotal], time: Time) -> Duration {
    let found = totals.iter().rev().find(|total| total.after < time);
    found.map_or(Duration::ZERO, |found| found.total)
}

impl UncountedTime {
    fn begin_pause(&mut self, time: Time) {
        self.still_since.get_or_insert(time);
    }

    fn end_pause(&mut self, time: Time, latest: Time) {
        if let Some(since) = self.still_since.take() {
            self.add(time.since(since), latest);
        }
    }

    /// If a pause is in force, adds the part of it that `totals` does not include yet, up to
    /// `time`. `time` is the time of the call's next message.
    fn pass_to_message(&mut self, time: Time, latest: Time) {
        if let Some(since) = self.still_since.replace(time) {
            self.add(time.since(since), latest);
        }
    }

    /// Adds a forward step of the system clock. If a pause is in force, also moves the beginning of
    /// the pause by the step, so that the step is not counted twice.
    fn pass_step(&mut self, stepped: Duration, latest: Time) {
        self.still_since = self.still_since.map(|since| since.plus(stepped));
        self.add(stepped, latest);
    }

    fn add(&mut self, time: Duration, latest: Time) {
        if time.is_zero() {
            return;
        }

        match self.totals.last_mut() {
            Some(last) if last.after == latest => last.total += time,
            last => {
                let total = last.map_or(Duration::ZERO, |last| last.total) + time;
                self.totals.push(UncountedTotal { after: latest, total });
            }
        }
    }
}

/// First core version that leaves uncounted time out of the time of a workflow run. Earlier
/// versions counted all time, and a replay of their records must do the same.
pub(super) const UNCOUNTED_SINCE: u32 = 58;

impl Call {
    /// Returns the running totals of the call's uncounted time, each as of a later moment than the
    /// one before.
    pub fn uncounted_totals(&self) -> &[UncountedTotal] {
        self.uncounted.as_deref().map_or(&[], |uncounted| &uncounted.totals)
    }

    /// Begins or ends a period that does not count, at `time`. `is_still` states whether a pause
    /// keeps the call, or a call beneath it, from being handed over.
    pub(super) fn follow_stillness(&mut self, is_still: bool, time: Time) {
        // Only a listener whose threads are bound to the call measures time, and only from the
        // request on.
        if is_still && (self.has_bound || self.is_new()) {
            self.uncounted.get_or_insert_default().begin_pause(time);
        } else if !is_still && self.uncounted.is_some() {
            let latest = self.latest();
            self.uncounted.get_or_insert_default().end_pause(time, latest);
        }
    }

    /// If a pause is in force, adds its time up to `time` to the call's uncounted time. This method
    /// must run before the call receives a message whose time is `time`.
    pub(super) fn pass_to_message(&mut self, time: Time) {
        if self.uncounted.as_ref().is_some_and(|uncounted| uncounted.still_since.is_some()) {
            let latest = self.latest();
            self.uncounted.get_or_insert_default().pass_to_message(time, latest);
        }
    }

    /// Adds a forward step of the system clock to the call's uncounted time.
    pub(super) fn pass_uncounted_step(&mut self, stepped: Duration) {
        let is_kept = self.uncounted.is_some() || self.has_bound || self.is_new();
        if is_kept && !stepped.is_zero() {
            let latest = self.latest();
            self.uncounted.get_or_insert_default().pass_step(stepped, latest);
        }
    }

    /// Whether the call has no handled message yet, and is not held for the decision of a person.
    fn is_new(&self) -> bool {
        self.handled.is_empty() && self.held.is_none()
    }

    fn latest(&self) -> Time {
        let handled = self.handled.iter().map(|message| message.time);
        let pending = self.pending.iter().map(|pending| pending.message.time);
        handled.chain(pending).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn a_pause_and_a_step_count_for_the_messages_after_them() {
        let mut uncounted = UncountedTime::default();
        uncounted.begin_pause(at(1));
        uncounted.pass_to_message(at(3), at(0));
        uncounted.pass_step(Duration::from_secs(100), at(3));
        uncounted.end_pause(at(110), at(3));
        uncounted.end_pause(at(500), at(3));

        let seconds = |time| uncounted_at(&uncounted.totals, at(time)).as_secs();
        assert_eq!([seconds(0), seconds(3), seconds(111), seconds(600)], [0, 2, 109, 109]);
    }

    #[test]
    fn periods_without_a_message_between_them_have_one_total() {
        let mut uncounted = UncountedTime::default();
        for start in [10, 20] {
            uncounted.begin_pause(at(start));
            uncounted.end_pause(at(start + 5), at(4));
        }

        let total = UncountedTotal { after: at(4), total: Duration::from_secs(10) };
        assert_eq!(uncounted.totals, [total]);
    }
}
