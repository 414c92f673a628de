//! Wall time of a tree. It stands still while the tree waits for people only.

use std::time::Duration;

use super::Call;
use super::state::Tree;
use crate::clock::Time;
use crate::mutant::mutant;

/// First version of the step in which wall time runs while anything but a person is waited for. Before
/// it, wall time stood still while any call of the tree was held.
pub(super) const PEOPLE_ONLY_SINCE: u32 = 27;

impl Tree {
    /// Time in which it did not wait for people only.
    pub fn worked(&self, now: Time) -> Duration {
        self.still_since.unwrap_or(now).since(self.started)
    }

    /// Notes when a record at `time` begins or ends a wait for people only. `is_older`: by the rule of
    /// older versions of the step.
    pub(super) fn follow_people(&mut self, time: Time, is_older: bool) {
        let is_still = self.held > 0 && (is_older || !self.calls.values().any(Call::goes_on));
        match self.still_since {
            None if is_still => self.still_since = Some(time),
            Some(since) if !is_still => {
                self.started = self.started.plus(time.since(since));
                self.still_since = None;
            }
            _ => {}
        }
    }
}

impl Call {
    /// Whether it goes on without a person and without another call: its listener has it or will get it,
    /// or it waits for a timer.
    fn goes_on(&self) -> bool {
        let has_timer = self.waiting.is_some() && self.timers > 0;
        (self.is_ready() || has_timer) && !mutant("stand-still-beside-work")
    }
}
