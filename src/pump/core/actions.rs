//! Actions in the outcome of a listener: calls to peers, and messages of an agent to itself.

use super::cycle;
use super::message::NewMessage;
use super::outcome::{CALL_CLOSED, OutcomeContext};
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{Contract, Gather, Meaning};
use crate::envelope::{MessageKind, Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};
use crate::thread::{Opener, Opening};

/// The rule that forbids a call, and an explanation.
type CallDenial = (RefusalRule, String);

impl Core {
    /// Carries out one action in the outcome of a listener.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the action was refused. The action then had no effect.
    pub(super) fn act(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        checked: &Checked,
    ) -> Result<(), Refusal> {
        // An earlier action of this outcome may have ended the call.
        if self.state.call(context.call).is_none() {
            return Err(refusal_of(RefusalRule::CallClosed, CALL_CLOSED, checked));
        }

        if let Some(spent) = self.tree_spent(&context.thread, step.time) {
            return Err(refusal_of(RefusalRule::BudgetSpent, spent, checked));
        }

        match checked.meaning() {
            Meaning::Primitive => self.primitive(step, context, checked),
            Meaning::Own => self.continue_own(step, context, checked),
            Meaning::Call { .. } => {
                let denied = |(rule, text)| refusal_of(rule, text, checked);
                self.call(step, context, checked, &context.thread).map_err(denied)?;
            }
            Meaning::Delegate { .. } => self.delegate(step, context, checked)?,
            Meaning::Note | Meaning::Reply | Meaning::GoalAnswer => {}
            // These payloads are valid only as the answer to a preview request, or to the delivery
            // of a call that has a preview.
            Meaning::Preview | Meaning::StalePreview => {
                return Err(refusal_of(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, checked));
            }
        }

        Ok(())
    }

    pub(super) fn continue_own(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        checked: &Checked,
    ) {
        let message = context.message(MessageKind::Own, &context.listener, checked);
        self.accept(step, message.in_call(context.call));
    }

    /// Opens a call in `thread` to each peer that accepts the payload, or only to the listener to
    /// which the gate has restricted the payload. If the payload is a message of an agent to
    /// itself, opens a call to the agent instead.
    ///
    /// # Errors
    ///
    /// Returns the broken rule with its explanation.
    pub(super) fn call(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        checked: &Checked,
        thread: &ThreadId,
    ) -> Result<(), CallDenial> {
        let own = [context.listener.clone()];
        let (peers, gather, forward) = match checked.meaning() {
            Meaning::Call { peers, gather, forward } => (peers.as_slice(), *gather, *forward),
            Meaning::Delegate { workflow } => (std::slice::from_ref(workflow), Gather::All, false),
            _ => (own.as_slice(), Gather::All, false),
        };

        self.check_call(context, checked, peers, thread, step.time)?;
        // The result of a call in another thread comes back as a `thread-result` to the listener
        // that sent it there, so such a call cannot be forwarded.
        let forward = forward && *thread == context.thread;
        let mut group = None;
        let mut calls = Vec::new();

        for peer in peers {
            let id = MessageId(step.next_id());
            let opener = Opener::Call {
                name: context.listener.clone(),
                call: context.call,
                thread: context.thread.clone(),
            };
            if peers.len() > 1 && group.is_none() {
                group = Some((CallId(id), gather));
            }
            let opening = Opening { opener, group, forward };
            let request =
                NewMessage::checked(MessageKind::Call, &context.listener, peer, thread, checked);
            let request = request.caused_by(context.cause).opening(opening).with_id(id);
            self.accept(step, request);
            calls.push(CallId(id));
        }

        for call in calls {
            self.set_thread_alarm(step, call);
            self.start_call(step, call);
        }
        Ok(())
    }

    fn check_call(
        &self,
        context: &OutcomeContext,
        checked: &Checked,
        peers: &[ListenerName],
        thread: &ThreadId,
        now: Time,
    ) -> Result<(), CallDenial> {
        if let Some(spent) = self.tree_spent(thread, now) {
            return Err((RefusalRule::BudgetSpent, spent));
        }

        let client = || self.state.thread(&thread.root()).map(|root| &root.by);
        for peer in peers {
            // A reload may have removed the peer after the gate had accepted the payload.
            let Some(contract) = self.contracts.get(peer) else {
                return Err((RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY.to_owned()));
            };
            let own_thread = *thread == context.thread;
            let closes = || cycle::closes(self, context.call, peer, thread);
            if contract.is_serial() && own_thread && closes() && !mutant("skip-the-cycle-check") {
                let text = format!("{peer} is waiting for this very call; spawn a thread instead");
                return Err((RefusalRule::Cycle, text));
            }
            if self.is_backlog_full(contract, now) {
                return Err((
                    RefusalRule::Busy,
                    format!("{peer} has {} calls waiting", contract.backlog),
                ));
            }
            let payload = checked.payload().as_str();
            if let Some(held) = self.too_many_held(client, peer, payload) {
                let text = format!("{held} calls to {peer} wait for a person already");
                return Err((RefusalRule::Busy, text));
            }
            if let Some(timed) = self.too_many_timed(client, peer) {
                let text = format!("{timed} calls to {peer} have timers already");
                return Err((RefusalRule::Busy, text));
            }
        }

        if self.is_full() {
            Err((RefusalRule::Busy, "too much is in flight".to_owned()))
        } else {
            Ok(())
        }
    }

    /// Whether as many calls wait for a listener as its `backlog` permits. Does not count queued
    /// calls for which the listener has free capacity, because they are delivered at the end of
    /// this step.
    fn is_backlog_full(&self, contract: &Contract, now: Time) -> bool {
        let queued = self.scheduler.backlog(&contract.name);
        if queued < contract.backlog {
            return false;
        }

        let is_skipped = |thread: &ThreadId| self.is_skipped(contract, thread, now);
        let deliverable = self.scheduler.deliverable(contract, now, is_skipped);
        queued.saturating_sub(deliverable) >= contract.backlog
    }

    /// Returns a description of a budget that the tree of `thread` has used up. Returns `None` if
    /// every budget of the tree has room.
    pub(super) fn tree_spent(&self, thread: &ThreadId, now: Time) -> Option<String> {
        let tree = self.state.tree(thread).filter(|_| !mutant("skip-the-budget"))?;
        let most = self.budgets.limits.messages;
        if self.budgets.has_no_message_left(tree, 0) {
            return Some(format!("all {most} messages of this tree are used"));
        }

        let most = self.budgets.limits.wall_time;
        if tree.worked(now) >= most {
            return Some(format!("this tree's time of {} s is over", most.as_secs_f64()));
        }

        self.time_over(thread, now)
    }
}
