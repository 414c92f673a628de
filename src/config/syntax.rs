//! Reports the syntax errors of a TOML text. Omits errors that are only consequences of an earlier
//! mistake.

use std::ops::Range;
use std::sync::Arc;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::source_text::{ConfigSource, SourceRange};
use super::unclosed::{UnclosedPart, unclosed_part};

pub(super) fn problems(
    source: &Arc<ConfigSource>,
    text: &str,
    errors: &[toml::de::Error],
) -> ConfigProblems {
    let mut problems = ConfigProblems::default();
    let mut last_line = None;
    let mut doubled_table = None;
    let unclosed = unclosed_part(text);

    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        // The parser takes what is behind an unclosed part for a part of it.
        if unclosed.is_some_and(|part| span.start > last_position(part)) {
            continue;
        }
        let line = line_around(text, span.start);
        let table = header_of(text, line.start);
        let doubled = error.message().starts_with("duplicate key");
        // Only the first error in a line is reported, and none about the keys of a table that was
        // defined twice.
        let again = last_line.replace(line.start) == Some(line.start);
        if again || doubled && table.is_some() && doubled_table == table {
            continue;
        }
        if doubled && table == Some(line.start) {
            doubled_table = table;
        }
        let place = SourceRange::new(source, span);
        problems.push(problem(doubled, &place, error.message(), source.slice(line)));
    }

    if let Some(problem) = unclosed.and_then(|part| unclosed_problem(source, part)) {
        problems.push(problem);
    }
    problems
}

/// Returns the last position at which errors are reported. Later errors are only consequences of
/// the unclosed `part`.
const fn last_position(part: UnclosedPart) -> usize {
    match part {
        UnclosedPart::List(at) | UnclosedPart::Table(at) | UnclosedPart::Text(at) => at,
        // The parser may report the string, too.
        UnclosedPart::LongText(at) => at.saturating_sub(1),
    }
}

/// Makes the problem for an unclosed list, inline table or string of several lines. Returns `None`
/// for a string of one line, because the parser reports it.
fn unclosed_problem(source: &Arc<ConfigSource>, part: UnclosedPart) -> Option<ConfigProblem> {
    let (at, message, help) = match part {
        UnclosedPart::List(at) => (at, "this list is not closed", "write `]` after its last value"),
        UnclosedPart::Table(at) => {
            (at, "this inline table is not closed", "write `}` after its last value")
        }
        UnclosedPart::LongText(at) => {
            (at, "this string is not closed", "write its three quotes again after its last line")
        }
        UnclosedPart::Text(_) => return None,
    };
    let place = SourceRange::new(source, at..at + 1);
    Some(ConfigProblem::new(ProblemCode::Syntax, &place, message).help(help))
}

fn problem(doubled: bool, place: &SourceRange, message: &str, line: &str) -> ConfigProblem {
    if doubled {
        return ConfigProblem::new(
            ProblemCode::DuplicateKey,
            place,
            "this key or table was written before",
        )
        .help("keep one of the two");
    }

    let message = message.trim().replace('\n', ", ");
    ConfigProblem::new(ProblemCode::Syntax, place, format!("this is not TOML: {message}"))
        .help(help(&message, line))
}

/// Returns the range of the line that contains `at`, without the line break.
fn line_around(text: &str, at: usize) -> Range<usize> {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    let end = text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |i| at + i);
    start..end
}

/// Finds the table header that applies to the position `start`. This is the last header in or
/// before the line that contains `start`. Returns the start of the header's line, or `None` if
/// there is no header.
fn header_of(text: &str, start: usize) -> Option<usize> {
    let line_end = line_around(text, start).end;
    let before = text.get(..line_end)?;
    let mut at = 0;
    let starts = before.split_inclusive('\n').map(|line| {
        at += line.len();
        (at - line.len(), line)
    });
    starts.filter(|(_, line)| line.trim_start().starts_with('[')).last().map(|(at, _)| at)
}

fn help(message: &str, line: &str) -> &'static str {
    let value = line.split_once('=').map(|(_, value)| value.trim());
    let bare =
        |value: &str| value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.');
    match value {
        Some("") => "write a value after the `=`",
        Some(value) if bare(value) => "strings stand in quotes",
        _ if message.contains("array") => "a list is written [\"a\", \"b\"]",
        Some(_) if message.contains("string") => {
            "close the quotes on the same line, or use \"\"\" for several lines"
        }
        None if line.trim_start().starts_with('[') => "a section is written [listeners.name]",
        _ => "a setting is written key = value, one a line",
    }
}
