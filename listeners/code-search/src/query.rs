//! Finds code that matches a pattern. A pattern is code with placeholders.
//!
//! Patterns and files are compared token by token, so white space and line breaks never matter.
//! There is no grammar: a token is a word, a number, a string or a single other character.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use crate::limits;
use crate::payload::{Query, QueryMatch, QueryResults};
use crate::search;
use crate::skipped::SkippedFiles;
use crate::text;
use crate::tool_error::{ToolError, ToolErrorCode};
use crate::tree::{self, SearchTree};

/// Finds every piece of code that matches the pattern. Searches the path of the request, or the
/// whole tree if the request has no path. Stops after [`limits::SEARCH_TIME_MAX`], with a note.
pub fn query(tree: &SearchTree, request: &Query) -> Result<QueryResults, ToolError> {
    query_until(tree, request, Instant::now() + limits::SEARCH_TIME_MAX)
}

fn query_until(
    tree: &SearchTree,
    request: &Query,
    deadline: Instant,
) -> Result<QueryResults, ToolError> {
    let pattern = CodePattern::read(&request.pattern)?;
    let within = tree.resolve(request.path.as_deref().unwrap_or("."))?;
    // A path into the tests includes the tests.
    let allow_tests = request.allow_tests.unwrap_or(false) || tree::is_within_tests(&within);

    let mut results = QueryResults {
        total: 0,
        truncated: false,
        pattern: request.pattern.clone(),
        notes: Vec::new(),
        matches: Vec::new(),
    };

    let mut skipped = SkippedFiles::default();
    let mut unfinished = 0;

    for file in tree.files(&within) {
        if Instant::now() >= deadline {
            break;
        }
        let Some(file) = file else {
            skipped.directories += 1;
            continue;
        };
        if !allow_tests && tree::is_test(&file) {
            skipped.tests += 1;
            continue;
        }
        if let Some(bytes) = skipped.read(tree, &file) {
            let source = String::from_utf8_lossy(&bytes);
            unfinished += search_file(&file, &source, &pattern, deadline, &mut results);
        }
    }

    let is_stopped = Instant::now() >= deadline;
    results.notes.extend(skipped.notes());
    results.notes.extend((unfinished > 0).then(|| unfinished_note(unfinished)));
    results.notes.extend(is_stopped.then(search::deadline_note));
    results.truncated = is_stopped || unfinished > 0 || results.total > results.matches.len();
    Ok(results)
}

fn unfinished_note(positions: usize) -> String {
    let places = if positions == 1 { "position" } else { "positions" };
    format!(
        "at {positions} {places}, the pattern was not compared to its end, because `$$$` would \
         stand for too much code; there may be a match"
    )
}

/// Adds the matches in one file to `results`. Returns the number of positions at which the pattern
/// was not compared to its end.
fn search_file(
    file: &Path,
    source: &str,
    pattern: &CodePattern,
    deadline: Instant,
    results: &mut QueryResults,
) -> usize {
    let found = pattern.matches_in(source, deadline);

    for range in &found.ranges {
        results.total += 1;
        if results.matches.len() < limits::MATCHES_MAX {
            results.matches.push(shown_match(file, source, range));
        }
    }

    found.unfinished
}

fn shown_match(file: &Path, source: &str, found: &Range<usize>) -> QueryMatch {
    let line_of = |offset: usize| {
        let before = source.as_bytes().get(..offset).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    };

    let whole = source.get(found.clone()).unwrap_or_default();
    let shown = text::head(whole, limits::LINE_BYTES_MAX);
    let gone = whole.len() - shown.len();
    let cut = if gone > 0 { format!("[… {gone} bytes …]") } else { String::new() };
    QueryMatch {
        file: tree::shown(file),
        line: line_of(found.start),
        end_line: line_of(found.end.saturating_sub(1)),
        text: text::legible(&format!("{shown}{cut}")),
    }
}

/// One part of a pattern.
#[derive(Debug, PartialEq)]
enum PatternPart {
    Token(String),
    /// The placeholder `$NAME`: one token, or everything inside one pair of brackets.
    One,
    /// The placeholder `$$$`: any tokens with balanced brackets, as few as possible.
    Any,
}

struct CodePattern(Vec<PatternPart>);

/// The matches of a pattern in one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct PatternMatches {
    /// Byte range of each match, in the order of the text. No two ranges overlap.
    ranges: Vec<Range<usize>>,
    /// Number of positions at which the pattern was not compared to its end, because the comparison
    /// takes more than [`limits::QUERY_STEPS_MAX`] steps. There may be a match at each of these
    /// positions.
    unfinished: usize,
}

impl CodePattern {
    fn read(text: &str) -> Result<Self, ToolError> {
        let wrong = |message: String| Err(ToolError::new(ToolErrorCode::BadQuery, message));
        if text.len() > limits::QUERY_BYTES_MAX {
            return wrong(format!("a pattern has at most {} bytes", limits::QUERY_BYTES_MAX));
        }

        let tokens = tokens(text);
        let token = |at: usize| tokens.get(at).and_then(|range| text.get(range.clone()));
        let mut parts = Vec::new();
        let mut at = 0;

        while let Some(here) = token(at) {
            if here != "$" {
                parts.push(PatternPart::Token(here.to_owned()));
                at += 1;
            } else if token(at + 1) == Some("$") && token(at + 2) == Some("$") {
                parts.push(PatternPart::Any);
                at += 3;
            } else if token(at + 1).is_some_and(is_hole_name) {
                parts.push(PatternPart::One);
                at += 2;
            } else {
                parts.push(PatternPart::Token("$".to_owned()));
                at += 1;
            }
        }

        if !parts.iter().any(|part| matches!(part, PatternPart::Token(_))) {
            return wrong("a pattern holds some code, not holes alone".to_owned());
        }

        if matches!(parts.first(), Some(PatternPart::Any))
            || matches!(parts.last(), Some(PatternPart::Any))
        {
            return wrong("a pattern neither begins nor ends with $$$".to_owned());
        }

        Ok(Self(parts))
    }

    /// Finds the matches in a text. After `deadline`, the rest of the text is not compared.
    fn matches_in(&self, source: &str, deadline: Instant) -> PatternMatches {
        let tokens = tokens(source);
        let texts: Vec<&str> =
            tokens.iter().map(|range| source.get(range.clone()).unwrap_or_default()).collect();
        let ends = ends(&texts);
        let mut found = PatternMatches::default();
        let mut at = 0;
        let mut tried = 0_usize;

        while at < texts.len() {
            if tried.is_multiple_of(limits::POSITIONS_PER_LOOK) && Instant::now() >= deadline {
                break;
            }
            tried += 1;
            let mut steps = limits::QUERY_STEPS_MAX;
            match fit(&self.0, &texts, &ends, at, &mut steps) {
                Some(end) => {
                    let last = tokens.get(end - 1).map_or(0, |range| range.end);
                    found.ranges.push(tokens.get(at).map_or(0, |range| range.start)..last);
                    at = end;
                }
                None => {
                    found.unfinished += usize::from(steps == 0);
                    at += 1;
                }
            }
        }

        found
    }
}

fn is_hole_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_uppercase())
        && token.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Matches `parts` against the tokens `texts` from the index `at` on. Returns the index of the
/// token after the match, or `None` if the tokens do not match. `ends` are the [`ends`] of the
/// tokens. `steps` is the number of comparison steps that are left; if none is left, also returns
/// `None`.
fn fit(
    parts: &[PatternPart],
    texts: &[&str],
    ends: &[Option<usize>],
    at: usize,
    steps: &mut usize,
) -> Option<usize> {
    let past_one = |at: usize| ends.get(at).copied().flatten();
    *steps = steps.checked_sub(1)?;
    let Some((part, rest)) = parts.split_first() else { return Some(at) };
    match part {
        PatternPart::Token(token) => {
            let here = texts.get(at)?;
            if here == token { fit(rest, texts, ends, at + 1, steps) } else { None }
        }
        PatternPart::One => fit(rest, texts, ends, past_one(at)?, steps),
        PatternPart::Any => {
            let mut end = at;
            loop {
                if let Some(found) = fit(rest, texts, ends, end, steps) {
                    return Some(found);
                }
                end = past_one(end)?;
            }
        }
    }
}

/// Returns for each token the index of the token that follows. For an opening bracket, this is the
/// index after its closing bracket. The result is `None` for a closing bracket, and for an opening
/// bracket that is never closed.
fn ends(texts: &[&str]) -> Vec<Option<usize>> {
    let mut ends: Vec<_> = (1..=texts.len()).map(Some).collect();
    let mut open = Vec::new();
    let mut set = |index: usize, end| {
        if let Some(place) = ends.get_mut(index) {
            *place = end;
        }
    };

    for (index, token) in texts.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => {
                set(index, None);
                open.push(index);
            }
            ")" | "]" | "}" => {
                set(index, None);
                if let Some(opening) = open.pop() {
                    set(opening, Some(index + 1));
                }
            }
            _ => {}
        }
    }

    ends
}

/// Splits text into tokens: words, strings on one line, and single other characters.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    // No quotation mark before this offset begins a string: the search from an earlier one in the
    // same line has found none that closes it.
    let mut unclosed_until = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((start, c)) = rest.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut end = start + c.len_utf8();
        if c.is_alphanumeric() || c == '_' {
            while let Some((at, next)) =
                rest.next_if(|(_, next)| next.is_alphanumeric() || *next == '_')
            {
                end = at + next.len_utf8();
            }
        } else if c == '"' && start >= unclosed_until {
            match string_end(text, end) {
                Ok(close) => {
                    end = close;
                    while rest.next_if(|(at, _)| *at < end).is_some() {}
                }
                Err(line_end) => unclosed_until = line_end,
            }
        }
        out.push(start..end);
    }

    out
}

/// Finds the quotation mark that closes a string, and returns the offset after it. `from` is the
/// offset of the string's content. Fails with the offset of the line's end if the string does not
/// end on the same line.
fn string_end(text: &str, from: usize) -> Result<usize, usize> {
    let mut escaped = false;
    for (at, c) in text.get(from..).unwrap_or_default().char_indices() {
        match c {
            '\n' => return Err(from + at),
            '"' if !escaped => return Ok(from + at + 1),
            _ => escaped = c == '\\' && !escaped,
        }
    }

    Err(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_minute() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    #[test]
    fn the_deadline_stops_a_query_within_a_file_and_between_files() {
        let pattern = CodePattern::read("a $$$ z").unwrap();
        assert_eq!(pattern.matches_in("a b z", Instant::now()), PatternMatches::default());

        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), "a b z").unwrap();
        let tree = SearchTree::open(place.path()).unwrap();
        let request = Query { pattern: "a $$$ z".to_owned(), ..Query::default() };
        let results = query_until(&tree, &request, Instant::now()).unwrap();
        assert!(results.truncated);
        assert_eq!(results.notes, [search::deadline_note()]);
        assert_eq!(query(&tree, &request).unwrap().total, 1);
    }

    fn found(pattern: &str, source: &str) -> Vec<String> {
        let pattern = CodePattern::read(pattern).unwrap();
        let found = pattern.matches_in(source, in_a_minute());
        found.ranges.into_iter().map(|range| source[range].to_owned()).collect()
    }

    #[test]
    fn a_pattern_that_is_not_compared_to_its_end_is_noted() {
        let place = tempfile::tempdir().unwrap();
        let list = |numbers: usize| format!("x = [ {}]\n", "1, ".repeat(numbers));
        std::fs::write(place.path().join("a.txt"), list(2_000)).unwrap();
        let tree = SearchTree::open(place.path()).unwrap();
        let request = Query { pattern: "x = [ $$$ ]".to_owned(), ..Query::default() };
        let results = query(&tree, &request).unwrap();
        assert_eq!((results.total, results.truncated, results.notes.len()), (1, false, 0));

        std::fs::write(place.path().join("a.txt"), list(15_000)).unwrap();
        let results = query(&tree, &request).unwrap();
        assert_eq!((results.total, results.truncated), (0, true));
        assert!(results.notes[0].contains("at 1 position,"), "{:?}", results.notes);
    }

    #[test]
    fn files_that_are_not_searched_are_counted_in_one_note() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a.bin", "b.bin"] {
            let file = std::fs::File::create(place.path().join(name)).unwrap();
            file.set_len(limits::FILE_BYTES_MAX + 1).unwrap();
        }
        std::fs::write(place.path().join("a_test.py"), "needle").unwrap();
        let tree = SearchTree::open(place.path()).unwrap();
        let request = Query { pattern: "needle".to_owned(), ..Query::default() };
        let results = query(&tree, &request).unwrap();
        assert_eq!(
            results.notes,
            [
                "1 file was not searched: tests; set allow_tests to true to include them",
                "2 files were not searched: larger than 4 MiB"
            ]
        );
    }

    // Requirement T3.
    #[test]
    fn holes_stand_for_a_token_a_pair_of_brackets_or_anything_balanced() {
        let source = "let a = take(b,\n  c);\nlet d = take((e, f), g);\ntake(\"x, y\", z) // )";
        assert_eq!(found("take($A, $B)", source).len(), 3);
        assert_eq!(
            found("let $X = take($$$);", source),
            ["let a = take(b,\n  c);", "let d = take((e, f), g);"]
        );
        assert_eq!(found("take(b, $$$ d)", source), Vec::<String>::new());
        assert_eq!(
            found("fn $F($$$) -> Self {", "fn now () -> Self { x }"),
            ["fn now () -> Self {"]
        );
        assert_eq!(found("a + 1", "a+1; aa + 1; a + 12"), ["a+1"]);
    }

    #[test]
    fn a_placeholder_is_one_whole_pair_of_brackets() {
        assert_eq!(found("f $A", "f ) f (] f ((x)"), ["f (]"]);
        assert_eq!(found("f ( $A", "f ((x) f ("), ["f ((x)"]);
    }

    /// Searches a file with 400,000 opening brackets. The search must end within 30 s. It would
    /// take minutes if it searched for the closing bracket of each opening bracket separately.
    #[test]
    fn a_file_of_brackets_that_are_never_closed_is_searched_once() {
        let begun = std::time::Instant::now();
        assert_eq!(found("( $A x", &"( ".repeat(400_000)), Vec::<String>::new());
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    }

    /// A line of 4 MiB with an escaped quotation mark in every second byte. The search would not end
    /// if each of them made it search the line for the end of a string.
    #[test]
    fn a_line_of_quotation_marks_that_close_no_string_is_searched_once() {
        let line = "\\\"".repeat(2_000_000);
        assert_eq!(found("f ( $A )", &format!("{line}\nf(\"x\")")), ["f(\"x\")"]);
    }

    #[test]
    fn a_pattern_that_says_nothing_is_refused() {
        for pattern in ["", " ", "$A", "$$$", "$A $$$", "$$$ x", "x $$$"] {
            assert!(CodePattern::read(pattern).is_err(), "{pattern}");
        }
    }
}
