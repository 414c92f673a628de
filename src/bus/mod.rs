//! Hosts of listeners: native handlers, child processes, and programs on NATS.
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

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Time;
use crate::envelope::{AttemptFailure, Message, NotReserved, Reservation, Turn};
use crate::ids::{Attempt, CallId, Digest, ListenerName, Position, ThreadId};
use crate::thread::ForkSource;
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
    /// Number of new messages for the listener, at the end of `messages`.
    pub fresh: usize,
    /// Journal position of this delivery, up to which an agent may read its thread.
    pub position: Position,
    /// Time-out of the attempt, counted from the hand-over of the delivery.
    pub timeout: Duration,
    /// Span of this attempt, if its tree belongs to a trace.
    pub trace: Option<TraceParent>,
    pub preview: DeliveryPreview,
    /// The source of the fork to which the thread belongs; `None` if the thread belongs to no fork.
    pub source: Option<Arc<ForkSource>>,
}

/// How a delivery relates to a preview of its call. Always `None` if the listener declares no
/// previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryPreview {
    #[default]
    None,
    /// The delivery requests the preview of a held call. The delivery is no attempt, and the
    /// listener must change nothing.
    Requested,
    /// A person has approved the call together with the preview of this digest.
    Approved(Digest),
}

impl Delivery {
    /// Returns the span for log lines about this delivery. The span names the trace, and is
    /// disabled if the delivery has no trace.
    pub fn log_span(&self) -> tracing::Span {
        let Self { trace: Some(trace), listener, call, attempt, .. } = self else {
            return tracing::Span::none();
        };
        let span = trace.span();
        let trace = trace.trace_id();
        // A span of the highest level is kept for log lines of every level.
        tracing::error_span!("delivery", trace, %span, %listener, %call, %attempt)
    }
}

/// Result of a handler.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Payloads in order, not yet checked. If there are none, the caller gets `<ack/>`.
    pub payloads: Vec<Vec<u8>>,
    /// The turn of an agent, with its model call; `None` for other listeners.
    pub turn: Option<Turn>,
}

/// State of an agent's model call, without any text of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelState {
    /// A request was sent to this route, and no part of the answer has arrived.
    #[serde(rename = "requested")]
    Requested(String),
    /// The answer of this route is arriving.
    #[serde(rename = "streaming")]
    Streaming(String),
    /// The provider of this route requested a pause until this time.
    #[serde(rename = "delayed")]
    Delayed(String, Time),
    /// The model call has ended.
    #[serde(rename = "ended")]
    Ended,
}

/// Receives the answer to [`Sink::reserve`].
pub type Reserved = oneshot::Receiver<Result<(), NotReserved>>;

/// Receives the reports of hosts. Each delivery ends exactly once, even if it was cancelled. The
/// methods return immediately or block briefly under back-pressure.
///
/// An answer may arrive after the host has reported the attempt as failed. The host reports this
/// answer, too. The pump refuses such a late answer and records the refusal.
pub trait Sink: Send + Sync + 'static {
    fn ended(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, AttemptFailure>,
    );
    /// Reports that the delivery reached no listener. Such a delivery does not count as an attempt.
    /// If the delivery may have reached a listener, the host must call [`Sink::ended`] instead.
    fn not_taken(&self, listener: &ListenerName, call: CallId, attempt: Attempt, detail: String) {
        self.ended(listener, call, attempt, Err(AttemptFailure::Unreachable { detail }));
    }
    /// Reports an answer that names an attempt other than the attempt in progress. The pump only
    /// records the answer. `named` is the named attempt as text, shortened.
    fn stray(&self, listener: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let _ = (listener, named, payloads);
    }
    /// Reports that the handler is alive, which extends the deadline of the attempt.
    fn heartbeat(&self, listener: &ListenerName, call: CallId, attempt: Attempt);
    /// Requests permission for the next request of a model call, and reserves the cost of that
    /// request. The answer arrives when the reservation is durable. If the sink has no budgets or
    /// its pump has stopped, no answer arrives, and the request must not be sent.
    fn reserve(&self, call: CallId, attempt: Attempt, reservation: Reservation) -> Reserved {
        let _ = (call, attempt, reservation);
        oneshot::channel().1
    }
    /// Reports a new state of an attempt's model call. The state is only shown to people who watch
    /// the call.
    fn model_state(&self, source: &LiveSource, state: ModelState) {
        let _ = (source, state);
    }
    /// Returns the live channel that receives the texts of models; `None` if the sink has none.
    fn live(&self) -> Option<&Arc<LiveChannel>> {
        None
    }
    /// Reports that the listener is reachable again.
    fn joined(&self, listener: &ListenerName, detail: &str);
    /// Reports that the listener is unreachable. Until the host calls [`Sink::joined`], deliveries
    /// of the listener end by [`Sink::not_taken`].
    fn left(&self, listener: &ListenerName, detail: &str);
    /// Reports operations that NATS servers denied to programs of the listener. `count` is the
    /// number of reports by these programs.
    fn denied(&self, listener: &ListenerName, operations: String, count: u64) {
        let _ = (listener, operations, count);
    }
    /// Reports that a process of the listener ended unexpectedly and is being restarted.
    fn restarted(&self, listener: &ListenerName) {
        let _ = listener;
    }
}

/// Runs one listener for the pump. The pump never has more deliveries in flight at a host than the
/// listener's contract allows.
pub trait Host: Send + Sync + 'static {
    /// Accepts the delivery and returns immediately. The answer goes to the [`Sink`]. The host may
    /// keep the delivery until [`Host::flush`].
    fn deliver(&self, delivery: Delivery);
    /// Whether the host reads the journal. If true, the records before a delivery must be readable,
    /// not only durable, when the delivery arrives.
    fn reads_journal(&self) -> bool {
        true
    }
    /// Cancels an attempt whose caller no longer waits. If the handler does not stop by itself, the
    /// host stops it after [`crate::limits::CANCEL_GRACE`]. The host reports the end of the attempt
    /// in both cases.
    fn cancel(&self, call: CallId, attempt: Attempt);
    /// Sends the deliveries that the host has kept. They may leave shortly after this function
    /// returns.
    fn flush(&self) {}
    /// Refuses new deliveries, waits at most [`crate::limits::DRAIN_TIMEOUT`] for the end of the
    /// running deliveries, then stops.
    fn drain(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
