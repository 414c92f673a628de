//! Checks the expressions and prompts of a definition: their syntax, names that select nothing, and
//! inputs that no expression uses.

use std::collections::BTreeSet;

use crate::schema::{ShortType, check_expression};

use super::super::definition::{
    GoalCondition, GoalDefinition, GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition,
    WorkflowInput, WorkflowOutput,
};
use super::super::expression::{self, ValueShape};
use super::super::expression_literals::{FutileLiteral, futile_literals};
use super::super::function_arguments::WrongCall;
use super::super::graph::{GoalGraph, MemberKind};
use super::super::shapes::ShapeSource;
use super::super::template;
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    graph: &GoalGraph<'_>,
    problems: &mut ProblemList,
) {
    let source = ShapeSource { schemas: context.schemas, contracts: context.contracts };
    let mut check = ExpressionCheck {
        definition,
        graph,
        source,
        problems,
        unread: &context.unread,
        is_stored: context.is_stored,
        is_partial: context.is_partial,
        checked: None,
        used_inputs: BTreeSet::new(),
        uses_all_inputs: false,
    };
    for (number, goal) in definition.goals.iter().enumerate() {
        check.checked = Some(number);
        check.goal(number, goal);
    }

    check.checked = None;
    check.output();
    check.unused_inputs();
}

struct ExpressionCheck<'a, 'p> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    source: ShapeSource<'a>,
    problems: &'p mut ProblemList,
    unread: &'a [String],
    is_stored: bool,
    /// Whether the definition may lack a part that could not be read.
    is_partial: bool,
    /// Number of the goal whose expressions are being checked; `None` for the output of the
    /// workflow.
    checked: Option<usize>,
    used_inputs: BTreeSet<String>,
    uses_all_inputs: bool,
}

impl ExpressionCheck<'_, '_> {
    fn goal(&mut self, number: usize, goal: &GoalDefinition) {
        let root = self.root_of(number);
        match &goal.form {
            GoalForm::Run(target) => self.target(target, &root),
            GoalForm::All { prompt, vote, .. } => {
                self.prompt(prompt, &root);
                if let Some(by) = vote {
                    let output = self.source.goal(goal).unwrap_or(ValueShape::Open);
                    self.relative(by, &output);
                }
            }
            GoalForm::First { prompt, .. } | GoalForm::Ask { prompt, .. } => {
                self.prompt(prompt, &root);
            }
            GoalForm::Each(each) => {
                self.expression(&each.items, &root);
                self.require_nodes(&each.items);
                let item = expression::selected(&each.items.value, &root);
                let of_item = with_child(root, "item", item);
                self.target(&each.target, &of_item);
                if let Some(role) = &each.role {
                    self.expression(role, &of_item);
                }
                if let Some(verify) = &each.verify {
                    let judge = self.graph.number(&verify.goal.value);
                    let shape = judge.and_then(|number| self.source.goal(self.graph.goal(number)?));
                    let shape = shape.unwrap_or(ValueShape::Open);
                    let root = with_child(of_item, verify.goal.value.as_str(), shape);
                    self.expression(&verify.accept, &root);
                }
            }
            GoalForm::Loop { until, .. } => {
                let mut root = root;
                for member in self.graph.beneath(number) {
                    root = self.with_goal(root, member);
                }
                self.condition(until, &root);
            }
            GoalForm::Choose(branches) => {
                let conditions = branches.iter().filter_map(|branch| branch.when.as_ref());
                conditions.for_each(|condition| self.condition(condition, &root));
            }
        }
    }

    /// Returns the shape of the document from which the expressions of the goal `number` select
    /// values. The shape lists the elements that these expressions may select when the goal starts.
    fn root_of(&self, number: usize) -> ValueShape {
        let mut root = self.input_root();
        for visible in self.graph.visible(number) {
            root = self.with_goal(root, visible);
        }

        // Members of the goal's loop can have outputs from the previous pass.
        if let Some(owner) = self.graph.loop_of(number) {
            for member in self.graph.beneath(owner) {
                root = self.with_goal(root, member);
            }
        }

        let verified = self
            .graph
            .membership(number)
            .filter(|membership| membership.kind == MemberKind::Verify);
        let verified = verified.and_then(|membership| self.graph.goal(membership.owner));
        if let Some((GoalForm::Each(each), owner)) = verified.map(|owner| (&owner.form, owner)) {
            let output = self.source.target(owner, &each.target);
            let item = expression::selected(&each.items.value, &root);
            root = with_child(root, owner.id.value.as_str(), output);
            root = with_child(root, "item", item);
        }

        root
    }

    fn input_root(&self) -> ValueShape {
        let input = self.source.input(self.definition);
        ValueShape::Children(vec![("input".to_owned(), input)])
    }

    fn with_goal(&self, root: ValueShape, number: usize) -> ValueShape {
        let Some(goal) = self.graph.goal(number) else { return root };
        match self.source.goal(goal) {
            Some(shape) => with_child(root, goal.id.value.as_str(), shape),
            None => root,
        }
    }

    fn target(&mut self, target: &GoalTarget, root: &ValueShape) {
        match target {
            GoalTarget::Agent { prompt, .. } => self.prompt(prompt, root),
            GoalTarget::Listener { with, .. } | GoalTarget::Workflow { with, .. } => match with {
                Mapping::Fields(fields) => {
                    fields.iter().for_each(|(_, value)| self.expression(value, root));
                }
                Mapping::Element(value) => {
                    self.expression(value, root);
                    self.require_nodes(value);
                }
            },
        }
    }

    fn condition(&mut self, condition: &GoalCondition, root: &ValueShape) {
        match condition {
            GoalCondition::XPath(expression) => self.expression(expression, root),
            GoalCondition::Judge { prompt, .. } => self.prompt(prompt, root),
        }
    }

    fn output(&mut self) {
        let mut root = self.input_root();
        for number in 0..self.definition.goals.len() {
            root = self.with_goal(root, number);
        }

        let definition = self.definition;
        match &definition.output {
            WorkflowOutput::LastGoal => {}
            WorkflowOutput::One(expression) => self.expression(expression, &root),
            WorkflowOutput::Table(table) => {
                table.iter().for_each(|(_, expression)| self.expression(expression, &root));
            }
        }
    }

    fn prompt(&mut self, prompt: &Placed<String>, root: &ValueShape) {
        let expressions: Vec<_> = template::expressions(prompt).collect();
        expressions.iter().for_each(|expression| self.expression(expression, root));
    }

    fn expression(&mut self, expression: &Placed<String>, root: &ValueShape) {
        let Some(report) = self.report(expression, root) else { return };
        for (name, child) in &report.references {
            match child {
                Some(child) if name == "input" => {
                    self.used_inputs.insert(child.clone());
                }
                // A path with two steps is also listed as a reference with its first step alone.
                None if name == "input" => {
                    let has_child = |(other, child): &(String, Option<String>)| {
                        other == "input" && child.is_some()
                    };
                    self.uses_all_inputs |= !report.references.iter().any(has_child);
                }
                _ => {}
            }
        }
    }

    /// Checks an expression whose paths start at the output of an agent, such as the expression of
    /// a vote. `root` is the shape of this output.
    fn relative(&mut self, expression: &Placed<String>, root: &ValueShape) {
        self.report(expression, root);
    }

    /// Reports an expression if it must select nodes, but its value is a text, a number or a truth
    /// value.
    fn require_nodes(&mut self, expression: &Placed<String>) {
        let text = expression.value.as_str();
        let is_valid = check_expression(text).is_ok();
        if self.is_stored || !is_valid || !expression::is_value(text) {
            return;
        }

        let message = format!("`{text}` selects no nodes");
        let help = "write a path to elements or attributes";
        let place = expression.place;
        self.problems.add_part(DefinitionFault::BadExpression, place, text, message, help);
    }

    fn report(
        &mut self,
        expression: &Placed<String>,
        root: &ValueShape,
    ) -> Option<expression::ExpressionReport> {
        let text = expression.value.as_str();
        let place = expression.place;
        if let Err(error) = check_expression(text) {
            let message = format!("`{text}` is not an XPath 1.0: {error}");
            let help = "docs/WORKFLOWS.md has examples";
            self.problems.add_part(DefinitionFault::BadExpression, place, text, message, help);
            return None;
        }

        let report = expression::read(text, root);
        for function in &report.unknown_functions {
            let message = format!("there is no function `{function}`");
            let help = near_or(function, expression::FUNCTIONS, "");
            self.problems.add_part(DefinitionFault::BadExpression, place, function, message, help);
        }
        for wrong in report.wrong_calls.iter().filter(|_| !self.is_stored) {
            let WrongCall { function, message, help } = wrong;
            self.problems.add_part(DefinitionFault::BadExpression, place, function, message, *help);
        }
        if report.has_variable {
            let message = "an expression has no variables";
            let help = "write a path from `input` or a goal";
            self.problems.add_part(DefinitionFault::BadExpression, place, text, message, help);
        }
        for missing in &report.missing {
            self.missing(expression, missing);
        }
        for futile in futile_literals(text) {
            let FutileLiteral { literal, message, help } = futile;
            let quoted = ['\'', '"'].map(|quote| format!("{quote}{literal}{quote}"));
            let part = quoted.iter().find(|part| text.contains(*part));
            let part = part.map_or(text, String::as_str);
            self.problems.add_part(DefinitionFault::NeverMatches, place, part, message, help);
        }

        Some(report)
    }

    fn missing(&mut self, expression: &Placed<String>, missing: &expression::MissingName) {
        let name = missing.name.as_str();
        let goals = &self.definition.goals;
        let number = goals.iter().position(|goal| goal.id.value.as_str() == name);
        let goal = number.and_then(|number| goals.get(number));
        let is_own = number.is_some() && number == self.checked;
        let first = missing.path.split('/').next().filter(|first| !first.is_empty());
        let first = first.unwrap_or(name);
        // An `item` may belong to a goal that could not be read. Without any goal, each name may be
        // that of a goal.
        let is_goal_unread = first == "item" || (goals.is_empty() && first != "input");
        if (self.is_partial && is_goal_unread) || self.unread.iter().any(|unread| unread == first) {
            return;
        }

        let form = goal.map(|goal| &goal.form);
        let message = match (missing.path.as_str(), form) {
            ("", Some(GoalForm::Loop { .. } | GoalForm::Choose(_))) => {
                format!("`{name}` has no output: only the goals in it have one")
            }
            ("", Some(_)) if is_own => format!("`{name}` has no output before it has ended"),
            ("", Some(_)) => {
                format!("`{name}` has no output here: it may not have ended")
            }
            ("", None) => format!("`{name}` is neither `input` nor a goal with an output"),
            (path, _) => format!("`{path}` never holds `{name}`"),
        };
        let known: Vec<_> = missing.known.iter().map(String::as_str).collect();
        let help = match (missing.path.as_str(), form) {
            ("", Some(GoalForm::Loop { .. } | GoalForm::Choose(_))) => {
                "name a goal in it".to_owned()
            }
            ("", Some(_)) if is_own => "name a goal that ends before it".to_owned(),
            ("", Some(_)) => format!("add \"{name}\" to needs"),
            _ => near_or(name, known, "a text has no children"),
        };
        let part = if missing.path.is_empty() { name } else { &expression.value };
        let place = expression.place;
        self.problems.add_part(DefinitionFault::NeverMatches, place, part, message, help);
    }

    fn unused_inputs(&mut self) {
        if self.uses_all_inputs || self.is_partial {
            return;
        }

        let definition = self.definition;
        let WorkflowInput::Types(ShortType::Fields(fields)) = &definition.input else { return };
        for field in fields.iter().filter(|field| !self.used_inputs.contains(&field.name)) {
            let message = format!(
                "nothing in workflow `{}` uses the input `{}`",
                definition.name.value, field.name
            );
            let help = format!("insert {{{{input/{}}}}} in a prompt, or take it out", field.name);
            let place = definition.name.place;
            let part = &field.name;
            self.problems.add_part(DefinitionFault::UnusedInput, place, part, message, help);
        }
    }
}

/// Adds the child `name` to the shape `root`, and returns the result. Replaces an existing child of
/// the same name.
fn with_child(root: ValueShape, name: &str, shape: ValueShape) -> ValueShape {
    let ValueShape::Children(mut children) = root else { return root };
    children.retain(|(known, _)| known != name);
    children.push((name.to_owned(), shape));
    ValueShape::Children(children)
}
