//! Models: what a provider is asked and what it answers, the same for every provider.
//!
//! An answer is a stream of text that must end with its terminator: a stream that stops without
//! one is an [`Error`], never a short success. Must not know agents, threads' state, the journal
//! or the pump.

pub mod playback;

use crate::ids::{ListenerName, ThreadId};

pub use playback::Playback;

/// Who wrote a part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    User,
    Assistant,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// Whose turn a request is: providers that bill ignore it, playback finds its recording by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub agent: ListenerName,
    pub thread: ThreadId,
    /// From 1, counted over all turns this agent took in this thread.
    pub turn: u32,
}

impl Origin {
    /// The labels beneath the root, such as `research.sources`; empty for a root.
    pub fn labels(&self) -> &str {
        self.thread.as_str().split_once('.').map_or("", |(_, labels)| labels)
    }
}

/// One model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub origin: Origin,
    pub system: String,
    /// Oldest first; the roles alternate, the first and the last are the user's.
    pub messages: Vec<(Role, String)>,
    /// In tokens.
    pub max_tokens: Option<u32>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It had said what it had to say.
    Normal,
    /// The answer reached its maximum length: the text may be cut short.
    Length,
    /// The provider gave no reason, or one that is not known here.
    Unknown,
}

impl StopReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Length => "length",
            Self::Unknown => "unknown",
        }
    }
}

/// Tokens as the provider counted them, or an estimate where it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// The terminator of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub stop: StopReason,
    pub usage: Usage,
}

/// Why a model call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "no turn is recorded for agent `{agent}`, {thread}, turn {turn} in {recording}; \
         record the run again or add the turn"
    )]
    NotRecorded { agent: String, thread: String, turn: u32, recording: String },
    #[error("the stream of {route} ended after {bytes} bytes without its terminator")]
    Cut { route: String, bytes: usize },
    #[error("the answer of {route} is longer than {max} bytes")]
    TooLong { route: String, max: usize },
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_retried(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }
}

/// A model behind a provider. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Model {
    Playback(Playback),
}

impl Model {
    /// Sends the request; `on_chunk` gets the answer's text piece by piece, in order.
    pub async fn call(
        &self,
        request: &Request,
        on_chunk: &mut (dyn FnMut(&str) + Send),
    ) -> Result<End, Error> {
        match self {
            Self::Playback(playback) => playback.call(request, on_chunk).await,
        }
    }

    pub const fn provider(&self) -> &'static str {
        match self {
            Self::Playback(_) => "playback",
        }
    }

    /// What the provider calls the model.
    pub fn name(&self) -> &str {
        match self {
            Self::Playback(playback) => playback.name(),
        }
    }
}
