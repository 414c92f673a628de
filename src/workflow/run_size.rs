//! The size of a run: how many threads it can open, and which limits of a tree it can exceed.

use std::collections::HashMap;

use crate::contract::{Contracts, TreeLimits};
use crate::ids::ListenerName;

use super::definition::{FailurePolicy, GoalDefinition, GoalForm, GoalTarget, WorkflowDefinition};
use super::graph::{GoalGraph, MemberKind};
use super::typed_outputs::{agents_of, judges_of};

/// Returns a sentence for each tree limit that a run of `definition` can exceed. `all` are the
/// definitions of all workflows, any of which the run may call. If the run undoes its calls, there
/// are two differences:
/// - Each call that can be undone according to `contracts` counts as one more thread.
/// - The limit on children is left out, because [`missing_undo_room`] reports it.
pub fn exceeded_limits(
    definition: &WorkflowDefinition,
    all: &[&WorkflowDefinition],
    limits: &TreeLimits,
    contracts: &Contracts,
) -> Vec<String> {
    let sizes = RunSizes { all, known: HashMap::new() }.goals(definition);
    let all = run_size(definition, &sizes, contracts);
    let name = &definition.name.value;
    let mut notes = Vec::new();
    let mut note = |most: u64, measure: fn(&RunSize) -> u64, what: &str, key: &str| {
        let used = measure(&all);
        let largest = definition.goals.iter().zip(&sizes).max_by_key(|(_, size)| measure(size));
        let largest = largest.map_or(String::new(), |(goal, size)| {
            format!("; goal `{}` alone {}", goal.id.value, measure(size))
        });
        if used > most {
            notes.push(format!(
                "a run of workflow `{name}` can {what} {used}{largest}, and `{key}` in [limits] is \
                 {most}: a run that needs more fails with that limit's name"
            ));
        }
    };
    if !is_undoing(definition) {
        note(limits.children.into(), |size| size.threads, "open threads up to", "children");
    }
    note(limits.threads.into(), RunSize::all_threads, "open threads up to", "threads");
    let what = "make at least as many model calls as";
    note(limits.model_calls, |size| size.agents, what, "model_calls");
    notes.extend(time_beyond_limit(definition, limits));
    notes
}

/// Returns a sentence if the run or one of its goals has a time-out that exceeds the time for which
/// a tree may be at work. Returns `None` for a definition that asks a person, because time in which
/// a run waits only for people does not count as work.
fn time_beyond_limit(definition: &WorkflowDefinition, limits: &TreeLimits) -> Option<String> {
    let asks_person = |goal: &GoalDefinition| {
        let is_human = goal.supervision.as_ref().is_some_and(|by| by.is_human);
        is_human || matches!(goal.form, GoalForm::Ask { .. })
    };
    if definition.goals.iter().any(asks_person) {
        return None;
    }

    let name = &definition.name.value;
    let run = definition.timeout.map(|timeout| (format!("workflow `{name}`"), timeout));
    let goals = definition.goals.iter().filter_map(|goal| {
        Some((format!("goal `{}` of workflow `{name}`", goal.id.value), goal.timeout?))
    });
    let mut all = run.into_iter().chain(goals);
    let (whose, _) = all.find(|(_, timeout)| *timeout > limits.wall_time)?;
    Some(format!(
        "`timeout` of {whose} is longer than `wall_time` in [limits]: a run at work ends after \
         `wall_time`, as `budget-spent`"
    ))
}

/// Returns a sentence if a run of `definition` can open so many threads that the limit on children
/// leaves no room for the undo of its calls. In such a run, the core would also refuse the threads
/// of the undo, and no call would be undone. The undo of calls that agents make is not counted.
/// Returns `None` if there is room, or if the run undoes nothing.
pub fn missing_undo_room(
    definition: &WorkflowDefinition,
    limits: &TreeLimits,
    contracts: &Contracts,
) -> Option<String> {
    let sizes = RunSizes { all: &[], known: HashMap::new() }.goals(definition);
    let size = run_size(definition, &sizes, contracts);
    let report = u64::from(definition.report_to.is_some());
    let threads = size.threads.saturating_add(report);
    let most = limits.children;
    let is_missing = is_undoing(definition) && threads > u64::from(most);
    is_missing.then(|| {
        let name = &definition.name.value;
        format!(
            "a run of `{name}` can open {threads} threads with those of its undo, and `children` \
             in [limits] is {most}: a run that has used them up is not undone; raise `children` in \
             [limits], or lower `max_items`, `max` or `retry` of its goals"
        )
    })
}

/// Computes the sizes of runs, with the threads of the workflows that their goals call.
struct RunSizes<'a> {
    all: &'a [&'a WorkflowDefinition],
    /// For each called workflow, the size of its runs. The size is empty while it is being
    /// computed, so that the computation ends even if workflows call each other in a circle.
    known: HashMap<&'a ListenerName, RunSize>,
}

impl<'a> RunSizes<'a> {
    /// Counts the threads that each goal of a definition can open.
    fn goals(&mut self, definition: &'a WorkflowDefinition) -> Vec<RunSize> {
        let (graph, _) = GoalGraph::new(definition);
        let goals = definition.goals.iter().enumerate();
        goals.map(|(number, goal)| goal_size(&graph, number, goal, self.called_run(goal))).collect()
    }

    /// Counts the threads that a run of a called workflow can open. `goal` is the goal that calls
    /// the workflow. If `goal` calls no workflow, the size is empty.
    fn called_run(&mut self, goal: &'a GoalDefinition) -> RunSize {
        let Some(name) = called_workflow(goal) else { return RunSize::default() };
        if let Some(known) = self.known.get(name) {
            return *known;
        }

        let Some(definition) = definition_of(name, self.all) else { return RunSize::default() };
        self.known.insert(name, RunSize::default());
        let size = self.goals(definition).into_iter().fold(RunSize::default(), RunSize::plus);
        self.known.insert(name, size);
        size
    }
}

/// Returns the definition of the workflow `name`; `None` if it is not among `all`.
pub(super) fn definition_of<'a>(
    name: &ListenerName,
    all: &[&'a WorkflowDefinition],
) -> Option<&'a WorkflowDefinition> {
    all.iter().copied().find(|definition| definition.name.value == *name)
}

/// Returns the workflow that a goal calls; `None` if it calls none.
pub(super) fn called_workflow(goal: &GoalDefinition) -> Option<&ListenerName> {
    let target = match &goal.form {
        GoalForm::Run(target) => target,
        GoalForm::Each(each) => &each.target,
        _ => return None,
    };
    match target {
        GoalTarget::Workflow { workflow, .. } => Some(&workflow.value),
        GoalTarget::Agent { .. } | GoalTarget::Listener { .. } => None,
    }
}

/// Counts the threads that a run of a definition can open. `sizes` are the sizes of its goals.
fn run_size(definition: &WorkflowDefinition, sizes: &[RunSize], contracts: &Contracts) -> RunSize {
    let mut all = sizes.iter().fold(RunSize::default(), |sum, size| sum.plus(*size));
    if is_undoing(definition) {
        // Each call that can be undone may need one more thread, in which it is undone.
        let goals = definition.goals.iter().zip(sizes);
        let calls =
            goals.filter(|(goal, _)| can_be_undone(goal, contracts)).map(|(_, size)| size.threads);
        all.threads = calls.fold(all.threads, u64::saturating_add);
    }
    all
}

fn is_undoing(definition: &WorkflowDefinition) -> bool {
    let goals = definition.goals.iter().filter_map(|goal| goal.on_failure.as_ref());
    goals.chain([&definition.on_failure]).any(|policy| *policy == FailurePolicy::Undo)
}

/// Whether the goal calls a listener whose contract declares an undo for this call.
fn can_be_undone(goal: &GoalDefinition, contracts: &Contracts) -> bool {
    let target = match &goal.form {
        GoalForm::Run(target) => target,
        GoalForm::Each(each) => &each.target,
        _ => return false,
    };
    let GoalTarget::Listener { listener, payload, .. } = target else { return false };
    let Some(contract) = contracts.get(&listener.value) else { return false };
    payload.as_ref().is_some_and(|request| contract.undo_of(&request.value).is_some())
}

/// The maximum number of threads that a run or a goal opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunSize {
    /// Number of threads that are children of the run's own thread.
    threads: u64,
    /// Number of threads beneath those that `threads` counts: threads of delegated tasks, and
    /// threads of goals in the workflows that the run calls.
    beneath: u64,
    /// Number of threads that belong to agents; `threads` and `beneath` include them. Each of these
    /// threads makes at least one model call.
    agents: u64,
}

impl RunSize {
    fn of(threads: u64, is_agents: bool) -> Self {
        Self { threads, beneath: 0, agents: if is_agents { threads } else { 0 } }
    }

    /// Returns the number of all threads.
    fn all_threads(&self) -> u64 {
        self.threads.saturating_add(self.beneath)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            threads: self.threads.saturating_add(other.threads),
            beneath: self.beneath.saturating_add(other.beneath),
            agents: self.agents.saturating_add(other.agents),
        }
    }

    fn times(self, count: u64) -> Self {
        Self {
            threads: self.threads.saturating_mul(count),
            beneath: self.beneath.saturating_mul(count),
            agents: self.agents.saturating_mul(count),
        }
    }
}

/// Counts the threads that a goal can open in all passes of the loops around it, including the
/// threads of all retries and corrections. `called` is the size of a run of the workflow that the
/// goal calls; empty if it calls none.
fn goal_size(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    called: RunSize,
) -> RunSize {
    let membership = graph.membership(number);
    if membership.is_some_and(|membership| membership.kind == MemberKind::Verify) {
        // A verifier is counted with the goal whose items it verifies.
        return RunSize::default();
    }

    let tries = tries_of(goal);
    let is_agents = !agents_of(goal).is_empty();

    let parts = match &goal.form {
        GoalForm::Run(_) | GoalForm::Ask { .. } => 1,
        GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => agents.len() as u64,
        GoalForm::Each(each) => u64::from(each.max_items),
        GoalForm::Choose(_) => 0,
        GoalForm::Loop { max, .. } => {
            let judges = RunSize::of(judges_of(goal).len() as u64, true);
            return judges.times(tries).times(u64::from(*max));
        }
    };
    let judges = RunSize::of(judges_of(goal).len() as u64, true).times(tries);
    let delegated = goal.roles.as_ref().map_or(0, |roles| u64::from(roles.max));
    let beneath_part = RunSize {
        threads: 0,
        beneath: called.all_threads().saturating_add(delegated),
        agents: called.agents.saturating_add(delegated),
    };
    // A vote without a majority is repeated, and then each voter has all its retries again.
    let is_vote = matches!(goal.form, GoalForm::All { vote: Some(_), .. });
    let votes = if is_vote { tries } else { 1 };

    let work = RunSize::of(parts, is_agents).plus(beneath_part.times(parts));
    let mut size = work.times(tries).times(votes);
    if let Some(verifier) = graph.verifier(number).and_then(|verifier| graph.goal(verifier)) {
        let verifications = RunSize::of(parts, !agents_of(verifier).is_empty());
        size = size.plus(verifications.times(tries).times(tries_of(verifier)));
    }

    if let Some(supervision) = &goal.supervision {
        let judged = if matches!(goal.form, GoalForm::Each(_)) { parts } else { 1 };
        size = size.plus(RunSize::of(judged, !supervision.is_human).times(tries));
        size = size.times(u64::from(supervision.corrections) + 1);
    }

    size.plus(judges).times(passes_of(graph, number))
}

fn tries_of(goal: &GoalDefinition) -> u64 {
    u64::from(goal.retry) + 1
}

/// Returns the maximum number of passes in which a goal runs: the product of the maximum passes of
/// all loops around the goal, at every level of nesting. Returns 1 if no loop contains the goal.
fn passes_of(graph: &GoalGraph<'_>, number: usize) -> u64 {
    let mut passes = 1u64;
    let mut at = number;
    // Lists that contain each other are reported elsewhere.
    for _ in 0..LISTS_MOST {
        let Some(membership) = graph.membership(at) else { break };
        if let Some(GoalForm::Loop { max, .. }) =
            graph.goal(membership.owner).map(|goal| &goal.form)
        {
            passes = passes.saturating_mul(u64::from(*max));
        }
        at = membership.owner;
    }
    passes
}

/// Maximum number of enclosing goals that the search for the loops around a goal examines, from the
/// innermost goal outwards.
const LISTS_MOST: usize = 100;
