//! Delegations: how often the goals of workflows have been delegated to roles.
//!
//! A workflow calls an agent to give it a goal. If the goal has roles, the agent may delegate a
//! part of the goal, a task, to another agent in one of these roles. To do so, the agent calls the
//! workflow, which calls the other agent. Both calls are beneath the call that gave the goal. The
//! other agent may delegate further in the same way.

use super::state::{Call, State, Tree};
use super::{Opener, Opening};
use crate::contract::{GoalRoles, delegated_goal};
use crate::envelope::Message;
use crate::ids::CallId;

impl State {
    /// Returns the number of delegations of a goal, and the maximum; `None` if the goal permits no
    /// delegations. `call` is the call with which a workflow gave the goal to an agent. If the goal
    /// is a delegated task, returns the numbers of the original goal from which the chain of
    /// delegations began.
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
    /// Counts a delegation, if `request` delegates a task. The delegation counts for the goal of
    /// the delegating agent. If this goal is a delegated task itself, the delegation also counts
    /// for each goal above it, up to the original goal.
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

    /// Returns `call` and the calls above it in its chain of delegations, innermost first. Each of
    /// these calls gave an agent a goal. The goal of each call except the last is a task, which the
    /// agent of the next call delegated as a part of its own goal. The last call gave the original
    /// goal, from which the chain began.
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
