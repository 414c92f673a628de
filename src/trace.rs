//! Trace context across programs: a W3C `traceparent`, and the ids of the spans beneath it.
//!
//! Span ids are not random: each is computed from the ids of its call and attempt, so that a
//! replay, or another reader of the journal, computes the same ids.

mod span;
mod tracer;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, CallId};

pub use span::{AttributeValue, Span, SpanKind};
pub use tracer::{SpanCounts, SpanReceiver, SpanTracer};

/// A trace, and the span in it that is the parent of new work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// Id of the trace. Never 0.
    trace: u128,
    /// Id of the parent span. Never 0.
    span: SpanId,
    flags: u8,
}

/// Id of a span, which is one piece of work of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

/// Trace flag of a sampled trace.
const SAMPLED: u8 = 1;

/// Error for a text that is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct BadTrace;

impl TraceParent {
    /// Returns the id of the trace as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    pub fn span(&self) -> SpanId {
        self.span
    }

    /// Whether the trace is sampled, that is, whether its spans are exported.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub fn is_of_trace(&self, other: &Self) -> bool {
        self.trace == other.trace
    }

    /// Returns the same trace, with `span` as the parent of new work.
    #[must_use]
    pub fn at(self, span: SpanId) -> Self {
        Self { span, ..self }
    }
}

impl SpanId {
    /// Returns the id of a call's span, which lasts from the request to the result.
    pub fn of_call(call: CallId) -> Self {
        let (_, low) = call.0.0.as_u64_pair();
        Self(low.max(1))
    }

    /// Returns the id of the span of one delivery of `call`.
    pub fn of_attempt(call: CallId, attempt: Attempt) -> Self {
        Self::of_call(call).mixed(u64::from(attempt.epoch) << 32 | u64::from(attempt.n))
    }

    /// Returns the id of the span for a listener's work within one delivery. `nth` distinguishes
    /// the spans of one delivery.
    pub fn within(self, nth: u64) -> Self {
        self.mixed(!nth)
    }

    /// Mixes `with` into the id, so that every bit of `with` affects every bit of the result.
    fn mixed(self, with: u64) -> Self {
        let mut bits = self.0 ^ with.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((bits ^ (bits >> 31)).max(1))
    }
}

/// Prints 16 hexadecimal digits.
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Prints the value of a `traceparent` header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Parses a `traceparent`. Also accepts later versions of the format, which begin with the fields
/// of this version and may append further fields.
impl FromStr for TraceParent {
    type Err = BadTrace;

    fn from_str(text: &str) -> Result<Self, BadTrace> {
        let mut parts = text.trim().splitn(5, '-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.bytes().all(is_digit).then(|| u128::from_str_radix(part, 16).ok()).flatten()
        };

        let all = (part(2), part(32), part(16), part(2));
        let (Some(version), Some(trace), Some(span), Some(flags)) = all else {
            return Err(BadTrace);
        };

        let more = parts.next().is_some();
        let span = u64::try_from(span).map_err(|_| BadTrace)?;
        if version == 0xff || (version == 0 && more) || trace == 0 || span == 0 {
            return Err(BadTrace);
        }

        let flags = u8::try_from(flags).unwrap_or_default() & SAMPLED;
        Ok(Self { trace, span: SpanId(span), flags })
    }
}

impl TryFrom<String> for TraceParent {
    type Error = BadTrace;

    fn try_from(text: String) -> Result<Self, BadTrace> {
        text.parse()
    }
}

impl From<TraceParent> for String {
    fn from(trace: TraceParent) -> Self {
        trace.to_string()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_no_traceparent_is_not_taken_for_one() {
        assert_eq!(GIVEN.parse::<TraceParent>().unwrap().to_string(), GIVEN);
        let later = GIVEN.replacen("00", "7f", 1) + "-more";
        assert_eq!(later.parse::<TraceParent>().unwrap().to_string(), GIVEN, "a later version");

        for wrong in [
            "",
            "00",
            &format!("{GIVEN}-more"),
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN.to_uppercase(),
            &GIVEN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GIVEN.replace("-01", "-1"),
            &GIVEN.replace("4bf9", "+bf9"),
            &GIVEN.replace("4bf9", "4b\u{e9}"),
        ] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(BadTrace), "{wrong}");
        }
    }

    #[test]
    fn spans_follow_from_ids_and_differ() {
        let call = |n: u128| CallId(MessageId(Uuid::from_u128(0x5 << 76 | 0x8 << 60 | n)));
        let mut seen = std::collections::HashSet::new();
        for n in 0..100 {
            assert!(seen.insert(SpanId::of_call(call(n))));
            for attempt in 1..20 {
                let span = SpanId::of_attempt(call(n), Attempt { epoch: 1, n: attempt });
                assert_eq!(span, SpanId::of_attempt(call(n), Attempt { epoch: 1, n: attempt }));
                assert!(seen.insert(span));
            }
        }
    }
}
