//! A person's decision about a held call, from the command that takes it to the record.

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::ids::ListenerName;

/// A decision about a held call. `A` is the form of an answer: bytes in a request, a payload after
/// the gate in an event, a verdict in a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision<A> {
    /// `hash` is the digest of the payload that the operator looked at, or its first digits.
    #[serde(rename = "approve")]
    Approve {
        #[serde(rename = "hash")]
        hash: String,
    },
    #[serde(rename = "refuse")]
    Refuse {
        #[serde(rename = "reason")]
        reason: String,
    },
    /// An answer in the name of a human listener.
    #[serde(rename = "answer")]
    Answer(A),
}

/// An answer as recorded: the payload itself is among the messages or refusals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    #[serde(rename = "listener")]
    pub listener: ListenerName,
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
}

impl<A> Decision<A> {
    /// The same decision with a borrowed answer.
    pub fn as_ref(&self) -> Decision<&A> {
        match self {
            Self::Approve { hash } => Decision::Approve { hash: hash.clone() },
            Self::Refuse { reason } => Decision::Refuse { reason: reason.clone() },
            Self::Answer(answer) => Decision::Answer(answer),
        }
    }

    /// The same decision with another form of its answer.
    pub fn map_answer<B>(self, form: impl FnOnce(A) -> B) -> Decision<B> {
        match self {
            Self::Approve { hash } => Decision::Approve { hash },
            Self::Refuse { reason } => Decision::Refuse { reason },
            Self::Answer(answer) => Decision::Answer(form(answer)),
        }
    }

    /// The verb of the command that takes this decision.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Refuse { .. } => "refuse",
            Self::Answer(_) => "answer",
        }
    }
}
