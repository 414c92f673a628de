//! Alarms of the pump, ordered by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Time;
use crate::pump::core::Alarm;

#[derive(Default)]
pub(super) struct AlarmQueue(BinaryHeap<Reverse<(Time, Alarm)>>);

impl AlarmQueue {
    pub fn set(&mut self, at: Time, alarm: Alarm) {
        self.0.push(Reverse((at, alarm)));
    }

    pub fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns every alarm that is due.
    pub fn due(&mut self, now: Time) -> Vec<Alarm> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.0.pop().map(|Reverse((_, alarm))| alarm));
        }
        due
    }
}
