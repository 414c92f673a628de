//! Draws a workflow definition as a graph for people, either as a tree in plain text or as a
//! Mermaid flowchart.

use std::fmt::Write as _;

use crate::plural::count;

use super::definition::{
    FailurePolicy, GoalCondition, GoalDefinition, GoalForm, GoalTarget, WorkflowDefinition,
};
use super::graph::GoalGraph;

/// Draws the goals as a tree in plain text, with one line for each goal. The members of a loop or a
/// choice are beneath it. The verifier and the fallback of a goal are beneath this goal.
pub fn text(definition: &WorkflowDefinition) -> String {
    let (graph, _) = GoalGraph::new(definition);
    let mut out = format!("{}\n", definition.name.value);
    for number in 0..definition.goals.len() {
        if graph.membership(number).is_none() {
            write_goal(&mut out, &graph, number, 1);
        }
    }

    out
}

fn write_goal(out: &mut String, graph: &GoalGraph<'_>, number: usize, depth: usize) {
    let Some(goal) = graph.goal(number) else { return };
    let indent = "  ".repeat(depth);
    let _ = writeln!(out, "{indent}{}  {}{}", goal.id.value, summary(goal), needs(graph, number));
    match &goal.form {
        GoalForm::Choose(branches) => {
            for branch in branches {
                let when = branch.when.as_ref().map_or("otherwise".to_owned(), condition);
                let _ = writeln!(out, "{indent}  {when}");
                for id in &branch.run {
                    if let Some(member) = graph.number(&id.value) {
                        write_goal(out, graph, member, depth + 2);
                    }
                }
            }
        }
        GoalForm::Loop { .. } => {
            for member in graph.members(number) {
                write_goal(out, graph, member, depth + 1);
            }
        }
        _ => {}
    }

    if let Some(verifier) = graph.verifier(number) {
        write_goal(out, graph, verifier, depth + 1);
    }
    if let Some(fallback) = graph.fallback(number) {
        let _ = writeln!(out, "{indent}  on failure");
        write_goal(out, graph, fallback, depth + 2);
    }
}

/// Describes the form of a goal in a few words.
fn summary(goal: &GoalDefinition) -> String {
    let mut words = match &goal.form {
        GoalForm::Run(target) => target_words(target),
        GoalForm::All { agents, vote, .. } => {
            let vote = vote.as_ref().map_or("", |_| ", majority");
            format!("all of {}{vote}", names(agents))
        }
        GoalForm::First { agents, .. } => format!("first of {}", names(agents)),
        GoalForm::Each(each) => format!(
            "each {}: {}, at most {}, {} at once",
            each.items.value,
            target_words(&each.target),
            each.max_items,
            each.concurrency
        ),
        GoalForm::Loop { until, max, .. } => {
            format!("loop until {}, at most {}", condition(until), count(*max, "time"))
        }
        GoalForm::Choose(_) => "choose".to_owned(),
        GoalForm::Ask { human, .. } => format!("ask {}", human.value),
    };
    if let Some(supervision) = &goal.supervision {
        let _ = write!(words, ", supervised by {}", supervision.supervisor.value);
    }
    if goal.retry > 0 {
        let _ = write!(words, ", retry {}", goal.retry);
    }
    if let Some(roles) = &goal.roles {
        let times = count(roles.max, "time");
        let _ = write!(words, ", delegates to {} at most {times}", roles.agent.value);
    }
    match &goal.on_failure {
        Some(FailurePolicy::Skip) => words.push_str(", skipped on failure"),
        Some(FailurePolicy::Undo) => words.push_str(", undone on failure"),
        Some(FailurePolicy::Stop | FailurePolicy::Goal(_)) | None => {}
    }

    words
}

fn target_words(target: &GoalTarget) -> String {
    format!("{} {}", target.key(), target.name().value)
}

fn names(agents: &[super::definition::Placed<crate::ids::ListenerName>]) -> String {
    let names: Vec<_> = agents.iter().map(|agent| agent.value.as_str()).collect();
    names.join(", ")
}

fn condition(condition: &GoalCondition) -> String {
    match condition {
        GoalCondition::XPath(expression) => expression.value.clone(),
        GoalCondition::Judge { agent, .. } => format!("{} says yes", agent.value),
    }
}

/// Writes the goals that the setting `needs` of a goal names. Writes nothing if the goal has no
/// such setting.
fn needs(graph: &GoalGraph<'_>, number: usize) -> String {
    let Some(goal) = graph.goal(number) else { return String::new() };
    match goal.needs.as_deref() {
        None => String::new(),
        Some([]) => ", starts at once".to_owned(),
        Some(named) => {
            let named: Vec<_> = named.iter().map(|id| id.value.as_str()).collect();
            format!(", after {}", named.join(", "))
        }
    }
}

/// Draws the goals as a Mermaid flowchart.
pub fn mermaid(definition: &WorkflowDefinition) -> String {
    let (graph, _) = GoalGraph::new(definition);
    let mut out = "flowchart TD\n".to_owned();
    for number in 0..definition.goals.len() {
        if graph.membership(number).is_none() {
            write_node(&mut out, &graph, number, 1);
        }
    }

    for number in 0..definition.goals.len() {
        write_edges(&mut out, &graph, number);
    }

    out
}

fn write_node(out: &mut String, graph: &GoalGraph<'_>, number: usize, depth: usize) {
    let Some(goal) = graph.goal(number) else { return };
    let indent = "  ".repeat(depth);
    let label = quoted(&format!("{}\n{}", goal.id.value, summary(goal)));
    let members = graph.members(number);
    if members.is_empty() {
        let _ = writeln!(out, "{indent}g{number}[{label}]");
    } else {
        let _ = writeln!(out, "{indent}subgraph g{number}[{label}]");
        members.into_iter().for_each(|member| write_node(out, graph, member, depth + 1));
        let _ = writeln!(out, "{indent}end");
    }

    let beside = graph.verifier(number).into_iter().chain(graph.fallback(number));
    beside.for_each(|member| write_node(out, graph, member, depth));
}

fn write_edges(out: &mut String, graph: &GoalGraph<'_>, number: usize) {
    let Some(goal) = graph.goal(number) else { return };
    if graph.membership(number).is_none() {
        for needed in graph.direct_needs(number) {
            let _ = writeln!(out, "  g{needed} --> g{number}");
        }
    }

    match &goal.form {
        GoalForm::Loop { .. } => {
            let members = graph.members(number);
            for pair in members.windows(2) {
                if let [from, to] = pair {
                    let _ = writeln!(out, "  g{from} --> g{to}");
                }
            }
            if let (Some(last), Some(first)) = (members.last(), members.first()) {
                let _ = writeln!(out, "  g{last} -. again .-> g{first}");
            }
        }
        GoalForm::Choose(branches) => {
            for branch in branches {
                let run: Vec<_> =
                    branch.run.iter().filter_map(|id| graph.number(&id.value)).collect();
                for pair in run.windows(2) {
                    if let [from, to] = pair {
                        let _ = writeln!(out, "  g{from} --> g{to}");
                    }
                }
            }
        }
        _ => {}
    }

    if let Some(verifier) = graph.verifier(number) {
        let _ = writeln!(out, "  g{number} -- verify --> g{verifier}");
    }
    if let Some(fallback) = graph.fallback(number) {
        let _ = writeln!(out, "  g{number} -. on failure .-> g{fallback}");
    }
}

/// Quotes a text so that it can be a label in Mermaid.
fn quoted(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!("\"{}\"", text.replace('>', "&gt;").replace('\n', "<br>"))
}
