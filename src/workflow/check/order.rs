//! Checks the goals of a definition and the order in which they run: names, lists of members,
//! cycles, branches, labels and budgets.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::contract::Budget;
use crate::limits;

use super::super::definition::{
    AskForm, FailurePolicy, GoalDefinition, GoalForm, GoalId, GoalOutput, Placed,
    WorkflowDefinition,
};
use super::super::delegation::{ROLE_CHARS_MAX, is_role};
use super::super::graph::{GoalGraph, MemberKind, SecondMembership};
use super::super::shapes::{JUDGE_SUFFIX, SUPERVISOR_SUFFIX, labels};
use super::super::typed_outputs::{agents_of, has_judge};
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    graph: &GoalGraph<'_>,
    second_memberships: &[SecondMembership<'_>],
    problems: &mut ProblemList,
) {
    for repeated in second_memberships {
        let goal = &repeated.goal.value;
        let first = repeated.first_owner;
        let message = format!("`{goal}` already runs in `{first}`; a goal stands in one list only");
        let help = "give this list a goal of its own";
        problems.add(DefinitionFault::Membership, repeated.goal.place, message, help);
    }

    for (number, goal) in definition.goals.iter().enumerate() {
        check_unknown_goals(definition, context, goal, problems);
        check_needs(graph, number, goal, problems);
        if !context.is_stored {
            check_later_needs(graph, number, goal, problems);
            check_item_role(goal, problems);
        }
        check_branches(goal, problems);
        check_nesting(graph, number, goal, problems);
        check_settings(goal, problems);
        note_void_retry(definition, goal, problems);
        check_roles(goal, problems);
        check_verifier(graph, number, goal, problems);
        check_label(graph, number, goal, problems);
        check_goal_budget(definition, context, goal, problems);
    }

    check_cycles(graph, problems);
    check_run_budget(definition, context, problems);
}

/// Returns every goal id that occurs in the settings of `goal`.
fn named(goal: &GoalDefinition) -> Vec<&Placed<GoalId>> {
    let mut named: Vec<&Placed<GoalId>> = Vec::new();
    named.extend(goal.needs.iter().flatten());
    named.extend(goal.context.iter().flatten());
    if let Some(FailurePolicy::Goal(fallback)) = &goal.on_failure {
        named.push(fallback);
    }

    match &goal.form {
        GoalForm::Loop { members, .. } => named.extend(members),
        GoalForm::Choose(branches) => named.extend(branches.iter().flat_map(|branch| &branch.run)),
        GoalForm::Each(each) => named.extend(each.verify.as_ref().map(|verify| &verify.goal)),
        GoalForm::Ask { form: AskForm::Verdict { about }, .. } => named.extend(about),
        _ => {}
    }

    named
}

fn check_unknown_goals(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    for id in named(goal) {
        let name = id.value.as_str();
        let is_unread = context.unread.iter().any(|unread| unread == name);
        if definition.goal(&id.value).is_some() || is_unread {
            continue;
        }

        let known = definition.goals.iter().map(|goal| goal.id.value.as_str());
        let message = format!("workflow `{}` has no goal `{name}`", definition.name.value);
        let help = near_or(name, known, "add the goal");
        problems.add(DefinitionFault::UnknownGoal, id.place, message, help);
    }
}

/// Reports wrong entries in two settings of `goal`, the goal with this `number`:
/// - in `needs`: each member of another goal, for example of a loop, unless `goal` is a member of
///   the same goal;
/// - in `context`: each goal that possibly has not ended when `goal` starts. Goals of the same loop
///   are allowed, because they may have ended in an earlier pass.
fn check_needs(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    let own_list = graph.membership(number).map(|membership| membership.owner);
    for id in goal.needs.iter().flatten() {
        let Some(needed) = graph.number(&id.value) else { continue };
        let Some(membership) = graph.membership(needed) else { continue };
        if Some(membership.owner) == own_list {
            continue;
        }

        let owner = graph.goal(membership.owner).map(|owner| owner.id.value.to_string());
        let owner = owner.unwrap_or_default();
        let message = format!("`{}` runs only in `{owner}`, so nothing else can need it", id.value);
        let help = format!("write needs = [\"{owner}\"]");
        problems.add(DefinitionFault::Membership, id.place, message, help);
    }

    let visible = graph.visible(number);
    let same_loop = graph.loop_of(number).map(|owner| graph.beneath(owner)).unwrap_or_default();
    for id in goal.context.iter().flatten() {
        let Some(shown) = graph.number(&id.value) else { continue };
        if !visible.contains(&shown) && !same_loop.contains(&shown) {
            let message = format!(
                "`{}` may not have ended when `{}` runs, so its document cannot show it",
                id.value, goal.id.value
            );
            let help = format!("add \"{}\" to needs, or take it out of context", id.value);
            problems.add(DefinitionFault::UnknownGoal, id.place, message, help);
        }
    }
}

/// Reports each entry in the setting `needs` of `goal` that comes after `goal` in the same loop or
/// branch. `number` is the number of `goal`.
fn check_later_needs(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    let Some(own) = graph.membership(number) else { return };
    for id in goal.needs.iter().flatten() {
        let needed = graph.number(&id.value).and_then(|needed| graph.membership(needed));
        let needed = needed.filter(|needed| needed.owner == own.owner);
        if needed.is_some_and(|needed| is_later(needed.kind, own.kind)) {
            let later = &id.value;
            let member = &goal.id.value;
            let message = format!("`{member}` needs `{later}`, which runs after it");
            let help = format!("put `{later}` before `{member}` in their list");
            problems.add(DefinitionFault::Cycle, id.place, message, help);
        }
    }
}

/// Whether the member at the place `kind` comes after the member at the place `other`, in the same
/// loop or in the same branch of a choice. Both must be members of the same goal. Returns false for
/// all other pairs of members.
fn is_later(kind: MemberKind, other: MemberKind) -> bool {
    match (kind, other) {
        (MemberKind::Loop { position }, MemberKind::Loop { position: other }) => position > other,
        (
            MemberKind::Branch { branch, position },
            MemberKind::Branch { branch: other_branch, position: other },
        ) => branch == other_branch && position > other,
        _ => false,
    }
}

fn check_branches(goal: &GoalDefinition, problems: &mut ProblemList) {
    let GoalForm::Choose(branches) = &goal.form else { return };
    let Some(first) = branches.iter().position(|branch| branch.when.is_none()) else { return };
    for branch in branches.iter().skip(first + 1) {
        let message = "this entry can never be reached: one without `when` stands before it";
        let help = "put the entry without `when` last";
        problems.add(DefinitionFault::Unreachable, branch.place, message, help);
    }
}

fn check_nesting(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    let Some(membership) = graph.membership(number) else { return };
    let is_loop = matches!(goal.form, GoalForm::Loop { .. });
    let place = goal.id.place;
    let id = &goal.id.value;

    match membership.kind {
        _ if is_loop && graph.loop_of(number).is_some() => {
            let message = format!("`{id}` is a loop within a loop");
            let help = "make the inner loop a workflow of its own, and call it with `workflow`";
            problems.add(DefinitionFault::Setting, place, message, help);
        }
        MemberKind::Verify if !matches!(goal.form, GoalForm::Run(_)) => {
            let message = format!("`{id}` judges items, so it is one agent, listener or workflow");
            let help = "write agent = \"…\" and a prompt";
            problems.add(DefinitionFault::Setting, place, message, help);
        }
        _ => {}
    }
}

/// Notes the setting `retry` of each loop or choice that has no judge. Only failed calls are
/// retried, and such a goal makes no call of its own.
fn note_void_retry(
    definition: &WorkflowDefinition,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    if !goal.form.has_output() && goal.retry > 0 && !has_judge(goal) {
        problems.note(format!(
            "`retry` of goal `{}` of workflow `{}` has no effect: a `{}` makes no call of its own; \
             set it for the goals in it",
            goal.id.value,
            definition.name.value,
            goal.form.key()
        ));
    }
}

/// Reports each setting of `goal` that a goal of its form must not have, such as the supervisor of
/// a loop.
fn check_settings(goal: &GoalDefinition, problems: &mut ProblemList) {
    let key = goal.form.key();
    let has_output = goal.form.has_output();
    let mut refuse = |is_set: bool, setting: &str| {
        if is_set {
            let message = format!("`{}` is a `{key}` and has no {setting}", goal.id.value);
            let help = if has_output { "take it out" } else { "set it for its members" };
            problems.add(DefinitionFault::Setting, goal.id.place, message, help);
        }
    };

    let has_type = !agents_of(goal).is_empty() || matches!(goal.form, GoalForm::Ask { .. });
    let output = if has_output {
        "setting `output`: its output is the reply to its call"
    } else {
        "output of its own"
    };
    refuse(!has_type && goal.output != GoalOutput::Text, output);
    refuse(agents_of(goal).is_empty() && goal.supervision.is_some(), "supervisor");
    refuse(agents_of(goal).is_empty() && goal.roles.is_some(), "roles");
    let is_limited = goal.timeout.is_some() || !goal.budget.is_open();
    refuse(!has_output && is_limited, "timeout, tokens and money");
}

/// Reports a goal that sets a role for its items although no agent works on the items.
fn check_item_role(goal: &GoalDefinition, problems: &mut ProblemList) {
    let has_role = matches!(&goal.form, GoalForm::Each(each) if each.role.is_some());
    if has_role && agents_of(goal).is_empty() {
        let id = &goal.id.value;
        let message = format!("no agent works on the items of `{id}`, so it has no role");
        let help = "take `role` out, or name an `agent`";
        problems.add(DefinitionFault::Setting, goal.id.place, message, help);
    }
}

/// Checks the entries in the goal's list of roles. Reports the first entry that cannot be a role.
fn check_roles(goal: &GoalDefinition, problems: &mut ProblemList) {
    let Some(roles) = &goal.roles else { return };
    let mut wrong = roles.names.iter().filter(|name| !is_role(name));
    if let Some(name) = wrong.next() {
        let message = format!("`{name}` is no role: a role is a text of one line");
        let help = format!("write 1 to {ROLE_CHARS_MAX} characters");
        problems.add(DefinitionFault::Setting, goal.id.place, message, help);
    }
}

/// Reports settings that a verifier must not have. A verifier is a goal that judges the items of
/// another goal. An item fails if its verifier fails. For this reason, only the goal with the items
/// may have settings for failures and supervision.
fn check_verifier(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    if graph.membership(number).is_none_or(|membership| membership.kind != MemberKind::Verify) {
        return;
    }

    let settings =
        [(goal.on_failure.is_some(), "on_failure"), (goal.supervision.is_some(), "supervisor")];
    for (_, setting) in settings.iter().filter(|(is_set, _)| *is_set) {
        let message = format!("`{}` judges items and has no {setting}", goal.id.value);
        let help = "set it for the goal whose items it judges";
        problems.add(DefinitionFault::Setting, goal.id.place, message, help);
    }
}

/// Reports a goal if the label of one of its threads could become longer than allowed.
fn check_label(
    graph: &GoalGraph<'_>,
    number: usize,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    let in_lists = list_suffixes(graph, number);
    let own = match &goal.form {
        GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
            labels(agents).iter().map(String::len).max()
        }
        GoalForm::Each(each) => Some(each.max_items.to_string().len()),
        GoalForm::Loop { max, .. } if has_judge(goal) => Some(max.to_string().len()),
        _ => None,
    };

    // The label of a retry is already taken, so the core appends a number.
    let further = (goal.retry > 0).then(|| goal.retry.to_string().len());
    let suffixes = in_lists.into_iter().chain(own).chain(further).map(|length| length + 1);
    let reviewer = match goal.supervision {
        Some(_) => SUPERVISOR_SUFFIX.len(),
        None if has_judge(goal) => JUDGE_SUFFIX.len(),
        None => 0,
    };

    let length = goal.id.value.as_str().len() + suffixes.sum::<usize>() + reviewer;
    if length > limits::LABEL_CHARS_MAX {
        let message = format!(
            "the threads of `{}` would have labels of {length} characters, and {} is the most",
            goal.id.value,
            limits::LABEL_CHARS_MAX
        );
        problems.add(DefinitionFault::LongLabel, goal.id.place, message, "choose a shorter name");
    }
}

/// Returns the maximum lengths, in characters, of the numbers that are appended to a goal's labels:
/// the number of the pass if the goal is in a loop, and the number of the item if the goal is a
/// verifier.
fn list_suffixes(graph: &GoalGraph<'_>, number: usize) -> Vec<usize> {
    let in_loop = graph.loop_of(number).and_then(|owner| match &graph.goal(owner)?.form {
        GoalForm::Loop { max, .. } => Some(max.to_string().len()),
        _ => None,
    });
    let of_item = graph.membership(number).and_then(|membership| {
        match (&graph.goal(membership.owner)?.form, membership.kind) {
            (GoalForm::Each(each), MemberKind::Verify) => Some(each.max_items.to_string().len()),
            _ => None,
        }
    });
    in_loop.into_iter().chain(of_item).collect()
}

fn check_cycles(graph: &GoalGraph<'_>, problems: &mut ProblemList) {
    let mut reported = BTreeSet::new();
    for cycle in graph.cycles() {
        // Another cycle with one of these goals may be gone with the first one.
        if cycle.iter().any(|goal| reported.contains(goal)) {
            continue;
        }
        reported.extend(cycle.iter().copied());

        let goals: Vec<_> = cycle.iter().filter_map(|number| graph.goal(*number)).collect();
        let Some(first) = goals.first() else { continue };
        let names: Vec<_> = goals.iter().map(|goal| goal.id.value.as_str()).collect();
        let names = names.join(" -> ");
        let message = format!("these goals wait for each other: {names} -> {}", first.id.value);
        let help = "take one of them out of `needs`, or out of its list";
        problems.add(DefinitionFault::Cycle, first.id.place, message, help);
    }
}

fn check_goal_budget(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    goal: &GoalDefinition,
    problems: &mut ProblemList,
) {
    let run = least(definition.budget, context.limits.budget());
    let id = &goal.id.value;
    let place = goal.budget_place;
    if let (Some(own), Some(all)) = (goal.budget.tokens, run.tokens)
        && own > all
    {
        let message = format!("`{id}` may use {own} tokens, and its run {all}");
        let help = "lower it, or raise `tokens` of the workflow and of [limits]";
        problems.add(DefinitionFault::Budget, place, message, help);
    }

    if let (Some(own), Some(all)) = (goal.budget.money, run.money)
        && own > all
    {
        let message = format!("`{id}` may cost {own}, and its run {all}");
        let help = "lower it, or raise `money` of the workflow and of [limits]";
        problems.add(DefinitionFault::Budget, place, message, help);
    }

    let most = definition.timeout.unwrap_or(Duration::MAX);
    if goal.timeout.is_some_and(|own| own > most) {
        let message = format!("`{id}` may take longer than its run");
        let help = "lower `timeout` of the goal, or raise that of the workflow";
        problems.add(DefinitionFault::Budget, goal.id.place, message, help);
    }
}

fn check_run_budget(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    problems: &mut ProblemList,
) {
    let name = &definition.name.value;
    let place = definition.name.place;
    let tree = context.limits;
    if let Some(own) = definition.budget.tokens.filter(|own| *own > tree.tokens) {
        let message = format!("`{name}` may use {own} tokens, and a tree {}", tree.tokens);
        let help = "lower `tokens` of the workflow, or raise it in [limits]";
        problems.add(DefinitionFault::Budget, place, message, help);
    }

    if let (Some(own), Some(all)) = (definition.budget.money, tree.money)
        && own > all
    {
        let message = format!("`{name}` may cost {own}, and a tree {all}");
        let help = "lower `money` of the workflow, or raise it in [limits]";
        problems.add(DefinitionFault::Budget, place, message, help);
    }
}

fn least(first: Budget, other: Budget) -> Budget {
    Budget {
        tokens: first.tokens.into_iter().chain(other.tokens).min(),
        money: first.money.into_iter().chain(other.money).min(),
    }
}
