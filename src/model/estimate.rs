//! Estimates the token counts that a provider did not report: one token for every four bytes.

use serde_json::Value as Json;

use super::answer::TokenUsage;
use super::request::ModelRequest;
use super::tokens;
use crate::limits;

/// Token counts that the provider reported; `None` for a count that the provider did not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReportedUsage {
    pub tokens_in: Option<u64>,
    pub tokens_out: Option<u64>,
    pub cached: Option<u64>,
    pub cache_written: Option<u64>,
}

impl ReportedUsage {
    /// Drops the counts that a provider reported as 0 by mistake. Some gateways report 0 in place
    /// of a count that they do not know. The input has at least one token, and so has the output if
    /// the answer has at least one byte. `bytes_out` is the size of the answer in bytes.
    #[must_use]
    pub fn without_false_zeros(self, bytes_out: usize) -> Self {
        Self {
            tokens_in: self.tokens_in.filter(|tokens| *tokens > 0),
            tokens_out: self.tokens_out.filter(|tokens| *tokens > 0 || bytes_out == 0),
            ..self
        }
    }

    /// Returns the counts of the request and its answer. A count of the input or of the output that
    /// the provider did not report is estimated. Any other missing count becomes 0. `bytes_out` is
    /// the size of the answer in bytes.
    pub fn or_estimate(self, request: &ModelRequest, bytes_out: usize) -> TokenUsage {
        TokenUsage {
            tokens_in: self.tokens_in.unwrap_or_else(|| of_request(request)),
            tokens_out: self.tokens_out.unwrap_or_else(|| of_bytes(bytes_out)),
            cached: self.cached.unwrap_or_default(),
            cache_written: self.cache_written.unwrap_or_default(),
            estimated: self.tokens_in.is_none() || self.tokens_out.is_none(),
        }
    }
}

/// Returns the estimated tokens of a request, including its tools.
pub(super) fn of_request(request: &ModelRequest) -> u64 {
    of_bytes(tokens::bytes(request))
}

pub(super) fn of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Reads a token count that a provider reported. Returns `None` if the value is not a whole number,
/// or is impossibly large.
pub(super) fn plausible(json: Option<&Json>) -> Option<u64> {
    json.and_then(Json::as_u64).filter(|tokens| *tokens <= limits::TOKENS_CEILING)
}
