//! The frames between a host and its child (docs/PROTOCOL.md, sections 2 to 6).

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::bus::Delivery;
use crate::envelope::{Message, NAMESPACE};
use crate::ids::CallId;
use crate::limits;

/// Ends every frame. XML cannot contain it.
const END: u8 = 0;
const READ_BYTES: usize = 64 << 10;

/// Appends a delivery frame (section 3).
pub(super) fn write_delivery(out: &mut Vec<u8>, delivery: &Delivery) {
    let Delivery { listener, call, thread, attempt, messages, fresh, .. } = delivery;
    let timeout = duration(delivery.timeout);
    put(
        out,
        format_args!(
            "<e:delivery xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\" \
             listener=\"{listener}\" thread=\"{thread}\" timeout=\"{timeout}\">"
        ),
    );
    let known = messages.len().saturating_sub(*fresh);
    for (index, message) in messages.iter().enumerate() {
        write_message(out, message, index >= known);
    }
    out.extend_from_slice(b"</e:delivery>\0");
}

fn write_message(out: &mut Vec<u8>, message: &Message, new: bool) {
    let Message { id, seq, from, to, thread, time, .. } = message;
    let kind = message.kind.as_str();
    let new = if new { " new=\"true\"" } else { "" };
    put(out, format_args!("<e:message id=\"{id}\" kind=\"{kind}\" seq=\"{seq}\"{new}><e:meta>"));
    put(out, format_args!("<e:from>{from}</e:from><e:to>{to}</e:to>"));
    put(out, format_args!("<e:thread>{thread}</e:thread>"));
    if let Some(cause) = message.cause {
        put(out, format_args!("<e:cause>{cause}</e:cause>"));
    }
    if let Some(call) = message.call {
        put(out, format_args!("<e:call>{call}</e:call>"));
    }
    put(out, format_args!("<e:time>{time}</e:time></e:meta>"));
    out.extend_from_slice(message.payload.as_str().as_bytes());
    out.extend_from_slice(b"</e:message>");
}

/// Appends a cancel frame (section 6).
pub(super) fn write_cancel(out: &mut Vec<u8>, call: CallId) {
    put(out, format_args!("<cancel call=\"{call}\"/>\0"));
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory does not fail");
}

/// An XSD duration in seconds.
fn duration(length: Duration) -> String {
    match length.subsec_millis() {
        0 => format!("PT{}S", length.as_secs()),
        millis => format!("PT{}.{millis:03}S", length.as_secs()),
    }
}

/// What a child said in one frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Heartbeat,
    /// The payloads of the answer, or why they cannot be told apart.
    Answer(Result<Vec<Vec<u8>>, String>),
}

pub(super) fn read(frame: &[u8]) -> Said {
    match frame.trim_ascii() {
        b"<heartbeat/>" | b"<heartbeat />" => Said::Heartbeat,
        frame => Said::Answer(payloads(frame)),
    }
}

fn payloads(frame: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let ranges = split(frame)?;
    if ranges.len() > limits::OUTCOME_PAYLOADS_MAX {
        let (count, max) = (ranges.len(), limits::OUTCOME_PAYLOADS_MAX);
        return Err(format!("{count} payloads in one answer, at most {max} are taken"));
    }
    Ok(ranges.into_iter().filter_map(|range| frame.get(range)).map(<[u8]>::to_vec).collect())
}

/// Temporary: until `xml::scan::split` is here.
fn split(frame: &[u8]) -> Result<Vec<std::ops::Range<usize>>, String> {
    use quick_xml::events::Event;
    let text = std::str::from_utf8(frame).map_err(|e| format!("not UTF-8: {e}"))?;
    let mut reader = quick_xml::Reader::from_str(text);
    let mut ranges = Vec::new();
    loop {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let begin = at(reader.buffer_position());
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(start) => {
                reader.read_to_end(start.name()).map_err(|e| e.to_string())?;
                ranges.push(begin..at(reader.buffer_position()));
            }
            Event::Empty(_) => ranges.push(begin..at(reader.buffer_position())),
            Event::Text(text) if text.trim_ascii().is_empty() => {}
            Event::Eof => return Ok(ranges),
            other => return Err(format!("expected an element, got {other:?}")),
        }
    }
}

/// Why no further frame can be read.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The child closed its output, after this many bytes of an unfinished frame.
    Closed {
        unfinished: usize,
    },
    TooLong,
    Failed(io::Error),
}

/// Frames out of a stream of bytes, into one buffer that is used again and again.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    buffer: Vec<u8>,
    /// Bytes before this belong to frames already given out.
    start: usize,
    /// No end mark before this.
    scanned: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), start: 0, scanned: 0 }
    }

    /// The next frame, without its end mark. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<&[u8], Stopped> {
        let range = loop {
            let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(found) = memchr::memchr(END, unseen) {
                let end = self.scanned + found;
                let begin = std::mem::replace(&mut self.start, end + 1);
                self.scanned = self.start;
                break begin..end;
            }
            self.scanned = self.buffer.len();
            self.fill().await?;
        };
        if range.len() > limits::FRAME_BYTES_MAX {
            return Err(Stopped::TooLong);
        }
        Ok(self.buffer.get(range).unwrap_or_default())
    }

    async fn fill(&mut self) -> Result<(), Stopped> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.len() > limits::FRAME_BYTES_MAX {
            return Err(Stopped::TooLong);
        }
        self.buffer.reserve(READ_BYTES);
        match self.from.read_buf(&mut self.buffer).await {
            Ok(0) => Err(Stopped::Closed { unfinished: self.buffer.len() }),
            Ok(_) => Ok(()),
            Err(error) => Err(Stopped::Failed(error)),
        }
    }

    /// Whether bytes have come behind the last frame given out.
    pub fn has_more(&self) -> bool {
        self.start < self.buffer.len()
    }
}
