//! Prepares the state of a retry, which keeps some results of an earlier run, and runs the other
//! goals again.

use std::collections::HashSet;

use super::super::graph::GoalGraph;
use super::super::run_definition::RunRules;
use super::{GoalState, RunState};

impl RunState {
    /// Converts the state of an earlier run to the initial state of its retry. The retry runs the
    /// goals `again`, all goals that depend on them, and all goals that have not ended. It keeps
    /// the results of all other goals. A member of another goal, for example of a loop, is kept or
    /// run again together with the outermost goal around it. If a goal outside of a loop runs
    /// again, the corrections by people are kept.
    pub fn taken_over(self, graph: &GoalGraph<'_>, again: &[usize]) -> Self {
        let again: HashSet<_> = again.iter().map(|goal| graph.outermost_owner(*goal)).collect();
        let keeps: Vec<bool> = (0..self.goals.len())
            .map(|goal| {
                let owner = graph.outermost_owner(goal);
                let has_ended = self.goals.get(owner).is_some_and(GoalState::has_ended);
                let needs_one = || graph.visible(owner).iter().any(|goal| again.contains(goal));
                has_ended && !again.contains(&owner) && !needs_one()
            })
            .collect();

        let is_kept = |goal: usize| keeps.get(goal).copied().unwrap_or_default();
        let Self { input, goals, mut passes, mut corrections, mut reviewed, .. } = self;
        let goals = goals.into_iter().enumerate();
        let goals =
            goals.map(|(number, goal)| if is_kept(number) { goal } else { GoalState::Waiting });
        let goals = goals.collect();
        passes.retain(|goal, _| is_kept(*goal));
        reviewed.retain(|goal, _| is_kept(*goal));
        corrections.retain(|goal, given| {
            let needs_are_kept = || graph.visible(*goal).into_iter().all(&is_kept);
            if !is_kept(*goal) && !needs_are_kept() {
                // The goal may have other items now.
                given.retain(|correction| correction.review.is_none());
            }
            // A loop that runs again begins with its first pass.
            is_kept(*goal) || graph.loop_of(*goal).is_none()
        });
        let rules = RunRules::Present;
        let is_over = false;
        Self { input, goals, passes, corrections, reviewed, rules, is_over }
    }
}
