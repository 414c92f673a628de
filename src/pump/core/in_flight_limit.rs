//! Limit on the unsettled messages of a pump. A message is unsettled until the journal records how
//! it ended. A message does not count if it can only be delivered after a person decides or a timer
//! fires. Other bounds limit such messages: at each listener, a client may have only a limited
//! number of held calls, and a limited number of calls with timers.

use std::collections::hash_map::Entry;

use super::Core;
use super::calls_by_client::ClientAndListener;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::Map;

/// Counts the unsettled messages in the trees whose open calls only wait for persons or timers: for
/// each of these trees, and in total. The requests of held calls are left out, because
/// [`Core::is_full`] subtracts them separately. Rebuilt from the trees after every boot.
///
/// **Invariant:** `total` is the sum of the numbers in `by_tree`. A tree without such messages has
/// no entry.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingMessages {
    by_tree: Map<ThreadId, usize>,
    total: usize,
}

impl WaitingMessages {
    fn set(&mut self, root: &ThreadId, messages: usize) {
        if messages == 0 && self.by_tree.is_empty() {
            return;
        }
        if messages == 0 {
            self.total -= self.by_tree.remove(root).unwrap_or_default();
            return;
        }

        let before = match self.by_tree.entry(root.clone()) {
            Entry::Occupied(mut count) => count.insert(messages),
            Entry::Vacant(place) => {
                place.insert(messages);
                0
            }
        };
        self.total = self.total - before + messages;
    }
}

impl Core {
    /// Whether the pump has reached its maximum number of unsettled messages. Two kinds of messages
    /// do not count, because they may stay for weeks: the requests of held calls, and the messages
    /// in trees whose open calls only wait for persons or timers.
    pub fn is_full(&self) -> bool {
        let held = if mutant("count-the-held") { 0 } else { self.holds.len() };
        let waiting = if mutant("count-the-waiting") { 0 } else { self.waiting.total };
        self.state.in_flight.saturating_sub(held + waiting) >= limits::IN_FLIGHT_MAX
    }

    /// Returns the number of unsettled messages in trees whose open calls only wait for persons or
    /// timers. The requests of held calls are not included.
    pub fn waiting_messages(&self) -> usize {
        self.waiting.total
    }

    /// Updates the number of waiting messages of the tree `root`. The messages of a tree count as
    /// waiting if all its open calls wait for persons or timers. The tree must be in memory. Must
    /// be called after each record that belongs to the tree, and after a boot.
    pub(super) fn count_waiting_messages(&mut self, root: &ThreadId) {
        let tree = self.state.trees.resident(root);
        let messages = tree.map_or(0, |tree| tree.waiting_messages());
        self.waiting.set(root, messages);
    }

    /// Counts a call as a call with timers, or stops counting it if it has no timers any more. Must
    /// be called after each change of the call's timers.
    pub(super) fn count_timers(&mut self, call: CallId) {
        let open = self.state.call(call).filter(|open| open.timers > 0);
        match open.and_then(|open| self.client_and_listener(open)) {
            Some(key) => self.timed.insert(call, key),
            None => self.timed.remove(call),
        }
    }

    /// Whether the call is open and has at least one timer. The tree of the call need not be in
    /// memory.
    pub fn has_timers(&self, call: CallId) -> bool {
        self.timed.contains(call)
    }

    /// Returns the number of open calls with at least one timer.
    pub fn calls_with_timers(&self) -> usize {
        self.timed.len()
    }

    /// Returns the number of the client's open calls with timers at `listener`, if this number has
    /// reached its bound. In this case, the caller must refuse a further call of the client to
    /// `listener`. Calls that are already open may still set timers. Returns `None` if the bound is
    /// not reached.
    pub(super) fn too_many_timed<'c>(
        &self,
        client: impl FnOnce() -> Option<&'c ListenerName>,
        listener: &ListenerName,
    ) -> Option<usize> {
        let contract = self.contracts.get(listener)?;
        // Most listeners have few such calls, or none.
        if self.timed.len() < contract.backlog || mutant("let-timers-pile-up") {
            return None;
        }

        let key = ClientAndListener { client: client()?.clone(), listener: listener.clone() };
        let timed = self.timed.count(&key);
        (timed >= contract.backlog).then_some(timed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_follows_the_count_of_each_tree() {
        let [first, second] =
            ["sess-aaaaaaaa", "sess-bbbbbbbb"].map(|root| ThreadId::parse(root).unwrap());
        let mut waiting = WaitingMessages::default();
        waiting.set(&first, 2);
        waiting.set(&second, 3);
        assert_eq!(waiting.total, 5);

        waiting.set(&first, 1);
        waiting.set(&first, 1);
        assert_eq!(waiting.total, 4);

        waiting.set(&first, 0);
        waiting.set(&first, 0);
        waiting.set(&second, 0);
        assert_eq!(waiting.total, 0);
        assert!(waiting.by_tree.is_empty());
    }
}
