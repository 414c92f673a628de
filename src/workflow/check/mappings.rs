//! Checks the setting `with` of goals, which fills in the payload of a call. The schema of the
//! payload must allow each child and attribute that `with` sets.

use crate::ids::{ListenerName, PayloadName};
use crate::schema::{PayloadParameter, Schemas};

use super::super::definition::{GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition};
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    problems: &mut ProblemList,
) {
    for goal in &definition.goals {
        let target = match &goal.form {
            GoalForm::Run(target) => target,
            GoalForm::Each(each) => &each.target,
            _ => continue,
        };
        if let GoalTarget::Listener { listener: name, payload, with: Mapping::Fields(fields) }
        | GoalTarget::Workflow { workflow: name, payload, with: Mapping::Fields(fields) } =
            target
            && let Some(payload) = payload_of(name, payload.as_ref(), context)
        {
            check_fields(name, &payload, fields, context.schemas, problems);
        }
    }
}

/// Returns the name of the payload in a call to the listener `name`. Returns `None` if the name of
/// the payload is not known.
fn payload_of(
    name: &Placed<ListenerName>,
    payload: Option<&Placed<PayloadName>>,
    context: &DefinitionContext<'_>,
) -> Option<PayloadName> {
    let accepted = context.contracts?.get(&name.value)?.accepts.as_slice();
    let found = match (payload, accepted) {
        (None, [only]) => only,
        (None, _) => return None,
        (Some(wanted), _) => {
            let wanted = &wanted.value;
            accepted.iter().find(|known| {
                let is_near = wanted.namespace.is_empty() || wanted.namespace == known.namespace;
                is_near && known.local == wanted.local
            })?
        }
    };
    context.schemas.contains(found).then(|| found.clone())
}

/// Returns the key by which the setting `with` names a child or an attribute of a payload: the name
/// of the child, or `@` and the name of the attribute. The setting fills in the payload of a goal's
/// call.
fn key_of(parameter: &PayloadParameter) -> String {
    let mark = if parameter.attribute { "@" } else { "" };
    format!("{mark}{}", parameter.name)
}

/// Checks the fields that a mapping sets in a payload for the listener `name`. The schema of
/// `payload` must allow each field.
pub(super) fn check_fields(
    name: &Placed<ListenerName>,
    payload: &PayloadName,
    fields: &[(String, Placed<String>)],
    schemas: &Schemas,
    problems: &mut ProblemList,
) {
    let parameters = schemas.describe(payload).parameters;
    // An element of any name may occur, so the fields cannot be checked.
    if parameters.iter().any(|parameter| parameter.content.kind == "any element") {
        return;
    }

    let local = &payload.local;
    let keys: Vec<_> = parameters.iter().map(key_of).collect();
    for (key, value) in fields {
        let at = keys.iter().position(|known| known == key);
        let Some(parameter) = at.and_then(|at| parameters.get(at)) else {
            let message = format!("`{local}` of `{}` has no `{key}`", name.value);
            let known = keys.iter().map(String::as_str);
            let help = near_or(key, known, "it has neither children nor attributes");
            problems.add(DefinitionFault::Setting, value.place, message, help);
            continue;
        };
        if let Some(inner) = parameter.parameters.iter().find(|inner| inner.required) {
            let message = format!(
                "`{key}` of `{local}` needs `{}`, and `with` gives it a text",
                key_of(inner)
            );
            let help = "write with = an expression that selects the whole payload";
            problems.add(DefinitionFault::Setting, value.place, message, help);
        }
    }

    let is_given = |key: &String| fields.iter().any(|(given, _)| given == key);
    for (parameter, key) in parameters.iter().zip(&keys) {
        if parameter.required && !is_given(key) {
            let message =
                format!("`{local}` of `{}` needs `{key}`, and `with` has none", name.value);
            let help = format!("add `{key}` to with");
            problems.add(DefinitionFault::Setting, name.place, message, help);
        }
    }
}
