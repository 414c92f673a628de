//! Runs that are nested in each other, because goals of a workflow call other workflows.

use std::collections::{HashMap, HashSet};

use crate::ids::ListenerName;

use super::definition::{GoalDefinition, GoalForm, WorkflowDefinition};
use super::graph::{GoalGraph, MemberKind};
use super::run_size::{called_workflow, definition_of};
use super::typed_outputs::has_judge;

/// Returns a sentence about the first of these problems that exists; `None` if there is neither:
/// - Every run of `definition` calls the same workflow again, so that no run completes.
/// - The threads beneath a run can have more than `most` levels, the limit for a tree.
///
/// `all` are the definitions of all workflows.
pub fn nesting_note(
    definition: &WorkflowDefinition,
    all: &[&WorkflowDefinition],
    most: u32,
) -> Option<String> {
    let name = &definition.name.value;
    if always_calls_itself(definition, all) {
        return Some(format!(
            "each run of workflow `{name}` calls `{name}` again, and no choice and no list decides \
             whether: it fails with `limit-reached` where `depth` in [limits], {most}, is used up; \
             call it from an entry of `choose`, or from an `each`"
        ));
    }

    let levels = RunLevels { all, known: HashMap::new() }.of(definition);
    (levels > u64::from(most)).then(|| {
        format!(
            "a run of workflow `{name}` can have threads {levels} levels beneath it, and `depth` \
             in [limits] is {most}: a run that needs more fails with that limit's name"
        )
    })
}

/// Counts the levels of threads beneath runs.
struct RunLevels<'a> {
    all: &'a [&'a WorkflowDefinition],
    /// For each workflow, the number of levels beneath its runs. The number is 0 while these levels
    /// are being counted, so that the count ends even if workflows call each other in a circle.
    known: HashMap<&'a ListenerName, u64>,
}

impl<'a> RunLevels<'a> {
    /// Returns the number of levels of threads beneath a run. Leaves out the threads of delegated
    /// tasks, and those of calls by agents.
    fn of(&mut self, definition: &'a WorkflowDefinition) -> u64 {
        let name = &definition.name.value;
        if let Some(known) = self.known.get(name) {
            return *known;
        }

        self.known.insert(name, 0);
        let goals = definition.goals.iter();
        let levels = goals.map(|goal| self.of_goal(goal)).max().unwrap_or_default();
        self.known.insert(name, levels);
        levels
    }

    fn of_goal(&mut self, goal: &'a GoalDefinition) -> u64 {
        if !goal.form.has_output() && !has_judge(goal) {
            return 0;
        }

        let called = called_workflow(goal).and_then(|name| definition_of(name, self.all));
        1 + called.map_or(0, |called| self.of(called))
    }
}

/// Whether each run of `definition` calls the same workflow again, directly or through other
/// workflows. Runs that fail before this call do not count.
fn always_calls_itself(definition: &WorkflowDefinition, all: &[&WorkflowDefinition]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![definition];
    while let Some(next) = open.pop() {
        for name in certain_calls(next) {
            if *name == definition.name.value {
                return true;
            }
            if seen.insert(name.clone()) {
                open.extend(definition_of(name, all));
            }
        }
    }
    false
}

/// Returns the workflows that each complete run of `definition` calls. Leaves out calls that a
/// complete run may lack: calls for the items of a list, which may be empty, calls in branches of a
/// choice, calls in place of a failed goal, and calls in verifications.
fn certain_calls(definition: &WorkflowDefinition) -> Vec<&ListenerName> {
    let (graph, _) = GoalGraph::new(definition);
    let goals = definition.goals.iter().enumerate();
    let certain = goals.filter(|(number, goal)| {
        let mut at = *number;
        for _ in 0..graph.len() {
            let Some(membership) = graph.membership(at) else { break };
            if !matches!(membership.kind, MemberKind::Loop { .. }) {
                return false;
            }
            at = membership.owner;
        }
        matches!(goal.form, GoalForm::Run(_))
    });
    certain.filter_map(|(_, goal)| called_workflow(goal)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::definition::examples::{goal, name, placed, workflow};
    use super::super::definition::{
        ChooseBranch, EachItem, GoalTarget, ItemFailure, Mapping, PlaceId,
    };
    use super::*;

    fn called(id: &str, workflow: &str) -> GoalDefinition {
        goal(id, GoalForm::Run(target(workflow)))
    }

    fn target(workflow: &str) -> GoalTarget {
        let with = Mapping::Fields(Vec::new());
        GoalTarget::Workflow { workflow: placed(name(workflow)), payload: None, with }
    }

    fn named(id: &str, goals: Vec<GoalDefinition>) -> WorkflowDefinition {
        WorkflowDefinition { name: placed(name(id)), ..workflow(goals) }
    }

    fn notes(definitions: &[WorkflowDefinition], most: u32) -> Vec<Option<String>> {
        let all: Vec<_> = definitions.iter().collect();
        all.iter().map(|definition| nesting_note(definition, &all, most)).collect()
    }

    #[test]
    fn workflows_that_always_call_each_other_are_noted() {
        let circle = [
            named("a", vec![called("x", "b")]),
            named("b", vec![called("x", "c")]),
            named("c", vec![called("x", "b")]),
        ];
        let found = notes(&circle, 16);
        assert_eq!(found[0], None, "no run of it is called again");
        for (found, name) in found[1..].iter().zip(["b", "c"]) {
            let note = format!("each run of workflow `{name}` calls `{name}` again");
            assert!(found.as_ref().is_some_and(|found| found.starts_with(&note)), "{found:?}");
        }
    }

    #[test]
    fn a_call_in_a_choice_or_for_the_items_of_a_list_may_be_of_the_workflow_itself() {
        let branch =
            ChooseBranch { when: None, run: vec![called("x", "a").id], place: PlaceId::default() };
        let each = EachItem {
            items: placed("input/row".to_owned()),
            target: target("b"),
            max_items: 10,
            concurrency: 1,
            on_item_failure: ItemFailure::Stop,
            verify: None,
            role: None,
        };
        let definitions = [
            named("a", vec![called("x", "a"), goal("choose", GoalForm::Choose(vec![branch]))]),
            named("b", vec![goal("rows", GoalForm::Each(Box::new(each)))]),
        ];
        let found = notes(&definitions, 16);
        assert!(found.iter().all(Option::is_none), "{found:?}");
    }

    #[test]
    fn a_chain_of_workflows_deeper_than_the_limit_is_noted() {
        let chain = [
            named("a", vec![called("x", "b"), called("y", "b")]),
            named("b", vec![called("x", "c"), called("y", "c")]),
            named("c", vec![called("x", "none")]),
        ];
        let found = notes(&chain, 3);
        assert!(found.iter().all(Option::is_none), "{found:?}");
        let found = notes(&chain, 2);
        let note = "a run of workflow `a` can have threads 3 levels beneath it, and `depth` in \
                    [limits] is 2";
        assert!(found[0].as_ref().is_some_and(|found| found.starts_with(note)), "{found:?}");
        assert!(found[1..].iter().all(Option::is_none), "{found:?}");
    }
}
