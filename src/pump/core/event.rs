//! What can happen to the pump, and what it can do: two closed lists.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::bus::Delivery;
use crate::clock::Time;
use crate::envelope::{Failure, Message, NotReserved, Refusal, Reservation, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, ThreadId, TimerId};
use crate::pump::gate::Checked;
use crate::thread::{Closing, Decision, DecisionOrigin, Hold, OperatorAction};
use crate::trace::TraceParent;

/// Where a client wants its payload to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A new root thread, under this id if it can be had.
    New {
        suggested: Option<String>,
    },
    Thread {
        id: String,
    },
}

/// A payload from outside, past the gate or refused by it.
#[derive(Debug, Clone)]
pub struct Submission {
    /// UUIDv7, made where the payload came in.
    pub id: MessageId,
    pub client: ListenerName,
    pub target: Target,
    pub key: Option<String>,
    pub payload: Result<Checked, Refusal>,
    /// What the client says its work belongs to.
    pub trace: Option<TraceParent>,
    /// The trace that begins with it, where what it goes on with belongs to none.
    pub begun: Option<TraceParent>,
}

/// What a person decides about a held call.
#[derive(Debug, Clone)]
pub struct CallDecision {
    /// By which whoever waits for the ruling knows it; not recorded.
    pub ticket: Uuid,
    /// The request of the call.
    pub message: MessageId,
    pub decision: Decision<GatedAnswer>,
    /// Who took it, where the entry point knows.
    pub origin: Option<DecisionOrigin>,
}

/// What a person cancels: everything open in a thread and beneath it.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// As of a [`CallDecision`].
    pub ticket: Uuid,
    pub thread: ThreadId,
    pub reason: String,
    /// Who cancels, where the entry point knows.
    pub origin: Option<DecisionOrigin>,
}

/// An answer in the name of a human listener, past the gate or refused by it.
#[derive(Debug, Clone)]
pub struct GatedAnswer {
    pub listener: ListenerName,
    pub payload: Result<Checked, Refusal>,
}

#[derive(Debug)]
pub enum Event {
    /// The first event of every run.
    Boot {
        journal: Uuid,
        epoch: u32,
        detail: String,
        /// What the organism runs on, which the journal holds already.
        blobs: Vec<Digest>,
    },
    Submit(Submission),
    Outcome {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        payloads: Vec<Result<Checked, Refusal>>,
        turn: Option<Turn>,
        /// When its host read it, where the host is this pump's.
        arrived: Option<Time>,
    },
    Failed {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        failure: Failure,
    },
    /// No listener took this delivery.
    NotTaken {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        detail: String,
    },
    /// An answer that names another attempt than the one its instance was given.
    Stray {
        listener: ListenerName,
        /// As it named it, shortened.
        named: String,
        payloads: Vec<Result<Checked, Refusal>>,
    },
    Heartbeat {
        call: CallId,
        attempt: Attempt,
    },
    /// A request of a model call is about to leave in this attempt, and may take so much.
    Reserve {
        call: CallId,
        attempt: Attempt,
        asked: Reservation,
    },
    Alarm(Alarm),
    Decide(CallDecision),
    Cancel(Cancellation),
    Joined {
        listener: ListenerName,
        detail: String,
    },
    Left {
        listener: ListenerName,
        detail: String,
    },
    /// Time has passed that is not counted.
    Standstill(Standstill),
    /// An interval of `busy` refusals to one client is over.
    Busy(BusyCount),
    Shutdown {
        reason: String,
    },
    /// An operator acts on the organism itself.
    Operator {
        /// Names the caller that waits until the action is durable; not recorded.
        ticket: Uuid,
        action: OperatorAction,
    },
}

/// Time that was nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standstill {
    /// The pump was frozen, was kept waiting, or the machine was suspended.
    pub stood: Duration,
    /// By so much the system's clock was set forward.
    pub stepped: Duration,
}

impl Standstill {
    pub fn all(&self) -> Duration {
        self.stood + self.stepped
    }
}

/// `busy` refusals to one client, which are counted instead of being recorded one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCount {
    pub client: ListenerName,
    /// The first of them.
    pub since: Time,
    pub count: u64,
}

/// Something to be reminded of. An alarm that is out of date does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alarm {
    Deadline {
        call: CallId,
        attempt: Attempt,
    },
    Retry {
        call: CallId,
    },
    /// It is time to look after listeners that are absent.
    Probe,
    /// A call has waited for an absent listener long enough.
    Untaken {
        call: CallId,
    },
    /// An earlier pump handed this attempt over.
    Lost {
        call: CallId,
        attempt: Attempt,
    },
    Timer {
        timer: TimerId,
        call: CallId,
    },
    Gone {
        call: CallId,
    },
    /// A call has waited for a person long enough.
    Held {
        call: CallId,
    },
    /// A reservation of an earlier run has no result, and gets none.
    Unsettled {
        call: CallId,
        attempt: Attempt,
    },
}

/// What a client hears of its submission.
#[derive(Debug, Clone)]
pub enum Receipt {
    /// On record. Where several peers accept the payload, there is a call for each.
    Accepted {
        thread: ThreadId,
        calls: Vec<CallId>,
        again: bool,
        /// One of them waits for an approval.
        held: bool,
    },
    Refused {
        refusal: Refusal,
        retry_after: Option<Duration>,
    },
    /// The thread is none the client may write to; the payload says so.
    NoThread {
        answer: String,
    },
}

/// What the driver does once the step's record is durable.
#[derive(Debug)]
pub enum Effect {
    Deliver(Delivery),
    /// The caller of this delivery is gone.
    Withdraw {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
    },
    Receipt {
        submission: MessageId,
        receipt: Receipt,
    },
    /// A client was refused as `busy`, which is to be counted.
    CountBusy {
        client: ListenerName,
    },
    /// What became of a decision: done, or why not. Also confirms a recorded operator action.
    Ruled {
        ticket: Uuid,
        ruling: Result<(), Refusal>,
    },
    /// Whether a request of a model call may leave; why not, otherwise.
    Reserved {
        call: CallId,
        attempt: Attempt,
        answer: Result<(), NotReserved>,
    },
    /// A call waits for a person.
    Held {
        call: CallId,
        thread: ThreadId,
        listener: ListenerName,
        hold: Hold,
    },
    /// A call that a client opened has its result.
    Result {
        call: CallId,
        how: Closing,
        messages: Vec<Arc<Message>>,
    },
    Alarm {
        at: Time,
        alarm: Alarm,
    },
}
