//! The facts that a step may record: a closed list. Each states one thing that holds from then on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{Disposition, Failure, Message, Money, Refusal, Spending};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, ThreadId, TimerId};
use crate::system::WaitFor;
use crate::trace::TraceParent;

/// The party that waits for the result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by")]
pub enum Opener {
    /// A client outside: the result is recorded, the client reads the record.
    #[serde(rename = "client")]
    Client {
        #[serde(rename = "name")]
        name: ListenerName,
    },
    /// A call of a listener. It is in another thread after a spawn or a send.
    #[serde(rename = "call")]
    Call {
        #[serde(rename = "name")]
        name: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "thread")]
        thread: ThreadId,
    },
}

impl Opener {
    pub fn name(&self) -> &ListenerName {
        match self {
            Self::Client { name } | Self::Call { name, .. } => name,
        }
    }
}

/// The call that a message of kind `call` opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    #[serde(rename = "opener")]
    pub opener: Opener,
    /// The first leg's call, if several peers got the same payload.
    #[serde(rename = "group", default, skip_serializing_if = "Option::is_none")]
    pub group: Option<(CallId, Gather)>,
    /// Whether its result becomes the opener's own result.
    #[serde(rename = "forward", default, skip_serializing_if = "std::ops::Not::not")]
    pub forward: bool,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    /// The call ended with replies, or with `<ack/>`.
    #[serde(rename = "completed")]
    Completed,
    /// The call ended with a system payload that states the reason.
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "cancelled")]
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerEnd {
    #[serde(rename = "fired")]
    Fired,
    #[serde(rename = "cancelled")]
    Cancelled,
}

/// The decision that a held call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// An operator must approve its payload.
    #[serde(rename = "approval")]
    Approval,
    /// It is a question, which a person must answer.
    #[serde(rename = "answer")]
    Answer,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One thing that holds from this record on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A pump started on this journal.
    #[serde(rename = "booted")]
    Booted {
        #[serde(rename = "journal")]
        journal: Uuid,
        #[serde(rename = "epoch")]
        epoch: u32,
        #[serde(rename = "config")]
        config: Digest,
        /// Version of the step that decides from here on; 0 in journals from before versions.
        #[serde(rename = "core_version", default, skip_serializing_if = "is_zero")]
        core_version: u32,
        /// Digests of all blobs that the organism runs on from here: config, prompts, schemas.
        /// Empty in journals from before boots listed them.
        #[serde(rename = "blobs", default, skip_serializing_if = "Vec::is_empty")]
        blobs: Vec<Digest>,
    },
    #[serde(rename = "thread-opened")]
    ThreadOpened {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "by")]
        by: ListenerName,
        /// The call whose close cancels the thread.
        #[serde(rename = "bound", default, skip_serializing_if = "Option::is_none")]
        bound: Option<CallId>,
    },
    /// A message exists. `opening` is set for a message that opens a call.
    #[serde(rename = "accepted")]
    Accepted {
        #[serde(rename = "message")]
        message: Arc<Message>,
        #[serde(rename = "opening", default, skip_serializing_if = "Option::is_none")]
        opening: Option<Opening>,
        /// The client's key for this submission.
        #[serde(rename = "key", default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    #[serde(rename = "disposed")]
    Disposed {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "how")]
        how: Disposition,
    },
    /// A payload was refused. A refusal takes no `seq`.
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "sender")]
        sender: ListenerName,
        #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
        thread: Option<ThreadId>,
        #[serde(rename = "call", default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        #[serde(rename = "refusal")]
        refusal: Refusal,
    },
    /// The outcome of an attempt is recorded, so that the messages of its delivery are handled.
    #[serde(rename = "heard")]
    Heard {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    #[serde(rename = "attempt-failed")]
    AttemptFailed {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "failure")]
        failure: Failure,
    },
    /// An attempt at a call is with its listener from here on, until its end is recorded. The call
    /// may be in another tree than the record.
    #[serde(rename = "handed-over")]
    HandedOver {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// No listener took this attempt: the hand-over is taken back, and the attempt does not count.
    #[serde(rename = "not-taken")]
    NotTaken {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    #[serde(rename = "call-closed")]
    CallClosed {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "how")]
        how: Closing,
    },
    #[serde(rename = "waiting")]
    Waiting {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "until")]
        until: WaitFor,
    },
    /// A wait ended through something else than it waited for.
    #[serde(rename = "wait-ended")]
    WaitEnded {
        #[serde(rename = "call")]
        call: CallId,
    },
    #[serde(rename = "timer-set")]
    TimerSet {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "fires_at")]
        fires_at: Time,
        #[serde(rename = "label")]
        label: Option<String>,
        /// Whether it fires at a time of the clock instead of after a duration.
        #[serde(rename = "at", default, skip_serializing_if = "std::ops::Not::not")]
        at: bool,
    },
    #[serde(rename = "timer-ended")]
    TimerEnded {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "how")]
        how: TimerEnd,
    },
    /// An agent's window on a thread now starts this many items before this `seq`.
    #[serde(rename = "window")]
    Window {
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "before")]
        before: u64,
        #[serde(rename = "kept")]
        kept: u32,
    },
    /// A request of a model call leaves once this is durable. It states what the request may use,
    /// together with all earlier requests of the attempt; the actual use replaces it.
    #[serde(rename = "reserved")]
    Reserved {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "spending")]
        spending: Spending,
        /// Number of the request in its attempt.
        #[serde(rename = "request")]
        request: u32,
        #[serde(rename = "route", default, skip_serializing_if = "Option::is_none")]
        route: Option<String>,
    },
    /// The result of a reserved model call is lost. Its whole reservation is charged.
    #[serde(rename = "charged")]
    Charged {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "spending")]
        spending: Spending,
    },
    /// A model call was made within a call.
    #[serde(rename = "used")]
    Used {
        #[serde(rename = "call")]
        call: CallId,
        /// The agent that made it; `None` in journals from before agents had budgets.
        #[serde(rename = "agent", default, skip_serializing_if = "Option::is_none")]
        agent: Option<ListenerName>,
        #[serde(rename = "tokens_in")]
        tokens_in: u64,
        #[serde(rename = "tokens_out")]
        tokens_out: u64,
        #[serde(rename = "money", default, skip_serializing_if = "Money::is_zero")]
        money: Money,
        /// Attempt of a turn that ended because its call was closed.
        #[serde(rename = "attempt", default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
    },
    /// A call is held for a person, and none of its time runs.
    #[serde(rename = "held")]
    Held {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "hold")]
        hold: Hold,
        #[serde(rename = "until", default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// A held call continues.
    #[serde(rename = "released")]
    Released {
        #[serde(rename = "call")]
        call: CallId,
        /// Whether it was released without a decision, because the config had changed.
        #[serde(rename = "lapsed", default, skip_serializing_if = "std::ops::Not::not")]
        lapsed: bool,
    },
    /// A client's next request: the counts and the wall time of its tree restart.
    #[serde(rename = "renewed")]
    Renewed {
        #[serde(rename = "by")]
        by: ListenerName,
    },
    /// From here on the tree's work belongs to this trace.
    #[serde(rename = "traced")]
    Traced {
        #[serde(rename = "trace")]
        trace: TraceParent,
    },
    /// Time that counts for no timeout: the pump was stopped, so that no answer could arrive, or
    /// the system clock was set forward.
    #[serde(rename = "stood-still")]
    StoodStill {
        #[serde(rename = "stood_micros")]
        stood_micros: u64,
        #[serde(rename = "stepped_micros")]
        stepped_micros: u64,
    },
    /// An operator's signature on this record's decision was verified and is now used.
    #[serde(rename = "signed")]
    Signed {
        #[serde(rename = "operator")]
        operator: ListenerName,
        #[serde(rename = "nonce")]
        nonce: Uuid,
        /// When it was signed.
        #[serde(rename = "time")]
        time: Time,
    },
    /// A budget of the tree passed its warning threshold.
    #[serde(rename = "warned")]
    Warned {
        #[serde(rename = "budget")]
        budget: String,
    },
}
