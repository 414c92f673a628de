//! Refusals of payloads, either by the gate or, after a payload has passed the gate, by a rule of
//! the pump.
//!
//! The journal records the whole refusal. A replay takes the refusal from the record, and so
//! reproduces the same effects.

use super::Core;
use super::outcome::OutcomeContext;
use super::step::Step;
use crate::envelope::{BrokenPayload, Refusal, RefusalRule};
use crate::ids::ListenerName;
use crate::pump::gate::Checked;
use crate::system::{CorePayload, ErrorCode};

/// Returns the refusal of a payload that had passed the gate. `rule` is the rule that the payload
/// breaks.
pub(super) fn refusal_of(
    rule: RefusalRule,
    message: impl Into<String>,
    checked: &Checked,
) -> Refusal {
    Refusal::new(rule, message, checked.payload().as_str().as_bytes()).named(checked.name())
}

impl Core {
    /// Refuses a payload of an outcome. An agent or a workflow is informed of every refusal. Any
    /// other sender is informed only of the refusals on which it can act: those by the rules
    /// `Busy`, `Cycle` and `BadLabel`.
    ///
    /// If a budget is used up, and the sender makes no model calls, ends the sender's call, because
    /// the sender might send the same payload forever. A sender that makes model calls is stopped
    /// by its limit of model calls.
    pub(super) fn refuse_payload(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        refusal: Refusal,
    ) {
        let rule = refusal.rule;
        let answer = CorePayload::to(&refusal);
        self.refuse_in(step, context, refusal);

        match rule {
            RefusalRule::BudgetSpent if !self.spends(&context.listener) => {
                // The alarm of the thread ends the call.
                if self.is_time_over(&context.thread, step.time) {
                    return;
                }
                let text = "the budget of this tree is spent";
                return self.fail(step, context.call, ErrorCode::BudgetSpent, text);
            }
            _ if context.receives_refusals => {}
            RefusalRule::Busy | RefusalRule::Cycle | RefusalRule::BadLabel => {}
            _ => return,
        }

        self.send_core_payload(step, context.call, None, &answer);
    }

    fn spends(&self, listener: &ListenerName) -> bool {
        self.contract_of_work(listener).is_some_and(|contract| contract.spends())
    }

    pub(super) fn broken(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        broken: &BrokenPayload,
    ) {
        let finding = &broken.finding;
        let refusal = Refusal::new(broken.rule(), &finding.message, broken.attempt.as_bytes());
        self.refuse_payload(step, context, refusal.at(finding.place.clone()));
    }

    pub(super) fn refuse_in(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        refusal: Refusal,
    ) {
        self.refuse(step, &context.listener, Some(&context.thread), Some(context.call), refusal);
    }
}
