//! What an attempt came to: a model's turn, or a failure.

use serde::{Deserialize, Serialize};

use super::{Money, Rule, Spending};
use crate::ids::Digest;
use crate::xml::findings::{Finding, TextLocation};

/// The record of one model call, carried in an agent's outcome and written down by the core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The `<model-turn>` payload, complete, ready to be recorded as a note.
    #[serde(rename = "note")]
    pub note: String,
    /// What in the model's text was no payload: each defect, told to the agent in one `huh`.
    #[serde(rename = "findings")]
    pub findings: Vec<Finding>,
    /// Payloads of this turn that were recognised but cannot be dispatched (cut short,
    /// malformed): each is refused on the record and answered with its own `huh`.
    #[serde(rename = "broken")]
    pub broken: Vec<Broken>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: u64,
    #[serde(rename = "tokens_out")]
    pub tokens_out: u64,
    /// What it cost, where the config says what tokens cost.
    #[serde(rename = "money", default, skip_serializing_if = "Money::is_zero")]
    pub money: Money,
    /// Set when this was the last turn the agent may take in this call and it did not end it.
    #[serde(rename = "spent")]
    pub spent: Option<Spent>,
    /// Where its payloads stand in what the model wrote. Not recorded with the turn: refusals
    /// carry their own place.
    #[serde(rename = "written", default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<WrittenPayload>,
    /// What the model was sent besides the thread. Not recorded with the turn: the journal keeps it
    /// by its digest, which the note names.
    #[serde(rename = "inputs", default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
}

/// A payload of a turn, as the model wrote it: its refusal names this place, not one in the
/// payload, which the model never saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenPayload {
    #[serde(rename = "payload")]
    pub payload: Digest,
    /// Without a line where the model wrote no XML.
    #[serde(rename = "place")]
    pub place: TextLocation,
    /// How the model would write it right, where that is not the payload's own form.
    #[serde(rename = "expected", default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// A recognised action of a model's text that is not complete or not well-formed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// Its index among all actions of the turn, so that feedback keeps the order.
    #[serde(rename = "index")]
    pub index: usize,
    /// As the model wrote it.
    #[serde(rename = "attempt")]
    pub attempt: String,
    #[serde(rename = "finding")]
    pub finding: Finding,
}

/// A request to a model that failed: where it went, and why it came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTry {
    #[serde(rename = "route")]
    pub route: String,
    /// In one word, as in [`Failure::Model`].
    #[serde(rename = "reason")]
    pub reason: String,
}

impl Broken {
    /// The rule that it is refused by.
    pub fn rule(&self) -> Rule {
        Rule::of_finding(&self.finding.code)
    }
}

/// How an agent ran out of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spent {
    /// No turn held a valid action.
    #[serde(rename = "never-valid")]
    NeverValid,
    /// The last turn called a tool whose result can no longer be used.
    #[serde(rename = "after-last-call")]
    AfterLastCall,
    /// The conversation outgrew the model's context window: this turn was made the last.
    #[serde(rename = "window-full")]
    WindowFull,
}

/// Why an attempt came to nothing. Crashed, unreachable and lost attempts are retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind")]
pub enum Failure {
    /// The handler ended without an answer: a panic, an exit, a signal.
    #[error("crashed: {detail}")]
    #[serde(rename = "crashed")]
    Crashed {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// Nothing took the delivery: the program is missing, or its restarts are used up.
    #[error("unreachable: {detail}")]
    #[serde(rename = "unreachable")]
    Unreachable {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler had it, and what became of it will never be known: the pump that handed it over
    /// has ended, or the way to the handler broke.
    #[error("lost: {detail}")]
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler says it cannot do it; not retried.
    #[error("{detail}")]
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler's model broke off, or its answer cannot be taken; what was heard of it is paid
    /// for. Older hosts of agents report this; those of today report [`Failure::Model`].
    #[error("{detail}")]
    #[serde(rename = "cut-short")]
    CutShort {
        #[serde(rename = "detail")]
        detail: String,
        #[serde(rename = "spent")]
        spent: Spending,
        #[serde(rename = "retried")]
        retried: bool,
    },
    /// The model call came to nothing. What its requests took is charged, and no attempt repeats
    /// them: the model's router has made all retries that are allowed.
    #[error("{detail}")]
    #[serde(rename = "model")]
    Model {
        /// In one word, such as `timeout`, `denied` or `cancelled`.
        #[serde(rename = "reason")]
        reason: String,
        #[serde(rename = "detail")]
        detail: String,
        #[serde(rename = "spent")]
        spent: Spending,
        /// Whether the same request may succeed later.
        #[serde(rename = "passing", default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
        /// Requests that failed, in their order.
        #[serde(rename = "tries", default, skip_serializing_if = "Vec::is_empty")]
        tries: Vec<RouteTry>,
    },
    /// A budget has no room for what the handler would take; not retried.
    #[error("{detail}")]
    #[serde(rename = "spent")]
    Spent {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// What the handler was given is more than it can take in; not retried.
    #[error("{detail}")]
    #[serde(rename = "too-large")]
    TooLarge {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The answer cannot be read as frames; not retried.
    #[error("unreadable answer: {detail}")]
    #[serde(rename = "garbage")]
    Garbage {
        #[serde(rename = "detail")]
        detail: String,
    },
}

impl Failure {
    pub fn is_retried(&self) -> bool {
        match self {
            Self::Crashed { .. } | Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::CutShort { retried, .. } => *retried,
            Self::Refused { .. }
            | Self::Garbage { .. }
            | Self::Model { .. }
            | Self::Spent { .. }
            | Self::TooLarge { .. } => false,
        }
    }

    /// Which kind of failure, in the order of the variants.
    pub const WORDS: [&str; 9] = [
        "crashed",
        "unreachable",
        "lost",
        "refused",
        "cut-short",
        "model",
        "budget-spent",
        "too-large",
        "garbage",
    ];

    /// In one word, of [`Failure::WORDS`].
    pub const fn word(&self) -> &'static str {
        let [crashed, unreachable, lost, refused, cut_short, model, spent, too_large, garbage] =
            Self::WORDS;
        match self {
            Self::Crashed { .. } => crashed,
            Self::Unreachable { .. } => unreachable,
            Self::Lost { .. } => lost,
            Self::Refused { .. } => refused,
            Self::CutShort { .. } => cut_short,
            Self::Model { .. } => model,
            Self::Spent { .. } => spent,
            Self::TooLarge { .. } => too_large,
            Self::Garbage { .. } => garbage,
        }
    }

    /// What the attempt took, as far as that is known.
    pub fn spent(&self) -> Option<Spending> {
        match self {
            Self::CutShort { spent, .. } | Self::Model { spent, .. } => Some(*spent),
            _ => None,
        }
    }
}
