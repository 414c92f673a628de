//! Held calls: open and recorded, but not delivered until a person decides. The time-out of a held
//! call does not run. The number of held calls of each client at each listener is bounded.

use super::calls_by_client::ClientAndListener;
use super::event::{Alarm, Effect};
use super::failures::earlier_deliveries;
use super::forks::is_unrecorded_in;
use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{CallId, Digest, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::system::{CorePayload, DecisionPayload, ErrorCode};
use crate::thread::{Call, Fact, Held, Hold, Input, Opener, Tree};

impl Core {
    /// Starts an open call that is not held, queued or handed over:
    ///
    /// - If the result of the call must first be searched for in the source of its fork, begins the
    ///   search.
    /// - If a person must decide on the call, holds it. The config can require this, and so can a
    ///   fork whose source has no result for the call.
    /// - Otherwise, queues the call.
    pub(super) fn start_call(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        if self.awaits_recall(open) {
            return self.recall(step, call);
        }

        match self.hold_of(open).filter(|_| !mutant("hand-over-the-held")) {
            None => self.queue_for_listener(step, call),
            // No person decides in a trial, so the hold expires at once.
            Some((hold, _)) if self.is_trial(open) => self.hold(step, call, hold),
            Some((Hold::Answer, _)) => self.hold(step, call, Hold::Answer),
            Some((Hold::Approval, _)) => {
                self.hold(step, call, Hold::Approval);
                self.request_approval(step, call);
                self.request_preview(step, call);
            }
        }
    }

    /// Queues a call for its listener. If the listener is an agent that has called `wait` in this
    /// thread, ends the wait, as every message to the agent does.
    pub(super) fn queue_for_listener(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();

        self.end_wait(step, (&listener, &thread), call);
        self.wake(step, call);
    }

    /// Returns the hold that the config requires for an open call, with the reason. Returns `None`
    /// if the config requires no hold.
    fn hold_of(&self, call: &Call) -> Option<(Hold, &'static str)> {
        self.hold_in(self.state.tree(&call.thread), call)
    }

    /// Returns the hold of an open call of `tree`, as [`Core::hold_of`] does.
    fn hold_in(&self, tree: Option<&Tree>, call: &Call) -> Option<(Hold, &'static str)> {
        let payload = call.request().map(|request| request.payload.as_str());
        let unrecorded = (Hold::Approval, "the source of this fork has no result for it");
        let of_fork = || (is_unrecorded_in(tree, call) && !call.approved).then_some(unrecorded);
        self.required_hold(&call.callee, payload).or_else(of_fork)
    }

    /// Returns the reason why an open call of `tree` needs an approval, with its earlier
    /// deliveries. Returns `None` if the call needs no approval. `tree` may be outside memory.
    pub fn approval_reason(&self, tree: &Tree, call: &Call) -> Option<String> {
        match self.hold_in(Some(tree), call)? {
            (Hold::Approval, why) => Some(format!("{why}{}", earlier_deliveries(call))),
            (Hold::Answer, _) => None,
        }
    }

    /// Returns the hold that the config requires for a call to `listener` with `payload`, with the
    /// reason. Returns `None` if the config requires no hold.
    fn required_hold(
        &self,
        listener: &ListenerName,
        payload: Option<&str>,
    ) -> Option<(Hold, &'static str)> {
        let contract = self.contracts.get(listener)?;
        if contract.is_human() {
            return Some((Hold::Answer, ""));
        }

        let why = contract.approval.wanted(payload?)?;
        Some((Hold::Approval, why))
    }

    /// Checks whether the client may have one more held call at `listener`. If not, returns the
    /// number of the client's held calls at `listener`, and the caller must refuse the new call.
    /// Returns `None` if there is room, or if the config does not require a hold for a call with
    /// `payload`.
    pub(super) fn too_many_held<'c>(
        &'c self,
        client: impl FnOnce() -> Option<&'c ListenerName>,
        listener: &ListenerName,
        payload: &str,
    ) -> Option<usize> {
        let contract = self.contracts.get(listener)?;
        self.required_hold(listener, Some(payload))?;

        let key = ClientAndListener { client: client()?.clone(), listener: listener.clone() };
        let held = self.holds.count(&key);
        (held >= contract.backlog).then_some(held)
    }

    /// Returns the held calls, in the order of their ids. Includes calls in trees that the pump has
    /// removed from memory.
    pub fn held_calls(&self) -> Vec<CallId> {
        self.holds.ids()
    }

    /// Adds a call to the number of held calls of its client at its listener. Does nothing if the
    /// call is not held.
    pub(super) fn count_hold(&mut self, call: CallId) {
        let Some(open) = self.state.call(call).filter(|open| open.held.is_some()) else { return };
        if let Some(key) = self.client_and_listener(open) {
            self.holds.insert(call, key);
        }
    }

    fn hold(&mut self, step: &mut Step, call: CallId, hold: Hold) {
        let Some(open) = self.state.call(call) else { return };
        let patience = self.contracts.get(&open.callee).and_then(|contract| contract.patience);
        let until = patience.map(|patience| step.time.plus(patience));
        let until = if self.is_trial(open) { Some(step.time) } else { until };
        let thread = open.thread.clone();
        let listener = open.callee.clone();

        self.fact(step, Fact::Held { call, hold, until });
        self.count_hold(call);
        self.count_turn(call);
        step.effect(Effect::Held { call, thread, listener, hold });
        if let Some(at) = until {
            step.effect(Effect::Alarm { at, alarm: Alarm::Held { call } });
        }
    }

    /// Ends the hold of a call. `lapsed` states the reason: true if the config no longer requires
    /// the hold, false if the call was approved.
    pub(super) fn end_hold(&mut self, step: &mut Step, call: CallId, lapsed: bool) {
        self.fact(step, Fact::Released { call, lapsed });
        self.withdraw_preview(step, call);
        self.holds.remove(call);
        self.count_turn(call);
    }

    fn request_approval(&mut self, step: &mut Step, call: CallId) {
        let Some(held) = self.describe_held_call(call) else { return };
        let Some(open) = self.state.call(call) else { return };
        let Some(tree) = self.state.tree(&open.thread) else { return };
        let Some(why) = self.approval_reason(tree, open) else { return };
        let until = open.held.and_then(|held| held.until);
        let HeldCallDescription { message, digest, listener, .. } = held.clone();

        let answer = CorePayload::ApprovalRequested { message, listener, digest, why, until };
        self.system_note(step, &held.thread, &held.caller, &answer);
    }

    /// Returns the calls in `calls` that wait for an approval.
    pub(super) fn awaiting_approval(&self, calls: &[CallId]) -> Vec<CallId> {
        let held = |call: CallId| self.state.call(call).and_then(|open| open.held);
        let awaits = |call: &CallId| held(*call).is_some_and(|held| held.hold == Hold::Approval);
        calls.iter().copied().filter(awaits).collect()
    }

    /// Returns the time at which the alarm for the hold of a call is due; `None` if the call needs
    /// no such alarm. The alarm is due at once if the call has a hold that the config does not
    /// require, or lacks a hold that the config requires.
    pub(super) fn hold_alarm_due(&self, call: &Call, now: Time) -> Option<Time> {
        let wanted = self.hold_of(call).map(|(hold, _)| hold);
        match call.held {
            Some(held) if Some(held.hold) == wanted => held.until,
            Some(_) => Some(now),
            None => match wanted? {
                Hold::Answer => Some(now),
                Hold::Approval if mutant("wave-old-calls-through") => None,
                // A call whose listener has taken a turn needs no approval any more. Records of old
                // journals do not state whether a call without a turn was delivered before.
                Hold::Approval => (!call.approved && call.turns == 0).then_some(now),
            },
        }
    }

    /// Whether a call that is not held must be held before its listener gets it. True only after a
    /// reload to a config that requires the hold: without a reload, such a call is held as soon as
    /// it is opened. Returns false once the listener has given an outcome for the call.
    pub(super) fn lacks_its_hold(&self, call: &Call, now: Time) -> bool {
        let is_new = call.held.is_none() && !call.approved && call.turns == 0;
        let is_required = || self.hold_alarm_due(call, now).is_some();
        is_new && is_required() && !mutant("hand-over-the-held")
    }

    /// Takes an open call out of the queues, and sets `alarm` to fire at once. The alarm decides
    /// how the call continues. Must not be called for a call with a delivery in progress.
    pub(super) fn set_aside(&mut self, step: &mut Step, call: CallId, alarm: Alarm) {
        self.take_from_queues(call);
        step.effect(Effect::Alarm { at: step.time, alarm });
    }

    /// Takes an open call out of the queues. Does nothing for a held call, because none is queued.
    fn take_from_queues(&mut self, call: CallId) {
        let open = self.state.call(call).filter(|open| open.held.is_none());
        let Some(open) = open else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();
        self.scheduler.close(call, &listener, &thread, false);
        self.count_turn(call);
    }

    /// Handles the alarm for the hold of a call:
    ///
    /// - If the hold is the one that the config requires, and its deadline has passed, fails the
    ///   call.
    /// - If the hold differs from the one that the config requires, ends the hold or holds the
    ///   call. Exception: a delivery in progress continues.
    pub(super) fn hold_alarm(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let Some(at) = self.hold_alarm_due(open, step.time) else { return };
        if at > step.time {
            return step.effect(Effect::Alarm { at, alarm: Alarm::Held { call } });
        }

        let thread = open.thread.clone();
        let held = open.held;
        // A delivery in progress goes on, also after a reload that requires a hold.
        if held.is_none() && open.handed_over.is_some() {
            return;
        }

        let wanted = self.hold_of(open).map(|(hold, _)| hold);
        // The resume sets the alarm again.
        if self.is_paused(open) && held.is_some_and(|held| Some(held.hold) == wanted) {
            return;
        }

        step.begin_record(thread.root(), Input::Held { call });

        match held {
            Some(held) if Some(held.hold) == wanted => self.expire_hold(step, call, held),
            Some(held) => {
                if held.hold == Hold::Approval {
                    let reason = "the config asks for no approval of it any more";
                    self.note_ruling(step, call, ListenerName::core(), reason, true);
                }
                self.end_hold(step, call, true);
                self.start_call(step, call);
            }
            None => {
                self.take_from_queues(call);
                self.start_call(step, call);
            }
        }
    }

    fn expire_hold(&mut self, step: &mut Step, call: CallId, held: Held) {
        let Some(open) = self.state.call(call) else { return };
        if self.is_trial(open) {
            return self.end_not_recorded(step, call);
        }
        let listener = open.callee.clone();
        // The limit is that of the hold: the config may have another one by now. Record time is no
        // measure of the wait, because it includes pauses, stops and steps of the clock.
        let limit = held.limit.map_or_else(
            || "in time".to_owned(),
            |limit| format!("within {} s", limit.as_secs_f64()),
        );
        if held.hold == Hold::Answer {
            let text = format!("{listener} did not answer {limit}");
            return self.fail_with(step, call, ErrorCode::Timeout, &text, Disposition::Expired);
        }

        let reason = format!("no person approved it {limit}");
        let text = format!("{reason}{}", earlier_deliveries(open));
        self.note_ruling(step, call, ListenerName::core(), &reason, false);
        self.fail_with(step, call, ErrorCode::Denied, &text, Disposition::Expired);
    }

    /// Records a note that informs the caller of the decision on its held call: an approval if
    /// `granted`, otherwise a refusal.
    pub(super) fn note_ruling(
        &mut self,
        step: &mut Step,
        call: CallId,
        by: ListenerName,
        reason: &str,
        granted: bool,
    ) {
        let Some(held) = self.describe_held_call(call) else { return };
        let message = held.message;
        let digest = held.digest;
        let reason = reason.to_owned();
        let ruling = DecisionPayload { message, digest, by, reason };
        let answer = if granted {
            CorePayload::ApprovalGranted(ruling)
        } else {
            CorePayload::ApprovalRefused(ruling)
        };

        self.system_note(step, &held.thread, &held.caller, &answer);
    }

    fn describe_held_call(&self, call: CallId) -> Option<HeldCallDescription> {
        let open = self.state.call(call)?;
        let thread = match &open.opening.opener {
            Opener::Call { thread, .. } => thread,
            Opener::Client { .. } => &open.thread,
        };

        Some(HeldCallDescription {
            message: call.0,
            digest: open.request()?.payload.digest,
            listener: open.callee.clone(),
            caller: open.opening.opener.name().clone(),
            thread: thread.clone(),
        })
    }
}

/// Description of a held call, for the payloads that inform the caller about the call.
#[derive(Clone)]
struct HeldCallDescription {
    message: MessageId,
    digest: Digest,
    listener: ListenerName,
    caller: ListenerName,
    /// Thread of the caller.
    thread: ThreadId,
}
