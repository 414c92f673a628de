//! Finds the lines that match a regular expression. The matches are ordered by path, then by line.

use std::path::Path;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Bytes;
use grep_searcher::{Searcher, SearcherBuilder};

use crate::limits;
use crate::payload::{LineMatch, Search, SearchResults};
use crate::text;
use crate::tool_error::{ToolError, ToolErrorCode};
use crate::tree::{self, SearchTree};

/// Searches the whole tree, or the part of the tree at `path`. If the query is not a valid regular
/// expression, the search looks for the query as plain text and adds a note to the results.
pub fn search(tree: &SearchTree, request: &Search) -> Result<SearchResults, ToolError> {
    let mut notes = Vec::new();
    let matcher = matcher(&request.query, &mut notes)?;
    let within = tree.resolve(request.path.as_deref().unwrap_or("."))?;
    // A path into the tests includes the tests.
    let allow_tests = request.allow_tests.unwrap_or(false) || tree::is_within_tests(&within);

    let mut found = FoundMatches::default();
    let mut searcher = SearcherBuilder::new().line_number(true).build();

    for file in tree.files(&within) {
        if !allow_tests && tree::is_test(&file) {
            found.tests += 1;
            continue;
        }
        found.file(tree, &file, &matcher, &mut searcher);
        if found.total >= limits::MATCHES_COUNTED_MAX {
            notes
                .push(format!("counting stopped at {}; narrow the query or the path", found.total));
            break;
        }
    }

    notes.extend(found.notes());
    Ok(SearchResults {
        total: found.total,
        truncated: found.total > found.matches.len(),
        query: request.query.clone(),
        notes,
        matches: found.matches,
    })
}

fn matcher(query: &str, notes: &mut Vec<String>) -> Result<RegexMatcher, ToolError> {
    if query.is_empty() || query.len() > limits::QUERY_BYTES_MAX {
        let message = format!("a query has 1 to {} bytes", limits::QUERY_BYTES_MAX);
        return Err(ToolError::new(ToolErrorCode::BadQuery, message));
    }

    if query.contains(['\n', '\r']) {
        let message = "a query is matched against one line at a time and holds no line break";
        return Err(ToolError::new(ToolErrorCode::BadQuery, message));
    }

    let build = |literal: bool| {
        let mut builder = RegexMatcherBuilder::new();
        builder.case_smart(true).fixed_strings(literal).line_terminator(Some(b'\n')).build(query)
    };

    build(false).or_else(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").trim();
        notes.push(format!("searched literally, as this is not a regular expression: {reason}"));
        build(true).map_err(|error| ToolError::new(ToolErrorCode::BadQuery, error.to_string()))
    })
}

/// The matches that a search has found so far.
#[derive(Default)]
struct FoundMatches {
    matches: Vec<LineMatch>,
    total: usize,
    /// Number of files that were left out because they are tests.
    tests: usize,
    large: usize,
    unreadable: usize,
}

impl FoundMatches {
    fn file(&mut self, tree: &SearchTree, file: &Path, by: &RegexMatcher, searcher: &mut Searcher) {
        let path = tree.root().join(file);
        if path.metadata().is_ok_and(|meta| meta.len() > limits::FILE_BYTES_MAX) {
            self.large += 1;
            return;
        }

        let Ok(bytes) = std::fs::read(&path) else {
            self.unreadable += 1;
            return;
        };

        if text::is_binary(&bytes) {
            return;
        }

        let name = tree::shown(file);
        let sink = Bytes(|line, bytes| {
            self.total += 1;
            if self.matches.len() < limits::MATCHES_MAX {
                self.matches.push(shown_match(&name, line, bytes, by));
            }
            Ok(self.total < limits::MATCHES_COUNTED_MAX)
        });
        let outcome = searcher.search_slice(by, &bytes, sink);
        self.unreadable += usize::from(outcome.is_err());
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, text: &str| {
            if count > 0 {
                let files =
                    if count == 1 { "1 file was".into() } else { format!("{count} files were") };
                notes.push(format!("{files} not searched: {text}"));
            }
        };

        note(self.tests, "tests; set allow_tests to true to include them");
        note(self.large, "larger than 4 MiB");
        note(self.unreadable, "could not be read");
        notes
    }
}

fn shown_match(file: &str, line: u64, bytes: &[u8], by: &RegexMatcher) -> LineMatch {
    let start = by.find(bytes).ok().flatten().map_or(0, |found| found.start());
    let before = String::from_utf8_lossy(bytes.get(..start).unwrap_or_default());
    let column = before.chars().count() + 1;
    let whole = String::from_utf8_lossy(bytes);
    let whole = whole.trim_end_matches(['\n', '\r']);
    let text = text::legible(&cut(whole, before.len()));
    LineMatch { file: file.to_owned(), line, column, text }
}

/// Shortens a long line and keeps the text around the match. Each cut is replaced by a note with
/// the number of removed bytes.
fn cut(line: &str, start: usize) -> String {
    if line.len() <= limits::LINE_BYTES_MAX {
        return line.to_owned();
    }

    let fits = start < limits::LINE_BYTES_MAX - limits::LINE_LEAD_BYTES;
    let from = if fits { 0 } else { start.saturating_sub(limits::LINE_LEAD_BYTES) };
    let rest = text::tail(line, from);
    let shown = text::head(rest, limits::LINE_BYTES_MAX);
    let gone = |count: usize| match count {
        0 => String::new(),
        count => format!("[… {count} bytes …]"),
    };

    format!("{}{shown}{}", gone(line.len() - rest.len()), gone(rest.len() - shown.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_its_match_and_says_so() {
        let line = format!("{}needle{}", "a".repeat(1000), "b".repeat(1000));
        let shown = cut(&line, 1000);
        assert!(shown.starts_with("[… 920 bytes …]aaa"), "{shown}");
        assert!(shown.contains("needle"));
        assert!(shown.ends_with("b[… 686 bytes …]"), "{shown}");
        assert_eq!(cut("short", 0), "short");
    }
}
