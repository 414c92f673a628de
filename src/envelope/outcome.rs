//! Outcomes of attempts: a model's turn, or a failure.

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
    /// Defects of the model's text that belong to no payload; the agent gets them in one `huh`.
    #[serde(rename = "findings")]
    pub findings: Vec<Finding>,
    /// Recognised payloads that cannot be dispatched (cut short, malformed). Each is refused on the
    /// record and answered with its own `huh`.
    #[serde(rename = "broken")]
    pub broken: Vec<BrokenPayload>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: u64,
    #[serde(rename = "tokens_out")]
    pub tokens_out: u64,
    /// Price of the turn, if the config has prices.
    #[serde(rename = "money", default, skip_serializing_if = "Money::is_zero")]
    pub money: Money,
    /// Set if this was the last turn that the agent may take in this call and the turn did not end
    /// it.
    #[serde(rename = "spent")]
    pub spent: Option<Spent>,
    /// Locations of its payloads in the model's text. Not recorded with the turn, because refusals
    /// have their own locations.
    #[serde(rename = "written", default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<WrittenPayload>,
    /// Everything that the model was sent besides the thread. Not recorded with the turn: the
    /// journal stores it by the digest that the note names.
    #[serde(rename = "inputs", default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
}

/// A payload of a turn as the model wrote it. Its refusal names this location, because the model
/// never saw the normalised payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenPayload {
    #[serde(rename = "payload")]
    pub payload: Digest,
    /// Has no line if the model wrote no XML.
    #[serde(rename = "place")]
    pub place: TextLocation,
    /// The correct form for the model, if it differs from the payload's own form.
    #[serde(rename = "expected", default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// A recognised action of a model's text that is not complete or not well-formed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokenPayload {
    /// Its index among all actions of the turn, so that feedback keeps the order.
    #[serde(rename = "index")]
    pub index: usize,
    /// The action as the model wrote it.
    #[serde(rename = "attempt")]
    pub attempt: String,
    #[serde(rename = "finding")]
    pub finding: Finding,
}

/// A failed request to a model: its route and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTry {
    #[serde(rename = "route")]
    pub route: String,
    /// The reason in one word, as in [`Failure::Model`].
    #[serde(rename = "reason")]
    pub reason: String,
}

impl BrokenPayload {
    /// The rule by which it is refused.
    pub fn rule(&self) -> Rule {
        Rule::of_finding(&self.finding.code)
    }
}

/// Why an agent may take no further turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spent {
    /// No turn contained a valid action.
    #[serde(rename = "never-valid")]
    NeverValid,
    /// The last turn called a tool whose result cannot be used any more.
    #[serde(rename = "after-last-call")]
    AfterLastCall,
    /// The conversation exceeds the model's context window, so that this turn was made the last.
    #[serde(rename = "window-full")]
    WindowFull,
}

/// Why an attempt failed. Crashed, unreachable and lost attempts are retried.
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
    /// No program took the delivery: it is missing, or its restart limit is spent.
    #[error("unreachable: {detail}")]
    #[serde(rename = "unreachable")]
    Unreachable {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The result of the attempt will never be known: the pump that handed it over has ended, or
    /// the connection to the handler broke.
    #[error("lost: {detail}")]
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler refused; not retried.
    #[error("{detail}")]
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler's model stopped early, or its answer is unusable; the received part is charged.
    /// Older hosts of agents report this; present ones report [`Failure::Model`].
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
    /// The model call failed. Its requests are charged, and no attempt repeats them: the model's
    /// router has made all permitted retries.
    #[error("{detail}")]
    #[serde(rename = "model")]
    Model {
        /// The reason in one word, such as `timeout`, `denied` or `cancelled`.
        #[serde(rename = "reason")]
        reason: String,
        #[serde(rename = "detail")]
        detail: String,
        #[serde(rename = "spent")]
        spent: Spending,
        /// Whether the same request may succeed later.
        #[serde(rename = "passing", default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
        /// Failed requests, in order.
        #[serde(rename = "tries", default, skip_serializing_if = "Vec::is_empty")]
        tries: Vec<RouteTry>,
    },
    /// A budget has no room for the handler's reservation; not retried.
    #[error("{detail}")]
    #[serde(rename = "spent")]
    Spent {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The delivery is larger than the handler accepts; not retried.
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

    /// Words for the kinds of failure, in the order of the variants.
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

    /// The kind in one word, from [`Failure::WORDS`].
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

    /// Use of the attempt, if known.
    pub fn spent(&self) -> Option<Spending> {
        match self {
            Self::CutShort { spent, .. } | Self::Model { spent, .. } => Some(*spent),
            _ => None,
        }
    }
}
