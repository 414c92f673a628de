//! Checks the expressions and prompts of a definition: their syntax, names that select nothing, and
//! inputs that no expression uses.

use std::collections::BTreeSet;

use crate::schema::{ShortType, check_expression};

use super::super::definition::{
    GoalCondition, GoalDefinition, GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition,
    WorkflowInput, WorkflowOutput,
};
use super::super::expression::{self, ExpressionToken as Token};
use super::super::expression_literals::{FutileLiteral, futile_literals};
use super::super::function_arguments::WrongCall;
use super::super::graph::{GoalGraph, MemberKind};
use super::super::shapes::ShapeSource;
use super::super::template;
use super::super::value_shape::ValueShape;
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    graph: &GoalGraph<'_>,
    problems: &mut ProblemList,
) {
    // Earlier versions of the program did not know the outputs of other workflows.
    let definitions: &[&WorkflowDefinition] =
        if context.is_stored { &[] } else { &context.definitions };
    let source = ShapeSource::new(context.schemas, context.contracts, definitions);
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
                    self.expression_as(&verify.accept, &root, true);
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
            GoalCondition::XPath(expression) => {
                self.expression_as(expression, root, true);
                self.note_joined_lines(expression);
            }
            GoalCondition::Judge { prompt, .. } => self.prompt(prompt, root),
        }
    }

    fn output(&mut self) {
        let definition = self.definition;
        let root = self.source.document(definition);
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
        self.expression_as(expression, root, false);
    }

    /// Checks an expression. `is_condition` states whether the expression is a condition, whose
    /// value counts as true or false.
    fn expression_as(
        &mut self,
        expression: &Placed<String>,
        root: &ValueShape,
        is_condition: bool,
    ) {
        let Some(report) = self.report(expression, root, is_condition) else { return };
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
        self.report(expression, root, false);
    }

    /// Reports `expression`, which must select nodes, if its value is a text, a number or a truth
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
        is_condition: bool,
    ) -> Option<expression::ExpressionReport> {
        let text = expression.value.as_str();
        let place = expression.place;
        if let Err(error) = check_expression(text) {
            let message = format!("`{text}` is not an XPath 1.0: {error}");
            let help = "docs/WORKFLOWS.md has examples";
            self.problems.add_part(DefinitionFault::BadExpression, place, text, message, help);
            return None;
        }

        let report = if is_condition {
            expression::read_condition(text, root)
        } else {
            expression::read(text, root)
        };
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
        if !self.is_stored {
            report.comparisons.iter().for_each(|found| self.comparison(expression, found));
            report.converted_booleans.iter().for_each(|path| self.note_boolean(path));
        }

        Some(report)
    }

    /// Reports a comparison whose literal never equals the compared value. Does not report a
    /// comparison with the empty literal, because this comparison may test whether the value
    /// exists.
    fn comparison(
        &mut self,
        expression: &Placed<String>,
        comparison: &expression::LiteralComparison,
    ) {
        let expression::LiteralComparison { path, words, literal } = comparison;
        if literal.is_empty() || words.iter().any(|word| word == literal.trim()) {
            return;
        }

        let known = words.iter().map(String::as_str);
        let message = format!("`{path}` is never '{literal}': it is one of {}", words.join(", "));
        let help = near_or(literal, known, "");
        let place = expression.place;
        let part = expression.value.as_str();
        self.problems.add_part(DefinitionFault::NeverMatches, place, part, message, help);
    }

    /// Returns a text that names the checked goal and its workflow.
    fn whose(&self) -> String {
        let name = &self.definition.name.value;
        match self.checked.and_then(|number| self.graph.goal(number)) {
            Some(goal) => format!("goal `{}` of workflow `{name}`", goal.id.value),
            None => format!("workflow `{name}`"),
        }
    }

    /// Notes that a condition converts the boolean value at `path` to a truth value. XPath's
    /// conversion gives true for every value that exists, even for the text `false`.
    fn note_boolean(&mut self, path: &str) {
        let note = format!(
            "the condition `{path}` in {} holds wherever the value is there, also where it is \
             false: compare it, as in {path} = 'true'",
            self.whose()
        );
        self.problems.note(note);
    }

    /// Records a note for each call of `last-line` in a condition, if the argument of this call
    /// contains the outputs of several agents or items. The value of the call is then the last line
    /// of only one of the outputs, or of two outputs that are joined without a separator.
    fn note_joined_lines(&mut self, condition: &Placed<String>) {
        let tokens = expression::tokens(&condition.value);
        for at in 0..tokens.len() {
            let Some([Token::Name(function), Token::Symbol("("), Token::Name(id), rest @ ..]) =
                tokens.get(at..)
            else {
                continue;
            };
            let goals = &self.definition.goals;
            let goal = goals.iter().find(|goal| goal.id.value.as_str() == id);
            let is_list = match goal.map(|goal| &goal.form) {
                Some(GoalForm::Each(_)) => true,
                Some(GoalForm::All { vote: None, .. }) => false,
                _ => continue,
            };
            let is_several = match rest {
                [Token::Symbol(")"), ..]
                | [Token::Symbol("/"), Token::Symbol("*"), Token::Symbol(")"), ..] => true,
                [Token::Symbol("/"), Token::Name(child), Token::Symbol(")"), ..] => {
                    is_list && child == "item"
                }
                _ => false,
            };
            if function == "last-line" && is_several {
                let note = format!(
                    "`last-line` in {} reads one line, although `{id}` has several outputs: test \
                     each of them, as in {id}/*[last-line(.) = 'revise']",
                    self.whose()
                );
                self.problems.note(note);
            }
        }
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
