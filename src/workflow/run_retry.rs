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
use crate::system;
use crate::thread::Record;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::{GoalId, WorkflowDefinition};
use super::run_definition::is_definition_record;
use super::run_state::GoalFailure;
use super::undo_plan::RunChains;

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
    /// recorded in another tree. A call that a fork answered with a result from its source counts
    /// as handed over if the source handed it over.
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
    /// Whether the sender confirms that the work of an earlier retry of the same run may be done
    /// again.
    pub again: bool,
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
        let again = payload.as_ref().and_then(|payload| payload.attribute("again"));
        let again = again.is_some_and(|again| matches!(again.trim(), "true" | "1"));
        Some(Ok(Self { run: CallId(MessageId(run)), from, again }))
    }

    /// Builds the payload that requests this retry from `workflow`, the workflow of the earlier
    /// run.
    pub fn write(&self, workflow: &ListenerName) -> Element {
        let mut request = Element::new(QName::from(&retry_name(workflow)));
        request = request.with_attribute("run", self.run.0.to_string());
        if let Some(goal) = &self.from {
            request = request.with_attribute("from", goal.as_str());
        }
        if self.again {
            request = request.with_attribute("again", "true");
        }
        request
    }

    /// Refuses a retry that must not begin because of an earlier retry in the thread:
    /// - Without the confirmation `again`, no earlier request may have retried the same run.
    /// - No earlier request may be open whose run goes on from the same run as this retry. It may
    ///   yet undo calls whose results this retry would take over.
    ///
    /// `request` is the request for this retry, and `messages` are all messages of the thread. Must
    /// be called only before the retry begins, because the answer depends on messages after
    /// `request`.
    ///
    /// # Errors
    ///
    /// Fails if the retry must not begin.
    pub fn check_first(
        &self,
        request: &Message,
        messages: &[Arc<Message>],
    ) -> Result<(), GoalFailure> {
        if !self.again {
            self.check_unrepeated(request, messages)?;
        }

        // The thread may hold thousands of runs, so the ended ones are found in one pass.
        let earlier = || messages.iter().filter(|message| message.seq < request.seq);
        let results = earlier().filter(|message| is_part_of_result(message, &request.from));
        let ended: HashSet<_> = results.filter_map(|message| message.cause).collect();
        let mut open = earlier().filter(|other| {
            let is_alike = other.from == request.from && other.to == request.to;
            other.kind == MessageKind::Call && is_alike && !ended.contains(&other.id)
        });

        let chains = RunChains::new(messages);
        let runs = chains.runs_of(request);
        let goes_on =
            |other: &&Arc<Message>| chains.runs_of(other).iter().any(|run| runs.contains(run));
        match open.find(goes_on) {
            Some(open) => Err(retry_not_ended(open.id)),
            None => Ok(()),
        }
    }

    /// Refuses a retry of a run that an earlier request in the thread has already retried. Without
    /// this check, two commands of a client that retry a run at once would run its goals twice. If
    /// an operator sends an earlier request again, that earlier request does not count. A redacted
    /// request counts if it may have retried the run.
    ///
    /// # Errors
    ///
    /// Fails if another retry of the same run comes before `request`.
    fn check_unrepeated(
        &self,
        request: &Message,
        messages: &[Arc<Message>],
    ) -> Result<(), GoalFailure> {
        let repeated = retried_by_operators(request, messages);
        let mut run = self.run;
        let mut before = request.seq;
        loop {
            let mut others = earlier_retries(request, messages, run);
            if let Some(other) = others.find(|other| !repeated.contains(&other.id)) {
                return Err(already_retried(other.id));
            }
            let mut redacted = redacted_retries(request, messages, run);
            if let Some(other) = redacted.find(|other| !repeated.contains(&other.id)) {
                return Err(redacted_retry(other));
            }

            // A refused retry is no run of its own, so this retry goes on from the run before it.
            let opened = messages.iter().find(|message| message.id == run.0);
            let is_refused =
                |opened: &&Arc<Message>| opened.seq < before && !has_begun(opened, messages);
            let Some(refused) = opened.filter(is_refused) else { return Ok(()) };
            let Some(Ok(earlier)) = Self::read(refused, &refused.to) else { return Ok(()) };
            run = earlier.run;
            before = refused.seq;
        }
    }

    /// Refuses a retry that takes over results of a run with a redacted message. Without the
    /// payload of this message, the state of the run is not known, so the retry would run goals
    /// again that have ended. Also checks the runs whose results that run has taken over.
    ///
    /// `messages` are all messages of the thread. Only those with a number below `before`, the
    /// number of the request for this retry, count.
    ///
    /// # Errors
    ///
    /// Fails if a message that determines the state of such a run was redacted.
    pub fn check_unredacted(
        &self,
        before: u64,
        messages: &[Arc<Message>],
    ) -> Result<(), GoalFailure> {
        let mut run = self.run;
        let mut before = before;
        loop {
            let is_of_run =
                |message: &&Arc<Message>| message.call == Some(run) && message.seq < before;
            let mut of_run = messages.iter().filter(is_of_run);
            let Some(opened) = of_run.next() else { return Ok(()) };

            let mut all = [opened].into_iter().chain(of_run);
            let is_lost = |message: &&Arc<Message>| {
                let is_redacted = message.payload.is_redacted();
                message.to == opened.to && is_redacted && counts_in_run(message)
            };
            if let Some(redacted) = all.find(is_lost) {
                return Err(redacted_message(redacted));
            }

            let Some(Ok(earlier)) = Self::read(opened, &opened.to) else { return Ok(()) };
            // Another caller must not get the ids of messages of this run.
            if earlier.earlier_run(opened, messages).is_err() {
                return Ok(());
            }
            run = earlier.run;
            before = opened.seq;
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

        let result = before().find(|message| is_result(message, opened));
        let Some(result) = result.cloned() else {
            let reason = "the run has not ended; wait for its end, or cancel it";
            return Err(GoalFailure::new("run-not-ended", reason));
        };
        Ok(EarlierRun { messages: run, result })
    }
}

/// Whether `message` is a request for a retry, also one that was refused or redacted.
pub(super) fn is_retry(message: &Message) -> bool {
    message.kind == MessageKind::Call && message.name == retry_name(&message.to)
}

/// Returns the requests before `request` that retry `run` for the same caller. These are requests
/// that name `run`, and requests with which an operator sent the request of `run` again. Leaves out
/// requests that ended before they began a run, because these were refused.
fn earlier_retries<'m>(
    request: &'m Message,
    messages: &'m [Arc<Message>],
    run: CallId,
) -> impl Iterator<Item = &'m Arc<Message>> {
    let is_retry = move |message: &&Arc<Message>| {
        let is_earlier = message.kind == MessageKind::Call && message.seq < request.seq;
        let is_alike = message.from == request.from && message.to == request.to;
        if !is_earlier || !is_alike {
            return false;
        }

        let retry = RunRetry::read(message, &message.to);
        let is_named = retry.is_some_and(|retry| retry.is_ok_and(|retry| retry.run == run));
        is_named || retried_by_operators(message, messages).contains(&run.0)
    };
    let was_refused =
        |message: &Message| has_result(message, messages) && !has_begun(message, messages);
    messages.iter().filter(is_retry).filter(move |message| !was_refused(message))
}

/// Returns the requests after `run` and before `request` that began a run for the same caller, and
/// that may have retried `run`. Which run they retried is not known, because they were redacted, or
/// the note of the operator who sent a request again with them.
fn redacted_retries<'m>(
    request: &'m Message,
    messages: &'m [Arc<Message>],
    run: CallId,
) -> impl Iterator<Item = &'m Arc<Message>> {
    let opened = messages.iter().find(|message| message.id == run.0);
    let may_retry = move |message: &&Arc<Message>| {
        let is_after_run = opened.is_some_and(|opened| message.seq > opened.seq);
        let is_earlier = message.kind == MessageKind::Call && message.seq < request.seq;
        let is_alike = message.from == request.from && message.to == request.to;
        if !is_after_run || !is_earlier || !is_alike {
            return false;
        }

        let is_named_retry = message.name == retry_name(&message.to);
        let is_redacted_retry = is_named_retry && message.payload.is_redacted();
        let note = operator_note(message, messages);
        is_redacted_retry || note.is_some_and(|note| note.payload.is_redacted())
    };
    messages.iter().filter(may_retry).filter(|message| has_begun(message, messages))
}

/// Whether the run that `request` requests has recorded its definition.
fn has_begun(request: &Message, messages: &[Arc<Message>]) -> bool {
    let call = Some(CallId(request.id));
    let mut own = messages.iter().filter(|message| message.call == call);
    own.any(|message| is_definition_record(message, &request.to))
}

fn has_result(request: &Message, messages: &[Arc<Message>]) -> bool {
    let ends_call = |message: &Message| {
        message.kind == MessageKind::Reply || matches!(&*message.name.local, "ack" | "system-error")
    };
    messages.iter().any(|message| is_result(message, request) && ends_call(message))
}

/// Whether `message` is the result of the run that `request` requested, or a part of this result.
fn is_result(message: &Message, request: &Message) -> bool {
    message.cause == Some(request.id) && is_part_of_result(message, &request.from)
}

/// Whether `message` is the result of a run that `caller` requested, or a part of such a result.
fn is_part_of_result(message: &Message, caller: &ListenerName) -> bool {
    message.to == *caller && matches!(message.kind, MessageKind::Reply | MessageKind::System)
}

/// Returns the messages that operators have sent again with `request`, the latest first. The list
/// is empty if a client sent `request` itself.
pub(super) fn retried_by_operators(request: &Message, messages: &[Arc<Message>]) -> Vec<MessageId> {
    let by_id = |id: MessageId| messages.iter().find(|message| message.id == id);
    let mut retried = Vec::new();
    let mut latest = Some(request);
    while let Some(id) = latest.and_then(|latest| retried_by_operator(latest, messages)) {
        if retried.contains(&id) {
            break;
        }
        retried.push(id);
        latest = by_id(id).map(|message| &**message);
    }
    retried
}

/// Returns the message that an operator has sent again with `request`. Returns `None` if a client
/// sent `request` itself.
fn retried_by_operator(request: &Message, messages: &[Arc<Message>]) -> Option<MessageId> {
    let note = operator_note(request, messages)?;
    let note = Element::read(note.payload.as_str())?;
    let mut details = note.children().filter(|child| child.local_name() == "detail");
    let message = details.find(|detail| detail.attribute("name") == Some("message"))?;
    message.text().trim().parse().ok().map(MessageId)
}

/// Returns the note of the operator who sent `request`. Returns `None` if a client sent it.
fn operator_note<'m>(request: &Message, messages: &'m [Arc<Message>]) -> Option<&'m Arc<Message>> {
    let cause = request.cause?;
    let note = messages.iter().find(|message| message.id == cause)?;
    let is_of_core = *note.name.namespace == *system::NAMESPACE;
    (is_of_core && *note.name.local == *"operator-action").then_some(note)
}

/// Whether the payload of a message to a run determines the state of the run. That is so for all
/// messages but notices of the core, such as `waiting`.
fn counts_in_run(message: &Message) -> bool {
    let local = &*message.name.local;
    *message.name.namespace != *system::NAMESPACE
        || matches!(local, "thread-spawned" | "thread-result" | "huh" | "system-error")
}

fn redacted_message(message: &Message) -> GoalFailure {
    let reason = format!(
        "message {} ({}) of the earlier run was redacted, so the results of that run are not known, \
         and goals that have ended would run again; look at its calls with `organism thread {}`, \
         and send a new request in place of a retry",
        message.id, message.name.local, message.thread
    );
    GoalFailure::new("redacted", reason)
}

fn redacted_retry(other: &Message) -> GoalFailure {
    let reason = format!(
        "the request {} may have retried this run already, which is not known because it was \
         redacted, so no goal was run a second time; look at its calls with `organism thread {}`, \
         and confirm with again=\"true\" that completed calls may be made again",
        other.id, other.thread
    );
    GoalFailure::new("redacted", reason)
}

fn already_retried(other: MessageId) -> GoalFailure {
    let reason = format!(
        "the request {other} retries this run already, so no goal was run a second time; wait \
         for its end, and if it fails, retry it in turn with `organism workflow retry`"
    );
    GoalFailure::new("already-retried", reason)
}

fn retry_not_ended(other: MessageId) -> GoalFailure {
    let reason = format!(
        "the request {other} goes on from the same run and has not ended, so it may yet undo calls \
         of that run; wait for its end, or cancel it"
    );
    GoalFailure::new("run-not-ended", reason)
}

pub fn unknown_run() -> GoalFailure {
    let reason =
        "this thread holds no such run of the workflow; `organism workflow retry` finds it";
    GoalFailure::new("unknown-run", reason)
}

pub fn unknown_goal(goal: &str) -> GoalFailure {
    GoalFailure::new("unknown-goal", format!("the definition of the run has no goal `{goal}`"))
}
