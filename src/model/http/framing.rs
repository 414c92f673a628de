//! Finds the end of a response's body (RFC 9112, section 6). Bytes after the body are ignored,
//! because a connection carries only one response.

use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use httparse::{Status, parse_chunk_size};

use super::HttpError;
use crate::limits;

/// Framing of the unread part of a response's body. The variant states how the end of the body is
/// found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The body ends after the given number of bytes.
    Length(u64),
    /// A line with the size of a chunk follows.
    ChunkSize,
    /// The current chunk ends after the given number of bytes.
    Chunk(u64),
    /// The bytes of a chunk are complete, and the line break that ends the chunk comes next.
    ChunkEnd,
    /// Trailer lines follow, up to an empty line.
    Trailers,
    /// The body ends when the connection closes.
    UntilClosed,
    /// The response is not valid HTTP.
    Broken,
}

/// Framing of a body of which no bytes remain, because the body is empty or has ended.
pub(super) const OVER: BodyFraming = BodyFraming::Length(0);

impl BodyFraming {
    /// Returns the framing of a response with the given status and headers.
    pub fn of(status: u16, headers: &HeaderMap) -> Result<Self, HttpError> {
        if matches!(status, 204 | 304) {
            return Ok(OVER);
        }

        if let Some(last) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let codings = last.to_str().map_err(|_| HttpError::Broken)?;
            let last = codings.rsplit(',').next().unwrap_or_default().trim();
            let is_chunked = last.eq_ignore_ascii_case("chunked");
            return Ok(if is_chunked { Self::ChunkSize } else { Self::UntilClosed });
        }

        let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(|value| {
            let digits =
                value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|text| text.parse().ok()).ok_or(HttpError::Broken)
        });
        let Some(length) = lengths.next().transpose()? else { return Ok(Self::UntilClosed) };

        // If two lengths differ, at least one of them is wrong.
        if lengths.all(|other| other.is_ok_and(|other: u64| other == length)) {
            Ok(Self::Length(length))
        } else {
            Err(HttpError::Broken)
        }
    }

    /// Appends the bytes of the body in `input` to `body`. Returns the number of bytes of `input`
    /// that were consumed.
    pub fn take(&mut self, input: &[u8], body: &mut Vec<u8>) -> usize {
        let mut rest = input;
        while !rest.is_empty() && *self != OVER {
            let Some((next, taken)) = self.step(rest, body) else { break };
            *self = next;
            rest = rest.get(taken..).unwrap_or_default();
        }

        input.len() - rest.len()
    }

    /// Decodes the next piece of the response from `rest`, the unread input. Appends the body bytes
    /// of this piece to `body`. Returns the next framing and the number of consumed input bytes.
    /// Returns `None` if more input is needed, or if the framing is already broken.
    fn step(self, rest: &[u8], body: &mut Vec<u8>) -> Option<(Self, usize)> {
        let step = match self {
            Self::Length(left) => {
                let taken = take(rest, left, body);
                (Self::Length(left - count(taken)), taken)
            }
            Self::Chunk(left) => {
                let taken = take(rest, left, body);
                let left = left - count(taken);
                (if left == 0 { Self::ChunkEnd } else { Self::Chunk(left) }, taken)
            }
            Self::ChunkEnd => match rest {
                [b'\r', b'\n', ..] => (Self::ChunkSize, 2),
                [b'\r'] => return None,
                _ => (Self::Broken, 0),
            },
            // The parser would read a line without digits as size 0, which ends the body.
            Self::ChunkSize if !rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                (Self::Broken, 0)
            }
            Self::ChunkSize => match parse_chunk_size(rest) {
                Ok(Status::Complete((taken, 0))) => (Self::Trailers, taken),
                Ok(Status::Complete((taken, size))) => (Self::Chunk(size), taken),
                Ok(Status::Partial) => return waits(rest),
                Err(_) => (Self::Broken, 0),
            },
            Self::Trailers => match memchr::memchr(b'\n', rest) {
                Some(0..=1) => (OVER, rest.len()),
                Some(at) => (self, at + 1),
                None => return waits(rest),
            },
            Self::UntilClosed => (self, take(rest, u64::MAX, body)),
            Self::Broken => return None,
        };

        Some(step)
    }
}

/// Handles a line whose end has not arrived. If the line is already too long, returns
/// [`BodyFraming::Broken`]. Otherwise, returns `None`, so that the caller waits for more input.
fn waits(line: &[u8]) -> Option<(BodyFraming, usize)> {
    (line.len() >= limits::HTTP_HEAD_BYTES_MAX).then_some((BodyFraming::Broken, 0))
}

/// Appends at most `most` bytes of `input` to `body`. Returns the number of appended bytes.
fn take(input: &[u8], most: u64, body: &mut Vec<u8>) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let part = input.get(..most).unwrap_or(input);
    body.extend_from_slice(part);
    part.len()
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
