//! The records of the journal. A step of the pump processes one event, and writes one record or
//! none.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::envelope::{AttemptFailure, Disposition, Message, RefusalRule, Turn};
use crate::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, Position, ScheduleName, ThreadId, TimerId,
};
use crate::system::{self, AlertReport};
use crate::xml::element::Element;

use super::{
    Closing, Decision, DecisionOrigin, Fact, ForkAction, OperatorAction, PauseAction,
    RecordedAnswer, RetryAction,
};

/// Verdict of the gate on one payload of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The gate passed a payload with this digest. The payload is in a message among the record's
    /// facts.
    #[serde(rename = "passed")]
    Passed(Digest),
    /// The gate or the pump refused a payload with this digest. A fact of the record states the
    /// refusal and has the same digest.
    #[serde(rename = "refused")]
    Refused(Digest),
}

/// The result that the source of a fork has for a call, as the input [`Input::Recalled`] records
/// it. The field `payloads` contains only the digests of the payloads. The payloads themselves are
/// in the messages of the same record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecalledResult {
    /// The call in the source of the fork. Its recorded result becomes the result of the call in
    /// the fork.
    #[serde(rename = "source")]
    pub source: CallId,
    #[serde(rename = "how")]
    pub how: Closing,
    #[serde(rename = "payloads", default, skip_serializing_if = "Vec::is_empty")]
    pub payloads: Vec<Digest>,
}

/// The input of a step. It contains everything that another pump needs to replay the step.
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
        /// Time at which the outcome arrived from the listener. Stated only if the deadline of the
        /// attempt had passed when the pump recorded the outcome; otherwise `None`.
        #[serde(rename = "arrived", default, skip_serializing_if = "Option::is_none")]
        arrived: Option<Time>,
    },
    /// A process answered an attempt on which it was not working.
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
        failure: AttemptFailure,
    },
    /// A model call is about to send a request. A fact of the same record states the reservation
    /// for this request.
    #[serde(rename = "reserved")]
    Reserved {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "counted", default, skip_serializing_if = "std::ops::Not::not")]
        counted: bool,
        /// Maximum number of requests that the model call may send to the same provider and model;
        /// `None` if there is no maximum.
        #[serde(rename = "most", default, skip_serializing_if = "Option::is_none")]
        most: Option<u32>,
    },
    /// The result of a model call with a reservation of tokens and money is missing, because an
    /// earlier pump died before it recorded the result.
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
    /// An attempt that an earlier pump handed over has no recorded end.
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// No process of the listener accepted the delivery of an attempt.
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
    /// The pump hands over a call as a test, to find out whether any process of the listener takes
    /// calls again.
    #[serde(rename = "probe")]
    Probe {
        #[serde(rename = "listener")]
        listener: ListenerName,
    },
    /// A call has waited for the maximum time, and no process of its listener has taken it.
    #[serde(rename = "untaken")]
    Untaken {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The pump hands a failed call over again.
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
    /// The listener of the call can no longer handle the call, for one of two reasons:
    /// - The config no longer contains the listener.
    /// - The call was approved with a preview, and the listener no longer declares previews.
    #[serde(rename = "gone")]
    Gone {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The time of an open call is over: the time limit of its thread or of a thread above it, or
    /// the wall time of its tree.
    #[serde(rename = "thread-time")]
    ThreadTime {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The time limit of a held call has passed, or the config now requires another kind of hold.
    #[serde(rename = "held")]
    Held {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// The deadline for the preview of a held call has passed, and the listener has given no
    /// preview.
    #[serde(rename = "preview-time")]
    PreviewTime {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// A person decided on a held call.
    #[serde(rename = "decided")]
    Decided {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "decision")]
        decision: Decision<RecordedAnswer>,
        /// Author and reason of the decision; `None` in older records, which name no author.
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
    /// An operator paused or resumed a thread, a listener or everything.
    #[serde(rename = "pause")]
    Pause(PauseAction),
    /// An operator forks a thread.
    #[serde(rename = "fork")]
    Fork(Box<ForkAction>),
    /// An operator retries a message.
    #[serde(rename = "operator-retry")]
    OperatorRetry(Box<RetryAction>),
    /// The pump searched the source of a fork for the result of a call.
    #[serde(rename = "recalled")]
    Recalled {
        #[serde(rename = "call")]
        call: CallId,
        /// The result that the source of the fork recorded; `None` if the source has no result for
        /// the call.
        #[serde(rename = "result", default, skip_serializing_if = "Option::is_none")]
        result: Option<RecalledResult>,
    },
    /// A pause with cancellation ended an attempt that was in flight.
    #[serde(rename = "stop")]
    Stop {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
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
    /// NATS servers denied operations to programs of a listener. The programs report the denials.
    #[serde(rename = "denied")]
    Denied {
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "operations")]
        operations: String,
        #[serde(rename = "count")]
        count: u64,
    },
    /// The pump did not run for some time, or the system clock was set forward.
    #[serde(rename = "standstill")]
    Standstill {
        #[serde(rename = "stood_micros")]
        stood_micros: u64,
        #[serde(rename = "stepped_micros")]
        stepped_micros: u64,
    },
    /// The pump refused `count` requests of one client as `busy` since the time `since`. These
    /// refusals have no records of their own.
    #[serde(rename = "busy")]
    Busy {
        #[serde(rename = "client")]
        client: ListenerName,
        #[serde(rename = "since")]
        since: Time,
        #[serde(rename = "count")]
        count: u64,
    },
    /// The pump's process reports an alert.
    #[serde(rename = "alert")]
    Alert(AlertReport),
    #[serde(rename = "shutdown")]
    Shutdown {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// An operator acted on the organism itself.
    #[serde(rename = "operator")]
    Operator(OperatorAction),
    /// The planned time of a schedule has come.
    #[serde(rename = "schedule")]
    Schedule {
        #[serde(rename = "schedule")]
        schedule: ScheduleName,
        #[serde(rename = "timer")]
        timer: TimerId,
    },
}

impl Input {
    /// Returns the verdicts of the gate on the payloads of this input, in the order of the
    /// payloads.
    pub fn verdicts(&self) -> &[Verdict] {
        match self {
            Self::Submitted { verdict, .. } => std::slice::from_ref(verdict),
            Self::Outcome { verdicts, .. } | Self::Stray { verdicts, .. } => verdicts,
            Self::Decided { decision: Decision::Answer(answer), .. } => {
                std::slice::from_ref(&answer.verdict)
            }
            Self::OperatorRetry(action) => std::slice::from_ref(&action.verdict),
            _ => &[],
        }
    }

    /// Whether the input is the decision or action of a person: a decision on a held call, a
    /// cancellation, a pause, or an action on the organism itself.
    pub fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::Decided { .. } | Self::Cancel { .. } | Self::Operator(_) | Self::Pause(_)
        )
    }
}

/// The record of one step. The journal writes each record atomically. The text of a record
/// ([`super::text`]) contains only the digests of payloads, and the hash chain covers this text.
/// The bytes of the payloads are stored beside the text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    #[serde(rename = "position")]
    pub position: Position,
    /// Root thread of the tree to which the record belongs.
    #[serde(rename = "tree")]
    pub tree: ThreadId,
    /// Position of the tree's previous record; 0 for the first record of the tree.
    #[serde(rename = "previous")]
    pub previous: Position,
    /// Hash of the tree's previous record; zeros for the first record of the tree.
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
    /// Returns the messages that this record adds to the journal, in order.
    pub fn accepted_messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.facts.iter().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(&**message),
            _ => None,
        })
    }

    /// Whether `call` ends in this record.
    pub fn closes(&self, call: CallId) -> bool {
        self.closing_of(call).is_some()
    }

    /// Returns the way in which `call` ends in this record; `None` if it does not end here.
    pub fn closing_of(&self, call: CallId) -> Option<Closing> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::CallClosed { call: closed, how } if *closed == call => Some(*how),
            _ => None,
        })
    }

    /// Returns the ids of the messages that this record settles with any disposition other than
    /// `handled`. No listener handles these messages any more.
    pub fn unhandled_messages(&self) -> impl Iterator<Item = MessageId> {
        self.facts.iter().filter_map(|fact| match fact {
            Fact::Disposed { message, how } if *how != Disposition::Handled => Some(*message),
            _ => None,
        })
    }

    /// Returns all payloads of this record, in order.
    pub fn payloads(&self) -> impl Iterator<Item = &crate::envelope::Payload> {
        self.accepted_messages().map(|message| &message.payload)
    }

    /// Whether the record refuses a cancellation, because it was not signed or because the thread
    /// had already ended.
    pub fn is_cancel_refused(&self) -> bool {
        let rules = [RefusalRule::NotSigned, RefusalRule::NotWaiting];
        self.facts.iter().any(|fact| match fact {
            Fact::Refused { refusal, .. } => rules.contains(&refusal.rule),
            _ => false,
        })
    }

    /// Returns the currency of the cost of this record's model turn, as the note about the turn
    /// states it. Returns `None` if there is no such note, if the model has no price, or if the
    /// note was redacted.
    pub fn turn_currency(&self) -> Option<String> {
        let name = system::name(system::MODEL_TURN);
        self.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.name == name => {
                let note = Element::head(message.payload.as_str())?;
                note.attribute("currency").map(str::to_owned)
            }
            _ => None,
        })
    }

    /// Returns mutable references to all payloads of this record, so that a reader can add the
    /// bytes of the payloads.
    pub fn payloads_mut(&mut self) -> impl Iterator<Item = &mut crate::envelope::Payload> {
        self.facts.iter_mut().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(&mut Arc::make_mut(message).payload),
            _ => None,
        })
    }
}
