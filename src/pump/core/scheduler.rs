//! Queues of calls that wait for delivery, and the choice of the next call. If calls to a listener
//! wait in several threads, these threads take turns (round-robin).

use std::collections::{HashSet, VecDeque};

use super::absent_listeners::{AbsentListeners, Admission};
use crate::clock::Time;
use crate::contract::Contract;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::thread::Map;

/// Number of lost turns that a ring may keep without regard to its length.
const LOST_TURNS_KEPT: usize = 16;

/// The queues of all listeners. Rebuilt after every boot, never recorded.
///
/// **Invariant:** a call is in at most one queue, and `waiting` contains exactly the queued calls.
///
/// **Invariant:** a listener never has more deliveries in flight than its `concurrency`. This
/// number includes orphaned deliveries, whose call is already closed.
///
/// **Invariant:** at most one call of an agent occupies a given thread at a time. The call leaves
/// the thread when the call is closed and none of its deliveries is in progress any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Scheduler {
    queues: Map<ListenerName, ListenerQueue>,
    waiting: HashSet<CallId, foldhash::fast::RandomState>,
    pub absences: AbsentListeners,
    /// Listeners that may be able to take a call now. A listener is added when, for example, one of
    /// its deliveries ends.
    runnable: VecDeque<ListenerName>,
}

/// Whether a call to the listener with this contract occupies its thread. While a call occupies its
/// thread, no other call of the thread is delivered to the listener. A call occupies its thread:
/// - At an agent, until the call is closed and none of its deliveries is in progress.
/// - At any other listener with `serial_per_thread`, during a delivery and the wait for a retry.
fn takes_thread(contract: &Contract) -> bool {
    contract.serial_per_thread || contract.is_serial()
}

#[derive(Debug, Clone, Default)]
struct ListenerQueue {
    running: u32,
    waiting: usize,
    threads: Map<ThreadId, ThreadQueue>,
    /// Turns of the threads with a call to deliver, in round-robin order. A thread that loses its
    /// turn leaves an entry behind that is skipped later: a search for the entry would make a
    /// cancellation of many calls quadratic.
    ring: VecDeque<RingEntry>,
    /// Number of the latest turn.
    latest_turn: u64,
}

/// An entry of the ring. It is valid only while its thread has the turn with this number.
#[derive(Debug, Clone)]
struct RingEntry {
    thread: ThreadId,
    number: u64,
}

/// Calls from one thread to one listener.
#[derive(Debug, Clone, Default)]
struct ThreadQueue {
    /// Queued calls: first the calls that were put back, then all others in the order of their
    /// arrival.
    ready: VecDeque<CallId>,
    /// The call that occupies the thread, or `None` if the thread is free. While a call occupies
    /// the thread, no other call of the thread is delivered. A closed call occupies the thread as
    /// long as one of its deliveries is in progress.
    current: Option<CallId>,
    /// Number of the thread's entry in the ring, or `None` if the thread has no turn.
    turn: Option<u64>,
}

impl ThreadQueue {
    /// Returns the call of this thread that may be delivered next. Returns `None` if no call of
    /// this thread may be delivered.
    fn next(&self) -> Option<CallId> {
        match self.current {
            Some(current) => self.ready.iter().copied().find(|call| *call == current),
            None => self.ready.front().copied(),
        }
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.current.is_none()
    }
}

impl ListenerQueue {
    /// Brings the entries of `thread` up to date. If the thread has a call to deliver, gives it a
    /// turn. If the thread has no queued call and no call occupies it, removes the thread.
    fn refresh(&mut self, thread: &ThreadId) {
        let Some(own) = self.threads.get_mut(thread) else { return };
        if own.is_idle() {
            self.threads.remove(thread);
            self.drop_lost_turns();
        } else if own.turn.is_none() && own.next().is_some() {
            self.latest_turn += 1;
            own.turn = Some(self.latest_turn);
            self.ring.push_back(RingEntry { thread: thread.clone(), number: self.latest_turn });
        }
    }

    /// Puts `call` in front of all queued calls.
    fn push_front(&mut self, thread: &ThreadId, call: CallId) {
        self.latest_turn += 1;
        let own = self.threads.entry(thread.clone()).or_default();
        own.ready.push_front(call);
        own.turn = Some(self.latest_turn);
        self.ring.push_front(RingEntry { thread: thread.clone(), number: self.latest_turn });
        self.drop_lost_turns();
    }

    /// Removes the entries of lost turns once they are more than half of the ring, so that each
    /// costs constant time.
    fn drop_lost_turns(&mut self) {
        if self.ring.len() > 2 * self.threads.len() + LOST_TURNS_KEPT {
            let threads = &self.threads;
            self.ring.retain(|turn| has_turn(threads, turn));
        }
    }

    /// Returns the threads with a call to deliver, in round-robin order.
    fn turns(&self) -> impl Iterator<Item = (&ThreadId, &ThreadQueue)> {
        self.ring.iter().filter_map(|turn| {
            let own = self.threads.get(&turn.thread)?;
            (own.turn == Some(turn.number)).then_some((&turn.thread, own))
        })
    }
}

/// Whether this is the present turn of its thread.
fn has_turn(threads: &Map<ThreadId, ThreadQueue>, turn: &RingEntry) -> bool {
    threads.get(&turn.thread).is_some_and(|own| own.turn == Some(turn.number))
}

impl Scheduler {
    /// Returns the number of queued calls.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of calls queued for `listener`.
    pub fn backlog(&self, listener: &ListenerName) -> usize {
        self.queues.get(listener).map_or(0, |queue| queue.waiting)
    }

    /// Queues a call that has messages to deliver.
    pub fn enqueue(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        if !self.waiting.insert(call) {
            return;
        }

        let queue = self.queues.entry(listener.clone()).or_default();
        queue.waiting += 1;
        queue.threads.entry(thread.clone()).or_default().ready.push_back(call);
        queue.refresh(thread);
        self.mark_runnable(listener);
    }

    /// Queues a call in front of all other calls of its listener.
    pub fn put_back(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        if !self.waiting.insert(call) {
            return;
        }

        let queue = self.queues.entry(listener.clone()).or_default();
        queue.waiting += 1;
        queue.push_front(thread, call);
    }

    pub fn is_waiting(&self, call: CallId) -> bool {
        self.waiting.contains(&call)
    }

    /// Returns the calls queued for this listener.
    pub fn waiting_for(&self, listener: &ListenerName) -> Vec<CallId> {
        let threads =
            self.queues.get(listener).into_iter().flat_map(|queue| queue.threads.values());
        let mut waiting: Vec<_> = threads.flat_map(|own| own.ready.iter().copied()).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Returns the call that [`Scheduler::take`] would take next, but leaves the call in its queue.
    /// Returns `None` if there is no such call.
    pub fn next(
        &self,
        contract: &Contract,
        now: Time,
        is_skipped: impl Fn(&ThreadId) -> bool,
    ) -> Option<CallId> {
        let queue = self.queues.get(&contract.name)?;
        let is_full = queue.running >= contract.concurrency;
        if is_full || self.absences.admission(&contract.name, now) == Admission::Nothing {
            return None;
        }
        let mut turns = queue.turns().filter(|(thread, _)| !is_skipped(thread));
        turns.find_map(|(_, own)| own.next())
    }

    /// Returns the number of queued calls that the next dispatch can deliver to their listener.
    /// This number is at most the free capacity of the listener. Leaves out threads for which
    /// `is_skipped` returns true. Returns 0 while the listener is absent.
    pub fn deliverable(
        &self,
        contract: &Contract,
        now: Time,
        is_skipped: impl Fn(&ThreadId) -> bool,
    ) -> usize {
        let Some(queue) = self.queues.get(&contract.name) else { return 0 };
        if self.absences.admission(&contract.name, now) != Admission::Any {
            return 0;
        }

        let free = contract.concurrency.saturating_sub(queue.running);
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        if free == 0 {
            return 0;
        }

        let mut found = 0;
        for (_, own) in queue.turns().filter(|(thread, _)| !is_skipped(thread)) {
            if found >= free {
                break;
            }

            if own.next().is_some() {
                found += if takes_thread(contract) { 1 } else { own.ready.len() };
            }
        }

        found.min(free)
    }

    pub fn mark_runnable(&mut self, listener: &ListenerName) {
        if !self.runnable.contains(listener) {
            self.runnable.push_back(listener.clone());
        }
    }

    pub fn pop_runnable(&mut self) -> Option<ListenerName> {
        self.runnable.pop_front()
    }

    /// Removes and returns the next call of a listener. Returns `None` if the listener has no free
    /// capacity or no call that may be delivered. The listener's threads are served round-robin.
    /// Threads for which `is_skipped` returns true are skipped, and keep their order.
    pub fn take(
        &mut self,
        contract: &Contract,
        now: Time,
        is_skipped: impl Fn(&ThreadId) -> bool,
    ) -> Option<(CallId, Admission)> {
        let admission = self.absences.admission(&contract.name, now);
        if admission == Admission::Nothing {
            return None;
        }

        let queue = self.queues.get_mut(&contract.name)?;

        let mut left = queue.ring.len();
        while queue.running < contract.concurrency && left > 0 {
            left -= 1;
            let turn = queue.ring.pop_front()?;
            let own = queue.threads.get_mut(&turn.thread);
            let Some(own) = own.filter(|own| own.turn == Some(turn.number)) else { continue };
            if is_skipped(&turn.thread) {
                queue.ring.push_back(turn);
                continue;
            }

            own.turn = None;
            let Some(call) = own.next() else { continue };
            if own.ready.front() == Some(&call) {
                own.ready.pop_front();
            } else {
                own.ready.retain(|ready| *ready != call);
            }
            if takes_thread(contract) {
                own.current = Some(call);
            }
            queue.waiting = queue.waiting.saturating_sub(1);
            queue.refresh(&turn.thread);
            self.waiting.remove(&call);
            return Some((call, admission));
        }

        None
    }

    /// Counts a started delivery against the listener's capacity.
    pub fn start(&mut self, listener: &ListenerName) {
        self.queues.entry(listener.clone()).or_default().running += 1;
    }

    /// Whether the listener may get one more delivery.
    pub fn has_capacity(&self, contract: &Contract) -> bool {
        let running = self.queues.get(&contract.name).map_or(0, |queue| queue.running);
        running < contract.concurrency
    }

    /// Frees the capacity of an ended delivery whose call is still open. Also frees the thread of
    /// the call, except at an agent, where an open call keeps its thread.
    pub fn end_attempt(
        &mut self,
        listener: &ListenerName,
        thread: &ThreadId,
        call: CallId,
        contract: &Contract,
    ) {
        self.release_capacity(listener);
        // At a serial listener, an open call keeps its thread until it is closed.
        if contract.serial_per_thread && !contract.is_serial() {
            self.free_thread(listener, thread, call);
        }
    }

    /// Frees the capacity and the thread of an ended delivery whose call was already closed.
    pub fn end_orphan(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        self.release_capacity(listener);
        self.free_thread(listener, thread, call);
    }

    /// Frees the capacity of one delivery. Marks the listener as one that may take another call.
    pub fn release_capacity(&mut self, listener: &ListenerName) {
        if let Some(queue) = self.queues.get_mut(listener) {
            queue.running = queue.running.saturating_sub(1);
        }
        self.mark_runnable(listener);
    }

    fn free_thread(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        let Some(queue) = self.queues.get_mut(listener) else { return };
        if let Some(own) = queue.threads.get_mut(thread)
            && own.current == Some(call)
        {
            own.current = None;
        }

        queue.refresh(thread);
        self.mark_runnable(listener);
    }

    /// Removes a call from the queues, because it is closed or must not be delivered now. If no
    /// delivery of the call is in progress any more (`is_running` is false), also frees the thread
    /// that the call occupied.
    pub fn close(
        &mut self,
        call: CallId,
        listener: &ListenerName,
        thread: &ThreadId,
        is_running: bool,
    ) {
        self.absences.close(listener, call);
        if self.waiting.remove(&call)
            && let Some(queue) = self.queues.get_mut(listener)
        {
            queue.waiting = queue.waiting.saturating_sub(1);
            if let Some(own) = queue.threads.get_mut(thread) {
                own.ready.retain(|ready| *ready != call);
            }
        }

        // A serial listener's thread stays occupied while the handler of the closed call still
        // works.
        if !is_running || mutant("free-the-thread-early") {
            self.free_thread(listener, thread, call);
        }
    }

    /// Returns the call that occupies `thread` at `listener`, so that no other call of the thread
    /// is delivered there. Returns `None` if the thread is free.
    pub fn holder(&self, listener: &ListenerName, thread: &ThreadId) -> Option<CallId> {
        self.queues.get(listener)?.threads.get(thread)?.current
    }

    /// Marks the thread of a call as occupied by this call. Used where the call keeps the thread
    /// without a new delivery: after a restart, or while the call waits for a retry.
    pub fn hold_thread(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        let queue = self.queues.entry(listener.clone()).or_default();
        queue.threads.entry(thread.clone()).or_default().current = Some(call);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::contract::Role;
    use crate::ids::MessageId;

    const NOW: Time = Time(0);

    fn call(n: u128) -> CallId {
        CallId(MessageId(Uuid::from_u128(n)))
    }

    fn thread(label: &str) -> ThreadId {
        ThreadId::parse("sess-aaaaaaaa").unwrap().child(label)
    }

    fn contract(concurrency: u32) -> Contract {
        let mut contract = Contract::new(ListenerName::parse("finder").unwrap(), Role::Listener);
        contract.concurrency = concurrency;
        contract
    }

    /// Takes the next call of a listener and counts its delivery as started.
    fn take(scheduler: &mut Scheduler, contract: &Contract) -> Option<CallId> {
        let (call, _) = scheduler.take(contract, NOW, |_| false)?;
        scheduler.start(&contract.name);
        Some(call)
    }

    #[test]
    fn threads_take_turns_however_many_calls_one_of_them_has() {
        let mut scheduler = Scheduler::default();
        let finder = contract(10);
        for n in [1, 2, 3] {
            scheduler.enqueue(&finder.name, &thread("busy"), call(n));
        }

        scheduler.enqueue(&finder.name, &thread("other"), call(9));
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut scheduler, &finder)).collect();
        assert_eq!(taken, [call(1), call(9), call(2), call(3)]);
        assert_eq!(scheduler.waiting(), 0);
    }

    #[test]
    fn a_listener_has_room_again_only_when_its_handler_has_ended() {
        let mut scheduler = Scheduler::default();
        let finder = contract(1);
        let own = thread("own");
        scheduler.enqueue(&finder.name, &own, call(1));
        scheduler.enqueue(&finder.name, &own, call(2));
        assert_eq!(take(&mut scheduler, &finder), Some(call(1)));

        scheduler.close(call(1), &finder.name, &own, true);
        assert_eq!(take(&mut scheduler, &finder), None, "the handler of a closed call still works");

        scheduler.end_orphan(&finder.name, &own, call(1));
        assert_eq!(take(&mut scheduler, &finder), Some(call(2)));
    }

    #[test]
    fn a_thread_of_a_serial_listener_belongs_to_one_call_until_its_handler_has_ended() {
        let mut scheduler = Scheduler::default();
        let mut finder = contract(10);
        finder.serial_per_thread = true;
        let own = thread("own");
        scheduler.enqueue(&finder.name, &own, call(1));
        scheduler.enqueue(&finder.name, &own, call(2));
        assert_eq!(take(&mut scheduler, &finder), Some(call(1)));
        assert_eq!(take(&mut scheduler, &finder), None);
        assert_eq!(scheduler.holder(&finder.name, &own), Some(call(1)));

        scheduler.end_attempt(&finder.name, &own, call(1), &finder);
        assert_eq!(take(&mut scheduler, &finder), Some(call(2)));
    }

    #[test]
    fn a_closed_call_leaves_its_queue() {
        let mut scheduler = Scheduler::default();
        let finder = contract(10);
        let own = thread("own");
        scheduler.enqueue(&finder.name, &own, call(1));
        scheduler.enqueue(&finder.name, &own, call(1));
        assert_eq!(scheduler.backlog(&finder.name), 1, "a call stands in one queue, once");

        scheduler.close(call(1), &finder.name, &own, false);
        assert!(!scheduler.is_waiting(call(1)));
        assert_eq!(scheduler.backlog(&finder.name), 0);
        assert_eq!(take(&mut scheduler, &finder), None);
    }

    #[test]
    fn threads_that_lose_their_turns_keep_the_order_of_the_others_and_leave_a_short_ring() {
        let mut scheduler = Scheduler::default();
        let finder = contract(1_000);
        let place = |n: u128| thread(&format!("t{n}"));
        for n in 0..100 {
            scheduler.enqueue(&finder.name, &place(n), call(n));
        }
        for n in (0..100).rev().filter(|n| n % 10 != 0) {
            scheduler.close(call(n), &finder.name, &place(n), false);
        }
        // A thread that comes back has the last turn.
        scheduler.close(call(0), &finder.name, &place(0), false);
        scheduler.enqueue(&finder.name, &place(0), call(200));

        let ring = scheduler.queues.get(&finder.name).map_or(0, |queue| queue.ring.len());
        assert!(ring <= 2 * 10 + LOST_TURNS_KEPT, "{ring} entries for 10 threads");
        assert_eq!(scheduler.next(&finder, NOW, |_| false), Some(call(10)));
        assert_eq!(scheduler.deliverable(&finder, NOW, |_| false), 10);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut scheduler, &finder)).collect();
        let rest = (1..10).map(|n| call(10 * n));
        assert_eq!(taken, rest.chain([call(200)]).collect::<Vec<_>>());
    }

    #[test]
    fn queued_calls_that_free_capacity_takes_are_deliverable() {
        let mut scheduler = Scheduler::default();
        let own = thread("own");
        let other = thread("other");
        for (n, place) in [(1, &own), (2, &own), (3, &own), (4, &other)] {
            scheduler.enqueue(&contract(3).name, place, call(n));
        }

        let deliverable = |scheduler: &Scheduler, contract: &Contract| {
            scheduler.deliverable(contract, NOW, |_| false)
        };
        assert_eq!(deliverable(&scheduler, &contract(3)), 3);
        assert_eq!(deliverable(&scheduler, &contract(10)), 4);
        assert_eq!(scheduler.deliverable(&contract(10), NOW, |place| *place == own), 1);

        let mut serial = contract(10);
        serial.serial_per_thread = true;
        assert_eq!(deliverable(&scheduler, &serial), 2, "one for each thread");

        scheduler.start(&contract(3).name);
        assert_eq!(deliverable(&scheduler, &contract(3)), 2);
    }

    #[test]
    fn a_call_that_is_put_back_is_the_next_one() {
        let mut scheduler = Scheduler::default();
        let finder = contract(10);
        for (n, label) in [(1, "one"), (2, "two")] {
            scheduler.enqueue(&finder.name, &thread(label), call(n));
        }

        let first = take(&mut scheduler, &finder);
        scheduler.end_attempt(&finder.name, &thread("one"), call(1), &finder);
        scheduler.put_back(&finder.name, &thread("one"), call(1));
        assert_eq!(take(&mut scheduler, &finder), first);
    }
}
