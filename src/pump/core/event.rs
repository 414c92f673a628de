//! Events and effects of the pump: two closed enums.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::bus::Delivery;
use crate::clock::Time;
use crate::contract::{Contracts, TreeLimits};
use crate::envelope::{AttemptFailure, Message, NotReserved, Refusal, Reservation, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, ThreadId, TimerId};
use crate::pump::gate::Checked;
use crate::system::AlertReport;
use crate::thread::{Closing, Decision, DecisionOrigin, Hold, OperatorAction};
use crate::trace::TraceParent;

use super::Schedules;
use super::forks::{CallRecollection, ForkOrder, ForkRuling, RecallOrder};
use super::pauses::{PauseChange, PauseRuling};
use super::retries::{RetryOrder, RetryRuling};

/// Thread that a client's payload goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A new root thread. It gets the suggested id, unless a thread with that id exists.
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
    /// Message id (UUIDv7), made where the submission entered.
    pub id: MessageId,
    pub client: ListenerName,
    pub target: Target,
    pub key: Option<String>,
    pub payload: Result<Checked, Refusal>,
    /// Trace context that the client sent with the payload.
    pub trace: Option<TraceParent>,
    /// Trace that the submission begins if its thread belongs to no trace.
    pub begun: Option<TraceParent>,
}

/// A person's decision on a held call.
#[derive(Debug, Clone)]
pub struct CallDecision {
    /// Identifies the caller that waits for the ruling. Not recorded.
    pub ticket: Uuid,
    /// Message id of the held call's request.
    pub message: MessageId,
    pub decision: Decision<GatedAnswer>,
    /// Person who made the decision, if the entry point knows it.
    pub origin: Option<DecisionOrigin>,
}

/// A person's request to cancel all open calls in a thread and its subthreads.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// Identifies the caller that waits for the ruling. Not recorded.
    pub ticket: Uuid,
    pub thread: ThreadId,
    pub reason: String,
    /// Person who cancels, if the entry point knows it.
    pub origin: Option<DecisionOrigin>,
}

/// An answer for a human listener, after the gate accepted or refused it.
#[derive(Debug, Clone)]
pub struct GatedAnswer {
    pub listener: ListenerName,
    pub payload: Result<Checked, Refusal>,
}

/// An event of the pump. Large variants that are rare are boxed, because every event is moved
/// several times on its way to the step.
#[derive(Debug)]
pub enum Event {
    /// The first event after every start of a pump.
    Boot {
        journal: Uuid,
        epoch: u32,
        detail: String,
        /// Digests of texts that this organism uses and that the journal already holds.
        blobs: Vec<Digest>,
    },
    Submit(Box<Submission>),
    Outcome {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        payloads: Vec<Result<Checked, Refusal>>,
        turn: Option<Box<Turn>>,
        /// Time at which a host of this pump received the answer. `None` if it did not come from a
        /// host.
        arrived: Option<Time>,
    },
    Failed {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        failure: AttemptFailure,
    },
    /// A delivery was returned, because no listener took it.
    NotTaken {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        detail: String,
    },
    /// A process instance answered with the id of an attempt that it was not given.
    Stray {
        listener: ListenerName,
        /// The attempt id that the answer named, shortened.
        named: String,
        payloads: Vec<Result<Checked, Refusal>>,
    },
    Heartbeat {
        call: CallId,
        attempt: Attempt,
    },
    /// An agent requests permission to send the next request of a model call, with this maximum
    /// cost.
    Reserve {
        call: CallId,
        attempt: Attempt,
        reservation: Reservation,
    },
    Alarm(Alarm),
    /// The request of a schedule's run must be sent (see [`Alarm::ScheduledRun`]). `begun` is the
    /// trace that the run may begin.
    SendScheduled {
        request: MessageId,
        begun: Option<TraceParent>,
    },
    Decide(Box<CallDecision>),
    Cancel(Cancellation),
    /// An operator pauses or resumes.
    Pause(PauseChange),
    /// An operator forks a thread.
    Fork(Box<ForkOrder>),
    /// An operator retries a message.
    RetryMessage(Box<RetryOrder>),
    /// The search of a fork's source for the result of a call has ended. `result` is `None` if the
    /// source has no result.
    Recalled {
        call: CallId,
        result: Option<CallRecollection>,
    },
    Joined {
        listener: ListenerName,
        detail: String,
    },
    Left {
        listener: ListenerName,
        detail: String,
    },
    /// NATS servers denied operations to programs of this listener, and the programs report the
    /// denials.
    Denied {
        listener: ListenerName,
        /// Each different operation, such as `subscribe organism.desk.to.search`.
        operations: String,
        /// Number of reports.
        count: u64,
    },
    /// Time that counts for no deadline has passed, for example because the process stood still.
    Standstill(Standstill),
    /// The interval for counting `busy` refusals to one client has ended.
    Busy(BusyCount),
    /// The alert monitor reports an alert.
    Alert {
        /// Identifies the caller that waits until the report is durable. Not recorded.
        ticket: Uuid,
        report: AlertReport,
    },
    Shutdown {
        reason: String,
    },
    /// An action of an operator on the organism itself.
    Operator {
        /// Identifies the caller that waits until the action is durable. Not recorded.
        ticket: Uuid,
        action: OperatorAction,
    },
    /// An operator puts another config in force.
    Reload(Box<ReloadRequest>),
}

/// Another config for a running pump.
#[derive(Debug)]
pub struct ReloadRequest {
    /// Identifies the caller that waits until the reload is durable. Not recorded.
    pub ticket: Uuid,
    pub action: OperatorAction,
    pub config: CoreConfig,
    /// Digests of texts that the organism uses from now on.
    pub blobs: Vec<Digest>,
}

/// The parts of a config that decide what the core does.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    pub contracts: Arc<Contracts>,
    pub limits: TreeLimits,
    /// Schedules of the pump; `None` for a pump that does not run schedules.
    pub schedules: Option<Arc<Schedules>>,
    pub digest: Digest,
}

/// Time that counts for no deadline: the sum of a standstill and of a forward step of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standstill {
    /// Duration for which the pump was frozen or blocked, or the machine was suspended.
    pub stood: Duration,
    /// Amount by which the system's clock was set forward.
    pub stepped: Duration,
}

impl Standstill {
    pub fn all(&self) -> Duration {
        self.stood + self.stepped
    }
}

/// Count of `busy` refusals to one client, which are not recorded one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCount {
    pub client: ListenerName,
    /// Time of the first counted refusal.
    pub since: Time,
    pub count: u64,
}

/// An alarm that the core has requested. If the state has changed since, the alarm has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alarm {
    Deadline {
        call: CallId,
        attempt: Attempt,
    },
    Retry {
        call: CallId,
    },
    /// A probe of an absent listener may be due.
    Probe,
    /// The deadline of a call that waits for an absent listener may have passed.
    Untaken {
        call: CallId,
    },
    /// An attempt that an earlier pump started has no recorded end.
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
    /// The time limit of the call's thread, or of a thread above it, may have passed.
    ThreadTime {
        call: CallId,
    },
    /// The deadline of a held call may have passed.
    Held {
        call: CallId,
    },
    /// The time for the preview of a held call has passed.
    PreviewTime {
        call: CallId,
    },
    /// A reservation made under an earlier start of the pump has no recorded cost and will get
    /// none.
    Unsettled {
        call: CallId,
        attempt: Attempt,
    },
    /// An operator has cancelled this attempt together with a pause.
    Stop {
        call: CallId,
        attempt: Attempt,
    },
    /// The planned time of a schedule has come.
    Schedule {
        timer: TimerId,
    },
    /// The request of a schedule's run must be sent.
    ScheduledRun {
        request: MessageId,
    },
    /// The recorded event that waits for this call of a fork may now be the next one in the order
    /// of the source.
    Recorded {
        call: CallId,
    },
}

/// Response to a client's submission.
#[derive(Debug, Clone)]
pub enum Receipt {
    /// The payload is recorded. There is one call for each peer that accepts the payload.
    Accepted {
        thread: ThreadId,
        calls: Vec<CallId>,
        again: bool,
        /// Whether at least one of the opened calls waits for an approval.
        held: bool,
    },
    Refused {
        refusal: Refusal,
        retry_after: Option<Duration>,
    },
    /// The client may not write to this thread. The payload states the reason.
    NoThread {
        answer: String,
    },
}

/// Actions of the driver after the step's record is durable.
#[derive(Debug)]
pub enum Effect {
    Deliver(Delivery),
    /// Cancels a delivery, because its caller no longer awaits the result.
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
    /// Sends the ruling on a decision or a cancellation to its waiting caller, or confirms that an
    /// operator's action is recorded.
    Ruled {
        ticket: Uuid,
        ruling: Result<(), Refusal>,
    },
    /// Sends the ruling on a pause or a resume to its waiting caller.
    PauseRuled {
        ticket: Uuid,
        ruling: PauseRuling,
    },
    /// Sends the ruling on a fork to its waiting caller.
    ForkRuled {
        ticket: Uuid,
        ruling: ForkRuling,
    },
    /// Sends the ruling on a retry to its waiting caller.
    RetryRuled {
        ticket: Uuid,
        ruling: RetryRuling,
    },
    /// Starts a search of the fork's source for the result of a call. [`Event::Recalled`] reports
    /// what was found.
    Recall(RecallOrder),
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
    /// Reports the result of a client's call to all who wait for it.
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
