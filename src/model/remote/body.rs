//! Distinguishes event streams from other response bodies.

use crate::limits;
use crate::model::http::HttpResponse;

/// Beginnings of the lines of an event stream: its fields, and comments.
const STREAM_LINES: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

/// Number of bytes of a line that show whether it begins like one of [`STREAM_LINES`].
const STREAM_LINE_BYTES: usize = 6;

/// Whether the headers of a response permit an event stream as its body. The status must be 200,
/// and the content type must not be HTML, JSON or XML. A response with plain text, or without a
/// content type, is accepted.
pub(super) fn is_stream(answer: &HttpResponse) -> bool {
    let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
    let is_other = kind.contains("html") || kind.contains("json") || kind.contains("xml");
    answer.status() == 200 && !is_other
}

/// Whether the body of a response is an event stream although its content type is another one. Some
/// gateways label a stream as JSON. Waits for the first bytes of the body that are no white space,
/// because some servers send white space to keep the connection alive. Leaves all bytes unread.
pub(super) async fn is_mislabelled_stream(answer: &mut HttpResponse) -> bool {
    answer.status() == 200 && begins_stream(answer.peek(shows_kind).await)
}

/// Whether the beginning of a body is long enough to show whether the body is an event stream. White
/// space counts only if there is too much of it.
fn shows_kind(text: &[u8]) -> bool {
    let is_long_enough = first_line(text).len() >= STREAM_LINE_BYTES;
    is_long_enough || begins_stream(text) || text.len() >= limits::ERROR_BODY_BYTES_MAX
}

fn begins_stream(text: &[u8]) -> bool {
    STREAM_LINES.iter().any(|line| first_line(text).starts_with(line))
}

/// Returns the text after a byte order mark and white space.
fn first_line(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text).trim_ascii_start()
}

/// Returns the name of the compression of a response body, such as `gzip`. Returns `None` if the
/// body is not compressed.
pub(super) fn coding(answer: &HttpResponse) -> Option<&str> {
    let coding = answer.header("content-encoding")?.trim();
    let is_plain = coding.is_empty() || coding.eq_ignore_ascii_case("identity");
    (!is_plain).then_some(coding)
}

/// The beginning of a response body. The bytes are kept until the first event is read.
#[derive(Debug, Default)]
pub(super) struct AnswerHead {
    kept: Vec<u8>,
    is_over: bool,
}

impl AnswerHead {
    pub fn keep(&mut self, piece: &[u8]) {
        if !self.is_over {
            let room = limits::ERROR_BODY_BYTES_MAX.saturating_sub(self.kept.len());
            self.kept.extend(piece.iter().take(room));
        }
    }

    /// Drops the kept bytes. Called after the first event, because an event proves that the body is
    /// a stream.
    pub fn forget(&mut self) {
        self.is_over = true;
        self.kept = Vec::new();
    }

    /// Returns the kept beginning of the body if it is another text than an event stream, such as a
    /// JSON document or an HTML page. Otherwise returns `None`.
    pub fn instead(&self) -> Option<&[u8]> {
        let is_empty = self.kept.trim_ascii().is_empty();
        (!is_empty && !begins_stream(&self.kept)).then_some(&self.kept)
    }
}
