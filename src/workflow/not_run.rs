//! Settings that are read and checked, and that no run carries out yet.

use super::check::{DefinitionFault, DefinitionProblem};
use super::definition::{GoalDefinition, PlaceId, WorkflowDefinition};

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
    add(goal.roles.is_some(), "`roles`");
    settings
}
