//! Payloads of goals, as the listeners and workflows that get them accept them.

use crate::contract::Contracts;
use crate::ids::{ListenerName, PayloadName};
use crate::workflow::{GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition, peers_of};

use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::PlaceTable;

/// Completes the payload names of a definition. The check of the definition reports names that are not accepted.
pub(super) fn payloads(
    definition: &mut WorkflowDefinition,
    places: &PlaceTable,
    contracts: Option<&Contracts>,
    problems: &mut ConfigProblems,
) {
    let accepted = |name: &ListenerName| {
        let contract = contracts.and_then(|contracts| contracts.get(name));
        contract.map(|contract| contract.accepts.as_slice()).unwrap_or_default()
    };
    let peers = peers_of(definition);
    for goal in &mut definition.goals {
        let target = match &mut goal.form {
            GoalForm::Run(target) => target,
            GoalForm::Each(each) => &mut each.target,
            _ => continue,
        };
        match target {
            GoalTarget::Agent { .. } => {}
            GoalTarget::Workflow { workflow, payload, .. } => {
                let name = accepted(&workflow.value).first().cloned();
                *payload = name.map(|name| Placed::new(name, workflow.place));
            }
            GoalTarget::Listener { payload: Some(payload), listener, .. } => {
                let same = |known: &&PayloadName| {
                    known.local == payload.value.local
                        && (payload.value.namespace.is_empty()
                            || known.namespace == payload.value.namespace)
                };
                if let Some(known) = accepted(&listener.value).iter().find(same) {
                    payload.value = known.clone();
                }
            }
            GoalTarget::Listener { payload, listener, with: Mapping::Fields(_) } => {
                match accepted(&listener.value) {
                    [only] => *payload = Some(Placed::new(only.clone(), listener.place)),
                    [] => {}
                    several => problems.push(unnamed(listener, several, places)),
                }
            }
            GoalTarget::Listener { with: Mapping::Element(_), .. } => {}
        }

        if let GoalTarget::Listener { listener, payload: Some(payload), .. } = target {
            let other = peers
                .iter()
                .find(|peer| **peer != listener.value && accepted(peer).contains(&payload.value));
            if let Some(other) = other {
                problems.push(shared(listener, other, payload, places));
            }
        }
    }
}

fn unnamed(
    listener: &Placed<ListenerName>,
    accepted: &[PayloadName],
    places: &PlaceTable,
) -> ConfigProblem {
    let names: Vec<_> = accepted.iter().map(|name| format!("\"{}\"", name.local)).collect();
    let message = format!("`{}` accepts several payloads", listener.value);
    let place = places.range(listener.place);
    let problem = ConfigProblem::new(ProblemCode::MissingKey, &place, message);
    problem.help(format!("add payload = one of {}", names.join(", ")))
}

/// A payload goes to every peer that accepts it, so a goal would call several listeners.
fn shared(
    listener: &Placed<ListenerName>,
    other: &ListenerName,
    payload: &Placed<PayloadName>,
    places: &PlaceTable,
) -> ConfigProblem {
    let local = &payload.value.local;
    let message =
        format!("`{}` and `{other}` both accept `{local}`, and both are peers", listener.value);
    let place = places.range(listener.place);
    let problem = ConfigProblem::new(ProblemCode::AmbiguousPayload, &place, message);
    problem.help(
        "the call would go to both: rename the payload of one, or take one out of the workflow",
    )
}
