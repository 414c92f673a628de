//! Answers of models: the pieces of a streamed answer, and the summary at its end.

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::word_enum::word_enum;

use super::error::Error;
use super::wire::WireSettings;

/// A piece of a streamed answer, or an event between two attempts to get the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerChunk<'a> {
    /// Text of the answer.
    Text(&'a str),
    /// Reasoning text that the provider shows. The text is recorded and causes no action.
    Reasoning(&'a str),
    /// Number of newly arrived bytes that the receiver gets only after the stream has ended, such
    /// as the bytes of a native call.
    Withheld(usize),
    /// The first event of the answer's stream has been read, so the provider has read the prompt.
    Begun,
    /// No request is sent to the route until the given instant, because the provider requested a
    /// pause. This event is sent repeatedly during the pause.
    Waiting(&'a ModelRoute, Instant),
    /// The request is not sent yet, because the configured limits of the model are reached. This
    /// event is sent repeatedly until the request is sent.
    Queued,
    /// A request failed with the given error. Another request may follow.
    Failed(&'a Error),
    /// The answer begins again with a new request. The receiver must discard all pieces of the
    /// answer that it has received so far.
    Restart,
}

/// A complete tool call that a model made natively, that is, in the provider's own format. A call
/// that was cut off at the end of a stream is never returned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Id of the call, as the provider states it.
    pub id: String,
    pub name: String,
    /// Arguments as the model wrote them, as JSON text that is not checked here.
    pub arguments: String,
}

/// Removes the last call of an answer that was cut short, if the call's arguments are not a
/// complete JSON value. A call without any arguments is also removed, because the cut may have come
/// before its arguments.
pub fn remove_cut_call(calls: &mut Vec<ToolCall>) {
    if calls.last().is_some_and(|call| !is_whole_json(&call.arguments)) {
        calls.pop();
    }
}

/// Whether the text is one complete JSON value.
pub fn is_whole_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// A block of an answer, kept verbatim. Only the provider that wrote the block can read the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnBlock {
    /// Provider of the route that wrote the block.
    pub provider: String,
    /// The block as JSON text.
    pub json: String,
}

word_enum! {
    /// Reason why a model stopped writing its answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum StopReason {
        /// The model ended its answer by itself. Also stands for a complete stream in which the
        /// provider gave no reason.
        Normal = "normal",
        /// The model stopped in order to get the results of its native calls.
        Calls = "calls",
        /// The answer reached its maximum length, or the context window was full, so its text may
        /// be cut short.
        Length = "length",
        /// The provider or the model declined to answer.
        Refused = "refused",
        /// The provider gave a reason that this program does not know.
        Unknown = "unknown",
    }
}

impl StopReason {
    /// Whether the provider states that it cut the answer short.
    pub const fn is_cut(self) -> bool {
        matches!(self, Self::Length | Self::Refused)
    }

    /// Whether the answer may be cut short, so that its last call may be incomplete. Returns true
    /// for a stop reason that means a cut, and for a reason that this program does not know.
    pub const fn may_be_cut(self) -> bool {
        self.is_cut() || matches!(self, Self::Unknown)
    }
}

/// Token counts of one answer and of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Part of `tokens_in` that the provider read from its prompt cache.
    pub cached: u64,
    /// Part of `tokens_in` that the provider wrote to its prompt cache.
    pub cache_written: u64,
    /// Whether `tokens_in` or `tokens_out` is an estimate, because the provider did not report this
    /// count.
    pub estimated: bool,
}

impl TokenUsage {
    /// Adds the usage of another request that was made for the same answer.
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

/// Summary of an answer. A model call returns a summary only if the stream of the answer ended with
/// its terminator.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEnd {
    pub stop: StopReason,
    pub usage: TokenUsage,
    /// Native calls in the order in which the model made them.
    pub calls: Vec<ToolCall>,
    /// Blocks that only their provider can read. The provider's wire format determines their places
    /// among the text and the calls.
    pub own: Vec<OwnBlock>,
    /// The route that answered.
    pub route: ModelRoute,
    /// Settings of the request that was answered. The settings distinguish routes that have the
    /// same provider and the same name of the model. `None` if the request was not sent over a
    /// network.
    pub settings: Option<WireSettings>,
    /// Name of the model that answered, as its provider reports it; `None` if the provider reports
    /// none.
    pub model: Option<String>,
}

/// A provider and one of its models.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelRoute {
    /// Name of the provider in the config.
    pub provider: String,
    /// Name of the model at its provider.
    pub model: String,
}

impl ModelRoute {
    /// Returns the router's name for the route. `place` is the number of earlier routes of the
    /// router with the same provider and model; a number distinguishes the later ones.
    pub(super) fn router_name(&self, place: usize) -> String {
        match place {
            0 => self.to_string(),
            place => format!("{self}#{}", place + 1),
        }
    }
}

impl std::fmt::Display for ModelRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}
