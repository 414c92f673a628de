//! Deadlines of trees. A tree with open calls has one deadline, the end of its wall time. When this
//! deadline passes, all open calls of the tree end.
//!
//! The wall time of a tree stands still while the tree waits only for people, so each new record of
//! the tree updates its deadline. So does the hand-over of a call of the tree in the record of
//! another tree. A pause or a change of the clock can move the ends of many wall times at once, so
//! the deadlines are not updated then. A deadline may therefore pass before the wall time of its
//! tree has ended. In this case, the deadline is set again.

use std::collections::BTreeSet;

use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{CallId, ThreadId};
use crate::system::ErrorCode;
use crate::thread::{Fact, Input, Map, Tree};

/// The deadlines of trees with open calls. Rebuilt after every boot, never recorded.
///
/// **Invariant:** after the latest record of a tree and the latest hand-over of its calls, the tree
/// has one deadline if calls are open in it and its wall time runs. Otherwise it has none.
///
/// **Invariant:** `by_time` contains exactly the values of `by_tree`.
#[derive(Debug, Clone, Default)]
pub(super) struct TreeTimes {
    by_time: BTreeSet<(Time, CallId)>,
    /// The deadline of each tree, by the root, with one open call of the tree. The alarm of the
    /// deadline names the tree by this call.
    by_tree: Map<ThreadId, (Time, CallId)>,
    /// The root of each tree with a deadline. The key is the call that the alarm of this deadline
    /// names.
    by_call: Map<CallId, ThreadId>,
    /// Lower bound of all deadlines.
    not_before: Time,
}

impl TreeTimes {
    fn arm(&mut self, root: &ThreadId, at: Time, call: CallId) {
        let at = at.max(self.not_before);
        if self.by_tree.get(root) == Some(&(at, call)) {
            return;
        }

        self.disarm(root);
        self.by_tree.insert(root.clone(), (at, call));
        self.by_call.insert(call, root.clone());
        self.by_time.insert((at, call));
    }

    fn disarm(&mut self, root: &ThreadId) {
        if let Some(armed) = self.by_tree.remove(root) {
            let (_, call) = armed;
            self.by_call.remove(&call);
            self.by_time.remove(&armed);
        }
    }

    /// Removes the deadline whose alarm names `call`.
    fn disarm_call(&mut self, call: CallId) {
        if let Some(root) = self.by_call.get(&call).cloned() {
            self.disarm(&root);
        }
    }

    /// Delays all deadlines to `until` or later, so that answers that have arrived are read before
    /// a deadline passes.
    pub fn delay(&mut self, until: Time) {
        self.not_before = until.max(self.not_before);
        for (at, _) in self.by_tree.values_mut() {
            *at = until.max(*at);
        }
        self.by_time = self.by_tree.values().copied().collect();
    }

    pub fn next(&self) -> Option<(Time, CallId)> {
        self.by_time.first().copied()
    }

    /// Returns the trees whose deadlines have passed at `now`, earliest first. Each tree is named
    /// by one of its calls.
    pub fn due(&self, now: Time) -> impl Iterator<Item = CallId> {
        let passed = self.by_time.iter().take_while(move |(at, _)| *at <= now);
        passed.map(|(_, call)| *call)
    }
}

impl Core {
    /// Sets the deadline of a tree in memory to the end of its wall time. Removes the deadline if
    /// no call is open in the tree, or if its wall time stands still.
    pub(super) fn follow_tree_time(&mut self, root: &ThreadId) {
        let tree = self.state.trees.resident(root);
        let running = tree.filter(|tree| tree.still_since.is_none());
        let armed = self.tree_times.by_tree.get(root).map(|(_, call)| *call);
        let ends = running.and_then(|tree| {
            let armed = armed.filter(|call| tree.call(*call).is_some());
            let call = armed.or_else(|| tree.open_calls().map(|open| open.id).min())?;
            Some((self.end_of_wall_time(tree), call))
        });

        match ends {
            Some((at, call)) => self.tree_times.arm(root, at, call),
            None => self.tree_times.disarm(root),
        }
    }

    /// Updates the deadlines of trees whose calls this step hands over, except the tree of its
    /// record. Such a hand-over may restart the wall time of its tree.
    pub(super) fn follow_hand_overs(&mut self, step: &Step) {
        let Some((tree, _)) = &step.record else { return };
        let roots = step.facts.iter().filter_map(|fact| match fact {
            Fact::HandedOver { call, .. } => Some(self.state.call(*call)?.thread.root()),
            _ => None,
        });
        let others: Vec<_> = roots.filter(|root| root != tree).collect();
        others.iter().for_each(|root| self.follow_tree_time(root));
    }

    /// Returns the moment at which `tree` will have used up its wall time, if nothing stops its
    /// wall time before.
    fn end_of_wall_time(&self, tree: &Tree) -> Time {
        tree.started.plus(self.budgets.limits.wall_time)
    }

    /// Whether the tree that contains `thread` has used up its wall time.
    pub(super) fn is_tree_time_over(&self, thread: &ThreadId, now: Time) -> bool {
        let tree = self.state.tree(thread);
        tree.is_some_and(|tree| tree.worked(now) >= self.budgets.limits.wall_time)
    }

    /// Checks the wall time of the tree of `call`. If it is used up, ends the tree's open calls and
    /// returns true. The calls of a thread end before those of its subthreads. If wall time is
    /// left, or does not run, only updates the deadline of the tree and returns false.
    pub(super) fn end_spent_tree(&mut self, step: &mut Step, call: CallId) -> bool {
        let Some(open) = self.state.call(call) else {
            self.tree_times.disarm_call(call);
            return false;
        };
        let root = open.thread.root();
        let running = self.state.tree(&root).filter(|tree| tree.still_since.is_none());
        if running.is_none_or(|tree| self.end_of_wall_time(tree) > step.time) {
            self.follow_tree_time(&root);
            return false;
        }

        let most = self.budgets.limits.wall_time.as_secs_f64();
        let text = format!("this tree's time of {most} s is over");
        step.begin_record(root.clone(), Input::ThreadTime { call });
        let mut calls = self.to_cancel(&root);
        calls.reverse();
        self.close_all(step, &calls, |core, step, call| {
            core.fail_with(step, call, ErrorCode::BudgetSpent, &text, Disposition::Expired);
        });
        true
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

    fn root(text: &str) -> ThreadId {
        ThreadId::parse(text).unwrap()
    }

    fn due(times: &TreeTimes, now: i64) -> Vec<CallId> {
        times.due(Time(now)).collect()
    }

    #[test]
    fn a_tree_has_its_latest_deadline_alone() {
        let first = root("sess-aaaaaaaa");
        let second = root("sess-bbbbbbbb");
        let mut times = TreeTimes::default();
        times.arm(&first, Time(20), call(1));
        times.arm(&second, Time(10), call(2));
        times.arm(&first, Time(30), call(3));
        assert_eq!(times.next(), Some((Time(10), call(2))));
        assert_eq!(due(&times, 29), [call(2)]);

        times.disarm(&second);
        times.disarm_call(call(2));
        assert_eq!(due(&times, 30), [call(3)]);
        times.disarm_call(call(3));
        assert_eq!(times.next(), None);
    }

    #[test]
    fn a_delay_moves_earlier_deadlines_alone() {
        let first = root("sess-aaaaaaaa");
        let second = root("sess-bbbbbbbb");
        let mut times = TreeTimes::default();
        times.arm(&first, Time(20), call(1));
        times.arm(&second, Time(50), call(2));
        times.delay(Time(40));
        assert_eq!(due(&times, 39), []);
        assert_eq!(due(&times, 40), [call(1)]);
        assert_eq!(due(&times, 50), [call(1), call(2)]);

        times.arm(&second, Time(5), call(2));
        assert_eq!(due(&times, 39), []);
        assert_eq!(due(&times, 40), [call(1), call(2)]);
    }
}
