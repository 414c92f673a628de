//! Goals: requests of workflows to agents. A goal can name the payload that answers it.

use super::outcome::{Gated, OutcomeContext};
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::contract::{GoalRoles, Meaning, goal_answer, is_goal_of, read_goal_answer};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, PayloadName};
use crate::mutant::mutant;
use crate::plural::count;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};

impl Core {
    /// Returns the goal that the request of `call` gives to an agent. Returns `None` if the request
    /// is no goal.
    pub(super) fn goal_of(&self, call: CallId) -> Option<CalledGoal> {
        let open = self.state.call(call)?;
        let request = open.request().filter(|request| is_goal_of(&open.callee, &request.name))?;
        let payload = request.payload.as_str();
        let delegate = GoalRoles::read(payload).map(|roles| roles.payload);
        Some(CalledGoal { answer: read_goal_answer(payload), delegate })
    }

    /// Opens the call with which an agent delegates a task of its goal to another agent.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the goal already has its maximum number of delegations, or if the
    /// call cannot be opened.
    pub(super) fn delegate(
        &mut self,
        step: &mut Step,
        context: &OutcomeContext,
        checked: &Checked,
    ) -> Result<(), Refusal> {
        let delegations = self.state.delegations(context.call);
        if let Some((made, max)) = delegations
            && made >= max
            && !mutant("delegate-without-end")
        {
            let text = format!(
                "this goal, with the goals that it has delegated, has used {}; go on without another",
                count(max, "delegation")
            );
            return Err(refusal_of(RefusalRule::DelegationsSpent, text, checked));
        }

        let denied = |(rule, text)| refusal_of(rule, text, checked);
        self.call(step, context, checked, &context.thread).map_err(denied)
    }
}

/// Returns `payloads`, with a refusal in place of each answer and delegation that `goal` does not
/// permit. If `goal` is `None`, refuses all goal answers and all delegations. All other payloads
/// stay unchanged.
pub(super) fn only_answers(goal: Option<&CalledGoal>, payloads: Vec<Gated>) -> Vec<Gated> {
    if mutant("answer-anything-as-a-goal") {
        return payloads;
    }

    let is_wrong = |checked: &Checked| match (goal, checked.meaning()) {
        (None, Meaning::GoalAnswer) => true,
        (Some(CalledGoal { answer: None, .. }), Meaning::GoalAnswer) => {
            *checked.name() != goal_answer()
        }
        (Some(CalledGoal { answer: Some(answer), .. }), Meaning::GoalAnswer | Meaning::Reply) => {
            checked.name() != answer
        }
        (goal, Meaning::Delegate { .. }) => {
            let named = goal.and_then(|goal| goal.delegate.as_ref());
            named != Some(checked.name()) && !mutant("delegate-any-goal")
        }
        _ => false,
    };
    let allowed = payloads.into_iter().map(|payload| match payload {
        Ok(checked) if is_wrong(&checked) => {
            Err(refusal_of(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, &checked))
        }
        other => other,
    });
    allowed.collect()
}

/// The goal of a call: the name of the payload that answers the goal, and the name of the payload
/// with which the agent delegates tasks of the goal.
#[derive(Debug, Clone)]
pub(super) struct CalledGoal {
    /// The only payload that answers the goal. `None` if the goal does not name a payload.
    answer: Option<PayloadName>,
    /// The payload with which the agent delegates tasks of the goal to another agent. `None` if the
    /// goal permits no delegation.
    delegate: Option<PayloadName>,
}
