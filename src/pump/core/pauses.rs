//! Pauses. While a pause is in force, the calls that it covers are not handed over, and their
//! timers and time limits do not fire. Work in flight continues, unless the operator cancels it
//! together with the pause.
//!
//! An alarm of a paused call has no effect when it fires. The resume sets such alarms again.

use std::collections::{BTreeSet, HashSet};

use uuid::Uuid;

use super::approvals::ended_by_operator;
use super::event::{Alarm, Effect, OperatorRuling};
use super::signatures::SignedDecision;
use super::{Core, Step};
use crate::contract::Role;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::{ActionReport, CorePayload};
use crate::thread::{
    Call, DecisionOrigin, DecisionStatement, Fact, Input, PauseAction, PauseTarget, PauseVerb,
};

/// An operator's request to pause or to resume.
#[derive(Debug, Clone)]
pub struct PauseChange {
    /// Identifies the caller that waits for the pump's ruling on this request. Not recorded.
    pub ticket: Uuid,
    pub action: PauseAction,
}

/// The pump's ruling on a [`PauseChange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseRuling {
    /// The operator's action is recorded.
    Done {
        /// Number of deliveries in flight to which the pause or the resume applies.
        in_flight: u32,
    },
    /// Everything is already as requested. Nothing is recorded.
    Unchanged {
        in_flight: u32,
    },
    /// The target is a thread that does not exist, or a listener that the config does not have.
    UnknownTarget,
    Refused(Refusal),
}

impl Core {
    /// Carries out a request to pause or to resume. Records nothing if everything is already as
    /// requested.
    pub(super) fn change_pause(&mut self, step: &mut Step, request: PauseChange) {
        let PauseChange { ticket, mut action } = request;
        action.origin = action.origin.map(DecisionOrigin::shortened);
        action.by = ListenerName::operator();
        let PauseAction { verb, target, .. } = action.clone();

        let is_paused = self.state.pauses.get(&target).is_some();
        let attempts = self.attempts_in_flight(&target);
        let previews = self.previews_in_flight(&target);
        let in_flight = u32::try_from(attempts.len() + previews.len()).unwrap_or(u32::MAX);
        let is_unchanged = match verb {
            PauseVerb::Pause => is_paused,
            PauseVerb::PauseAndCancel => is_paused && in_flight == 0,
            PauseVerb::Resume => !is_paused,
        };

        // A pause outlives the listener that it names, and must still be possible to end.
        if !is_paused && !self.knows(&target) {
            let ruling = OperatorRuling::Pause(PauseRuling::UnknownTarget);
            return step.effect(Effect::Ruled { ticket, ruling });
        }
        if is_unchanged {
            let ruling = OperatorRuling::Pause(PauseRuling::Unchanged { in_flight });
            return step.effect(Effect::Ruled { ticket, ruling });
        }

        let home = target.home();
        let origin = action.origin.clone().unwrap_or_default();
        step.begin_record(home.root(), Input::Pause(action));
        let by = match self.check_pause(step, verb, &target, &origin) {
            Ok(by) => by,
            Err(refusal) => {
                let ruling = OperatorRuling::Pause(PauseRuling::Refused(refusal.clone()));
                step.effect(Effect::Ruled { ticket, ruling });
                let operator = ListenerName::operator();
                return self.refuse(step, &operator, Some(&home), None, refusal);
            }
        };

        let ruling = OperatorRuling::Pause(PauseRuling::Done { in_flight });
        step.effect(Effect::Ruled { ticket, ruling });
        self.note_pause(step, verb, &target, &by, &origin);
        if verb == PauseVerb::PauseAndCancel {
            let text = ended_by_operator("cancelled", &by, &origin.note);
            attempts.iter().for_each(|(call, _)| self.calls.request_stop(*call, &text));
        }
        match verb {
            PauseVerb::Resume => self.resume(step, &target),
            PauseVerb::Pause | PauseVerb::PauseAndCancel => {
                if !is_paused {
                    let note = origin.note;
                    self.fact(step, Fact::Paused { target, by, note });
                }
            }
        }

        if verb == PauseVerb::PauseAndCancel {
            // Each attempt ends in a record of its own tree.
            for (call, attempt) in attempts {
                let alarm = Alarm::Stop { call, attempt };
                step.effect(Effect::Alarm { at: step.time, alarm });
            }
            for call in previews {
                self.withdraw_preview(step, call);
            }
        }
    }

    /// Checks whether a pause or a resume is permitted, and returns the operator who requested it.
    fn check_pause(
        &mut self,
        step: &mut Step,
        verb: PauseVerb,
        target: &PauseTarget,
        origin: &DecisionOrigin,
    ) -> Result<ListenerName, Refusal> {
        let text = target.to_string();
        let by = self.check_signature(
            step,
            &SignedDecision {
                statement: Some(DecisionStatement::pause(verb, &text, &origin.note)),
                thread: &target.home(),
                signature: origin.signature.as_deref(),
            },
        )?;

        // Only paused threads need a limit: the config bounds the number of listeners, and a pause
        // of `all` must always be possible.
        let is_thread = matches!(target, PauseTarget::Thread(_));
        let is_new = verb != PauseVerb::Resume && self.state.pauses.get(target).is_none();
        if is_thread && is_new && self.state.pauses.threads() >= limits::PAUSES_MAX {
            let message = format!(
                "{} threads are paused already; resume some of them, or pause all",
                limits::PAUSES_MAX
            );
            return Err(Refusal::new(RefusalRule::Busy, message, text.as_bytes()));
        }

        Ok(by)
    }

    fn knows(&self, target: &PauseTarget) -> bool {
        match target {
            PauseTarget::All => true,
            // A client gets no deliveries, so its pause would have no effect.
            PauseTarget::Listener(listener) => {
                let contract = self.contracts.get(listener);
                contract.is_some_and(|contract| contract.role != Role::Client)
            }
            PauseTarget::Thread(thread) => {
                thread.as_str() != ThreadId::ORGANISM && self.state.thread(thread).is_some()
            }
        }
    }

    fn note_pause(
        &mut self,
        step: &mut Step,
        verb: PauseVerb,
        target: &PauseTarget,
        by: &ListenerName,
        origin: &DecisionOrigin,
    ) {
        let thread = match target {
            PauseTarget::Thread(thread) => Some(thread.clone()),
            PauseTarget::All | PauseTarget::Listener(_) => None,
        };
        let report = ActionReport {
            action: verb.as_str(),
            by: by.clone(),
            uid: origin.who.uid,
            login: origin.who.login.clone(),
            host: origin.who.host.clone(),
            thread,
            reason: (!origin.note.is_empty()).then(|| origin.note.clone()),
            details: vec![("target".to_owned(), target.to_string())],
        };
        let answer = CorePayload::OperatorAction(report);
        self.system_note(step, &target.home(), &ListenerName::core(), &answer);
    }

    /// Ends the pause of `target`. Sets the alarms of all calls that no other pause covers.
    fn resume(&mut self, step: &mut Step, target: &PauseTarget) {
        self.fact(step, Fact::Resumed { target: target.clone() });
        let roots = self.roots_under(target);
        self.set_alarms_after_pause(step, target, &roots);

        let names: Vec<_> = self.contracts.iter().map(|contract| contract.name.clone()).collect();
        names.iter().for_each(|name| self.scheduler.mark_runnable(name));
    }

    /// Sets the alarms of calls in the trees with these `roots`, after the pause of `target` has
    /// ended. Skips calls to which another pause still applies.
    pub(super) fn set_alarms_after_pause(
        &mut self,
        step: &mut Step,
        target: &PauseTarget,
        roots: &[ThreadId],
    ) {
        let freed = self.state.calls_of(target, roots).into_iter();
        let freed: Vec<_> =
            freed.filter(|call| !self.is_paused(call)).map(|call| call.id).collect();
        for call in &freed {
            self.set_alarms_again(step, *call);
        }

        let freed_roots = freed.iter().filter_map(|call| self.state.calls.get(call).cloned());
        let freed_roots: BTreeSet<_> = freed_roots.collect();
        let freed_roots: Vec<_> = freed_roots.into_iter().collect();
        self.set_thread_alarms(step, &freed_roots);

        let trees = freed_roots.iter().filter_map(|root| self.state.trees.get(root));
        let mut timers: Vec<_> = trees.flat_map(|tree| tree.timers.iter()).collect();
        let is_freed: HashSet<_> = freed.iter().collect();
        timers.retain(|(_, set)| is_freed.contains(&set.call));
        timers.sort_by_key(|(timer, set)| (set.fires_at, **timer));
        step.set_timer_alarms(timers.into_iter());
        // The timers of a fork do not wait for their times, so the next one may fire now.
        freed_roots.iter().for_each(|root| self.follow_order(step, root));

        // The wall time of trees whose work was kept back by the pause runs again.
        roots.iter().for_each(|root| self.follow_tree_time(root));
    }

    /// Returns the trees in memory that may contain calls to which a pause of `target` applies.
    fn roots_under(&self, target: &PauseTarget) -> Vec<ThreadId> {
        target.tree().map_or_else(|| self.state.roots_in_memory(), |root| vec![root])
    }

    /// Sets the alarms of a call again after a pause, because these alarms have no effect if they
    /// fire during the pause. Leaves out the alarms of timers and of threads' time limits.
    fn set_alarms_again(&mut self, step: &mut Step, id: CallId) {
        self.extend_preview(step, id);
        let Some(call) = self.state.call(id) else { return };
        let listener = call.callee.clone();
        let hold_due = call.held.and_then(|_| self.hold_alarm_due(call, step.time));
        if let Some(at) = hold_due {
            step.effect(Effect::Alarm { at, alarm: Alarm::Held { call: id } });
        }
        if self.scheduler.is_waiting(id) {
            self.wait_for_listener_again(step, &listener, id);
        }
    }

    /// Sets the alarms for the time limits of this step's tree, if the step has closed a call and a
    /// pause may cover the tree. An open paused call stops the time limit of its thread. When the
    /// call closes, the time limit may run again.
    pub(super) fn follow_closed_calls(&mut self, step: &mut Step) {
        let has_closed = || step.facts.iter().any(|fact| matches!(fact, Fact::CallClosed { .. }));
        if self.state.pauses.is_empty() || !has_closed() {
            return;
        }

        let tree = step.record.as_ref().map(|(tree, _)| tree.clone());
        if let Some(tree) = tree.filter(|tree| self.state.pauses.may_cover_tree(tree)) {
            self.set_thread_alarms(step, &[tree]);
        }
    }

    /// Whether a pause covers `call`.
    pub(super) fn is_paused(&self, call: &Call) -> bool {
        self.state.is_paused(call) && !mutant("hand-over-the-paused")
    }

    /// Returns the attempts in flight that `target` covers.
    fn attempts_in_flight(&self, target: &PauseTarget) -> Vec<(CallId, Attempt)> {
        let covered = self.state.calls_of(target, &self.roots_under(target)).into_iter();
        let running = covered.filter_map(|call| {
            let running = self.calls.running(call.id)?;
            Some((call.id, running.attempt))
        });
        running.collect()
    }

    fn previews_in_flight(&self, target: &PauseTarget) -> Vec<CallId> {
        let covered = self.state.calls_of(target, &self.roots_under(target)).into_iter();
        covered.filter(|call| self.previews.is_in_flight(call.id)).map(|call| call.id).collect()
    }

    /// Handles [`Alarm::Stop`]: cancels the call of `attempt`, if this attempt is still in flight.
    /// The alarm is set when an operator requests a pause that also cancels work in flight.
    pub(super) fn stop_attempt(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        let running = self.calls.running(call).filter(|running| running.attempt == attempt);
        let Some(open) = running.and_then(|_| self.state.call(call)) else { return };
        let thread = open.thread.clone();
        let text = running.and_then(|running| running.stop_reason.clone());
        let by_operator = || ended_by_operator("cancelled", &ListenerName::operator(), "");
        let text = text.unwrap_or_else(by_operator);

        step.begin_record(thread.root(), Input::Stop { call, attempt });
        self.cancel_stopped(step, call, &text);
    }

    /// Cancels a call whose attempt an operator cancelled together with a pause. The attempt is
    /// still in flight, or has ended before [`Alarm::Stop`] fired.
    pub(super) fn cancel_stopped(&mut self, step: &mut Step, call: CallId, text: &str) {
        self.close_all(step, &[call], |core, step, call| core.cancel_call(step, call, text));
    }
}
