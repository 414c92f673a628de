//! Wall time of a tree. The wall time does not run while the tree waits for people only, or while
//! pauses stop everything that could continue.

use std::collections::HashSet;
use std::time::Duration;

use super::Call;
use super::state::Tree;
use crate::clock::Time;
use crate::mutant::mutant;

/// First core version that stops the wall time only while the tree waits for people and for nothing
/// else. Earlier versions stopped the wall time while any call of the tree was held.
const PEOPLE_ONLY_SINCE: u32 = 27;

/// First core version in which the wall time may stand still although a call to an agent is queued.
/// This is so if an earlier call to the same agent in the same thread waits for a person: the
/// queued call cannot begin before the earlier call has ended.
const QUEUED_SINCE: u32 = 29;

/// First core version in which a hand-over restarts the wall time of its call's tree although the
/// hand-over is in the record of another tree. In earlier versions, the tree's own next record did.
const OTHER_TREES_SINCE: u32 = 70;

impl Tree {
    /// Lets the wall time of the tree run if it stood still, because a call of the tree was handed
    /// over. Has the parameters of [`Tree::follow_people`].
    pub(super) fn follow_hand_over(&mut self, time: Time, core_version: u32, is_paused: bool) {
        if core_version >= OTHER_TREES_SINCE {
            self.follow_people(time, core_version, is_paused);
        }
    }

    /// Returns the wall time that the tree has used until `now`. Periods in which the wall time
    /// stood still do not count.
    pub fn worked(&self, now: Time) -> Duration {
        self.still_since.unwrap_or(now).since(self.started)
    }

    /// Stops the wall time of the tree if the tree now waits only for people, and otherwise lets it
    /// run. `time` is the time of the latest record, `core_version` determines the exact rule, and
    /// `is_paused` states whether any pause is in force.
    pub(super) fn follow_people(&mut self, time: Time, core_version: u32, is_paused: bool) {
        let waits_for_people = self.held > 0
            && match core_version {
                ..PEOPLE_ONLY_SINCE => true,
                PEOPLE_ONLY_SINCE..QUEUED_SINCE => !self.open_calls().any(Call::goes_on),
                QUEUED_SINCE.. => self.waits_for_people_only(),
            };
        let is_still = waits_for_people
            || (is_paused && self.has_kept_calls() && self.waits_for_people_only());
        match self.still_since {
            None if is_still => self.still_since = Some(time),
            Some(since) if !is_still => {
                self.started = self.started.plus(time.since(since));
                self.still_since = None;
            }
            _ => {}
        }
    }

    /// Whether the tree can continue only after a person decides, answers, or ends a pause. A
    /// queued call also waits for people if an earlier call to the same listener in the same thread
    /// waits for people. The reason is that an agent handles one call of a thread at a time. A
    /// listener of another kind may get the queued call before, and the wall time then runs again.
    fn waits_for_people_only(&self) -> bool {
        if self.held == self.calls.len() as u64 {
            return true;
        }

        let place = |call: &'_ Call| (call.thread.clone(), call.callee.clone());
        let mut queued = Vec::new();
        for call in self.open_calls().filter(|call| call.goes_on()) {
            if call.was_offered() {
                return false;
            }
            queued.push(place(call));
        }

        if queued.is_empty() {
            return true;
        }

        let offered = self.open_calls().filter(|call| call.was_offered());
        let taken: HashSet<_> = offered.map(place).collect();
        queued.iter().all(|place| taken.contains(place))
    }
}

impl Call {
    /// Whether the call can continue even if no person acts and no other call ends. This is so if
    /// the listener has the call or will get it, or if the call waits for a timer.
    fn goes_on(&self) -> bool {
        if self.kept_since.is_some() {
            return false;
        }

        let has_timer = self.waiting.is_some() && self.timers > 0;
        (self.is_ready() || has_timer) && !mutant("stand-still-beside-work")
    }

    /// Whether the call was handed over at least once.
    fn was_offered(&self) -> bool {
        let is_offered = self.handed_over.is_some() || self.offered_since.is_some();
        is_offered || self.turns > 0 || self.failures > 0
    }
}
