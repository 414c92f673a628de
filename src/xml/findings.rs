//! Findings: defects of a text, with their locations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A location in a text. The line and the column are counted from 1, and columns are characters.
/// The byte offset is counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TextLocation {
    #[serde(rename = "line")]
    pub line: u32,
    #[serde(rename = "column")]
    pub column: u32,
    #[serde(rename = "offset")]
    pub offset: usize,
    /// Path of elements from the root, such as `/search/query[2]`; `None` if the path is not known.
    #[serde(rename = "path", default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Returns the byte offset of `part` in `text`. `part` must be a slice of `text`.
pub fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

impl TextLocation {
    /// Returns the line and column of the byte at `offset` in `text`.
    pub fn at(text: &[u8], offset: usize) -> Self {
        let offset = offset.min(text.len());
        let before = text.get(..offset).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count();
        let start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
        let column = before.get(start..).unwrap_or_default();
        let column = column.iter().filter(|b| (**b & 0xC0) != 0x80).count();
        let count = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
        Self { line: count(line), column: count(column), offset, path: None }
    }
}

impl TextLocation {
    /// Whether the location has a line or a path to show.
    pub fn is_known(&self) -> bool {
        self.line > 0 || self.path.is_some()
    }
}

impl fmt::Display for TextLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.line) {
            (Some(path), 0) => f.write_str(path),
            (None, 0) => f.write_str("an unknown place"),
            (Some(path), line) => write!(f, "line {line}, column {} ({path})", self.column),
            (None, line) => write!(f, "line {line}, column {}", self.column),
        }
    }
}

/// A defect of a text. Findings are data and never an `Err`, because one text may have many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Code from a closed list. Each code has a page under `docs/errors/`.
    #[serde(rename = "code")]
    pub code: String,
    #[serde(rename = "place")]
    pub place: TextLocation,
    /// Text that states the defect and the expected form, in lower case and without a full stop.
    #[serde(rename = "message")]
    pub message: String,
}

impl Finding {
    pub fn new(code: &str, place: TextLocation, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), place, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if self.place.is_known() { write!(f, " at {}", self.place) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_without_a_place_names_none() {
        let finding = Finding::new("native-call", TextLocation::default(), "was refused");
        assert_eq!(finding.to_string(), "native-call: was refused");
        let path = Some("/a/b".to_owned());
        let finding =
            Finding { place: TextLocation { path, ..TextLocation::default() }, ..finding };
        assert_eq!(finding.to_string(), "native-call: was refused at /a/b");
        let finding = Finding { place: TextLocation::at(b"a\nbc", 3), ..finding };
        assert_eq!(finding.to_string(), "native-call: was refused at line 2, column 2");
    }
}
