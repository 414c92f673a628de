//! The received bytes of a turn, and searches that may need more of them.

use std::borrow::Cow;
use std::ops::Range;
use std::str::Utf8Error;

use memchr::{memchr, memchr2, memmem};

/// The bytes received so far.
#[derive(Clone, Copy)]
pub(super) struct TurnBytes<'a> {
    pub bytes: &'a [u8],
    /// The valid UTF-8 from an offset on, checked at once instead of name by name.
    text: (usize, &'a str),
    /// Whether the turn has ended.
    pub ended: bool,
    /// Offset of the last `]]>` or `-->`, or later: beyond it no search is needed.
    last_cdata_end: usize,
    last_comment_end: usize,
}

pub(super) const CDATA_START: &[u8] = b"<![CDATA[";
/// As [`String::from_utf8_lossy`], and faster for valid UTF-8.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

const CDATA_END: &[u8] = b"]]>";
pub(super) const COMMENT_START: &[u8] = b"<!--";
const COMMENT_END: &[u8] = b"-->";

/// The result depends on bytes that have not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeedMore;

/// Whether a byte belongs to a markup name. Every byte beyond ASCII does, since names are only
/// compared with known ones.
pub(super) fn is_name_byte(byte: u8) -> bool {
    NAME_BYTES.get(usize::from(byte)).is_some_and(|is_name| *is_name)
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler, which checks the bounds")]
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        let ascii = (byte as u8).is_ascii_alphanumeric();
        table[byte] = ascii || byte >= 0x80 || matches!(byte as u8, b'_' | b'-' | b'.' | b':');
        byte += 1;
    }
    table
};

pub(super) fn is_name_start(byte: u8) -> bool {
    is_name_byte(byte) && !matches!(byte, b'0'..=b'9' | b'-' | b'.' | b':')
}

pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl<'a> TurnBytes<'a> {
    /// Bytes before `decided` are not needed any more.
    pub fn new(bytes: &'a [u8], decided: usize, ended: bool) -> Self {
        // Most texts have neither, and a search for the last costs more than one for the first.
        let last = |start: &[u8], end: &[u8]| match ended {
            true if memmem::find(bytes, start).is_some() => {
                memmem::rfind(bytes, end).unwrap_or_default()
            }
            true => 0,
            false => usize::MAX,
        };

        let last_cdata_end = last(CDATA_START, CDATA_END);
        let last_comment_end = last(COMMENT_START, COMMENT_END);
        let rest = bytes.get(decided..).unwrap_or_default();
        let text = std::str::from_utf8(rest).or_else(|error| {
            let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid)
        });
        let text = (decided, text.unwrap_or_default());
        Self { bytes, text, ended, last_cdata_end, last_comment_end }
    }

    /// The text up to `end`, as if it ended there.
    pub fn up_to(&self, end: usize) -> Self {
        Self { bytes: self.slice(0..end), ended: true, ..*self }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    pub fn rest(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    pub fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// The characters of a range, if it lies on character boundaries in the valid UTF-8.
    fn text(&self, range: &Range<usize>) -> Option<&'a str> {
        let (from, text) = self.text;
        debug_assert!(range.end <= self.len());
        text.get(range.start.checked_sub(from)?..range.end.checked_sub(from)?)
    }

    pub fn utf8(&self, range: Range<usize>) -> Result<&'a str, Utf8Error> {
        self.text(&range).map_or_else(|| std::str::from_utf8(self.slice(range)), Ok)
    }

    /// The range as text for display, with invalid UTF-8 replaced.
    pub fn lossy(&self, range: Range<usize>) -> Cow<'a, str> {
        self.text(&range).map_or_else(|| lossy(self.slice(range)), Cow::Borrowed)
    }

    /// `None` if the turn has ended, [`NeedMore`] if it may continue.
    pub fn end_or_more<T>(&self) -> Result<Option<T>, NeedMore> {
        if self.ended { Ok(None) } else { Err(NeedMore) }
    }

    #[inline]
    pub fn starts(&self, at: usize, pattern: &[u8]) -> Result<bool, NeedMore> {
        let rest = self.rest(at);
        if rest.len() >= pattern.len() {
            return Ok(rest.starts_with(pattern));
        }
        if !self.ended && pattern.starts_with(rest) { Err(NeedMore) } else { Ok(false) }
    }

    pub fn find_byte(&self, byte: u8, from: usize) -> Result<Option<usize>, NeedMore> {
        match memchr(byte, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find_either(&self, a: u8, b: u8, from: usize) -> Result<Option<usize>, NeedMore> {
        match memchr2(a, b, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find(&self, pattern: &[u8], from: usize) -> Result<Option<usize>, NeedMore> {
        match memmem::find(self.rest(from), pattern) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    /// The first offset at or after `from` that is not white space.
    pub fn skip_space(&self, from: usize) -> usize {
        let rest = self.rest(from);
        from + rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len())
    }

    /// The offset behind a CDATA section whose content starts at `from`.
    pub fn cdata_end(&self, from: usize) -> Result<Option<usize>, NeedMore> {
        if from > self.last_cdata_end {
            return Ok(None);
        }
        Ok(self.find(CDATA_END, from)?.map(|at| at + CDATA_END.len()))
    }

    /// The offset behind a comment whose content starts at `from`.
    pub fn comment_end(&self, from: usize) -> Result<Option<usize>, NeedMore> {
        if from > self.last_comment_end {
            return Ok(None);
        }
        Ok(self.find(COMMENT_END, from)?.map(|at| at + COMMENT_END.len()))
    }

    /// Skips white space and comments. `None` if a comment never ends.
    pub fn skip_blank(&self, from: usize) -> Result<Option<usize>, NeedMore> {
        let mut at = self.skip_space(from);
        while self.starts(at, b"<!")? && self.starts(at, COMMENT_START)? {
            match self.comment_end(at + 4)? {
                Some(end) => at = self.skip_space(end),
                None => return Ok(None),
            }
        }

        Ok(Some(at))
    }
}
