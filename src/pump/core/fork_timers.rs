//! Timers of forks. The timers of a fork do not wait for their times. If a timer fired in the
//! source of the fork, it fires in the fork at the same place in the order of the recorded events.
//! All other timers fire one after another in the order of their times, and the next one fires as
//! soon as the fork waits only for timers or persons.
//!
//! For each timer of the fork, a search finds the record in which the corresponding timer of the
//! source fired. While such a search is in progress, no recorded event takes effect in the fork,
//! and no timer fires.

use super::event::Effect;
use super::forks::ResultSearch;
use super::recorded_events::RecordedEvent;
use super::{Core, Step};
use crate::ids::{CallId, Position, ThreadId, TimerId};
use crate::mutant::mutant;
use crate::thread::Tree;

/// The core's instruction to search the source of a fork. Another OS thread carries out the search.
#[derive(Debug, Clone)]
pub enum ForkSearch {
    Result(ResultSearch),
    Timer(TimerSearch),
}

/// The core's instruction to search the source of a fork for the firing of a timer. The search
/// looks for the record in which the corresponding timer of the source fired.
#[derive(Debug, Clone)]
pub struct TimerSearch {
    /// The timer of the fork.
    pub timer: TimerId,
    /// The call that has set the timer.
    pub call: CallId,
    /// Root thread of the fork.
    pub fork: ThreadId,
    /// Root thread of the tree from which the fork was made.
    pub source: ThreadId,
    /// Position in the source after which the search begins.
    pub after: Position,
}

impl Core {
    /// Starts the searches for all timers of the forks among the trees with these `roots`.
    pub(super) fn search_timers(&mut self, step: &mut Step, roots: &[ThreadId]) {
        let trees = roots.iter().filter_map(|root| self.state.trees.get(root));
        let forks = trees.filter(|tree| tree.lineage.is_some());
        let timers = forks.flat_map(|tree| tree.timers.iter());
        let timers: Vec<_> = timers.map(|(timer, set)| (*timer, set.call)).collect();
        for (timer, call) in timers {
            self.search_timer(step, timer, call);
        }
    }

    /// Starts a search in the source of a fork for the firing of a timer. Does nothing if the call
    /// of the timer belongs to no fork.
    pub(super) fn search_timer(&mut self, step: &mut Step, timer: TimerId, call: CallId) {
        let Some(fork) = self.state.calls.get(&call).cloned() else { return };
        let tree = self.state.trees.get(&fork);
        let Some(lineage) = tree.and_then(|tree| tree.lineage.as_deref()) else { return };
        let source = lineage.source.thread.clone();
        let after = lineage.source.history;
        self.recorded.begin_search(timer, call, fork.clone());
        let search = TimerSearch { timer, call, fork, source, after };
        step.effect(Effect::Recall(ForkSearch::Timer(search)));
    }

    /// Processes the end of a search for the firing of a timer. `fired` is the position in the
    /// source at which the corresponding timer fired. If `fired` is `None`, the timer fires when
    /// nothing else in the fork can continue.
    pub(super) fn timer_searched(
        &mut self,
        step: &mut Step,
        (timer, call): (TimerId, CallId),
        fired: Option<Position>,
    ) {
        let Some(fork) = self.recorded.end_search(timer, call) else { return };
        match fired.filter(|_| self.keeps_order_in(&fork)) {
            Some(position) => {
                let event = RecordedEvent::Timer { timer, call };
                self.keep_recorded(step, fork, position, event);
            }
            None => self.follow_order(step, &fork),
        }
    }

    /// Whether the timers of this tree can fire before their times. True for a fork.
    pub(super) fn fires_timers_early(&self, root: &ThreadId) -> bool {
        let tree = self.state.trees.get(root);
        tree.is_some_and(|tree| tree.lineage.is_some()) && !mutant("fire-passed-timers-at-once")
    }

    /// Whether all work of a fork waits for timers or persons, so that the next timer without a
    /// recorded firing may fire. False during a drain, because such a timer then fires only after
    /// the next start.
    pub(super) fn waits_for_timers(&self, root: &ThreadId, tree: &Tree) -> bool {
        tree.lineage.is_some()
            && !self.draining
            && self.is_idle(tree)
            && !self.recorded.searches_timer(root)
            && self.next_recorded(root).is_none()
    }

    /// Returns the timer without a recorded firing that fires next in a fork, and the call that has
    /// set this timer. Ignores timers of paused calls. Returns `None` if only paused calls have
    /// timers, or no call has one.
    pub(super) fn first_timer(&self, tree: &Tree) -> Option<(TimerId, CallId)> {
        let is_paused = |call: CallId| tree.call(call).is_some_and(|open| self.is_paused(open));
        let going = tree.timers.iter().filter(|(_, set)| !is_paused(set.call));
        let next = going.min_by_key(|(timer, set)| (set.fires_at, **timer));
        next.map(|(timer, set)| (*timer, set.call))
    }

    /// Whether a timer of a fork is the next one to fire.
    pub(super) fn is_next_timer(&self, root: &ThreadId, timer: TimerId) -> bool {
        let tree = self.state.trees.get(root).filter(|tree| self.waits_for_timers(root, tree));
        tree.and_then(|tree| self.first_timer(tree)).is_some_and(|(next, _)| next == timer)
    }
}
