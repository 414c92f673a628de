//! Compiles a workflow definition to one canonical XML text, which contains all prompts and the
//! names of all peers.
//!
//! The journal contains the XML of a run's definition, so that the definition stays the same during
//! the run. Definitions with the same meaning have the same XML, because dependencies are resolved
//! and defaults are written out. The functions destructure every struct without `..`, so that the
//! Rust compiler reports a setting that the XML lacks. `read_compiled` parses the XML.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::contract::{Budget, WORKFLOW_NAMESPACE};
use crate::envelope::Money;
use crate::ids::{Digest, ListenerName, PayloadName};
use crate::schema::{FieldCount, ShortField, ShortType};
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::definition::{
    AskForm, ChooseBranch, DelegatedRoles, EachItem, FailurePolicy, GoalCondition, GoalDefinition,
    GoalForm, GoalId, GoalOutput, GoalTarget, ItemFailure, ItemVerification, LoopEnd, Mapping,
    Placed, Supervision, WorkflowDefinition, WorkflowInput, WorkflowOutput,
};
use super::graph::GoalGraph;

/// A workflow definition as the journal stores it: the canonical XML and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledWorkflow {
    pub text: String,
    pub digest: Digest,
}

/// Compiles a definition to its canonical XML. The definition must have passed all checks.
pub fn compile(definition: &WorkflowDefinition) -> CompiledWorkflow {
    let text = workflow(definition).to_xml();
    let digest = Digest::of(text.as_bytes());
    CompiledWorkflow { text, digest }
}

/// Returns the names of all listeners that a workflow addresses, sorted and without duplicates.
pub fn peers_of(definition: &WorkflowDefinition) -> Vec<ListenerName> {
    let mut peers: BTreeSet<&ListenerName> = BTreeSet::new();
    peers.extend(definition.peers.iter().map(|peer| &peer.value));
    peers.extend(definition.report_to.iter().map(|human| &human.value));
    for goal in &definition.goals {
        peers.extend(peers_of_goal(goal));
    }

    peers.into_iter().cloned().collect()
}

/// Returns the names of all listeners that a goal addresses. The members of a loop or a choice are
/// goals of their own, so their listeners are not included.
pub fn peers_of_goal(goal: &GoalDefinition) -> BTreeSet<&ListenerName> {
    let mut peers: BTreeSet<&ListenerName> = BTreeSet::new();
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
    peers.extend(goal.supervision.iter().map(|supervision| &supervision.supervisor.value));
    peers.extend(goal.roles.iter().map(|roles| &roles.agent.value));
    peers
}

fn judge_of(condition: &GoalCondition) -> Option<&ListenerName> {
    match condition {
        GoalCondition::Judge { agent, .. } => Some(&agent.value),
        GoalCondition::XPath(_) => None,
    }
}

/// Values of the XML attribute `of`, which names the source of an output or a payload:
/// - `LAST_GOAL`: the output of the last goal;
/// - `EXPRESSION`: the value of one expression;
/// - `FIELDS`: one expression for each field.
pub(super) const LAST_GOAL: &str = "last-goal";
pub(super) const EXPRESSION: &str = "expression";
pub(super) const FIELDS: &str = "fields";

/// Name, in the compiled XML, of a form of question. The answer to a question of this form becomes
/// the output of the goal.
pub(super) const ASK_OUTPUT: &str = "output";

/// Value of the XML attribute `is` if the supervisor of a goal is a human.
pub(super) const HUMAN: &str = "human";

/// The word in the compiled XML for each value of [`FieldCount`].
pub(super) const COUNTS: [(&str, FieldCount); 3] = [
    ("once", FieldCount::Once),
    ("at-most-once", FieldCount::AtMostOnce),
    ("any-number", FieldCount::AnyNumber),
];

fn element(local: &str) -> Element {
    Element::new(QName::new(Some(WORKFLOW_NAMESPACE), local))
}

fn leaf(local: &str, text: &str) -> Element {
    element(local).with_text(text)
}

fn workflow(definition: &WorkflowDefinition) -> Element {
    let WorkflowDefinition {
        name,
        description,
        input,
        output,
        // `peers` are written below, as a part of `peers_of`.
        peers: _,
        on_failure,
        report_to,
        timeout,
        budget,
        goals,
    } = definition;
    let (graph, _) = GoalGraph::new(definition);
    let mut root = element("workflow").with_attribute("name", name.value.as_str());
    root = with_limits(root, *timeout, *budget);
    if let Some(human) = report_to {
        root = root.with_attribute("report-to", human.value.as_str());
    }

    root = root.with_child(leaf("description", description));
    root = root.with_child(match input {
        WorkflowInput::Types(types) => typed(element("input"), types),
        WorkflowInput::Payload(name) => payload(element("input"), &name.value),
    });
    root = root.with_child(match output {
        WorkflowOutput::LastGoal => element("output").with_attribute("of", LAST_GOAL),
        WorkflowOutput::One(expression) => expressed("output", expression),
        WorkflowOutput::Table(table) => fields("output", table),
    });
    root = root.with_child(policy(on_failure));
    for peer in peers_of(definition) {
        root = root.with_child(leaf("peer", peer.as_str()));
    }
    for (number, goal) in goals.iter().enumerate() {
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
    let GoalDefinition {
        id,
        form,
        needs,
        context,
        output,
        retry,
        on_failure,
        timeout,
        budget,
        // A place in the config has no meaning for a run.
        budget_place: _,
        supervision,
        roles,
    } = goal;

    let mut out = element("goal").with_attribute("id", id.value.as_str());
    out = out.with_attribute("retry", retry.to_string());
    out = with_limits(out, *timeout, *budget);

    let needs = match needs {
        Some(named) => named.iter().map(|id| id.value.clone()).collect(),
        None if graph.membership(number).is_some() => Vec::new(),
        None => ids_of(graph, &graph.direct_needs(number)),
    };
    for id in needs {
        out = out.with_child(leaf("need", id.as_str()));
    }

    if let Some(context) = context {
        let shown = context.iter().map(|id| leaf("show", id.value.as_str()));
        out = out.with_child(shown.fold(element("context"), Element::with_child));
    }

    out = out.with_child(form_element(form));
    out = out.with_child(match output {
        GoalOutput::Text => element("output"),
        GoalOutput::Types(types) => typed(element("output"), types),
        GoalOutput::Payload(name) => payload(element("output"), &name.value),
    });
    out = out.with_child(policy(on_failure.as_ref().unwrap_or(&definition.on_failure)));
    let supervisor = supervision.iter().map(supervisor);
    out = supervisor.fold(out, Element::with_child);
    roles.iter().map(delegates).fold(out, Element::with_child)
}

fn policy(policy: &FailurePolicy) -> Element {
    match policy {
        FailurePolicy::Stop => leaf("on-failure", "stop"),
        FailurePolicy::Skip => leaf("on-failure", "skip"),
        FailurePolicy::Undo => leaf("on-failure", "undo"),
        FailurePolicy::Goal(id) => element("on-failure").with_attribute("goal", id.value.as_str()),
    }
}

fn supervisor(supervision: &Supervision) -> Element {
    let Supervision { supervisor, is_human, supervise, corrections } = supervision;
    let out = leaf("supervisor", supervise)
        .with_attribute("name", supervisor.value.as_str())
        .with_attribute("corrections", corrections.to_string());
    if *is_human { out.with_attribute("is", HUMAN) } else { out }
}

fn delegates(roles: &DelegatedRoles) -> Element {
    let DelegatedRoles { agent, max, depth, names } = roles;
    let delegates = element("roles")
        .with_attribute("agent", agent.value.as_str())
        .with_attribute("max", max.to_string())
        .with_attribute("depth", depth.to_string());
    let names = names.iter().map(|name| leaf("role", name));
    names.fold(delegates, Element::with_child)
}

fn ids_of(graph: &GoalGraph<'_>, numbers: &[usize]) -> Vec<GoalId> {
    let goals = numbers.iter().filter_map(|number| graph.goal(*number));
    goals.map(|goal| goal.id.value.clone()).collect()
}

fn form_element(form: &GoalForm) -> Element {
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
        GoalForm::Each(each) => each_element(each),
        GoalForm::Loop { members, until, max, at_max } => {
            let out = element("loop")
                .with_attribute("max", max.to_string())
                .with_attribute("at-max", word_of(&LoopEnd::WORDS, at_max))
                .with_child(condition("until", until));
            runs(out, members)
        }
        GoalForm::Choose(branches) => {
            let branches = branches.iter().map(|branch| {
                let ChooseBranch { when, run, place: _ } = branch;
                let when = when.as_ref().map(|when| condition("when", when));
                runs(when.into_iter().fold(element("branch"), Element::with_child), run)
            });
            branches.fold(element("choose"), Element::with_child)
        }
        GoalForm::Ask { human, prompt, form } => {
            let out = element("ask").with_attribute("human", human.value.as_str());
            let out = out.with_child(leaf("prompt", &prompt.value));
            match form {
                AskForm::Output => out.with_attribute("form", ASK_OUTPUT),
                AskForm::Verdict { about: None } => out,
                AskForm::Verdict { about: Some(id) } => {
                    out.with_attribute("about", id.value.as_str())
                }
            }
        }
    }
}

fn each_element(each: &EachItem) -> Element {
    let EachItem { items, target: run, max_items, concurrency, on_item_failure, verify, role } =
        each;
    let mut out = element("each")
        .with_attribute("max-items", max_items.to_string())
        .with_attribute("concurrency", concurrency.to_string())
        .with_attribute("on-item-failure", word_of(&ItemFailure::WORDS, on_item_failure))
        .with_child(leaf("items", &items.value))
        .with_child(target(run));
    if let Some(role) = role {
        out = out.with_child(leaf("role", &role.value));
    }
    if let Some(ItemVerification { goal, accept }) = verify {
        let accept = leaf("verify", &accept.value);
        out = out.with_child(accept.with_attribute("goal", goal.value.as_str()));
    }
    out
}

/// Returns the name of `value` in the list `words`. The list must contain a name for every value of
/// this type.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    let found = words.iter().find(|(_, known)| known == value);
    found.map(|(word, _)| *word).unwrap_or_default()
}

fn target(target: &GoalTarget) -> Element {
    let out = element(target.key()).with_attribute("name", target.name().value.as_str());
    match target {
        GoalTarget::Agent { agent: _, prompt } => out.with_child(leaf("prompt", &prompt.value)),
        GoalTarget::Listener { listener: _, payload: name, with }
        | GoalTarget::Workflow { workflow: _, payload: name, with } => {
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
        Mapping::Fields(table) => fields("with", table),
        Mapping::Element(expression) => expressed("with", expression),
    }
}

fn expressed(local: &str, expression: &Placed<String>) -> Element {
    leaf(local, &expression.value).with_attribute("of", EXPRESSION)
}

fn fields(local: &str, table: &[(String, Placed<String>)]) -> Element {
    let fields = table
        .iter()
        .map(|(name, value)| leaf("field", &value.value).with_attribute("name", name.as_str()));
    fields.fold(element(local).with_attribute("of", FIELDS), Element::with_child)
}

fn payload(out: Element, name: &PayloadName) -> Element {
    out.with_attribute("payload", name.to_string())
}

fn typed(out: Element, short_type: &ShortType) -> Element {
    match short_type {
        ShortType::Fields(fields) => {
            let fields = fields.iter().map(|field| {
                let ShortField { name, occurs, short_type } = field;
                let out = element("child").with_attribute("name", name.as_str());
                typed(out.with_attribute("occurs", word_of(&COUNTS, occurs)), short_type)
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
    let Budget { tokens, money } = budget;
    if let Some(timeout) = timeout {
        out = out.with_attribute("timeout-ms", timeout.as_millis().to_string());
    }
    if let Some(tokens) = tokens {
        out = out.with_attribute("tokens", tokens.to_string());
    }
    if let Some(Money(billionths)) = money {
        out = out.with_attribute("money-billionths", billionths.to_string());
    }
    out
}
