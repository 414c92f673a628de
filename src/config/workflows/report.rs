//! Reports problems of workflow definitions at their places in the config.

use crate::contract::Contracts;
use crate::ids::ListenerName;
use crate::schema::Schemas;
use crate::workflow::{
    DefinitionContext, DefinitionFault, DefinitionProblem, check as check_definition,
};

use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::super::sections::DeclaredSections;
use super::{DeclaredWorkflow, PlaceTable};

/// Checks all workflow definitions, and reports their problems. Returns notes about values that are
/// valid but may surprise the author. `is_stored` states whether the config comes from a journal.
pub(in super::super) fn check(
    workflows: &[DeclaredWorkflow],
    places: &PlaceTable,
    sections: &DeclaredSections,
    (contracts, is_stored): (Option<&Contracts>, bool),
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) -> Vec<String> {
    let mut notes = Vec::new();
    let members: Vec<_> =
        sections.members.iter().map(|member| (&member.name.value, member.role)).collect();
    let names: Vec<&ListenerName> =
        workflows.iter().map(|one| &one.definition.name.value).collect();
    let complete = workflows.iter().filter(|workflow| !workflow.is_partial());
    let definitions: Vec<_> = complete.map(|workflow| &workflow.definition).collect();
    for workflow in workflows {
        let name = &workflow.definition.name;
        if members.iter().any(|(member, _)| **member == name.value) {
            let message = format!("`{}` is a workflow and a member of the config", name.value);
            let place = places.range(name.place);
            let problem = ConfigProblem::new(ProblemCode::DuplicateName, &place, message);
            problems.push(problem.help("workflows and members share one set of names; rename one"));
        }

        let is_read = |name: &&str| names.iter().any(|read| read.as_str() == *name);
        let workflows = sections.workflow_names().filter(|name| !is_read(name));
        let unread = workflow.unread.iter().chain(&sections.unread).cloned();
        let unread = unread.chain(workflows.map(str::to_owned)).collect();
        let context = DefinitionContext {
            members: members.clone(),
            workflows: names.clone(),
            definitions: definitions.clone(),
            contracts,
            schemas,
            limits: &sections.limits,
            unread,
            is_partial: workflow.is_partial(),
            is_stored,
        };
        let (found, noted) = check_definition(&workflow.definition, &context);
        for found in found {
            problems.push(problem(&found, workflow, places));
        }
        notes.extend(noted);
    }

    notes
}

fn problem(
    found: &DefinitionProblem,
    workflow: &DeclaredWorkflow,
    places: &PlaceTable,
) -> ConfigProblem {
    let input = workflow.inputs.iter().find(|input| input.value == found.part);
    let place = match input.filter(|_| found.fault == DefinitionFault::UnusedInput) {
        Some(input) => input.place.clone(),
        None => places.range_of_part(found.place, &found.part),
    };
    ConfigProblem::new(code_of(found.fault), &place, &found.message).help(&found.help)
}

pub(in super::super) const fn code_of(fault: DefinitionFault) -> ProblemCode {
    match fault {
        DefinitionFault::Cycle => ProblemCode::GoalCycle,
        DefinitionFault::Unreachable => ProblemCode::GoalUnreachable,
        DefinitionFault::UnknownGoal => ProblemCode::UnknownGoal,
        DefinitionFault::Membership => ProblemCode::GoalInTwoLists,
        DefinitionFault::UnknownMember => ProblemCode::UnknownPeer,
        DefinitionFault::UnknownPayload => ProblemCode::UndeclaredPayload,
        DefinitionFault::UnusedInput => ProblemCode::InputUnused,
        DefinitionFault::BadExpression => ProblemCode::BadExpression,
        DefinitionFault::NeverMatches => ProblemCode::ExpressionNeverMatches,
        DefinitionFault::LongLabel => ProblemCode::LabelTooLong,
        DefinitionFault::Budget => ProblemCode::BudgetTooLarge,
        DefinitionFault::Setting => ProblemCode::GoalSetting,
    }
}
