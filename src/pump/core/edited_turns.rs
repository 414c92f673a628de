//! Edited turns. A fork may begin at a turn of an agent. An operator's message can then replace
//! everything that the agent sent in this turn, so no model is called for the turn.
//!
//! The message counts as a message of the agent, and follows the same rules as the agent's other
//! messages. The operator's action is the cause of the calls that the message opens.

use super::goals::only_answers;
use super::outcome::{OutcomeContext, is_reply};
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::contract::Meaning;
use crate::envelope::{Disposition, Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName, MessageId};
use crate::pump::gate::Checked;
use crate::thread::Fact;

/// Text of the refusal of a payload that cannot replace a turn.
const NO_TURN: &str = "the edit of a turn is a call to a peer of its agent, or the final of the agent; \
    this payload is neither";

impl Core {
    /// Checks whether a payload can take the place of a turn of `agent`.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the payload cannot take the place of a turn.
    pub(super) fn check_edited_turn(
        &self,
        agent: &ListenerName,
        checked: &Checked,
    ) -> Result<(), Refusal> {
        match checked.meaning() {
            Meaning::Call { .. } => {
                let admitted = self.admissible(agent, checked);
                admitted.map(|_| ()).map_err(|(rule, text)| refusal_of(rule, text, checked))
            }
            Meaning::Delegate { .. } | Meaning::Reply | Meaning::GoalAnswer => Ok(()),
            _ => Err(refusal_of(RefusalRule::NotInVocabulary, NO_TURN, checked)),
        }
    }

    /// Ends a turn of an agent without a model call: the payload `checked` of an operator takes the
    /// place of the turn. The turn belongs to the call `call`, which a fork has reopened. `cause`
    /// is the message that records the operator's action.
    pub(super) fn take_edited_turn(
        &mut self,
        step: &mut Step,
        (call, cause): (CallId, MessageId),
        checked: Checked,
    ) {
        let Some(open) = self.state.call(call) else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();
        let pending: Vec<_> = open.pending.iter().map(|own| own.message.id).collect();

        // The agent got no delivery, but its turn is over.
        let attempt = self.calls.next_attempt(self.state.epoch, call);
        self.fact(step, Fact::OutcomeReceived { call, attempt });
        for message in pending {
            self.dispose(step, message, Disposition::Handled);
        }
        if self.contracts.get(&listener).is_some_and(|contract| contract.is_serial()) {
            self.scheduler.hold_thread(&listener, &thread, call);
        }

        let context = OutcomeContext::new(call, &listener, &thread, true).caused_by(cause);
        let allowed = only_answers(self.goal_of(call).as_ref(), vec![Ok(checked.clone())]);
        self.outcome_call = Some(call);
        for payload in allowed {
            let taken = payload.and_then(|checked| {
                if is_reply(&checked) {
                    self.reply(step, &context, vec![checked]);
                    Ok(())
                } else {
                    self.act(step, &context, &checked)
                }
            });
            if let Err(refusal) = taken {
                // A refusal contains only the beginning of the payload, but a replay needs the
                // whole payload.
                self.own_note(step, &listener, &thread, call, &checked);
                self.refuse_payload(step, &context, refusal);
            }
        }
        self.outcome_call = None;
        self.count_turn(call);
        self.wake(step, call);
    }
}
