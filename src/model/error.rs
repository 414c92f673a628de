//! Why a model call came to nothing.

use super::answer::Route;

/// Every way a model call can fail; each says whether trying again may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "no turn is recorded for agent `{agent}`, {thread}, turn {turn} in {recording}; \
         record the run again or add the turn"
    )]
    NotRecorded { agent: String, thread: String, turn: u32, recording: String },
    #[error("{route}: the request was rejected (HTTP {status}): {message}")]
    Rejected { route: Route, status: u16, message: String },
    #[error("the stream of {route} ended after {bytes} bytes without its terminator")]
    Cut { route: Route, bytes: usize },
    #[error("the answer of {route} is longer than {max} bytes")]
    TooLong { route: Route, max: usize },
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_retried(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }

    /// What the model itself can do something about: the provider would not take what it was
    /// sent.
    pub fn feedback(&self) -> Option<&str> {
        match self {
            Self::Rejected { message, .. } => Some(message),
            _ => None,
        }
    }
}
