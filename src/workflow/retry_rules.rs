//! Rules that decide whether a failed goal run may be retried.
//!
//! A retry repeats calls that may have had effects. The contracts of listeners decide whether this
//! is allowed, and contracts can change while a run is open. So a run records the listeners to
//! which it must not repeat a call. A change of the contracts then changes no earlier decision of
//! the run.

use std::collections::{BTreeSet, HashSet};

use crate::contract::{Contracts, WORKFLOW_NAMESPACE};
use crate::ids::ListenerName;
use crate::system::{self, ThreadStatus};
use crate::xml::element::Element;

use super::compile::peers_of;
use super::definition::{GoalForm, WorkflowDefinition};
use super::payloads;
use super::run_definition::RetryRecord;
use super::run_state::{GoalRun, RunKind, RunPart, judge_of};

/// The data from which a run decides whether a failed goal run may be retried.
pub(super) struct RetryRules<'a> {
    pub definition: &'a WorkflowDefinition,
    /// The listeners to which the run must not repeat a call after a time-out, as the run has
    /// recorded them. `None` if an earlier version of the program began the run. Such a run follows
    /// the rules of that version until its next delivery, at which it records the listeners.
    pub recorded: Option<&'a BTreeSet<ListenerName>>,
    /// The listeners to which a call must not be repeated, according to the present contracts.
    pub present: &'a HashSet<ListenerName>,
    /// Whether the run has recorded that it never retries a goal that fails as `stopped`.
    pub is_stop_final: bool,
}

/// The failed call of a goal run.
pub(super) struct FailedCall<'a> {
    pub status: ThreadStatus,
    /// The payload that reports the failure.
    pub payload: &'a Element,
    pub code: &'a str,
}

impl FailedCall<'_> {
    /// Whether a listener chose the failure code for its own reply. False if the core or a workflow
    /// chose the code. If a workflow run failed, true only if the reply of this run states that a
    /// listener chose the code.
    pub fn has_own_code(&self) -> bool {
        let namespace = self.payload.name.namespace();
        let is_of_workflow = namespace.starts_with(WORKFLOW_NAMESPACE);
        self.status == ThreadStatus::Completed
            && namespace != system::NAMESPACE
            && (!is_of_workflow || payloads::states_own_code(self.payload))
    }
}

/// Whether a failure with this code can forbid the retry of a goal run. If a listener chose the
/// code for its own reply, the failure does not forbid the retry.
pub(super) fn may_be_final(code: &str) -> bool {
    is_always_final(code) || code == TIMEOUT || code == STOPPED
}

fn is_always_final(code: &str) -> bool {
    matches!(code, "denied" | "budget-spent" | "cancelled" | "unknown-outcome")
}

const TIMEOUT: &str = "timeout";
/// Code of a failure that a person or a supervisor has caused with the verdict `stop`.
const STOPPED: &str = "stopped";

impl<'a> RetryRules<'a> {
    /// Makes the rules of a run from its `records`, which must be in the order of the messages that
    /// contain them.
    pub fn new(
        definition: &'a WorkflowDefinition,
        present: &'a HashSet<ListenerName>,
        records: impl Iterator<Item = &'a RetryRecord>,
    ) -> Self {
        let mut rules = Self { definition, recorded: None, present, is_stop_final: false };
        for record in records {
            rules.recorded = Some(&record.once);
            rules.is_stop_final |= record.is_stop_final;
        }
        rules
    }

    /// Whether a goal run must not be retried after `failed`. `subject` is the number of the goal
    /// whose settings apply to the goal run.
    pub fn is_final(&self, run: &GoalRun, subject: usize, failed: &FailedCall<'_>) -> bool {
        if self.recorded.is_some() && failed.has_own_code() {
            return false;
        }

        match failed.code {
            TIMEOUT => self.callee(run, subject).is_some_and(|name| self.is_once(name)),
            STOPPED => self.is_stop_final,
            code => is_always_final(code),
        }
    }

    fn is_once(&self, listener: &ListenerName) -> bool {
        match self.recorded {
            Some(recorded) => recorded.contains(listener),
            None => self.present.contains(listener),
        }
    }

    /// Returns the listener that a goal run calls; `None` if the goal run sends its question to a
    /// person. If `recorded` is `None`, also returns `None` for a supervisor or judge.
    fn callee(&self, run: &GoalRun, subject: usize) -> Option<&'a ListenerName> {
        let goal = self.definition.goals.get(subject)?;
        match run.kind {
            RunKind::Supervise | RunKind::Judge(_) if self.recorded.is_none() => None,
            RunKind::Supervise => {
                let supervision = goal.supervision.as_ref();
                let supervision = supervision.filter(|supervision| !supervision.is_human)?;
                Some(&supervision.supervisor.value)
            }
            RunKind::Judge(position) => {
                judge_of(&goal.form, position).map(|(agent, _)| &agent.value)
            }
            RunKind::Work | RunKind::Verify => worker_of(&goal.form, run.part),
        }
    }
}

/// Returns the listener that carries out a part of a goal; `None` if no listener does.
fn worker_of(form: &GoalForm, part: RunPart) -> Option<&ListenerName> {
    match form {
        GoalForm::Run(target) => Some(&target.name().value),
        GoalForm::Each(each) => Some(&each.target.name().value),
        GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => match part {
            RunPart::Agent(position) => agents.get(position).map(|agent| &agent.value),
            RunPart::Whole | RunPart::Item(_) => None,
        },
        GoalForm::Loop { .. } | GoalForm::Choose(_) | GoalForm::Ask { .. } => None,
    }
}

/// Returns the listeners to which a call must not be repeated after a time-out:
/// - listeners whose contracts allow only one attempt of a call;
/// - listeners that can call one of those listeners, directly or through others. A listener can
///   call its peers, and the agents to which it may delegate tasks.
pub fn called_once(contracts: &Contracts) -> HashSet<ListenerName> {
    let mut once: HashSet<ListenerName> = HashSet::new();
    let delegations: Vec<_> = contracts.iter().flat_map(|contract| &contract.delegations).collect();
    loop {
        let found = contracts.iter().filter(|contract| !once.contains(&contract.name));
        let found = found.filter(|contract| {
            let mut roles =
                delegations.iter().filter(|delegation| delegation.agent == contract.name);
            contract.attempts == 1
                || contract.peers.iter().any(|peer| once.contains(peer))
                || roles.any(|delegation| once.contains(&delegation.to))
        });
        let found: Vec<_> = found.map(|contract| contract.name.clone()).collect();
        if found.is_empty() {
            return once;
        }
        once.extend(found);
    }
}

/// Returns the listeners in `once` that `definition` addresses.
pub(super) fn addressed_once(
    definition: &WorkflowDefinition,
    once: &HashSet<ListenerName>,
) -> BTreeSet<ListenerName> {
    peers_of(definition).into_iter().filter(|peer| once.contains(peer)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::definition::examples::{goal, name, placed, workflow};
    use super::super::definition::{
        GoalCondition, GoalDefinition, GoalTarget, LoopEnd, Supervision,
    };
    use super::super::run_state::GoalFailure;
    use super::*;

    /// Creates a workflow with two goals. `lead` supervises the first goal, and judges the second
    /// goal, which is a loop.
    fn definition(is_human: bool) -> WorkflowDefinition {
        let prompt = || placed("x".to_owned());
        let target = GoalTarget::Agent { agent: placed(name("writer")), prompt: prompt() };
        let supervision = Supervision {
            supervisor: placed(name("lead")),
            is_human,
            supervise: String::new(),
            corrections: 1,
        };
        let judge = GoalCondition::Judge { agent: placed(name("lead")), prompt: prompt() };
        let members = Vec::new();
        let work = GoalForm::Loop { members, until: judge, max: 1, at_max: LoopEnd::Fail };
        let draft = goal("draft", GoalForm::Run(target));
        let draft = GoalDefinition { supervision: Some(supervision), ..draft };
        workflow(vec![draft, goal("work", work)])
    }

    fn run(goal: usize, kind: RunKind) -> GoalRun {
        GoalRun { goal, iteration: 0, part: RunPart::Whole, attempt: 1, kind }
    }

    fn core_failure() -> Element {
        let namespace = system::NAMESPACE;
        Element::read(&format!("<system-error xmlns=\"{namespace}\"/>")).unwrap()
    }

    #[test]
    fn a_supervisor_or_judge_that_can_reach_a_listener_with_one_attempt_is_not_retried() {
        let lead = || [name("lead")];
        let recorded: BTreeSet<_> = lead().into_iter().collect();
        let present: HashSet<_> = lead().into_iter().collect();
        let payload = core_failure();
        let failed =
            FailedCall { status: ThreadStatus::Failed, payload: &payload, code: "timeout" };
        let is_final = |is_human, recorded: Option<&BTreeSet<ListenerName>>, run: &GoalRun| {
            let definition = definition(is_human);
            let rules = RetryRules {
                definition: &definition,
                recorded,
                present: &present,
                is_stop_final: true,
            };
            rules.is_final(run, run.goal, &failed)
        };

        let supervision = run(0, RunKind::Supervise);
        let judgement = run(1, RunKind::Judge(0));
        assert!(is_final(false, Some(&recorded), &supervision));
        assert!(is_final(false, Some(&recorded), &judgement));
        assert!(!is_final(true, Some(&recorded), &supervision));
        // An earlier version began this run, and has retried both.
        assert!(!is_final(false, None, &supervision));
        assert!(!is_final(false, None, &judgement));
    }

    #[test]
    fn a_code_of_a_listeners_own_reply_permits_a_retry() {
        let definition = definition(false);
        let recorded = BTreeSet::new();
        let present = HashSet::new();
        let is_final = |recorded, status, payload: &Element| {
            let rules = RetryRules {
                definition: &definition,
                recorded,
                present: &present,
                is_stop_final: true,
            };
            let failed = FailedCall { status, payload, code: "denied" };
            rules.is_final(&run(0, RunKind::Work), 0, &failed)
        };

        let own = Element::read("<pay-failed xmlns=\"urn:test\"/>").unwrap();
        assert!(!is_final(Some(&recorded), ThreadStatus::Completed, &own));
        assert!(is_final(None, ThreadStatus::Completed, &own));
        let inner = format!("<leg-failed xmlns=\"{WORKFLOW_NAMESPACE}/leg\"/>");
        let inner = Element::read(&inner).unwrap();
        assert!(is_final(Some(&recorded), ThreadStatus::Completed, &inner));
        let passed_on = GoalFailure { is_own_code: true, ..GoalFailure::new("denied", "no card") };
        let inner = payloads::failed(&name("leg"), "pay", &passed_on);
        let inner = Element::read(&inner).unwrap();
        assert!(!is_final(Some(&recorded), ThreadStatus::Completed, &inner));
        assert!(is_final(Some(&recorded), ThreadStatus::Failed, &core_failure()));
    }
}
