//! Lists the completed calls that the retry of a recorded run would make again, without retrying
//! the run.

use std::collections::HashSet;
use std::sync::Arc;

use crate::contract::retry_name;
use crate::envelope::{Message, Payload};
use crate::ids::{CallId, ListenerName, ThreadId};

use super::begun_run::{BeginError, RunBasis};
use super::call_fold::UndoSource;
use super::calls_beneath::CallEnd;
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_definition::RunRules;
use super::run_retry::RunRetry;
use super::run_state::GoalPhase;
use super::undo::plan;
use super::undo_plan::covered_calls;

/// Completed calls that a retry would make again: all calls that one goal made to one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedCalls {
    pub goal: GoalId,
    pub listener: ListenerName,
    pub count: usize,
}

/// Lists the completed calls that `retry` would make again, although their listeners have
/// `attempts = 1`. Lists only calls that were not undone, in goals that begin anew. Includes the
/// calls of earlier runs, if the run itself is a retry. Returns an empty list if the retry would
/// fail at its beginning.
///
/// `request` is the request of the run to retry, and `messages` are all messages of its thread.
/// `once` contains the listeners to which a call must not be repeated after a time-out.
///
/// # Errors
///
/// Returns the reason why the journal cannot be read.
pub fn repeated_calls(
    retry: &RunRetry,
    (definition, once): (&WorkflowDefinition, &HashSet<ListenerName>),
    (request, messages): (&Message, &[Arc<Message>]),
    undo: UndoSource<'_>,
) -> Result<Vec<RepeatedCalls>, String> {
    let (graph, _) = GoalGraph::new(definition);
    let graph = &graph;
    let rules = RunRules::Present;
    let basis = RunBasis { definition, graph, once, undo: Some(undo), rules };
    let opening = opening_of(retry, request, messages);
    let fold = match basis.begin(&opening, messages) {
        Ok(fold) => fold,
        Err(BeginError::Failed(_)) => return Ok(Vec::new()),
        Err(BeginError::Unreadable(reason)) => return Err(reason),
    };

    let begins_anew = |goal: &usize| {
        let (phase, ..) = fold.run().status(graph.outermost_owner(*goal));
        !matches!(phase, GoalPhase::Done | GoalPhase::Skipped)
    };
    let threads = fold.threads_after(0).filter_map(|(thread, goal, _)| Some((thread, goal?)));
    let threads: Vec<(ThreadId, usize)> = threads.filter(|(_, goal)| begins_anew(goal)).collect();
    if threads.is_empty() {
        return Ok(Vec::new());
    }

    let calls = covered_calls(request, messages, undo)?;
    let (targets, left) = plan(&calls, undo.rules);
    let targets = targets.into_iter().map(|target| target.call);
    let in_effect: HashSet<CallId> = targets.chain(left).map(|call| call.call).collect();
    let mut repeated: Vec<RepeatedCalls> = Vec::new();
    for call in calls {
        let has_completed = matches!(call.end, CallEnd::Completed { .. });
        if !has_completed || !undo.rules.is_once(&call.listener) || !in_effect.contains(&call.id) {
            continue;
        }
        let is_in = |thread: &ThreadId| call.thread.is_within(thread);
        let found = threads.iter().find(|(thread, _)| is_in(thread));
        let Some(goal) = found.and_then(|(_, goal)| graph.goal(*goal)) else { continue };
        let goal = &goal.id.value;
        let mut known = repeated.iter_mut();
        match known.find(|known| known.goal == *goal && known.listener == call.listener) {
            Some(known) => known.count += 1,
            None => {
                let goal = goal.clone();
                repeated.push(RepeatedCalls { goal, listener: call.listener, count: 1 });
            }
        }
    }
    Ok(repeated)
}

/// Makes the request with which `retry` would begin, as the next message of the thread.
fn opening_of(retry: &RunRetry, request: &Message, messages: &[Arc<Message>]) -> Message {
    let workflow = &request.to;
    let last = messages.iter().map(|message| message.seq).max().unwrap_or_default();
    let payload = Payload::new(retry.write(workflow).to_xml());
    Message { seq: last + 1, name: retry_name(workflow), payload, ..request.clone() }
}
