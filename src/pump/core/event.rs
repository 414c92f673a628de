//! Events and effects of the pump: two closed lists.

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

/// Thread that a client's payload goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A new root thread, with this id if it is free.
    New {
        suggested: Option<String>,
    },
    Thread {
        id: String,
    },
}

/// A payload from outside, after the gate accepted or refused it.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Id (UUIDv7), made at the entry point.
    pub id: MessageId,
    pub client: ListenerName,
    pub target: Target,
    pub key: Option<String>,
    pub payload: Result<Checked, Refusal>,
    /// Trace context that the client sent.
    pub trace: Option<TraceParent>,
    /// Trace to begin, if the thread belongs to none.
    pub begun: Option<TraceParent>,
}

/// A person's decision on a held call.
#[derive(Debug, Clone)]
pub struct CallDecision {
    /// Identifies the waiting caller of the decision; not recorded.
    pub ticket: Uuid,
    /// Request of the held call.
    pub message: MessageId,
    pub decision: Decision<GatedAnswer>,
    /// Person who decided, if the entry point knows.
    pub origin: Option<DecisionOrigin>,
}

/// A person's cancellation of all open calls in a thread and its subthreads.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// Identifies the waiting caller of the cancellation; not recorded.
    pub ticket: Uuid,
    pub thread: ThreadId,
    pub reason: String,
    /// Person who cancels, if the entry point knows.
    pub origin: Option<DecisionOrigin>,
}

/// An answer for a human listener, after the gate accepted or refused it.
#[derive(Debug, Clone)]
pub struct GatedAnswer {
    pub listener: ListenerName,
    pub payload: Result<Checked, Refusal>,
}

#[derive(Debug)]
pub enum Event {
    /// The first event of every start.
    Boot {
        journal: Uuid,
        epoch: u32,
        detail: String,
        /// Digests of texts that the organism uses, which the journal holds already.
        blobs: Vec<Digest>,
    },
    Submit(Submission),
    Outcome {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        payloads: Vec<Result<Checked, Refusal>>,
        turn: Option<Turn>,
        /// Time at which this pump's host read the answer, if one did.
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
    /// An answer that names another attempt than its instance had.
    Stray {
        listener: ListenerName,
        /// The named attempt, shortened.
        named: String,
        payloads: Vec<Result<Checked, Refusal>>,
    },
    Heartbeat {
        call: CallId,
        attempt: Attempt,
    },
    /// A model call asks to send its next request, with this maximum cost.
    Reserve {
        call: CallId,
        attempt: Attempt,
        reservation: Reservation,
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
    /// Time has passed that counts for no deadline.
    Standstill(Standstill),
    /// An interval of counting `busy` refusals to one client is over.
    Busy(BusyCount),
    Shutdown {
        reason: String,
    },
    /// An action of an operator on the organism itself.
    Operator {
        /// Identifies the caller that waits until the action is durable; not recorded.
        ticket: Uuid,
        action: OperatorAction,
    },
}

/// Time that counts for no deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standstill {
    /// Time in which the pump was frozen or blocked, or the machine was suspended.
    pub stood: Duration,
    /// Time by which the system's clock was set forward.
    pub stepped: Duration,
}

impl Standstill {
    pub fn all(&self) -> Duration {
        self.stood + self.stepped
    }
}

/// `busy` refusals to one client, counted instead of recorded one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCount {
    pub client: ListenerName,
    /// Time of the first of them.
    pub since: Time,
    pub count: u64,
}

/// An alarm that the core has requested. An outdated alarm has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alarm {
    Deadline {
        call: CallId,
        attempt: Attempt,
    },
    Retry {
        call: CallId,
    },
    /// An absent listener may be due for a probe.
    Probe,
    /// A call has waited for an absent listener until its deadline.
    Untaken {
        call: CallId,
    },
    /// An earlier pump started this attempt and did not record its end.
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
    /// A held call has waited for a person until its deadline.
    Held {
        call: CallId,
    },
    /// A reservation of an earlier start has no result, and will get none.
    Unsettled {
        call: CallId,
        attempt: Attempt,
    },
}

/// Response to a client's submission.
#[derive(Debug, Clone)]
pub enum Receipt {
    /// The payload is on record. If several peers accept it, there is a call for each.
    Accepted {
        thread: ThreadId,
        calls: Vec<CallId>,
        again: bool,
        /// Whether one of the calls waits for an approval.
        held: bool,
    },
    Refused {
        refusal: Refusal,
        retry_after: Option<Duration>,
    },
    /// The client may not write to the thread. The payload states the reason.
    NoThread {
        answer: String,
    },
}

/// Actions of the driver after the step's record is durable.
#[derive(Debug)]
pub enum Effect {
    Deliver(Delivery),
    /// Cancels a delivery whose caller no longer waits.
    Withdraw {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
    },
    Receipt {
        submission: MessageId,
        receipt: Receipt,
    },
    /// Counts a `busy` refusal to a client.
    CountBusy {
        client: ListenerName,
    },
    /// Reports the result of a decision or a cancellation, or confirms a recorded operator action.
    Ruled {
        ticket: Uuid,
        ruling: Result<(), Refusal>,
    },
    /// Reports whether a model call may send its request.
    Reserved {
        call: CallId,
        attempt: Attempt,
        answer: Result<(), NotReserved>,
    },
    /// Reports that a call is held for a person.
    Held {
        call: CallId,
        thread: ThreadId,
        listener: ListenerName,
        hold: Hold,
    },
    /// Reports the result of a client's call.
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
