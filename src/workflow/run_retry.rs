//! Retries: new runs that take over results of an ended run in the same thread.
//!
//! The request of a retry names the earlier run, and the goal that runs again first. The results
//! are not copied. Instead, the state of the new run is always computed from the messages of both
//! runs, those of the earlier run first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::contract::retry_name;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};
use crate::thread::Record;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::{GoalId, WorkflowDefinition};
use super::run_state::GoalFailure;

/// Access to those messages, definitions and records in the journal that a workflow run needs in
/// addition to the messages of its own call.
pub trait RunArchive: Send + Sync {
    /// Returns the messages of a thread, in their order.
    ///
    /// # Errors
    ///
    /// Returns the reason why the journal cannot be read.
    fn messages(&self, thread: &ThreadId) -> Result<Vec<Arc<Message>>, String>;

    /// Returns the definition whose compiled XML has the digest `digest`.
    ///
    /// # Errors
    ///
    /// Returns the reason why the journal does not hold the definition, or why this program cannot
    /// read it.
    fn definition(&self, digest: Digest) -> Result<Arc<WorkflowDefinition>, String>;

    /// Returns the records of one tree, oldest first. This is the tree that contains the record at
    /// the position `up_to`, which is the last record returned. The tree of a fork begins with the
    /// fork's history, whose records have the ids of the fork.
    ///
    /// # Errors
    ///
    /// Returns the reason why the journal cannot be read.
    fn tree_records(&self, up_to: Position) -> Result<Vec<Record>, String>;

    /// Returns the calls in `calls` that were handed over to their listeners. Reads the records of
    /// all trees from `from` to `up_to`, both included, because the hand-over of a call may be
    /// recorded in another tree. A call that a fork has answered with a result of the fork's source
    /// counts as handed over if the same call in the source was handed over.
    ///
    /// # Errors
    ///
    /// Returns the reason why the journal cannot be read.
    fn handed_over(
        &self,
        calls: &HashSet<CallId>,
        from: Position,
        up_to: Position,
    ) -> Result<HashSet<CallId>, String>;
}

/// A request to retry an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRetry {
    /// The call that began the earlier run.
    pub run: CallId,
    /// A goal that the retry runs again, with every goal that depends on it. In addition, the retry
    /// always runs every goal that has not ended, and every goal whose calls were undone.
    pub from: Option<GoalId>,
}

/// An ended run that is retried.
pub struct EarlierRun {
    /// All messages of the run's call, in their order.
    pub messages: Vec<Arc<Message>>,
    /// The first message of the run's result. The caller of the run got this result.
    pub result: Arc<Message>,
}

impl RunRetry {
    /// Reads a request as a request for a retry. Returns `None` if the request is no retry.
    ///
    /// # Errors
    ///
    /// Fails if the request names no valid run or goal.
    pub fn read(request: &Message, workflow: &ListenerName) -> Option<Result<Self, GoalFailure>> {
        if request.name != retry_name(workflow) {
            return None;
        }

        let payload = Element::read(request.payload.as_str());
        let run = payload.as_ref().and_then(|payload| payload.attribute("run")?.parse().ok());
        let Some(run) = run else { return Some(Err(unknown_run())) };
        let from = payload.as_ref().and_then(|payload| payload.attribute("from"));
        let from = match from.map(|text| (text, GoalId::parse(text))) {
            None => None,
            Some((_, Some(goal))) => Some(goal),
            Some((text, None)) => return Some(Err(unknown_goal(text))),
        };
        Some(Ok(Self { run: CallId(MessageId(run)), from }))
    }

    /// Builds the payload that requests this retry from `workflow`, the workflow of the earlier
    /// run.
    pub fn write(&self, workflow: &ListenerName) -> Element {
        let mut request = Element::new(QName::from(&retry_name(workflow)));
        request = request.with_attribute("run", self.run.0.to_string());
        match &self.from {
            Some(goal) => request.with_attribute("from", goal.as_str()),
            None => request,
        }
    }

    /// Returns the run that `request` retries. `messages` are all messages of the thread. The
    /// retried run must come before `request`.
    ///
    /// # Errors
    ///
    /// Fails if the thread has no such run of the same workflow and caller, or if the run
    /// has not ended.
    pub fn earlier_run(
        &self,
        request: &Message,
        messages: &[Arc<Message>],
    ) -> Result<EarlierRun, GoalFailure> {
        // Messages after the request, such as a late answer, may differ between two folds.
        let before = || messages.iter().filter(|message| message.seq < request.seq);
        let run: Vec<_> = before()
            .filter(|message| message.call == Some(self.run) && message.to == request.to)
            .cloned()
            .collect();
        let opened = run.first().ok_or_else(unknown_run)?;
        if opened.kind != MessageKind::Call || opened.from != request.from {
            return Err(unknown_run());
        }

        let result = before().find(|message| {
            message.to == request.from
                && message.cause == Some(opened.id)
                && matches!(message.kind, MessageKind::Reply | MessageKind::System)
        });
        let Some(result) = result.cloned() else {
            let reason = "the run has not ended; wait for its end, or cancel it";
            return Err(GoalFailure::new("run-not-ended", reason));
        };
        Ok(EarlierRun { messages: run, result })
    }
}

pub fn unknown_run() -> GoalFailure {
    let reason =
        "this thread holds no such run of the workflow; `organism workflow retry` finds it";
    GoalFailure::new("unknown-run", reason)
}

pub fn unknown_goal(goal: &str) -> GoalFailure {
    GoalFailure::new("unknown-goal", format!("the definition of the run has no goal `{goal}`"))
}
