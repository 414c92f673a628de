//! Shows the documents that the agents of a run would get, without calling models. Placeholder
//! texts stand for the outputs of earlier goals.
//!
//! The documents cover one pass of each loop, every branch of a choice, each item of a list that
//! the input contains, and one item of any other list.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use serde::Serialize;

use crate::xml::element::Element;

use super::definition::{
    EachItem, GoalCondition, GoalDefinition, GoalForm, GoalTarget, Placed, Supervision,
    WorkflowDefinition,
};
use super::document::{ContextEntry, GoalDocument, IterationEntry, LoopPass, TaskDocument};
use super::expression;
use super::graph::{GoalGraph, MemberKind};
use super::input::has_stand_in;
use super::shapes::labels;
use super::template;
use super::typed_outputs::prompt_of;
use super::value_shape::ValueShape;
use super::view::{RunView, ViewEntry, ViewValue};

/// A document that the run would produce, with its title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DryRunDocument {
    /// The id of the goal, followed by the agent, the item or the pass that the document is for.
    #[serde(rename = "title")]
    pub title: String,
    #[serde(rename = "text")]
    pub text: String,
}

/// Returns every document that a run with the input `input` would produce.
pub fn dry_run(definition: &WorkflowDefinition, input: &Element) -> Vec<DryRunDocument> {
    let (graph, _) = GoalGraph::new(definition);
    let entry = ViewEntry::new("input", ViewValue::Payload(Box::new(input.clone())));
    let mut run = DryRun {
        definition,
        graph: &graph,
        view: RunView::new(std::slice::from_ref(&entry)).ok(),
        input: entry,
        item: None,
        item_counts: HashMap::new(),
        ended: HashSet::new(),
        seen: HashSet::new(),
        documents: Vec::new(),
    };
    let goals = 0..definition.goals.len();
    let mut left: Vec<_> = goals.filter(|number| graph.membership(*number).is_none()).collect();
    while !left.is_empty() {
        let can_run = |number: &usize| {
            graph.direct_needs(*number).iter().all(|need| run.ended.contains(need))
        };
        // The check reports goals that wait for each other.
        let next = left.iter().position(can_run).unwrap_or_default();
        run.goal(left.remove(next));
    }

    run.documents
}

struct DryRun<'a> {
    definition: &'a WorkflowDefinition,
    graph: &'a GoalGraph<'a>,
    view: Option<RunView>,
    /// The input of the run, as an entry of the view.
    input: ViewEntry,
    /// The item whose documents are being made; `None` outside of lists.
    item: Option<DryRunItem>,
    /// For each goal that runs once for each item of a list, the number of items for which
    /// documents are shown. The key is the number of the goal.
    item_counts: HashMap<usize, usize>,
    ended: HashSet<usize>,
    seen: HashSet<usize>,
    documents: Vec<DryRunDocument>,
}

/// An item of a list for which documents are shown.
struct DryRunItem {
    /// Number of the item, counted from 1.
    number: usize,
    /// The view with the input and the item; `None` if the item is not known, for example because
    /// the list is part of a goal's output.
    view: Option<RunView>,
}

impl DryRun<'_> {
    fn goal(&mut self, number: usize) {
        let Some(goal) = self.graph.goal(number).filter(|_| self.seen.insert(number)) else {
            return;
        };
        match &goal.form {
            GoalForm::Run(target) => self.run(number, goal, target),
            GoalForm::All { agents, prompt, .. } | GoalForm::First { agents, prompt } => {
                for label in labels(agents) {
                    let document = self.document(number, goal, prompt);
                    self.put(&format!(", {label}"), goal, &document.text());
                }
            }
            GoalForm::Each(each) => self.items(number, goal, each),
            GoalForm::Loop { until, .. } => {
                self.graph.members(number).into_iter().for_each(|member| self.goal(member));
                self.condition(number, goal, until);
            }
            GoalForm::Choose(branches) => {
                for branch in branches {
                    if let Some(condition) = &branch.when {
                        self.condition(number, goal, condition);
                    }
                    let run = branch.run.iter().filter_map(|id| self.graph.number(&id.value));
                    run.collect::<Vec<_>>().into_iter().for_each(|member| self.goal(member));
                }
            }
            GoalForm::Ask { human, prompt, .. } => {
                let text = self.filled(prompt);
                self.put(&format!(", question to {}", human.value), goal, text.trim());
            }
        }

        self.roles(goal);
        // Each item of a list has its own supervision.
        if !matches!(goal.form, GoalForm::Each(_)) {
            self.supervision(number, goal);
        }
        self.ended.insert(number);
        if let Some(fallback) = self.graph.fallback(number) {
            self.goal(fallback);
        }
    }

    fn run(&mut self, number: usize, goal: &GoalDefinition, target: &GoalTarget) {
        let GoalTarget::Agent { prompt, .. } = target else { return };
        let document = self.document(number, goal, prompt);
        let membership = self.graph.membership(number);
        let title = match (&document.pass, membership.map(|membership| membership.kind)) {
            (Some(pass), _) => format!(", pass {}", pass.iteration),
            (None, Some(MemberKind::Verify)) => format!(", item {}", self.item_number()),
            _ => String::new(),
        };
        self.put(&title, goal, &document.text());
    }

    fn items(&mut self, number: usize, goal: &GoalDefinition, each: &EachItem) {
        let views = self.item_views(each);
        self.item_counts.insert(number, views.len());
        if views.is_empty() {
            self.put(", no item", goal, "The list is empty, so no agent gets a document.");
        }
        for (position, view) in views.into_iter().enumerate() {
            self.item = Some(DryRunItem { number: position + 1, view });
            self.item(number, goal, each);
            self.supervision(number, goal);
        }

        self.item = None;
    }

    /// Returns the views of the items for which documents are shown:
    /// - If the input contains the items of the list: a view for each item, at most `max_items` of
    ///   them. There is no view if the predicates of the expression exclude all items.
    /// - Otherwise: one `None`, which stands for an item that is not known.
    fn item_views(&self, each: &EachItem) -> Vec<Option<RunView>> {
        let expression = each.items.value.as_str();
        let report = expression::read(expression, &ValueShape::Open);
        let is_input = report.references.iter().all(|(name, _)| name == "input");
        let view = self.view.as_ref().filter(|_| is_input);
        let items_of = |expression: &str| view.and_then(|view| view.items(expression, false).ok());
        let Some(items) = items_of(expression) else { return vec![None] };
        let all = items_of(&without_predicates(expression)).unwrap_or_default();
        if items.is_empty() && !all.iter().any(is_given) {
            return vec![None];
        }

        let items = items.into_iter().take(each.max_items as usize);
        items
            .map(|item| RunView::new(&[self.input.clone(), ViewEntry::new("item", item)]).ok())
            .collect()
    }

    /// Returns the number of the item whose documents are being made; 1 outside of lists.
    fn item_number(&self) -> usize {
        self.item.as_ref().map_or(1, |item| item.number)
    }

    fn item(&mut self, number: usize, goal: &GoalDefinition, each: &EachItem) {
        if let GoalTarget::Agent { prompt, .. } = &each.target {
            let document = self.document(number, goal, prompt);
            let text = match &each.role {
                Some(role) => {
                    let task = TaskDocument {
                        role: self.inserted(&role.value),
                        parent_goal: goal.id.value.to_string(),
                        task: document.prompt,
                        corrections: Vec::new(),
                    };
                    task.text()
                }
                None => document.text(),
            };
            self.put(&format!(", item {}", self.item_number()), goal, &text);
        }

        if let Some(verifier) = self.graph.verifier(number) {
            // It judges each item.
            self.seen.remove(&verifier);
            self.goal(verifier);
        }
    }

    fn condition(&mut self, number: usize, goal: &GoalDefinition, condition: &GoalCondition) {
        if let GoalCondition::Judge { prompt, .. } = condition {
            let mut document = self.document(number, goal, prompt);
            if let GoalForm::Loop { members, .. } = &goal.form {
                // The judge of a loop sees the outputs of the pass that it judges.
                let members = members.iter().filter_map(|id| self.definition.goal(&id.value));
                document.context.extend(members.flat_map(|member| self.entries(member)));
            }
            self.put(", judge", goal, &document.text());
        }
    }

    fn roles(&mut self, goal: &GoalDefinition) {
        let Some(roles) = &goal.roles else { return };
        let role = roles.names.first().map_or("[role]", String::as_str);
        let task = TaskDocument {
            role: role.to_owned(),
            parent_goal: goal.id.value.to_string(),
            task: format!("[task of {}]", goal.id.value),
            corrections: Vec::new(),
        };
        self.put(&format!(", delegated to {}", roles.agent.value), goal, &task.text());
    }

    fn supervision(&mut self, number: usize, goal: &GoalDefinition) {
        let Some(Supervision { supervisor, is_human, supervise, .. }) = &goal.supervision else {
            return;
        };
        let Some(prompt) = prompt_of(goal) else { return };
        let mut document = self.document(number, goal, prompt);
        document.add_judged(match &goal.form {
            GoalForm::Each(_) => vec![self.item_entry(goal)],
            _ => self.entries(goal),
        });
        document.ask_supervisor(supervise);
        let item = self.item.as_ref().map(|item| format!(", item {}", item.number));
        let title = format!("{}, supervisor", item.unwrap_or_default());
        if *is_human {
            let title = format!("{title}, question to {}", supervisor.value);
            return self.put(&title, goal, document.prompt.trim());
        }
        self.put(&title, goal, &document.text());
    }

    fn document(
        &self,
        number: usize,
        goal: &GoalDefinition,
        prompt: &Placed<String>,
    ) -> GoalDocument {
        let membership = self.graph.membership(number);
        let owner = membership
            .and_then(|membership| Some((membership, self.graph.goal(membership.owner)?)));

        let in_loop = self.graph.loop_of(number);
        let same_pass = in_loop.map(|owner| self.graph.beneath(owner)).unwrap_or_default();

        let mut document = GoalDocument {
            workflow: self.definition.name.value.to_string(),
            goal: goal.id.value.to_string(),
            prompt: self.filled(prompt),
            ..GoalDocument::default()
        };

        let mut pass = Vec::new();
        for shown in self.shown(number, goal) {
            let Some(earlier) = self.graph.goal(shown) else { continue };
            if same_pass.contains(&shown) {
                pass.extend(self.entries(earlier));
            } else {
                document.context.extend(self.entries(earlier));
            }
        }

        if let Some((membership, owner)) =
            owner.filter(|(membership, _)| membership.kind == MemberKind::Verify)
        {
            debug_assert_eq!(Some(membership.owner), self.graph.number(&owner.id.value));
            document.context.push(self.item_entry(owner));
        }
        if !pass.is_empty() {
            document.iterations.push(IterationEntry { number: 1, entries: pass });
        }
        let in_loop = in_loop.and_then(|owner| self.graph.goal(owner));
        document.pass =
            in_loop.map(|owner| LoopPass { name: owner.id.value.to_string(), iteration: 1 });
        document
    }

    /// Returns the goals whose outputs appear in the document of the goal `number`, in the order in
    /// which they run.
    fn shown(&self, number: usize, goal: &GoalDefinition) -> Vec<usize> {
        let visible: HashSet<_> = self.graph.visible(number).into_iter().collect();
        let is_shown = |shown: &usize| visible.contains(shown) && self.graph.shows(goal, *shown);
        let ended = self.graph.order().iter().copied().filter(|number| self.ended.contains(number));
        ended.filter(is_shown).collect()
    }

    fn filled(&self, prompt: &Placed<String>) -> String {
        let insert = |expression: &str| Ok::<_, Infallible>(self.inserted(expression));
        match template::fill(&prompt.value, insert) {
            Ok(text) => text,
            Err(never) => match never {},
        }
    }

    /// Returns the value of an expression that uses only the input and a known item. For any other
    /// expression, returns a placeholder text.
    fn inserted(&self, expression: &str) -> String {
        let report = expression::read(expression, &ValueShape::Open);
        let item = self.item.as_ref().and_then(|item| item.view.as_ref());
        let is_known = |name: &str| name == "input" || (name == "item" && item.is_some());
        let has_value = report.references.iter().all(|(name, _)| is_known(name));
        let value = item.or(self.view.as_ref()).filter(|_| has_value);
        match value.map(|view| view.insert(expression)) {
            Some(Ok(text)) => text,
            _ if self.definition.goals.iter().any(|goal| goal.id.value.as_str() == expression) => {
                format!("[output of {expression}]")
            }
            _ => format!("[{expression}]"),
        }
    }

    fn put(&mut self, suffix: &str, goal: &GoalDefinition, text: &str) {
        let title = format!("{}{suffix}", goal.id.value);
        self.documents.push(DryRunDocument { title, text: text.to_owned() });
    }

    /// Returns a placeholder text for the output of `goal` for the current item. The goal `goal`
    /// runs once for each item of a list.
    fn item_entry(&self, goal: &GoalDefinition) -> ContextEntry {
        output_entry(format!("{}[{}]", goal.id.value, self.item_number()))
    }

    /// Returns placeholder texts for the outputs of a goal.
    fn entries(&self, goal: &GoalDefinition) -> Vec<ContextEntry> {
        let id = &goal.id.value;
        match &goal.form {
            GoalForm::Loop { .. } | GoalForm::Choose(_) => Vec::new(),
            GoalForm::All { agents, vote: None, .. } => {
                let labels = labels(agents).into_iter();
                labels.map(|label| output_entry(format!("{id}[{label}]"))).collect()
            }
            GoalForm::Each(_) => {
                let number = self.graph.number(id);
                let count = number.and_then(|number| self.item_counts.get(&number));
                let items = 1..=count.copied().unwrap_or(1);
                items.map(|item| output_entry(format!("{id}[{item}]"))).collect()
            }
            _ => vec![output_entry(id.to_string())],
        }
    }
}

/// Returns an expression without its predicates, which are the conditions in brackets.
fn without_predicates(expression: &str) -> String {
    let mut depth = 0_u32;
    let mut quote = None;
    let mut kept = String::new();
    for char in expression.chars() {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(char),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth = depth.saturating_sub(1);
                continue;
            }
            (None, _) => {}
        }
        if depth == 0 {
            kept.push(char);
        }
    }
    kept
}

/// Whether an item of the input is a value that a person gave. False if the item contains a
/// stand-in, which [`with_stand_ins`](super::with_stand_ins) writes for a missing value.
fn is_given(item: &ViewValue) -> bool {
    match item {
        ViewValue::Text(text) => !has_stand_in(text),
        ViewValue::Payload(payload) => !has_stand_in(&payload.to_xml()),
        ViewValue::Several(_) | ViewValue::Elements(_) => true,
    }
}

/// Returns a placeholder text for the output `id`.
fn output_entry(id: String) -> ContextEntry {
    ContextEntry { body: format!("[output of {id}]"), id }
}
