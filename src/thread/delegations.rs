//! Delegations: how often the goals of workflows have been delegated to roles.
//!
//! To delegate a task of its goal, an agent calls the workflow. This call is beneath the call of
//! the goal. The agent that gets the task may delegate further, beneath the workflow's call.

use super::state::{Call, State, Tree};
use super::{Opener, Opening};
use crate::contract::{GoalRoles, delegated_goal};
use crate::envelope::Message;
use crate::ids::CallId;

impl State {
    /// Returns how often the goal of `call` was delegated, and how often it may be delegated. If
    /// the goal is itself a delegated task, returns the numbers of the original goal. Returns
    /// `None` if the goal has no roles.
    pub fn delegations(&self, call: CallId) -> Option<(u32, u32)> {
        let tree = self.trees.get(self.calls.get(&call)?)?;
        tree.goals_above(call).find_map(|goal| {
            let request = goal.request()?;
            let max = GoalRoles::read(request.payload.as_str())?.max?;
            Some((goal.delegations, max))
        })
    }
}

impl Tree {
    /// Counts a delegation for the goal that is delegated, and for every goal above it.
    pub(super) fn count_delegation(&mut self, request: &Message, opening: &Opening) {
        if delegated_goal(&request.name).is_none() {
            return;
        }

        let Some(delegator) = opener_of(opening) else { return };
        let goals: Vec<_> = self.goals_above(delegator).map(|goal| goal.id).collect();
        for goal in goals {
            if let Some(goal) = self.calls.get_mut(&goal) {
                goal.delegations = goal.delegations.saturating_add(1);
            }
        }
    }

    /// Returns `call` and the calls above it, up to the call of the original goal. Each call except
    /// the last handles a task that the next call has delegated.
    fn goals_above(&self, call: CallId) -> impl Iterator<Item = &Call> {
        std::iter::successors(self.call(call), |goal| {
            let workflow = self.calls.get(&opener_of(&goal.opening)?)?;
            let is_delegation = delegated_goal(&workflow.request()?.name).is_some();
            let delegator = opener_of(&workflow.opening).filter(|_| is_delegation)?;
            self.call(delegator)
        })
    }
}

fn opener_of(opening: &Opening) -> Option<CallId> {
    match &opening.opener {
        Opener::Call { call, .. } => Some(*call),
        _ => None,
    }
}
