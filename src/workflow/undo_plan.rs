//! Lists the calls that an undo of a recorded run would cover, without undoing them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::envelope::Message;
use crate::ids::{CallId, MessageId, ThreadId};
use crate::thread::Fact;

use super::call_fold::UndoSource;
use super::calls_beneath::{NestedCall, calls_beneath, undo_threads_of};
use super::run_retry::{RunRetry, is_retry, retried_by_operators};
use super::undo::{LeftCall, UndoTarget, mark_open_undos, plan};

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
    let calls = covered_calls(&RunChains::new(messages).runs_of(request), messages, undo)?;
    let (mut targets, mut left) = plan(&calls, undo.rules);
    targets.reverse();
    mark_open_undos(&mut left, &calls);
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
    let retries = messages.iter().filter(|message| is_retry(message));
    let others = retries.map(|retry| CallId(retry.id)).filter(|other| !runs.contains(other));
    let others: HashSet<_> = others.collect();
    let undos = undo_threads_of(&records, &others, &calls);
    if !undos.is_empty() {
        threads.extend(undos.iter().map(|(_, thread)| thread));
        calls = calls_beneath(&records, &threads, None).map(|(calls, _)| calls).unwrap_or(calls);
    }

    // Hand-overs to a busy listener may be recorded in other trees after the last record of this.
    undo.mark_handed_over(&mut calls, undo.up_to)?;
    Ok(calls)
}

/// The messages of a thread by their ids, to find the runs that a run goes on from.
pub(super) struct RunChains<'m> {
    messages: HashMap<MessageId, &'m Message>,
}

impl<'m> RunChains<'m> {
    /// `messages` are all messages of the thread.
    pub fn new(messages: &'m [Arc<Message>]) -> Self {
        Self { messages: messages.iter().map(|message| (message.id, &**message)).collect() }
    }

    /// Returns the message that requested `run`; `None` if the thread has no such message.
    fn request_of(&self, run: CallId) -> Option<&'m Message> {
        self.messages.get(&run.0).copied()
    }

    /// Returns the call of the run that `request` opened, and the calls of the runs that it
    /// retries, the latest first.
    pub fn runs_of(&self, request: &Message) -> Vec<CallId> {
        let mut runs = vec![CallId(request.id)];
        let mut request = request;
        while let Some(Ok(retry)) = RunRetry::read(request, &request.to) {
            let earlier = self.request_of(retry.run);
            let Some(earlier) = earlier.filter(|_| !runs.contains(&retry.run)) else { break };
            runs.push(retry.run);
            request = earlier;
        }
        runs
    }

    /// Whether `runs`, a result of [`Self::runs_of`], may lack runs, because the request of the
    /// last one is a retry that cannot be read. For example, it was redacted.
    pub fn is_cut_short(&self, runs: &[CallId]) -> bool {
        let last = runs.last().and_then(|run| self.request_of(*run));
        let retry = last.and_then(|request| RunRetry::read(request, &request.to));
        matches!(retry, Some(Err(_)))
    }
}

/// Returns the requests of earlier runs of which an operator has sent the request again. Begins with
/// the run that `request` opened, and with the runs that it retries. Leaves out these runs.
/// `messages` are all messages of the run's thread.
pub(super) fn sent_again<'m>(request: &Message, messages: &'m [Arc<Message>]) -> Vec<&'m Message> {
    let chains = RunChains::new(messages);
    let mut runs = chains.runs_of(request);
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(run) = runs.get(next) {
        next += 1;
        let Some(request) = chains.request_of(*run) else { continue };
        for earlier in retried_by_operators(request, messages).into_iter().map(CallId) {
            let original = chains.request_of(earlier);
            let Some(original) = original.filter(|_| !runs.contains(&earlier)) else { continue };
            found.push(original);
            runs.extend(chains.runs_of(original));
        }
    }
    found
}
