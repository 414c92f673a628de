//! Goals: requests of workflows to agents, each with an answer of its own.

use super::Core;
use super::outcome::Gated;
use super::refusals::refusal_of;
use crate::contract::{Meaning, goal_name};
use crate::envelope::Rule;
use crate::ids::CallId;
use crate::mutant::mutant;
use crate::pump::gate::NOT_IN_VOCABULARY;

impl Core {
    /// Whether the request of a call is a goal.
    pub(super) fn is_goal(&self, call: CallId) -> bool {
        let open = self.state.call(call);
        open.is_some_and(|open| {
            open.request().is_some_and(|request| request.name == goal_name(&open.callee))
        })
    }
}

/// Refuses the answer to a goal among the payloads of a call that is no goal.
pub(super) fn only_answers(is_goal: bool, payloads: Vec<Gated>) -> Vec<Gated> {
    if is_goal || mutant("answer-anything-as-a-goal") {
        return payloads;
    }

    let judged = payloads.into_iter().map(|payload| match payload {
        Ok(checked) if *checked.meaning() == Meaning::GoalAnswer => {
            Err(refusal_of(Rule::NotInVocabulary, NOT_IN_VOCABULARY, &checked))
        }
        other => other,
    });
    judged.collect()
}
