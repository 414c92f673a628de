//! Checks the cases of a case file against the config that they test. The check is made before any
//! case runs.

use crate::contract::Role;
use crate::ids::ListenerName;
use crate::schema::Schemas;
use crate::workflow::{InputError, WorkflowDefinition, input_payload};
use crate::xml::element::Element;

use super::super::Config;
use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::super::keys::{did_you_mean, nearest};
use super::super::source_text::SourceRange;
use super::never_paths::can_be_called;
use super::{CaseInput, CaseText, WorkflowCase};

/// Kind of a thing that a case names.
#[derive(Clone, Copy)]
enum NamedKind {
    Workflow,
    Goal,
    Client,
    /// A listener with a program.
    Program,
}

/// Reports the problems of the cases: names that the config does not define, calls that the config
/// does not permit, and claims that hold for every run and so test nothing.
pub fn check_cases(cases: &[WorkflowCase], config: &Config) -> ConfigProblems {
    let mut problems = ConfigProblems::default();
    for case in cases {
        check_members(case, config, &mut problems);
        let workflows = || config.workflows.iter().map(|one| &one.definition);
        let found = workflows().find(|one| one.name.value.as_str() == case.workflow.text);
        match found {
            Some(definition) => {
                check_case(case, definition, &config.schemas, &mut problems);
                check_never(case, definition, config, &mut problems);
                check_client(case, config, &mut problems);
            }
            // The missing name was reported when the case was read.
            None if case.workflow.text.is_empty() => {}
            None => {
                let names = workflows().map(|one| one.name.value.as_str()).collect();
                problems.push(unknown(&case.workflow, NamedKind::Workflow, names));
            }
        }
    }

    problems.sort();
    problems
}

fn unknown(text: &CaseText, kind: NamedKind, known: Vec<&str>) -> ConfigProblem {
    let help = did_you_mean(&text.text, known.iter().copied(), || {
        if known.is_empty() {
            "the config has none".to_owned()
        } else {
            format!("one of {}", known.join(", "))
        }
    });
    let (code, fault) = match kind {
        NamedKind::Workflow => (ProblemCode::UnknownChoice, "the config has no workflow"),
        NamedKind::Goal => (ProblemCode::UnknownGoal, "the workflow has no goal"),
        NamedKind::Client => (ProblemCode::UnknownClient, "the config has no client"),
        NamedKind::Program => {
            (ProblemCode::UnknownChoice, "the config has no listener with a program")
        }
    };
    let message = format!("{fault} `{}`", text.text);
    ConfigProblem::new(code, &text.place, message).help(help)
}

fn check_members(case: &WorkflowCase, config: &Config, problems: &mut ConfigProblems) {
    let of_role = |role: Role| config.contracts.iter().filter(move |one| one.role == role);
    let named = |role: Role| of_role(role).map(|one| one.name.as_str()).collect::<Vec<_>>();
    if let Some(client) = &case.client
        && !named(Role::Client).contains(&client.text.as_str())
    {
        problems.push(unknown(client, NamedKind::Client, named(Role::Client)));
    }

    let programs: Vec<_> = config.processes.iter().map(|one| one.name.as_str()).collect();
    for listener in &case.listeners {
        if !programs.contains(&listener.text.as_str()) {
            problems.push(unknown(listener, NamedKind::Program, programs.clone()));
        }
    }
}

/// Reports the client of the case if it may not call the workflow. Skips an undefined client,
/// because `check_members` reports it.
fn check_client(case: &WorkflowCase, config: &Config, problems: &mut ConfigProblems) {
    let workflow = &case.workflow.text;
    let clients = || config.contracts.iter().filter(|one| one.role == Role::Client);
    let may_call = |peers: &[ListenerName]| peers.iter().any(|peer| peer.as_str() == workflow);
    let (place, message) = match &case.client {
        Some(named) => {
            let client = clients().find(|one| one.name.as_str() == named.text);
            if client.is_none_or(|client| may_call(&client.peers)) {
                return;
            }
            (&named.place, format!("the client `{}` may not call `{workflow}`", named.text))
        }
        None if clients().any(|client| may_call(&client.peers)) => return,
        None => (&case.workflow.place, format!("no client of the config may call `{workflow}`")),
    };
    let help = "add the workflow to `peers` of the client, or name another one with `as`";
    problems.push(ConfigProblem::new(ProblemCode::UnknownPeer, place, message).help(help));
}

fn check_case(
    case: &WorkflowCase,
    definition: &WorkflowDefinition,
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) {
    match &case.input {
        CaseInput::Values { values, names, place } => {
            check_input((values, names, place), definition, schemas, problems);
        }
        CaseInput::Payload(text) => {
            if Element::read_document(text.text.trim()).is_none() {
                let message = "the input is not one XML element";
                let problem = ConfigProblem::new(ProblemCode::WrongType, &text.place, message);
                problems.push(problem.help("write input = { NAME = \"value\" }, or the payload"));
            }
        }
    }

    let goals = goals_of(definition);
    let expected = &case.expected;
    let claimed = expected.goals.iter().map(|(goal, _)| goal);
    let failed = expected.failed.iter().filter_map(|failed| failed.goal.as_ref());
    for goal in claimed.chain(failed) {
        if !goals.contains(&goal.text.as_str()) {
            problems.push(unknown(goal, NamedKind::Goal, goals.clone()));
        }
    }

    let answers = case.answers.iter().map(|answer| &answer.path);
    let claims = expected.documents.iter().chain(&expected.payloads).map(|claim| &claim.path);
    for path in answers.chain(claims) {
        if path.text.contains('*') {
            let message = format!("no call has the path `{}`", path.text);
            let problem = ConfigProblem::new(ProblemCode::UnknownGoal, &path.place, message);
            problems.push(problem.help("only a path of `never` may end with *"));
        } else {
            check_path(path, &goals, problems);
        }
    }
}

fn goals_of(definition: &WorkflowDefinition) -> Vec<&str> {
    definition.goals.iter().map(|goal| goal.id.value.as_str()).collect()
}

/// Reports each path in `never` that no call of the workflow can have. Such a path tests nothing,
/// because the case would pass for every run.
fn check_never(
    case: &WorkflowCase,
    definition: &WorkflowDefinition,
    config: &Config,
    problems: &mut ConfigProblems,
) {
    let goals = goals_of(definition);
    for path in &case.expected.never {
        let begins_name = |begin: &str| {
            let begin = begin.strip_prefix("undo_").unwrap_or(begin);
            path.text.ends_with('*') && goals.iter().any(|goal| goal.starts_with(begin))
        };
        match path.text.strip_suffix('*').unwrap_or(&path.text) {
            begin if begin.contains('*') => {
                let message = format!("no call has the path `{}`", path.text);
                let problem = ConfigProblem::new(ProblemCode::UnknownGoal, &path.place, message);
                problems.push(problem.help("* stands at the end of a path"));
            }
            // These paths stand for all calls, and for all undos.
            "" | "undo_" if path.text.ends_with('*') => {}
            // This path stands for the report of calls that were not undone.
            "undo-report" => {}
            begin if !begins_with_goal(path, &goals) && !begins_name(begin) => {
                check_path(path, &goals, problems);
            }
            _ if can_be_called(&path.text, definition, config) => {}
            _ => {
                let message = format!("no call can have the path `{}`", path.text);
                let problem = ConfigProblem::new(ProblemCode::UnknownGoal, &path.place, message);
                let help = "a goal alone stands for all its calls; those of a loop or a choice are \
                            the calls of its members";
                problems.push(problem.help(help));
            }
        }
    }
}

/// Reports every unknown input. Then reports at most one other problem, such as a missing input. A
/// missing input is not reported beside an unknown input, because the unknown name is probably a
/// misspelling of the missing one.
fn check_input(
    (values, names, place): (&[(String, String)], &[CaseText], &SourceRange),
    definition: &WorkflowDefinition,
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) {
    let mut values = values.to_vec();
    let mut has_unknown = false;
    while let Err(error) = input_payload(schemas, definition, &values, false) {
        let message = error.to_string();
        let message = message.split("; add --input").next().unwrap_or_default();
        let named = |name: &str| names.iter().find(|known| known.text == name);
        let place_of = |name: &str| named(name).map_or(place, |known| &known.place);
        let problem = match &error {
            InputError::Unknown { name, known } => {
                has_unknown = true;
                values.retain(|(value, _)| value != name);
                let problem = ConfigProblem::new(ProblemCode::UnknownKey, place_of(name), message);
                let near = nearest(name, known.iter().map(String::as_str));
                problems.push(problem.maybe(near.map(|near| format!("did you mean `{near}`?"))));
                continue;
            }
            // The unknown input was probably meant as the missing one.
            InputError::Missing(_) if has_unknown => return,
            InputError::Missing(_) => ConfigProblem::new(ProblemCode::MissingKey, place, message)
                .help("write it as input = { NAME = \"value\" }"),
            InputError::Twice(name) => {
                ConfigProblem::new(ProblemCode::WrongType, place_of(name), message)
                    .help("it takes one value")
            }
            InputError::Nested(name) => {
                ConfigProblem::new(ProblemCode::WrongType, place_of(name), message)
                    .help("write the whole payload as XML: input = \"<NAME>…</NAME>\"")
            }
        };
        problems.push(problem);
        return;
    }
}

/// Reports a path that does not begin with the name of a goal of the workflow.
fn check_path(path: &CaseText, goals: &[&str], problems: &mut ConfigProblems) {
    let text = path.text.strip_prefix("undo_").unwrap_or(&path.text);
    if text == "undo-report" || begins_with_goal(path, goals) {
        return;
    }

    let end = text.find(['_', '.', '/', '*']).unwrap_or(text.len());
    let goal = text.get(..end).unwrap_or(text);
    let goal = CaseText { text: goal.to_owned(), place: path.place.clone() };
    problems.push(unknown(&goal, NamedKind::Goal, goals.to_vec()));
}

fn begins_with_goal(path: &CaseText, goals: &[&str]) -> bool {
    let text = path.text.strip_prefix("undo_").unwrap_or(&path.text);
    goals.iter().any(|goal| {
        let rest = text.strip_prefix(*goal);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-', '.', '/', '*']))
    })
}

/// Returns the client that calls the workflow of a case: the client that the case names, or else
/// the first client that may call the workflow. Returns `None` if the config has no such client.
pub fn client_of(case: &WorkflowCase, config: &Config) -> Option<ListenerName> {
    let clients = || config.contracts.iter().filter(|one| one.role == Role::Client);
    match &case.client {
        Some(named) => clients().find(|one| one.name.as_str() == named.text),
        None => {
            clients().find(|one| one.peers.iter().any(|peer| peer.as_str() == case.workflow.text))
        }
    }
    .map(|client| client.name.clone())
}
