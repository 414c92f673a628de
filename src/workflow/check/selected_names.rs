//! Finds the names of the elements that an expression selects, with their namespaces. The names of
//! many elements are known without a run: schemas and contracts fix the names of inputs and
//! outputs. If a name is not certain, this module finds nothing.

use crate::contract::Contracts;
use crate::ids::PayloadName;
use crate::schema::{PayloadParameter, Schemas};
use crate::xml::shape::QName;

use super::super::definition::{
    EachItem, GoalDefinition, GoalForm, GoalTarget, WorkflowDefinition,
};
use super::super::expression::{ExpressionToken, tokens};
use super::super::payloads::input_name;
use super::super::shapes::labels;
use super::super::typed_outputs::generated_answer;

/// The config from which the names of selected elements follow.
pub(super) struct SelectedNames<'a> {
    pub definition: &'a WorkflowDefinition,
    pub contracts: &'a Contracts,
    pub schemas: &'a Schemas,
}

impl SelectedNames<'_> {
    /// Returns the names of all elements that an expression of `goal` can select. An output that is
    /// a text is an element without a namespace. Returns `None` if the names are not certain.
    pub fn of_expression(&self, expression: &str, goal: &GoalDefinition) -> Option<Vec<QName>> {
        self.of_paths(expression, &[], Some(goal))
    }

    /// Returns the names of all elements that the steps `rest` select beneath the nodes that
    /// `expression` selects. If the expression uses the name `item`, this is an item of `goal`.
    fn of_paths(
        &self,
        expression: &str,
        rest: &[&str],
        goal: Option<&GoalDefinition>,
    ) -> Option<Vec<QName>> {
        let tokens = tokens(expression);
        let mut names = Vec::new();
        for path in tokens.split(|token| *token == ExpressionToken::Symbol("|")) {
            let mut steps = steps(path)?;
            steps.extend(rest);
            names.extend(self.of_steps(&steps, goal)?);
        }
        Some(names)
    }

    fn of_steps(&self, steps: &[&str], goal: Option<&GoalDefinition>) -> Option<Vec<QName>> {
        let (first, rest) = steps.split_first()?;
        match *first {
            "input" => self.beneath(&input_name(self.definition), rest),
            "item" => match &goal?.form {
                GoalForm::Each(each) => self.of_paths(&each.items.value, rest, None),
                _ => None,
            },
            id => {
                let mut goals = self.definition.goals.iter();
                let found = goals.find(|found| found.id.value.as_str() == id)?;
                match (&found.form, goal) {
                    // A verifier gets the output of one item under the name of the goal.
                    (GoalForm::Each(each), Some(goal)) if is_verifier(each, goal) => {
                        self.of_target(found, &each.target, id, rest)
                    }
                    _ => self.of_output(found, rest),
                }
            }
        }
    }

    /// Returns the names of all elements that the steps `rest` select beneath the output of `goal`.
    fn of_output(&self, goal: &GoalDefinition, rest: &[&str]) -> Option<Vec<QName>> {
        let id = goal.id.value.as_str();
        match (&goal.form, rest) {
            (GoalForm::Run(target), _) => self.of_target(goal, target, id, rest),
            (
                GoalForm::All { vote: Some(_), .. } | GoalForm::First { .. } | GoalForm::Ask { .. },
                _,
            ) => self.of_answer(goal, id, rest),
            (GoalForm::All { .. } | GoalForm::Each(_), []) => Some(vec![QName::new(None, id)]),
            (GoalForm::All { agents, .. }, [label, rest @ ..]) => {
                let is_label = labels(agents).iter().any(|known| known == label);
                is_label.then(|| self.of_answer(goal, label, rest))?
            }
            (GoalForm::Each(each), ["item", rest @ ..]) => {
                self.of_target(goal, &each.target, "item", rest)
            }
            _ => None,
        }
    }

    /// Returns the names of all elements that the steps `rest` select beneath the reply of `target`
    /// to a call of `goal`. `name` is the name of the element that stands for a text.
    fn of_target(
        &self,
        goal: &GoalDefinition,
        target: &GoalTarget,
        name: &str,
        rest: &[&str],
    ) -> Option<Vec<QName>> {
        match target {
            GoalTarget::Agent { .. } => self.of_answer(goal, name, rest),
            GoalTarget::Listener { listener, .. } => {
                let replies = &self.contracts.get(&listener.value)?.replies;
                let mut names = Vec::new();
                if rest.is_empty() {
                    // The output of an acknowledgement is a text, which has no elements beneath.
                    names.push(QName::new(None, name));
                }
                for reply in replies {
                    names.extend(self.beneath(reply, rest)?);
                }
                (!replies.is_empty()).then_some(names)
            }
            GoalTarget::Workflow { .. } => None,
        }
    }

    /// Returns the names of all elements that the steps `rest` select beneath the answer of an
    /// agent or a person. `name` is the name of the element that stands for a text.
    fn of_answer(&self, goal: &GoalDefinition, name: &str, rest: &[&str]) -> Option<Vec<QName>> {
        match generated_answer(self.definition, goal) {
            Some(answer) => self.beneath(&answer, rest),
            None if rest.is_empty() => Some(vec![QName::new(None, name)]),
            None => None,
        }
    }

    /// Returns the names of all elements that the steps `rest` select beneath the payload `root`.
    fn beneath(&self, root: &PayloadName, rest: &[&str]) -> Option<Vec<QName>> {
        if rest.is_empty() {
            return Some(vec![QName::from(root)]);
        }
        if !self.schemas.contains(root) {
            return None;
        }

        let description = self.schemas.describe(root);
        let mut level: Vec<&PayloadParameter> = description.parameters.iter().collect();
        let mut names = Vec::new();
        for step in rest {
            if level.iter().any(|parameter| parameter.is_any_element()) {
                return None;
            }
            level.retain(|parameter| !parameter.attribute && parameter.name == *step);
            if level.is_empty() {
                return None;
            }
            names = level.iter().map(|parameter| parameter.written.clone()).collect();
            level = level.into_iter().flat_map(|parameter| &parameter.parameters).collect();
        }
        Some(names)
    }
}

/// Whether `goal` judges the output of each item of the goal with the settings `each`.
fn is_verifier(each: &EachItem, goal: &GoalDefinition) -> bool {
    each.verify.as_ref().is_some_and(|verify| verify.goal.value == goal.id.value)
}

/// Returns the steps of a path that consists only of names, with or without predicates.
fn steps(path: &[ExpressionToken]) -> Option<Vec<&str>> {
    let mut steps = Vec::new();
    let mut is_step_due = true;
    let mut predicates = 0usize;
    for token in path {
        match token {
            ExpressionToken::Symbol("[") if !is_step_due => predicates += 1,
            ExpressionToken::Symbol("]") => predicates = predicates.checked_sub(1)?,
            _ if predicates > 0 => {}
            ExpressionToken::Name(name) if is_step_due => {
                steps.push(name.as_str());
                is_step_due = false;
            }
            ExpressionToken::Symbol("/") if !is_step_due => is_step_due = true,
            _ => return None,
        }
    }

    (predicates == 0 && !is_step_due).then_some(steps)
}
