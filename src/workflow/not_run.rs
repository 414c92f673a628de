//! Settings that are read and checked, and that no run carries out yet.

use super::check::{DefinitionFault, DefinitionProblem};
use super::definition::{
    FailurePolicy, GoalCondition, GoalDefinition, GoalForm, GoalOutput, GoalTarget, PlaceId,
    WorkflowDefinition,
};

/// One problem for each setting that a run of `definition` would leave out. An organism with one of
/// them does not start.
pub fn not_run(definition: &WorkflowDefinition) -> Vec<DefinitionProblem> {
    let mut found = Vec::new();
    let mut add = |place: PlaceId, setting: &str| {
        let problem = DefinitionProblem {
            fault: DefinitionFault::Setting,
            place,
            part: String::new(),
            message: format!("no run carries out {setting} yet"),
            help:
                "take it out to start the organism; `organism workflow show` and `--dry-run` know \
                   it"
                .to_owned(),
        };
        if !found.contains(&problem) {
            found.push(problem);
        }
    };

    let name = definition.name.place;
    if !definition.budget.is_open() {
        add(name, "`tokens` and `money` of a workflow");
    }
    if definition.on_failure == FailurePolicy::Undo {
        add(name, "`on_failure = \"undo\"`");
    }
    if let Some(human) = &definition.report_to {
        add(human.place, "`report_to`");
    }
    for goal in &definition.goals {
        for setting in settings_of(goal) {
            add(goal.id.place, setting);
        }
    }

    found
}

fn settings_of(goal: &GoalDefinition) -> Vec<&'static str> {
    let mut settings = Vec::new();
    let mut add = |is_there: bool, setting| {
        if is_there {
            settings.push(setting);
        }
    };
    let is_judge = |condition: &GoalCondition| matches!(condition, GoalCondition::Judge { .. });
    add(goal.on_failure == Some(FailurePolicy::Undo), "`on_failure = \"undo\"`");
    add(goal.supervision.is_some(), "`supervisor`");
    add(goal.roles.is_some(), "`roles`");
    let is_agent = match &goal.form {
        GoalForm::Run(target) => matches!(target, GoalTarget::Agent { .. }),
        GoalForm::All { .. } | GoalForm::First { .. } => true,
        GoalForm::Each(each) => {
            matches!(each.target, GoalTarget::Agent { .. })
        }
        GoalForm::Loop { until, .. } => {
            add(is_judge(until), "a judge");
            false
        }
        GoalForm::Choose(branches) => {
            add(
                branches.iter().any(|branch| branch.when.as_ref().is_some_and(is_judge)),
                "a judge",
            );
            false
        }
        GoalForm::Ask { .. } => {
            add(true, "`ask`");
            false
        }
    };
    add(is_agent && goal.output != GoalOutput::Text, "a typed `output` of an agent");
    settings
}
