//! Reload: the pump puts another config in force while work is in flight.
//!
//! The new config applies to all work that is not in flight, as after a restart. A delivery in
//! flight continues: its attempt is neither aborted nor counted as failed. A listener that the new
//! config lacks may finish its deliveries in flight, and gets no further ones. A later reload may
//! give the name to a listener of another kind, which does not continue the calls of these
//! deliveries.

use std::sync::Arc;

use super::call_table::RunningAttempt;
use super::event::{Alarm, CoreConfig, Effect, OperatorRuling, ReloadRequest};
use super::failures::{GONE, REPLACED};
use super::{CORE_VERSION, Core, Step};
use crate::clock::Time;
use crate::contract::{Contract, Contracts};
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::thread::{Call, Fact, Input, Map, OperatorAction};

/// Contracts of the listeners that the config no longer has. Empty after a boot.
///
/// **Invariant:** the pump delivers nothing to a removed listener.
#[derive(Debug, Clone, Default)]
pub(super) struct RemovedListeners {
    contracts: Map<ListenerName, Arc<Contract>>,
    /// The call whose attempt the current step has ended, with the contract of this attempt, if a
    /// reload has removed the listener of the attempt. `None` between steps.
    ended: Option<(CallId, Arc<Contract>)>,
}

impl RemovedListeners {
    /// Updates this table of removed listeners for a change of the config from `before` to `after`.
    /// Adds the listeners of `before` that `after` lacks, and takes out the listeners that `after`
    /// contains.
    fn replace(&mut self, before: &Contracts, after: &Contracts) {
        let names: Vec<_> = before.iter().map(|contract| contract.name.clone()).collect();
        for name in names {
            if let Some(contract) = before.shared(&name) {
                self.contracts.insert(name, contract);
            }
        }

        self.contracts.retain(|name, _| after.get(name).is_none());
    }
}

impl Core {
    /// Returns the contract of a listener that may have work in flight, even if a reload has
    /// removed the listener from the config. Returns `None` for an unknown listener.
    pub(super) fn contract_of_work(&self, listener: &ListenerName) -> Option<&Arc<Contract>> {
        self.contracts.entry(listener).or_else(|| self.removed.contracts.get(listener))
    }

    /// Returns the contract that applies to an open call. This is the contract of its listener now,
    /// with one exception: while a delivery is in flight to a removed listener whose name was given
    /// to a listener of another kind, the contract at the hand-over applies.
    pub(super) fn contract_of_call<'c>(&'c self, call: &'c Call) -> Option<&'c Arc<Contract>> {
        let own = self.calls.running(call.id).map(|running| &running.contract);
        let own = own.filter(|contract| self.has_changed_kind(contract));
        own.or_else(|| self.contract_of_work(&call.callee))
    }

    /// Whether the name in a contract at a hand-over belongs, or last belonged, to a listener of
    /// another kind. Needs two reloads: one removes the listener, and a later one adds the other
    /// listener. A further reload may have removed the other listener, too.
    fn has_changed_kind(&self, contract: &Contract) -> bool {
        let last = self.contract_of_work(&contract.name);
        last.is_some_and(|last| !last.is_same_kind(contract)) && !mutant("continue-as-another-kind")
    }

    /// Notes the call of an attempt that has ended, if a reload has removed the attempt's listener.
    /// Must be called before the call continues.
    pub(super) fn note_removed_call(&mut self, call: CallId, ended: &RunningAttempt) {
        let is_gone = self.contracts.get(&ended.listener).is_none();
        let is_gone = is_gone && !mutant("wait-for-a-removed-listener");
        if is_gone || self.has_changed_kind(&ended.contract) {
            self.removed.ended = Some((call, Arc::clone(&ended.contract)));
        }
    }

    /// Whether this core plans and runs schedules.
    pub fn has_schedules(&self) -> bool {
        self.schedules.is_some()
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Puts another config in force. The recorded action names the operator who requested the
    /// reload.
    pub(super) fn reload(&mut self, step: &mut Step, request: ReloadRequest) {
        let ReloadRequest { ticket, action, config, blobs } = request;
        let CoreConfig { contracts, limits, schedules, digest } = config;
        self.removed.replace(&self.contracts, &contracts);
        self.contracts = contracts;
        self.budgets.limits = limits;
        self.schedules = schedules;
        self.config = digest;

        step.effect(Effect::Ruled { ticket, ruling: OperatorRuling::Plain(Ok(())) });
        self.record_action(step, action);
        let epoch = self.state.epoch;
        let core_version = CORE_VERSION;
        self.fact(step, Fact::Reloaded { epoch, config: digest, core_version, blobs });
        let roots = self.state.roots_in_memory();
        self.pick_up_queued_calls(step, &roots);

        // The new config may give a listener more capacity.
        let names: Vec<_> = self.contracts.iter().map(|contract| contract.name.clone()).collect();
        names.iter().for_each(|name| self.scheduler.mark_runnable(name));
    }

    /// Adapts the calls in the trees with these `roots` to the config that is now in force:
    ///
    /// - A call with a delivery in flight stays unchanged.
    /// - A call is failed if the config no longer has its listener, or if it was approved with a
    ///   preview and the listener no longer declares previews.
    /// - A call is failed if as many of its attempts have failed as the config permits.
    /// - A call is held or released if its hold differs from the one that the config requires.
    /// - All other queued calls stay in their queues.
    ///
    /// This function only sets alarms for these changes, because each is recorded in the call's own
    /// tree. No such call is delivered before its alarm has fired.
    pub(super) fn pick_up_queued_calls(&mut self, step: &mut Step, roots: &[ThreadId]) {
        // The new config may give trees another wall time.
        roots.iter().for_each(|root| self.follow_tree_time(root));
        let calls = self.state.open_calls_in(roots);
        let idle = calls.filter(|call| call.handed_over.is_none());
        let mut idle: Vec<_> = idle.map(|call| (call.thread.clone(), call.id)).collect();
        idle.sort();

        let now = step.time;
        let is_due = |at: Time| at <= now;
        for (_, id) in idle {
            let Some(call) = self.state.call(id) else { continue };
            if self.contracts.get(&call.callee).is_none() {
                step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Gone { call: id } });
            } else if self.lacks_its_previews(call) {
                self.set_aside(step, id, Alarm::Gone { call: id });
            } else if self.has_no_attempt_left(call) {
                step.effect(Effect::Alarm { at: now, alarm: Alarm::Retry { call: id } });
            } else if self.hold_alarm_due(call, now).is_some_and(is_due) {
                self.set_aside(step, id, Alarm::Held { call: id });
            } else {
                self.queue_again(step, id);
                self.update_preview_request(step, id);
            }
        }
    }

    /// Returns the alarm that must handle a call before its delivery, or `None` if the call may be
    /// delivered. A reload can make such an alarm necessary: the config now requires a hold or
    /// permits no further attempt, or the listener no longer declares previews. The alarm handles
    /// the call in a step of its own, because the current step can belong to another tree.
    pub(super) fn alarm_before_delivery(&self, call: &Call, now: Time) -> Option<Alarm> {
        if self.lacks_its_previews(call) {
            Some(Alarm::Gone { call: call.id })
        } else if self.has_no_attempt_left(call) {
            Some(Alarm::Retry { call: call.id })
        } else if self.lacks_its_hold(call, now) {
            Some(Alarm::Held { call: call.id })
        } else {
            None
        }
    }

    /// Puts a call back into its queue if an earlier reload took the call out, and the alarm that
    /// this reload set for the call has not fired yet. Does nothing for any other call.
    fn queue_again(&mut self, step: &mut Step, id: CallId) {
        let Some(call) = self.state.call(id) else { return };
        let listener = call.callee.clone();
        let thread = call.thread.clone();
        let has_waited = call.is_ready() && call.turns == 0 && !self.is_busy_with(id);
        let waits_for_alarm =
            self.calls.awaits_retry(id, step.time) || self.is_time_over(&thread, step.time);
        if has_waited && !waits_for_alarm && !self.awaits_recall(call) {
            self.enqueue(step, &listener, &thread, id);
        }
    }

    /// Ends the call of a removed listener if the call is still open after the listener's last
    /// delivery. No other listener can continue the call.
    ///
    /// If the listener's name was given to a listener of another kind, fails the call in this step,
    /// so that the other listener does not get the call. Otherwise, an alarm fails the call.
    pub(super) fn end_removed_call(&mut self, step: &mut Step) {
        let Some((call, contract)) = self.removed.ended.take() else { return };
        if self.state.call(call).is_none() {
            return;
        }

        let is_gone = self.contracts.get(&contract.name).is_none();
        if self.has_changed_kind(&contract) {
            let reason = if is_gone { GONE } else { REPLACED };
            return self.fail_undelivered(step, call, Some(&contract), reason, is_gone);
        }
        step.effect(Effect::Alarm { at: step.time, alarm: Alarm::Gone { call } });
    }

    pub(super) fn record_action(&mut self, step: &mut Step, action: OperatorAction) {
        let action = action.shortened();
        step.begin_record(ThreadId::organism(), Input::Operator(action.clone()));
        let report = crate::system::CorePayload::OperatorAction(action.report());
        self.organism_note(step, &report);
    }
}
