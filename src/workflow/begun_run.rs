//! The state of a run at its beginning. It is computed from the request of the run. The state of a
//! retry also contains the results that the retry takes over from the earlier run.

use std::collections::HashSet;
use std::sync::Arc;

use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, ListenerName, MessageId};
use crate::thread::Record;

use super::call_fold::{CallFold, UndoSource};
use super::definition::{GoalId, WorkflowDefinition};
use super::graph::GoalGraph;
use super::run_clock::UncountedTimes;
use super::run_definition::{RunRules, stated_rules_of};
use super::run_retry::{self, EarlierRun, RunRetry, is_retry};
use super::run_state::GoalFailure;
use super::undo_plan::RunChains;

/// The data, apart from messages, from which the state of a new run is computed.
#[derive(Clone, Copy)]
pub(super) struct RunBasis<'a> {
    pub definition: &'a WorkflowDefinition,
    pub graph: &'a GoalGraph<'a>,
    /// Listeners to which a call must not be repeated after a time-out.
    pub once: &'a HashSet<ListenerName>,
    /// Data for the undo of earlier runs. With this data, a retry repeats the goals whose calls
    /// were undone. Without this data, the retry takes over the results of these goals.
    pub undo: Option<UndoSource<'a>>,
    /// The rules that the new run follows.
    pub rules: RunRules,
}

/// Why the state of a run cannot be computed.
pub(super) enum BeginError {
    /// The run itself fails for this reason.
    Failed(GoalFailure),
    /// The records of the earlier run could not be read.
    Unreadable(String),
}

impl From<GoalFailure> for BeginError {
    fn from(failure: GoalFailure) -> Self {
        Self::Failed(failure)
    }
}

pub(super) fn definition_changed() -> GoalFailure {
    let reason = "its record is of another definition; a run is not continued on a changed one";
    GoalFailure::new("definition-changed", reason)
}

/// Returns the calls of the retries before `request` that may have undone calls of `run`, or of a
/// run that `run` goes on from. Leaves out `run`, and the runs that it goes on from. `thread`
/// contains all messages of the thread.
fn other_retries(request: &Message, run: &EarlierRun, thread: &[Arc<Message>]) -> HashSet<CallId> {
    let chains = RunChains::new(thread);
    let runs = run.messages.first().map(|opened| chains.runs_of(opened)).unwrap_or_default();
    let runs: HashSet<_> = runs.into_iter().collect();

    // Only a retry for the same caller and workflow can go on from one of these runs.
    let others = thread.iter().filter(|other| {
        let is_alike = other.from == request.from && other.to == request.to;
        other.seq < request.seq && is_alike && is_retry(other)
    });
    let others = others.filter(|other| !runs.contains(&CallId(other.id)));
    let related = others.filter(|other| {
        let chain = chains.runs_of(other);
        chain.iter().any(|run| runs.contains(run)) || chains.is_cut_short(&chain)
    });
    related.map(|other| CallId(other.id)).collect()
}

impl<'a> RunBasis<'a> {
    /// Creates the state of the run that `request` begins, without data for an undo. The caller
    /// must then call [`CallFold::start`]. If `request` requests a retry, `thread` must contain all
    /// messages of the request's thread.
    pub fn begin(
        &self,
        request: &Message,
        thread: &[Arc<Message>],
    ) -> Result<CallFold<'a>, BeginError> {
        let Self { definition, graph, once, rules, .. } = *self;
        let Some(retry) = RunRetry::read(request, &definition.name.value).transpose()? else {
            let fold = CallFold::begun(definition, graph, once, request);
            let unreadable = || BeginError::Unreadable("the request is no XML".to_owned());
            let fold = fold.ok_or_else(unreadable)?;
            return Ok(fold.with_rules(rules));
        };

        let number = |goal: &GoalId| {
            graph.number(goal).ok_or_else(|| run_retry::unknown_goal(goal.as_str()))
        };
        let from = retry.from.as_ref().map(number).transpose()?;
        let run = retry.earlier_run(request, thread)?;
        let unhandled = self.unhandled(&run)?;
        let ended = |uncounted| self.ended(&run.messages, &unhandled, thread, uncounted);
        let mut fold = ended(UncountedTimes::Unknown)?;
        if fold.is_foreign() {
            // The time of the run was over at a message that reports no time-out. So all of its
            // time counted.
            fold = ended(UncountedTimes::None)?;
        }

        // A goal whose calls were undone no longer has a result, so it runs again.
        let mut again = fold.undone_goals();
        if rules > RunRules::BeforeCore72 {
            again.extend(fold.take_undos_of(&other_retries(request, &run, thread)));
        }
        again.extend(from);
        if let Some(problem) = fold.unread() {
            return Err(BeginError::Unreadable(problem.to_owned()));
        }
        if fold.is_foreign() {
            return Err(definition_changed().into());
        }

        let (state, threads) = fold.into_parts();
        let earlier = (state.taken_over(graph, &again), threads);
        let fold = CallFold::taking_over(definition, graph, once, request, earlier);
        Ok(fold.with_rules(rules))
    }

    /// Returns the ids of the messages that an ended run did not handle, because its call ended
    /// before. May also contain ids of messages of other calls. If the new run follows
    /// [`RunRules::UnhandledFailures`] or earlier rules, returns an empty set, so that all messages
    /// count as handled.
    fn unhandled(&self, run: &EarlierRun) -> Result<HashSet<MessageId>, BeginError> {
        if self.rules <= RunRules::UnhandledFailures {
            return Ok(HashSet::new());
        }

        let EarlierRun { messages, result } = run;
        let late = messages.iter().filter(|message| message.seq > result.seq);
        let mut unhandled: HashSet<_> = late.map(|message| message.id).collect();
        // After a reply of the run itself, earlier messages can no longer have an effect.
        if let Some(undo) = self.undo.filter(|_| result.kind == MessageKind::System) {
            let records = undo.archive.tree_records(undo.up_to).map_err(BeginError::Unreadable)?;
            unhandled.extend(records.iter().flat_map(Record::unhandled_messages));
        }
        Ok(unhandled)
    }

    /// Computes the state of an ended run from all its messages. `unhandled` contains those that
    /// the run did not handle.
    fn ended(
        &self,
        run: &[Arc<Message>],
        unhandled: &HashSet<MessageId>,
        thread: &[Arc<Message>],
        uncounted: UncountedTimes<'a>,
    ) -> Result<CallFold<'a>, BeginError> {
        let (opened, rest) = run.split_first().ok_or_else(run_retry::unknown_run)?;
        // A run without an outcome states no rules. It follows those of the run that goes on from
        // it, which may be earlier than the present ones.
        let basis = Self { rules: stated_rules_of(run).unwrap_or(self.rules), ..*self };
        let mut fold = basis.begin(opened, thread)?.with_uncounted(uncounted);
        if let Some(undo) = self.undo {
            fold = fold.with_undo(undo);
        }

        fold.start();
        for message in rest {
            if unhandled.contains(&message.id) {
                fold.take_unhandled(message);
            } else {
                fold.take(message);
            }
        }
        Ok(fold)
    }
}
