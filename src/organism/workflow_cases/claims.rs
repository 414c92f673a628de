//! Compares the run of a test case with the expectations of the case.

use std::collections::HashSet;

use super::record::{CaseCall, CaseRecord};
use super::{failed, refused, texts_of};
use crate::config::{
    CaseText, Config, ConfigProblems, FailureClaim, PathClaims, SourceRange, TextClaim,
    WorkflowCase,
};
use crate::plural;
use crate::pump::driver::CallCompletion;
use crate::workflow::{GoalPhase, called_once, failed_name, output_name};
use crate::xml::element::{Element, Node};

/// Maximum number of characters that an error message quotes from one line, around the first
/// difference.
const QUOTED_CHARS: usize = 160;
/// Maximum number of characters that an error message quotes before the first difference.
const QUOTED_BEFORE: usize = 40;

/// How a run ended.
enum RunEnd {
    Output { text: String },
    Failed { goal: String, code: String, reason: String },
}

/// Adds a problem for each payload that a program of the test case has sent, and that the gate has
/// refused. Payloads of one program that were refused for the same reason give one problem, because
/// a retry of a call often has the same answer.
pub fn check_programs(case: &WorkflowCase, record: &CaseRecord, problems: &mut ConfigProblems) {
    let mut known = HashSet::new();
    for payload in &record.refused {
        let mut programs = case.listeners.iter();
        let program = programs.find(|program| program.text == payload.sender.as_str());
        if let Some(program) = program
            && known.insert((&payload.sender, &payload.refusal.message))
        {
            problems.push(refused(&payload.path, &program.place, &payload.refusal));
        }
    }
}

/// Adds a problem for each expectation of the test case that the run does not meet.
pub fn check(
    case: &WorkflowCase,
    config: &Config,
    completion: &CallCompletion,
    record: &CaseRecord,
    problems: &mut ConfigProblems,
) {
    let expected = &case.expected;
    let end = end_of(case, completion);
    match (&end, &expected.output, &expected.failed) {
        (RunEnd::Output { text }, Some(claim), _) => {
            check_text("the output", WholeText::Xml, claim, text, problems);
        }
        (RunEnd::Failed { .. }, Some(claim), _) => {
            let message = format!("the run has no output: {}", described(&end));
            problems.push(failed(&claim.place, message, next_step(&end)));
        }
        (RunEnd::Output { text }, _, Some(claim)) => {
            let message = "the run did not fail";
            problems.push(failed(&claim.place, message, came(text)));
        }
        (RunEnd::Failed { goal, code, reason }, _, Some(claim)) => {
            check_failure(claim, goal, code, reason, problems);
        }
        (RunEnd::Failed { .. }, None, None) => {
            let message =
                format!("the run failed, and the case does not expect it: {}", described(&end));
            let help = "add output or failed to what the case expects";
            problems.push(failed(&case.name.place, message, help));
        }
        (RunEnd::Output { .. }, None, None) => {}
    }

    check_goals(case, config, record, problems);
    for claims in &expected.documents {
        let texts = record.calls_at(&claims.path.text).filter_map(CaseCall::document);
        let compare = WholeText::Exact;
        check_path(("document", compare), claims, texts.collect(), record, problems);
    }
    for claims in &expected.payloads {
        let calls = record.calls_at(&claims.path.text);
        let texts = calls.map(|call| call.request.payload.as_str().to_owned());
        let compare = WholeText::Xml;
        check_path(("payload", compare), claims, texts.collect(), record, problems);
    }
    let goals = goals_of(config, Some(&case.workflow.text));
    let nested = goals_of(config, None);
    for never in &expected.never {
        check_never(never, [&goals, &nested], record, problems);
    }
}

fn end_of(case: &WorkflowCase, completion: &CallCompletion) -> RunEnd {
    let workflow = crate::ids::ListenerName::parse(&case.workflow.text).ok();
    for message in &completion.messages {
        let Some(payload) = Element::read_document(message.payload.as_str()) else { continue };
        let value = |name: &str| payload.child(name).map(Element::text).unwrap_or_default();
        match &workflow {
            Some(workflow) if message.name == output_name(workflow) => {
                let is_text = payload.children().next().is_none();
                let xml = message.payload.as_str().to_owned();
                return RunEnd::Output { text: if is_text { payload.text() } else { xml } };
            }
            Some(workflow) if message.name == failed_name(workflow) => {
                let [goal, code, reason] = ["goal", "code", "reason"].map(value);
                return RunEnd::Failed { goal, code, reason };
            }
            _ => {
                let code = payload.attribute("code").unwrap_or(payload.local_name()).to_owned();
                return RunEnd::Failed { goal: String::new(), code, reason: texts_of(&payload) };
            }
        }
    }

    let code = "no-output".to_owned();
    RunEnd::Failed { goal: String::new(), code, reason: "it has no reply".to_owned() }
}

fn described(end: &RunEnd) -> String {
    match end {
        RunEnd::Output { text } => text.clone(),
        RunEnd::Failed { goal, code, reason } if goal.is_empty() => format!("{code}: {reason}"),
        RunEnd::Failed { goal, code, reason } => format!("goal `{goal}`, {code}: {reason}"),
    }
}

fn next_step(end: &RunEnd) -> String {
    match end {
        RunEnd::Failed { goal, code, .. } if !goal.is_empty() => {
            format!(
                "expect failed = {{ goal = \"{goal}\", code = \"{code}\" }}, or correct the case"
            )
        }
        _ => "expect failed = \"CODE\", or correct the case".to_owned(),
    }
}

fn came(text: &str) -> String {
    format!("it was:\n{}", text.trim_end())
}

fn check_failure(
    claim: &FailureClaim,
    goal: &str,
    code: &str,
    reason: &str,
    problems: &mut ConfigProblems,
) {
    let wrong = [("goal", &claim.goal, goal), ("code", &claim.code, code)];
    for (noun, expected, actual) in wrong {
        if let Some(expected) = expected.as_ref().filter(|expected| expected.text != actual) {
            let message = format!("the {noun} of the failure is `{actual}`");
            let help = format!("the run failed with goal `{goal}`, {code}: {reason}");
            problems.push(failed(&expected.place, message, help));
        }
    }
    if let Some(part) = claim.reason.as_ref().filter(|part| !reason.contains(&part.text)) {
        let message = format!("the reason does not hold `{}`", part.text);
        problems.push(failed(&part.place, message, format!("it is: {reason}")));
    }
}

fn check_goals(
    case: &WorkflowCase,
    config: &Config,
    record: &CaseRecord,
    problems: &mut ConfigProblems,
) {
    let mut workflows = config.workflows.iter().map(|workflow| &workflow.definition);
    let name = &case.workflow.text;
    let Some(definition) = workflows.find(|definition| definition.name.value.as_str() == name)
    else {
        return;
    };
    if case.expected.goals.is_empty() {
        return;
    }

    let goals = record.goals(definition, &called_once(&config.contracts));
    for (goal, state) in &case.expected.goals {
        let found = goals.iter().find(|status| status.goal.as_str() == goal.text);
        let actual = found.map_or("waiting", |status| status.phase.as_str());
        if actual != state.text {
            let message = format!("the goal `{}` is {actual}", goal.text);
            let all = goals.iter().filter(|status| status.phase != GoalPhase::Waiting);
            let all =
                all.map(|status| format!("{} {}", status.goal.as_str(), status.phase.as_str()));
            let help = format!("the goals are: {}", all.collect::<Vec<_>>().join(", "));
            problems.push(failed(&state.place, message, help));
        }
    }
}

fn check_path(
    (noun, compare): (&str, WholeText),
    claims: &PathClaims,
    texts: Vec<String>,
    record: &CaseRecord,
    problems: &mut ConfigProblems,
) {
    let path = &claims.path;
    if texts.len() != claims.claims.len() {
        let message = match texts.len() {
            0 => format!("there is no {noun} at `{}`", path.text),
            calls => {
                let expected = claims.claims.len();
                let have = plural::form(calls, "has", "have");
                let calls = plural::count(calls, "call");
                format!("{calls} {have} a {noun} at `{}`, not {expected}", path.text)
            }
        };
        problems.push(failed(&path.place, message, paths_of(record)));
        return;
    }

    for (claim, text) in claims.claims.iter().zip(&texts) {
        let noun = format!("the {noun} at `{}`", path.text);
        check_text(&noun, compare, claim, text, problems);
    }
}

fn paths_of(record: &CaseRecord) -> String {
    let paths: Vec<_> = record.calls.iter().map(|call| call.path.as_str()).collect();
    match paths.as_slice() {
        [] => "nothing was called".to_owned(),
        paths => format!("called were, in this order: {}", paths.join(", ")),
    }
}

/// Returns the goal ids of `workflow`. If `workflow` is `None`, returns the goal ids of all
/// workflows.
fn goals_of<'a>(config: &'a Config, workflow: Option<&str>) -> Vec<&'a str> {
    let definitions = config.workflows.iter().map(|workflow| &workflow.definition);
    let is_meant = |name: &str| workflow.is_none_or(|workflow| workflow == name);
    let meant = definitions.filter(|definition| is_meant(definition.name.value.as_str()));
    meant.flat_map(|definition| &definition.goals).map(|goal| goal.id.value.as_str()).collect()
}

/// Adds a problem if the run has a call at a forbidden path. The path `never` and all paths beneath
/// it are forbidden (see [`is_part`]). If `never` ends with `*`, all paths that begin with the text
/// before the `*` are forbidden. `goals` contains two lists: the goal ids of the tested workflow,
/// and the goal ids of all workflows.
fn check_never(
    never: &CaseText,
    goals: [&[&str]; 2],
    record: &CaseRecord,
    problems: &mut ConfigProblems,
) {
    let is_meant = |path: &str| match never.text.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => is_part(path, &never.text, goals),
    };
    if let Some(call) = record.calls.iter().find(|call| is_meant(&call.path)) {
        let message = format!("`{}` was called at `{}`", call.request.to, call.path);
        let text = call.document();
        let text = text.as_deref().unwrap_or(call.request.payload.as_str());
        problems.push(failed(&never.place, message, came(text)));
    }
}

/// Whether `path` is the path `whole`, or lies beneath it. Compares the labels of both paths from
/// the beginning: each label of `whole` must cover the label of `path` at the same place, as
/// [`is_run_of`] decides. So the path `draft` also covers `draft_2`, the second pass of the goal,
/// and `draft/search`, a call that the goal's agent makes. `goals` are the ids of the goals that a
/// first label can name. `nested` are the ids that a later label can name.
fn is_part(path: &str, whole: &str, [goals, nested]: [&[&str]; 2]) -> bool {
    let (path, whole) = match (path.strip_prefix("undo_"), whole.strip_prefix("undo_")) {
        (Some(path), Some(whole)) => (path, whole),
        (None, None) => (path, whole),
        _ => return false,
    };
    let mut steps = path.split(['.', '/']);
    let known = std::iter::once(goals).chain(std::iter::repeat(nested));
    let mut whole = whole.split(['.', '/']).zip(known);
    whole.all(|(whole, goals)| steps.next().is_some_and(|step| is_run_of(step, whole, goals)))
}

/// Whether the label `whole` in a test case covers the thread label `step` of a run. A thread label
/// is the id of a goal with optional suffixes: `draft_2` is the second pass of the goal `draft`,
/// and `draft-1` is a further run after a retry or a correction. If `step` begins with the ids of
/// several goals, the longest id counts.
///
/// - If `whole` is the id of a goal, it covers all labels of this goal.
/// - Any other label covers itself and its further runs. For example, `draft_2` covers `draft_2`
///   and `draft_2-1`.
fn is_run_of(step: &str, whole: &str, goals: &[&str]) -> bool {
    let begins = |goal: &str| {
        let rest = step.strip_prefix(goal);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']))
    };
    let owner = goals.iter().filter(|goal| begins(goal)).max_by_key(|goal| goal.len());
    let is_further = |rest: &str| rest.starts_with('-');
    let is_further_run = step.strip_prefix(whole).is_some_and(is_further);
    match owner {
        Some(owner) if *owner == whole => true,
        Some(owner) => step == whole || (is_further_run && owner.len() < whole.len()),
        None => step == whole,
    }
}

/// Method of comparing a text with the expected text. White space at both ends is ignored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WholeText {
    Exact,
    /// If both texts are XML, compares their elements. Otherwise, compares the texts exactly.
    Xml,
}

fn check_text(
    noun: &str,
    compare: WholeText,
    claim: &TextClaim,
    text: &str,
    problems: &mut ConfigProblems,
) {
    if let Some(expected) = &claim.is
        && !is_same_text(compare, expected, text)
    {
        report_difference(noun, &claim.place, expected, text, problems);
    }

    for part in &claim.contains {
        if !text.contains(&part.text) {
            problems.push(failed(&part.place, format!("{noun} does not hold this"), came(text)));
        }
    }
    for part in &claim.lacks {
        if text.contains(&part.text) {
            problems.push(failed(&part.place, format!("{noun} holds this"), came(text)));
        }
    }
}

fn is_same_text(compare: WholeText, expected: &str, text: &str) -> bool {
    let expected = expected.trim();
    let text = text.trim();
    if compare == WholeText::Exact {
        return expected == text;
    }

    match (Element::read_document(expected), Element::read_document(text)) {
        (Some(expected), Some(actual)) => is_same_element(&expected, &actual),
        _ => expected == text,
    }
}

fn report_difference(
    noun: &str,
    place: &SourceRange,
    expected: &str,
    text: &str,
    problems: &mut ConfigProblems,
) {
    let expected = expected.trim();
    let text = text.trim();
    let mut lines = (1..).zip(expected.lines().map(Some).chain(std::iter::repeat(None)));
    let mut actual = text.lines().map(Some).chain(std::iter::repeat(None));
    let different = lines.find_map(|(number, expected)| {
        let actual = actual.next().flatten();
        let has_ended = expected.is_none() && actual.is_none();
        (expected != actual || has_ended).then_some((number, expected, actual))
    });

    let message = match different {
        Some((number, expected, actual)) if expected != actual => format!(
            "{noun} differs in line {number}: expected {}, got {}",
            quoted(expected, actual),
            quoted(actual, expected)
        ),
        _ => format!("{noun} differs"),
    };
    problems.push(failed(place, message, came(text)));
}

/// Returns the part of the line `line` around its first difference from the line `other`.
fn quoted(line: Option<&str>, other: Option<&str>) -> String {
    let Some(line) = line else { return "the end".to_owned() };
    let mut others = other.unwrap_or_default().chars();
    let same = line.chars().take_while(|character| others.next() == Some(*character)).count();
    let length = line.chars().count();
    let begin = if length > QUOTED_CHARS { same.saturating_sub(QUOTED_BEFORE) } else { 0 };
    let part: String = line.chars().skip(begin).take(QUOTED_CHARS).collect();
    let before = if begin > 0 { "…" } else { "" };
    let after = if length > begin + QUOTED_CHARS { "…" } else { "" };
    format!("`{before}{part}{after}`")
}

/// Whether two elements are the same. An expected name without a namespace stands for any
/// namespace, and white space between elements does not count.
fn is_same_element(expected: &Element, actual: &Element) -> bool {
    let is_in = expected.name.namespace.is_none() || expected.name == actual.name;
    is_in
        && expected.local_name() == actual.local_name()
        && expected.attributes.len() == actual.attributes.len()
        && expected.attributes.iter().all(|attribute| actual.attributes.contains(attribute))
        && is_same_content(expected, actual)
}

/// Whether two elements have the same content. If neither element has children, their texts are
/// compared exactly. Otherwise, white space between elements does not count.
fn is_same_content(expected: &Element, actual: &Element) -> bool {
    let has_children = expected.children().next().is_some();
    if !has_children && actual.children().next().is_none() {
        return expected.text() == actual.text();
    }

    let counts = |node: &&Node| match node {
        Node::Text(text) => !has_children || !text.trim().is_empty(),
        Node::Element(_) => true,
    };
    let expected: Vec<_> = expected.content.iter().filter(counts).collect();
    let actual: Vec<_> = actual.content.iter().filter(counts).collect();
    let is_same = |(expected, actual): (&&Node, &&Node)| match (expected, actual) {
        (Node::Text(expected), Node::Text(actual)) => expected.trim() == actual.trim(),
        (Node::Element(expected), Node::Element(actual)) => is_same_element(expected, actual),
        _ => false,
    };
    expected.len() == actual.len() && expected.iter().zip(&actual).all(is_same)
}
