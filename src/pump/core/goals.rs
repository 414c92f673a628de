//! Goals: requests of workflows to agents, each with an answer of its own.

use super::Core;
use super::outcome::Gated;
use super::refusals::refusal_of;
use crate::contract::{Meaning, goal_answer, goal_name, read_goal_answer};
use crate::envelope::RefusalRule;
use crate::ids::{CallId, PayloadName};
use crate::mutant::mutant;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};

impl Core {
    /// The goal that `call` is for; `None` if its request is no goal.
    pub(super) fn goal_of(&self, call: CallId) -> Option<CalledGoal> {
        let open = self.state.call(call)?;
        let request = open.request().filter(|request| request.name == goal_name(&open.callee))?;
        Some(CalledGoal { answer: read_goal_answer(request.payload.as_str()) })
    }
}

/// Refuses answers to other goals than `goal`, and every answer to a goal where it is `None`. A goal
/// that names its answer is answered by nothing else.
pub(super) fn only_answers(goal: Option<&CalledGoal>, payloads: Vec<Gated>) -> Vec<Gated> {
    if mutant("answer-anything-as-a-goal") {
        return payloads;
    }

    let is_wrong = |checked: &Checked| match (goal, checked.meaning()) {
        (None, Meaning::GoalAnswer) => true,
        (Some(CalledGoal { answer: None }), Meaning::GoalAnswer) => {
            *checked.name() != goal_answer()
        }
        (Some(CalledGoal { answer: Some(answer) }), Meaning::GoalAnswer | Meaning::Reply) => {
            checked.name() != answer
        }
        _ => false,
    };
    let judged = payloads.into_iter().map(|payload| match payload {
        Ok(checked) if is_wrong(&checked) => {
            Err(refusal_of(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, &checked))
        }
        other => other,
    });
    judged.collect()
}

/// The goal of a call.
#[derive(Debug, Clone)]
pub(super) struct CalledGoal {
    /// The only payload that answers it, if it has a type.
    answer: Option<PayloadName>,
}
