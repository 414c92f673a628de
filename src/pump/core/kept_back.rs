//! Calls that a fork keeps back: they do not start yet, because another call may make them
//! superfluous. These calls belong to `first` groups. A `first` group consists of several calls,
//! its legs: the first reply counts, and cancels the other legs. So the fork's source has no result
//! for a cancelled leg.
//!
//! The fork keeps back a leg without a result as long as another leg may reply. So the fork gets
//! the same result as its source, makes no call whose result cannot count, and requests no approval
//! for such a call.

use super::event::{Alarm, Effect};
use super::{Core, Step};
use crate::contract::Gather;
use crate::ids::{CallId, ThreadId};
use crate::mutant::mutant;
use crate::thread::Call;

impl Core {
    /// Keeps back a call that has no recorded result, until [`Core::may_start`] permits its start.
    pub(super) fn keep_back(&mut self, step: &mut Step, fork: ThreadId, call: CallId) {
        self.recorded.keep_back(call, fork.clone());
        self.follow_order(step, &fork);
    }

    /// Whether this call must wait because another leg of its `first` group may reply first.
    ///
    /// - Returns false if another open leg without a recorded result has already started. Then no
    ///   leg without a recorded result waits any longer.
    /// - Otherwise, returns true if another open leg is neither held for a person nor kept back.
    pub(super) fn waits_for_other_legs(&self, call: CallId) -> bool {
        let Some(open) = self.state.call(call) else { return false };
        let Some((group, Gather::First)) = open.opening.group else { return false };
        let Some(tree) = self.state.tree(&open.thread) else { return false };
        let is_other = |leg: &&Call| {
            let of_group = leg.opening.group.is_some_and(|(own, _)| own == group);
            of_group && leg.id != call
        };

        let others: Vec<_> = tree.open_calls().filter(is_other).collect();
        let may_reply = |leg: &&Call| leg.held.is_none() && !self.recorded.is_kept_back(leg.id);
        !others.iter().any(|leg| leg.unrecorded)
            && others.iter().any(may_reply)
            && !mutant("start-a-leg-beside-a-recorded-reply")
    }

    /// Triggers the start of each call of `fork` that is kept back and may now start. See
    /// `may_start` for the conditions.
    pub(super) fn follow_kept_back(&self, step: &mut Step, fork: &ThreadId) {
        for call in self.recorded.kept_back_in(fork).filter(|call| self.may_start(fork, *call)) {
            step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Recorded { call } });
        }
    }

    /// Starts a call that is kept back. Does nothing if the call must still wait.
    pub(super) fn start_kept_back(&mut self, step: &mut Step, call: CallId) {
        let fork = self.state.call(call).map(|open| open.thread.root());
        if fork.is_some_and(|fork| self.may_start(&fork, call)) {
            self.recorded.release(call);
            self.take_recalled(step, call, None);
        }
    }

    /// Whether a call that is kept back may start. It may start in two cases:
    ///
    /// - It need not wait for another leg of its group (see `waits_for_other_legs`).
    /// - All recorded events of the fork have taken effect, and every open call of the fork is kept
    ///   back or waits for another call, a person or a timer. A paused call does not count as
    ///   waiting.
    ///
    /// The fork's next timer without a recorded firing fires only after the call has started.
    fn may_start(&self, fork: &ThreadId, call: CallId) -> bool {
        if !self.waits_for_other_legs(call) {
            return true;
        }

        let waits = |call: &Call| {
            let is_kept = self.recorded.is_kept_back(call.id) || call.held.is_some();
            is_kept || (call.handed_over.is_none() && !call.is_ready())
        };
        let tree = self.state.trees.get(fork);
        !self.recorded.has_any(fork) && tree.is_none_or(|tree| tree.open_calls().all(waits))
    }
}
