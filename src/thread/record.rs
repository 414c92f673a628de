//! The journal's unit: one step, one record.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::envelope::{Failure, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};

use super::{Decision, DecisionOrigin, Fact, OperatorAction, RecordedAnswer};

/// What became of one payload of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Its bytes are those of the message with this digest.
    Passed(Digest),
    /// The gate or the pump refused it: the refusal with this digest stands among the facts.
    Refused(Digest),
}

/// What was processed: enough to feed it to a fresh pump again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    Boot {
        detail: String,
    },
    Submitted {
        id: MessageId,
        client: ListenerName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        suggested: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        verdict: Verdict,
    },
    Outcome {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        verdicts: Vec<Verdict>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<Turn>,
        /// When its host read it, where its deadline has passed since.
        #[serde(rename = "arrived", default, skip_serializing_if = "Option::is_none")]
        arrived: Option<Time>,
    },
    /// An answer that named another attempt than the one its instance was given.
    Stray {
        listener: ListenerName,
        named: String,
        verdicts: Vec<Verdict>,
    },
    Failed {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        failure: Failure,
    },
    /// A request of a model call is about to leave. The fact states what it may take.
    Reserved {
        call: CallId,
        attempt: Attempt,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        counted: bool,
        /// Requests that the model call may make on this route.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<u32>,
    },
    /// A reservation of an earlier run has no result: its pump died.
    Unsettled {
        call: CallId,
        attempt: Attempt,
    },
    Deadline {
        call: CallId,
        attempt: Attempt,
    },
    /// A pump that has ended handed this attempt over, and recorded no end of it.
    Lost {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
    },
    /// No listener took a delivery.
    NotTaken {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        detail: String,
    },
    /// An absent listener is to be given one of its calls, to see whether it is back.
    Probe {
        listener: ListenerName,
    },
    /// A call has waited for an absent listener as long as it may.
    Untaken {
        call: CallId,
    },
    /// A failed call is to be handed over again.
    Retry {
        call: CallId,
    },
    Timer {
        timer: TimerId,
        call: CallId,
    },
    /// The config no longer has the listener of this call.
    Gone {
        call: CallId,
    },
    /// The time of a held call is up, or the config asks for something else by now.
    Held {
        call: CallId,
    },
    /// What a person decided about a held call.
    Decided {
        message: MessageId,
        by: ListenerName,
        decision: Decision<RecordedAnswer>,
        /// Records of before decisions named who took them have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    Cancel {
        thread: ThreadId,
        by: ListenerName,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    Joined {
        listener: ListenerName,
        detail: String,
    },
    Left {
        listener: ListenerName,
        detail: String,
    },
    /// The pump did not run for a while, or the system's clock was set forward.
    Standstill {
        stood_micros: u64,
        stepped_micros: u64,
    },
    /// `busy` refusals to one client since then, up to this record. They have no records of their own.
    Busy {
        client: ListenerName,
        since: Time,
        count: u64,
    },
    Shutdown {
        detail: String,
    },
    /// What an operator did to the organism itself.
    Operator(OperatorAction),
}

impl Input {
    /// Whether it is a decision of an operator.
    pub fn is_decision(&self) -> bool {
        matches!(self, Self::Decided { .. } | Self::Cancel { .. } | Self::Operator(_))
    }
}

/// One atomic step. The chain hashes its [`super::text`]; payload bytes stand beside that and
/// enter the hash by digest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    pub position: Position,
    /// The tree it belongs to: a root thread's id.
    pub tree: ThreadId,
    /// The tree's previous record, and its hash; position 0 and zeros for the first.
    pub previous: Position,
    pub previous_hash: Digest,
    pub time: Time,
    pub input: Input,
    pub facts: Vec<Fact>,
}

impl Record {
    /// Every payload of this record, in order.
    pub fn payloads(&self) -> impl Iterator<Item = &crate::envelope::Payload> {
        self.facts.iter().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(&message.payload),
            _ => None,
        })
    }

    /// The same payloads, for whoever reads a record and puts the bytes in.
    pub fn payloads_mut(&mut self) -> impl Iterator<Item = &mut crate::envelope::Payload> {
        self.facts.iter_mut().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(&mut Arc::make_mut(message).payload),
            _ => None,
        })
    }
}
