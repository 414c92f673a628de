//! Computes the states of a run's goals from the recorded messages, so that they can be shown to
//! people.

use std::collections::HashSet;
use std::sync::Arc;

use crate::envelope::Message;
use crate::ids::{ListenerName, ThreadId};

use super::begun_run::RunBasis;
use super::call_fold::{CallFold, RunRequest, UndoSource};
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_clock::UncountedTimes;
use super::run_state::{GoalPhase, RunStep};

/// State of one goal, as it is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalStatus {
    pub goal: GoalId,
    /// Number of goals around this goal, such as loops, at all levels of nesting; 0 for a goal that
    /// is not a member of another goal.
    pub depth: usize,
    pub phase: GoalPhase,
    /// Pass of the loop that contains the goal, counted from 1; for a loop, its own pass. 0 outside
    /// of a loop, or if the goal is not running.
    pub iteration: u32,
    /// Number of agents or items with a result, and their total number. Both are 0 if the goal is
    /// not running, or if it has neither several agents nor items.
    pub parts: (usize, usize),
    /// Goals for which a waiting goal waits.
    pub waits_for: Vec<GoalId>,
}

/// The state of each goal of one run, computed from the messages of the run.
pub struct RunWatch<'a> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    once: &'a HashSet<ListenerName>,
    fold: Option<CallFold<'a>>,
    failed: Option<GoalId>,
    /// Number of opened threads that [`RunWatch::new_threads`] has already returned.
    threads: usize,
    /// Whether the request of the run was taken. The state is then `None` if it cannot be computed.
    has_begun: bool,
    /// Messages that the thread had before the run. They are needed only if the run is a retry.
    earlier: Vec<Arc<Message>>,
    /// Data for undoing the earlier runs that this run retries. `None` if this run is no retry.
    undo: Option<UndoSource<'a>>,
    has_earlier_rules: bool,
}

impl<'a> RunWatch<'a> {
    pub fn new(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
    ) -> Self {
        Self {
            definition,
            graph,
            once,
            fold: None,
            failed: None,
            threads: 0,
            has_begun: false,
            earlier: Vec::new(),
            undo: None,
            has_earlier_rules: false,
        }
    }

    /// Sets whether the run follows the rules of earlier versions of the program. Required only for
    /// a run that an earlier version may have begun.
    #[must_use]
    pub fn with_earlier_rules(mut self, has_earlier_rules: bool) -> Self {
        self.has_earlier_rules = has_earlier_rules;
        self
    }

    /// Sets the messages that the thread had before the run, and the data for the undo of its
    /// earlier runs. Required only for a retry, which takes over results from these messages.
    #[must_use]
    pub fn after(mut self, messages: Vec<Arc<Message>>, undo: UndoSource<'a>) -> Self {
        self.earlier = messages;
        self.undo = Some(undo);
        self
    }

    /// Applies the next message of the run's call. The first message is the run's request.
    pub fn take(&mut self, message: &Message) {
        let requests = match &mut self.fold {
            Some(fold) => fold.take(message),
            None if self.has_begun => return,
            None => {
                self.has_begun = true;
                let earlier = std::mem::take(&mut self.earlier);
                self.fold = self.begun(message, &earlier);
                // Threads of earlier runs are not new threads of a retry.
                self.threads = self.fold.as_ref().map_or(0, |fold| fold.threads_after(0).count());
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

    /// Creates the initial state of the run that `request` begins. Returns `None` if the request is
    /// not valid, or if the earlier run of a retry cannot be found or read.
    fn begun(&self, request: &Message, earlier: &[Arc<Message>]) -> Option<CallFold<'a>> {
        let Self { definition, graph, once, undo, has_earlier_rules, .. } = *self;
        let basis = RunBasis { definition, graph, once, undo, has_earlier_rules };
        let fold = basis.begin(request, earlier).ok()?;
        Some(fold.with_uncounted(UncountedTimes::Unknown))
    }

    /// Returns the threads that the run has opened since the last call of this function. For each
    /// thread, also returns the number of its goal, or `None` if the thread undoes a call, and the
    /// number of its attempt. The number of the attempt is correct only while the thread is open;
    /// otherwise, it is 1.
    pub fn new_threads(&mut self) -> Vec<(ThreadId, Option<usize>, u32)> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let opened: Vec<_> = fold.threads_after(self.threads).collect();
        self.threads += opened.len();
        opened
    }

    /// Returns the state of every goal, in the order of the file.
    pub fn goals(&self) -> Vec<GoalStatus> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let goals = self.definition.goals.iter().enumerate();
        let goals = goals.map(|(number, goal)| {
            let (phase, iteration, parts) = fold.run().status(number);
            let goal = goal.id.value.clone();
            let phase = if self.failed.as_ref() == Some(&goal) { GoalPhase::Failed } else { phase };
            let waits_for = fold.run().waits_for(number).into_iter();
            let waits_for = waits_for.filter_map(|need| self.graph.goal(need));
            GoalStatus {
                goal,
                depth: self.depth(number),
                phase,
                iteration,
                parts,
                waits_for: waits_for.map(|need| need.id.value.clone()).collect(),
            }
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
