//! Wall time of a tree. It stands still while the tree waits for people only.

use std::collections::HashSet;
use std::time::Duration;

use super::Call;
use super::state::Tree;
use crate::clock::Time;
use crate::mutant::mutant;

/// First version of the step in which wall time runs while anything but a person is waited for. Before
/// it, wall time stood still while any call of the tree was held.
const PEOPLE_ONLY_SINCE: u32 = 27;

/// First version of the step in which wall time also stands still while a call waits for another call
/// of its agent, which waits for a person.
const QUEUED_SINCE: u32 = 29;

impl Tree {
    /// Time in which it did not wait for people only.
    pub fn worked(&self, now: Time) -> Duration {
        self.still_since.unwrap_or(now).since(self.started)
    }

    /// Notes when a record at `time` begins or ends a wait for people only, by the rule of this
    /// version of the step.
    pub(super) fn follow_people(&mut self, time: Time, core_version: u32) {
        let is_still = self.held > 0
            && match core_version {
                ..PEOPLE_ONLY_SINCE => true,
                PEOPLE_ONLY_SINCE..QUEUED_SINCE => !self.calls.values().any(Call::goes_on),
                QUEUED_SINCE.. => self.waits_for_people_only(),
            };
        match self.still_since {
            None if is_still => self.still_since = Some(time),
            Some(since) if !is_still => {
                self.started = self.started.plus(time.since(since));
                self.still_since = None;
            }
            _ => {}
        }
    }

    /// Whether nothing goes on without a person. A call that was never handed over, while an open call
    /// of its listener in its thread was, is taken to wait for that call: an agent has one call of a
    /// thread at a time.
    fn waits_for_people_only(&self) -> bool {
        if self.held == self.calls.len() as u64 {
            return true;
        }

        let place = |call: &'_ Call| (call.thread.clone(), call.callee.clone());
        let mut queued = Vec::new();
        for call in self.calls.values().filter(|call| call.goes_on()) {
            if call.was_offered() {
                return false;
            }
            queued.push(place(call));
        }

        if queued.is_empty() {
            return true;
        }

        let offered = self.calls.values().filter(|call| call.was_offered());
        let taken: HashSet<_> = offered.map(place).collect();
        queued.iter().all(|place| taken.contains(place))
    }
}

impl Call {
    /// Whether it goes on without a person and without another call: its listener has it or will get it,
    /// or it waits for a timer.
    fn goes_on(&self) -> bool {
        let has_timer = self.waiting.is_some() && self.timers > 0;
        (self.is_ready() || has_timer) && !mutant("stand-still-beside-work")
    }

    /// Whether its listener has had it, or was to have it.
    fn was_offered(&self) -> bool {
        let is_offered = self.handed_over.is_some() || self.offered_since.is_some();
        is_offered || self.turns > 0 || self.failures > 0
    }
}
