//! Builds the state of a workflow run from the messages of the run's call, one message after
//! another.
//!
//! Each goal runs in a thread of its own. The run requests these threads from the core, the part of
//! the pump that sends system payloads. The core answers the requests in order: the n-th answer
//! belongs to the n-th request, even if the answers arrive in different deliveries.

mod kept_threads;
mod other_undos;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::contract::goal_answer;
use crate::envelope::Message;
use crate::ids::{ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::mutant::mutant;
use crate::system::{self, ThreadStatus};
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::calls_beneath::{NestedCall, calls_beneath, update_hand_overs};
use super::definition::{FailurePolicy, WorkflowDefinition};
use super::graph::GoalGraph;
use super::payloads;
use super::retry_rules::{FailedCall, RetryRules};
use super::run_clock::{RunClock, UncountedTimes, has_timed_out};
use super::run_definition::{RetryRecord, RunRules, recorded_retries};
use super::run_retry::RunArchive;
use super::run_state::{GoalFailure, GoalRun, RunEvent, RunState, RunStep, WorkflowRun};
use super::shapes::is_label_of;
use super::undo::{RunUndo, UndoRules, UndoStep, undone_call};
use super::view::ViewValue;

/// A request that a workflow run sends to the core of the pump, or the result of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunRequest {
    /// The run requests a new thread, or it ends.
    Step(Box<RunStep>),
    /// The run requests the cancellation of this thread.
    CancelThread(ThreadId),
    /// The run requests the next action of its undo. The undo takes back the completed calls of the
    /// failed run.
    Undo(UndoStep),
}

/// The requested, open and ended threads of a run, with the run's clock and undo.
#[derive(Debug, Clone, Default)]
pub struct RunThreads {
    /// The goal runs whose requested threads are not open yet, in the order of the requests. Each
    /// goal run has the label of its thread.
    requested: VecDeque<(GoalRun, String)>,
    /// The thread that was opened last: the id of the message that requested the thread, and the
    /// goal run in the thread. `None` if no thread was opened yet, or if the core has refused a
    /// request of the run since then.
    opened: Option<(MessageId, GoalRun)>,
    runs: HashMap<ThreadId, GoalRun>,
    /// Goal runs whose threads the run must cancel as soon as these threads are open.
    unwanted: HashSet<GoalRun>,
    /// Whether the core opened a thread that this run had not requested. If so, the messages belong
    /// to a run of another definition, because a definition always leads to the same requests.
    is_foreign: bool,
    clock: RunClock,
    /// Id of the latest message that the core sent to the run; `None` before the first one.
    latest: Option<MessageId>,
    /// Every thread that this run has opened, in order. If this run is a retry, the list begins
    /// with the threads that the earlier runs opened.
    all: Vec<OpenedThread>,
    /// Number of threads at the beginning of `all` that earlier runs have opened; 0 if this run is
    /// no retry.
    earlier: usize,
    /// The undo that takes back calls of the failed run; `None` if no undo has begun.
    undo: Option<RunUndo>,
    /// Restrictions of retries, as the run has recorded them. The key is the sequence number of the
    /// message that records the restrictions. The restrictions apply only to messages with higher
    /// sequence numbers. In a delivery, messages with lower numbers may come after that message.
    retry_records: BTreeMap<u64, RetryRecord>,
    /// Whether all goals have ended, and the run has sent its output.
    has_completed: bool,
}

/// A thread that was opened for a run.
#[derive(Debug, Clone)]
struct OpenedThread {
    thread: ThreadId,
    /// Number of the thread's goal; `None` for a thread that undoes a call.
    goal: Option<usize>,
    /// Whether a later run did not take over the result of the goal. The goal has then run again in
    /// another thread, or will run again.
    is_superseded: bool,
}

impl OpenedThread {
    fn new(thread: ThreadId, goal: Option<usize>) -> Self {
        Self { thread, goal, is_superseded: false }
    }
}

/// The undo rules, and the journal records that an undo needs in addition to the messages of the
/// run's call.
#[derive(Clone, Copy)]
pub struct UndoSource<'a> {
    pub rules: &'a UndoRules,
    pub archive: &'a dyn RunArchive,
    /// Last position in the run's tree that may be read.
    pub up_to: Position,
}

/// The records in which the hand-overs of the calls beneath a run are searched.
#[derive(Clone, Copy)]
enum HandOverRecords {
    /// The records of the run's own tree, up to the latest message. `was_handed_over` is false for
    /// a call whose hand-over is recorded in another tree.
    OwnTree,
    /// The records of all trees, up to the latest message.
    AllTrees,
    /// The records of all trees, up to the last one that may be read. Holds are searched in these
    /// records, too.
    Present,
}

impl UndoSource<'_> {
    /// Sets `was_handed_over` for calls whose hand-over is recorded in another tree. This happens
    /// if the listener is busy with a call of the other tree, and becomes free when that call ends.
    /// Checks only calls for which [`UndoRules::depends_on_hand_over`] returns true. Does not find
    /// the hand-over of a call that a fork has reopened, because the records contain the ids of the
    /// fork's source.
    pub(super) fn mark_handed_over(
        &self,
        calls: &mut [NestedCall],
        up_to: Position,
    ) -> Result<(), String> {
        let is_unsure =
            |call: &&NestedCall| !call.was_handed_over && self.rules.depends_on_hand_over(call);
        let unsure: Vec<_> = calls.iter().filter(is_unsure).collect();
        let Some(from) = unsure.iter().map(|call| call.opened).min() else { return Ok(()) };
        if mutant("overlook-handovers") {
            return Ok(());
        }

        let ids = unsure.iter().map(|call| call.id).collect();
        let handed_over = self.archive.handed_over(&ids, from, up_to)?;
        for call in calls.iter_mut().filter(|call| handed_over.contains(&call.id)) {
            call.was_handed_over = true;
        }
        Ok(())
    }
}

/// The state of a workflow run, computed from the messages that its call has received so far.
pub struct CallFold<'a> {
    definition: &'a WorkflowDefinition,
    /// Listeners to which a call must not be repeated after a time-out, according to the present
    /// contracts. Used only while the run has recorded no such listeners.
    once: &'a HashSet<ListenerName>,
    run: WorkflowRun<'a>,
    threads: RunThreads,
    /// Data for the undo of a failed run. `None` if the caller only observes the run. Without the
    /// data, nothing is undone, and the run is over as soon as it has failed.
    undo: Option<UndoSource<'a>>,
    uncounted: UncountedTimes<'a>,
    /// Reason why the records for an undo could not be read, if reading them failed.
    unread: Option<String>,
}

impl<'a> CallFold<'a> {
    /// Creates the state of a run that has received only its request. The caller must then call
    /// [`CallFold::start`]. Returns `None` if the request is no XML.
    pub fn begun(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
        request: &Message,
    ) -> Option<Self> {
        let mut input = Element::read_document(request.payload.as_str())?;
        // The input is kept until the run is over.
        input.shrink_to_fit();
        let run = WorkflowRun::new(definition, graph, input);
        let clock = RunClock::start(request.time);
        let threads = RunThreads { clock, latest: Some(request.id), ..RunThreads::default() };
        Some(Self::resumed(definition, graph, once, (run.into_state(), threads)))
    }

    /// Creates the state of a retry from its request, and from the state and the threads of the
    /// earlier run. The caller must then call [`CallFold::start`].
    pub fn taking_over(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
        request: &Message,
        (state, RunThreads { all, .. }): (RunState, RunThreads),
    ) -> Self {
        let clock = RunClock::start(request.time);
        let latest = Some(request.id);
        let earlier = all.len();
        let threads = RunThreads { clock, latest, all, earlier, ..RunThreads::default() };
        let mut fold = Self::resumed(definition, graph, once, (state, threads));
        fold.mark_superseded(graph);
        fold
    }

    /// Restores a run from the parts that [`CallFold::into_parts`] returned after an earlier
    /// delivery of the run's call.
    pub fn resumed(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
        (state, threads): (RunState, RunThreads),
    ) -> Self {
        let run = WorkflowRun::resumed(definition, graph, state);
        Self {
            definition,
            once,
            run,
            threads,
            undo: None,
            uncounted: UncountedTimes::None,
            unread: None,
        }
    }

    pub fn into_parts(mut self) -> (RunState, RunThreads) {
        // The parts are kept until the next delivery. Most runs then wait only for open threads, so
        // the list of requested threads needs no spare room.
        self.threads.requested.shrink_to_fit();
        (self.run.into_state(), self.threads)
    }

    pub fn run(&self) -> &WorkflowRun<'a> {
        &self.run
    }

    /// Returns the listeners to which the run must not repeat a call after a time-out, according to
    /// the run's latest record of these listeners. Returns `None` if there is no such record.
    pub fn recorded_once(&self) -> Option<&BTreeSet<ListenerName>> {
        self.threads.retry_records.values().next_back().map(|record| &record.once)
    }

    /// Returns the threads that the run opened, in order, without the first `known` ones. Each
    /// thread comes with two numbers:
    /// - the number of its goal, or `None` if the thread undoes a call;
    /// - the number of the goal run's attempt, from 1, which is correct only for an open thread.
    ///   For an ended thread, it is always 1.
    pub fn threads_after(
        &self,
        known: usize,
    ) -> impl Iterator<Item = (ThreadId, Option<usize>, u32)> {
        let opened = self.threads.all.iter().skip(known);
        opened.map(|opened| {
            let run = self.threads.runs.get(&opened.thread);
            (opened.thread.clone(), opened.goal, run.map_or(1, |run| run.attempt))
        })
    }

    /// Returns the numbers of the goals for which a thread is open.
    pub fn goals_with_open_thread(&self) -> impl Iterator<Item = usize> {
        self.threads.runs.values().map(|run| run.goal)
    }

    /// Whether the run and its undo, if it has one, are over.
    pub fn is_over(&self) -> bool {
        self.run.is_over() && self.threads.undo.as_ref().is_none_or(RunUndo::is_over)
    }

    /// Enables the undo of calls after a failure of the run. Only the handler of the workflow may
    /// call this function, because an observer must undo nothing.
    #[must_use]
    pub fn with_undo(mut self, undo: UndoSource<'a>) -> Self {
        self.undo = Some(undo);
        self
    }

    /// Sets the rules that the run follows. By default, it follows the present rules.
    #[must_use]
    pub fn with_rules(mut self, rules: RunRules) -> Self {
        self.run.set_rules(rules);
        self
    }

    /// Sets which times do not count against the time limit of the run. By default, all time
    /// counts.
    #[must_use]
    pub fn with_uncounted(mut self, uncounted: UncountedTimes<'a>) -> Self {
        self.uncounted = uncounted;
        self
    }

    /// Returns the reason why the records for an undo could not be read, if reading them failed.
    /// After such an error, the requests returned so far are incomplete.
    pub fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }

    /// Whether the messages that were applied so far can belong to a run of this definition.
    pub fn fits(&self) -> bool {
        !self.threads.is_foreign && (self.run.is_over() || self.run.has_open())
    }

    /// Whether the core opened a thread that this run had not requested. If so, the messages belong
    /// to a run of another definition, because a definition always leads to the same requests.
    pub fn is_foreign(&self) -> bool {
        self.threads.is_foreign
    }

    /// Starts the run, and returns its first requests.
    pub fn start(&mut self) -> Vec<RunRequest> {
        let mut requests = self.apply(RunEvent::Started);
        requests.extend(self.begin_undo());
        requests
    }

    /// Applies a message of the run's call. The message must not be the request of the call.
    /// Returns the requests that the run sends to the core because of this message.
    pub fn take(&mut self, message: &Message) -> Vec<RunRequest> {
        if let Some(record) = recorded_retries(message, &self.definition.name.value) {
            self.threads.retry_records.insert(message.seq, record);
            return Vec::new();
        }
        if *message.name.namespace != *system::NAMESPACE {
            return Vec::new();
        }

        self.threads.latest = Some(message.id);
        self.threads.clock.advance(message.time, self.uncounted);
        if let Some(undo) = self.threads.undo.as_mut().filter(|undo| !undo.is_settling()) {
            let step = undo.take(message, self.definition.report_to.is_some());
            let is_opened = *message.name.local == *"thread-spawned";
            let thread = undo.thread().filter(|_| is_opened).cloned();
            self.threads.all.extend(thread.map(|thread| OpenedThread::new(thread, None)));
            return step.map(RunRequest::Undo).into_iter().collect();
        }

        let mut requests = self.take_of_goals(message);
        requests.extend(self.begin_undo());
        requests
    }

    /// Applies a message of the run's call that the run did not handle before its call ended. The
    /// run has applied no failure policy because of the message. So if the message makes a goal
    /// fail, such as a loop after its last pass, this goal stays under way.
    pub fn take_unhandled(&mut self, message: &Message) {
        self.run.set_ignores_failures(true);
        self.take(message);
        self.run.set_ignores_failures(false);
    }

    /// Ends a run whose call has ended. Goals that are under way count as cancelled.
    pub fn abandon(&mut self) {
        self.run.abandon();
    }

    fn take_of_goals(&mut self, message: &Message) -> Vec<RunRequest> {
        if let Some(limit) = self.time_over(message) {
            let mut requests = self.take_thread(message);
            requests.extend(self.apply(RunEvent::TimeOver { limit }));
            return requests;
        }

        match &*message.name.local {
            "thread-spawned" => self.opened(message),
            "thread-result" => self.result(message),
            "huh" | "system-error" => self.refused(message),
            _ => Vec::new(),
        }
    }

    /// Returns the time limit of the run if the run has reached this limit at the time of
    /// `message`. Returns `None` if the run has not reached its limit, and in these cases:
    /// - The run has no limit, or is over.
    /// - Failures have no effect on the run's goals at present.
    ///
    /// If it is unknown which time does not count, all time of the run counts. The run then reaches
    /// its limit only if `message` is the result of a thread that has timed out.
    fn time_over(&self, message: &Message) -> Option<Duration> {
        let limit = self.definition.timeout?;
        let can_end = !self.run.is_over() && !self.run.ignores_failures();
        let is_over = self.threads.clock.elapsed() >= limit && can_end;
        let is_known = !matches!(self.uncounted, UncountedTimes::Unknown);
        (is_over && (is_known || has_timed_out(message))).then_some(limit)
    }

    /// Adds or removes threads of the run because of a message, without any effect on the goals. If
    /// the message opened a thread that the run no longer needs, returns a request to cancel this
    /// thread.
    fn take_thread(&mut self, message: &Message) -> Vec<RunRequest> {
        let element = Element::read_document(message.payload.as_str());
        match &*message.name.local {
            "thread-spawned" => return self.opened(message),
            "thread-result" => drop(element.and_then(|element| self.ended_run(&element))),
            "huh" | "system-error" => drop(self.refused_run(message, element.as_ref())),
            _ => {}
        }
        Vec::new()
    }

    fn requests(&mut self, steps: Vec<RunStep>) -> Vec<RunRequest> {
        let mut requests = Vec::new();
        let kept = self.undone_calls_under_way(&steps);
        for step in steps {
            match step {
                RunStep::Cancel { run } if kept.contains(&run) => {}
                RunStep::Fail { goal, failure, is_undone: true } if self.undo.is_some() => {
                    self.threads.undo = Some(RunUndo::new(goal, failure));
                }
                RunStep::Cancel { run } => {
                    let thread = self.threads.runs.iter().find(|(_, known)| **known == run);
                    match thread.map(|(thread, _)| thread.clone()) {
                        Some(thread) => requests.push(RunRequest::CancelThread(thread)),
                        None => {
                            self.threads.unwanted.insert(run);
                        }
                    }
                }
                mut step => {
                    self.threads.has_completed |= matches!(step, RunStep::Complete { .. });
                    if let RunStep::Start { run, label, limits, .. } = &mut step {
                        self.threads.requested.push_back((run.clone(), label.clone()));
                        // Each thread gets at most the time that the run has left, so that the run
                        // ends in time without a timer of its own.
                        let left = self.definition.timeout;
                        let left = left.map(|all| all.saturating_sub(self.threads.clock.elapsed()));
                        limits.timeout = limits.timeout.into_iter().chain(left).min();
                    }
                    requests.push(RunRequest::Step(Box::new(step)));
                }
            }
        }

        requests
    }

    /// Returns the calls beneath the run, up to the latest message. `hand_overs` selects the
    /// records in which the hand-overs of these calls to their listeners are searched.
    fn calls(&mut self, hand_overs: HandOverRecords) -> Vec<NestedCall> {
        let latest = self.threads.latest.filter(|_| !self.threads.all.is_empty());
        let (Some(undo), Some(latest)) = (self.undo, latest) else { return Vec::new() };
        let threads: Vec<_> = self.threads.all.iter().map(|opened| &opened.thread).collect();
        let found = undo.archive.tree_records(undo.up_to).and_then(|records| {
            let calls = calls_beneath(&records, &threads, Some(latest));
            let missing = || format!("the record of the run does not hold message {latest}");
            let (mut calls, up_to) = calls.ok_or_else(missing)?;
            match hand_overs {
                HandOverRecords::OwnTree => {}
                HandOverRecords::AllTrees => undo.mark_handed_over(&mut calls, up_to)?,
                HandOverRecords::Present => {
                    update_hand_overs(&mut calls, &records, &threads);
                    undo.mark_handed_over(&mut calls, undo.up_to)?;
                }
            }
            Ok(calls)
        });
        found.unwrap_or_else(|problem| {
            self.unread = Some(problem);
            Vec::new()
        })
    }

    /// Returns the numbers of the goals beneath which this run has undone a call, or has tried to
    /// undo a call.
    pub fn undone_goals(&mut self) -> Vec<usize> {
        let own = self.threads.all.get(self.threads.earlier..).unwrap_or_default();
        let undoing = own.iter().filter(|opened| opened.goal.is_none());
        let undone: HashSet<_> =
            undoing.filter_map(|opened| undone_call(opened.thread.label())).collect();
        if undone.is_empty() {
            return Vec::new();
        }

        let calls = self.calls(HandOverRecords::OwnTree);
        let undone = calls.iter().filter(|call| undone.contains(&call.id));
        let goals = undone.flat_map(|call| {
            let holds = |opened: &&OpenedThread| call.thread.is_within(&opened.thread);
            self.threads.all.iter().filter(holds).filter_map(|opened| opened.goal)
        });
        goals.collect()
    }

    /// Begins the undo of a failed run, if the run must be undone and all its threads have ended.
    /// Returns the first request of the undo. Returns `None` if the undo does not begin now.
    fn begin_undo(&mut self) -> Option<RunRequest> {
        let is_quiet = self.threads.runs.is_empty() && self.threads.requested.is_empty();
        let rules = self.undo.filter(|_| is_quiet && self.is_settling())?.rules;
        let calls = self.calls(HandOverRecords::AllTrees);
        let undo = self.threads.undo.as_mut()?;
        undo.begin(&calls, rules, self.definition.report_to.is_some()).map(RunRequest::Undo)
    }

    fn opened(&mut self, message: &Message) -> Vec<RunRequest> {
        let element = Element::read_document(message.payload.as_str());
        let thread =
            element.and_then(|element| ThreadId::parse(element.attribute("assigned_id")?).ok());
        let requested = self.threads.requested.pop_front();
        let (thread, run) = match (thread, requested) {
            (Some(thread), Some((run, label))) if is_label_of(thread.label(), &label) => {
                (thread, run)
            }
            // Earlier versions requested further threads after the failure of a run.
            (Some(thread), _) if self.is_settling() => {
                self.threads.all.push(OpenedThread::new(thread.clone(), None));
                return vec![RunRequest::CancelThread(thread)];
            }
            _ => {
                self.threads.is_foreign = true;
                return Vec::new();
            }
        };

        self.threads.opened = message.cause.map(|request| (request, run.clone()));
        let is_unwanted = self.threads.unwanted.remove(&run);
        self.threads.all.push(OpenedThread::new(thread.clone(), Some(run.goal)));
        self.threads.runs.insert(thread.clone(), run);
        if is_unwanted { vec![RunRequest::CancelThread(thread)] } else { Vec::new() }
    }

    /// Handles a refusal by the core. If the core refused a thread, or the first payload in a
    /// thread, the goal run of this thread fails. If the core refused the output of the run, the
    /// run fails.
    fn refused(&mut self, message: &Message) -> Vec<RunRequest> {
        let element = Element::read_document(message.payload.as_str());
        let Some(run) = self.refused_run(message, element.as_ref()) else {
            return self.refused_output(message);
        };
        let failure = failure_of(&element.unwrap_or_else(|| Element::local("system-error")));
        let is_final = !matches!(failure.code.as_str(), "busy" | "limit-reached");
        self.apply(RunEvent::Failed { run, failure, is_final })
    }

    /// Removes and returns the goal run that a refusal concerns. A refusal concerns a goal run if
    /// the core refused the thread of this goal run, or the first call in this thread. Returns
    /// `None` for any other refusal.
    fn refused_run(&mut self, message: &Message, refusal: Option<&Element>) -> Option<GoalRun> {
        let about = refusal.and_then(|refusal| refusal.attribute("about"));
        let run = match (&message.cause, self.threads.opened.take()) {
            (Some(cause), Some((request, run))) if *cause == request => {
                self.threads.runs.retain(|_, opened| *opened != run);
                Some(run)
            }
            // A refused wait has no effect: it only means that nothing was open.
            (Some(_), _) if about != Some("spawn-thread") => {
                if about == Some("wait") && self.is_settling() {
                    self.threads.runs.clear();
                    self.threads.requested.clear();
                }
                None
            }
            // The refusal is about the output. A request beside an output was not sent.
            (None, _) if self.threads.has_completed && about != Some("spawn-thread") => None,
            _ => self.threads.requested.pop_front().map(|(run, _)| run),
        };
        self.threads.unwanted.remove(run.as_ref()?);
        run
    }

    /// Handles the core's refusal of the output of a completed run. If the run undoes its calls
    /// after a failure, begins this undo, and returns requests that cancel the run's open threads.
    /// Otherwise, returns no requests, and the handler replies with the failure.
    fn refused_output(&mut self, message: &Message) -> Vec<RunRequest> {
        let can_undo = self.undo.is_some() && self.threads.undo.is_none();
        let is_undone = can_undo && self.definition.on_failure == FailurePolicy::Undo;
        let goal = self.definition.goals.last().filter(|_| self.threads.has_completed && is_undone);
        let refusal = payloads::refusal_of(message).filter(|_| message.cause.is_none());
        let (Some(goal), Some(refusal)) = (goal, refusal) else { return Vec::new() };
        // The requests beside the output were not sent, so the core answers none of them.
        self.threads.requested.clear();
        self.threads.unwanted.clear();
        let goal = goal.id.value.clone();
        let failure = payloads::reply_refused(refusal);
        let mut open: Vec<_> = self.threads.runs.values().cloned().collect();
        open.sort();
        let cancels = open.into_iter().map(|run| RunStep::Cancel { run });
        let steps = cancels.chain([RunStep::Fail { goal, failure, is_undone }]).collect();
        self.requests(steps)
    }

    fn result(&mut self, message: &Message) -> Vec<RunRequest> {
        let Some(element) = Element::read_document(message.payload.as_str()) else {
            return Vec::new();
        };
        let run = self.ended_run(&element);
        let status = element.attribute("status").and_then(ThreadStatus::parse);
        let (Some(run), Some(status)) = (run, status) else { return Vec::new() };
        let payloads = payloads::payloads_of(&element, message.payload.as_str());
        let records = self.threads.retry_records.range(..message.seq).map(|(_, record)| record);
        let rules = RetryRules::new(self.definition, self.once, records);
        let event = self.event(run, status, &payloads, &rules);
        self.apply(event)
    }

    /// Applies an event of the run. Returns the requests that the run sends because of it.
    fn apply(&mut self, event: RunEvent) -> Vec<RunRequest> {
        let steps = self.run.step(event);
        self.requests(steps)
    }

    /// Removes and returns the goal run whose thread ended with `result`. Returns `None` if no goal
    /// run has the thread that `result` names.
    fn ended_run(&mut self, result: &Element) -> Option<GoalRun> {
        let thread = ThreadId::parse(result.attribute("thread_id")?).ok()?;
        self.threads.runs.remove(&thread)
    }

    /// Whether the run has failed and will undo calls, but some of its threads have not ended.
    pub fn is_settling(&self) -> bool {
        self.threads.undo.as_ref().is_some_and(RunUndo::is_settling)
    }

    fn event(
        &self,
        run: GoalRun,
        status: ThreadStatus,
        payloads: &[Element],
        rules: &RetryRules<'_>,
    ) -> RunEvent {
        let nothing = Element::local(NOTHING);
        // One failed payload among several fails the whole reply.
        let failed = payloads.iter().find(|payload| is_failed(payload));
        let payload = failed.or(payloads.first()).unwrap_or(&nothing);

        match status {
            ThreadStatus::Completed if !is_failed(payload) && payloads.len() > 1 => {
                let count = payloads.len();
                let reason =
                    format!("its reply has {count} payloads, and the output of a goal is one");
                let failure = GoalFailure::new("several-payloads", reason);
                RunEvent::Failed { run, failure, is_final: true }
            }
            ThreadStatus::Completed if self.is_answer(&run, payload) || !is_failed(payload) => {
                RunEvent::Completed { run, output: output_of(payload) }
            }
            ThreadStatus::Cancelled => {
                let failure = GoalFailure::new("cancelled", "its thread was cancelled");
                RunEvent::Failed { run, failure, is_final: true }
            }
            ThreadStatus::Completed | ThreadStatus::Failed => {
                let failure = failure_of(payload);
                let call = FailedCall { status, payload, code: &failure.code };
                let is_final = rules.is_final(&run, self.run.subject(&run), &call);
                let is_own_code = call.has_own_code();
                let failure = GoalFailure { is_own_code, ..failure };
                RunEvent::Failed { run, failure, is_final }
            }
        }
    }

    /// Whether `payload` is the typed output of a goal run. Such a payload is no failure, even if
    /// its name is one of the names for failures.
    fn is_answer(&self, run: &GoalRun, payload: &Element) -> bool {
        self.run.answer(run).is_some_and(|answer| answer == PayloadName::from(&payload.name))
    }
}

/// Name of the element that stands for the missing payload of a reply.
const NOTHING: &str = "nothing";

pub(super) fn is_failed(payload: &Element) -> bool {
    is_failure(payload.local_name())
}

/// Whether a reply with this local name reports a failure.
pub fn is_failure(name: &str) -> bool {
    name == "error" || name.ends_with("-error") || name.ends_with("-failed")
}

pub(super) fn failure_of(payload: &Element) -> GoalFailure {
    let value = |name: &str| {
        let attribute = payload.attribute(name).map(str::to_owned);
        attribute.or_else(|| payload.child(name).map(Element::text))
    };
    let code = value("code").filter(|code| !code.trim().is_empty());
    let code = code.unwrap_or_else(|| payload.local_name().to_owned());
    let reason = value("reason").or_else(|| value("message")).unwrap_or_else(|| payload.text());
    let goal = value("goal").map(|goal| format!("{goal}: ")).unwrap_or_default();
    GoalFailure::new(code.trim(), format!("{goal}{}", reason.trim()))
}

/// Returns the output in a reply. For an agent's final answer, this is the text of the answer. For
/// an acknowledgement or an empty reply, it is an empty text. For any other reply, it is the
/// payload.
pub(super) fn output_of(payload: &Element) -> ViewValue {
    let name = payload.local_name();
    let namespace = payload.name.namespace();
    let is_final = payload.name == QName::from(&goal_answer());
    let result = payload.child("result").filter(|_| is_final);
    match result {
        Some(result) => ViewValue::Text(result.text()),
        None if namespace == system::NAMESPACE && name == "ack" => ViewValue::Text(String::new()),
        None if namespace.is_empty() && name == NOTHING => ViewValue::Text(String::new()),
        None => ViewValue::Payload(Box::new(payload.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(payload: &str) -> ViewValue {
        output_of(&Element::read(payload).expect("it is one element"))
    }

    #[test]
    fn a_listeners_own_acknowledgement_is_an_output_with_its_content() {
        let own = "<ack xmlns=\"urn:shop\"><number>7</number></ack>";
        let ViewValue::Payload(kept) = output(own) else { panic!("its content is lost") };
        assert_eq!(kept.to_xml(), own);
        let core = format!("<ack xmlns=\"{}\"/>", system::NAMESPACE);
        assert_eq!(output(&core), ViewValue::Text(String::new()));

        let own = "<attempt_completion xmlns=\"urn:shop\"><result>x</result></attempt_completion>";
        assert!(matches!(output(own), ViewValue::Payload(_)));
        let name = goal_answer();
        let answer = format!(
            "<a:{0} xmlns:a=\"{1}\"><a:result>x</a:result></a:{0}>",
            name.local, name.namespace
        );
        assert_eq!(output(&answer), ViewValue::Text("x".to_owned()));
    }
}
