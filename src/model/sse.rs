//! Decodes server-sent events from a stream, however the stream is cut into pieces.
//!
//! Follows the "event stream interpretation" of the HTML standard: lines end with LF, CR or CRLF,
//! the stream may begin with a byte order mark, comments are skipped, and several `data` lines form
//! one text. This module must not know the meaning of events.

use memchr::memchr2;
use serde::Deserialize;

use crate::limits;

/// One server-sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Name of the event; empty if the stream gave none.
    pub name: &'a str,
    /// Data of the event. The data is UTF-8 only if the server follows the standard.
    pub data: &'a [u8],
}

impl<'a> SseEvent<'a> {
    /// Parses the event's data as JSON.
    pub fn json<T: Deserialize<'a>>(&self) -> serde_json::Result<T> {
        // The text is checked for UTF-8 once here, so that the JSON reader need not check each
        // string.
        match std::str::from_utf8(self.data) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(self.data),
        }
    }
}

/// A line or an event was longer than its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {} bytes", limits::STREAM_EVENT_BYTES_MAX)]
pub struct OverlongEvent;

/// Decoder of a stream of bytes into events.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// A line whose end has not been read yet.
    line: Vec<u8>,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the previous line ended with CR. If so, a following LF belongs to the same line end.
    after_cr: bool,
    after_first_line: bool,
    /// Whether the caller has already received the current event. If so, the event is dropped
    /// before the next one is read.
    is_old: bool,
}

impl SseDecoder {
    /// Reads the next event from the front of `input`, and removes the bytes that were read.
    /// Returns `None` if `input` ends before the event ends.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<SseEvent<'_>>, OverlongEvent> {
        self.forget_old();

        loop {
            if self.after_cr && !input.is_empty() {
                *input = input.strip_prefix(b"\n").unwrap_or(input);
                self.after_cr = false;
            }

            let Some(at) = memchr2(b'\r', b'\n', input) else {
                self.keep(input)?;
                *input = &[];
                return Ok(None);
            };

            let (head, rest) = input.split_at(at);
            let (end, rest) = rest.split_at(1);
            self.after_cr = end == b"\r";
            *input = rest;

            if self.end_line(head)? {
                self.is_old = true;
                return Ok(Some(SseEvent { name: &self.name, data: &self.data }));
            }
        }
    }

    /// Must be called at the end of the stream. Returns the last event if the empty line that
    /// should complete it is missing; otherwise `None`.
    pub fn unfinished(&mut self) -> Result<Option<SseEvent<'_>>, OverlongEvent> {
        self.forget_old();
        self.end_line(&[])?;
        Ok(self.has_data.then_some(SseEvent { name: &self.name, data: &self.data }))
    }

    fn forget_old(&mut self) {
        if self.is_old {
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            self.is_old = false;
        }
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), OverlongEvent> {
        if self.line.len() + part.len() > limits::STREAM_LINE_BYTES_MAX {
            return Err(OverlongEvent);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Completes a line with its last part, `last`. Returns whether the line completed an event.
    fn end_line(&mut self, last: &[u8]) -> Result<bool, OverlongEvent> {
        if self.line.is_empty() {
            return self.read_line(last);
        }

        self.keep(last)?;
        let mut line = std::mem::take(&mut self.line);
        let read = self.read_line(&line);
        line.clear();
        self.line = line;
        read
    }

    fn read_line(&mut self, line: &[u8]) -> Result<bool, OverlongEvent> {
        let line = if std::mem::replace(&mut self.after_first_line, true) {
            line
        } else {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        };

        if line.is_empty() {
            if !self.has_data {
                self.name.clear();
            }
            return Ok(self.has_data);
        }

        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);

        match field {
            b"data" => self.add(value)?,
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            _ => {}
        }

        Ok(false)
    }

    fn add(&mut self, value: &[u8]) -> Result<(), OverlongEvent> {
        if self.data.len() + value.len() >= limits::STREAM_EVENT_BYTES_MAX {
            return Err(OverlongEvent);
        }

        if self.has_data {
            self.data.push(b'\n');
        }

        self.data.extend_from_slice(value);
        self.has_data = true;
        Ok(())
    }
}
