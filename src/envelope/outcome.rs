//! Parts of the outcome of an attempt: the model turn of an agent, and the failure of an attempt.

use serde::{Deserialize, Serialize};

use super::{Money, RefusalRule, Spending};
use crate::ids::{Digest, MessageId, Position};
use crate::xml::findings::{Finding, TextLocation};

/// A turn of an agent, which is one model call. The agent returns the turn together with the turn's
/// payloads, and the pump's core records the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The complete `<model-turn>` payload, which is recorded as a note.
    #[serde(rename = "note")]
    pub note: String,
    /// Defects of the model's text as a whole, such as a missing end. Defects of single payloads
    /// are not included. The agent gets a single `huh`, the core's error message, about all defects
    /// in this list.
    #[serde(rename = "findings")]
    pub findings: Vec<Finding>,
    /// Payloads of the turn that are recognised but incomplete or malformed. For each of them, the
    /// pump records a refusal, and sends the agent a `huh`, the core's error message.
    #[serde(rename = "broken")]
    pub broken: Vec<BrokenPayload>,
    #[serde(rename = "tokens_in")]
    pub tokens_in: u64,
    #[serde(rename = "tokens_out")]
    pub tokens_out: u64,
    /// Price of the turn; zero if the config has no prices.
    #[serde(rename = "money", default, skip_serializing_if = "Money::is_zero")]
    pub money: Money,
    /// Reason why the agent may take no further turn in this call. `None` if the agent may take
    /// further turns. If this turn does not end the call, the pump fails the call for this reason.
    /// Turns before core version 65 have no reason if they contain a valid final payload.
    #[serde(rename = "spent")]
    pub spent: Option<Spent>,
    /// Locations of the turn's payloads in the model's text. If a payload is refused, the pump
    /// copies the location of this payload to the refusal. The locations are not recorded with the
    /// turn.
    #[serde(rename = "written", default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<WrittenPayload>,
    /// Strings of the model request that are not in the thread, such as the system prompt. `None`
    /// if these strings are not stored for this turn. The journal stores these strings outside the
    /// turn's record, under a digest that [`Turn::note`] contains.
    #[serde(rename = "inputs", default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// If this turn of a fork repeats a recorded turn of the fork's source, the position of the
    /// recorded turn. `None` if a model answered. This field is not recorded.
    #[serde(skip)]
    pub recorded: Option<Position>,
}

/// A payload of a turn, and where the model wrote it. A refusal must point into the model's text,
/// because the model has never seen the normalised payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenPayload {
    #[serde(rename = "payload")]
    pub payload: Digest,
    /// Location of the payload in the model's text. If the model made a native tool call, the
    /// payload is not in this text, and the location has no line.
    #[serde(rename = "place")]
    pub place: TextLocation,
    /// Example of a correct payload, which a refusal shows to the model. `None` if the refusal has
    /// an example of its own.
    #[serde(rename = "expected", default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// A recognised action in a model's text that is incomplete or not well-formed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokenPayload {
    /// Index of the action among all actions of the turn. The agent gets feedback on its actions in
    /// this order.
    #[serde(rename = "index")]
    pub index: usize,
    /// Text of the action as the model wrote it.
    #[serde(rename = "attempt")]
    pub attempt: String,
    #[serde(rename = "finding")]
    pub finding: Finding,
}

/// A failed request to a model: its route, and the reason for the failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTry {
    #[serde(rename = "route")]
    pub route: String,
    /// Reason for the failure in one word, such as `timeout`, as in [`AttemptFailure::Model`].
    #[serde(rename = "reason")]
    pub reason: String,
}

impl BrokenPayload {
    /// Returns the rule under which the action is refused.
    pub fn rule(&self) -> RefusalRule {
        RefusalRule::of_finding(&self.finding.code)
    }
}

/// Why an agent may take no further turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spent {
    /// No turn of the call contained a valid action.
    #[serde(rename = "never-valid")]
    NeverValid,
    /// The last turn called a tool, and no turn is left that could use the result.
    #[serde(rename = "after-last-call")]
    AfterLastCall,
    /// The conversation no longer fits the model's context window, so no turn can follow this one.
    #[serde(rename = "window-full")]
    WindowFull,
    /// The last turn was text without an action, although only an action can end the call.
    #[serde(rename = "ended-in-text")]
    EndedInText,
}

/// Why an attempt failed. [`AttemptFailure::is_retried`] states after which failures the pump
/// repeats the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind")]
pub enum AttemptFailure {
    /// The handler ended without an answer, by a panic, an exit or a signal.
    #[error("crashed: {detail}")]
    #[serde(rename = "crashed")]
    Crashed {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// No program received the delivery: the program is missing, or it has used up its permitted
    /// restarts.
    #[error("unreachable: {detail}")]
    #[serde(rename = "unreachable")]
    Unreachable {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The outcome of the attempt is unknown, because the pump that handed over the delivery has
    /// ended, or because the connection to the handler broke.
    #[error("lost: {detail}")]
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler refused the delivery, or the pump withheld it (see
    /// [`AttemptFailure::withheld`]). The attempt is not repeated.
    #[error("{detail}")]
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The model call was aborted, because the agent's host was stopped. Its requests are charged,
    /// and the pump repeats the attempt. Older versions of the agent host also report this failure
    /// for a model that stopped early or whose answer is unusable; later versions report
    /// [`AttemptFailure::Model`] instead.
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
    /// The model call failed. Its requests are charged. The pump does not repeat the attempt,
    /// because the model router has already made all permitted retries.
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
        /// Whether the failure may be temporary, so that the same request may succeed later.
        #[serde(rename = "passing", default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
        /// The failed requests, in the order in which they were sent.
        #[serde(rename = "tries", default, skip_serializing_if = "Vec::is_empty")]
        tries: Vec<RouteTry>,
    },
    /// A budget has too little left for the maximum cost of the next model request. The handler
    /// must reserve this cost before it sends the request. The attempt is not repeated.
    #[error("{detail}")]
    #[serde(rename = "spent")]
    Spent {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The delivery exceeds the size that the handler accepts. The attempt is not repeated.
    #[error("{detail}")]
    #[serde(rename = "too-large")]
    TooLarge {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The handler's answer violates the format of answers, so it cannot be read. The attempt is
    /// not repeated.
    #[error("unreadable answer: {detail}")]
    #[serde(rename = "garbage")]
    Garbage {
        #[serde(rename = "detail")]
        detail: String,
    },
}

/// Beginning of the text of [`AttemptFailure::withheld`].
const WITHHELD: &str = "it was not called: ";

impl AttemptFailure {
    /// Returns the failure of an attempt that the pump withheld from the listener, because the
    /// delivery contains the message `redacted`, whose payload was redacted.
    pub fn withheld(redacted: MessageId) -> Self {
        let detail = format!(
            "{WITHHELD}the payload of message {redacted} was redacted; send the request again if it \
             is still wanted"
        );
        Self::Refused { detail }
    }

    /// Whether this is a failure from [`AttemptFailure::withheld`]. Also true for a listener's own
    /// refusal if its text begins in the same way.
    pub fn is_withheld(&self) -> bool {
        matches!(self, Self::Refused { detail } if detail.starts_with(WITHHELD))
    }

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

    /// The word for each kind of failure, in the order of the variants.
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

    /// Returns the kind of the failure in one word, from [`AttemptFailure::WORDS`].
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

    /// Returns the tokens and money that the attempt used; `None` if the failure does not state
    /// them.
    pub fn spent(&self) -> Option<Spending> {
        match self {
            Self::CutShort { spent, .. } | Self::Model { spent, .. } => Some(*spent),
            _ => None,
        }
    }
}
