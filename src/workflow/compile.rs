//! The compiled form of a definition: one canonical XML, with the texts of prompts and the peers.
//!
//! A run finishes on the form it began with, so this text stands in its record. Two definitions
//! with one meaning have one text: needs are resolved, and defaults are written out.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::contract::{Budget, WORKFLOW_NAMESPACE};
use crate::ids::{Digest, ListenerName, PayloadName};
use crate::schema::{FieldCount, ShortType};
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::{
    AskForm, FailurePolicy, GoalCondition, GoalDefinition, GoalForm, GoalId, GoalOutput,
    GoalTarget, ItemFailure, LoopEnd, Mapping, Placed, WorkflowDefinition, WorkflowInput,
    WorkflowOutput,
};
use super::graph::GoalGraph;

/// A definition as the record of its runs holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledWorkflow {
    pub text: String,
    pub digest: Digest,
}

/// Compiles a definition that has no problem.
pub fn compile(definition: &WorkflowDefinition) -> CompiledWorkflow {
    let text = workflow(definition).to_xml();
    let digest = Digest::of(text.as_bytes());
    CompiledWorkflow { text, digest }
}

/// Everything that a workflow addresses: each name once, in order of names.
pub fn peers_of(definition: &WorkflowDefinition) -> Vec<ListenerName> {
    let mut peers: BTreeSet<&ListenerName> = BTreeSet::new();
    peers.extend(definition.peers.iter().map(|peer| &peer.value));
    peers.extend(definition.report_to.iter().map(|human| &human.value));
    for goal in &definition.goals {
        match &goal.form {
            GoalForm::Run(target) => peers.extend([&target.name().value]),
            GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
                peers.extend(agents.iter().map(|agent| &agent.value));
            }
            GoalForm::Each(each) => peers.extend([&each.target.name().value]),
            GoalForm::Loop { until, .. } => peers.extend(judge_of(until)),
            GoalForm::Choose(branches) => {
                let conditions = branches.iter().filter_map(|branch| branch.when.as_ref());
                peers.extend(conditions.filter_map(judge_of));
            }
            GoalForm::Ask { human, .. } => peers.extend([&human.value]),
        }
        peers.extend(goal.supervision.iter().map(|one| &one.supervisor.value));
        peers.extend(goal.roles.iter().map(|roles| &roles.agent.value));
    }

    peers.into_iter().cloned().collect()
}

fn judge_of(condition: &GoalCondition) -> Option<&ListenerName> {
    match condition {
        GoalCondition::Judge { agent, .. } => Some(&agent.value),
        GoalCondition::XPath(_) => None,
    }
}

fn element(local: &str) -> Element {
    Element::new(QName::new(Some(WORKFLOW_NAMESPACE), local))
}

fn leaf(local: &str, text: &str) -> Element {
    element(local).with_text(text)
}

fn workflow(definition: &WorkflowDefinition) -> Element {
    let (graph, _) = GoalGraph::new(definition);
    let mut root = element("workflow").with_attribute("name", definition.name.value.as_str());
    root = with_limits(root, definition.timeout, definition.budget);
    if let Some(human) = &definition.report_to {
        root = root.with_attribute("report-to", human.value.as_str());
    }

    root = root.with_child(leaf("description", &definition.description));
    root = root.with_child(match &definition.input {
        WorkflowInput::Types(types) => typed(element("input"), types),
        WorkflowInput::Payload(name) => payload(element("input"), &name.value),
    });
    root = root.with_child(match &definition.output {
        WorkflowOutput::LastGoal => element("output"),
        WorkflowOutput::One(expression) => leaf("output", &expression.value),
        WorkflowOutput::Table(table) => fields(element("output"), table),
    });
    for peer in peers_of(definition) {
        root = root.with_child(leaf("peer", peer.as_str()));
    }
    for (number, goal) in definition.goals.iter().enumerate() {
        root = root.with_child(goal_element(definition, &graph, number, goal));
    }

    root
}

fn goal_element(
    definition: &WorkflowDefinition,
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
) -> Element {
    let mut out = element("goal").with_attribute("id", goal.id.value.as_str());
    out = out.with_attribute("retry", goal.retry.to_string());
    out = with_limits(out, goal.timeout, goal.budget);
    let needs = match &goal.needs {
        Some(named) => named.iter().map(|id| id.value.clone()).collect(),
        None if graph.membership(number).is_some() => Vec::new(),
        None => ids_of(graph, &graph.direct_needs(number)),
    };
    for id in needs {
        out = out.with_child(leaf("need", id.as_str()));
    }
    if let Some(context) = &goal.context {
        let shown = context.iter().map(|id| leaf("show", id.value.as_str()));
        out = out.with_child(shown.fold(element("context"), Element::with_child));
    }

    out = out.with_child(form(&goal.form));
    out = out.with_child(match &goal.output {
        GoalOutput::Text => element("output"),
        GoalOutput::Types(types) => typed(element("output"), types),
        GoalOutput::Payload(name) => payload(element("output"), &name.value),
    });
    out = out.with_child(match goal.on_failure.as_ref().unwrap_or(&definition.on_failure) {
        FailurePolicy::Stop => leaf("on-failure", "stop"),
        FailurePolicy::Skip => leaf("on-failure", "skip"),
        FailurePolicy::Undo => leaf("on-failure", "undo"),
        FailurePolicy::Goal(id) => element("on-failure").with_attribute("goal", id.value.as_str()),
    });
    if let Some(supervision) = &goal.supervision {
        let supervisor = leaf("supervisor", &supervision.supervise)
            .with_attribute("name", supervision.supervisor.value.as_str())
            .with_attribute("corrections", supervision.corrections.to_string());
        out = out.with_child(supervisor);
    }
    if let Some(roles) = &goal.roles {
        let delegates = element("roles")
            .with_attribute("agent", roles.agent.value.as_str())
            .with_attribute("max", roles.max.to_string())
            .with_attribute("depth", roles.depth.to_string());
        let names = roles.names.iter().map(|name| leaf("role", name));
        out = out.with_child(names.fold(delegates, Element::with_child));
    }

    out
}

fn ids_of(graph: &GoalGraph<'_>, numbers: &[usize]) -> Vec<GoalId> {
    let goals = numbers.iter().filter_map(|number| graph.goal(*number));
    goals.map(|goal| goal.id.value.clone()).collect()
}

fn form(form: &GoalForm) -> Element {
    match form {
        GoalForm::Run(goal) => target(goal),
        GoalForm::All { agents, prompt, vote } => {
            let out = several("all", agents, prompt);
            match vote {
                Some(by) => out.with_child(leaf("vote", &by.value)),
                None => out,
            }
        }
        GoalForm::First { agents, prompt } => several("first", agents, prompt),
        GoalForm::Each(each) => {
            let on_item_failure = match each.on_item_failure {
                ItemFailure::Stop => "stop",
                ItemFailure::Skip => "skip",
                ItemFailure::Collect => "collect",
            };
            let mut out = element("each")
                .with_attribute("max-items", each.max_items.to_string())
                .with_attribute("concurrency", each.concurrency.to_string())
                .with_attribute("on-item-failure", on_item_failure)
                .with_child(leaf("items", &each.items.value))
                .with_child(target(&each.target));
            if let Some(role) = &each.role {
                out = out.with_child(leaf("role", &role.value));
            }
            if let Some(verify) = &each.verify {
                let accept = leaf("verify", &verify.accept.value);
                out = out.with_child(accept.with_attribute("goal", verify.goal.value.as_str()));
            }
            out
        }
        GoalForm::Loop { members, until, max, at_max } => {
            let at_max = match at_max {
                LoopEnd::Fail => "fail",
                LoopEnd::Continue => "continue",
            };
            let out = element("loop")
                .with_attribute("max", max.to_string())
                .with_attribute("at-max", at_max)
                .with_child(condition("until", until));
            runs(out, members)
        }
        GoalForm::Choose(branches) => {
            let branches = branches.iter().map(|branch| {
                let when = branch.when.as_ref().map(|when| condition("when", when));
                runs(when.into_iter().fold(element("branch"), Element::with_child), &branch.run)
            });
            branches.fold(element("choose"), Element::with_child)
        }
        GoalForm::Ask { human, prompt, form } => {
            let out = element("ask").with_attribute("human", human.value.as_str());
            let out = out.with_child(leaf("prompt", &prompt.value));
            match form {
                AskForm::Output => out.with_attribute("form", "output"),
                AskForm::Verdict { about: None } => out,
                AskForm::Verdict { about: Some(id) } => {
                    out.with_attribute("about", id.value.as_str())
                }
            }
        }
    }
}

fn target(target: &GoalTarget) -> Element {
    let out = element(target.key()).with_attribute("name", target.name().value.as_str());
    match target {
        GoalTarget::Agent { prompt, .. } => out.with_child(leaf("prompt", &prompt.value)),
        GoalTarget::Listener { payload: name, with, .. }
        | GoalTarget::Workflow { payload: name, with, .. } => {
            let out = match name {
                Some(name) => payload(out, &name.value),
                None => out,
            };
            out.with_child(mapping(with))
        }
    }
}

fn several(local: &str, agents: &[Placed<ListenerName>], prompt: &Placed<String>) -> Element {
    let names =
        agents.iter().map(|agent| element("agent").with_attribute("name", agent.value.as_str()));
    names.fold(element(local), Element::with_child).with_child(leaf("prompt", &prompt.value))
}

fn runs(out: Element, members: &[Placed<GoalId>]) -> Element {
    members.iter().map(|id| leaf("run", id.value.as_str())).fold(out, Element::with_child)
}

fn condition(local: &str, condition: &GoalCondition) -> Element {
    match condition {
        GoalCondition::XPath(expression) => leaf(local, &expression.value),
        GoalCondition::Judge { agent, prompt } => element(local)
            .with_attribute("judge", agent.value.as_str())
            .with_child(leaf("prompt", &prompt.value)),
    }
}

fn mapping(with: &Mapping) -> Element {
    match with {
        Mapping::Fields(table) => fields(element("with"), table),
        Mapping::Element(expression) => leaf("with", &expression.value),
    }
}

fn fields(out: Element, table: &[(String, Placed<String>)]) -> Element {
    let fields = table
        .iter()
        .map(|(name, value)| leaf("field", &value.value).with_attribute("name", name.as_str()));
    fields.fold(out, Element::with_child)
}

fn payload(out: Element, name: &PayloadName) -> Element {
    out.with_attribute("payload", name.to_string())
}

fn typed(out: Element, of: &ShortType) -> Element {
    match of {
        ShortType::Fields(fields) => {
            let fields = fields.iter().map(|field| {
                let count = match field.occurs {
                    FieldCount::Once => "once",
                    FieldCount::AtMostOnce => "at-most-once",
                    FieldCount::AnyNumber => "any-number",
                };
                let out = element("child").with_attribute("name", field.name.as_str());
                typed(out.with_attribute("occurs", count), &field.of)
            });
            fields.fold(out.with_attribute("type", "children"), Element::with_child)
        }
        ShortType::Words(words) => {
            let words = words.iter().map(|word| leaf("word", word));
            words.fold(out.with_attribute("type", "words"), Element::with_child)
        }
        simple => out.with_attribute("type", simple.name().unwrap_or_default()),
    }
}

fn with_limits(mut out: Element, timeout: Option<Duration>, budget: Budget) -> Element {
    if let Some(timeout) = timeout {
        out = out.with_attribute("timeout-ms", timeout.as_millis().to_string());
    }
    if let Some(tokens) = budget.tokens {
        out = out.with_attribute("tokens", tokens.to_string());
    }
    if let Some(money) = budget.money {
        out = out.with_attribute("money", money.to_string());
    }
    out
}
