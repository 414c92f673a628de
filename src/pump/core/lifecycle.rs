//! Life cycle of the organism: boot, arrival and departure of listeners, cancellation, shutdown.

use uuid::Uuid;

use super::allotments::ThreadTimeAlarms;
use super::approvals::ended_by_operator;
use super::call_table::CallTable;
use super::calls_by_client::CallsByClient;
use super::event::{Alarm, BusyCount, Cancellation, Effect, OperatorRuling};
use super::in_flight_limit::WaitingMessages;
use super::previews::Previews;
use super::recorded_events::RecordedEvents;
use super::reload::RemovedListeners;
use super::scheduler::Scheduler;
use super::signatures::SignedDecision;
use super::timeouts::Timeouts;
use super::tree_times::TreeTimes;
use super::{CORE_VERSION, Core, Step};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, Digest, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::{ActionReport, AlertReport, CorePayload};
use crate::thread::{DecisionOrigin, DecisionStatement, Fact, Input, Opener, OperatorAction};

impl Core {
    pub(super) fn boot(
        &mut self,
        step: &mut Step,
        journal: Uuid,
        epoch: u32,
        detail: String,
        blobs: Vec<Digest>,
    ) {
        self.calls = CallTable::default();
        self.scheduler = Scheduler::default();
        self.timeouts = Timeouts::default();
        self.tree_times = TreeTimes::default();
        self.thread_alarms = ThreadTimeAlarms::default();
        self.holds = CallsByClient::default();
        self.timed = CallsByClient::default();
        self.waiting = WaitingMessages::default();
        self.previews = Previews::default();
        self.recorded = RecordedEvents::default();
        self.removed = RemovedListeners::default();
        self.budgets.release_all_turns();
        self.draining = self.drains_from_boot;

        let organism = ThreadId::organism();
        let config = self.config;
        step.set_journal(journal);
        step.begin_record(organism.clone(), Input::Boot { detail: detail.clone() });
        let core_version = CORE_VERSION;
        self.fact(step, Fact::Booted { journal, epoch, config, core_version, blobs });

        if self.state.thread(&organism).is_none() {
            self.open_thread(step, &organism, &ListenerName::core());
        }

        let answer = CorePayload::Boot { epoch, version: detail, core_version, config };
        self.organism_note(step, &answer);
        self.plan_schedules(step);
        self.pick_up(step);
    }

    /// Resumes the work that was open when the previous pump ended. Only covers the trees in
    /// memory. For the other trees, see [`Core::continue_waiting`].
    fn pick_up(&mut self, step: &mut Step) {
        let roots = self.state.roots_in_memory();
        self.pick_up_trees(step, &roots);
        self.look_for_unsettled(step);
        // Answers to attempts of the previous pump are not read yet.
        self.tree_times.delay(step.time.plus(limits::STANDSTILL_MIN));
    }

    /// Resumes the open calls and the timers of the trees with these `roots`.
    pub(super) fn pick_up_trees(&mut self, step: &mut Step, roots: &[ThreadId]) {
        let open = self.state.open_calls_in(roots);
        let mut open: Vec<_> = open.map(|call| (call.thread.clone(), call.id)).collect();
        open.sort_by_key(|(thread, call)| {
            let seq = self.state.call(*call).and_then(|c| c.request()).map_or(0, |m| m.seq);
            (thread.clone(), seq)
        });

        for (thread, id) in &open {
            self.count_hold(*id);
            self.count_timers(*id);
            self.count_turn(*id);
            let Some(call) = self.state.call(*id) else { continue };
            let contract = self.contracts.get(&call.callee);
            // A call that was delivered also occupies its thread until it is settled.
            let is_out = call.handed_over.is_some();
            let holds = contract.is_some_and(|contract| {
                (contract.is_serial() && (call.turns > 0 || is_out))
                    || (contract.serial_per_thread && is_out)
            });
            if holds {
                self.scheduler.hold_thread(&call.callee, thread, *id);
            }
        }

        for (thread, id) in open {
            let Some(call) = self.state.call(id) else { continue };
            match call.handed_over.filter(|_| !mutant("forget-the-hand-over")) {
                Some(attempt) => {
                    let alarm = Alarm::Lost { call: id, attempt };
                    step.effect(Effect::Alarm { at: step.time, alarm });
                }
                None => {
                    self.pick_up_call(step, &thread, id);
                    self.request_preview(step, id);
                }
            }
        }

        roots.iter().for_each(|root| self.count_waiting_messages(root));
        self.set_thread_alarms(step, roots);
        roots.iter().for_each(|root| self.follow_tree_time(root));
        let trees = roots.iter().filter_map(|root| self.state.trees.get(root));
        let timers = trees.flat_map(|tree| tree.timers.iter());
        step.set_timer_alarms(timers.filter(|_| !mutant("forget-a-timer")));
        self.search_timers(step, roots);
    }

    /// Continues an open call on which no listener works. Does the first of these that applies:
    ///
    /// - If the call can no longer be handled, or has no attempt left, sets an alarm that fails it.
    /// - If the hold of the call needs an alarm (see [`Core::hold_alarm_due`]), sets this alarm.
    /// - If the call is ready, queues it.
    pub(super) fn pick_up_call(&mut self, step: &mut Step, thread: &ThreadId, id: CallId) {
        let Some(call) = self.state.call(id) else { return };
        if self.contracts.get(&call.callee).is_none() || self.lacks_its_previews(call) {
            step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Gone { call: id } });
        } else if self.has_no_attempt_left(call) {
            step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Retry { call: id } });
        } else if let Some(at) = self.hold_alarm_due(call, step.time) {
            step.effect(Effect::Alarm { at, alarm: Alarm::Held { call: id } });
        } else if call.is_ready() {
            let listener = call.callee.clone();
            self.enqueue(step, &listener, thread, id);
        }
    }

    pub(super) fn handle_join(&mut self, step: &mut Step, listener: ListenerName, detail: String) {
        let input = Input::Joined { listener: listener.clone(), detail: detail.clone() };
        step.begin_record(ThreadId::organism(), input);
        self.record_presence(&listener);
        self.organism_note(step, &CorePayload::ListenerJoined { name: listener, detail });
    }

    pub(super) fn left(&mut self, step: &mut Step, listener: ListenerName, detail: String) {
        let input = Input::Left { listener: listener.clone(), detail: detail.clone() };
        step.begin_record(ThreadId::organism(), input);
        self.organism_note(step, &CorePayload::ListenerLeft { name: listener, detail });
    }

    /// Records operations that NATS servers denied to the programs of a listener, after these
    /// programs have reported the denials. Has no other effect.
    pub(super) fn denied(
        &mut self,
        step: &mut Step,
        listener: ListenerName,
        operations: String,
        count: u64,
    ) {
        let name = listener.clone();
        let input = Input::Denied { listener, operations: operations.clone(), count };
        step.begin_record(ThreadId::organism(), input);
        self.organism_note(step, &CorePayload::ListenerDenied { name, operations, count });
    }

    /// Records a count of `busy` refusals. Has no other effect.
    pub(super) fn record_busy(step: &mut Step, busy: BusyCount) {
        let BusyCount { client, since, count } = busy;
        step.begin_record(ThreadId::organism(), Input::Busy { client, since, count });
    }

    /// Records a report about an alert. Has no other effect.
    pub(super) fn record_alert(&mut self, step: &mut Step, ticket: Uuid, report: AlertReport) {
        step.begin_record(ThreadId::organism(), Input::Alert(report.clone()));
        self.organism_note(step, &CorePayload::Alert(report));
        step.effect(Effect::Ruled { ticket, ruling: OperatorRuling::Plain(Ok(())) });
    }

    pub(super) fn shutdown(&mut self, step: &mut Step, reason: String) {
        self.draining = true;
        step.begin_record(ThreadId::organism(), Input::Shutdown { detail: reason.clone() });
        self.organism_note(step, &CorePayload::ShutdownSignal { reason });
        let forks: Vec<_> = self.recorded.forks().cloned().collect();
        forks.iter().for_each(|fork| self.follow_recorded(step, fork));
    }

    /// Records an operator's action on the organism itself. The action has no other effect in the
    /// core.
    pub(super) fn operator_action(
        &mut self,
        step: &mut Step,
        ticket: Uuid,
        action: OperatorAction,
    ) {
        self.record_action(step, action);
        step.effect(Effect::Ruled { ticket, ruling: OperatorRuling::Plain(Ok(())) });
    }

    pub(super) fn organism_note(&mut self, step: &mut Step, answer: &CorePayload) {
        self.system_note(step, &ThreadId::organism(), &ListenerName::core(), answer);
    }

    /// Cancels all open calls in a thread and its subthreads, and informs waiting clients. If the
    /// thread does not exist, accepts the request and does nothing. Records a refusal instead if a
    /// required signature is missing or invalid, or if no call is open in these threads. No call is
    /// ever open in the organism's own thread, so a request to cancel that thread is refused.
    pub(super) fn cancel(&mut self, step: &mut Step, cancellation: Cancellation) {
        let Cancellation { ticket, thread, reason, origin } = cancellation;
        if self.state.thread(&thread).is_none() {
            return step.effect(Effect::Ruled { ticket, ruling: OperatorRuling::Plain(Ok(())) });
        }

        let reason: String = reason.chars().take(limits::REASON_CHARS_MAX).collect();
        let origin = origin.map(DecisionOrigin::shortened);
        let input = Input::Cancel {
            thread: thread.clone(),
            by: ListenerName::operator(),
            reason: reason.clone(),
            origin: origin.clone(),
        };

        step.begin_record(thread.root(), input);

        let origin = origin.unwrap_or_default();
        let proved = self.check_signature(
            step,
            &SignedDecision {
                statement: Some(DecisionStatement::cancel(&reason, &origin.note)),
                thread: &thread,
                signature: origin.signature.as_deref(),
            },
        );

        let open = self.to_cancel(&thread);
        let by = proved.and_then(|operator| {
            if open.is_empty() && !mutant("cancel-what-ended") {
                Err(ended(&thread, &reason))
            } else {
                Ok(operator)
            }
        });

        let ruling = OperatorRuling::Plain(by.as_ref().map(drop).map_err(Clone::clone));
        step.effects.insert(0, Effect::Ruled { ticket, ruling });

        let by = match by {
            Ok(operator) => operator,
            Err(refusal) => {
                let operator = ListenerName::operator();
                return self.refuse(step, &operator, Some(&thread), None, refusal);
            }
        };

        let report = ActionReport::cancel(by.clone(), thread.clone(), reason.clone());
        let answer = CorePayload::OperatorAction(report);
        self.system_note(step, &thread, &ListenerName::core(), &answer);
        let text = ended_by_operator("cancelled", &by, &reason);
        self.close_all(step, &open, |core, step, call| core.cancel_call(step, call, &text));
    }

    /// Returns the open calls that a cancellation of `thread` must end: those in `thread` and its
    /// subthreads, deepest first. Leaves out each call whose opener is a call of the same thread,
    /// because such a call is cancelled together with its opener.
    pub(super) fn to_cancel(&self, thread: &ThreadId) -> Vec<CallId> {
        let Some(tree) = self.state.tree(thread) else { return Vec::new() };
        let within = tree.calls.values().filter(|call| {
            let nested = matches!(&call.opening.opener,
                Opener::Call { thread, .. } if *thread == call.thread);
            !nested && call.thread.is_within(thread)
        });
        let mut calls: Vec<_> = within.map(|call| (call.thread.clone(), call.id)).collect();
        calls.sort_by(|a, b| (b.0.depth(), &b.0, b.1).cmp(&(a.0.depth(), &a.0, a.1)));
        calls.into_iter().map(|(_, call)| call).collect()
    }
}

/// Returns the refusal of a request to cancel `thread`. States that no call is open in the thread
/// or beneath it.
fn ended(thread: &ThreadId, reason: &str) -> Refusal {
    let message = if thread.as_str() == ThreadId::ORGANISM {
        format!(
            "nothing is open in {thread}: it has the records of the organism itself; name the \
             thread of the calls that are to end"
        )
    } else {
        format!("nothing is open in {thread} or beneath it: all of it has ended already")
    };
    Refusal::new(RefusalRule::NotWaiting, message, reason.as_bytes())
}
