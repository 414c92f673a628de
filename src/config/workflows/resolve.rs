//! Completes the payload name of each goal that calls a listener or another workflow. The complete
//! name comes from the payload names that the called listener or workflow accepts.

use crate::contract::Contracts;
use crate::ids::{ListenerName, PayloadName};
use crate::schema::Schemas;
use crate::workflow::{GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition, peers_of};

use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::PlaceTable;

/// Completes the payload names in the goals of a definition. A later check reports names that the
/// listener does not accept.
/// - If a name lacks its namespace, adds the namespace.
/// - If a goal names no payload and its listener accepts exactly one, fills in this one.
/// - If a goal names no payload and its listener accepts several, reports a problem.
/// - If another peer of the workflow accepts the payload, too, reports a problem.
///
/// Also puts the fields of each mapping into the order of the payload's schema, and adds missing
/// namespaces to them.
pub(super) fn payloads(
    definition: &mut WorkflowDefinition,
    places: &PlaceTable,
    contracts: Option<&Contracts>,
    schemas: &Schemas,
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
            GoalTarget::Listener { payload, listener, .. } => match accepted(&listener.value) {
                [only] => *payload = Some(Placed::new(only.clone(), listener.place)),
                [] => {}
                several => problems.push(unnamed(listener, several, places)),
            },
        }

        if let GoalTarget::Listener { listener: name, payload: Some(payload), with }
        | GoalTarget::Workflow { workflow: name, payload: Some(payload), with } = target
        {
            if let Mapping::Fields(fields) = with {
                fit_fields(fields, &payload.value, schemas);
            }
            let other = peers
                .iter()
                .find(|peer| **peer != name.value && accepted(peer).contains(&payload.value));
            if let Some(other) = other {
                problems.push(shared(name, other, payload, places));
            }
        }
    }
}

/// Puts the fields of a mapping into the order of the child elements in the payload's schema, and
/// gives each field the namespace of its child element.
fn fit_fields(fields: &mut [(String, Placed<String>)], payload: &PayloadName, schemas: &Schemas) {
    let parameters = schemas.describe(payload).parameters;
    let place = |key: &str| {
        let (is_attribute, name) = match key.strip_prefix('@') {
            Some(name) => (true, name),
            None => (false, key),
        };
        parameters.iter().position(|one| one.attribute == is_attribute && one.name == name)
    };
    fields.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
    for (key, _) in fields {
        let Some(parameter) = place(key).and_then(|at| parameters.get(at)) else { continue };
        let namespace = parameter.written.namespace();
        let (mark, by_default) =
            if parameter.attribute { ("@", "") } else { ("", &*payload.namespace) };
        if namespace != by_default {
            *key = format!("{mark}{{{namespace}}}{}", parameter.name);
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

/// Makes the problem for a goal whose payload has two receivers. The goal names `listener`, but the
/// peer `other` also accepts the payload `payload`. The call would go to `listener` alone. But the
/// vocabulary of the workflow, which the audit shows, would contain both.
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
        "a peer of a workflow must be the only one with its payload: rename the payload of one, or \
         take one out of the workflow",
    )
}
