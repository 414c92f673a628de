//! Answers of models.

use tokio::time::Instant;

use super::error::Error;

/// A piece of an answer, as it streams in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerChunk<'a> {
    /// The answer itself.
    Text(&'a str),
    /// Reasoning text that the provider shows: recorded, never acted on.
    Reasoning(&'a str),
    /// So many bytes that are handed out with the end, such as those of a native call.
    Withheld(usize),
    /// No request leaves for now: the provider asked for a pause, which ends then. Repeated for as
    /// long as the pause lasts.
    Waiting(&'a ModelRoute, Instant),
    /// This request failed, and another one may follow.
    Failed(&'a Error),
    /// The answer begins anew: what was handed out before this is void.
    Restart,
}

/// A native call, complete: calls that were cut off by the end of a stream are not handed out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// The provider's.
    pub id: String,
    pub name: String,
    /// JSON as the model wrote it, verbatim; not checked here.
    pub arguments: String,
}

/// A provider's own block, verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnBlock {
    /// The route's provider that wrote it.
    pub provider: String,
    /// As JSON text.
    pub json: String,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It had said what it had to say.
    Normal,
    /// It waits for the results of its native calls.
    Calls,
    /// The answer reached its maximum length: the text may be cut short.
    Length,
    /// The provider, or the model, would not answer.
    Refused,
    /// The provider gave no reason, or one that is not known here.
    Unknown,
}

impl StopReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Calls => "calls",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// Tokens as the provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Part of `tokens_in` that was read from, and written to, the provider's prompt cache.
    pub cached: u64,
    pub cache_written: u64,
    /// The provider did not say: these were counted here.
    pub estimated: bool,
}

impl TokenUsage {
    /// With what else was used for the same answer.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            tokens_in: self.tokens_in.saturating_add(other.tokens_in),
            tokens_out: self.tokens_out.saturating_add(other.tokens_out),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// The terminator of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEnd {
    pub stop: StopReason,
    pub usage: TokenUsage,
    /// In the order in which the model made them.
    pub calls: Vec<ToolCall>,
    /// Where a block stands among text and calls is the provider's business.
    pub own: Vec<OwnBlock>,
    /// Route that answered.
    pub route: ModelRoute,
    /// The model that answered, as its provider says it.
    pub model: Option<String>,
}

/// A provider and one of its models.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelRoute {
    /// As the config names it.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
}

impl std::fmt::Display for ModelRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}
