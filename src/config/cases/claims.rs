//! The expectations of a case: all its claims about a run.

use crate::workflow::GoalPhase;

use super::super::config_problem::{ConfigProblem, ProblemCode};
use super::super::keys::{KeyKind, KnownSection, did_you_mean_value};
use super::super::read::TableReader;
use super::super::source_text::SourceRange;
use super::super::tree::{TomlNode, TomlTable, TomlValue};
use super::CaseText;

const EXPECT: KnownSection = KnownSection {
    name: "expect",
    member: None,
    keys: &[
        ("output", KeyKind::Nested),
        ("failed", KeyKind::Nested),
        ("goals", KeyKind::Free),
        ("documents", KeyKind::Nested),
        ("payloads", KeyKind::Nested),
        ("never", KeyKind::List),
    ],
};

const TEXT: KnownSection = KnownSection {
    name: "text",
    member: None,
    keys: &[("is", KeyKind::Text), ("contains", KeyKind::OneOrMore), ("lacks", KeyKind::OneOrMore)],
};

const FAILED: KnownSection = KnownSection {
    name: "failed",
    member: None,
    keys: &[("goal", KeyKind::Text), ("code", KeyKind::Text), ("reason", KeyKind::Text)],
};

/// All claims that a case makes about a run.
#[derive(Debug, Clone, Default)]
pub struct CaseExpectations {
    pub output: Option<TextClaim>,
    pub failed: Option<FailureClaim>,
    /// Goals, each with the state that the goal must have at the end of the run.
    pub goals: Vec<(CaseText, CaseText)>,
    /// Claims about the documents that agents get as their tasks, grouped by the path of the call
    /// that gives the document to the agent.
    pub documents: Vec<PathClaims>,
    /// Claims about the payloads of calls. The claims are grouped by the paths of the calls.
    pub payloads: Vec<PathClaims>,
    /// Paths of calls that a run must not make. Two kinds of entries stand for several paths:
    ///
    /// - The name of a goal alone also stands for all calls of the goal's passes, items and
    ///   members.
    /// - A text with `*` at its end stands for every path that begins with the text before `*`.
    pub never: Vec<CaseText>,
}

/// Claims of a test case about all calls that have the same path. There is one claim for each of
/// these calls, in the order of the calls. The claims concern either the documents of the calls or
/// their payloads.
#[derive(Debug, Clone)]
pub struct PathClaims {
    pub path: CaseText,
    pub claims: Vec<TextClaim>,
}

/// A claim about one text, such as a document or a payload.
#[derive(Debug, Clone)]
pub struct TextClaim {
    pub place: SourceRange,
    /// The exact text that is expected; `None` if the claim states only parts of the text.
    pub is: Option<String>,
    pub contains: Vec<CaseText>,
    pub lacks: Vec<CaseText>,
}

/// A claim about the failure of a run.
#[derive(Debug, Clone)]
pub struct FailureClaim {
    pub place: SourceRange,
    pub goal: Option<CaseText>,
    pub code: Option<CaseText>,
    /// Text that the reason must contain; `None` if the claim permits any reason.
    pub reason: Option<CaseText>,
}

/// Reads the table `expect`. Returns `None` if the table is missing.
pub(super) fn expectations(read: &mut TableReader<'_>) -> Option<CaseExpectations> {
    let help = "add [case.expect] with output, failed, goals, documents, payloads or never";
    if !read.required_with("expect", help) {
        return None;
    }
    let node = read.node("expect")?;
    let TomlValue::Table(table) = &node.value else {
        read.wrong_kind("expect", node, "a table");
        return None;
    };
    let place = read.place_of("expect");
    let what = read.what_within("expect");
    if table.entries.is_empty() {
        read.empty("expect", &place);
    }

    let mut inner = TableReader::new(&EXPECT, table, what, place, read.problems);
    let output = inner.node("output").and_then(|node| text_claim("output", node, &mut inner));
    let failed = inner.node("failed").and_then(|node| failure_claim(node, &mut inner));
    if let (Some(_), Some(failed)) = (&output, &failed) {
        let message = "a run either has an output or fails";
        let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &failed.place, message);
        inner.problem(problem.help("keep one of output and failed"));
    }
    let goals = goal_states(&mut inner);
    if inner.is_empty_list("never") {
        let place = inner.place_of("never");
        inner.empty("never", &place);
    }
    let documents = path_claims("documents", &mut inner);
    let payloads = path_claims("payloads", &mut inner);
    let never = inner.list("never").into_iter().map(CaseText::from).collect();
    Some(CaseExpectations { output, failed, goals, documents, payloads, never })
}

fn goal_states(read: &mut TableReader<'_>) -> Vec<(CaseText, CaseText)> {
    let mut goals = Vec::new();
    report_if_empty("goals", read);
    for (goal, state) in read.free("goals") {
        let goal = CaseText { text: goal.value, place: goal.place };
        let state = CaseText::from(state);
        let states = GoalPhase::ALL.map(GoalPhase::as_str);
        if !states.contains(&state.text.as_str()) {
            let help =
                did_you_mean_value(&state.text, states, || format!("one of {}", states.join(", ")));
            let message = format!("a goal is never `{}`", state.text);
            let problem = ConfigProblem::new(ProblemCode::UnknownChoice, &state.place, message);
            read.problem(problem.help(help));
        }
        goals.push((goal, state));
    }

    goals
}

/// Reports a table that has no entries, because such a table claims nothing.
fn report_if_empty(key: &str, read: &mut TableReader<'_>) {
    if let Some(TomlNode { value: TomlValue::Table(table), place, .. }) = read.node(key)
        && table.entries.is_empty()
    {
        read.empty(key, place);
    }
}

fn path_claims(key: &str, read: &mut TableReader<'_>) -> Vec<PathClaims> {
    let Some(node) = read.node(key) else { return Vec::new() };
    let TomlValue::Table(table) = &node.value else {
        read.wrong_kind(key, node, "a table with a text for each path");
        return Vec::new();
    };

    let mut all = Vec::new();
    report_if_empty(key, read);
    for entry in &table.entries {
        let path = CaseText { text: entry.key.value.clone(), place: entry.key.place.clone() };
        let name = format!("{key}.{}", path.text);
        let nodes = entry.node.items().iter();
        let claims = nodes.filter_map(|node| text_claim(&name, node, read));
        let claims = claims.collect();
        all.push(PathClaims { path, claims });
    }

    all
}

fn text_claim(key: &str, node: &TomlNode, read: &mut TableReader<'_>) -> Option<TextClaim> {
    let place = node.place.clone();
    match &node.value {
        TomlValue::Text(text) => {
            let is = Some(text.value.clone());
            Some(TextClaim { place, is, contains: Vec::new(), lacks: Vec::new() })
        }
        TomlValue::Table(table) => {
            if table.entries.is_empty() {
                read.empty(key, &place);
            }

            let mut claim = within(&TEXT, key, table, &place, read);
            let is = claim.text("is").map(|text| text.value.value);
            let contains = claim.one_or_more("contains").into_iter().map(CaseText::from);
            let contains = contains.collect();
            let lacks = claim.one_or_more("lacks").into_iter().map(CaseText::from).collect();
            Some(TextClaim { place, is, contains, lacks })
        }
        _ => {
            read.wrong_kind(key, node, "a text, or a table with is, contains or lacks");
            None
        }
    }
}

fn failure_claim(node: &TomlNode, read: &mut TableReader<'_>) -> Option<FailureClaim> {
    let place = node.place.clone();
    match &node.value {
        TomlValue::Text(text) => {
            let code = Some(CaseText { text: text.value.clone(), place: place.clone() });
            Some(FailureClaim { place, goal: None, code, reason: None })
        }
        TomlValue::Table(table) => {
            if table.entries.is_empty() {
                read.empty("failed", &place);
            }

            let mut claim = within(&FAILED, "failed", table, &place, read);
            let goal = claim.text("goal").map(CaseText::from);
            let code = claim.text("code").map(CaseText::from);
            let reason = claim.text("reason").map(CaseText::from);
            Some(FailureClaim { place, goal, code, reason })
        }
        _ => {
            read.wrong_kind("failed", node, "a code, or a table with goal, code or reason");
            None
        }
    }
}

fn within<'a>(
    section: &KnownSection,
    key: &str,
    table: &'a TomlTable,
    place: &SourceRange,
    read: &'a mut TableReader<'_>,
) -> TableReader<'a> {
    let what = read.what_within(key);
    TableReader::new(section, table, what, place.clone(), read.problems)
}
