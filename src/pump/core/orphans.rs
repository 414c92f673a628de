//! Orphaned deliveries: a listener still works on a delivery whose call is closed. The delivery
//! keeps its share of the listener's capacity until it ends, and a late answer is recorded.

use super::goals::{CalledGoal, only_answers};
use super::message::NewMessage;
use super::outcome::{AttemptSource, CALL_CLOSED, Gated, OutcomeContext, is_reply};
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::contract::Meaning;
use crate::envelope::{MessageKind, RefusalRule, Turn};
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::pump::gate::Checked;
use crate::thread::Verdict;

/// A delivery that a listener still works on after its call was closed. Holds the data needed to
/// record a late answer.
#[derive(Debug, Clone)]
pub(super) struct OrphanedDelivery {
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub opener: ListenerName,
    pub opener_call: Option<CallId>,
    /// The goal of the call; `None` if the call has none. The goal decides which payload counts as
    /// an answer.
    pub goal: Option<CalledGoal>,
}

impl Core {
    /// Ends the orphaned delivery that `source` names: removes it from the call table, and frees
    /// its capacity and its thread in the scheduler. Returns the ended delivery. Returns `None` if
    /// the call has no such delivery, or if another listener works on it.
    pub(super) fn end_orphan(&mut self, source: &AttemptSource) -> Option<OrphanedDelivery> {
        let orphan = self.calls.finish_orphan(source)?;
        self.scheduler.end_orphan(&orphan.listener, &orphan.thread, source.call);
        Some(orphan)
    }

    /// Records the late outcome of a call that already has its result. The replies and notes in the
    /// outcome are recorded and stay readable in the thread. All other payloads are refused.
    pub(super) fn late_outcome(
        &mut self,
        step: &mut Step,
        source: &AttemptSource,
        orphan: &OrphanedDelivery,
        payloads: Vec<Gated>,
        turn: Option<Box<Turn>>,
    ) {
        let listener = &orphan.listener;
        let thread = &orphan.thread;
        let call = source.call;
        if let Some(turn) = turn {
            let context = OutcomeContext::new(call, listener, thread, true);
            self.model_turn(step, &context, &turn, Some(source.attempt));
        }

        for payload in only_answers(orphan.goal.as_ref(), payloads) {
            let taken = payload.and_then(|checked| match checked.meaning() {
                Meaning::Reply | Meaning::GoalAnswer | Meaning::Note => Ok(checked),
                _ => Err(refusal_of(RefusalRule::CallClosed, CALL_CLOSED, &checked)),
            });
            step.push_verdict(Verdict::from(&taken));
            match taken {
                Ok(checked) if is_reply(&checked) => self.late_reply(step, call, orphan, &checked),
                Ok(checked) => self.own_note(step, listener, thread, call, &checked),
                Err(refusal) => self.refuse(step, listener, Some(thread), Some(call), refusal),
            }
        }
    }

    fn late_reply(
        &mut self,
        step: &mut Step,
        call: CallId,
        orphan: &OrphanedDelivery,
        checked: &Checked,
    ) {
        let OrphanedDelivery { listener, thread, opener, opener_call, .. } = orphan;
        let reply = NewMessage::checked(MessageKind::Reply, listener, opener, thread, checked);
        let reply = reply.caused_by(call.0).in_call(*opener_call);
        self.record_late(step, reply);
    }
}
