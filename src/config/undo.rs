//! `[listeners.NAME.undo.PAYLOAD]`: how calls to a listener are undone.

use crate::contract::{Contracts, UndoRule};
use crate::ids::{ListenerName, PayloadName};
use crate::schema::Schemas;
use crate::workflow::check_undo_rule;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys;
use super::members::DeclaredMember;
use super::read::TableReader;
use super::tree::{ExpandedText, Located, TomlValue};

/// Rule for undoing calls to a listener, as the config declares it. The rule applies to one request
/// payload. The payload names in the rule are not resolved yet.
pub(super) struct DeclaredUndo {
    /// Name of the request payload whose calls can be undone.
    pub request: Located<String>,
    /// Name of the payload that undoes a completed call.
    pub payload: Located<ExpandedText>,
    pub with: Vec<(Located<String>, Located<ExpandedText>)>,
}

/// Reads the tables `undo` of a listener. Each table states how calls with a certain payload are
/// undone.
pub(super) fn read(read: &mut TableReader<'_>) -> Vec<DeclaredUndo> {
    let Some(node) = read.node("undo") else { return Vec::new() };
    let TomlValue::Table(table) = &node.value else {
        read.wrong_kind("undo", node, "a table with one entry for each payload");
        return Vec::new();
    };

    let mut declared = Vec::new();
    for entry in &table.entries {
        let key = format!("undo.{}", entry.key.value);
        let TomlValue::Table(table) = &entry.node.value else {
            read.wrong_kind(&key, &entry.node, "a table with `payload` and `with`");
            continue;
        };

        let what = read.what_within(&key);
        let place = entry.key.place.clone();
        let mut inner = TableReader::new(&keys::UNDO, table, what, place, read.problems);
        inner.required("payload", "\"the payload that undoes it\"");
        inner.required("with", "{ number = \"reply/number\" }");
        let with = inner.free("with");
        if let Some(payload) = inner.text("payload") {
            declared.push(DeclaredUndo { request: entry.key.clone(), payload, with });
        }
    }

    declared
}

/// Resolves the payload names in the undo rules of a listener.
pub(super) fn resolve(
    member: &DeclaredMember,
    accepts: &[Located<PayloadName>],
    problems: &mut ConfigProblems,
) -> Vec<UndoRule> {
    let mut accepted = |text: &str, place| {
        let wanted = PayloadName::parse(text).ok();
        let fits = |name: &&Located<PayloadName>| {
            wanted.as_ref().is_some_and(|wanted| {
                name.value.local == wanted.local
                    && (wanted.namespace.is_empty() || name.value.namespace == wanted.namespace)
            })
        };
        let found = accepts.iter().find(fits).map(|name| name.value.clone());
        if found.is_none() {
            let message = format!("listener `{}` does not accept `{text}`", member.name.value);
            let known: Vec<_> = accepts.iter().map(|name| &*name.value.local).collect();
            let help = match known.as_slice() {
                [] => "add it to `accepts`".to_owned(),
                known => format!("it accepts {}; add it to `accepts`", known.join(", ")),
            };
            let problem = ConfigProblem::new(ProblemCode::UndeclaredPayload, place, message);
            problems.push(problem.help(help));
        }
        found
    };

    let mut rules: Vec<UndoRule> = Vec::new();
    let mut places = Vec::new();
    for declared in &member.undo {
        let request = accepted(&declared.request.value, &declared.request.place);
        let payload = accepted(&declared.payload.value.value, &declared.payload.place);
        let with = declared.with.iter();
        let with = with.map(|(name, value)| (name.value.clone(), value.value.value.clone()));
        if let (Some(request), Some(payload)) = (request, payload) {
            rules.push(UndoRule { request, payload, with: with.collect() });
            places.push(&declared.request.place);
        }
    }

    for (number, (rule, place)) in rules.iter().zip(places).enumerate() {
        let listener = &member.name.value;
        let request = &rule.request.local;
        let is_second = rules.iter().take(number).any(|before| before.request == rule.request);
        if is_second {
            let message = format!("listener `{listener}` has two undos for `{request}`");
            problems.push(
                ConfigProblem::new(ProblemCode::DuplicateEntry, place, message)
                    .help("keep one of them"),
            );
        }
        if let Some(other) = rules.iter().find(|other| other.payload == rule.request) {
            let undone = &other.request.local;
            let message = format!("`{request}` undoes `{undone}`, so it has no undo of its own");
            problems.push(
                ConfigProblem::new(ProblemCode::DuplicateEntry, place, message)
                    .help("remove this undo, or undo with another payload"),
            );
        }
    }

    rules
}

/// Checks the expressions of every undo rule against the schemas of the rule's request and of the
/// reply to this request.
pub(super) fn check(
    members: &[DeclaredMember],
    (contracts, is_stored): (&Contracts, bool),
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) {
    for member in members {
        let name: &ListenerName = &member.name.value;
        let Some(contract) = contracts.get(name) else { continue };
        for declared in &member.undo {
            let is_same = |rule: &&UndoRule| {
                declared.request.value == *rule.request.local
                    || declared.request.value == rule.request.to_string()
            };
            let Some(rule) = contract.undo.iter().find(is_same) else { continue };
            for found in check_undo_rule(contract, rule, schemas, is_stored) {
                let value = declared.with.get(found.place.0).map(|(_, value)| &value.place);
                let place = value.unwrap_or(&declared.request.place);
                let code = super::workflows::code_of(found.fault);
                problems.push(ConfigProblem::new(code, place, &found.message).help(&found.help));
            }
        }
    }
}
