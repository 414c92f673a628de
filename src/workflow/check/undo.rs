//! Checks the undo rules of listeners and the workflows that use these rules.

use std::collections::{BTreeSet, VecDeque};

use crate::contract::{Contract, Contracts, UndoRule};
use crate::ids::ListenerName;
use crate::schema::{Schemas, check_expression};

use super::super::compile::peers_of;
use super::super::definition::{FailurePolicy, PlaceId, Placed, WorkflowDefinition};
use super::super::expression::{self, FUNCTIONS};
use super::super::shapes::ShapeSource;
use super::super::value_shape::ValueShape;
use super::mappings::check_fields;
use super::{DefinitionContext, DefinitionFault, DefinitionProblem, ProblemList, near_or};

/// Returns the problems of an undo rule. If a value in `rule.with` is wrong, the place of the
/// problem is the position of this value, counted from 0. For any other problem, it is the length
/// of `rule.with`.
///
/// `is_stored` states whether the rule belongs to a stored config, see
/// [`DefinitionContext::is_stored`].
pub fn check_undo_rule(
    contract: &Contract,
    rule: &UndoRule,
    schemas: &Schemas,
    is_stored: bool,
) -> Vec<DefinitionProblem> {
    let source = ShapeSource::new(schemas, None, &[]);
    let replies = source.replies_of(contract);
    let request = source.payload(&rule.request);
    let root =
        ValueShape::Children(vec![("request".to_owned(), request), ("reply".to_owned(), replies)]);

    let mut problems = ProblemList::default();

    if schemas.contains(&rule.payload) {
        let of_rule = Placed::new(contract.name.clone(), PlaceId(rule.with.len()));
        let fields = rule.with.iter().enumerate();
        let fields = fields.map(|(number, (field, text))| {
            (field.clone(), Placed::new(text.clone(), PlaceId(number)))
        });
        let fields: Vec<_> = fields.collect();
        check_fields(&of_rule, &rule.payload, &fields, schemas, &mut problems);
    }

    for (number, (_, text)) in rule.with.iter().enumerate() {
        let place = PlaceId(number);
        if let Err(error) = check_expression(text) {
            let message = format!("`{text}` is not an XPath 1.0: {error}");
            let help = "docs/WORKFLOWS.md has examples";
            problems.add(DefinitionFault::BadExpression, place, message, help);
            continue;
        }

        let report = expression::read(text, &root);
        for function in &report.unknown_functions {
            let message = format!("there is no function `{function}`");
            let help = near_or(function, FUNCTIONS, "");
            problems.add(DefinitionFault::BadExpression, place, message, help);
        }
        for wrong in report.wrong_calls.iter().filter(|_| !is_stored) {
            problems.add(DefinitionFault::BadExpression, place, &wrong.message, wrong.help);
        }
        if report.has_variable {
            let message = "an expression has no variables";
            let help = "write a path from `request` or `reply`";
            problems.add(DefinitionFault::BadExpression, place, message, help);
        }
        for missing in &report.missing {
            let message = match missing.path.as_str() {
                "" => format!("`{}` is neither `request` nor `reply`", missing.name),
                path => format!("`{path}` never holds `{}`", missing.name),
            };
            let known: Vec<_> = missing.known.iter().map(String::as_str).collect();
            let help = near_or(&missing.name, known, "a text has no children");
            problems.add(DefinitionFault::NeverMatches, place, message, help);
        }
    }

    problems.found
}

/// Checks a workflow that undoes calls after a failure. Reports:
/// - each listener that has an undo rule and can be called beneath the workflow, but is no peer of
///   the workflow. The workflow cannot send the undo to such a listener.
/// - each undo payload that two peers accept. The undo would go to one of them, but the vocabulary of
///   the workflow would contain both.
///
/// If the workflow undoes no calls, reports only the setting `report_to`, which is useless then.
pub(super) fn check(
    definition: &WorkflowDefinition,
    context: &DefinitionContext<'_>,
    problems: &mut ProblemList,
) {
    let undoes = |policy: &FailurePolicy| *policy == FailurePolicy::Undo;
    let goals = definition.goals.iter();
    let of_goal = goals.clone().find(|goal| goal.on_failure.as_ref().is_some_and(undoes));
    let place = match (undoes(&definition.on_failure), of_goal) {
        (true, _) => definition.name.place,
        (false, Some(goal)) => goal.id.place,
        (false, None) => {
            if let Some(human) = definition.report_to.as_ref().filter(|_| !context.is_partial) {
                let message = "nothing is reported: no goal has on_failure = \"undo\"";
                let help = "take `report_to` out, or set on_failure";
                problems.add(DefinitionFault::Setting, human.place, message, help);
            }
            return;
        }
    };

    let Some(contracts) = context.contracts else { return };
    let peers = peers_of(definition);
    let name = &definition.name.value;
    for listener in listeners_beneath(&peers, contracts) {
        let Some(contract) = contracts.get(listener).filter(|contract| !contract.undo.is_empty())
        else {
            continue;
        };
        if !peers.contains(listener) && context.is_partial {
            continue;
        }
        if !peers.contains(listener) {
            let message = format!(
                "`{listener}` can be called beneath `{name}`, which cannot send what undoes its calls"
            );
            let help = format!("add \"{listener}\" to `peers` of the workflow");
            problems.add(DefinitionFault::UnknownMember, place, message, help);
            continue;
        }

        for rule in &contract.undo {
            let accepts = |peer: &&ListenerName| {
                let other = contracts.get(peer).filter(|other| other.name != *listener);
                other.is_some_and(|other| other.accepts.contains(&rule.payload))
            };
            let Some(other) = peers.iter().find(accepts) else { continue };
            let local = &rule.payload.local;
            let message = format!(
                "`{listener}` and `{other}` both accept `{local}`, which undoes calls of `{listener}`"
            );
            let help = "an undo payload must have one receiver: take one out of the workflow";
            problems.add(DefinitionFault::UnknownMember, place, message, help);
        }
    }
}

/// Returns `peers` and all listeners that can be called beneath them, directly or through others.
pub fn listeners_beneath<'a>(
    peers: impl IntoIterator<Item = &'a ListenerName>,
    contracts: &'a Contracts,
) -> BTreeSet<&'a ListenerName> {
    let mut found: BTreeSet<&ListenerName> = BTreeSet::new();
    let mut pending: VecDeque<&ListenerName> = peers.into_iter().collect();
    while let Some(next) = pending.pop_front() {
        if found.insert(next) {
            pending.extend(contracts.get(next).into_iter().flat_map(|contract| &contract.peers));
        }
    }

    found
}
