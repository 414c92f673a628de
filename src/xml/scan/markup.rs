//! The lexer: cuts a text into markup pieces, without judging what is inside them.

use std::ops::Range;

use super::Violation;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Start {
        /// `<a/>`: closed at once.
        empty: bool,
        /// How many quoted values it holds.
        values: usize,
    },
    End,
    Comment,
    Cdata,
    /// `<?…?>`; other stages refuse it.
    Instruction,
}

/// A tag, comment or section with its delimiters, in bytes of the text.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub kind: Kind,
    pub range: Range<usize>,
}

/// Every piece of markup from some place on, in order. Ends after the first error.
pub(super) struct Markup<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Markup<'a> {
    pub fn new(text: &'a str, start: usize) -> Self {
        Self { text: text.as_bytes(), at: start }
    }

    fn piece(&self, open: usize) -> Result<Piece, Violation> {
        let rest = self.text.get(open..).unwrap_or_default();
        let (kind, length) = match rest {
            [_, b'/', ..] => (Kind::End, memchr::memchr(b'>', rest).map(|i| i + 1)),
            [_, b'!', b'-', b'-', ..] => (Kind::Comment, section(rest, b"<!--", b"-->")),
            [_, b'!', b'[', b'C', b'D', b'A', b'T', b'A', b'[', ..] => {
                (Kind::Cdata, section(rest, b"<![CDATA[", b"]]>"))
            }
            [_, b'?', ..] => (Kind::Instruction, section(rest, b"<?", b"?>")),
            [_, b'!', ..] => return Err(Violation::form(open, "`<!` begins nothing known here")),
            _ => start_tag(rest, open)?,
        };
        match length {
            Some(length) => Ok(Piece { kind, range: open..open + length }),
            None => Err(Violation::form(open, format!("{} that is not closed", called(kind)))),
        }
    }
}

impl Iterator for Markup<'_> {
    type Item = Result<Piece, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let open = self.at + memchr::memchr(b'<', self.text.get(self.at..)?)?;
        let piece = self.piece(open);
        self.at = piece.as_ref().map_or(self.text.len(), |piece| piece.range.end);
        Some(piece)
    }
}

fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::Start { .. } => "a start tag",
        Kind::End => "an end tag",
        Kind::Comment => "a comment",
        Kind::Cdata => "a CDATA section",
        Kind::Instruction => "a processing instruction",
    }
}

/// The length of a section that opens `rest`, with both delimiters; `close` ends with `>`.
/// Sections come by the hundred thousand, so this sets up no search of its own for each.
pub(super) fn section(rest: &[u8], open: &[u8], close: &[u8]) -> Option<usize> {
    let body = rest.get(open.len()..)?;
    let mut ends = memchr::memchr_iter(b'>', body).map(|at| at + 1);
    let end = ends.find(|end| body.get(..*end).is_some_and(|inside| inside.ends_with(close)))?;
    Some(open.len() + end)
}

/// The length of the start tag that opens `rest`: to the first `>` outside quotes. Gives up on
/// a tag with too many values, so that a flood of them is not read to its end.
fn start_tag(rest: &[u8], open: usize) -> Result<(Kind, Option<usize>), Violation> {
    let mut at = 1;
    let mut values = 0;
    loop {
        let Some(found) = tag_mark(rest, at) else {
            return Ok((Kind::Start { empty: false, values }, None));
        };
        match rest.get(found) {
            Some(b'>') => {
                let empty = found > 1 && rest.get(found - 1) == Some(&b'/');
                return Ok((Kind::Start { empty, values }, Some(found + 1)));
            }
            quote => {
                let quote = quote.copied().unwrap_or(b'"');
                let body = rest.get(found + 1..).unwrap_or_default();
                let Some(length) = memchr::memchr(quote, body) else {
                    return Ok((Kind::Start { empty: false, values }, None));
                };
                at = found + length + 2;
                values += 1;
            }
        }
        if values > limits::XML_ATTRIBUTES_MAX {
            let max = limits::XML_ATTRIBUTES_MAX;
            let message = format!("an element with more than {max} attributes");
            return Err(Violation::complexity(open, message));
        }
    }
}

/// The next `>`, `"` or `'`. Tags are short: a plain loop first, then the wide search.
fn tag_mark(rest: &[u8], at: usize) -> Option<usize> {
    const NEAR: usize = 24;
    let is_mark = |byte: &u8| matches!(byte, b'>' | b'"' | b'\'');
    let tail = rest.get(at..)?;
    if let Some(found) = tail.iter().take(NEAR).position(is_mark) {
        return Some(at + found);
    }
    let far = tail.get(NEAR..)?;
    memchr::memchr3(b'>', b'"', b'\'', far).map(|found| at + NEAR + found)
}

/// One attribute as it stands in a tag: `name="value"`, nothing decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    pub name: &'a str,
    pub value: &'a str,
    /// Of the name, and of the value's first byte, in bytes from the start of the text.
    pub offset: usize,
    pub value_offset: usize,
}

impl<'a> Attribute<'a> {
    /// The prefix this attribute declares: none if it declares nothing, empty for the default.
    pub fn declares(&self) -> Option<&'a str> {
        let rest = self.name.strip_prefix("xmlns")?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
    }
}

/// A start tag's name and its attributes, in order.
pub(super) struct Attributes<'a> {
    rest: &'a str,
    offset: usize,
}

/// Cuts a start tag (with its brackets, at `offset` of the text) into name and attributes.
pub(super) fn open_tag(tag: &str, empty: bool, offset: usize) -> (&str, Attributes<'_>) {
    let close = if empty { 2 } else { 1 };
    let inside = tag.get(1..tag.len() - close).unwrap_or_default();
    let end = inside.bytes().position(is_space).unwrap_or(inside.len());
    let (name, rest) = inside.split_at_checked(end).unwrap_or((inside, ""));
    (name, Attributes { rest, offset: offset + 1 + end })
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Attributes<'a> {
    fn skip_space(&mut self) -> usize {
        let length = self.rest.bytes().take_while(|b| is_space(*b)).count();
        self.advance(length);
        length
    }

    fn advance(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
    }

    fn read(&mut self) -> Result<Attribute<'a>, Violation> {
        let offset = self.offset;
        let length = self.rest.bytes().position(|b| is_space(b) || b == b'=');
        let length = length.unwrap_or(self.rest.len());
        let name = self.rest.get(..length).unwrap_or_default();
        self.advance(length);
        self.skip_space();
        if !self.rest.starts_with('=') {
            let message = format!("attribute `{}` without a value", super::quoted(name));
            return Err(Violation::form(offset, message));
        }
        self.advance(1);
        self.skip_space();
        let unquoted = || Violation::form(offset, "an attribute value that is not in quotes");
        let quote = self.rest.bytes().next().filter(|b| matches!(b, b'"' | b'\''));
        let quote = quote.ok_or_else(unquoted)?;
        self.advance(1);
        let value_offset = self.offset;
        let length = memchr::memchr(quote, self.rest.as_bytes()).ok_or_else(unquoted)?;
        let value = self.rest.get(..length).unwrap_or_default();
        self.advance(length + 1);
        Ok(Attribute { name, value, offset, value_offset })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let spaced = self.skip_space() > 0;
        if self.rest.is_empty() {
            return None;
        }
        if !spaced {
            let message = "white space is missing between attributes";
            let error = Violation::form(self.offset, message);
            self.rest = "";
            return Some(Err(error));
        }
        let attribute = self.read();
        if attribute.is_err() {
            self.rest = "";
        }
        Some(attribute)
    }
}
