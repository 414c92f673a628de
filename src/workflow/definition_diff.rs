//! Finds the differences between two workflow definitions, and lists the calls of a definition.
//!
//! The comparison uses the compiled XML of both definitions. It therefore includes every setting,
//! and ignores differences that are only in notation.

use std::collections::BTreeMap;

use crate::contract::{Contracts, goal_name};
use crate::ids::{ListenerName, PayloadName};
use crate::xml::element::Element;

use super::compile::{compile, peers_of_goal};
use super::definition::{GoalDefinition, GoalForm, GoalId, GoalTarget, WorkflowDefinition};
use super::questions::{question_name, report_name};

/// Name of the element that contains the name of a peer. A compiled definition has one such element
/// for each peer, sorted by the names.
const PEER: &str = "peer";

/// One difference between two definitions: either the values at one path of their compiled XML
/// differ, or the elements with names at one path, such as goals, are in another order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The path in the compiled XML, such as `goal[draft]/agent[writer]/prompt` or
    /// `goal[draft]@retry`. For an order, a phrase such as `order in goal[draft]/all`.
    pub path: String,
    /// Value in the first definition; `None` if only the second definition has this path.
    pub before: Option<String>,
    /// Value in the second definition; `None` if only the first definition has this path.
    pub after: Option<String>,
}

impl DefinitionChange {
    /// Whether the change also applies to open runs, which began with the first definition. True
    /// for changes of the budget of a workflow, the types of outputs and the names of roles,
    /// because the present config decides about them. There is one exception: if a goal had no
    /// output type or no roles in the first definition, adding them does not apply to open runs.
    /// `all` are all changes between the two definitions.
    pub fn holds_for_open_runs(&self, all: &[Self]) -> bool {
        let path = self.path.strip_prefix("order in ").unwrap_or(&self.path);
        let Some((goal, rest)) = path.strip_prefix("goal[").and_then(|rest| rest.split_once(']'))
        else {
            return path == "@tokens" || path == "@money-billionths";
        };

        // A goal without a type or without roles in the first definition has none in its runs.
        let is_new = |attribute: &str| {
            let path = format!("goal[{goal}]{attribute}");
            all.iter().any(|change| change.path == path && change.before.is_none())
        };
        let is_output = rest.starts_with("/output") && !is_new("/output@type");
        let is_role = rest.starts_with("/roles/role") && !is_new("/roles@agent");
        is_output || is_role
    }
}

/// Returns every difference between two definitions, in the order of the paths. If only one
/// definition has a goal, the whole goal is one difference. Changed orders come last.
pub fn changes(before: &WorkflowDefinition, after: &WorkflowDefinition) -> Vec<DefinitionChange> {
    let (before, orders_before) = places(before);
    let (after, orders_after) = places(after);
    let mut paths: Vec<&String> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let changed = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    let changed = changed.map(|path| DefinitionChange {
        path: path.clone(),
        before: before.get(path).cloned(),
        after: after.get(path).cloned(),
    });

    let mut changes: Vec<DefinitionChange> = Vec::new();
    let mut whole = String::new();
    for change in changed {
        // A goal that only one definition has is one change; places within the goal are left out.
        if !whole.is_empty() && change.path.starts_with(&whole) {
            continue;
        }
        if is_goal(&change.path) {
            whole.clone_from(&change.path);
        }
        changes.push(change);
    }

    changes.extend(changed_orders(&orders_before, &orders_after));
    changes
}

/// Returns a change for each path at which the elements with names, such as goals, have another
/// order. Ignores elements that only one definition has.
fn changed_orders(before: &ElementOrders, after: &ElementOrders) -> Vec<DefinitionChange> {
    let common = |elements: &[String], others: &[String]| {
        let common = elements.iter().filter(|element| others.contains(element));
        common.cloned().collect::<Vec<_>>().join(", ")
    };
    let in_both = before.iter().filter_map(|(path, first)| Some((path, first, after.get(path)?)));
    let orders = in_both.map(|(path, first, second)| DefinitionChange {
        path: order_of(path),
        before: Some(common(first, second)),
        after: Some(common(second, first)),
    });
    orders.filter(|order| order.before != order.after).collect()
}

/// Returns the phrase that a [`DefinitionChange`] has in place of a path if the order of the
/// elements at `path` differs.
fn order_of(path: &str) -> String {
    if path.is_empty() { "order of goals".to_owned() } else { format!("order in {path}") }
}

fn is_goal(path: &str) -> bool {
    path.starts_with("goal[") && path.ends_with(']') && !path.contains('/')
}

/// For each path of a compiled definition, the elements with names at this path, such as goals, in
/// their order.
type ElementOrders = BTreeMap<String, Vec<String>>;

/// Compiles a definition to XML. Returns the values in this XML by their paths, and the orders of
/// the elements with names.
fn places(definition: &WorkflowDefinition) -> (BTreeMap<String, String>, ElementOrders) {
    let mut places = BTreeMap::new();
    let mut orders = ElementOrders::new();
    if let Some(root) = Element::read(&compile(definition).text) {
        add_places(&root, "", &mut places, &mut orders);
    }
    (places, orders)
}

fn add_places(
    element: &Element,
    path: &str,
    places: &mut BTreeMap<String, String>,
    orders: &mut ElementOrders,
) {
    for (name, value) in &element.attributes {
        places.insert(format!("{path}@{}", name.local), value.clone());
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for child in element.children() {
        let name = child.attribute("id").or_else(|| child.attribute("name")).map(str::to_owned);
        let is_ordered = name.is_some();
        // Peers are a set of names: an additional one must not change the path of another.
        let name = name.or_else(|| (child.local_name() == PEER).then(|| child.own_text()));
        let segment = match name {
            Some(name) => format!("{}[{name}]", child.local_name()),
            None => child.local_name().to_owned(),
        };
        let earlier = seen.entry(segment.clone()).or_default();
        *earlier += 1;
        let number = if *earlier == 1 { String::new() } else { format!("#{earlier}") };
        let separator = if path.is_empty() { "" } else { "/" };
        let segment = format!("{segment}{number}");
        add_places(child, &format!("{path}{separator}{segment}"), places, orders);
        if is_ordered {
            orders.entry(path.to_owned()).or_default().push(segment);
        }
    }

    let is_leaf = element.children().next().is_none();
    if is_leaf || is_goal(path) {
        places.insert(path.to_owned(), element.own_text());
    }
}

/// A call that runs of a definition may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinedCall<'a> {
    /// The goal that makes the call; `None` for the list of calls that were not undone, which a
    /// failed run sends to a person.
    pub goal: Option<&'a GoalId>,
    pub callee: &'a ListenerName,
    /// `None` if the definition names no payload.
    pub payload: Option<PayloadName>,
}

impl DefinedCall<'_> {
    /// Whether the gate lets the runs of `workflow` make this call under `contracts`.
    pub fn is_permitted(&self, contracts: &Contracts, workflow: &ListenerName) -> bool {
        let Some(vocabulary) = contracts.vocabulary(workflow) else { return false };
        match &self.payload {
            Some(payload) => {
                let meaning = vocabulary.meaning(payload);
                meaning.is_some_and(|meaning| meaning.may_call(self.callee))
            }
            None => vocabulary.iter().any(|(_, meaning)| meaning.may_call(self.callee)),
        }
    }
}

/// Returns every call that runs of a definition may make, in the order of the goals. Leaves out
/// calls that undo other calls.
pub fn defined_calls(definition: &WorkflowDefinition) -> Vec<DefinedCall<'_>> {
    let of_goals = definition.goals.iter().flat_map(|goal| {
        peers_of_goal(goal).into_iter().map(move |callee| DefinedCall {
            goal: Some(&goal.id.value),
            callee,
            payload: payload_for(definition, goal, callee),
        })
    });
    let report = definition.report_to.iter().map(|human| DefinedCall {
        goal: None,
        callee: &human.value,
        payload: Some(report_name(definition)),
    });
    of_goals.chain(report).collect()
}

/// Returns the name of the payload with which a goal addresses `callee`, one of its peers. Returns
/// `None` if the definition does not name the payload.
fn payload_for(
    definition: &WorkflowDefinition,
    goal: &GoalDefinition,
    callee: &ListenerName,
) -> Option<PayloadName> {
    let target = match &goal.form {
        GoalForm::Run(target) => Some(target),
        GoalForm::Each(each) => Some(&each.target),
        GoalForm::Ask { human, .. } if human.value == *callee => {
            return question_name(definition, goal);
        }
        _ => None,
    };
    if let Some(
        GoalTarget::Listener { listener: name, payload, .. }
        | GoalTarget::Workflow { workflow: name, payload, .. },
    ) = target
        && name.value == *callee
    {
        return payload.as_ref().map(|payload| payload.value.clone());
    }

    let supervision = goal.supervision.as_ref().filter(|supervision| supervision.is_human);
    if supervision.is_some_and(|supervision| supervision.supervisor.value == *callee) {
        return question_name(definition, goal);
    }
    Some(goal_name(callee))
}

#[cfg(test)]
mod tests {
    use super::super::definition::{GoalOutput, Mapping, PlaceId, Placed};
    use super::super::questions::questions;
    use super::super::read_compiled::read_compiled;
    use super::*;
    use crate::contract::{Budget, Contract, Role};
    use crate::schema::ShortType;

    /// Makes a definition with one agent and these peers.
    fn definition(peers: &[&str]) -> WorkflowDefinition {
        let peers = peers.iter().map(|peer| format!("<peer>{peer}</peer>"));
        let text = format!(
            "<workflow xmlns=\"https://xml-pipeline.org/ns/workflow/v1\" name=\"tour\"><description>\
             </description><input type=\"children\"/><output of=\"last-goal\"/><on-failure>stop\
             </on-failure>{}<goal id=\"draft\" retry=\"0\"><agent name=\"writer\"><prompt>x</prompt>\
             </agent><output/><on-failure>stop</on-failure></goal></workflow>",
            peers.collect::<String>()
        );
        read_compiled(&text).expect("it is a compiled form")
    }

    #[test]
    fn a_call_is_permitted_if_its_listener_is_a_peer_that_accepts_its_payload() {
        let name = |text: &str| ListenerName::parse(text).expect("it is a name");
        let placed = |text: &str| Placed::new(name(text), PlaceId::default());
        let pay = PayloadName::new("urn:test", "pay");
        let mut tour = definition(&["writer"]);
        tour.report_to = Some(placed("owner"));
        let target = GoalTarget::Listener {
            listener: placed("bank"),
            payload: Some(Placed::new(pay.clone(), PlaceId::default())),
            with: Mapping::Fields(Vec::new()),
        };
        let form = GoalForm::Run(target);
        tour.goals.push(GoalDefinition { form, ..tour.goals[0].clone() });

        let refused = |peers: &[&str], accepts: &[PayloadName]| {
            let accepts = accepts.to_vec();
            let bank = Contract { accepts, ..Contract::new(name("bank"), Role::Listener) };
            let others = [("writer", Role::Agent), ("owner", Role::Human)];
            let others = others.map(|(other, role)| Contract::new(name(other), role));
            let workflow = Contract {
                peers: peers.iter().map(|peer| name(peer)).collect(),
                questions: questions(&tour),
                ..Contract::new(name("tour"), Role::Workflow)
            };
            let contracts = others.into_iter().chain([bank, workflow]).collect();
            let contracts = Contracts::new(contracts).expect("they are good");
            let calls = defined_calls(&tour).into_iter();
            let refused = calls.filter(|call| !call.is_permitted(&contracts, &name("tour")));
            refused.map(|call| call.callee.to_string()).collect::<Vec<_>>()
        };

        let accepted = [pay];
        assert_eq!(refused(&["writer", "bank", "owner"], &accepted), Vec::<String>::new());
        assert_eq!(refused(&["writer", "bank", "owner"], &[]), ["bank"]);
        assert_eq!(refused(&["bank"], &accepted), ["writer", "owner"]);
    }

    #[test]
    fn goals_in_another_order_are_a_change() {
        let goal = |id: &str| GoalDefinition {
            id: Placed::new(GoalId::parse(id).expect("it is an id"), PlaceId::default()),
            needs: Some(Vec::new()),
            ..definition(&["writer"]).goals.remove(0)
        };
        let with = |goals: &[&str]| WorkflowDefinition {
            goals: goals.iter().map(|id| goal(id)).collect(),
            ..definition(&["writer"])
        };
        let before = with(&["one", "two", "three"]);
        let after = with(&["two", "one", "four"]);
        let found = changes(&before, &after);
        let paths: Vec<_> = found.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["goal[four]", "goal[three]", "order of goals"]);
        let order = found.last().expect("it is the order");
        assert_eq!(order.before.as_deref(), Some("goal[one], goal[two]"));
        assert_eq!(order.after.as_deref(), Some("goal[two], goal[one]"));
        assert_eq!(changes(&before, &before), []);
    }

    #[test]
    fn the_budget_and_the_types_of_outputs_hold_for_open_runs() {
        let words = |words: &[&str]| {
            GoalOutput::Types(ShortType::Words(
                words.iter().map(|word| (*word).to_owned()).collect(),
            ))
        };
        let with = |output: GoalOutput, tokens: u64| {
            let first = definition(&["writer"]);
            let goals = first.goals.iter().map(|goal| GoalDefinition {
                output: output.clone(),
                retry: u32::try_from(tokens).expect("it is small"),
                ..goal.clone()
            });
            let budget = Budget { tokens: Some(tokens), money: None };
            WorkflowDefinition { goals: goals.collect(), budget, ..definition(&["writer"]) }
        };
        let immediate = |before: &WorkflowDefinition, after: &WorkflowDefinition| {
            let all = changes(before, after);
            let immediate = all.iter().filter(|change| change.holds_for_open_runs(&all));
            immediate.map(|change| change.path.clone()).collect::<Vec<_>>()
        };

        let typed = with(words(&["yes", "no"]), 1);
        let changed = with(words(&["yes", "maybe"]), 2);
        assert_eq!(immediate(&typed, &changed), ["@tokens", "goal[draft]/output/word#2"]);
        let text = with(GoalOutput::Text, 1);
        assert_eq!(immediate(&text, &typed), Vec::<String>::new());
    }

    #[test]
    fn an_additional_peer_is_the_only_change() {
        let before = definition(&["critic", "writer"]);
        let after = definition(&["boss", "critic", "writer"]);
        let boss = |before: Option<&str>, after: Option<&str>| DefinitionChange {
            path: "peer[boss]".to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        assert_eq!(changes(&before, &after), [boss(None, Some("boss"))]);
        assert_eq!(changes(&after, &before), [boss(Some("boss"), None)]);
        assert_eq!(changes(&before, &before), []);
    }
}
