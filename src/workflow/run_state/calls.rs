//! Builds the calls with which threads of a run begin, and the limits of these threads.

use crate::ids::{ListenerName, PayloadName};
use crate::schema::XPathError;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::super::definition::{
    GoalCondition, GoalDefinition, GoalForm, GoalTarget, Mapping, Placed,
};
use super::super::document::TaskDocument;
use super::super::mapping;
use super::super::run_definition::RunRules;
use super::super::typed_outputs::{agents_of, generated_answer, prompt_of};
use super::super::verdicts::{judgement_name, verdict_name};
use super::super::view::ViewValue;
use super::{GoalCall, GoalRun, GoalState, RunKind, RunLimits, RunPart, WorkflowRun};

impl WorkflowRun<'_> {
    /// Returns the goal whose settings apply to a goal run. For the verification of an item, this
    /// is the verifier. For any other goal run, it is the goal of the run.
    pub(in super::super) fn subject(&self, run: &GoalRun) -> usize {
        match run.kind {
            RunKind::Work | RunKind::Supervise | RunKind::Judge(_) => run.goal,
            RunKind::Verify => self.graph.verifier(run.goal).unwrap_or(run.goal),
        }
    }

    /// Returns the name of the payload that must answer the goal run `run`. Returns `None` if:
    /// - an agent answers with text;
    /// - the goal run calls a listener or a workflow;
    /// - the goal run is a question, and the run follows [`RunRules::Early`].
    pub(in super::super) fn answer(&self, run: &GoalRun) -> Option<PayloadName> {
        match run.kind {
            RunKind::Supervise => return Some(verdict_name()),
            RunKind::Judge(_) => return Some(judgement_name()),
            RunKind::Work | RunKind::Verify => {}
        }

        let goal = self.graph.goal(self.subject(run))?;
        let is_question =
            matches!(goal.form, GoalForm::Ask { .. }) && self.state.rules != RunRules::Early;
        let has_answer = is_question || !agents_of(goal).is_empty();
        generated_answer(self.definition, goal).filter(|_| has_answer)
    }

    pub(super) fn limits(&self, run: &GoalRun) -> RunLimits {
        let goal = self.graph.goal(self.subject(run));
        goal.map_or_else(RunLimits::default, |goal| RunLimits {
            timeout: goal.timeout,
            budget: goal.budget,
        })
    }

    pub(super) fn item_of(&self, run: &GoalRun) -> Option<&ViewValue> {
        match (self.goal_state(run.goal), run.part) {
            (GoalState::Running(progress), RunPart::Item(position)) => progress.items.get(position),
            _ => None,
        }
    }

    pub(super) fn call(&self, run: &GoalRun) -> Result<GoalCall, XPathError> {
        let goal = self.graph.goal(self.subject(run));
        let form = goal.map(|goal| &goal.form);
        let missing = || XPathError::Invalid("the goal starts no call".to_owned());
        match run.kind {
            RunKind::Supervise => {
                return self.supervisor_call(run, goal.ok_or_else(missing)?);
            }
            RunKind::Judge(position) => {
                let form = &goal.ok_or_else(missing)?.form;
                let (agent, prompt) = judge_of(form, position).ok_or_else(missing)?;
                return self.agent_call(run, agent, prompt);
            }
            RunKind::Work | RunKind::Verify => {}
        }

        match form.ok_or_else(missing)? {
            GoalForm::Run(target) => self.target_call(run, target, None),
            GoalForm::All { agents, prompt, .. } | GoalForm::First { agents, prompt } => {
                let RunPart::Agent(position) = run.part else { return Err(missing()) };
                let agent = agents.get(position).ok_or_else(missing)?;
                self.agent_call(run, agent, prompt)
            }
            GoalForm::Each(each) => self.target_call(run, &each.target, each.role.as_ref()),
            GoalForm::Ask { human, prompt, .. } => self.question(run, &human.value, prompt),
            GoalForm::Loop { .. } | GoalForm::Choose(_) => Err(missing()),
        }
    }

    fn agent_call(
        &self,
        run: &GoalRun,
        agent: &Placed<ListenerName>,
        prompt: &Placed<String>,
    ) -> Result<GoalCall, XPathError> {
        let document = self.document(run, prompt)?.text();
        Ok(self.agents_goal(run, agent, document))
    }

    fn agents_goal(
        &self,
        run: &GoalRun,
        agent: &Placed<ListenerName>,
        document: String,
    ) -> GoalCall {
        let answer = self.answer(run);
        let carries_out = matches!(run.kind, RunKind::Work | RunKind::Verify);
        let goal = self.graph.goal(self.subject(run)).filter(|_| carries_out);
        let roles = goal.and_then(|goal| {
            let roles = goal.roles.as_ref()?;
            Some(roles.of_goal(&self.definition.name.value, &goal.id.value))
        });
        GoalCall::Agent { agent: agent.value.clone(), document, answer, roles }
    }

    /// Builds the call to a goal's supervisor. A supervisor that is an agent gets a document; a
    /// person gets a question.
    fn supervisor_call(
        &self,
        run: &GoalRun,
        goal: &GoalDefinition,
    ) -> Result<GoalCall, XPathError> {
        let missing = || XPathError::Invalid("the goal has no supervisor".to_owned());
        let supervision = goal.supervision.as_ref().ok_or_else(missing)?;
        let prompt = prompt_of(goal).ok_or_else(missing)?;
        if supervision.is_human {
            self.question(run, &supervision.supervisor.value, prompt)
        } else {
            self.agent_call(run, &supervision.supervisor, prompt)
        }
    }

    fn target_call(
        &self,
        run: &GoalRun,
        target: &GoalTarget,
        role: Option<&Placed<String>>,
    ) -> Result<GoalCall, XPathError> {
        match target {
            GoalTarget::Agent { agent, prompt } => {
                let document = self.document(run, prompt)?;
                let document = match role {
                    None => document.text(),
                    Some(role) => {
                        let task = TaskDocument {
                            role: self.run_view(run, &[&role.value])?.insert(&role.value)?,
                            parent_goal: document.goal,
                            task: document.prompt,
                            corrections: document.corrections,
                        };
                        task.text()
                    }
                };
                Ok(self.agents_goal(run, agent, document))
            }
            GoalTarget::Listener { listener, payload, with }
            | GoalTarget::Workflow { workflow: listener, payload, with } => {
                let name = payload
                    .as_ref()
                    .map(|name| QName::new(Some(&name.value.namespace), &name.value.local));
                let payload = self.mapped(run, with, name, &listener.value)?;
                Ok(GoalCall::Payload { listener: listener.value.clone(), payload })
            }
        }
    }

    /// Builds the payload of a call to a listener or a workflow from the mapping `with`.
    fn mapped(
        &self,
        run: &GoalRun,
        with: &Mapping,
        name: Option<QName>,
        listener: &ListenerName,
    ) -> Result<Element, XPathError> {
        let view = self.run_view(run, &mapping::expressions(with))?;
        let takes_first = self.state.rules == RunRules::Early;
        mapping::payload(&view, with, name, listener, takes_first)
    }
}

/// Returns the judge of a loop, or of the branch at `position`, with the judge's prompt. Returns
/// `None` if no judge decides the condition.
pub(in super::super) fn judge_of(
    form: &GoalForm,
    position: usize,
) -> Option<(&Placed<ListenerName>, &Placed<String>)> {
    let condition = match form {
        GoalForm::Loop { until, .. } => until,
        GoalForm::Choose(branches) => branches.get(position)?.when.as_ref()?,
        _ => return None,
    };
    match condition {
        GoalCondition::Judge { agent, prompt } => Some((agent, prompt)),
        GoalCondition::XPath(_) => None,
    }
}
