//! The facts a step may record: a closed list. Each says one thing that is now so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{Disposition, Failure, Message, Money, Refusal, Spending};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, ThreadId, TimerId};
use crate::system::WaitFor;
use crate::trace::TraceParent;

/// Who waits for the result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum Opener {
    /// A client outside: the result is recorded, the client reads the record.
    Client { name: ListenerName },
    /// A listener's call; in another thread, where a spawn or a send crossed over.
    Call { name: ListenerName, call: CallId, thread: ThreadId },
}

impl Opener {
    pub fn name(&self) -> &ListenerName {
        match self {
            Self::Client { name } | Self::Call { name, .. } => name,
        }
    }
}

/// What a message of kind `call` opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub opener: Opener,
    /// The first leg's call, where several peers got the same payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<(CallId, Gather)>,
    /// Its result becomes the opener's own result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward: bool,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Closing {
    /// With replies, or with `<ack/>`.
    Completed,
    /// With a system payload that says why.
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimerEnd {
    Fired,
    Cancelled,
}

/// What a call waits for before anything of it is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// An operator is to approve its payload.
    Approval,
    /// It is a question to a person, who is to answer it.
    Answer,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One thing that is so from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// A pump started on this journal.
    Booted {
        journal: Uuid,
        epoch: u32,
        config: Digest,
        /// Version of the step that decides from here on; journals from before it had one have 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        core_version: u32,
        /// Every blob that the organism runs on from here: config, prompts, schemas. Journals from
        /// before boots listed them have none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blobs: Vec<Digest>,
    },
    ThreadOpened {
        thread: ThreadId,
        by: ListenerName,
    },
    /// A message exists. A call's `opening` says what it opened.
    Accepted {
        message: Arc<Message>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opening: Option<Opening>,
        /// The client's key for this submission.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    Disposed {
        message: MessageId,
        how: Disposition,
    },
    /// Takes no `seq`.
    Refused {
        sender: ListenerName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<ThreadId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        refusal: Refusal,
    },
    /// The outcome of an attempt is on record: what was delivered with it is dealt with.
    Heard {
        call: CallId,
        attempt: Attempt,
    },
    AttemptFailed {
        call: CallId,
        attempt: Attempt,
        failure: Failure,
    },
    /// An attempt at a call belongs to its listener from here on, until its end is on record. The
    /// call may be one of another tree than the record.
    HandedOver {
        call: CallId,
        attempt: Attempt,
    },
    /// No listener took this attempt: the hand-over is taken back, and there was no attempt.
    NotTaken {
        call: CallId,
        attempt: Attempt,
    },
    CallClosed {
        call: CallId,
        how: Closing,
    },
    Waiting {
        call: CallId,
        until: WaitFor,
    },
    /// Something else than what it waited for ended a wait.
    WaitEnded {
        call: CallId,
    },
    TimerSet {
        timer: TimerId,
        call: CallId,
        fires_at: Time,
        label: Option<String>,
        /// It fires at a time of the clock, and not after a time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at: bool,
    },
    TimerEnded {
        timer: TimerId,
        how: TimerEnd,
    },
    /// An agent's window on a thread now starts so many items before this `seq`.
    Window {
        agent: ListenerName,
        thread: ThreadId,
        before: u64,
        kept: u32,
    },
    /// A request of a model call leaves once this is durable. It may take so much, with all earlier
    /// requests of the attempt; what it really took replaces this.
    Reserved {
        call: CallId,
        attempt: Attempt,
        agent: ListenerName,
        spending: Spending,
        /// Number of the request in its attempt.
        request: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route: Option<String>,
    },
    /// The result of a reserved model call is lost. Its whole reservation is charged.
    Charged {
        call: CallId,
        attempt: Attempt,
        agent: ListenerName,
        spending: Spending,
    },
    /// A model call was made in a call.
    Used {
        call: CallId,
        /// Journals of before agents had budgets do not say who made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<ListenerName>,
        tokens_in: u64,
        tokens_out: u64,
        #[serde(default, skip_serializing_if = "Money::is_zero")]
        money: Money,
        /// Of a turn that ended when its call was closed: the attempt that took it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
    },
    /// A call waits for a person; no time of it runs.
    Held {
        call: CallId,
        hold: Hold,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// It waits for nobody any more and goes on.
    Released {
        call: CallId,
        /// Nobody decided on it: its config had changed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lapsed: bool,
    },
    /// A client's next request: the counts and the wall time of its tree start again.
    Renewed {
        by: ListenerName,
    },
    /// From here on the tree's work belongs to this trace.
    Traced {
        trace: TraceParent,
    },
    /// Time that is not counted. Nothing could be answered while the pump stood still: that is the
    /// time-out of nobody. By what the system's clock was set forward, no time passed at all.
    StoodStill {
        stood_micros: u64,
        stepped_micros: u64,
    },
    /// An operator's signature on the decision of this record was checked and is used up.
    Signed {
        operator: ListenerName,
        nonce: Uuid,
        /// When it was signed.
        time: Time,
    },
    /// A budget of the tree passed its warning mark.
    Warned {
        budget: String,
    },
}
