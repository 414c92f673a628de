//! Attempts in flight for open calls, and deliveries still in progress after their call closed.

use std::sync::Arc;

use super::orphans::OrphanedDelivery;
use super::outcome::AttemptSource;
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::Contract;
use crate::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::thread::{Input, Map};

/// Attempts in flight, and deliveries that are still in progress after their call closed. Rebuilt
/// after every boot from the recorded deliveries.
///
/// **Invariant:** a call has at most one attempt in flight.
///
/// **Invariant:** a delivery is either in flight for an open call or orphaned, and ends once.
///
/// **Invariant:** attempt numbers of an open call only increase.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTable {
    running: Map<CallId, RunningAttempt>,
    orphans: Map<(CallId, Attempt), OrphanedDelivery>,
    /// For each open call, the number of its last attempt since this start of the pump.
    attempts: Map<CallId, u32>,
    /// For each open call with an attempt that failed since this start of the pump, the time of
    /// the next retry. A time in the past stays here until the next failure of the call.
    retries: Map<CallId, Time>,
}

/// A delivery on which a listener works and whose call is open.
#[derive(Debug, Clone)]
pub(super) struct RunningAttempt {
    pub attempt: Attempt,
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub delivered: Vec<MessageId>,
    /// Contract of the listener at the hand-over. A reload does not change it.
    pub contract: Arc<Contract>,
    /// Reason that an operator gave when requesting the cancellation of the attempt; `None` without
    /// such a request.
    pub stop_reason: Option<String>,
    /// Calls to the same listener in the same thread that were queued since the hand-over. The
    /// listener cannot know them before its next delivery.
    pub later_calls: Vec<CallId>,
    /// Number of reservations that the attempt has made.
    pub reservations: u32,
}

impl CallTable {
    /// Returns the number of deliveries in flight, whether their calls are open or closed.
    pub fn handed_over(&self) -> usize {
        self.running.len() + self.orphans.len()
    }

    /// Returns all deliveries in flight, whether their calls are open or closed.
    pub fn handed_over_deliveries(&self) -> impl Iterator<Item = (CallId, Attempt, &ListenerName)> {
        let running = self.running.iter();
        let running = running.map(|(call, running)| (*call, running.attempt, &running.listener));
        let orphans = self.orphans.iter();
        running.chain(orphans.map(|((call, attempt), orphan)| (*call, *attempt, &orphan.listener)))
    }

    /// Returns the number of deliveries in flight whose calls are open.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    pub fn running(&self, call: CallId) -> Option<&RunningAttempt> {
        self.running.get(&call)
    }

    pub fn next_attempt(&mut self, epoch: u32, call: CallId) -> Attempt {
        let n = self.attempts.entry(call).or_default();
        if !mutant("reuse-the-attempt") {
            *n += 1;
        }
        Attempt { epoch, n: *n }
    }

    pub fn start(&mut self, call: CallId, running: RunningAttempt) {
        self.running.insert(call, running);
    }

    /// Sets the time before which a call is not delivered again after a failed attempt.
    pub fn delay_retry(&mut self, call: CallId, until: Time) {
        self.retries.insert(call, until);
    }

    /// Whether the retry of a call is due later than `now`. If so, the alarm of the retry will
    /// queue the call.
    pub fn awaits_retry(&self, call: CallId, now: Time) -> bool {
        self.retries.get(&call).is_some_and(|until| *until > now)
    }

    /// Requests the cancellation of a call's attempt that is in flight. The caller of the call gets
    /// `reason`.
    pub fn request_stop(&mut self, call: CallId, reason: &str) {
        if let Some(running) = self.running.get_mut(&call) {
            running.stop_reason = Some(reason.to_owned());
        }
    }

    /// Notes that the call `later` was queued during the attempt of `call`, for the same agent and
    /// in the same thread. Does nothing if no attempt of `call` is in flight, or if the listener is
    /// no agent: its thread is free while it waits, so a later call does not end its wait.
    pub fn note_later_call(&mut self, call: CallId, later: CallId) {
        let running = self.running.get_mut(&call);
        if let Some(running) = running.filter(|running| running.contract.is_serial()) {
            running.later_calls.push(later);
        }
    }

    /// Counts a reservation of the call's attempt in flight.
    pub fn count_reservation(&mut self, call: CallId) {
        if let Some(running) = self.running.get_mut(&call) {
            running.reservations += 1;
        }
    }

    /// Ends the current attempt of a call, and returns this attempt. Returns `None` and changes
    /// nothing if `source` names another attempt or another listener.
    fn finish(&mut self, source: &AttemptSource) -> Option<RunningAttempt> {
        let running = self.running.get(&source.call)?;
        let is_current = running.attempt == source.attempt || mutant("trust-any-attempt");
        let is_callee = running.listener == source.listener || mutant("trust-from");
        if !is_current || !is_callee {
            return None;
        }

        let mut running = self.running.remove(&source.call)?;
        running.stop_reason = running.stop_reason.filter(|_| !mutant("retry-the-stopped"));
        Some(running)
    }

    /// Removes a closed call. If a delivery of the call is in flight, keeps it as an orphaned
    /// delivery and returns its attempt. Otherwise returns `None`.
    fn close(&mut self, call: CallId, orphan: OrphanedDelivery) -> Option<Attempt> {
        self.attempts.remove(&call);
        self.retries.remove(&call);
        let running = self.running.remove(&call)?;
        self.orphans.insert((call, running.attempt), orphan);
        Some(running.attempt)
    }

    /// Returns the thread of a delivery in progress whose call is closed. Returns `None` if there
    /// is no such delivery.
    pub fn thread_of_orphan(&self, call: CallId, attempt: Attempt) -> Option<&ThreadId> {
        self.orphans.get(&(call, attempt)).map(|orphan| &orphan.thread)
    }

    /// Ends and returns the delivery that `source` names, if the call of this delivery is already
    /// closed. Returns `None` if there is no such delivery, or if another listener works on it.
    pub(super) fn finish_orphan(&mut self, source: &AttemptSource) -> Option<OrphanedDelivery> {
        let delivery = (source.call, source.attempt);
        self.orphans.get(&delivery).filter(|orphan| orphan.listener == source.listener)?;
        self.orphans.remove(&delivery)
    }
}

/// Methods that change the call table together with other parts of the core.
impl Core {
    /// Whether a call is in flight or queued.
    pub(super) fn is_busy_with(&self, call: CallId) -> bool {
        self.calls.running(call).is_some() || self.scheduler.is_waiting(call)
    }

    /// Ends the current attempt of a call together with its deadline, and returns this attempt.
    /// Returns `None` and changes nothing if `source` names another attempt or another listener.
    /// `contract` is the contract that [`Core::contract_of_call`] returns for the call.
    pub(super) fn end_attempt(
        &mut self,
        source: &AttemptSource,
        contract: &Contract,
    ) -> Option<RunningAttempt> {
        let running = self.calls.finish(source)?;
        self.timeouts.disarm(source.call);
        self.note_removed_call(source.call, &running);
        self.scheduler.end_attempt(&running.listener, &running.thread, source.call, contract);
        if contract.spends() {
            self.budgets.release_turn(&running.thread.root(), source.call);
        }
        Some(running)
    }

    /// Ends the current attempt of an open call, and begins a record with `input`. Returns the
    /// ended attempt, and the contract of its listener. Returns `None` and changes nothing if the
    /// call is closed, or if `source` names another attempt or another listener.
    pub(super) fn record_attempt_end(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        input: Input,
    ) -> Option<(RunningAttempt, Arc<Contract>)> {
        let open = self.state.call(source.call)?;
        let contract = Arc::clone(self.contract_of_call(open)?);
        let running = self.end_attempt(source, &contract)?;
        step.begin_record(running.thread.root(), input);
        Some((running, contract))
    }

    /// Removes a closed call from all parts of the core that know the call. Returns the attempt on
    /// which the call's listener still works, or `None` if there is no such attempt.
    pub(super) fn forget_call(
        &mut self,
        call: CallId,
        orphan: OrphanedDelivery,
    ) -> Option<Attempt> {
        let listener = orphan.listener.clone();
        let thread = orphan.thread.clone();
        let working = self.calls.close(call, orphan);
        self.timeouts.disarm(call);
        self.holds.remove(call);
        self.timed.remove(call);
        self.thread_alarms.remove(call);
        let root = thread.root();
        self.recorded.forget(&root, call);
        self.budgets.release_turn(&root, call);
        self.scheduler.close(call, &listener, &thread, working.is_some());
        working
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::contract::Role;

    fn call() -> CallId {
        CallId(MessageId(Uuid::from_u128(7)))
    }

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    fn thread() -> ThreadId {
        ThreadId::parse("sess-aaaaaaaa").unwrap()
    }

    fn source(listener: &str, attempt: Attempt) -> AttemptSource {
        AttemptSource { listener: name(listener), call: call(), attempt }
    }

    /// Returns a call table with one call, and the call's first attempt, which is in flight.
    fn started() -> (CallTable, Attempt) {
        let mut calls = CallTable::default();
        let attempt = calls.next_attempt(1, call());
        let listener = name("finder");
        let thread = thread();
        let delivered = Vec::new();
        let contract = Arc::new(Contract::new(listener.clone(), Role::Listener));
        let running = RunningAttempt {
            attempt,
            listener,
            thread,
            delivered,
            contract,
            stop_reason: None,
            later_calls: Vec::new(),
            reservations: 0,
        };
        calls.start(call(), running);
        (calls, attempt)
    }

    fn orphan() -> OrphanedDelivery {
        let listener = name("finder");
        let thread = thread();
        let opener = name("desk");
        OrphanedDelivery { listener, thread, opener, opener_call: None, goal: None }
    }

    #[test]
    fn an_attempt_ends_once_and_for_its_own_listener_alone() {
        let (mut calls, attempt) = started();
        let other = calls.next_attempt(1, call());
        assert!(attempt < other);
        assert!(calls.finish(&source("finder", other)).is_none());
        assert!(calls.finish(&source("other", attempt)).is_none());
        assert!(calls.finish(&source("finder", attempt)).is_some());
        assert!(calls.finish(&source("finder", attempt)).is_none());
        assert_eq!(calls.handed_over(), 0);
    }

    #[test]
    fn a_delivery_outlives_its_call_until_its_listener_has_ended() {
        let (mut calls, attempt) = started();
        assert_eq!(calls.close(call(), orphan()), Some(attempt));
        assert!(calls.finish(&source("finder", attempt)).is_none());
        assert_eq!((calls.running_count(), calls.handed_over()), (0, 1));
        assert!(calls.finish_orphan(&source("other", attempt)).is_none());
        assert!(calls.finish_orphan(&source("finder", attempt)).is_some());
        assert_eq!(calls.handed_over(), 0);
    }

    #[test]
    fn a_call_without_an_attempt_leaves_no_orphan() {
        let mut calls = CallTable::default();
        assert_eq!(calls.close(call(), orphan()), None);
        assert_eq!(calls.handed_over(), 0);
    }
}
