//! The state of one run, computed from the events of its goals.
//!
//! The state holds no clock, no ids and no messages. The handler of the workflow converts the
//! messages of a call to [`RunEvent`]s, applies these to the state, and converts the resulting
//! [`RunStep`]s to payloads. The same events always give the same steps, so a run can be resumed
//! from the messages of its thread.

mod advance;
mod ask;
mod calls;
mod context;
mod forms;
mod review;
mod take_over;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::contract::{Budget, GoalRoles};
use crate::ids::{ListenerName, PayloadName};
use crate::schema::XPathError;
use crate::word_enum::word_enum;
use crate::xml::element::Element;

use super::definition::{GoalForm, GoalId, WorkflowDefinition};
use super::graph::{GoalGraph, MemberKind, Membership};
use super::run_definition::RunRules;
use super::view::ViewValue;

pub(super) use calls::judge_of;

/// One run of one goal. Each goal run has a thread of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoalRun {
    /// Number of the goal in the definition.
    pub goal: usize,
    /// Pass of the loop that contains the goal, counted from 1; 0 outside of a loop.
    pub iteration: u32,
    pub part: RunPart,
    /// Number of the attempt, counted from 1; rises with each retry.
    pub attempt: u32,
    pub kind: RunKind,
}

/// The task that the thread of a goal run carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// The thread carries the goal out.
    Work,
    /// The thread runs a verifier, which judges the output of an item.
    Verify,
    /// The thread runs the goal's supervisor, which judges an output.
    Supervise,
    /// The thread runs a judge, which decides a condition. The number is the position of the branch
    /// with this condition in a goal with the form `choose`. For the `until` condition of a loop,
    /// the number is 0.
    Judge(usize),
}

/// The part of a goal that a thread carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunPart {
    Whole,
    /// The agent at this position, counted from 0, in a goal with the form `all` or `first`.
    Agent(usize),
    /// The item at this position, counted from 0, in a goal with the form `each`.
    Item(usize),
}

/// An event that changes the state of a run, such as the end of a goal run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    Started,
    Completed {
        run: GoalRun,
        output: ViewValue,
    },
    /// The goal run has failed. If `is_final` is set, the goal run must not be retried.
    Failed {
        run: GoalRun,
        failure: GoalFailure,
        is_final: bool,
    },
    /// The whole workflow run has reached its time limit.
    TimeOver {
        limit: Duration,
    },
}

word_enum! {
    /// The phase of a goal, as it is shown to people.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GoalPhase {
        Waiting = "waiting",
        Running = "running",
        Done = "done",
        Skipped = "skipped",
        /// The goal failed. Either the run ended because of this, or another goal ran in its place.
        Failed = "failed",
        /// The goal was running when the run ended.
        Cancelled = "cancelled",
    }
}

/// The reason why a goal or a goal run has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalFailure {
    pub code: String,
    /// The reason, as one sentence for people.
    pub reason: String,
    /// Whether a listener chose the code for its own reply. If not, the core or a workflow chose
    /// the code.
    pub is_own_code: bool,
}

impl GoalFailure {
    pub fn new(code: &str, reason: impl Into<String>) -> Self {
        Self { code: code.to_owned(), reason: reason.into(), is_own_code: false }
    }

    /// Creates the failure of a goal whose expression could not be evaluated.
    fn of_expression(error: &XPathError) -> Self {
        let code = match error {
            XPathError::TooManyOperations
            | XPathError::TooMuchText
            | XPathError::TooManyNodes
            | XPathError::NoDocument(_) => "too-large",
            XPathError::OtherElement { .. } => "unknown-payload",
            _ => "bad-expression",
        };
        Self::new(code, error.to_string())
    }
}

/// An action that a run requests from the handler of its workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStep {
    /// Open a thread with this label. The core cancels the thread when the call of the workflow's
    /// run closes.
    Start {
        run: GoalRun,
        label: String,
        call: GoalCall,
        limits: RunLimits,
    },
    /// Cancel the thread of a goal run whose result the workflow run no longer needs.
    Cancel {
        run: GoalRun,
    },
    Complete {
        output: RunOutput,
    },
    Fail {
        goal: GoalId,
        failure: GoalFailure,
        is_undone: bool,
    },
}

/// Limits that apply to a thread together with all threads beneath it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunLimits {
    pub timeout: Option<Duration>,
    pub budget: Budget,
}

/// The call with which the thread of a goal run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalCall {
    Agent {
        agent: ListenerName,
        document: String,
        /// The only payload that is accepted as an answer; `None` if the answer is text.
        answer: Option<PayloadName>,
        /// The roles that the agent may delegate to; `None` if the agent may not delegate.
        roles: Option<GoalRoles>,
    },
    /// A call to a listener or to a workflow, with this payload.
    Payload { listener: ListenerName, payload: Element },
}

impl GoalCall {
    /// Returns the only listener that may get the call.
    pub fn callee(&self) -> &ListenerName {
        match self {
            Self::Agent { agent, .. } => agent,
            Self::Payload { listener, .. } => listener,
        }
    }
}

/// The output of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutput {
    One(ViewValue),
    Table(Vec<(String, ViewValue)>),
}

/// A workflow run that has begun, with the steps that it requests next.
pub struct WorkflowRun<'a> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    steps: Vec<RunStep>,
    /// Goal runs that could not start because their call could not be built. Each one has its
    /// failure, which the run must still handle.
    unstartable: VecDeque<(GoalRun, GoalFailure)>,
    /// Loops that are ready to start their next pass.
    next_passes: VecDeque<usize>,
    /// Whether failures have no effect: a goal that fails stays under way, and neither its policy
    /// nor a retry is applied.
    ignores_failures: bool,
    state: RunState,
}

/// The state of a run between two events. The same events always lead to the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    input: Element,
    goals: Vec<GoalState>,
    /// For each loop, the outputs of its members in each finished pass.
    passes: BTreeMap<usize, Vec<Vec<(usize, ViewValue)>>>,
    /// The corrections of each goal that a person has corrected, oldest first. The key is the
    /// number of the goal.
    corrections: BTreeMap<usize, Vec<GivenCorrection>>,
    /// Corrections from ended reviews. Kept only for goals that a person can still correct. The
    /// outer key is the number of the goal. The inner key is the position of the review.
    reviewed: BTreeMap<usize, BTreeMap<usize, Vec<String>>>,
    /// The rules that the run follows.
    rules: RunRules,
    is_over: bool,
}

/// A correction of a goal that a person has corrected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GivenCorrection {
    /// Position of the review in which a verifier or supervisor gave the correction; `None` if a
    /// person corrected the whole goal.
    review: Option<usize>,
    text: String,
}

impl RunState {
    /// Returns the number of bytes in the texts that the state keeps.
    pub fn kept_bytes(&self) -> usize {
        let goals = self.goals.iter().map(|goal| match goal {
            GoalState::Done(output) => output.as_ref().map_or(0, ViewValue::bytes),
            GoalState::Running(progress) => {
                let items = progress.items.iter().map(ViewValue::bytes).sum::<usize>();
                let results = progress.results.values().map(|result| match result {
                    PartResult::Completed(value) => value.bytes(),
                    PartResult::Failed(failure) => failure.code.len() + failure.reason.len(),
                });
                let reviews = progress.reviews.values().map(|review| {
                    let corrections = review.corrections.iter().map(String::len).sum::<usize>();
                    corrections + review.output.as_ref().map_or(0, ViewValue::bytes)
                });
                items + results.sum::<usize>() + reviews.sum::<usize>()
            }
            GoalState::Waiting | GoalState::Replaced | GoalState::Skipped => 0,
        });
        let passes = self.passes.values().flatten().flatten().map(|(_, output)| output.bytes());
        let given = self.corrections.values().flatten().map(|correction| correction.text.len());
        let reviewed = self.reviewed.values().flat_map(BTreeMap::values).flatten();
        let corrections = given.chain(reviewed.map(String::len));
        let texts = goals.sum::<usize>() + passes.sum::<usize>() + corrections.sum::<usize>();
        self.input.text_bytes() + texts
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum GoalState {
    #[default]
    Waiting,
    /// The goal is running. The progress is boxed to keep the enum small, because most goals of a
    /// run are waiting or done.
    Running(Box<GoalProgress>),
    /// The goal failed, and another goal runs in its place.
    Replaced,
    Done(Option<ViewValue>),
    Skipped,
}

impl GoalState {
    fn has_ended(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Skipped)
    }

    fn output(&self) -> Option<&ViewValue> {
        match self {
            Self::Done(output) => output.as_ref(),
            _ => None,
        }
    }
}

/// The progress of a running goal: its open goal runs, and the results that it has so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GoalProgress {
    iteration: u32,
    /// Goal runs that have not ended yet.
    open: Vec<GoalRun>,
    /// Reviews of outputs. A goal that runs once for each item has a review for each item, at the
    /// position of the item. Any other goal has a single review, at position 0.
    reviews: BTreeMap<usize, OutputReview>,
    /// Results of the goal's agents or items, by position.
    results: BTreeMap<usize, PartResult>,
    /// Number of votes of the goal that ended without a majority and were repeated.
    repeated_votes: u32,
    /// All items of the goal, in order. `next_item` is the position of the first item that has not
    /// started.
    items: Vec<ViewValue>,
    next_item: usize,
    /// Members of the loop, or of the branch that was chosen. `position` is the index of the
    /// running member.
    members: Vec<usize>,
    position: usize,
}

/// The review that an output must pass before it becomes a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OutputReview {
    /// Number of the attempt that produced the output under review.
    attempt: u32,
    /// The output under review; `None` while there is no output to review.
    output: Option<ViewValue>,
    /// Texts of all corrections that the verifier and the supervisor have requested so far, in
    /// order.
    corrections: Vec<String>,
    /// Number of corrections that the supervisor has requested.
    corrected: u32,
}

/// The result of a part of a goal: of one agent or of the work on one item.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartResult {
    Completed(ViewValue),
    Failed(GoalFailure),
}

impl<'a> WorkflowRun<'a> {
    pub fn new(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        input: Element,
    ) -> Self {
        let state = RunState {
            input,
            goals: vec![GoalState::Waiting; definition.goals.len()],
            passes: BTreeMap::new(),
            corrections: BTreeMap::new(),
            reviewed: BTreeMap::new(),
            rules: RunRules::Present,
            is_over: false,
        };
        Self::resumed(definition, graph, state)
    }

    /// Continues a run from `state`, which the earlier events of the run have produced.
    /// `definition` must be the definition with which the run began.
    pub fn resumed(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        state: RunState,
    ) -> Self {
        Self {
            definition,
            graph,
            steps: Vec::new(),
            unstartable: VecDeque::new(),
            next_passes: VecDeque::new(),
            ignores_failures: false,
            state,
        }
    }

    /// Sets the rules that the run follows.
    pub(super) fn set_rules(&mut self, rules: RunRules) {
        self.state.rules = rules;
    }

    /// Sets whether failures have no effect. A goal that fails then stays under way.
    pub(super) fn set_ignores_failures(&mut self, ignores_failures: bool) {
        self.ignores_failures = ignores_failures;
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.ignores_failures
    }

    /// Whether `has-word` searches its first argument as one text. True for a run that began before
    /// core version 64.
    fn joins_texts(&self) -> bool {
        self.state.rules <= RunRules::TextItems
    }

    /// Whether a number with a plus sign is no number in expressions. True for a run that began
    /// before core version 72.
    fn refuses_plus_signs(&self) -> bool {
        self.state.rules <= RunRules::BeforeCore72
    }

    pub fn into_state(self) -> RunState {
        self.state
    }

    /// Ends the run without a result, because its call has ended. Goals that are under way count as
    /// cancelled.
    pub fn abandon(&mut self) {
        self.state.is_over = true;
    }

    pub fn is_over(&self) -> bool {
        self.state.is_over
    }

    /// Returns the phase of a goal, the present pass, and the progress. For a loop, the pass is
    /// that of the loop itself. For any other goal, it is that of the loop around the goal. The
    /// progress is the number of the goal's agents or items with a result, and the number of all
    /// its agents or items. All numbers are 0 if the goal is not running.
    pub fn status(&self, number: usize) -> (GoalPhase, u32, (usize, usize)) {
        match self.goal_state(number) {
            GoalState::Running(_) if self.state.is_over => (GoalPhase::Cancelled, 0, (0, 0)),
            _ => self.status_before_end(number),
        }
    }

    /// Returns the status of a goal, as [`Self::status`] does, but a goal that was running at the
    /// end of the run is still running.
    pub fn status_before_end(&self, number: usize) -> (GoalPhase, u32, (usize, usize)) {
        match self.goal_state(number) {
            GoalState::Waiting => (self.phase_before_start(number), 0, (0, 0)),
            GoalState::Running(progress) => {
                let results = progress.results.len();
                let all = match self.graph.goal(number).map(|goal| &goal.form) {
                    Some(GoalForm::All { agents, .. } | GoalForm::First { agents, .. }) => {
                        agents.len()
                    }
                    Some(GoalForm::Each(_)) => progress.items.len(),
                    _ => 0,
                };
                (GoalPhase::Running, progress.iteration, (results, all))
            }
            GoalState::Replaced => (GoalPhase::Failed, 0, (0, 0)),
            GoalState::Done(_) => (GoalPhase::Done, 0, (0, 0)),
            GoalState::Skipped => (GoalPhase::Skipped, 0, (0, 0)),
        }
    }

    /// Returns the phase of a goal whose state is [`GoalState::Waiting`]. The goal is skipped if it
    /// can no longer start, because the run is over, a choice has taken another branch, or the goal
    /// around it has ended. A verifier has no start of its own: it is done, cancelled or skipped
    /// together with the goal whose items it judges.
    fn phase_before_start(&self, number: usize) -> GoalPhase {
        // The innermost goal around `number` that has started decides. Lists that contain each
        // other are a fault of the definition, so the number of steps is limited.
        let mut at = number;
        for _ in 0..self.graph.len() {
            let Some(Membership { owner, kind }) = self.graph.membership(at) else { break };
            let is_own_verifier = at == number && kind == MemberKind::Verify;
            match self.goal_state(owner) {
                GoalState::Waiting => at = owner,
                GoalState::Done(_) if is_own_verifier => return GoalPhase::Done,
                GoalState::Running(_) if is_own_verifier && self.state.is_over => {
                    return GoalPhase::Cancelled;
                }
                GoalState::Running(progress) => {
                    let is_in_branch = matches!(kind, MemberKind::Branch { .. });
                    let has_branch = is_in_branch && !progress.members.is_empty();
                    if has_branch && !progress.members.contains(&at) {
                        return GoalPhase::Skipped;
                    }
                    break;
                }
                GoalState::Done(_) | GoalState::Skipped | GoalState::Replaced => {
                    return GoalPhase::Skipped;
                }
            }
        }

        if self.state.is_over { GoalPhase::Skipped } else { GoalPhase::Waiting }
    }

    /// Returns the goals for which the goal `number` waits. If this goal does not wait, returns
    /// none. If it waits, returns:
    /// - for a member of a running loop or of a chosen branch: the member that runs now;
    /// - for a goal that is no member of another goal: its dependencies that have not ended;
    /// - for any other goal: none.
    pub fn waits_for(&self, number: usize) -> Vec<usize> {
        if self.status(number).0 != GoalPhase::Waiting {
            return Vec::new();
        }

        match self.graph.membership(number).map(|membership| self.goal_state(membership.owner)) {
            None => {
                let needs = self.graph.direct_needs(number).into_iter();
                needs.filter(|need| !self.goal_state(*need).has_ended()).collect()
            }
            Some(GoalState::Running(owner)) if owner.members.contains(&number) => {
                owner.members.get(owner.position).copied().into_iter().collect()
            }
            Some(_) => Vec::new(),
        }
    }

    /// Whether any goal run has not ended yet.
    pub fn has_open(&self) -> bool {
        self.state.goals.iter().any(|goal| match goal {
            GoalState::Running(progress) => !progress.open.is_empty(),
            _ => false,
        })
    }

    /// Applies one event and returns the steps that follow. Events of goal runs that are no longer
    /// open have no effect.
    pub fn step(&mut self, event: RunEvent) -> Vec<RunStep> {
        if self.state.is_over {
            return Vec::new();
        }

        match event {
            RunEvent::Started => {}
            RunEvent::Completed { run, output } => {
                if self.close(&run) {
                    self.completed(&run, output);
                }
            }
            RunEvent::Failed { .. } if self.ignores_failures => {}
            RunEvent::Failed { run, failure, is_final } => {
                if self.close(&run) {
                    self.failed(&run, failure, is_final);
                }
            }
            RunEvent::TimeOver { limit } => self.time_over(limit),
        }

        self.advance();
        // A failed run starts nothing more.
        while !self.state.is_over && self.take_postponed() {
            self.advance();
        }
        std::mem::take(&mut self.steps)
    }

    /// Starts the next pass of a loop, or handles the failure of a goal run that could not start.
    /// Both actions are queued so that they do not nest on the stack. Returns `false` if no action
    /// is queued.
    fn take_postponed(&mut self) -> bool {
        if let Some(number) = self.next_passes.pop_front() {
            self.start_pass(number);
            return true;
        }

        let Some((run, failure)) = self.unstartable.pop_front() else { return false };
        if self.close(&run) {
            self.failed(&run, failure, true);
        }
        true
    }

    fn goal_state(&self, number: usize) -> &GoalState {
        self.state.goals.get(number).unwrap_or(&GoalState::Waiting)
    }

    fn set(&mut self, number: usize, state: GoalState) {
        let Some(place) = self.state.goals.get_mut(number) else { return };
        let earlier = std::mem::replace(place, state);
        if let GoalState::Running(progress) = earlier {
            self.keep_reviews(number, progress.reviews);
        }
    }

    fn progress(&mut self, number: usize) -> Option<&mut GoalProgress> {
        match self.state.goals.get_mut(number) {
            Some(GoalState::Running(progress)) => Some(progress),
            _ => None,
        }
    }

    /// Removes a goal run from the open goal runs; returns `false` if it is not open.
    fn close(&mut self, run: &GoalRun) -> bool {
        let Some(progress) = self.progress(run.goal) else { return false };
        let at = progress.open.iter().position(|open| open == run);
        at.map(|at| progress.open.remove(at)).is_some()
    }
}
