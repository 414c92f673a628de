//! Case files, which contain tests of workflows. Each test consists of recorded answers, faults,
//! and expectations.
//!
//! `docs/WORKFLOWS.md` describes the format. This module reads a file and checks it against the
//! config that the file tests; it must not know how a case runs.

mod check;
mod claims;
mod never_paths;
mod values;

use std::path::{Path, PathBuf};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::{KeyKind, KnownSection};
use super::read::TableReader;
use super::source_text::SourceRange;
use super::tree::{TomlNode, TomlTable, TomlValue};
use super::{file, tree};

pub use check::{check_cases, client_of};
pub use claims::{CaseExpectations, FailureClaim, PathClaims, TextClaim};
pub use values::{CaseAnswer, CaseFault, CaseInput, CaseTurn};

const FILE: KnownSection = KnownSection {
    name: "case file",
    member: None,
    keys: &[("config", KeyKind::Text), ("variables", KeyKind::Free), ("case", KeyKind::Nested)],
};

const CASE: KnownSection = KnownSection {
    name: "case",
    member: Some("case"),
    keys: &[
        ("name", KeyKind::Text),
        ("workflow", KeyKind::Text),
        ("as", KeyKind::Text),
        ("input", KeyKind::Nested),
        ("answers", KeyKind::Nested),
        ("listeners", KeyKind::List),
        ("expect", KeyKind::Nested),
    ],
};

/// A string in a case file, with its location in the file.
#[derive(Debug, Clone)]
pub struct CaseText {
    pub text: String,
    pub place: SourceRange,
}

/// The cases of one file, for the workflows of one config.
#[derive(Debug, Clone)]
pub struct CaseFile {
    /// Path of the config, resolved against the directory of the case file; `None` if the file
    /// names no config.
    pub config: Option<PathBuf>,
    /// Environment variables that the case file sets for the config under test, each as its name
    /// and its value.
    pub variables: Vec<(String, String)>,
    pub cases: Vec<WorkflowCase>,
}

/// One test of a workflow.
#[derive(Debug, Clone)]
pub struct WorkflowCase {
    pub name: CaseText,
    pub workflow: CaseText,
    /// Client that calls the workflow; `None` for the first client of the config that may call the
    /// workflow.
    pub client: Option<CaseText>,
    pub input: CaseInput,
    /// Answers that the case supplies in place of listeners, in the order of the case file. Answers
    /// that could arrive at the same time arrive in this order.
    pub answers: Vec<CaseAnswer>,
    /// Listeners whose real programs this test runs.
    pub listeners: Vec<CaseText>,
    pub expected: CaseExpectations,
}

/// Reads the cases of the file at `path`. Returns the cases that can be read, and the problems of
/// all parts that cannot. If the file is not TOML, returns only problems.
pub fn read_cases(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<(CaseFile, ConfigProblems), ConfigProblems> {
    let text = file::read_with(
        path,
        around,
        "write one from a run with `organism workflow test --from RUN`",
    )?;
    let (table, source) = tree::parse_verbatim(&path.display().to_string(), &text)?;
    let mut problems = ConfigProblems::default();
    let place = SourceRange::start(&source);
    let mut read =
        TableReader::new(&FILE, &table, "the case file".to_owned(), place, &mut problems);

    let directory = file::directory(path, around);
    let config = read.text("config").map(|text| directory.join(text.value.value));
    let variables = read.free("variables");
    let variables = variables.into_iter().map(|(name, text)| (name.value, text.value.value));
    let variables = variables.collect();
    let cases = cases(&mut read);

    Ok((CaseFile { config, variables, cases }, problems))
}

fn cases(read: &mut TableReader<'_>) -> Vec<WorkflowCase> {
    let help = "add [[case]] with name, workflow, input, answers and expect";
    if !read.required_with("case", help) {
        return Vec::new();
    }
    let Some(node) = read.node("case") else { return Vec::new() };
    let TomlValue::List(nodes) = &node.value else {
        read.wrong_kind("case", node, "a list of tables, each beginning with [[case]]");
        return Vec::new();
    };

    let mut cases: Vec<WorkflowCase> = Vec::new();
    for node in nodes {
        let TomlValue::Table(table) = &node.value else {
            read.wrong_kind("an entry of `case`", node, "a table");
            continue;
        };
        let case = case(node, table, read.problems);
        let is_named = !case.name.text.is_empty();
        if is_named && cases.iter().any(|other| other.name.text == case.name.text) {
            let message = format!("two cases are called `{}`", case.name.text);
            let problem = ConfigProblem::new(ProblemCode::DuplicateName, &case.name.place, message);
            read.problem(problem.help("say in the name what this one shows"));
        }
        cases.push(case);
    }

    cases
}

/// Reads a case. Reports missing parts and leaves them empty, so that the other parts can still be
/// checked.
fn case(node: &TomlNode, table: &TomlTable, problems: &mut ConfigProblems) -> WorkflowCase {
    let what = match table.get("name").map(|name| &name.value) {
        Some(TomlValue::Text(name)) => format!("case `{}`", name.value),
        _ => "the case".to_owned(),
    };
    let place = node.place.clone();
    let mut read = TableReader::new(&CASE, table, what, place, problems);

    let name = required(&mut read, "name", "\"what the case shows\"");
    let workflow = required(&mut read, "workflow", "\"name of the workflow\"");
    let client = read.text("as").map(CaseText::from);
    let input = values::input(&mut read);
    let answers = values::answers(&mut read);
    let listeners = read.list("listeners").into_iter().map(CaseText::from).collect();
    let expected = claims::expectations(&mut read);

    let missing = || CaseText { text: String::new(), place: node.place.clone() };
    let name = name.unwrap_or_else(missing);
    let workflow = workflow.unwrap_or_else(missing);
    let expected = expected.unwrap_or_default();
    WorkflowCase { name, workflow, client, input, answers, listeners, expected }
}

fn required(read: &mut TableReader<'_>, key: &str, example: &str) -> Option<CaseText> {
    read.required_text(key, example).map(CaseText::from)
}

impl From<tree::Located<tree::ExpandedText>> for CaseText {
    fn from(text: tree::Located<tree::ExpandedText>) -> Self {
        Self { text: text.value.value, place: text.place }
    }
}
