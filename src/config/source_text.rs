//! Source texts to which config problems point: config files, override variables and schemas.
//!
//! Private parts of a text (environment values, keys, addresses that may hold a password) are
//! masked before a problem can quote the text. Positions refer to the unmasked text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::NamedSource;

use crate::xml::findings;

/// A text to which config problems may point. It has a name for error messages: the path of a file,
/// or the name of a variable.
pub struct ConfigSource {
    name: String,
    text: String,
    masked: NamedSource<String>,
}

impl ConfigSource {
    /// Makes a source in which no part is private.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Self::masking(name, text, &[])
    }

    /// Makes a source in which the given byte ranges are private. Error messages never quote them.
    pub fn masking(
        name: impl Into<String>,
        text: impl Into<String>,
        private: &[Range<usize>],
    ) -> Arc<Self> {
        let name = name.into();
        let text = text.into();
        let masked = NamedSource::new(&name, mask(&text, private));
        Arc::new(Self { name, text, masked })
    }

    /// Makes a source that is entirely private, so that nothing of it is ever quoted.
    pub fn hidden(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        let text = text.into();
        let everything = 0..text.len();
        Self::masking(name, text, std::slice::from_ref(&everything))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source text for error messages: the ranges that may contain secrets are masked.
    pub fn shown(&self) -> &NamedSource<String> {
        &self.masked
    }

    /// Returns the unmasked text of a range. Callers may use this text to find positions, but must
    /// not show it in error messages.
    pub(super) fn slice(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or_default()
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.name).finish()
    }
}

/// A byte range of a source text.
#[derive(Debug, Clone)]
pub struct SourceRange {
    pub source: Arc<ConfigSource>,
    pub span: Range<usize>,
}

impl SourceRange {
    pub fn new(source: &Arc<ConfigSource>, span: Range<usize>) -> Self {
        Self { source: Arc::clone(source), span }
    }

    /// Makes the range at the start of a source, for problems about missing parts.
    pub fn start(source: &Arc<ConfigSource>) -> Self {
        Self::new(source, 0..0)
    }

    /// Makes the range from `column` to the end of `line`. Both are counted from 1. Special cases:
    /// - Column 0 stands for the first character of the line that is not white space.
    /// - Line 0 stands for the first line.
    /// - A line number after the last line stands for the end of the text, for example for a
    ///   missing end tag.
    pub fn of_line(source: &Arc<ConfigSource>, line: u32, column: u32) -> Self {
        let text = &source.text;
        let mut start = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            start += line.len();
            (start - line.len(), line.trim_end())
        });
        let Some((start, line)) = lines.skip(line.saturating_sub(1) as usize).take(1).last() else {
            let end = text.trim_end().len();
            return Self::new(source, end..end);
        };

        let indent = line.len() - line.trim_start().len();
        let nth = line.char_indices().nth((column as usize).saturating_sub(1));
        let from = if column == 0 { Some(indent) } else { nth.map(|(at, _)| at) };
        let from = from.unwrap_or(line.len());
        Self::new(source, start + from..start + line.len())
    }

    /// Returns the line and column at which the range starts, counted from 1. Columns count
    /// characters. A byte order mark at the start of the text is not counted.
    pub fn line_and_column(&self) -> (u32, u32) {
        let text = &self.source.text;
        let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let place = findings::TextLocation::at(
            text.as_bytes().get(mark..).unwrap_or_default(),
            self.span.start.saturating_sub(mark),
        );
        (place.line, place.column)
    }
}

/// Replaces private ranges by asterisks. Keeps the number of bytes where possible, so that carets
/// in error messages still point to the right columns.
fn mask(text: &str, private: &[Range<usize>]) -> String {
    let hidden = |at: usize| private.iter().any(|range| range.contains(&at));
    let cover = |c: char| match c.len_utf8() {
        _ if c.is_whitespace() => String::from(c),
        2 => String::from('·'),
        3 => String::from('•'),
        bytes => "*".repeat(bytes),
    };

    let shown = |(at, c): (usize, char)| if hidden(at) { cover(c) } else { String::from(c) };
    text.char_indices().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_after_the_last_one_is_the_end_of_the_text() {
        let source = ConfigSource::new("words.xsd", "<a>\n  <b/>\n\n");
        for (line, column, place) in
            [(1, 1, (1, 1)), (2, 0, (2, 3)), (2, 99, (2, 7)), (4, 1, (2, 7)), (9, 0, (2, 7))]
        {
            let range = SourceRange::of_line(&source, line, column);
            assert_eq!(range.line_and_column(), place, "{line}:{column}");
        }
        let empty = SourceRange::of_line(&ConfigSource::new("words.xsd", ""), 1, 1);
        assert_eq!(empty.line_and_column(), (1, 1));
    }
}
