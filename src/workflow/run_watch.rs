//! A run for people who watch it: the states of its goals, folded from the messages on record.

use std::collections::HashSet;

use crate::envelope::Message;
use crate::ids::{ListenerName, ThreadId};

use super::call_fold::{CallFold, RunRequest};
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_state::{GoalPhase, RunStep};

/// State of one goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalStatus {
    pub goal: GoalId,
    /// Lists that the goal is in.
    pub depth: usize,
    pub phase: GoalPhase,
    /// Pass of its loop, from 1; 0 outside of a loop.
    pub iteration: u32,
    /// Agents or items that have a result, and all of them; 0 of 0 for a goal with one run.
    pub parts: (usize, usize),
}

/// Follows one run.
pub struct RunWatch<'a> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    once: &'a HashSet<ListenerName>,
    fold: Option<CallFold<'a>>,
    failed: Option<GoalId>,
    /// Number of threads that were returned by [`RunWatch::new_threads`].
    threads: usize,
}

impl<'a> RunWatch<'a> {
    pub fn new(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
    ) -> Self {
        Self { definition, graph, once, fold: None, failed: None, threads: 0 }
    }

    /// Takes the next message of the run's call. The first is its request.
    pub fn take(&mut self, message: &Message) {
        let requests = match &mut self.fold {
            Some(fold) => fold.take(message),
            None => {
                self.fold = CallFold::begun(self.definition, self.graph, self.once, message);
                self.fold.as_mut().map(CallFold::start).unwrap_or_default()
            }
        };
        for request in requests {
            if let RunRequest::Step(step) = request
                && let RunStep::Fail { goal, .. } = *step
            {
                self.failed = Some(goal);
            }
        }
    }

    /// The threads that the run has opened since the last call, each with the number of its goal, if
    /// it has one, and its attempt.
    pub fn new_threads(&mut self) -> Vec<(ThreadId, Option<usize>, u32)> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let opened: Vec<_> = fold.threads_after(self.threads).collect();
        self.threads += opened.len();
        opened
    }

    /// The state of every goal, in the order of the file.
    pub fn goals(&self) -> Vec<GoalStatus> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let goals = self.definition.goals.iter().enumerate();
        let goals = goals.map(|(number, goal)| {
            let (phase, iteration, parts) = fold.run().status(number);
            let goal = goal.id.value.clone();
            let phase = if self.failed.as_ref() == Some(&goal) { GoalPhase::Failed } else { phase };
            GoalStatus { goal, depth: self.depth(number), phase, iteration, parts }
        });
        goals.collect()
    }

    fn depth(&self, number: usize) -> usize {
        let mut depth = 0;
        let mut at = number;
        while let Some(membership) = self.graph.membership(at) {
            depth += 1;
            at = membership.owner;
            if depth > self.definition.goals.len() {
                break;
            }
        }
        depth
    }
}
