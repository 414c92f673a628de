//! Checks the goals whose form is a question to a person.

use super::super::definition::{
    AskForm, GoalDefinition, GoalForm, GoalOutput, GoalTarget, WorkflowDefinition,
};
use super::super::graph::GoalGraph;
use super::{DefinitionFault, ProblemList};

pub(super) fn check(
    definition: &WorkflowDefinition,
    graph: &GoalGraph<'_>,
    problems: &mut ProblemList,
) {
    for (number, goal) in definition.goals.iter().enumerate() {
        let GoalForm::Ask { form: AskForm::Verdict { about }, .. } = &goal.form else { continue };
        if goal.output != GoalOutput::Text {
            let message = format!("`{}` asks a person, who answers with a form", goal.id.value);
            let help = "write `form` in place of `output`";
            problems.add(DefinitionFault::Setting, goal.id.place, message, help);
        }

        let Some(about) = about else { continue };
        let Some(corrected) = graph.number(&about.value) else { continue };
        let owner = |number: usize| graph.membership(number).map(|membership| membership.owner);
        let is_above = graph.visible(number).contains(&corrected);
        if !is_above || owner(corrected) != owner(number) {
            let message = format!(
                "`{}` cannot run again for `{}`: it does not run before it in the same list",
                about.value, goal.id.value
            );
            let help = "name a goal that this one needs, of the same list";
            problems.add(DefinitionFault::Setting, about.place, message, help);
        } else if graph.goal(corrected).is_some_and(|corrected| !has_document(corrected)) {
            let message = format!("`{}` takes no correction: no agent carries it out", about.value);
            let help = "name a goal of an agent";
            problems.add(DefinitionFault::Setting, about.place, message, help);
        }
    }
}

/// Whether the goal has a document, which is the text that an agent gets as its task. Only goals
/// that agents carry out have a document. A person can correct only goals with a document, because
/// the document contains the correction.
fn has_document(goal: &GoalDefinition) -> bool {
    match &goal.form {
        GoalForm::Run(target) => matches!(target, GoalTarget::Agent { .. }),
        GoalForm::All { .. } | GoalForm::First { .. } => true,
        GoalForm::Each(each) => matches!(each.target, GoalTarget::Agent { .. }),
        GoalForm::Loop { .. } | GoalForm::Choose(_) | GoalForm::Ask { .. } => false,
    }
}
