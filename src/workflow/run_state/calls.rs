//! The calls that threads of a run begin with, and the limits of these threads.

use crate::ids::ListenerName;
use crate::schema::XPathError;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::super::definition::{GoalForm, GoalTarget, Mapping, Placed};
use super::super::document::TaskDocument;
use super::super::view::ViewValue;
use super::{GoalCall, GoalRun, GoalState, RunKind, RunLimits, RunPart, WorkflowRun};

impl WorkflowRun<'_> {
    /// The goal whose settings and call a run has: a verification has those of the goal that
    /// verifies.
    pub(in super::super) fn subject(&self, run: &GoalRun) -> usize {
        match run.kind {
            RunKind::Work => run.goal,
            RunKind::Verify => self.graph.verifier(run.goal).unwrap_or(run.goal),
        }
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
        match form.ok_or_else(missing)? {
            GoalForm::Run(target) => self.target_call(run, target, None),
            GoalForm::All { agents, prompt, .. } | GoalForm::First { agents, prompt } => {
                let RunPart::Agent(position) = run.part else { return Err(missing()) };
                let agent = agents.get(position).ok_or_else(missing)?;
                let document = self.document(run, prompt)?.text();
                Ok(GoalCall::Agent { agent: agent.value.clone(), document })
            }
            GoalForm::Each(each) => self.target_call(run, &each.target, each.role.as_ref()),
            GoalForm::Ask { .. } | GoalForm::Loop { .. } | GoalForm::Choose(_) => Err(missing()),
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
                            role: self.run_view(run)?.insert(&role.value)?,
                            parent_goal: document.goal,
                            task: document.prompt,
                            corrections: document.corrections,
                        };
                        task.text()
                    }
                };
                Ok(GoalCall::Agent { agent: agent.value.clone(), document })
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

    /// The payload that a mapping makes.
    fn mapped(
        &self,
        run: &GoalRun,
        with: &Mapping,
        name: Option<QName>,
        listener: &ListenerName,
    ) -> Result<Element, XPathError> {
        let view = self.run_view(run)?;
        match with {
            Mapping::Element(expression) => {
                let selected = view.payload(&expression.value)?;
                let nothing = || format!("{} selects no element", expression.value);
                selected.ok_or_else(|| XPathError::Invalid(nothing()))
            }
            Mapping::Fields(fields) => {
                let name = name.unwrap_or_else(|| QName::new(None, listener.as_str()));
                let namespace = name.namespace.clone();
                let mut payload = Element::new(name);
                for (field, expression) in fields {
                    // A value that selects nothing leaves its child out.
                    let Some(value) = view.text(&expression.value)? else { continue };
                    payload = match field.strip_prefix('@') {
                        Some(attribute) => payload.with_attribute(attribute, value),
                        None => {
                            let child = Element::new(QName::new(namespace.as_deref(), field));
                            payload.with_child(child.with_text(value))
                        }
                    };
                }
                Ok(payload)
            }
        }
    }
}
