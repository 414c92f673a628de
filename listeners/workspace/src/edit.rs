//! Applies one proposed edit to the content of a file. Works on bytes only, and reads no file.
//!
//! Payloads write line ends as `\n`. A file whose lines end with `\r\n` keeps these line ends: an
//! edit matches the file as if its line ends were `\n`, and inserted text gets the line ends of the
//! lines around it.

use memchr::memmem;

use crate::failure::{ActionFailure, FailureCode};
use crate::limits;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Returns the text of a payload element as content for a file. Removes a line end that directly
/// follows the opening tag.
pub fn body(text: &str) -> &str {
    text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text)
}

/// Replaces the whole content. The new content has the line ends and the BOM of the old content.
pub fn replace(before: Option<&[u8]>, body: &str) -> Vec<u8> {
    let Some(before) = before else { return body.as_bytes().to_vec() };
    let mut after = Vec::with_capacity(body.len());
    if before.starts_with(BOM) && !body.as_bytes().starts_with(BOM) {
        after.extend_from_slice(BOM);
    }

    after.extend(in_style(body, has_crlf(before)));
    after
}

/// Replaces `old`, which must occur exactly once, with `new`.
pub fn replace_substring(
    path: &str,
    before: &[u8],
    old: &str,
    new: &str,
) -> Result<Vec<u8>, ActionFailure> {
    let view = LineFeedView::of(before);
    let old = old.replace("\r\n", "\n");
    let found = matches(&view.text, old.as_bytes());
    let &[start] = found.as_slice() else {
        return Err(match found.len() {
            0 => no_match(path, &view.text, &old),
            _ => several(path, &view.text, &found),
        });
    };

    let from = view.offset(start);
    let to = view.offset(start + old.len());
    let piece = before.get(from..to).unwrap_or_default();
    // A piece with both line ends does not decide: the lines of the file do.
    let crlf = common_line_end(piece).unwrap_or_else(|| has_crlf(before));
    Ok([
        before.get(..from).unwrap_or_default(),
        &in_style(new, crlf),
        before.get(to..).unwrap_or_default(),
    ]
    .concat())
}

/// Inserts the lines of `body` after line `number`. The number 0 inserts at the top of the file.
pub fn insert(
    path: &str,
    before: &[u8],
    number: &str,
    body: &str,
) -> Result<Vec<u8>, ActionFailure> {
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', before).map(|at| at + 1).collect();
    let last = before.len();
    let is_open = ends.last().copied().unwrap_or(0) < last;
    let lines = ends.len() + usize::from(is_open);
    let number = number.trim().trim_start_matches('+').parse::<usize>().ok();
    let Some(number) = number.filter(|number| *number <= lines) else {
        let message = format!(
            "`{path}` has {lines} lines; line_number is the line to insert after, 0 to {lines}"
        );
        return Err(ActionFailure::new(FailureCode::BadLine, message));
    };

    let crlf = has_crlf(before);
    let end: &[u8] = if crlf { b"\r\n" } else { b"\n" };
    let mut lines = in_style(body, crlf);
    let bom = if before.starts_with(BOM) { BOM.len() } else { 0 };
    let at = match number.checked_sub(1) {
        None => bom,
        Some(index) => ends.get(index).copied().unwrap_or(last),
    };

    let head = before.get(..at).unwrap_or_default();
    let tail = before.get(at..).unwrap_or_default();
    // If the last line has no line end, the inserted last line has none either.
    let joins = at == last && is_open && number > 0;
    if joins {
        let open = lines.strip_suffix(end).unwrap_or(&lines).to_vec();
        return Ok([head, end, &open].concat());
    }

    if !lines.is_empty() && !lines.ends_with(b"\n") {
        lines.extend_from_slice(end);
    }

    Ok([head, &lines, tail].concat())
}

/// The content of a file, in which every `\r\n` was replaced by `\n`.
struct LineFeedView {
    text: Vec<u8>,
    /// Offset in `text` of each `\n` that was `\r\n` in the file.
    dropped: Vec<usize>,
}

impl LineFeedView {
    fn of(bytes: &[u8]) -> Self {
        let mut view = Self { text: Vec::with_capacity(bytes.len()), dropped: Vec::new() };
        let mut from = 0;
        for at in memmem::find_iter(bytes, b"\r\n") {
            view.text.extend_from_slice(bytes.get(from..at).unwrap_or_default());
            view.dropped.push(view.text.len());
            from = at + 1;
        }

        view.text.extend_from_slice(bytes.get(from..).unwrap_or_default());
        view
    }

    /// Converts an offset in `text` to an offset in the file. If a `\n` of `text` was `\r\n` in the
    /// file, its offset becomes the offset of the `\r`.
    fn offset(&self, at: usize) -> usize {
        at + self.dropped.partition_point(|dropped| *dropped < at)
    }
}

/// Returns the offsets at which `old` occurs in `text`, including overlapping occurrences. Stops
/// after [`limits::MATCHES_COUNTED_MAX`] occurrences.
fn matches(text: &[u8], old: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(old);
    let mut found = Vec::new();
    let mut from = 0;

    while let Some(at) = text.get(from..).and_then(|rest| finder.find(rest)) {
        found.push(from + at);
        from += at + 1;
        if old.is_empty() || found.len() >= limits::MATCHES_COUNTED_MAX {
            break;
        }
    }

    found
}

fn no_match(path: &str, text: &[u8], old: &str) -> ActionFailure {
    let trimmed = old.trim();
    let hint = match memmem::find(text, trimmed.as_bytes()).filter(|_| !trimmed.is_empty()) {
        Some(at) => {
            let line = line_of(text, at);
            format!("; but for white space around it, it is in line {line}")
        }
        None => "; read the file again and copy the text as it is there".to_owned(),
    };

    ActionFailure::new(FailureCode::NoMatch, format!("old_str is not in `{path}`{hint}"))
}

fn several(path: &str, text: &[u8], found: &[usize]) -> ActionFailure {
    let lines = found.iter().take(limits::LINES_NAMED_MAX).map(|at| line_of(text, *at).to_string());
    let lines = lines.collect::<Vec<_>>().join(", ");
    let more = if found.len() > limits::LINES_NAMED_MAX { ", …" } else { "" };
    let at_least = if found.len() == limits::MATCHES_COUNTED_MAX { "at least " } else { "" };
    let count = found.len();
    let message = format!(
        "old_str is in `{path}` {at_least}{count} times, in lines {lines}{more}; take in more of what is around the one you mean"
    );
    ActionFailure::new(FailureCode::SeveralMatches, message)
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', text.get(..at).unwrap_or_default()).count()
}

/// Whether all lines end with `\r\n`. Returns `None` if the lines have different ends, or if there
/// is no line end.
fn common_line_end(bytes: &[u8]) -> Option<bool> {
    let all = memchr::memchr_iter(b'\n', bytes).count();
    match memmem::find_iter(bytes, b"\r\n").count() {
        _ if all == 0 => None,
        0 => Some(false),
        crlf => (crlf == all).then_some(true),
    }
}

/// Whether most lines end with `\r\n`.
fn has_crlf(bytes: &[u8]) -> bool {
    let all = memchr::memchr_iter(b'\n', bytes).count();
    all > 0 && memmem::find_iter(bytes, b"\r\n").count() * 2 > all
}

fn in_style(text: &str, crlf: bool) -> Vec<u8> {
    if crlf {
        text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
    } else {
        text.as_bytes().to_vec()
    }
}
