//! The received bytes of a turn, and searches that may need further bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::str::Utf8Error;

use memchr::{memchr, memchr2, memmem};

/// The bytes of a turn that have arrived so far.
#[derive(Clone, Copy)]
pub(super) struct TurnBytes<'a> {
    pub bytes: &'a [u8],
    /// An offset, and the valid UTF-8 text from this offset on. The text is checked for valid UTF-8
    /// as a whole, because a check of each name would cost more.
    text: (usize, &'a str),
    /// Whether the turn has ended.
    pub ended: bool,
    /// Offset of the last `]]>` in the turn. While the turn has not ended, this is the maximum
    /// value of `usize`, because another `]]>` may still arrive. A CDATA section whose content
    /// begins after this offset is never closed, so no search is needed.
    last_cdata_end: usize,
    last_comment_end: usize,
}

pub(super) const CDATA_START: &[u8] = b"<![CDATA[";
/// Converts bytes to text as [`String::from_utf8_lossy`] does, but faster if the bytes are valid
/// UTF-8.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

const CDATA_END: &[u8] = b"]]>";
pub(super) const COMMENT_START: &[u8] = b"<!--";
const COMMENT_END: &[u8] = b"-->";

/// The error of a function whose result depends on bytes of the turn that have not arrived yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeedMoreBytes;

/// Whether a byte may belong to a markup name. Returns true for every byte beyond ASCII. A wrong
/// character in a name does no harm, because each name is later compared with the known names.
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
    /// Wraps the received `bytes` of a model turn for searches. Checks all bytes from the offset
    /// `decided` on for valid UTF-8 at once, and each earlier byte only if it is read as text.
    pub fn new(bytes: &'a [u8], decided: usize, ended: bool) -> Self {
        // Searching backwards for an end costs more than searching for a start, and most texts
        // contain neither.
        let last = |start: &[u8], end: &[u8]| {
            if !ended {
                usize::MAX
            } else if memmem::find(bytes, start).is_some() {
                memmem::rfind(bytes, end).unwrap_or_default()
            } else {
                0
            }
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

    /// Returns a view of the bytes before `end`, as if the turn ended there.
    pub fn up_to(&self, end: usize) -> Self {
        Self { bytes: self.slice(0..end), ended: true, ..*self }
    }

    /// Returns a view of the bytes before `end`, where Markdown code ends. `last_cdata_end` is the
    /// offset of the last `]]>` in the code, as [`TurnBytes::find_last_cdata_end`] returns it.
    pub fn up_to_code_end(&self, end: usize, last_cdata_end: usize) -> Self {
        Self { last_cdata_end, ..self.up_to(end) }
    }

    /// Returns the offset of the last `]]>` in a byte range; 0 if there is none.
    pub fn find_last_cdata_end(&self, part: Range<usize>) -> usize {
        let start = part.start;
        memmem::rfind(self.slice(part), CDATA_END).map_or(0, |at| start + at)
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

    /// Returns the characters of a byte range; `None` if the range is not within the valid UTF-8 or
    /// not on character boundaries.
    fn text(&self, range: &Range<usize>) -> Option<&'a str> {
        let (from, text) = self.text;
        debug_assert!(range.end <= self.len());
        text.get(range.start.checked_sub(from)?..range.end.checked_sub(from)?)
    }

    pub fn utf8(&self, range: Range<usize>) -> Result<&'a str, Utf8Error> {
        self.text(&range).map_or_else(|| std::str::from_utf8(self.slice(range)), Ok)
    }

    /// Returns the text of a byte range for display, with invalid UTF-8 replaced.
    pub fn lossy(&self, range: Range<usize>) -> Cow<'a, str> {
        self.text(&range).map_or_else(|| lossy(self.slice(range)), Cow::Borrowed)
    }

    /// Returns the result of a search that found nothing: `None` if the turn has ended, and
    /// [`NeedMoreBytes`] if more bytes may arrive.
    pub fn end_or_more<T>(&self) -> Result<Option<T>, NeedMoreBytes> {
        if self.ended { Ok(None) } else { Err(NeedMoreBytes) }
    }

    #[inline]
    pub fn starts(&self, at: usize, pattern: &[u8]) -> Result<bool, NeedMoreBytes> {
        let rest = self.rest(at);
        if rest.len() >= pattern.len() {
            return Ok(rest.starts_with(pattern));
        }
        if !self.ended && pattern.starts_with(rest) { Err(NeedMoreBytes) } else { Ok(false) }
    }

    pub fn find_byte(&self, byte: u8, from: usize) -> Result<Option<usize>, NeedMoreBytes> {
        match memchr(byte, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find_either(&self, a: u8, b: u8, from: usize) -> Result<Option<usize>, NeedMoreBytes> {
        match memchr2(a, b, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find(&self, pattern: &[u8], from: usize) -> Result<Option<usize>, NeedMoreBytes> {
        match memmem::find(self.rest(from), pattern) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    /// Returns the offset of the first byte from `from` on that is not white space.
    pub fn skip_space(&self, from: usize) -> usize {
        let rest = self.rest(from);
        from + rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len())
    }

    /// Returns the offset after a CDATA section whose content begins at `from`; `None` if the
    /// section never ends.
    pub fn cdata_end(&self, from: usize) -> Result<Option<usize>, NeedMoreBytes> {
        if from > self.last_cdata_end {
            return Ok(None);
        }
        Ok(self.find(CDATA_END, from)?.map(|at| at + CDATA_END.len()))
    }

    /// Returns the offset after a comment whose content begins at `from`; `None` if the comment
    /// never ends.
    pub fn comment_end(&self, from: usize) -> Result<Option<usize>, NeedMoreBytes> {
        if from > self.last_comment_end {
            return Ok(None);
        }
        Ok(self.find(COMMENT_END, from)?.map(|at| at + COMMENT_END.len()))
    }

    /// Skips white space and comments. Returns `None` if a comment never ends.
    pub fn skip_blank(&self, from: usize) -> Result<Option<usize>, NeedMoreBytes> {
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
