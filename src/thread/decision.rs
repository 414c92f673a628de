//! A person's decision about a held call: its form in a request, in an event of the pump, and in
//! the journal record.

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::ids::ListenerName;

/// A person's decision about a held call. `A` is the type of an answer: bytes in a request, a
/// payload in an event of the pump, or the gate's verdict in a journal record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision<A> {
    /// Approves the payload that an operator has read. `hash` is the digest of that payload, or the
    /// first digits of the digest. `preview` is the digest of the call's preview, if the operator
    /// has read a preview.
    #[serde(rename = "approve")]
    Approve {
        #[serde(rename = "hash")]
        hash: String,
        #[serde(rename = "preview", default, skip_serializing_if = "Option::is_none")]
        preview: Option<String>,
    },
    #[serde(rename = "refuse")]
    Refuse {
        #[serde(rename = "reason")]
        reason: String,
    },
    /// Answers the question of the held call, in the name of the human listener to whom the
    /// question is addressed.
    #[serde(rename = "answer")]
    Answer(A),
}

/// The recorded form of an answer. The record contains the answer's payload in a message or, if the
/// payload was refused, in a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    #[serde(rename = "listener")]
    pub listener: ListenerName,
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
}

impl<A> Decision<A> {
    /// Borrows the answer, as [`Option::as_ref`] borrows a value. An approval or a refusal is
    /// copied.
    pub fn as_ref(&self) -> Decision<&A> {
        match self {
            Self::Approve { hash, preview } => {
                Decision::Approve { hash: hash.clone(), preview: preview.clone() }
            }
            Self::Refuse { reason } => Decision::Refuse { reason: reason.clone() },
            Self::Answer(answer) => Decision::Answer(answer),
        }
    }

    /// Converts the answer of the decision with `form`. Returns an approval or a refusal unchanged.
    pub fn map_answer<B>(self, form: impl FnOnce(A) -> B) -> Decision<B> {
        match self {
            Self::Approve { hash, preview } => Decision::Approve { hash, preview },
            Self::Refuse { reason } => Decision::Refuse { reason },
            Self::Answer(answer) => Decision::Answer(form(answer)),
        }
    }

    /// Returns the name of the subcommand that submits a decision of this kind.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Refuse { .. } => "refuse",
            Self::Answer(_) => "answer",
        }
    }
}
