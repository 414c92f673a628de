//! Distinguishes event streams from other response bodies.

use super::error_response::looks_like_html;
use crate::limits;
use crate::model::http::HttpResponse;

/// Whether a response may have an event stream as its body. The status of the response must be 200,
/// and the content type must not be HTML, JSON or XML. A response with plain text, or without a
/// content type, is accepted.
pub(super) fn is_stream(answer: &HttpResponse) -> bool {
    let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
    let is_other = kind.contains("html") || kind.contains("json") || kind.contains("xml");
    answer.status() == 200 && !is_other
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

    /// Returns the kept beginning of the body if it is a JSON document or an HTML page. Otherwise
    /// returns `None`, because the body may be a stream.
    pub fn instead(&self) -> Option<&[u8]> {
        let text = self.kept.trim_ascii_start();
        (text.starts_with(b"{") || looks_like_html(text)).then_some(&self.kept)
    }
}
