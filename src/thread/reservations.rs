//! Reservations of tokens and money for the running model calls of a thread tree, and the sums of
//! these reservations. Each model request is checked against the sums only, so the check takes no
//! longer if many model calls are running.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use super::state::{ByListener, Tree};
use crate::envelope::{Money, Spending};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};

/// The tokens and money that are reserved for a running model call, whose actual cost is not yet
/// known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReservation {
    #[serde(rename = "call")]
    pub call: CallId,
    #[serde(rename = "attempt")]
    pub attempt: Attempt,
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    #[serde(rename = "spending")]
    pub spending: Spending,
    /// Ordinal number of the model call's latest request within its attempt.
    #[serde(rename = "request")]
    pub request: u32,
    /// Thread of the call. `None` in states of core versions before 69 if neither this thread nor a
    /// thread above it had an allotment.
    #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
}

impl ModelReservation {
    fn is_in(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref().is_some_and(|own| own.is_within(thread))
    }
}

/// The reservations of a tree, one for each attempt.
///
/// **Invariant:** `total` is the sum of the reservations in `attempts`. `by_agent` has the sum of
/// each agent's reservations. `by_thread` has two values for each thread: the number of attempts in
/// the thread and its subthreads, and the sum of the reservations of these attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<ModelReservation>", into = "Vec<ModelReservation>")]
pub struct TreeReservations {
    attempts: BTreeMap<(CallId, Attempt), ModelReservation>,
    total: ReservedSum,
    by_agent: ByListener<ReservedSum>,
    by_thread: BTreeMap<ThreadId, (usize, ReservedSum)>,
}

/// A sum of reservations. Its integers are wider than those of one reservation, so the sum never
/// saturates, and each added amount can be subtracted again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ReservedSum {
    tokens: u128,
    money: u128,
}

impl ReservedSum {
    fn add(&mut self, spending: Spending) {
        self.tokens += u128::from(spending.tokens);
        self.money += u128::from(spending.money.0);
    }

    fn subtract(&mut self, spending: Spending) {
        self.tokens -= u128::from(spending.tokens);
        self.money -= u128::from(spending.money.0);
    }

    fn spending(self) -> Spending {
        let narrow = |sum| u64::try_from(sum).unwrap_or(u64::MAX);
        Spending { tokens: narrow(self.tokens), money: Money(narrow(self.money)) }
    }
}

impl From<Vec<ModelReservation>> for TreeReservations {
    fn from(reservations: Vec<ModelReservation>) -> Self {
        let mut reserved = Self::default();
        reservations.into_iter().for_each(|reservation| reserved.insert(reservation));
        reserved
    }
}

impl From<TreeReservations> for Vec<ModelReservation> {
    fn from(reserved: TreeReservations) -> Self {
        reserved.attempts.into_values().collect()
    }
}

impl TreeReservations {
    fn insert(&mut self, reserved: ModelReservation) {
        self.total.add(reserved.spending);
        self.by_agent.of(&reserved.agent).add(reserved.spending);
        for thread in reserved.thread.iter().flat_map(ThreadId::upwards) {
            let (count, sum) = self.by_thread.entry(thread).or_default();
            *count += 1;
            sum.add(reserved.spending);
        }
        let replaced = self.attempts.insert((reserved.call, reserved.attempt), reserved);
        debug_assert!(replaced.is_none(), "{replaced:?} was not released");
    }

    fn remove(&mut self, call: CallId, attempt: Attempt) -> Option<ModelReservation> {
        let removed = self.attempts.remove(&(call, attempt))?;
        self.total.subtract(removed.spending);
        self.by_agent.of(&removed.agent).subtract(removed.spending);
        for thread in removed.thread.iter().flat_map(ThreadId::upwards) {
            if let Entry::Occupied(mut entry) = self.by_thread.entry(thread) {
                let (count, sum) = entry.get_mut();
                *count -= 1;
                sum.subtract(removed.spending);
                if *count == 0 {
                    entry.remove();
                }
            }
        }
        Some(removed)
    }

    /// Returns two sums of reservations: the sum for the whole tree, and the sum for `agent`.
    /// Neither sum contains the reservation of the attempt `own`.
    fn sums_beside(&self, own: (CallId, Attempt), agent: &ListenerName) -> (Spending, Spending) {
        let mut of_all = self.total;
        let mut of_agent = self.by_agent.get(agent).copied().unwrap_or_default();
        if let Some(own) = self.attempts.get(&own) {
            of_all.subtract(own.spending);
            if own.agent == *agent {
                of_agent.subtract(own.spending);
            }
        }
        (of_all.spending(), of_agent.spending())
    }

    /// Returns the number of attempts with a reservation. Leaves out the attempt `own`.
    fn count_beside(&self, own: (CallId, Attempt)) -> usize {
        self.attempts.len() - usize::from(self.attempts.contains_key(&own))
    }

    /// Returns the sum of the reservations in `thread` and its subthreads, without the reservation
    /// of the attempt `own`.
    fn sum_in_beside(&self, own: (CallId, Attempt), thread: &ThreadId) -> Spending {
        let mut sum = self.by_thread.get(thread).map(|(_, sum)| *sum).unwrap_or_default();
        if let Some(own) = self.attempts.get(&own).filter(|own| own.is_in(thread)) {
            sum.subtract(own.spending);
        }
        sum.spending()
    }

    /// Computes the same sum as [`TreeReservations::sum_in_beside`], but by adding up all
    /// reservations. Debug builds compare the two results.
    fn recounted_in_beside(&self, own: (CallId, Attempt), thread: &ThreadId) -> Spending {
        let others = self.attempts.iter().filter(|(attempt, _)| **attempt != own);
        let within = others.filter(|(_, other)| other.is_in(thread));
        within.fold(Spending::default(), |sum, (_, other)| sum.plus(other.spending))
    }

    /// Computes the same sums as [`TreeReservations::sums_beside`], but by adding up all
    /// reservations. Debug builds compare the two results.
    fn recounted_beside(
        &self,
        own: (CallId, Attempt),
        agent: &ListenerName,
    ) -> (Spending, Spending) {
        let others = self.attempts.iter().filter(|(attempt, _)| **attempt != own);
        let sum = |sum: Spending, other: &ModelReservation| sum.plus(other.spending);
        others.fold(Default::default(), |(of_all, of_agent), (_, other)| {
            let is_agents = other.agent == *agent;
            (sum(of_all, other), if is_agents { sum(of_agent, other) } else { of_agent })
        })
    }
}

impl Tree {
    /// Returns the reservation for the running model call of an attempt; `None` if the attempt has
    /// no reservation.
    pub fn reservation(&self, call: CallId, attempt: Attempt) -> Option<&ModelReservation> {
        self.reserved.as_ref()?.attempts.get(&(call, attempt))
    }

    /// Returns all reservations of the tree, ordered by call and attempt.
    pub fn reservations(&self) -> impl Iterator<Item = &ModelReservation> {
        self.reserved.iter().flat_map(|reserved| reserved.attempts.values())
    }

    /// Returns the number of running model calls of the tree. Leaves out the model call of the
    /// attempt `attempt` of `call`.
    pub fn model_calls_beside(&self, call: CallId, attempt: Attempt) -> u64 {
        let own = (call, attempt);
        self.reserved.as_ref().map_or(0, |reserved| reserved.count_beside(own) as u64)
    }

    /// Returns two sums of reservations in the tree: the sum for all agents, and the sum for
    /// `agent`. Neither sum contains the reservation of the attempt `attempt` of `call`.
    pub fn reserved_beside(
        &self,
        call: CallId,
        attempt: Attempt,
        agent: &ListenerName,
    ) -> (Spending, Spending) {
        let Some(reserved) = &self.reserved else { return Default::default() };
        let own = (call, attempt);
        let sums = reserved.sums_beside(own, agent);
        debug_assert_eq!(sums, reserved.recounted_beside(own, agent), "sums of reservations");
        sums
    }

    /// Returns the sum of the reservations in `thread` and its subthreads, without the reservation
    /// of the attempt `attempt` of `call`. A reservation without a thread does not count.
    pub fn reserved_in_beside(
        &self,
        call: CallId,
        attempt: Attempt,
        thread: &ThreadId,
    ) -> Spending {
        let Some(reserved) = &self.reserved else { return Spending::default() };
        let own = (call, attempt);
        let sum = reserved.sum_in_beside(own, thread);
        debug_assert_eq!(sum, reserved.recounted_in_beside(own, thread), "reserved in {thread}");
        sum
    }

    /// Records a reservation, which replaces an earlier reservation of the same attempt.
    pub(super) fn reserve(&mut self, reserved: ModelReservation) {
        self.release_reservation(reserved.call, reserved.attempt);
        self.reserved.get_or_insert_default().insert(reserved);
    }

    pub(super) fn release_reservation(
        &mut self,
        call: CallId,
        attempt: Attempt,
    ) -> Option<ModelReservation> {
        let released = self.reserved.as_mut()?.remove(call, attempt);
        // Most trees have no running model call, so an empty table is dropped.
        self.reserved.take_if(|reserved| reserved.attempts.is_empty());
        released
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    fn call(n: u64) -> CallId {
        CallId(MessageId(Uuid::from_u128(u128::from(n))))
    }

    fn agent(n: u64) -> ListenerName {
        ListenerName::parse(["ann", "bob", "cid"][usize::try_from(n % 3).unwrap()]).unwrap()
    }

    /// Chooses one of three threads, or `None`, by a remainder of `n`. The second thread is beneath
    /// the first thread. The third thread is a sibling of the first thread.
    fn thread(n: u64) -> Option<ThreadId> {
        let ids = ["sess-aaaaaaaa.a", "sess-aaaaaaaa.a.b", "sess-aaaaaaaa.c"];
        let id = ids.get(usize::try_from(n % 4).unwrap())?;
        Some(ThreadId::parse(id).unwrap())
    }

    /// Generates small amounts and amounts near the maximum, because tests must cover sums that
    /// saturate.
    fn amount(dice: u64) -> u64 {
        if dice.is_multiple_of(4) { u64::MAX - dice % 7 } else { dice % 1_000 }
    }

    #[test]
    fn the_sums_of_reservations_are_what_a_recount_gives_whatever_came_before() {
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice
        };
        let mut tree = Tree::default();
        for _ in 0..5_000 {
            let n = next() % 8;
            let attempt = Attempt { epoch: 1, n: 1 + u32::try_from(next() % 2).unwrap() };
            if next() % 2 == 0 {
                tree.release_reservation(call(n), attempt);
            } else {
                let spending = Spending { tokens: amount(next()), money: Money(amount(next())) };
                let reserved = ModelReservation {
                    call: call(n),
                    attempt,
                    agent: agent(n),
                    spending,
                    request: 1,
                    thread: thread(next()),
                };
                tree.reserve(reserved);
            }

            let Some(reserved) = &tree.reserved else { continue };
            for own in 0..9 {
                let own = (call(own), attempt);
                let agent = agent(next());
                let sums = reserved.sums_beside(own, &agent);
                assert_eq!(sums, reserved.recounted_beside(own, &agent));
                for thread in (0..4).filter_map(thread) {
                    let sum = reserved.sum_in_beside(own, &thread);
                    assert_eq!(sum, reserved.recounted_in_beside(own, &thread));
                }
            }
        }
    }

    #[test]
    fn a_tree_without_reservations_keeps_no_room_for_them() {
        let mut tree = Tree::default();
        let attempt = Attempt { epoch: 1, n: 1 };
        let spending = Spending { tokens: 7, money: Money(5) };
        let reserved = ModelReservation {
            call: call(1),
            attempt,
            agent: agent(1),
            spending,
            request: 1,
            thread: thread(1),
        };
        tree.reserve(reserved.clone());
        tree.reserve(reserved.clone());
        assert_eq!(tree.reserved_beside(call(2), attempt, &agent(1)), (spending, spending));
        assert_eq!(tree.release_reservation(call(1), attempt), Some(reserved));
        assert_eq!(tree, Tree::default());
    }
}
