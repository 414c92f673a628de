//! Checks the setting `with` of goals, which gives the payload of a call. The schema of the payload
//! must allow each child and attribute that `with` sets. If `with` selects an element as the whole
//! payload, this element must have the name that the call requires for its payload.

use crate::contract::{Contracts, WORKFLOW_NAMESPACE};
use crate::ids::{ListenerName, PayloadName};
use crate::schema::{PayloadDescription, PayloadParameter, SHORT_FORM_NAMESPACE, Schemas};
use crate::xml::shape::QName;

use super::super::definition::{
    GoalDefinition, GoalForm, GoalTarget, Mapping, Placed, WorkflowDefinition,
};
use super::super::expression::{ExpressionToken, OPERATORS, tokens};
use super::super::mapping::written;
use super::selected_names::SelectedNames;
use super::{DefinitionContext, DefinitionFault, ProblemList, near_or};

pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    problems: &mut ProblemList,
) {
    let Some(contracts) = context.contracts else { return };
    let schemas = context.schemas;
    let names = SelectedNames { definition, contracts, schemas };
    for goal in &definition.goals {
        let Some(call) = MappedCall::of_goal(goal, contracts, schemas) else { continue };
        let MappedCall { listener, payload, with } = &call;
        match with {
            Mapping::Fields(fields) => check_fields(listener, payload, fields, schemas, problems),
            // Earlier versions of the program accepted such an expression, and may have run it. The
            // names follow from the whole definition.
            Mapping::Element(_) if context.is_stored || context.is_partial => {}
            Mapping::Element(expression) => {
                let found = names.of_expression(&expression.value, goal);
                check_element(&call, expression, found.as_deref(), schemas, problems);
            }
        }
    }
}

/// The call of a goal, with the goal's setting `with`, which gives the payload of the call.
struct MappedCall<'a> {
    listener: &'a Placed<ListenerName>,
    payload: PayloadName,
    with: &'a Mapping,
}

impl<'a> MappedCall<'a> {
    /// Returns the call of a goal. Returns `None` if the goal has no setting `with`, or if the name
    /// of the payload is not known.
    fn of_goal(goal: &'a GoalDefinition, contracts: &Contracts, schemas: &Schemas) -> Option<Self> {
        let target = match &goal.form {
            GoalForm::Run(target) => target,
            GoalForm::Each(each) => &each.target,
            _ => return None,
        };
        let (listener, payload, with) = match target {
            GoalTarget::Agent { .. } => return None,
            GoalTarget::Listener { listener, payload, with } => (listener, payload, with),
            GoalTarget::Workflow { workflow, payload, with } => (workflow, payload, with),
        };
        let payload = payload_of(listener, payload.as_ref(), contracts, schemas)?;
        Some(Self { listener, payload, with })
    }

    /// Returns the fields that the setting `with` fills in; empty if `with` selects an element as
    /// the whole payload.
    fn fields(&self) -> &'a [(String, Placed<String>)] {
        match self.with {
            Mapping::Fields(fields) => fields,
            Mapping::Element(_) => &[],
        }
    }
}

/// Checks `expression`, which selects the whole payload of a call. Reports it if none of the
/// elements that it can select has the name of the payload. `found` are the names of these
/// elements. If they are not certain, `found` is `None`, and nothing is reported.
fn check_element(
    call: &MappedCall<'_>,
    expression: &Placed<String>,
    found: Option<&[QName]>,
    schemas: &Schemas,
    problems: &mut ProblemList,
) {
    let wanted = QName::from(&call.payload);
    let Some(found) = found.filter(|found| !found.contains(&wanted)) else { return };
    let mut names: Vec<_> = found.iter().map(written).collect();
    names.dedup();
    let message = format!(
        "`{}` selects {}, and a call to `{}` takes {}",
        expression.value,
        names.join(" or "),
        call.listener.value,
        written(&wanted)
    );
    let description = schemas.describe(&call.payload);
    let help = if description.text.is_some() {
        text_help(&call.payload)
    } else if description.parameters.is_empty() {
        format!(
            "select it from an input or an output that a schema declares with `{}`",
            wanted.local
        )
    } else {
        format!(
            "write with = {{ NAME = EXPRESSION, … }} with an expression for each child of `{}`",
            wanted.local
        )
    };
    problems.add(DefinitionFault::UnknownPayload, expression.place, message, help);
}

/// Returns the help for a goal that should call with `payload`, a text.
fn text_help(payload: &PayloadName) -> String {
    let local = &payload.local;
    let declare = if *payload.namespace == *SHORT_FORM_NAMESPACE {
        format!(", or declare it with a child, as in {local} = {{ text = \"text\" }}")
    } else {
        String::new()
    };
    format!(
        "`{local}` is a text, which no table gives: select a whole `{local}` from an input or an \
         output of this name{declare}"
    )
}

/// Returns a warning for each mapping of a workflow that gives the payload of a call another value
/// than its author may expect.
pub fn mapping_notes(
    definition: &WorkflowDefinition,
    contracts: &Contracts,
    schemas: &Schemas,
) -> Vec<String> {
    let mut notes = Vec::new();
    for goal in &definition.goals {
        let Some(call) = MappedCall::of_goal(goal, contracts, schemas) else { continue };
        let place = format!("goal `{}` of workflow `{}`", goal.id.value, definition.name.value);
        let description = schemas.describe(&call.payload);
        notes.extend(empty_text(&call, &place, &description));
        notes.extend(computed_decimals(&call, &place, &description.parameters));
    }
    notes
}

/// Returns a warning if the payload of a call is a text, and `with` is a table, so that the call
/// has an empty text. Returns `None` if the schema states the value of an empty text.
fn empty_text(
    call: &MappedCall<'_>,
    place: &str,
    description: &PayloadDescription,
) -> Option<String> {
    let is_table = matches!(call.with, Mapping::Fields(_));
    let is_empty = is_table && description.text.is_some() && description.default.is_none();
    let local = &call.payload.local;
    is_empty.then(|| format!("{place} sends an empty `{local}`; {}", text_help(&call.payload)))
}

/// Returns a warning for each decimal field of a payload if XPath computes the value of the field.
/// XPath uses binary floating point, so the digits of the value may be unexpected.
fn computed_decimals(
    call: &MappedCall<'_>,
    place: &str,
    parameters: &[PayloadParameter],
) -> Vec<String> {
    let is_decimal = |key: &str| {
        let mut fields = parameters.iter().filter(|parameter| parameter.key() == key);
        fields.any(|parameter| parameter.content.kind == DECIMAL)
    };
    let fields = call.fields().iter().filter(|(key, _)| is_decimal(key));
    let computed = fields.filter(|(_, value)| is_computed(&value.value));
    let note = |(key, value): &(String, Placed<String>)| {
        format!(
            "`{key}` in {place} is a decimal number that `{}` computes in binary floating point, \
             so that 0.1 + 0.2 gives 0.30000000000000004: let a listener compute it",
            value.value
        )
    };
    computed.map(note).collect()
}

/// The kind of a field that takes a number with a fraction.
const DECIMAL: &str = "number";

/// Whether XPath computes the value of an expression. True if the expression contains an operator
/// of arithmetic, or a call of `sum` or `number`. Ignores predicates, because they only select
/// nodes.
fn is_computed(expression: &str) -> bool {
    let tokens = tokens(expression);
    let mut predicates = 0usize;
    let mut before: Option<&ExpressionToken> = None;
    for (at, token) in tokens.iter().enumerate() {
        let is_after_operand = match before {
            Some(ExpressionToken::Name(name)) => !OPERATORS.contains(&name.as_str()),
            Some(ExpressionToken::Symbol(symbol)) => matches!(*symbol, ")" | "]" | "." | "*"),
            Some(ExpressionToken::Number | ExpressionToken::Literal(_)) => true,
            None => false,
        };
        let is_call = || matches!(tokens.get(at + 1), Some(ExpressionToken::Symbol("(")));
        match token {
            ExpressionToken::Symbol("[") => predicates += 1,
            ExpressionToken::Symbol("]") => predicates = predicates.saturating_sub(1),
            _ if predicates > 0 => {}
            ExpressionToken::Symbol("+" | "-") => return true,
            ExpressionToken::Symbol("*") if is_after_operand => return true,
            ExpressionToken::Name(name) => {
                let is_operator = is_after_operand && matches!(name.as_str(), "div" | "mod");
                let is_function = matches!(name.as_str(), "sum" | "number") && is_call();
                if is_operator || is_function {
                    return true;
                }
            }
            _ => {}
        }
        before = Some(token);
    }
    false
}

/// Returns the name of the payload in a call to the listener `name`. Returns `None` if the name of
/// the payload is not known.
fn payload_of(
    name: &Placed<ListenerName>,
    payload: Option<&Placed<PayloadName>>,
    contracts: &Contracts,
    schemas: &Schemas,
) -> Option<PayloadName> {
    let accepted = contracts.get(&name.value)?.accepts.as_slice();
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
    schemas.contains(found).then(|| found.clone())
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
    let PayloadDescription { parameters, text, .. } = schemas.describe(payload);
    // An element of any name may occur, so the fields cannot be checked.
    if parameters.iter().any(PayloadParameter::is_any_element) {
        return;
    }

    let local = &payload.local;
    let keys: Vec<_> = parameters.iter().map(PayloadParameter::key).collect();
    for (key, value) in fields {
        let at = keys.iter().position(|known| known == key);
        let Some(parameter) = at.and_then(|at| parameters.get(at)) else {
            let message = format!("`{local}` of `{}` has no `{key}`", name.value);
            let known = keys.iter().map(String::as_str);
            let help = if text.is_some() && !key.starts_with('@') {
                text_help(payload)
            } else {
                near_or(key, known, "it has neither children nor attributes")
            };
            problems.add(DefinitionFault::Setting, value.place, message, help);
            continue;
        };
        if let Some(inner) = parameter.parameters.iter().find(|inner| inner.required) {
            let message =
                format!("`{key}` of `{local}` needs `{}`, and `with` gives it a text", inner.key());
            // No expression of another workflow selects an element of this namespace.
            let help = if payload.namespace.starts_with(WORKFLOW_NAMESPACE) {
                format!(
                    "declare the input of `{}` as a payload of `schema`, or as texts",
                    name.value
                )
            } else {
                "write with = an expression that selects the whole payload".to_owned()
            };
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
