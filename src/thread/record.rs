//! A record: the journal's unit, written by one step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::envelope::{Failure, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};

use super::{Decision, DecisionOrigin, Fact, OperatorAction, RecordedAnswer};

/// Verdict of the gate on one payload of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The gate passed it: the message with this digest has its bytes.
    #[serde(rename = "passed")]
    Passed(Digest),
    /// The gate or the pump refused it: the refusal with this digest stands among the facts.
    #[serde(rename = "refused")]
    Refused(Digest),
}

/// The input of a step, complete enough to replay it in a new pump.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    #[serde(rename = "boot")]
    Boot {
        #[serde(rename = "detail")]
        detail: String,
    },
    #[serde(rename = "submitted")]
    Submitted {
        #[serde(rename = "id")]
        id: MessageId,
        #[serde(rename = "client")]
        client: ListenerName,
        #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        #[serde(rename = "suggested", default, skip_serializing_if = "Option::is_none")]
        suggested: Option<String>,
        #[serde(rename = "key", default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        #[serde(rename = "verdict")]
        verdict: Verdict,
    },
    #[serde(rename = "outcome")]
    Outcome {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "verdicts")]
        verdicts: Vec<Verdict>,
        #[serde(rename = "turn", default, skip_serializing_if = "Option::is_none")]
        turn: Option<Turn>,
        /// When its host read it, if its deadline has passed since.
        #[serde(rename = "arrived", default, skip_serializing_if = "Option::is_none")]
        arrived: Option<Time>,
    },
    /// An answer that named another attempt than the one that its instance was given.
    #[serde(rename = "stray")]
    Stray {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "named")]
        named: String,
        #[serde(rename = "verdicts")]
        verdicts: Vec<Verdict>,
    },
    #[serde(rename = "failed")]
    Failed {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "failure")]
        failure: Failure,
    },
    /// A request of a model call is about to leave. The fact states what it may use.
    #[serde(rename = "reserved")]
    Reserved {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "counted", default, skip_serializing_if = "std::ops::Not::not")]
        counted: bool,
        /// Maximum requests of the model call on this route.
        #[serde(rename = "most", default, skip_serializing_if = "Option::is_none")]
        most: Option<u32>,
    },
    /// A reservation of an earlier run has no result, because its pump died.
    #[serde(rename = "unsettled")]
    Unsettled {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    #[serde(rename = "deadline")]
    Deadline {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// An earlier pump handed this attempt over and recorded no end of it.
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// No listener took a delivery.
    #[serde(rename = "not-taken")]
    NotTaken {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "detail")]
        detail: String,
    },
    /// An absent listener is given one of its calls, to check whether it is back.
    #[serde(rename = "probe")]
    Probe {
        #[serde(rename = "listener")]
        listener: ListenerName,
    },
    /// A call has waited for an absent listener as long as it may.
    #[serde(rename = "untaken")]
    Untaken {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// A failed call is handed over again.
    #[serde(rename = "retry")]
    Retry {
        #[serde(rename = "call")]
        call: CallId,
    },
    #[serde(rename = "timer")]
    Timer {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The config no longer has the listener of this call.
    #[serde(rename = "gone")]
    Gone {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The time of a held call is over, or the config now requires another hold.
    #[serde(rename = "held")]
    Held {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// A person's decision about a held call.
    #[serde(rename = "decided")]
    Decided {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "decision")]
        decision: Decision<RecordedAnswer>,
        /// `None` in records from before decisions named their author.
        #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    #[serde(rename = "cancel")]
    Cancel {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "reason")]
        reason: String,
        #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    #[serde(rename = "joined")]
    Joined {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "detail")]
        detail: String,
    },
    #[serde(rename = "left")]
    Left {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The pump did not run for a while, or the system's clock was set forward.
    #[serde(rename = "standstill")]
    Standstill {
        #[serde(rename = "stood_micros")]
        stood_micros: u64,
        #[serde(rename = "stepped_micros")]
        stepped_micros: u64,
    },
    /// Number of `busy` refusals to one client in an interval that ends here. They have no records
    /// of their own.
    #[serde(rename = "busy")]
    Busy {
        #[serde(rename = "client")]
        client: ListenerName,
        #[serde(rename = "since")]
        since: Time,
        #[serde(rename = "count")]
        count: u64,
    },
    #[serde(rename = "shutdown")]
    Shutdown {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// An operator's action on the organism itself.
    #[serde(rename = "operator")]
    Operator(OperatorAction),
}

impl Input {
    /// Whether this is a decision of an operator.
    pub fn is_decision(&self) -> bool {
        matches!(self, Self::Decided { .. } | Self::Cancel { .. } | Self::Operator(_))
    }
}

/// One atomic step. The hash chain covers its [`super::text`]; payload bytes are stored beside the
/// text and are covered by their digests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    #[serde(rename = "position")]
    pub position: Position,
    /// The tree it belongs to: a root thread's id.
    #[serde(rename = "tree")]
    pub tree: ThreadId,
    /// The tree's previous record, and its hash; position 0 and zeros for the first.
    #[serde(rename = "previous")]
    pub previous: Position,
    #[serde(rename = "previous_hash")]
    pub previous_hash: Digest,
    #[serde(rename = "time")]
    pub time: Time,
    #[serde(rename = "input")]
    pub input: Input,
    #[serde(rename = "facts")]
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

    /// The same payloads, mutable, for readers that add the bytes to a record.
    pub fn payloads_mut(&mut self) -> impl Iterator<Item = &mut crate::envelope::Payload> {
        self.facts.iter_mut().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(&mut Arc::make_mut(message).payload),
            _ => None,
        })
    }
}
