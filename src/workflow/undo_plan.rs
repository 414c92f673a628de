//! Lists the calls that an undo of a recorded run would cover, without undoing them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::envelope::Message;
use crate::ids::{CallId, ThreadId};
use crate::thread::Fact;

use super::call_fold::UndoSource;
use super::calls_beneath::{NestedCall, calls_beneath, undo_threads_of};
use super::run_retry::{RunRetry, retried_by_operators, retries_in};
use super::undo::{LeftCall, UndoTarget, plan};

/// The calls beneath a run that an undo of the run would cover.
#[derive(Debug, Clone, Default)]
pub struct PlannedUndo {
    /// The calls that an undo would take back, the newest first.
    pub targets: Vec<UndoTarget>,
    /// The calls whose effects an undo could not take back.
    pub left: Vec<LeftCall>,
}

/// Lists the calls that an undo of the run `request` would cover. Reads no record after the
/// position `undo.up_to`. If the run is a retry, includes the calls of the runs that it retries.
/// `messages` are all messages of the run's thread.
///
/// # Errors
///
/// Returns the reason why the journal cannot be read.
pub fn planned_undo(
    request: &Message,
    messages: &[Arc<Message>],
    undo: UndoSource<'_>,
) -> Result<PlannedUndo, String> {
    let calls = covered_calls(&runs_of(request, messages), messages, undo)?;
    let (mut targets, left) = plan(&calls, undo.rules);
    targets.reverse();
    Ok(PlannedUndo { targets, left })
}

/// Returns all calls beneath the runs that the calls `runs` began, in the order of their requests.
/// Includes the calls with which other retries in the same thread have undone such calls. All runs
/// must be of one thread, and `messages` are all its messages. Reads no record after the position
/// `undo.up_to`.
///
/// # Errors
///
/// Returns the reason why the journal cannot be read.
pub(super) fn covered_calls(
    runs: &[CallId],
    messages: &[Arc<Message>],
    undo: UndoSource<'_>,
) -> Result<Vec<NestedCall>, String> {
    let records = undo.archive.tree_records(undo.up_to)?;
    let facts = records.iter().flat_map(|record| &record.facts);
    let threads = facts.filter_map(|fact| match fact {
        Fact::ThreadOpened { thread, bound: Some(call), .. } if runs.contains(call) => Some(thread),
        _ => None,
    });
    let mut threads: Vec<&ThreadId> = threads.collect();
    let calls = calls_beneath(&records, &threads, None);
    let Some((mut calls, _)) = calls else { return Ok(Vec::new()) };
    let others: HashSet<_> = retries_in(messages).filter(|other| !runs.contains(other)).collect();
    let undos = undo_threads_of(&records, &others, &calls);
    if !undos.is_empty() {
        threads.extend(undos.iter().map(|(_, thread)| thread));
        calls = calls_beneath(&records, &threads, None).map(|(calls, _)| calls).unwrap_or(calls);
    }

    // Hand-overs to a busy listener may be recorded in other trees after the last record of this.
    undo.mark_handed_over(&mut calls, undo.up_to)?;
    Ok(calls)
}

/// Returns the call of the run that `request` opened, and the calls of the runs that it retries.
/// `messages` are all messages of the run's thread.
pub(super) fn runs_of(request: &Message, messages: &[Arc<Message>]) -> Vec<CallId> {
    let mut runs = vec![CallId(request.id)];
    let mut request = request;
    while let Some(Ok(retry)) = RunRetry::read(request, &request.to) {
        let earlier = messages.iter().find(|message| message.id == retry.run.0);
        let Some(earlier) = earlier.filter(|_| !runs.contains(&retry.run)) else { break };
        runs.push(retry.run);
        request = earlier;
    }
    runs
}

/// Returns the requests of earlier runs of which an operator has sent the request again. Begins with
/// the run that `request` opened, and with the runs that it retries. Leaves out these runs.
/// `messages` are all messages of the run's thread.
pub(super) fn sent_again<'m>(request: &Message, messages: &'m [Arc<Message>]) -> Vec<&'m Message> {
    let request_of = |run: CallId| messages.iter().find(|message| message.id == run.0);
    let mut runs = runs_of(request, messages);
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(run) = runs.get(next) {
        next += 1;
        let Some(request) = request_of(*run) else { continue };
        for earlier in retried_by_operators(request, messages).into_iter().map(CallId) {
            let Some(original) = request_of(earlier).filter(|_| !runs.contains(&earlier)) else {
                continue;
            };
            found.push(&**original);
            runs.extend(runs_of(original, messages));
        }
    }
    found
}
