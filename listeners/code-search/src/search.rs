//! Finds the lines that match a regular expression. The matches are ordered by path, then by line.

use std::path::Path;
use std::time::Instant;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Bytes;
use grep_searcher::{Searcher, SearcherBuilder};

use crate::limits;
use crate::payload::{LineMatch, Search, SearchResults};
use crate::skipped::SkippedFiles;
use crate::text;
use crate::tool_error::{ToolError, ToolErrorCode};
use crate::tree::{self, SearchTree};

/// Searches the whole tree, or the part of the tree at `path`. If the query is not a valid regular
/// expression, the search looks for the query as plain text and adds a note to the results. Stops
/// after [`limits::SEARCH_TIME_MAX`], with a note.
pub fn search(tree: &SearchTree, request: &Search) -> Result<SearchResults, ToolError> {
    search_until(tree, request, Instant::now() + limits::SEARCH_TIME_MAX)
}

fn search_until(
    tree: &SearchTree,
    request: &Search,
    deadline: Instant,
) -> Result<SearchResults, ToolError> {
    let mut notes = Vec::new();
    let matcher = matcher(&request.query, &mut notes)?;
    let within = tree.resolve(request.path.as_deref().unwrap_or("."))?;
    // A path into the tests includes the tests.
    let allow_tests = request.allow_tests.unwrap_or(false) || tree::is_within_tests(&within);

    let mut found = FoundMatches::default();
    let mut searcher = SearcherBuilder::new().line_number(true).build();

    for file in tree.files(&within) {
        if Instant::now() >= deadline {
            found.is_stopped = true;
            break;
        }
        let Some(file) = file else {
            found.skipped.directories += 1;
            continue;
        };
        if !allow_tests && tree::is_test(&file) {
            found.skipped.tests += 1;
            continue;
        }
        found.file(tree, &file, &matcher, &mut searcher, deadline);
        if found.total >= limits::MATCHES_COUNTED_MAX {
            notes
                .push(format!("counting stopped at {}; narrow the query or the path", found.total));
            break;
        }
    }

    notes.extend(found.skipped.notes());
    notes.extend(found.is_stopped.then(deadline_note));
    Ok(SearchResults {
        total: found.total,
        truncated: found.is_stopped || found.total > found.matches.len(),
        query: request.query.clone(),
        notes,
        matches: found.matches,
    })
}

/// Part of the error message of the crate `grep-regex` for an expression that is too large. The
/// error type of the crate does not distinguish this reason from others.
const SIZE_LIMIT_ERROR: &str = "exceeds size limit";

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
        builder.size_limit(limits::REGEX_BYTES_MAX).dfa_size_limit(limits::REGEX_CACHE_BYTES);
        builder.case_smart(true).fixed_strings(literal).line_terminator(Some(b'\n')).build(query)
    };

    build(false).or_else(|error| {
        let reason = error.to_string();
        if reason.contains(SIZE_LIMIT_ERROR) {
            let message = "the regular expression is too large; write it with fewer repetitions, \
                           or with [a-z0-9_] in place of \\w";
            return Err(ToolError::new(ToolErrorCode::BadQuery, message));
        }
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").trim();
        notes.push(format!("searched literally, as this is not a regular expression: {reason}"));
        build(true).map_err(|error| ToolError::new(ToolErrorCode::BadQuery, error.to_string()))
    })
}

/// Returns the note on a search or query that its deadline has stopped.
pub(crate) fn deadline_note() -> String {
    let seconds = limits::SEARCH_TIME_MAX.as_secs();
    format!("stopped after {seconds} s, before all files were searched; narrow the path")
}

/// The matches that a search has found so far.
#[derive(Default)]
struct FoundMatches {
    matches: Vec<LineMatch>,
    total: usize,
    skipped: SkippedFiles,
    /// Whether the deadline has stopped the search.
    is_stopped: bool,
}

impl FoundMatches {
    fn file(
        &mut self,
        tree: &SearchTree,
        file: &Path,
        by: &RegexMatcher,
        searcher: &mut Searcher,
        deadline: Instant,
    ) {
        let Some(bytes) = self.skipped.read(tree, file) else { return };
        let name = tree::shown(file);
        let mut lines_before = 0;
        // One call of the searcher ends only at a match, which may take minutes in a whole file.
        for piece in FilePieces(&bytes) {
            if Instant::now() >= deadline {
                self.is_stopped = true;
                return;
            }

            let sink = Bytes(|line, bytes| {
                self.total += 1;
                if self.matches.len() < limits::MATCHES_MAX {
                    self.matches.push(shown_match(&name, lines_before + line, bytes, by));
                }
                Ok(self.total < limits::MATCHES_COUNTED_MAX)
            });
            if searcher.search_slice(by, piece, sink).is_err() {
                self.skipped.unreadable += 1;
                return;
            }
            if self.total >= limits::MATCHES_COUNTED_MAX {
                return;
            }
            lines_before += piece.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
        }
    }
}

/// Iterates over the pieces of a file. A piece ends with a line, and has at least
/// [`limits::PIECE_BYTES`], except the last piece.
struct FilePieces<'a>(&'a [u8]);

impl<'a> Iterator for FilePieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }

        let rest = self.0.get(limits::PIECE_BYTES..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(self.0.len(), |end| limits::PIECE_BYTES + end + 1);
        let (piece, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(piece)
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

    fn search_for(query: &str) -> Search {
        Search { query: query.to_owned(), ..Search::default() }
    }

    #[test]
    fn the_deadline_stops_a_search_within_a_file_and_between_files() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), "needle\n".repeat(20_000)).unwrap();
        let tree = SearchTree::open(place.path()).unwrap();
        let matcher = matcher("needle", &mut Vec::new()).unwrap();
        let mut searcher = SearcherBuilder::new().line_number(true).build();
        let mut found = FoundMatches::default();
        found.file(&tree, Path::new("a.txt"), &matcher, &mut searcher, Instant::now());
        assert!(found.is_stopped);
        assert_eq!(found.total, 0);

        let results = search_until(&tree, &search_for("needle"), Instant::now()).unwrap();
        assert!(results.truncated);
        assert_eq!(results.notes, [deadline_note()]);
    }

    #[test]
    fn a_regular_expression_that_is_too_large_is_refused_and_not_searched_as_text() {
        let mut notes = Vec::new();
        let error = matcher(r"(\w{1,100}){1,100}", &mut notes).unwrap_err();
        assert_eq!(error.code, ToolErrorCode::BadQuery);
        assert!(error.message.contains("too large"), "{}", error.message);
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn lines_are_counted_across_the_pieces_of_a_file() {
        let text = format!("{}needle\nlast", "a line without a match\n".repeat(5_000));
        let pieces: Vec<_> = FilePieces(text.as_bytes()).collect();
        assert!(pieces.len() > 1, "{}", pieces.len());
        assert_eq!(pieces.concat(), text.as_bytes());

        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), &text).unwrap();
        let tree = SearchTree::open(place.path()).unwrap();
        let results = search(&tree, &search_for("needle")).unwrap();
        assert_eq!(results.matches.first().map(|found| found.line), Some(5_001));
    }

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
