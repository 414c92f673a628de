//! Calls that wait for a person: opened and on record, but not handed over, and no time of
//! theirs runs.

use super::event::{Alarm, Effect};
use super::{Core, Step};
use crate::clock::Time;
use crate::envelope::Disposition;
use crate::ids::{CallId, Digest, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::system::{Answer, ErrorCode, Ruling};
use crate::thread::{Call, Fact, Hold, Input, Opener};

impl Core {
    /// A call that was just opened, or that nobody holds any more: it is handed over, or it
    /// waits for a person.
    pub(super) fn begin(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let (listener, thread) = (open.callee.clone(), open.thread.clone());
        match self.wants(open).filter(|_| !mutant("hand-over-the-held")) {
            None => {
                self.end_wait(step, &listener, &thread);
                self.wake(step, call);
            }
            Some((Hold::Answer, _)) => self.hold(step, call, Hold::Answer),
            Some((Hold::Approval, why)) => {
                self.hold(step, call, Hold::Approval);
                self.request_approval(step, call, why);
            }
        }
    }

    /// Hands a call over, with all that a message to its listener brings about.
    pub(super) fn go(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let (listener, thread) = (open.callee.clone(), open.thread.clone());
        self.end_wait(step, &listener, &thread);
        self.wake(step, call);
    }

    /// Whom a call waits for by its config, and why.
    fn wants(&self, call: &Call) -> Option<(Hold, &'static str)> {
        let contract = self.contracts.get(&call.callee)?;
        if contract.is_human() {
            return Some((Hold::Answer, ""));
        }
        let request = call.request()?;
        let why = contract.approval.wanted(request.payload.as_str())?;
        Some((Hold::Approval, why))
    }

    fn hold(&mut self, step: &mut Step, call: CallId, hold: Hold) {
        let Some(open) = self.state.call(call) else { return };
        let patience = self.contracts.get(&open.callee).and_then(|contract| contract.patience);
        let until = patience.map(|patience| step.time.plus(patience));
        let (thread, listener) = (open.thread.clone(), open.callee.clone());
        self.fact(step, Fact::Held { call, hold, until });
        self.count_turn(call);
        step.effect(Effect::Held { call, thread, listener, hold });
        if let Some(at) = until {
            step.effect(Effect::Alarm { at, alarm: Alarm::Held { call } });
        }
    }

    /// Ends a hold: approved, or lapsed as the config wants none any more.
    pub(super) fn end_hold(&mut self, step: &mut Step, call: CallId, lapsed: bool) {
        self.fact(step, Fact::Released { call, lapsed });
        self.count_turn(call);
    }

    fn request_approval(&mut self, step: &mut Step, call: CallId, why: &'static str) {
        let Some(held) = self.held_call(call) else { return };
        let until = self.state.call(call).and_then(|open| open.held?.until);
        let HeldCall { message, digest, listener, .. } = held.clone();
        let answer = Answer::ApprovalRequested { message, listener, digest, why, until };
        self.system_note(step, &held.told_in, &held.caller, &answer);
    }

    /// Whether one of these calls waits for an approval.
    pub(super) fn awaits_approval(&self, calls: &[CallId]) -> bool {
        let held = |call: &CallId| self.state.call(*call).and_then(|open| open.held);
        calls.iter().filter_map(held).any(|held| held.hold == Hold::Approval)
    }

    /// When a call is to be looked at again after a start: at once where the config asks for
    /// something else by now.
    pub(super) fn waits_until(&self, call: &Call, now: Time) -> Option<Time> {
        let wanted = self.wants(call).map(|(hold, _)| hold);
        match call.held {
            Some(held) if Some(held.hold) == wanted => held.until,
            Some(_) => Some(now),
            None => match wanted? {
                Hold::Answer => Some(now),
                Hold::Approval if mutant("wave-old-calls-through") => None,
                // What its listener has begun to work on needs no approval after the fact.
                // Whether it was ever handed over before that, nothing on record says.
                Hold::Approval => (!call.approved && call.turns == 0).then_some(now),
            },
        }
    }

    /// The alarm of a held call: its time is up, or the config asks for something else.
    pub(super) fn held_long_enough(&mut self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let Some(at) = self.waits_until(open, step.time) else { return };
        if at > step.time {
            return step.effect(Effect::Alarm { at, alarm: Alarm::Held { call } });
        }
        let (thread, held) = (open.thread.clone(), open.held);
        let wanted = self.wants(open).map(|(hold, _)| hold);
        step.records(thread.root(), Input::Held { call });
        match held {
            Some(held) if Some(held.hold) == wanted => self.nobody_came(step, call, held.hold),
            Some(held) => {
                if held.hold == Hold::Approval {
                    let reason = "the config asks for no approval of it any more";
                    self.note_ruling(step, call, ListenerName::core(), reason, true);
                }
                self.end_hold(step, call, true);
                self.begin(step, call);
            }
            None => self.begin(step, call),
        }
    }

    fn nobody_came(&mut self, step: &mut Step, call: CallId, hold: Hold) {
        let Some(open) = self.state.call(call) else { return };
        let since = open.request().map_or(step.time, |request| request.time);
        let (listener, waited) = (open.callee.clone(), step.time.since(since).as_secs_f64());
        if hold == Hold::Answer {
            let text = format!("{listener} did not answer within {waited} s");
            return self.fail_with(step, call, ErrorCode::Timeout, &text, Disposition::Expired);
        }
        let reason = format!("nobody approved it within {waited} s");
        self.note_ruling(step, call, ListenerName::core(), &reason, false);
        self.fail_with(step, call, ErrorCode::Denied, &reason, Disposition::Expired);
    }

    /// Tells the caller, on record, what was decided about its held call.
    pub(super) fn note_ruling(
        &mut self,
        step: &mut Step,
        call: CallId,
        by: ListenerName,
        reason: &str,
        granted: bool,
    ) {
        let Some(held) = self.held_call(call) else { return };
        let (message, digest, reason) = (held.message, held.digest, reason.to_owned());
        let ruling = Ruling { message, digest, by, reason };
        let answer = match granted {
            true => Answer::ApprovalGranted(ruling),
            false => Answer::ApprovalRefused(ruling),
        };
        self.system_note(step, &held.told_in, &held.caller, &answer);
    }

    fn held_call(&self, call: CallId) -> Option<HeldCall> {
        let open = self.state.call(call)?;
        let told_in = match &open.opening.opener {
            Opener::Call { thread, .. } => thread,
            Opener::Client { .. } => &open.thread,
        };
        Some(HeldCall {
            message: call.0,
            digest: open.request()?.payload.digest,
            listener: open.callee.clone(),
            caller: open.opening.opener.name().clone(),
            told_in: told_in.clone(),
        })
    }
}

/// A held call, as its caller is told of it.
#[derive(Clone)]
struct HeldCall {
    message: MessageId,
    digest: Digest,
    listener: ListenerName,
    caller: ListenerName,
    told_in: ThreadId,
}
