//! Events, which the core of the pump processes, and effects, which the driver then carries out.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::bus::Delivery;
use crate::clock::Time;
use crate::contract::{Contracts, TreeLimits};
use crate::envelope::{AttemptFailure, Message, NotReserved, Refusal, Reservation, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::pump::gate::Checked;
use crate::system::AlertReport;
use crate::thread::{Closing, Decision, DecisionOrigin, DecisionSignature, Hold, OperatorAction};
use crate::trace::TraceParent;

use super::Schedules;
use super::fork_timers::ForkSearch;
use super::forks::{CallRecollection, ForkOrder, ForkRuling};
use super::pauses::{PauseChange, PauseRuling};
use super::retries::{RetryOrder, RetryRuling};

/// The thread to which a client sends its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A new root thread with the id `suggested`. If another thread already has this id, the pump
    /// refuses the submission. If `suggested` is `None`, the pump generates an id.
    New {
        suggested: Option<String>,
    },
    Thread {
        id: String,
    },
}

/// A payload that a client sent, after the gate accepted or refused it.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Message id (UUIDv7), made at the entry point when the submission arrived.
    pub id: MessageId,
    pub client: ListenerName,
    pub target: Target,
    pub key: Option<String>,
    pub payload: Result<Checked, Refusal>,
    /// Digest of the payload's root element, if the gate refused the payload and the submission has
    /// a key. If an earlier config accepted the same payload with the same key, the pump recognises
    /// the payload by this digest. `None` if the payload is valid, if there is no key, or if the
    /// payload is not exactly one well-formed root element.
    pub refused_digest: Option<Digest>,
    /// Trace context that the client sent with the payload; `None` if it sent none.
    pub trace: Option<TraceParent>,
    /// New trace that begins with this submission, unless the thread already belongs to a trace.
    /// `None` if tracing is off.
    pub begun: Option<TraceParent>,
}

/// A person's decision on a held call.
#[derive(Debug, Clone)]
pub struct CallDecision {
    /// Identifies the caller that waits for the pump's ruling on this decision. Not recorded.
    pub ticket: Uuid,
    /// Message id of the held call's request.
    pub message: MessageId,
    pub decision: Decision<GatedAnswer>,
    /// Person who made the decision; `None` if the entry point does not know the person.
    pub origin: Option<DecisionOrigin>,
}

/// A person's request to cancel all open calls in a thread and its subthreads.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// Identifies the caller that waits for the pump's ruling on this request. Not recorded.
    pub ticket: Uuid,
    pub thread: ThreadId,
    pub reason: String,
    /// Person who cancels; `None` if the entry point does not know the person.
    pub origin: Option<DecisionOrigin>,
}

/// A person's answer to a question, after the gate accepted or refused the answer.
#[derive(Debug, Clone)]
pub struct GatedAnswer {
    pub listener: ListenerName,
    pub payload: Result<Checked, Refusal>,
}

/// An event of the pump, which the core processes in one step. Large variants that are rare are
/// boxed, because every event is moved several times before its step.
#[derive(Debug)]
pub enum Event {
    /// The first event after every start of a pump.
    Boot {
        journal: Uuid,
        epoch: u32,
        detail: String,
        /// Digests of the documents of the config, such as the config file and the schemas. The
        /// journal already contains these documents.
        blobs: Vec<Digest>,
    },
    Submit(Box<Submission>),
    Outcome {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        payloads: Vec<Result<Checked, Refusal>>,
        turn: Option<Box<Turn>>,
        /// Time at which the pump read the outcome from the listener's host, before the gate
        /// checked the outcome. `None` in a replay of a record that does not state this time.
        arrived: Option<Time>,
    },
    Failed {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        failure: AttemptFailure,
    },
    /// A delivery was returned, because no process of the listener accepted it.
    NotTaken {
        listener: ListenerName,
        call: CallId,
        attempt: Attempt,
        detail: String,
    },
    /// A process of a listener sent an answer that names a wrong attempt. A child process must name
    /// the attempt that it currently handles. An answer on NATS must name the attempt on whose
    /// subject it arrives.
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
    /// An agent requests permission to send the next request of a model call. The event states the
    /// maximum cost of that request.
    Reserve {
        call: CallId,
        attempt: Attempt,
        reservation: Reservation,
    },
    Alarm(Alarm),
    /// The pump must now send the request that begins a run of a schedule (see
    /// [`Alarm::ScheduledRun`]). `begun` is the new trace that starts with this run; `None` if
    /// tracing is off.
    SendScheduled {
        request: MessageId,
        begun: Option<TraceParent>,
    },
    Decide(Box<CallDecision>),
    Cancel(Cancellation),
    /// An operator pauses calls, or resumes paused calls.
    Pause(PauseChange),
    /// An operator forks a thread.
    Fork(Box<ForkOrder>),
    /// An operator retries a message.
    RetryMessage(Box<RetryOrder>),
    /// The search for the result of a call in the source of a fork has ended. If a result was
    /// found, the result takes effect. If none was found (`None`), the call starts. In both cases,
    /// the call may first have to wait for other calls of the fork.
    Searched {
        call: CallId,
        result: Option<CallRecollection>,
    },
    /// The replayed record states that the result of a search took effect, so the result takes
    /// effect at once. Only a replay makes this event; a running pump gets an [`Event::Searched`]
    /// instead.
    Recalled {
        call: CallId,
        result: Option<CallRecollection>,
    },
    /// The search in the source of a fork for the firing of a timer has ended. `call` has set the
    /// timer of the fork. `fired` is the position in the source at which the corresponding timer
    /// fired, or `None` if no such timer fired.
    TimerSearched {
        timer: TimerId,
        call: CallId,
        fired: Option<Position>,
    },
    /// The replayed record states that a timer fired, so it fires at once, even in a fork whose
    /// other work can continue. Only a replay makes this event; a running pump gets an
    /// [`Alarm::Timer`] or an [`Event::TimerSearched`] instead.
    TimerFired {
        timer: TimerId,
        call: CallId,
    },
    Joined {
        listener: ListenerName,
        detail: String,
    },
    Left {
        listener: ListenerName,
        detail: String,
    },
    /// NATS servers denied operations to programs of this listener, as these programs report.
    Denied {
        listener: ListenerName,
        /// The denied operations, each named once, such as `subscribe organism.desk.to.search`.
        operations: String,
        /// Number of reports about denied operations.
        count: u64,
    },
    /// The process stood still, or the clock was set forward. The time that passed in this way must
    /// not count towards any deadline.
    Standstill(Standstill),
    /// Number of `busy` refusals that one client got within an interval. The pump records only this
    /// number, and not each refusal.
    Busy(BusyCount),
    /// The alert monitor reports an alert.
    Alert {
        /// Identifies the caller that waits until the alert's report is durable. Not recorded.
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

impl Event {
    /// Returns the signature of the decision that this event submits. Returns `None` if the event
    /// submits no decision, or an unsigned one.
    pub fn signature_mut(&mut self) -> Option<&mut DecisionSignature> {
        let origin = match self {
            Self::Decide(decision) => &mut decision.origin,
            Self::Cancel(cancellation) => &mut cancellation.origin,
            Self::Pause(change) => &mut change.action.origin,
            Self::Fork(order) => &mut order.action.origin,
            Self::RetryMessage(order) => &mut order.action.origin,
            _ => return None,
        };
        origin.as_mut()?.signature.as_deref_mut()
    }
}

/// Another config for a running pump.
#[derive(Debug)]
pub struct ReloadRequest {
    /// Identifies the caller that waits until the reload is durable. Not recorded.
    pub ticket: Uuid,
    pub action: OperatorAction,
    pub config: CoreConfig,
    /// Digests of the documents of the new config, such as the config file and the schemas.
    pub blobs: Vec<Digest>,
}

/// The parts of a config on which the core's decisions depend.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    pub contracts: Arc<Contracts>,
    pub limits: TreeLimits,
    /// Schedules of the pump; `None` for a pump that does not run schedules.
    pub schedules: Option<Arc<Schedules>>,
    pub digest: Digest,
}

/// Time that must not count towards any deadline: the time of a standstill, and the time by which
/// the clock was set forward.
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

/// Number of `busy` refusals to one client. These refusals are not recorded one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCount {
    pub client: ListenerName,
    /// Time of the first counted refusal.
    pub since: Time,
    pub count: u64,
}

/// An alarm that the core has set. If the state has changed before the alarm fires, the alarm may
/// be obsolete, and then has no effect.
///
/// The pump handles alarms with the same time in the order of these variants.
/// [`Self::Lost`] must stand before [`Self::ThreadTime`]: after a boot, both may be due at once for
/// one call, and a lost attempt must end as lost, not as a time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alarm {
    Deadline {
        call: CallId,
        attempt: Attempt,
    },
    Retry {
        call: CallId,
    },
    /// A probe may be due: a delivery that tests whether an absent listener is back.
    Probe,
    /// The deadline of a call that waits for an absent listener may have passed.
    Untaken {
        call: CallId,
    },
    /// An attempt of an earlier pump now counts as lost, because the journal records no end of it.
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
    /// The time limit of the call's thread, of a thread above it, or of its tree may have passed.
    ThreadTime {
        call: CallId,
    },
    /// The deadline of a held call may have passed.
    Held {
        call: CallId,
    },
    /// The deadline for the preview of a held call may have passed. A preview states what the
    /// listener would do if the call were approved.
    PreviewTime {
        call: CallId,
    },
    /// An earlier pump reserved an amount for a model call, but ended before it recorded the actual
    /// cost. So the whole reservation must now be charged.
    Unsettled {
        call: CallId,
        attempt: Attempt,
    },
    /// Alarm that cancels the call of this attempt, if the attempt is still in flight. The core
    /// sets this alarm when an operator requests a pause that also cancels the work in flight.
    Stop {
        call: CallId,
        attempt: Attempt,
    },
    /// The planned time of a schedule has come.
    Schedule {
        timer: TimerId,
    },
    /// The pump must now send the request that begins a run of a schedule.
    ScheduledRun {
        request: MessageId,
    },
    /// The next recorded event of a fork may take effect: a result, a turn or the firing of a timer
    /// that the fork's source recorded for this call. Such events take effect one after another in
    /// the order of the source. Each takes effect only when every call of the fork waits, and no
    /// search is in progress. If the source has no result for this call, the alarm may start the
    /// call instead.
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
        /// The calls of the submission that wait for an approval.
        held: Vec<CallId>,
    },
    Refused {
        refusal: Refusal,
        retry_after: Option<Duration>,
    },
    /// The thread does not exist, or the client has no permission to write to it. `answer` is the
    /// payload that the client gets.
    NoThread {
        answer: String,
    },
}

/// The pump's ruling on a request of an operator or of the alert monitor.
#[derive(Debug, Clone)]
pub enum OperatorRuling {
    /// States whether the pump accepted a person's decision, or a request to cancel calls. For an
    /// operator's action, a reload or an alert, this is always `Ok`, which means that the record is
    /// durable.
    Plain(Result<(), Refusal>),
    Pause(PauseRuling),
    Fork(ForkRuling),
    Retry(RetryRuling),
}

/// An action that the driver carries out after the record of a step is durable.
#[derive(Debug)]
pub enum Effect {
    Deliver(Delivery),
    /// Cancels the delivery of an attempt, because nothing waits for its result any more.
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
    /// Sends the pump's ruling on a request to the caller that waits for it.
    Ruled {
        ticket: Uuid,
        ruling: OperatorRuling,
    },
    /// Starts a search in the source of a fork for the result of a call or the firing of a timer.
    /// [`Event::Searched`] or [`Event::TimerSearched`] reports the end of the search.
    Recall(ForkSearch),
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
    /// Reports the result of a client's call to all clients that wait for this call.
    Result {
        call: CallId,
        how: Closing,
        messages: Vec<Arc<Message>>,
    },
    Alarm {
        at: Time,
        alarm: Alarm,
    },
    /// Sets many alarms. A start sets the alarms of all timers at once, and there may be a million
    /// timers.
    Alarms(Vec<(Time, Alarm)>),
}
