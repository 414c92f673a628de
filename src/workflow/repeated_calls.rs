//! Lists the completed calls that the retry of a recorded run would make again, without retrying
//! the run.

use std::collections::HashSet;
use std::sync::Arc;

use crate::contract::retry_name;
use crate::envelope::{Message, Payload};
use crate::ids::{CallId, ListenerName, ThreadId};

use super::begun_run::{BeginError, RunBasis};
use super::call_fold::{CallFold, UndoSource};
use super::calls_beneath::{CallEnd, NestedCall};
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_definition::RunRules;
use super::run_retry::RunRetry;
use super::run_state::GoalPhase;
use super::undo::plan;
use super::undo_plan::{RunChains, covered_calls, sent_again};

/// Completed calls that a retry would make again: all calls that one goal made to one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedCalls {
    /// The goal; `None` if the calls belong to an earlier run whose goals cannot be compared with
    /// those of the retry.
    pub goal: Option<GoalId>,
    pub listener: ListenerName,
    pub count: usize,
}

/// Lists the completed calls that `retry` would make again, although their listeners have
/// `attempts = 1`. Lists only calls that were not undone, in goals that begin anew. Includes the
/// calls of earlier runs, if the run itself is a retry, or if an operator has sent the request of an
/// earlier run again. If such a run has another definition or a redacted request, lists its calls
/// in all goals. Returns an empty list if the retry would fail at its beginning.
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
    let threads_of = |fold: &CallFold<'_>| -> Vec<(ThreadId, usize)> {
        let opened = fold.threads_after(0).filter_map(|(thread, goal, _)| Some((thread, goal?)));
        opened.filter(|(_, goal)| begins_anew(goal)).collect()
    };

    let mut threads = threads_of(&fold);
    let chains = RunChains::new(messages);
    let mut runs = chains.runs_of(request);
    let mut unclear = Vec::new();
    for other in sent_again(request, messages) {
        let retry = RunRetry { run: CallId(other.id), from: None, again: true };
        match basis.begin(&opening_of(&retry, other, messages), messages) {
            Ok(fold) => {
                threads.extend(threads_of(&fold));
                runs.extend(chains.runs_of(other));
            }
            // The run has another definition, or its request is redacted. So the goals of its calls
            // are not known, and each completed call may be made again.
            Err(_) => unclear.extend(chains.runs_of(other)),
        }
    }

    unclear.retain(|run| !runs.contains(run));
    if threads.is_empty() && unclear.is_empty() {
        return Ok(Vec::new());
    }
    let mut unclear_calls = HashSet::new();
    if !unclear.is_empty() {
        unclear_calls
            .extend(covered_calls(&unclear, messages, undo)?.into_iter().map(|call| call.id));
    }

    runs.extend(unclear);
    let mut repeated: Vec<RepeatedCalls> = Vec::new();
    for call in calls_in_effect(&runs, messages, undo)? {
        let found = threads.iter().find(|(thread, _)| call.thread.is_within(thread));
        let goal = found.and_then(|(_, goal)| graph.goal(*goal)).map(|goal| goal.id.value.clone());
        if goal.is_none() && !unclear_calls.contains(&call.id) {
            continue;
        }

        let mut known = repeated.iter_mut();
        match known.find(|known| known.goal == goal && known.listener == call.listener) {
            Some(known) => known.count += 1,
            None => repeated.push(RepeatedCalls { goal, listener: call.listener, count: 1 }),
        }
    }
    Ok(repeated)
}

/// Returns the completed calls beneath `runs` to listeners with `attempts = 1` that were not undone.
/// `messages` are all messages of the thread of the runs.
fn calls_in_effect(
    runs: &[CallId],
    messages: &[Arc<Message>],
    undo: UndoSource<'_>,
) -> Result<Vec<NestedCall>, String> {
    let mut calls = covered_calls(runs, messages, undo)?;
    let (targets, left) = plan(&calls, undo.rules);
    let targets = targets.into_iter().map(|target| target.call);
    let in_effect: HashSet<CallId> = targets.chain(left).map(|call| call.call).collect();
    calls.retain(|call| {
        let has_completed = matches!(call.end, CallEnd::Completed { .. });
        has_completed && undo.rules.is_once(&call.listener) && in_effect.contains(&call.id)
    });
    Ok(calls)
}

/// Makes the request with which `retry` would begin, as the next message of the thread.
fn opening_of(retry: &RunRetry, request: &Message, messages: &[Arc<Message>]) -> Message {
    let workflow = &request.to;
    let last = messages.iter().map(|message| message.seq).max().unwrap_or_default();
    let payload = Payload::new(retry.write(workflow).to_xml());
    Message { seq: last + 1, name: retry_name(workflow), payload, ..request.clone() }
}
