//! The lexer: cuts a text into markup pieces, without judging what is inside them.

use std::ops::Range;

use super::Violation;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Start,
    /// `<a/>`: opened and closed at once.
    Empty,
    End,
    Comment,
    Cdata,
    /// `<?…?>`; other stages refuse it.
    Instruction,
}

/// A tag, comment or section with its delimiters, in bytes of the text. Flat and small, for it
/// is passed on once for every tag there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub kind: Kind,
    /// How many quoted values a start tag holds.
    pub values: usize,
    pub start: usize,
    pub end: usize,
}

impl Piece {
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Why a piece of markup cannot be cut out.
#[derive(Debug, Clone, Copy)]
enum Stop {
    NotClosed(Kind),
    Unknown,
    /// More values in a tag than will be looked at.
    Flood,
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
}

impl Iterator for Markup<'_> {
    type Item = Result<Piece, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..)?;
        let near = rest.first() == Some(&b'<');
        let start = self.at + if near { 0 } else { memchr::memchr(b'<', rest)? };
        match piece(self.text.get(start..)?) {
            Ok((kind, values, length)) => {
                self.at = start + length;
                Some(Ok(Piece { kind, values, start, end: self.at }))
            }
            Err(stop) => {
                self.at = self.text.len();
                Some(Err(stop.violation(start)))
            }
        }
    }
}

/// Kind, values and length of the piece that opens `rest`.
fn piece(rest: &[u8]) -> Result<(Kind, usize, usize), Stop> {
    let (kind, length) = match rest {
        [_, b'/', ..] => (Kind::End, memchr::memchr(b'>', rest).map(|i| i + 1)),
        [_, b'!', b'-', b'-', ..] => (Kind::Comment, section(rest, b"<!--", b"-->")),
        [_, b'!', b'[', b'C', b'D', b'A', b'T', b'A', b'[', ..] => {
            (Kind::Cdata, section(rest, b"<![CDATA[", b"]]>"))
        }
        [_, b'?', ..] => (Kind::Instruction, section(rest, b"<?", b"?>")),
        [_, b'!', ..] => return Err(Stop::Unknown),
        _ => return start_tag(rest),
    };
    length.map(|length| (kind, 0, length)).ok_or(Stop::NotClosed(kind))
}

impl Stop {
    #[cold]
    fn violation(self, start: usize) -> Violation {
        match self {
            Self::NotClosed(kind) => {
                Violation::form(start, format!("{} that is not closed", called(kind)))
            }
            Self::Unknown => Violation::form(start, "`<!` begins nothing known here"),
            Self::Flood => {
                let max = limits::XML_ATTRIBUTES_MAX;
                let message = format!("an element with more than {max} attributes");
                Violation::complexity(start, message)
            }
        }
    }
}

fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::Start | Kind::Empty => "a start tag",
        Kind::End => "an end tag",
        Kind::Comment => "a comment",
        Kind::Cdata => "a CDATA section",
        Kind::Instruction => "a processing instruction",
    }
}

/// The length of a section that opens `rest`, with both delimiters; `close` ends with `>`.
/// Sections come by the hundred thousand, so the near ones set up no search of their own.
pub(super) fn section(rest: &[u8], open: &[u8], close: &[u8]) -> Option<usize> {
    const NEAR: usize = 8;
    let body = rest.get(open.len()..)?;
    let ends = memchr::memchr_iter(b'>', body).map(|at| at + 1);
    let closes = |end: &usize| body.get(..*end).is_some_and(|inside| inside.ends_with(close));
    let far = || memchr::memmem::find(body, close).map(|at| at + close.len());
    let end = ends.take(NEAR).find(closes).or_else(far)?;
    Some(open.len() + end)
}

/// The start tag that opens `rest`: to the first `>` outside quotes. Gives up on a tag with too
/// many values, so that a flood of them is not read to its end.
fn start_tag(rest: &[u8]) -> Result<(Kind, usize, usize), Stop> {
    const NOT_CLOSED: Stop = Stop::NotClosed(Kind::Start);
    let mut at = 1;
    let mut values = 0;
    loop {
        let found = tag_mark(rest, at).ok_or(NOT_CLOSED)?;
        let quote = match rest.get(found) {
            Some(b'>') => {
                let empty = found > 1 && rest.get(found - 1) == Some(&b'/');
                let kind = if empty { Kind::Empty } else { Kind::Start };
                return Ok((kind, values, found + 1));
            }
            quote => quote.copied().unwrap_or(b'"'),
        };
        let body = rest.get(found + 1..).unwrap_or_default();
        at = found + 2 + memchr::memchr(quote, body).ok_or(NOT_CLOSED)?;
        values += 1;
        if values > limits::XML_ATTRIBUTES_MAX {
            return Err(Stop::Flood);
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
