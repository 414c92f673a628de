//! Decides when the listener of a call gets a delivery, and which messages the delivery contains.

use std::sync::Arc;
use std::time::Duration;

use super::absent_listeners::Admission;
use super::allotments;
use super::call_table::RunningAttempt;
use super::event::{Alarm, Effect, Standstill};
use super::{Core, Step};
use crate::bus::{Delivery, DeliveryPreview};
use crate::clock::Time;
use crate::contract::{Contract, TreeLimits};
use crate::envelope::Disposition;
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::ErrorCode;
use crate::thread::{Call, Fact, Input, State, Tree};
use crate::trace::SpanId;

impl Core {
    /// Queues the call `id` if it is ready, and neither queued nor in flight. If the call must not
    /// continue, for example because a budget is used up, fails the call. Does not queue a call
    /// that waits for a retry, because the alarm of the retry queues it.
    pub(super) fn wake(&mut self, step: &mut Step, id: CallId) {
        let Some(call) = self.state.call(id) else { return };
        if self.is_busy_with(id) || self.outcome_call == Some(id) || self.closing.contains(&id) {
            return;
        }

        // A delivery that an earlier pump started must be settled first.
        if !call.is_ready() || call.handed_over.is_some() {
            return;
        }

        // The alarm of the retry queues the call. A result that arrives meanwhile waits for it.
        if call.failures > 0 && self.calls.awaits_retry(id, step.time) {
            return;
        }

        let listener = call.callee.clone();
        let thread = call.thread.clone();
        // The alarm of the thread ends the call.
        if self.is_time_over(&thread, step.time) {
            return;
        }

        if self.lacks_its_previews(call) {
            return self.fail_without_previews(step, id);
        }

        if let Some(spent) = self.spent_for_agent(step, &listener, &thread) {
            // Undelivered results end alike, whether this or the deadline of the tree ends the call.
            let is_over = self.is_tree_time_over(&thread, step.time);
            let undelivered = if is_over { Disposition::Expired } else { Disposition::Late };
            return self.fail_with(step, id, ErrorCode::BudgetSpent, &spent, undelivered);
        }

        if self.bound_rounds(step, id) {
            return;
        }

        self.enqueue(step, &listener, &thread, id);
    }

    /// Starts all deliveries that may start, and records each start. If the time limit of a call's
    /// thread or tree has passed, the call stays in its queue. The alarm of this limit ends it.
    /// During a drain, starts nothing: the queued calls stay open in the journal, and continue at
    /// the next start of the organism.
    pub(super) fn dispatch(&mut self, step: &mut Step) {
        if self.draining {
            return;
        }

        self.dispatch_previews(step);
        let contracts = Arc::clone(&self.contracts);
        while let Some(listener) = self.scheduler.pop_runnable() {
            let Some(contract) = contracts.entry(&listener) else { continue };
            // The resume marks each listener runnable again.
            let is_kept = self.state.pauses.covers_listener(&listener);
            if is_kept && !mutant("hand-over-the-paused") {
                continue;
            }
            loop {
                let state = &self.state;
                let limits = &self.budgets.limits;
                let now = step.time;
                let is_skipped =
                    |thread: &ThreadId| is_skipped_thread(state, limits, (thread, &listener), now);
                let taken = self.scheduler.take(contract, now, is_skipped);
                let Some((call, admission)) = taken else { break };
                self.start_delivery(step, contract, call, admission);
            }
        }
    }

    /// Whether calls of `thread` to the listener with this contract must stay in the queue at `now`
    /// (see [`is_skipped_thread`]).
    pub(super) fn is_skipped(&self, contract: &Contract, thread: &ThreadId, now: Time) -> bool {
        is_skipped_thread(&self.state, &self.budgets.limits, (thread, &contract.name), now)
    }

    /// Starts an attempt at a call that the scheduler has taken from the queue of its listener.
    /// Starts nothing if an alarm must handle the call first (see [`Core::alarm_before_delivery`]).
    fn start_delivery(
        &mut self,
        step: &mut Step,
        contract: &Arc<Contract>,
        call: CallId,
        admission: Admission,
    ) {
        let listener = &contract.name;
        let Some(open) = self.state.call(call) else { return };
        if let Some(alarm) = self.alarm_before_delivery(open, step.time) {
            return self.set_aside(step, call, alarm);
        }

        let attempt = self.calls.next_attempt(self.state.epoch, call);
        let fresh = open.pending.iter().map(|p| &p.message);
        let tree = self.state.tree(&open.thread);
        let lineage = tree.and_then(|tree| tree.lineage.as_deref());
        let delivery = Delivery {
            messages: open.handled.iter().chain(fresh).cloned().collect(),
            timeout: contract.timeout,
            preview: self.preview_of_delivery(contract, open),
            source: lineage.map(|lineage| Arc::new(lineage.source.clone())),
            uncounted: open.uncounted_totals().to_vec(),
            ..self.delivery(step, listener, open, attempt)
        };
        let running = RunningAttempt {
            attempt,
            listener: listener.clone(),
            thread: open.thread.clone(),
            delivered: open.pending.iter().map(|p| p.message.id).collect(),
            contract: Arc::clone(contract),
            stop_reason: None,
            later_calls: Vec::new(),
            reservations: 0,
        };

        self.calls.start(call, running);
        self.scheduler.start(listener);
        self.timeouts.arm(call, attempt, step.time.plus(contract.timeout));
        if admission == Admission::OneProbe {
            let at = self.scheduler.absences.start_probe(listener, call, step.time);
            step.effect(Effect::Alarm { at, alarm: Alarm::Probe });
        }
        self.fact(step, Fact::HandedOver { call, attempt });
        step.effect(Effect::Deliver(delivery));
    }

    /// Returns a delivery with those fields that are the same for an attempt and for the request of
    /// a preview. The caller sets the other fields, such as the messages and the time-out.
    pub(super) fn delivery(
        &self,
        step: &Step,
        listener: &ListenerName,
        open: &Call,
        attempt: Attempt,
    ) -> Delivery {
        let tree = self.state.tree(&open.thread);
        let trace = tree.and_then(|tree| tree.trace.as_deref());
        Delivery {
            listener: listener.clone(),
            call: open.id,
            thread: open.thread.clone(),
            attempt,
            messages: Vec::new(),
            fresh: open.pending.len(),
            position: tree.map_or(step.position, |tree| tree.head),
            trace: trace.map(|trace| trace.at(SpanId::of_attempt(open.id, attempt))),
            timeout: Duration::ZERO,
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        }
    }

    /// Handles time that must not count towards deadlines: the pump stood still, or the clock was
    /// set forward. Records the duration, and moves all deadlines to a later time.
    ///
    /// If no call is open, a standstill changes nothing. A clock that was set forward then matters
    /// only if a thread has a time limit, or if client keys expire.
    pub(super) fn standstill(&mut self, step: &mut Step, standstill: Standstill) {
        let is_stepped = !standstill.stepped.is_zero();
        let has_time_at_rest = self.has_thread_time() || self.has_key_time();
        if self.state.calls.is_empty() && !(is_stepped && has_time_at_rest) {
            return;
        }

        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let Standstill { stood, stepped } = standstill;
        let stood_micros = micros(stood);
        let stepped_micros = micros(stepped);
        step.begin_record(ThreadId::organism(), Input::Standstill { stood_micros, stepped_micros });
        self.fact(step, Fact::StoodStill { stood_micros, stepped_micros });
        // Calls whose time seemed to be over before a step of the clock was known may continue.
        for contract in self.contracts.iter() {
            if self.scheduler.absences.admission(&contract.name, step.time) == Admission::Any {
                self.scheduler.mark_runnable(&contract.name);
            }
        }
        // Answers that arrived during the standstill are not read yet, so deadlines get some extra
        // time.
        let grace = if stood.is_zero() { Duration::ZERO } else { limits::STANDSTILL_MIN };
        self.timeouts.extend_all(standstill.all() + grace);
        self.scheduler.absences.extend_all(standstill.all() + grace);
        self.previews.extend_all(standstill.all() + grace);
        self.tree_times.delay(step.time.plus(grace));
        // The alarms of these probes were set for times that are too early now. They have no effect
        // when they fire, so set new alarms.
        let probes = self.scheduler.absences.probes_out().into_iter();
        for at in probes.filter(|_| !mutant("forget-a-probe")) {
            step.effect(Effect::Alarm { at, alarm: Alarm::Probe });
        }
    }

    /// Ends the `wait` of an agent in `thread`, because the call `message` to the agent is queued
    /// in this thread. `wait` is the primitive with which an agent waits for further messages. If
    /// the agent is in a turn, notes the call, so that it ends a `wait` of this turn.
    pub(super) fn end_wait(
        &mut self,
        step: &mut Step,
        (listener, thread): (&ListenerName, &ThreadId),
        message: CallId,
    ) {
        // A waiting agent has taken at least one turn, so its call occupies the thread.
        let Some(call) = self.scheduler.holder(listener, thread) else { return };
        if self.state.call(call).is_some_and(|open| open.waiting.is_some()) {
            self.fact(step, Fact::WaitEnded { call });
            self.wake(step, call);
        } else {
            self.calls.note_later_call(call, message);
        }
    }
}

/// Whether calls of `thread` to `listener` must stay in the queue at `now`. They must if a pause
/// covers them, or if a time limit has passed: the limit of the thread, of a thread above, or of
/// the tree.
fn is_skipped_thread(
    state: &State,
    limits: &TreeLimits,
    (thread, listener): (&ThreadId, &ListenerName),
    now: Time,
) -> bool {
    let is_paused = state.pauses.covers(thread, listener) && !mutant("hand-over-the-paused");
    let is_over = |tree: &Tree| {
        tree.worked(now) >= limits.wall_time || allotments::is_time_over(tree, thread, now)
    };
    // A queue may name a thread whose tree has left memory. No call of such a tree is queued.
    is_paused || state.trees.resident(&thread.root()).is_some_and(is_over)
}
