//! The checks of a workflow definition. They report all problems of the definition together, before
//! any run begins.

mod expressions;
mod mappings;
mod members;
mod order;
mod questions;
mod selected_names;
mod undo;

use crate::contract::{Contracts, Role, TreeLimits};
use crate::ids::ListenerName;
use crate::schema::Schemas;

use super::definition::{PlaceId, WorkflowDefinition};
use super::graph::GoalGraph;
pub use mappings::mapping_notes;
pub use undo::{check_undo_rule, listeners_beneath};

/// Kind of a problem of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionFault {
    /// Two or more goals that wait for each other.
    Cycle,
    /// A goal or a branch that can never run.
    Unreachable,
    UnknownGoal,
    /// A fault of the lists in which goals name their members. For example, a loop has such a list,
    /// and its members run only as parts of the loop. There are two such faults:
    /// - Two lists contain the same member.
    /// - A goal that is not in a list needs a member of this list.
    Membership,
    /// A name for which the config declares no agent, listener, human or workflow of the required
    /// kind.
    UnknownMember,
    /// A payload name that the addressed listener does not accept.
    UnknownPayload,
    UnusedInput,
    BadExpression,
    /// An expression that selects nothing, whatever the payloads contain.
    NeverMatches,
    /// A label of a thread that could become longer than allowed.
    LongLabel,
    /// A budget or a time-out of a goal that exceeds the limit of the whole run.
    Budget,
    /// A setting that a goal or a workflow must not have, or a setting with a wrong value.
    Setting,
}

/// One problem of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionProblem {
    pub fault: DefinitionFault,
    pub place: PlaceId,
    /// The wrong part of a value in the definition, as written; empty if the whole value is wrong.
    pub part: String,
    pub message: String,
    pub help: String,
}

/// The parts of the config that a workflow definition may refer to.
pub struct DefinitionContext<'a> {
    /// Clients, listeners, humans and agents by name.
    pub members: Vec<(&'a ListenerName, Role)>,
    /// Names of all workflows.
    pub workflows: Vec<&'a ListenerName>,
    /// The definitions of the workflows that could be read without a problem.
    pub definitions: Vec<&'a WorkflowDefinition>,
    /// The contracts of all listeners. They state what each listener accepts, may reply and may
    /// address. `None` if they could not be built because of problems in the config.
    pub contracts: Option<&'a Contracts>,
    pub schemas: &'a Schemas,
    pub limits: &'a TreeLimits,
    /// Names whose definitions in the config could not be read. The checks do not report references
    /// to these names.
    pub unread: Vec<String>,
    /// Whether the definition may lack a part that could not be read, such as a goal. If this part
    /// may use a value or declare a name, the checks do not report the value as unused or the name
    /// as undeclared.
    pub is_partial: bool,
    /// Whether the config is a stored one. If so, the checks do not report problems that an earlier
    /// version of the program accepted, because that version may have run the config.
    pub is_stored: bool,
}

/// Returns all problems of `definition`. Also returns notes about values that are valid but may
/// surprise the author.
pub fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
) -> (Vec<DefinitionProblem>, Vec<String>) {
    let (graph, second) = GoalGraph::new(definition);
    let mut problems = ProblemList::default();
    order::check(definition, context, &graph, &second, &mut problems);
    members::check(definition, context, &mut problems);
    mappings::check(definition, context, &mut problems);
    questions::check(definition, &graph, &mut problems);
    undo::check(definition, context, &mut problems);
    expressions::check(definition, context, &graph, &mut problems);
    (problems.found, problems.notes)
}

#[derive(Default)]
struct ProblemList {
    found: Vec<DefinitionProblem>,
    notes: Vec<String>,
}

impl ProblemList {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add(
        &mut self,
        fault: DefinitionFault,
        place: PlaceId,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add_part(fault, place, "", message, help);
    }

    fn add_part(
        &mut self,
        fault: DefinitionFault,
        place: PlaceId,
        part: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let problem = DefinitionProblem {
            fault,
            place,
            part: part.to_owned(),
            message: message.into(),
            help: help.into(),
        };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }
}

/// Writes a help text for an unknown name: the known name that is most similar to `name`, or all
/// known names if none is similar enough. Writes `otherwise` if no names are known.
fn near_or<'n>(
    name: &str,
    known: impl IntoIterator<Item = &'n str> + Clone,
    otherwise: &str,
) -> String {
    let near =
        known.clone().into_iter().min_by_key(|other| strsim::damerau_levenshtein(name, other));
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    match near.filter(|near| distance(near) <= (name.chars().count() / 3).clamp(1, 4)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names: Vec<_> = known.into_iter().collect();
            if names.is_empty() {
                otherwise.to_owned()
            } else {
                format!("there are {}", names.join(", "))
            }
        }
    }
}
