//! The turn as far as it has been received, and the searches that may have to wait for more.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2, memmem};

/// The bytes received so far.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub bytes: &'a [u8],
    /// Nothing will follow.
    pub ended: bool,
    /// Where the last `]]>` and the last `-->` start, or later: behind these none is looked for.
    last_cdata_end: usize,
    last_comment_end: usize,
}

const CDATA_END: &[u8] = b"]]>";
const COMMENT_END: &[u8] = b"-->";

/// The answer depends on bytes that have not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct More;

/// A markup name's bytes: anything beyond ASCII is taken as part of it, since names are only
/// ever compared with known ones.
pub(super) const fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | 0x80..)
}

pub(super) const fn is_name_start(byte: u8) -> bool {
    is_name_byte(byte) && !matches!(byte, b'0'..=b'9' | b'-' | b'.' | b':')
}

pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8], ended: bool) -> Self {
        let last = |end: &[u8]| match ended {
            true => memmem::rfind(bytes, end).unwrap_or_default(),
            false => usize::MAX,
        };
        let (last_cdata_end, last_comment_end) = (last(CDATA_END), last(COMMENT_END));
        Self { bytes, ended, last_cdata_end, last_comment_end }
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

    /// For showing: what is not UTF-8 is replaced.
    pub fn lossy(&self, range: Range<usize>) -> Cow<'a, str> {
        String::from_utf8_lossy(self.slice(range))
    }

    /// `None` where the text is over, [`More`] where it may go on.
    pub fn end_or_more<T>(&self) -> Result<Option<T>, More> {
        if self.ended { Ok(None) } else { Err(More) }
    }

    pub fn starts(&self, at: usize, pattern: &[u8]) -> Result<bool, More> {
        let rest = self.rest(at);
        if rest.len() >= pattern.len() {
            return Ok(rest.starts_with(pattern));
        }
        if !self.ended && pattern.starts_with(rest) { Err(More) } else { Ok(false) }
    }

    pub fn find_byte(&self, byte: u8, from: usize) -> Result<Option<usize>, More> {
        match memchr(byte, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find_either(&self, a: u8, b: u8, from: usize) -> Result<Option<usize>, More> {
        match memchr2(a, b, self.rest(from)) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    pub fn find(&self, pattern: &[u8], from: usize) -> Result<Option<usize>, More> {
        match memmem::find(self.rest(from), pattern) {
            Some(found) => Ok(Some(from + found)),
            None => self.end_or_more(),
        }
    }

    /// The first place at or after `from` that is no white space.
    pub fn skip_space(&self, from: usize) -> usize {
        let rest = self.rest(from);
        from + rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len())
    }

    /// The place behind the end of a CDATA section whose inside starts at `from`.
    pub fn cdata_end(&self, from: usize) -> Result<Option<usize>, More> {
        if from > self.last_cdata_end {
            return Ok(None);
        }
        Ok(self.find(CDATA_END, from)?.map(|at| at + CDATA_END.len()))
    }

    /// The place behind the end of a comment whose inside starts at `from`.
    pub fn comment_end(&self, from: usize) -> Result<Option<usize>, More> {
        if from > self.last_comment_end {
            return Ok(None);
        }
        Ok(self.find(COMMENT_END, from)?.map(|at| at + COMMENT_END.len()))
    }

    /// Skips white space and comments. `None` where a comment never ends.
    pub fn skip_blank(&self, from: usize) -> Result<Option<usize>, More> {
        let mut at = self.skip_space(from);
        while self.starts(at, b"<!--")? {
            match self.comment_end(at + 4)? {
                Some(end) => at = self.skip_space(end),
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }
}
