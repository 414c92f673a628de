//! Extracts a file, a range of lines, the surroundings of one line, or the definition of a symbol.

use crate::limits;
use crate::payload::{Extract, ExtractResult};
use crate::symbol::{self, DefinitionLines};
use crate::text;
use crate::tool_error::{ToolError, ToolErrorCode};
use crate::tree::{self, SearchTree, UnreadFile};

/// The part of a file to which a `file_path` points.
#[derive(Debug, PartialEq, Eq)]
enum ExtractTarget {
    Whole,
    Symbol(String),
    /// The line with this number, counted from 1, and its surroundings.
    Around(usize),
    /// The lines from the first number to the last number, both counted from 1.
    Range(usize, usize),
}

/// Extracts a part of a file. If the request has a `line` or an `end_line`, these values select the
/// lines. A suffix of the path, such as `:line` or `#symbol`, is then ignored.
pub fn extract(tree: &SearchTree, request: &Extract) -> Result<ExtractResult, ToolError> {
    let (path, mut target) = split(tree, &request.file_path)?;
    match (request.line, request.end_line) {
        (Some(line), Some(end)) => target = ExtractTarget::Range(line, end),
        (Some(line), None) => target = ExtractTarget::Around(line),
        (None, Some(end)) => target = ExtractTarget::Range(1, end),
        (None, None) => {}
    }

    let content = read(tree, path)?;
    let lines: Vec<&str> = content.lines().collect();
    let file = tree::shown(&tree.resolve(path)?);
    let mut notes = Vec::new();
    let (first, last, symbol) = match target {
        ExtractTarget::Whole => (1, lines.len(), None),
        ExtractTarget::Around(line) => {
            check(line, line, &lines, &file)?;
            let first = line.saturating_sub(limits::SURROUNDING_LINES).max(1);
            (first, (line + limits::SURROUNDING_LINES).min(lines.len()), None)
        }
        ExtractTarget::Range(first, last) => {
            check(first, last, &lines, &file)?;
            (first, last.min(lines.len()), None)
        }
        ExtractTarget::Symbol(name) => {
            let found = find(&file, &lines, &name, &mut notes)?;
            (found.first + 1, found.last + 1, Some(name))
        }
    };

    let wanted = lines.get(first.saturating_sub(1)..last).unwrap_or_default();
    let (text, taken) = bounded(wanted);
    if taken < wanted.len() {
        let next = first + taken;
        notes
            .push(format!("cut: lines {next} to {last} follow; ask for them by line and end_line"));
    }

    if lines.is_empty() {
        notes.push("the file is empty".to_owned());
    }

    let end_line = (first + taken).saturating_sub(1).max(first);
    Ok(ExtractResult { file_path: file, line: first, end_line, symbol, notes, text })
}

/// Splits `#symbol`, `:line` or `:line-line` off a path. If a file is named exactly `written`,
/// nothing is split off.
fn split<'a>(tree: &SearchTree, written: &'a str) -> Result<(&'a str, ExtractTarget), ToolError> {
    let whole = tree.resolve(written);
    if whole.is_ok() {
        return Ok((written, ExtractTarget::Whole));
    }

    if let Some((path, symbol)) = written.split_once('#')
        && !symbol.is_empty()
    {
        return Ok((path, ExtractTarget::Symbol(symbol.trim().to_owned())));
    }

    if let Some((path, place)) = written.rsplit_once(':') {
        let number = |text: &str| text.trim_start_matches('L').parse::<usize>().ok();
        if let Some(line) = number(place) {
            return Ok((path, ExtractTarget::Around(line)));
        }
        if let Some((from, to)) = place.split_once('-')
            && let (Some(from), Some(to)) = (number(from), number(to))
        {
            return Ok((path, ExtractTarget::Range(from, to)));
        }
    }

    whole.map(|_| (written, ExtractTarget::Whole))
}

fn read(tree: &SearchTree, path: &str) -> Result<String, ToolError> {
    let bytes = tree.read(&tree.resolve(path)?).map_err(|reason| match reason {
        UnreadFile::Directory => {
            let message = format!("`{path}` is a directory; give a file, or search beneath it");
            ToolError::new(ToolErrorCode::NotAFile, message)
        }
        UnreadFile::Special => {
            let message = format!("`{path}` is neither a file nor a directory, so it is not read");
            ToolError::new(ToolErrorCode::NotAFile, message)
        }
        UnreadFile::TooLarge(bytes) => {
            let message = format!("`{path}` has {bytes} bytes; at most 4 MiB are read");
            ToolError::new(ToolErrorCode::TooLarge, message)
        }
        UnreadFile::Failed(error) => {
            let message = format!("`{path}` cannot be read: {error}");
            ToolError::new(ToolErrorCode::Unreadable, message)
        }
    })?;
    if text::is_binary(&bytes) {
        return Err(ToolError::new(ToolErrorCode::NotText, format!("`{path}` is not a text file")));
    }

    // A byte order mark is no part of the first line.
    let content = bytes.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(&bytes);
    Ok(String::from_utf8_lossy(content).into_owned())
}

fn check(first: usize, last: usize, lines: &[&str], file: &str) -> Result<(), ToolError> {
    let message = if first == 0 {
        "lines count from 1".to_owned()
    } else if last < first {
        format!("end_line {last} is before line {first}")
    } else if first > lines.len() {
        format!("`{file}` has {} lines; line {first} is beyond its end", lines.len())
    } else {
        return Ok(());
    };

    Err(ToolError::new(ToolErrorCode::BadRange, message))
}

fn find(
    file: &str,
    lines: &[&str],
    name: &str,
    notes: &mut Vec<String>,
) -> Result<DefinitionLines, ToolError> {
    let Some(found) = symbol::find(file, lines, name) else {
        let names = symbol::names(file, lines);
        let known = names.iter().take(limits::SUGGESTIONS_MAX).map(String::as_str);
        let known = known.collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "no symbol that is understood".into() } else { known };
        let message = format!("`{file}` does not define `{name}`; it defines {known}");
        return Err(ToolError::new(ToolErrorCode::SymbolNotFound, text::legible(&message)));
    };

    if !found.others.is_empty() {
        let others: Vec<_> = found.others.iter().map(|line| (line + 1).to_string()).collect();
        let more = match found.others_total - others.len() {
            0 => String::new(),
            more => format!(", and {more} times more"),
        };
        notes.push(format!("`{name}` is also defined from line {}{more}", others.join(", ")));
    }

    Ok(found.first)
}

/// Joins as many whole lines as fit into [`limits::EXTRACT_BYTES_MAX`] and
/// [`limits::EXTRACT_LINES_MAX`]. Returns the text and the number of lines in it. If not even the
/// first line fits, the text is the beginning of the first line.
fn bounded(lines: &[&str]) -> (String, usize) {
    let mut out = String::new();
    let mut taken = 0;
    for line in lines.iter().take(limits::EXTRACT_LINES_MAX) {
        if out.len() + line.len() + 1 > limits::EXTRACT_BYTES_MAX {
            if taken == 0 {
                let head = text::head(line, limits::EXTRACT_BYTES_MAX);
                out = format!("{}[… {} bytes …]", text::legible(head), line.len() - head.len());
                taken = 1;
            }
            break;
        }
        out.push_str(&text::legible(line));
        out.push('\n');
        taken += 1;
    }

    (out, taken)
}
