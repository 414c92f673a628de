//! Decides whether a call can have a path that a case lists in `never`.
//!
//! If no call can have the path, the claim always holds, so the author has made a mistake.

use std::collections::HashSet;

use crate::contract::Role;
use crate::limits;
use crate::workflow::{
    AskForm, FailurePolicy, GoalDefinition, GoalForm, WorkflowDefinition, agent_labels, has_judge,
};

use super::super::Config;

/// A part of the label of a thread in which a goal runs. A label consists of the goal's name and,
/// for example, of the parts `_` and the number of an item.
#[derive(Clone)]
enum LabelPart {
    Text(String),
    /// The number of an item of a list, or of a pass of a loop.
    Number,
}

/// Whether a call of the workflow `definition` can have the path `path`. A `path` with `*` at its
/// end stands for every path that begins with the text before `*`.
///
/// Checks the goal at the beginning of the path. If the path names a listener directly after the
/// goal's thread, also checks this listener. Does not check the names of threads beneath the goal's
/// thread.
pub(super) fn can_be_called(path: &str, definition: &WorkflowDefinition, config: &Config) -> bool {
    let path = path.strip_prefix("undo_").unwrap_or(path);
    let (path, is_beginning) = match path.strip_suffix('*') {
        Some(beginning) => (beginning, true),
        None => (path, false),
    };
    // A label is cut at its maximum length.
    let step = path.split(['.', '/']).next().unwrap_or_default();
    if step.len() >= limits::LABEL_CHARS_MAX {
        return true;
    }

    let in_passes = goals_in_passes(definition);
    definition.goals.iter().any(|goal| {
        let id = goal.id.value.as_str();
        let labels = labels_of(goal, definition, in_passes.contains(id));
        if is_beginning && id.starts_with(path) && !labels.is_empty() {
            return true;
        }

        let Some(rest) = path.strip_prefix(id) else { return false };
        // A goal stands for all its parts.
        let is_bare = !is_beginning && (rest.is_empty() || rest.starts_with(['.', '/']));
        let fits_as_goal = is_bare && !labels.is_empty() && is_end(rest, false, config);
        fits_as_goal || labels.iter().any(|label| fits(label, rest, is_beginning, config))
    })
}

/// Returns patterns for the labels of all threads in which `goal` makes calls, including the
/// threads of its supervisor and its judge. A pattern describes the part of a label after the name
/// of the goal. Returns no patterns if the goal makes no calls itself.
fn labels_of(
    goal: &GoalDefinition,
    definition: &WorkflowDefinition,
    is_in_passes: bool,
) -> Vec<Vec<LabelPart>> {
    let parts = parts_of(goal, definition);
    let mut bases = parts.clone();
    let mut labels = parts;
    let numbered = |label: &Vec<LabelPart>| {
        let mut numbered = label.clone();
        numbered.extend([LabelPart::Text("_".to_owned()), LabelPart::Number]);
        numbered
    };
    if is_in_passes {
        labels.extend(labels.iter().map(numbered).collect::<Vec<_>>());
        bases.clone_from(&labels);
    }

    // A supervisor or a judge sees one part of the goal, or the whole goal.
    let whole = [Vec::new()].into_iter().chain(is_in_passes.then(|| numbered(&Vec::new())));
    bases.extend(whole);
    let mut suffixes = Vec::new();
    if goal.supervision.is_some() {
        suffixes.push("_supervisor");
    }
    if has_judge(goal) {
        suffixes.push("_judge");
    }
    for suffix in suffixes {
        labels.extend(bases.iter().map(|base| {
            let mut label = base.clone();
            label.push(LabelPart::Text(suffix.to_owned()));
            label
        }));
    }
    labels
}

/// Returns patterns for the labels of the threads that carry out `goal` or a part of it, such as
/// one item of a list. A pattern describes the part of a label after the name of the goal.
fn parts_of(goal: &GoalDefinition, definition: &WorkflowDefinition) -> Vec<Vec<LabelPart>> {
    let item = || vec![LabelPart::Text("_".to_owned()), LabelPart::Number];
    let mut parts = match &goal.form {
        GoalForm::Run(_) | GoalForm::Ask { .. } => vec![Vec::new()],
        GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
            let members = agent_labels(agents).into_iter();
            members.map(|member| vec![LabelPart::Text(format!("_{member}"))]).collect()
        }
        GoalForm::Each(_) => vec![item()],
        GoalForm::Loop { .. } | GoalForm::Choose(_) => Vec::new(),
    };
    // A goal that judges the items of another one runs once for each of them.
    let judges_items = |other: &GoalDefinition| match &other.form {
        GoalForm::Each(each) => {
            each.verify.as_ref().is_some_and(|check| check.goal.value == goal.id.value)
        }
        _ => false,
    };
    if definition.goals.iter().any(judges_items) {
        parts.push(item());
    }
    parts
}

/// Returns all loops, and all goals that may run in a pass of a loop. This includes goals that the
/// loop starts through another goal.
fn goals_in_passes(definition: &WorkflowDefinition) -> HashSet<&str> {
    let is_loop = |goal: &&GoalDefinition| matches!(goal.form, GoalForm::Loop { .. });
    let loops: Vec<_> = definition.goals.iter().filter(is_loop).collect();
    let mut found = HashSet::new();
    // The fallback of a loop runs after its passes.
    let mut next: Vec<_> = loops.iter().flat_map(|goal| members_of(goal)).collect();
    while let Some(id) = next.pop() {
        if found.insert(id) {
            let goal = definition.goals.iter().find(|goal| goal.id.value.as_str() == id);
            next.extend(goal.into_iter().flat_map(|goal| started_by(goal, definition)));
        }
    }
    found.extend(loops.iter().map(|goal| goal.id.value.as_str()));
    found
}

/// Returns the goals that a goal may start, including its fallback, which runs after a failure.
fn started_by<'a>(goal: &'a GoalDefinition, definition: &'a WorkflowDefinition) -> Vec<&'a str> {
    let mut started = members_of(goal);
    let policy = goal.on_failure.as_ref().unwrap_or(&definition.on_failure);
    if let FailurePolicy::Goal(fallback) = policy {
        started.push(fallback.value.as_str());
    }
    started
}

/// Returns the goals that `goal` may start. Leaves out the fallback of `goal`, which runs after a
/// failure.
fn members_of(goal: &GoalDefinition) -> Vec<&str> {
    match &goal.form {
        GoalForm::Loop { members, .. } => members.iter().map(|id| id.value.as_str()).collect(),
        GoalForm::Choose(branches) => {
            let members = branches.iter().flat_map(|branch| &branch.run);
            members.map(|id| id.value.as_str()).collect()
        }
        GoalForm::Each(each) => each.verify.iter().map(|check| check.goal.value.as_str()).collect(),
        GoalForm::Ask { form: AskForm::Verdict { about }, .. } => {
            about.iter().map(|id| id.value.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether `rest` can follow the name of a goal in a path. `rest` must consist of these parts:
///
/// - a text that matches the pattern `label`
/// - optionally, a number such as `-1`, which marks a further run of the goal's thread after a
///   retry or a correction
/// - an end that [`is_end`] accepts
///
/// If `is_beginning` is true, `rest` may also be the beginning of a text with these parts.
fn fits(label: &[LabelPart], rest: &str, is_beginning: bool, config: &Config) -> bool {
    let mut rest = rest;
    for part in label {
        if rest.is_empty() {
            return is_beginning;
        }
        let after = match part {
            LabelPart::Text(text) if is_beginning && text.starts_with(rest) => return true,
            LabelPart::Text(text) => rest.strip_prefix(text.as_str()),
            LabelPart::Number => after_number(rest),
        };
        let Some(after) = after else { return false };
        rest = after;
    }

    // A further run of the same thread, after a retry or a correction.
    match rest.strip_prefix('-') {
        Some("") => is_beginning,
        Some(number) => after_number(number).is_some_and(|rest| is_end(rest, is_beginning, config)),
        None => is_end(rest, is_beginning, config),
    }
}

/// Returns the text after the number at the beginning of `text`. Returns `None` if `text` does not
/// begin with a number.
fn after_number(text: &str) -> Option<&str> {
    let after = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (after.len() < text.len() && !text.starts_with('0')).then_some(after)
}

/// Whether `rest` can follow the label of a goal's thread in a path. `rest` may be empty, name a
/// thread beneath the goal's thread (`.NAME`), or name a listener that is called in the goal's
/// thread (`/NAME`). If `is_beginning` is true, the name may be incomplete.
fn is_end(rest: &str, is_beginning: bool, config: &Config) -> bool {
    if let Some(beneath) = rest.strip_prefix('.') {
        return is_beginning || !beneath.is_empty();
    }
    let Some(called) = rest.strip_prefix('/') else { return rest.is_empty() };
    let mut names = config.contracts.iter().filter(|one| one.role != Role::Client);
    names.any(|one| {
        let name = one.name.as_str();
        name == called || (is_beginning && name.starts_with(called))
    })
}
