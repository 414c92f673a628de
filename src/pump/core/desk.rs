//! The desk: which calls are handed over, which wait their turn, and who is next.
//!
//! Fair between threads: each listener's threads take turns. Nothing here is recorded.

use std::collections::{HashSet, VecDeque};

use super::absent::{Absences, Admission};
use super::outcome::Source;
use crate::clock::Time;
use crate::contract::Contract;
use crate::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::thread::Map;

#[derive(Debug, Clone, Default)]
pub(super) struct Desk {
    queues: Map<ListenerName, Queue>,
    running: Map<CallId, Running>,
    /// Deliveries whose call was closed while a listener still works on them.
    ghosts: Map<(CallId, Attempt), Ghost>,
    /// How often each open call was handed over in this epoch.
    attempts: Map<CallId, u32>,
    waiting: HashSet<CallId, foldhash::fast::RandomState>,
    pub absences: Absences,
    /// Listeners that may have something to take since the last dispatch.
    stirred: VecDeque<ListenerName>,
}

/// A delivery that a listener works on.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub attempt: Attempt,
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub delivered: Vec<MessageId>,
}

/// What a late answer needs to be recorded.
#[derive(Debug, Clone)]
pub(super) struct Ghost {
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub opener: ListenerName,
    pub opener_call: Option<CallId>,
}

/// Agents take one call a thread at a time, whatever their contract says.
fn is_serial(contract: &Contract) -> bool {
    contract.serial_per_thread || contract.is_agent()
}

#[derive(Debug, Clone, Default)]
struct Queue {
    running: u32,
    waiting: usize,
    lines: Map<ThreadId, Line>,
    /// Threads with something to take, in turn.
    ring: VecDeque<ThreadId>,
}

/// One thread's calls to one listener.
#[derive(Debug, Clone, Default)]
struct Line {
    ready: VecDeque<CallId>,
    /// Serial listeners: the call that has the thread, closed or not, until its handler has ended.
    current: Option<CallId>,
    in_ring: bool,
}

impl Line {
    /// The call that may go now.
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

impl Queue {
    fn stir(&mut self, thread: &ThreadId) {
        let Some(line) = self.lines.get_mut(thread) else { return };
        if line.is_idle() {
            if line.in_ring {
                self.ring.retain(|queued| queued != thread);
            }
            self.lines.remove(thread);
        } else if !line.in_ring && line.next().is_some() {
            line.in_ring = true;
            self.ring.push_back(thread.clone());
        }
    }
}

impl Desk {
    pub fn handed_over(&self) -> usize {
        self.running.len() + self.ghosts.len()
    }

    pub fn is_busy_with(&self, call: CallId) -> bool {
        self.running.contains_key(&call) || self.waiting.contains(&call)
    }

    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    pub fn running(&self, call: CallId) -> Option<&Running> {
        self.running.get(&call)
    }

    /// Calls waiting for any listener.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Calls waiting for `listener`.
    pub fn backlog(&self, listener: &ListenerName) -> usize {
        self.queues.get(listener).map_or(0, |queue| queue.waiting)
    }

    /// A call has something to be delivered.
    pub fn enqueue(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        if !self.waiting.insert(call) {
            return;
        }
        let queue = self.queues.entry(listener.clone()).or_default();
        queue.waiting += 1;
        queue.lines.entry(thread.clone()).or_default().ready.push_back(call);
        queue.stir(thread);
        self.stir(listener);
    }

    /// A call goes back to where it was taken from: it is the next of its listener.
    pub fn put_back(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        if !self.waiting.insert(call) {
            return;
        }
        let queue = self.queues.entry(listener.clone()).or_default();
        queue.waiting += 1;
        let line = queue.lines.entry(thread.clone()).or_default();
        line.ready.push_front(call);
        if line.in_ring {
            queue.ring.retain(|queued| queued != thread);
        }
        line.in_ring = true;
        queue.ring.push_front(thread.clone());
    }

    pub fn is_waiting(&self, call: CallId) -> bool {
        self.waiting.contains(&call)
    }

    /// The calls that wait for this listener.
    pub fn waiting_for(&self, listener: &ListenerName) -> Vec<CallId> {
        let lines = self.queues.get(listener).into_iter().flat_map(|queue| queue.lines.values());
        let mut waiting: Vec<_> = lines.flat_map(|line| line.ready.iter().copied()).collect();
        waiting.sort_unstable();
        waiting
    }

    /// The call that [`Desk::take`] would give.
    pub fn next(&self, contract: &Contract, now: Time) -> Option<CallId> {
        let queue = self.queues.get(&contract.name)?;
        let is_full = queue.running >= contract.concurrency;
        if is_full || self.absences.admission(&contract.name, now) == Admission::Nothing {
            return None;
        }
        queue.ring.iter().find_map(|thread| queue.lines.get(thread)?.next())
    }

    pub fn stir(&mut self, listener: &ListenerName) {
        if !self.stirred.contains(listener) {
            self.stirred.push_back(listener.clone());
        }
    }

    pub fn stirred(&mut self) -> Option<ListenerName> {
        self.stirred.pop_front()
    }

    /// Takes the next call for a listener that has room, threads in turn.
    pub fn take(&mut self, contract: &Contract, now: Time) -> Option<(CallId, Admission)> {
        let admission = self.absences.admission(&contract.name, now);
        if admission == Admission::Nothing {
            return None;
        }
        let queue = self.queues.get_mut(&contract.name)?;
        while queue.running < contract.concurrency {
            let thread = queue.ring.pop_front()?;
            let Some(line) = queue.lines.get_mut(&thread) else { continue };
            line.in_ring = false;
            let Some(call) = line.next() else { continue };
            match line.ready.front() == Some(&call) {
                true => drop(line.ready.pop_front()),
                false => line.ready.retain(|ready| *ready != call),
            }
            if is_serial(contract) {
                line.current = Some(call);
            }
            queue.waiting = queue.waiting.saturating_sub(1);
            queue.stir(&thread);
            self.waiting.remove(&call);
            return Some((call, admission));
        }
        None
    }

    pub fn next_attempt(&mut self, epoch: u32, call: CallId) -> Attempt {
        let n = self.attempts.entry(call).or_default();
        if !mutant("reuse-the-attempt") {
            *n += 1;
        }
        Attempt { epoch, n: *n }
    }

    pub fn start(&mut self, call: CallId, running: Running) {
        if let Some(queue) = self.queues.get_mut(&running.listener) {
            queue.running += 1;
        }
        self.running.insert(call, running);
    }

    /// The current attempt of `call` ended. `None` for an attempt that is not the current one.
    pub fn finish(&mut self, source: &Source, contract: &Contract) -> Option<Running> {
        let call = source.call;
        let running = self.running.get(&call)?;
        let is_current = running.attempt == source.attempt || mutant("trust-any-attempt");
        let is_asked = running.listener == source.listener || mutant("trust-from");
        if !is_current || !is_asked {
            return None;
        }
        let running = self.running.remove(&call)?;
        self.leave(&running.listener);
        // An agent keeps the thread until its call is closed.
        if contract.serial_per_thread && !contract.is_agent() {
            self.free_line(&running.listener, &running.thread, call);
        }
        Some(running)
    }

    /// A listener has room for one more.
    fn leave(&mut self, listener: &ListenerName) {
        if let Some(queue) = self.queues.get_mut(listener) {
            queue.running = queue.running.saturating_sub(1);
        }
        self.stir(listener);
    }

    fn free_line(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        let Some(queue) = self.queues.get_mut(listener) else { return };
        if let Some(line) = queue.lines.get_mut(thread)
            && line.current == Some(call)
        {
            line.current = None;
        }
        queue.stir(thread);
        self.stir(listener);
    }

    /// A call is closed. Returns the attempt a listener still works on.
    pub fn close(
        &mut self,
        call: CallId,
        listener: &ListenerName,
        thread: &ThreadId,
        ghost: Ghost,
    ) -> Option<Attempt> {
        self.attempts.remove(&call);
        self.absences.close(listener, call);
        if self.waiting.remove(&call)
            && let Some(queue) = self.queues.get_mut(listener)
        {
            queue.waiting = queue.waiting.saturating_sub(1);
            if let Some(line) = queue.lines.get_mut(thread) {
                line.ready.retain(|ready| *ready != call);
            }
        }
        let Some(running) = self.running.remove(&call) else {
            self.free_line(listener, thread, call);
            return None;
        };
        // The handler still works: a serial listener's thread stays taken until it has ended.
        if mutant("free-the-thread-early") {
            self.free_line(listener, thread, call);
        }
        self.ghosts.insert((call, running.attempt), ghost);
        Some(running.attempt)
    }

    /// A listener is done with a delivery whose call was closed before.
    pub fn lay_to_rest(&mut self, source: &Source) -> Option<Ghost> {
        let delivery = (source.call, source.attempt);
        self.ghosts.get(&delivery).filter(|ghost| ghost.listener == source.listener)?;
        let ghost = self.ghosts.remove(&delivery)?;
        self.leave(&ghost.listener);
        self.free_line(&ghost.listener, &ghost.thread, source.call);
        Some(ghost)
    }

    /// The call that has a thread of a serial listener.
    pub fn holder(&self, listener: &ListenerName, thread: &ThreadId) -> Option<CallId> {
        self.queues.get(listener)?.lines.get(thread)?.current
    }

    /// The call that has its thread already: after a restart, or while it waits to be retried.
    pub fn holds_thread(&mut self, listener: &ListenerName, thread: &ThreadId, call: CallId) {
        let queue = self.queues.entry(listener.clone()).or_default();
        queue.lines.entry(thread.clone()).or_default().current = Some(call);
    }
}
