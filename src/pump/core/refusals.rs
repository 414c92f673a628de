//! Refusals by the pump of payloads that passed the gate, and the handling of all refusals.
//!
//! A refusal is self-contained, so that replaying it reproduces the same effects.

use super::Core;
use super::outcome::OutcomeContext;
use super::step::Step;
use crate::contract::Contract;
use crate::envelope::{BrokenPayload, Refusal, Rule};
use crate::ids::ListenerName;
use crate::pump::gate::Checked;
use crate::system::{Answer, ErrorCode};

/// The refusal by `rule` of a payload that had passed the gate.
pub(super) fn refusal_of(rule: Rule, message: impl Into<String>, checked: &Checked) -> Refusal {
    Refusal::new(rule, message, checked.payload().as_str().as_bytes()).named(checked.name())
}

impl Core {
    /// Refuses a payload of an outcome and informs its sender. A sender whose contract includes
    /// refusals gets each refusal. Any other sender gets only the refusals that it can act on.
    ///
    /// A spent budget ends the call of a listener that makes no model calls: the listener might send
    /// the same again for ever, and no limit of model calls would end that.
    pub(super) fn turn_down(&mut self, step: &mut Step, scene: &OutcomeContext, refusal: Refusal) {
        let rule = refusal.rule;
        let answer = Answer::to(&refusal);
        self.refuse_in(step, scene, refusal);

        match rule {
            Rule::BudgetSpent if !self.spends(&scene.listener) => {
                // The alarm of the thread ends the call.
                if self.is_time_over(&scene.thread, step.time) {
                    return;
                }
                let text = "the budget of this tree is spent";
                return self.fail(step, scene.call, ErrorCode::BudgetSpent, text);
            }
            _ if scene.receives_refusals => {}
            Rule::Busy | Rule::Cycle | Rule::BadLabel => {}
            _ => return,
        }

        self.tell(step, scene.call, None, &answer);
    }

    fn spends(&self, listener: &ListenerName) -> bool {
        self.contracts.get(listener).is_some_and(Contract::spends)
    }

    pub(super) fn broken(
        &mut self,
        step: &mut Step,
        scene: &OutcomeContext,
        broken: &BrokenPayload,
    ) {
        let finding = &broken.finding;
        let refusal = Refusal::new(broken.rule(), &finding.message, broken.attempt.as_bytes());
        self.turn_down(step, scene, refusal.at(finding.place.clone()));
    }

    pub(super) fn refuse_in(&mut self, step: &mut Step, scene: &OutcomeContext, refusal: Refusal) {
        self.refuse(step, &scene.listener, Some(&scene.thread), Some(scene.call), refusal);
    }
}
