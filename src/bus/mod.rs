//! Hosts of listeners. A host runs native handlers, child processes, or programs on NATS.
//!
//! **Invariant:** a host moves frames and supervises its listener. A host never parses a payload
//! and never decides where a payload goes. A host does not know the pump: it reports to the pump
//! only through a [`Sink`].

pub(crate) mod answer;
mod delivery_frame;
pub mod live;
pub(crate) mod memory;
pub mod native_host;
pub mod nats;
pub mod process;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Time;
use crate::envelope::{AttemptFailure, Message, NotReserved, Reservation, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, Position, ThreadId};
use crate::thread::{ForkSource, UncountedTotal};
use crate::trace::TraceParent;
use live::{LiveChannel, LiveSource};

/// One attempt to have a listener handle a call. Contains the call's request and every later
/// message of that call, in order.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub listener: ListenerName,
    pub call: CallId,
    pub thread: ThreadId,
    pub attempt: Attempt,
    /// Messages of the call, oldest first. The first is the request.
    pub messages: Vec<Arc<Message>>,
    /// Number of messages at the end of `messages` that are new to the listener.
    pub fresh: usize,
    /// Last position of the journal that the listener may read. Only agents read the journal.
    pub position: Position,
    /// Time-out of the attempt, counted from the hand-over of the delivery.
    pub timeout: Duration,
    /// The trace and span under which this attempt is traced. `None` if the attempt's tree belongs
    /// to no trace.
    pub trace: Option<TraceParent>,
    pub preview: DeliveryPreview,
    /// The source of the fork to which the thread belongs; `None` if the thread belongs to no fork.
    pub source: Option<Arc<ForkSource>>,
    /// Time that does not count against the time limit of a workflow run. Empty if all time of the
    /// call counts.
    pub uncounted: Vec<UncountedTotal>,
}

/// The role of a preview in a delivery. A preview is a listener's description of the effects that a
/// held call would have. Always [`DeliveryPreview::None`] if the listener declares no previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryPreview {
    #[default]
    None,
    /// The delivery requests the preview of a held call. This delivery is no attempt to handle the
    /// call, so the listener must change nothing.
    Requested,
    /// A person has approved the call on the basis of the preview with this digest.
    Approved(Digest),
}

impl Delivery {
    /// Returns the span for log lines about this delivery, with the delivery's trace. The span is
    /// disabled if there is no trace.
    pub fn log_span(&self) -> tracing::Span {
        let Self { trace: Some(trace), listener, call, attempt, .. } = self else {
            return tracing::Span::none();
        };
        let span = trace.span();
        let trace = trace.trace_id();
        // A span of the highest level is kept for log lines of every level.
        tracing::error_span!("delivery", trace, %span, %listener, %call, %attempt)
    }

    /// Returns the first message whose redacted payload prevents the pump from handing the delivery
    /// over; `None` if there is no such message. A redacted payload is no XML. If `is_for_agent` is
    /// true, checks only the first message and the new messages of the delivery, because prompts
    /// show a placeholder in place of any other redacted payload.
    pub fn redacted_message(&self, is_for_agent: bool) -> Option<&Message> {
        let known = self.messages.len().saturating_sub(self.fresh);
        let counts = |at: usize| !is_for_agent || at == 0 || at >= known;
        let messages = self.messages.iter().enumerate();
        let mut counted = messages.filter(|(at, _)| counts(*at)).map(|(_, message)| &**message);
        counted.find(|message| message.payload.is_redacted())
    }
}

/// The outcome of a handler: the payloads that it returned, and its turn if the handler is an
/// agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Payloads in order, not yet checked. If there are none, the caller gets `<ack/>`.
    pub payloads: Vec<Vec<u8>>,
    /// The turn of an agent, with its model call; `None` for other listeners.
    pub turn: Option<Turn>,
    /// The only listener to which the call of a payload may go, by the number of the payload from
    /// 0. A workflow names the listener that the definition of its run names. The calls of all
    /// other payloads go to each peer that accepts the payload.
    pub callees: BTreeMap<usize, ListenerName>,
}

impl Outcome {
    /// Adds a payload whose call may go only to `callee`.
    pub fn push_call(&mut self, payload: Vec<u8>, callee: ListenerName) {
        self.callees.insert(self.payloads.len(), callee);
        self.payloads.push(payload);
    }
}

/// State of an agent's model call. Contains no text of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelState {
    /// A request was sent to this route, and no part of the answer has arrived.
    #[serde(rename = "requested")]
    Requested(String),
    /// The answer of the model on this route is arriving.
    #[serde(rename = "streaming")]
    Streaming(String),
    /// The request to this route waits until this time, because the provider requested a pause.
    #[serde(rename = "delayed")]
    Delayed(String, Time),
    /// The model call has ended.
    #[serde(rename = "ended")]
    Ended,
}

/// Receiver for the answer to [`Sink::reserve`].
pub type Reserved = oneshot::Receiver<Result<(), NotReserved>>;

/// Receiver of the reports of hosts. A host must report the end of each delivery exactly once, even
/// if the delivery was cancelled. The methods return immediately, or block briefly if the sink
/// cannot keep up.
///
/// An answer may arrive after the host has reported that the attempt failed. The host reports this
/// late answer, too, and the pump refuses and records it.
pub trait Sink: Send + Sync + 'static {
    fn ended(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, AttemptFailure>,
    );
    /// Reports the end of a delivery to an agent on another machine, as [`Sink::ended`] does.
    /// `position` is the position of the delivery. The host on the other machine has written the
    /// note of its turn, so the sink compares the note with this position.
    fn ended_at(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        _position: Position,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.ended(listener, call, attempt, result);
    }
    /// Reports that no listener took the delivery. The delivery then does not count as an attempt.
    /// If a listener may have taken the delivery, call [`Sink::ended`] instead.
    fn not_taken(&self, listener: &ListenerName, call: CallId, attempt: Attempt, detail: String) {
        self.ended(listener, call, attempt, Err(AttemptFailure::Unreachable { detail }));
    }
    /// Reports an answer that names a different attempt from the one in progress. The pump only
    /// records this answer. `named` is the attempt as the answer names it, shortened.
    fn stray(&self, listener: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let _ = (listener, named, payloads);
    }
    /// Reports that the handler is alive, which extends the deadline of the attempt.
    fn heartbeat(&self, listener: &ListenerName, call: CallId, attempt: Attempt);
    /// Reserves the cost of the next request of a model call. Returns a receiver. If the
    /// reservation is accepted, the receiver gets the permission as soon as the reservation is
    /// durable. Otherwise, the receiver gets a refusal. If the pump has stopped, or if this sink
    /// supports no budgets, the receiver gets no answer, and the request must not be sent.
    fn reserve(&self, call: CallId, attempt: Attempt, reservation: Reservation) -> Reserved {
        let _ = (call, attempt, reservation);
        oneshot::channel().1
    }
    /// Reports a new state of an attempt's model call. The state is only shown to people who watch
    /// the call.
    fn model_state(&self, source: &LiveSource, state: ModelState) {
        let _ = (source, state);
    }
    /// Returns the live channel, which takes the text of models to readers. Returns `None` if the
    /// sink has no such channel.
    fn live(&self) -> Option<&Arc<LiveChannel>> {
        None
    }
    /// Reports that the listener is reachable again.
    fn joined(&self, listener: &ListenerName, detail: &str);
    /// Reports that the listener is unreachable. Until the host calls [`Sink::joined`], the
    /// listener's deliveries end by [`Sink::not_taken`].
    fn left(&self, listener: &ListenerName, detail: &str);
    /// Reports that NATS servers denied operations to programs of the listener. `operations` lists
    /// each operation once, and `count` is the number of all denials that the programs reported.
    fn denied(&self, listener: &ListenerName, operations: String, count: u64) {
        let _ = (listener, operations, count);
    }
    /// Reports that the pump cannot get the listener's answers over NATS, with the reason `why`.
    /// Either the servers do not permit it, or the pump's connection for the listener has ended and
    /// is made anew. Until the host reports `None`, the listener's deliveries end by
    /// [`Sink::not_taken`].
    fn answers_denied(&self, listener: &ListenerName, why: Option<String>) {
        let _ = (listener, why);
    }
    /// Reports that a process of the listener ended unexpectedly and is being restarted.
    fn restarted(&self, listener: &ListenerName) {
        let _ = listener;
    }
}

/// A host, which runs one listener for the pump. The listener's contract states how many deliveries
/// the host may have at the same time.
pub trait Host: Send + Sync + 'static {
    /// Accepts the delivery and returns immediately. The host reports the answer to its [`Sink`]
    /// later. The host may wait for [`Host::flush`] before it sends the delivery.
    fn deliver(&self, delivery: Delivery);
    /// Whether the host reads the journal. If true, all earlier records must be durable and
    /// readable before the pump hands over a delivery. If false, it is enough that they are
    /// durable.
    fn reads_journal(&self) -> bool {
        true
    }
    /// Cancels an attempt, because nothing waits for its result any more. The host stops a handler
    /// that does not end within [`crate::limits::CANCEL_GRACE`]. The host reports the end of the
    /// attempt in any case.
    fn cancel(&self, call: CallId, attempt: Attempt);
    /// Whether the listener has left. True if the host has called [`Sink::left`], and has not
    /// called [`Sink::joined`] since then.
    fn has_left(&self) -> bool {
        false
    }
    /// Makes the host report that its listener is reachable again. The host reports this at once,
    /// or as soon as the listener's process runs. Called if this host replaces a host that had
    /// reported the listener as unreachable.
    fn report_return(&self) {}
    /// Sends the deliveries that the host has accepted but not sent yet. The host may send them
    /// shortly after the function returns.
    fn flush(&self) {}
    /// Whether no delivery of the host is running. A host that does not know this returns false.
    fn is_idle(&self) -> bool {
        false
    }
    /// Stops the host. Refuses new deliveries, and gives running deliveries at most
    /// [`crate::limits::DRAIN_TIMEOUT`] to end.
    fn drain(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Stops the host as [`Host::drain`] does, but ends running deliveries at once. Used if the
    /// time for running deliveries has already passed in a drain of the pump.
    fn stop(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.drain()
    }
}
