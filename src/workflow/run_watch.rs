//! Computes the states of a run's goals from the recorded messages, so that they can be shown to
//! people.

use std::collections::HashSet;
use std::sync::Arc;

use crate::envelope::Message;
use crate::ids::{ListenerName, MessageId, ThreadId};

use super::begun_run::RunBasis;
use super::call_fold::{CallFold, RunRequest, UndoSource};
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_clock::UncountedTimes;
use super::run_definition::RunRules;
use super::run_state::{GoalPhase, RunStep};

/// State of one goal, as it is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalStatus {
    pub goal: GoalId,
    /// Number of the goal in the definition.
    pub number: usize,
    /// Nesting depth: the number of goals around this goal, such as loops; 0 for a goal that is no
    /// member of another goal.
    pub depth: usize,
    pub phase: GoalPhase,
    /// Pass of the loop that contains the goal or, if the goal is a loop, the pass of this loop.
    /// The first pass has the number 1. The value is 0 if the goal is not running, or if there is
    /// no such loop.
    pub iteration: u32,
    /// Number of agents or items with a result, and their total number. Both are 0 if the goal is
    /// not running, or if it has neither several agents nor items.
    pub parts: (usize, usize),
    /// Goals for which this goal waits; empty if the goal does not wait.
    pub waits_for: Vec<GoalId>,
}

/// The state of each goal of one run, computed from the messages of the run.
pub struct RunWatch<'a> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    once: &'a HashSet<ListenerName>,
    /// All goals with their depths, as [`GoalGraph::depth_first`] returns them.
    order: Vec<(usize, usize)>,
    fold: Option<CallFold<'a>>,
    /// The goal that the run names as the cause of its failure; `None` if the run has not failed.
    failed: Option<GoalId>,
    /// Whether the run has failed and takes back calls, and its own call is still open.
    is_undoing: bool,
    /// Number of opened threads that [`RunWatch::new_threads`] has already returned.
    threads: usize,
    /// Whether [`Self::take`] has received the request of the run. If so, and `fold` is `None`, the
    /// state of the run cannot be computed.
    has_begun: bool,
    /// Messages that the thread had before the run. They are needed only if the run is a retry.
    earlier: Vec<Arc<Message>>,
    /// Data for undoing the earlier runs that this run retries. `None` if this run is no retry.
    undo: Option<UndoSource<'a>>,
    rules: RunRules,
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
            order: graph.depth_first(),
            fold: None,
            failed: None,
            is_undoing: false,
            threads: 0,
            has_begun: false,
            earlier: Vec::new(),
            undo: None,
            rules: RunRules::Present,
        }
    }

    /// Sets the rules that the run follows. Required only for a run that an earlier version of the
    /// program may have begun.
    #[must_use]
    pub fn with_rules(mut self, rules: RunRules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the data that only a retry needs: the messages that the thread had before the run, and
    /// the data for the undo of the earlier runs.
    #[must_use]
    pub fn after(mut self, messages: Vec<Arc<Message>>, undo: UndoSource<'a>) -> Self {
        self.earlier = messages;
        self.undo = Some(undo);
        self
    }

    /// Applies the next message of the run's call, beginning with the run's request.
    pub fn take(&mut self, message: &Message) {
        let requests = match &mut self.fold {
            Some(fold) => fold.take(message),
            None if self.has_begun => return,
            None => {
                self.has_begun = true;
                self.fold = self.begun(message);
                // Threads of earlier runs are not new threads of a retry.
                self.threads = self.fold.as_ref().map_or(0, |fold| fold.threads_after(0).count());
                self.fold.as_mut().map(CallFold::start).unwrap_or_default()
            }
        };
        for request in requests {
            if let RunRequest::Step(step) = request
                && let RunStep::Fail { goal, is_undone, .. } = *step
            {
                self.failed = Some(goal);
                self.is_undoing = is_undone;
            }
        }
    }

    /// Applies a message that the run did not handle before its call ended. A goal that fails
    /// because of the message stays under way.
    pub fn take_unhandled(&mut self, message: &Message) {
        match &mut self.fold {
            Some(fold) => fold.take_unhandled(message),
            None => self.take(message),
        }
    }

    /// Computes the state anew from all messages of the run's call, beginning with the run's
    /// request. `unhandled` contains those that the run did not handle.
    pub fn take_again(&mut self, messages: &[Arc<Message>], unhandled: &HashSet<MessageId>) {
        let threads = self.threads;
        self.fold = None;
        self.failed = None;
        self.is_undoing = false;
        self.has_begun = false;
        for message in messages {
            if unhandled.contains(&message.id) {
                self.take_unhandled(message);
            } else {
                self.take(message);
            }
        }
        self.threads = threads;
    }

    /// Ends the run, because its call has ended. Goals that are still under way are then cancelled.
    pub fn end(&mut self) {
        self.is_undoing = false;
        if let Some(fold) = &mut self.fold {
            fold.abandon();
        }
    }

    /// Creates the initial state of the run that `request` begins. Returns `None` if the request is
    /// not valid, or if the earlier run of a retry cannot be found or read.
    fn begun(&self, request: &Message) -> Option<CallFold<'a>> {
        let Self { definition, graph, once, undo, rules, .. } = *self;
        let basis = RunBasis { definition, graph, once, undo, rules };
        let fold = basis.begin(request, &self.earlier).ok()?;
        Some(fold.with_uncounted(UncountedTimes::Unknown))
    }

    /// Returns the threads that the run has opened since the last call of this function. Each
    /// thread comes with the number of its goal, or `None` if the thread undoes a call. It also
    /// comes with the number of the goal run's attempt, from 1. The attempt is correct only for an
    /// open thread; for an ended thread, it is always 1.
    pub fn new_threads(&mut self) -> Vec<(ThreadId, Option<usize>, u32)> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let opened: Vec<_> = fold.threads_after(self.threads).collect();
        self.threads += opened.len();
        opened
    }

    /// Returns the state of every goal. Each goal is followed by its members, such as the goals of
    /// a loop, so that the goals can be drawn as a tree.
    pub fn goals(&self) -> Vec<GoalStatus> {
        let Some(fold) = &self.fold else { return Vec::new() };
        let failed = self.failed_goals(fold);
        let open = self.goals_before_undo(fold);
        let goals = self.order.iter().filter_map(|(number, depth)| {
            let goal = self.graph.goal(*number)?;
            let (phase, iteration, parts) = if open.contains(number) {
                fold.run().status_before_end(*number)
            } else {
                fold.run().status(*number)
            };
            let phase = if failed.contains(number) { GoalPhase::Failed } else { phase };
            let waits_for = fold.run().waits_for(*number).into_iter();
            let waits_for = waits_for.filter_map(|need| self.graph.goal(need));
            Some(GoalStatus {
                goal: goal.id.value.clone(),
                number: *number,
                depth: *depth,
                phase,
                iteration,
                parts,
                waits_for: waits_for.map(|need| need.id.value.clone()).collect(),
            })
        });
        goals.collect()
    }

    /// Returns the numbers of the goals whose threads are still open although the run has failed,
    /// and of the goals around them. The undo of the run begins after the ends of these threads.
    fn goals_before_undo(&self, fold: &CallFold<'_>) -> HashSet<usize> {
        let mut open = HashSet::new();
        for number in fold.goals_with_open_thread().filter(|_| self.is_undoing) {
            let mut at = Some(number);
            while let Some(number) = at.filter(|number| open.insert(*number)) {
                at = self.graph.membership(number).map(|membership| membership.owner);
            }
        }
        open
    }

    /// Returns the numbers of the goals that failed at the end of the run. These are the goal whose
    /// failure ended the run, and the goals around it that were running then, such as loops. A run
    /// that has no output fails, too, and its failure names the last goal of the definition. This
    /// goal is not returned if it has not failed itself.
    fn failed_goals(&self, fold: &CallFold<'_>) -> HashSet<usize> {
        let mut failed = HashSet::new();
        let named = self.failed.as_ref().and_then(|goal| self.graph.number(goal));
        let has_ended_well =
            |number| matches!(fold.run().status(number).0, GoalPhase::Done | GoalPhase::Skipped);
        let mut at = named.filter(|number| !has_ended_well(*number));
        while let Some(number) = at.filter(|number| failed.insert(*number)) {
            let owner = self.graph.membership(number).map(|membership| membership.owner);
            // The owner may be a failed goal in whose place the goal ran.
            let fails_too = |owner: &usize| {
                let phase = fold.run().status(*owner).0;
                matches!(phase, GoalPhase::Cancelled | GoalPhase::Failed)
            };
            at = owner.filter(fails_too);
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::read_compiled::read_compiled;
    use super::*;
    use crate::clock::Time;
    use crate::envelope::{MessageKind, Payload};
    use crate::ids::{CallId, PayloadName};
    use crate::system;

    fn message(seq: u64, name: PayloadName, payload: &str) -> Message {
        let id = |number: u64| MessageId(Uuid::from_u128(number.into()));
        Message {
            id: id(seq),
            kind: MessageKind::System,
            from: ListenerName::core(),
            to: ListenerName::parse("tour").expect("it is a name"),
            thread: ThreadId::parse("sess-aaaaaaaa").expect("it is a thread"),
            seq,
            cause: None,
            call: Some(CallId(id(1))),
            time: Time(0),
            name,
            payload: Payload::new(payload),
        }
    }

    fn core(seq: u64, local: &str, attributes: &str, content: &str) -> Message {
        let namespace = system::NAMESPACE;
        let payload = format!("<{local} xmlns=\"{namespace}\" {attributes}>{content}</{local}>");
        message(seq, PayloadName::new(namespace, local), &payload)
    }

    fn ended(seq: u64, label: &str, status: &str, content: &str) -> Message {
        let attributes = format!("thread_id=\"sess-aaaaaaaa.{label}\" status=\"{status}\"");
        core(seq, "thread-result", &attributes, content)
    }

    #[test]
    fn a_goal_of_a_failed_run_is_running_until_its_thread_ends() {
        let goal = |id: &str| {
            format!(
                "<goal id=\"{id}\" retry=\"0\"><agent name=\"writer\"><prompt>x</prompt></agent>\
                 <output/><on-failure>undo</on-failure></goal>"
            )
        };
        let text = format!(
            "<workflow xmlns=\"https://xml-pipeline.org/ns/workflow/v1\" name=\"tour\"><description>\
             </description><input type=\"children\"/><output of=\"last-goal\"/><on-failure>stop\
             </on-failure><peer>writer</peer>{}{}</workflow>",
            goal("first"),
            goal("second"),
        );
        let definition = read_compiled(&text).expect("it is a compiled form");
        let (graph, _) = GoalGraph::new(&definition);
        let once = HashSet::new();
        let phases = |watch: &RunWatch<'_>| {
            watch.goals().into_iter().map(|goal| goal.phase).collect::<Vec<_>>()
        };

        for ends_first in [false, true] {
            let mut watch = RunWatch::new(&definition, &graph, &once);
            watch.take(&message(1, PayloadName::new("urn:test", "tour"), "<tour/>"));
            for (seq, label) in [(2, "first"), (3, "second")] {
                let opened = format!("assigned_id=\"sess-aaaaaaaa.{label}\"");
                watch.take(&core(seq, "thread-spawned", &opened, ""));
            }
            watch.take(&ended(4, "first", "failed", "<system-error code=\"crashed\"/>"));
            assert_eq!(phases(&watch), [GoalPhase::Failed, GoalPhase::Running]);
            if ends_first {
                watch.end();
            } else {
                watch.take(&ended(5, "second", "completed", "<report/>"));
            }
            assert_eq!(phases(&watch), [GoalPhase::Failed, GoalPhase::Cancelled], "{ends_first}");
        }
    }
}
