//! The lexer: cuts a text into pieces of markup, without checking the inside of a piece.

use std::ops::Range;

use memchr::{memchr, memchr3, memmem};

use super::ScanViolation;
use super::names::{is_ascii_name, is_ascii_start};
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkupKind {
    Start,
    /// An empty element, such as `<a/>`.
    Empty,
    End,
    Comment,
    Cdata,
    /// A processing instruction `<?…?>`, which other stages refuse.
    Instruction,
}

/// A tag, comment or CDATA section with its delimiters, as a byte range. The struct is small,
/// because the lexer returns one for every tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkupPiece {
    pub kind: MarkupKind,
    /// Whether the lexer already knows that the piece of markup is valid between its delimiters. A
    /// tag is plain if it consists only of an ASCII name without a prefix, such as `<a>` or `<a/>`.
    /// A comment is plain if its text does not contain `--`.
    pub plain: bool,
    /// Number of quoted values in a start tag.
    pub values: usize,
    pub start: usize,
    pub end: usize,
}

impl MarkupPiece {
    pub fn opens(&self) -> bool {
        matches!(self.kind, MarkupKind::Start | MarkupKind::Empty)
    }

    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Why a piece of markup could not be cut out.
#[derive(Debug, Clone, Copy)]
enum CutError {
    NotClosed(MarkupKind),
    Unknown,
    /// A tag contains more quoted values than the lexer reads.
    Flood,
}

/// Iterator over the markup of a text, from a given offset. Ends after the first error.
pub(super) struct MarkupLexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> MarkupLexer<'a> {
    pub fn new(text: &'a str, start: usize) -> Self {
        Self { text: text.as_bytes(), at: start }
    }

    /// Extends a start tag to its whole element, if the tag is plain and the content is text
    /// without `&` and `>`. Most elements of a payload are of this kind. Returns `None` for any
    /// other element. `tag` must be the latest piece that the lexer returned.
    pub fn whole(&mut self, tag: MarkupPiece) -> Option<MarkupPiece> {
        let name = self.text.get(tag.start + 1..tag.end - 1)?;
        let rest = self.text.get(tag.end..)?;
        if rest.first() == Some(&b'<') && rest.get(1) != Some(&b'/') {
            return None;
        }

        let is_mark = |byte: u8| matches!(byte, b'<' | b'&' | b'>');
        let text = near(rest, is_mark, |far| memchr3(b'<', b'&', b'>', far))?;
        let close = rest.get(text..)?.strip_prefix(b"</")?.strip_prefix(name)?;
        let end = tag.end + text + name.len() + 3;
        (close.first() == Some(&b'>')).then(|| {
            self.at = end;
            MarkupPiece { kind: MarkupKind::Empty, end, ..tag }
        })
    }
}

impl Iterator for MarkupLexer<'_> {
    type Item = Result<MarkupPiece, ScanViolation>;

    // Inlined: the call would cost as much as its work, a third of the time for a text full of
    // tags.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..)?;
        let near = rest.first() == Some(&b'<');
        let start = self.at + if near { 0 } else { memchr(b'<', rest)? };

        match cut(self.text.get(start..)?) {
            Ok(MarkupCut { kind, plain, values, length }) => {
                self.at = start + length;
                Some(Ok(MarkupPiece { kind, plain, values, start, end: self.at }))
            }
            Err(stop) => {
                self.at = self.text.len();
                Some(Err(stop.violation(start)))
            }
        }
    }
}

/// A piece of markup at the beginning of a text. Only its length is stored, because its offset is
/// 0.
struct MarkupCut {
    kind: MarkupKind,
    plain: bool,
    values: usize,
    length: usize,
}

/// Cuts out the piece of markup at the beginning of `rest`.
#[inline(always)]
fn cut(rest: &[u8]) -> Result<MarkupCut, CutError> {
    let (kind, length) = match rest {
        [_, b'/', ..] => {
            (MarkupKind::End, near(rest, |byte| byte == b'>', |far| memchr(b'>', far)))
        }
        [_, b'!', b'-', b'-', inside @ ..] => match plain_comment(inside) {
            Some(length) => {
                return Ok(MarkupCut { kind: MarkupKind::Comment, plain: true, values: 0, length });
            }
            None => (MarkupKind::Comment, section(rest, b"<!--", b"-->")),
        },
        [_, b'!', b'[', b'C', b'D', b'A', b'T', b'A', b'[', ..] => {
            (MarkupKind::Cdata, section(rest, b"<![CDATA[", b"]]>"))
        }
        [_, b'?', ..] => (MarkupKind::Instruction, section(rest, b"<?", b"?>")),
        [_, b'!', ..] => return Err(CutError::Unknown),
        _ => return plain_tag(rest).map_or_else(|| start_tag(rest), Ok),
    };

    let length = length.ok_or(CutError::NotClosed(kind))?;
    // The length of an end tag leads to its `>`, which the piece includes.
    let length = length + usize::from(kind == MarkupKind::End);
    Ok(MarkupCut { kind, plain: false, values: 0, length })
}

impl CutError {
    #[cold]
    fn violation(self, start: usize) -> ScanViolation {
        match self {
            Self::NotClosed(kind) => {
                ScanViolation::form(start, format!("{} that is not closed", called(kind)))
            }
            Self::Unknown => ScanViolation::form(start, "`<!` begins nothing known here"),
            Self::Flood => {
                let max = limits::XML_ATTRIBUTES_MAX;
                let message =
                    format!("a tag with more than {max} attributes and namespace declarations");
                ScanViolation::complexity(start, message)
            }
        }
    }
}

fn called(kind: MarkupKind) -> &'static str {
    match kind {
        MarkupKind::Start | MarkupKind::Empty => "a start tag",
        MarkupKind::End => "an end tag",
        MarkupKind::Comment => "a comment",
        MarkupKind::Cdata => "a CDATA section",
        MarkupKind::Instruction => "a processing instruction",
    }
}

/// Number of bytes that a search examines one by one before it switches to a vectorised search,
/// which costs more to set up.
const NEAR: usize = 32;

fn head(rest: &[u8]) -> &[u8] {
    rest.get(..NEAR).unwrap_or(rest)
}

/// Returns the offset of the first byte in `rest` for which `is_it` returns true; `None` if there
/// is no such byte. Examines the first [`NEAR`] bytes one by one. Then uses `far`, a vectorised
/// search for the same bytes.
fn near(
    rest: &[u8],
    is_it: impl Fn(u8) -> bool,
    far: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    let found = head(rest).iter().position(|byte| is_it(*byte));
    found.or_else(|| far(rest.get(NEAR..)?).map(|at| NEAR + at))
}

/// Returns the length of the comment, CDATA section or processing instruction at the beginning of
/// `rest`, including its delimiters. Returns `None` if the closing delimiter is missing. Finds a
/// near end without a vectorised search, because a text may contain hundreds of thousands of short
/// sections.
pub(super) fn section<const OPEN: usize, const CLOSE: usize>(
    rest: &[u8],
    _open: &[u8; OPEN],
    close: &[u8; CLOSE],
) -> Option<usize> {
    let body = rest.get(OPEN..)?;
    let short = head(body).windows(CLOSE).position(|end| end == close);
    let at = short.or_else(|| memmem::find(body, close))?;
    Some(OPEN + at + CLOSE)
}

/// Returns the length of a comment, including its delimiters `<!--` and `-->`. `inside` is the text
/// after `<!--`. Returns `None` if the comment is not closed, or if its text contains `--`.
fn plain_comment(inside: &[u8]) -> Option<usize> {
    let short = head(inside).windows(2).position(|end| end == b"--");
    let at = short.or_else(|| memmem::find(inside, b"--"))?;
    (inside.get(at + 2) == Some(&b'>')).then_some("<!---->".len() + at)
}

/// Cuts out the start tag at the beginning of `rest`, if this tag consists only of an ASCII name
/// without a prefix. Returns `None` for any other tag, and for a long name.
#[inline(always)]
fn plain_tag(rest: &[u8]) -> Option<MarkupCut> {
    let name = rest.get(1..)?;
    if !name.first().copied().is_some_and(is_ascii_start) {
        return None;
    }

    let length = head(name).iter().position(|byte| !is_ascii_name(*byte))?;
    let (kind, length) = match name.get(length..)? {
        [b'>', ..] => (MarkupKind::Start, length + 2),
        [b'/', b'>', ..] => (MarkupKind::Empty, length + 3),
        _ => return None,
    };

    Some(MarkupCut { kind, plain: true, values: 0, length })
}

/// Cuts out the start tag at the beginning of `rest`, up to the first `>` outside quotes. Stops at
/// a tag with too many quoted values, without reading it to its end.
fn start_tag(rest: &[u8]) -> Result<MarkupCut, CutError> {
    const NOT_CLOSED: CutError = CutError::NotClosed(MarkupKind::Start);
    let mut at = 1;
    let mut values = 0;

    loop {
        let found = tag_mark(rest, at).ok_or(NOT_CLOSED)?;
        let quote = match rest.get(found) {
            Some(b'>') => {
                let empty = found > 1 && rest.get(found - 1) == Some(&b'/');
                let kind = if empty { MarkupKind::Empty } else { MarkupKind::Start };
                return Ok(MarkupCut { kind, plain: false, values, length: found + 1 });
            }
            quote => quote.copied().unwrap_or(b'"'),
        };
        let body = rest.get(found + 1..).unwrap_or_default();
        at = found + 2 + memchr(quote, body).ok_or(NOT_CLOSED)?;
        values += 1;
        if values > limits::XML_ATTRIBUTES_MAX {
            return Err(CutError::Flood);
        }
    }
}

/// Returns the offset of the next `>`, `"` or `'` from `at` on; `None` if no such character
/// follows.
fn tag_mark(rest: &[u8], at: usize) -> Option<usize> {
    let is_mark = |byte: u8| matches!(byte, b'>' | b'"' | b'\'');
    let far = |far: &[u8]| memchr3(b'>', b'"', b'\'', far);
    near(rest.get(at..)?, is_mark, far).map(|found| at + found)
}
