//! Shows the documents that the agents of a run would get, without calling models. Placeholder
//! texts stand for the outputs of earlier goals.
//!
//! The documents cover one pass of each loop, one item of each list, and every branch of a choice.

use std::collections::HashSet;
use std::convert::Infallible;

use serde::Serialize;

use crate::xml::element::Element;

use super::definition::{
    GoalCondition, GoalDefinition, GoalForm, GoalTarget, Placed, Supervision, WorkflowDefinition,
};
use super::document::{ContextEntry, GoalDocument, IterationEntry, LoopPass, TaskDocument};
use super::expression::{self, ValueShape};
use super::graph::{GoalGraph, MemberKind};
use super::shapes::labels;
use super::template;
use super::typed_outputs::prompt_of;
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
        view: RunView::new(&[entry]).ok(),
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
    ended: HashSet<usize>,
    seen: HashSet<usize>,
    documents: Vec<DryRunDocument>,
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
            GoalForm::Each(each) => self.item(number, goal, &each.target),
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
        self.supervision(number, goal);
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
            (Some(pass), _) => format!(", iteration {}", pass.iteration),
            (None, Some(MemberKind::Verify)) => ", item 1".to_owned(),
            _ => String::new(),
        };
        self.put(&title, goal, &document.text());
    }

    fn item(&mut self, number: usize, goal: &GoalDefinition, target: &GoalTarget) {
        if let GoalTarget::Agent { prompt, .. } = target {
            let document = self.document(number, goal, prompt);
            let role = match &goal.form {
                GoalForm::Each(each) => each.role.as_ref(),
                _ => None,
            };
            let text = match role {
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
            self.put(", item 1", goal, &text);
        }

        if let Some(verifier) = self.graph.verifier(number) {
            self.goal(verifier);
        }
    }

    fn condition(&mut self, number: usize, goal: &GoalDefinition, condition: &GoalCondition) {
        if let GoalCondition::Judge { prompt, .. } = condition {
            let mut document = self.document(number, goal, prompt);
            if let GoalForm::Loop { members, .. } = &goal.form {
                // The judge of a loop sees the outputs of the pass that it judges.
                let members = members.iter().filter_map(|id| self.definition.goal(&id.value));
                document.context.extend(members.flat_map(entries));
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
        document.add_judged(entries(goal));
        document.ask_supervisor(supervise);
        if *is_human {
            let title = format!(", supervisor, question to {}", supervisor.value);
            return self.put(&title, goal, document.prompt.trim());
        }
        self.put(", supervisor", goal, &document.text());
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
                pass.extend(entries(earlier));
            } else {
                document.context.extend(entries(earlier));
            }
        }

        if let Some((membership, owner)) =
            owner.filter(|(membership, _)| membership.kind == MemberKind::Verify)
        {
            debug_assert_eq!(Some(membership.owner), self.graph.number(&owner.id.value));
            document.context.extend(entries(owner));
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

    /// Returns the value of an expression that uses only the input. For any other expression,
    /// returns a placeholder text.
    fn inserted(&self, expression: &str) -> String {
        let report = expression::read(expression, &ValueShape::Open);
        let is_input = report.references.iter().all(|(name, _)| name == "input");
        let value = self.view.as_ref().filter(|_| is_input);
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
}

/// Returns placeholder texts for the outputs of a goal.
fn entries(goal: &GoalDefinition) -> Vec<ContextEntry> {
    let entry = |id: String| ContextEntry { body: format!("[output of {id}]"), id };
    let id = &goal.id.value;
    match &goal.form {
        GoalForm::Loop { .. } | GoalForm::Choose(_) => Vec::new(),
        GoalForm::All { agents, vote: None, .. } => {
            labels(agents).into_iter().map(|label| entry(format!("{id}[{label}]"))).collect()
        }
        GoalForm::Each(_) => vec![entry(format!("{id}[1]"))],
        _ => vec![entry(id.to_string())],
    }
}
