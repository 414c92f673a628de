//! Input, answers and faults that a case supplies to a run.

use crate::word_enum::word_enum;

use super::super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::super::keys::{KeyKind, KnownSection, did_you_mean_value};
use super::super::read::TableReader;
use super::super::source_text::SourceRange;
use super::super::tree::{TomlNode, TomlValue};
use super::CaseText;

const FAULT: KnownSection = KnownSection {
    name: "fault",
    member: None,
    keys: &[("fail", KeyKind::Text), ("reason", KeyKind::Text)],
};

/// Input that a case supplies to its run.
#[derive(Debug, Clone)]
pub enum CaseInput {
    /// Values of the inputs, as pairs of an input's name and a value. A list has one pair for each
    /// of its values. `names` contains the name of each input once, with its location in the file.
    Values { values: Vec<(String, String)>, names: Vec<CaseText>, place: SourceRange },
    /// The complete payload that is the input.
    Payload(CaseText),
}

/// The answers and faults that a case supplies for all calls with one path, in the order of their
/// use. For an agent, an entry is one answer of the agent in its thread. For any other listener, an
/// entry is the answer to one call.
#[derive(Debug, Clone)]
pub struct CaseAnswer {
    pub path: CaseText,
    pub turns: Vec<CaseTurn>,
}

#[derive(Debug, Clone)]
pub enum CaseTurn {
    Answer(CaseText),
    Fault { fault: CaseFault, reason: Option<String>, place: SourceRange },
}

impl CaseTurn {
    pub fn place(&self) -> &SourceRange {
        match self {
            Self::Answer(text) => &text.place,
            Self::Fault { place, .. } => place,
        }
    }
}

word_enum! {
    /// A fault that a case causes in place of an answer, so that the goal fails. Each variant has
    /// the name of the goal's failure code.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CaseFault {
        /// The deadline passes without an answer. The clock of the case moves to the deadline at
        /// once.
        Timeout = "timeout",
        /// Every attempt of the call ends without an answer.
        ListenerFailed = "listener-failed",
        /// The listener or agent cannot be reached.
        Undeliverable = "undeliverable",
        /// The listener gets the call, but its answer is lost.
        UnknownOutcome = "unknown-outcome",
        BudgetSpent = "budget-spent",
        /// A person refuses the approval, or declines to answer.
        Denied = "denied",
        /// An operator cancels the thread.
        Cancelled = "cancelled",
    }
}

pub(super) fn input(read: &mut TableReader<'_>) -> CaseInput {
    let place = read.place_of("input");
    let Some(node) = read.node("input") else {
        return no_values(place);
    };

    match &node.value {
        TomlValue::Text(_) => match read.text("input").map(CaseText::from) {
            Some(text) => CaseInput::Payload(text),
            None => no_values(place),
        },
        TomlValue::Table(table) => {
            let mut values = Vec::new();
            let mut names = Vec::new();
            for entry in &table.entries {
                let name = &entry.key.value;
                names.push(CaseText { text: name.clone(), place: entry.key.place.clone() });
                for item in entry.node.items() {
                    match plain_value(item) {
                        Some(value) => values.push((name.clone(), value)),
                        None => read.wrong_kind(
                            &format!("input.{name}"),
                            item,
                            "a text, a number, true or false, or a list of these",
                        ),
                    }
                }
            }
            CaseInput::Values { values, names, place }
        }
        _ => {
            read.wrong_kind("input", node, "a table, or the payload as XML");
            no_values(place)
        }
    }
}

fn no_values(place: SourceRange) -> CaseInput {
    CaseInput::Values { values: Vec::new(), names: Vec::new(), place }
}

fn plain_value(node: &TomlNode) -> Option<String> {
    match &node.value {
        TomlValue::Text(text) => Some(text.value.clone()),
        TomlValue::Integer(number) => number.map(|number| number.to_string()),
        TomlValue::Number(number) => Some(number.to_string()),
        TomlValue::Flag(flag) => Some(flag.to_string()),
        TomlValue::List(_) | TomlValue::Table(_) | TomlValue::Other => None,
    }
}

pub(super) fn answers(read: &mut TableReader<'_>) -> Vec<CaseAnswer> {
    let Some(node) = read.node("answers") else { return Vec::new() };
    let TomlValue::Table(table) = &node.value else {
        read.wrong_kind("answers", node, "a table with an answer for each path");
        return Vec::new();
    };

    let mut answers = Vec::new();
    for entry in &table.entries {
        let path = CaseText { text: entry.key.value.clone(), place: entry.key.place.clone() };
        let items = entry.node.items();
        let turns = items.iter().filter_map(|item| turn(&path.text, item, read));
        let turns: Vec<_> = turns.collect();
        if items.is_empty() {
            read.empty(&format!("answers.{}", path.text), &entry.node.place);
        }
        answers.push(CaseAnswer { path, turns });
    }

    answers
}

fn turn(path: &str, node: &TomlNode, read: &mut TableReader<'_>) -> Option<CaseTurn> {
    match &node.value {
        TomlValue::Text(text) => {
            let text = text.value.clone();
            Some(CaseTurn::Answer(CaseText { text, place: node.place.clone() }))
        }
        TomlValue::Table(table) => {
            let what = format!("the answer at `{path}`");
            let place = node.place.clone();
            let mut fault = TableReader::new(&FAULT, table, what, place.clone(), read.problems);
            let help = "add fail = \"timeout\"; a path with a dot or a slash stands in quotes";
            if !fault.required_with("fail", help) {
                return None;
            }

            let kind = fault.text("fail").map(CaseText::from);
            let reason = fault.text("reason").map(|reason| reason.value.value);
            let fault = known_fault(&kind?, read.problems)?;
            Some(CaseTurn::Fault { fault, reason, place })
        }
        _ => {
            read.wrong_kind(
                &format!("answers.{path}"),
                node,
                "a text, { fail = \"timeout\" }, or a list of these",
            );
            None
        }
    }
}

fn known_fault(text: &CaseText, problems: &mut ConfigProblems) -> Option<CaseFault> {
    let fault = CaseFault::parse(&text.text);
    if fault.is_none() {
        let words = CaseFault::ALL.map(CaseFault::as_str);
        let help = did_you_mean_value(&text.text, words, || format!("one of {}", words.join(", ")));
        let message = format!("there is no fault `{}`", text.text);
        let problem = ConfigProblem::new(ProblemCode::UnknownChoice, &text.place, message);
        problems.push(problem.help(help));
    }

    fault
}
