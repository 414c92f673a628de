//! Hosts of listeners: native handlers, child processes, and programs on NATS.
//!
//! **Invariant:** a host moves frames and supervises its listener. It never parses a payload, never
//! decides where one goes, and does not know the pump, which it meets as a [`Sink`].

mod answer;
mod delivery_frame;
pub(crate) mod memory;
pub mod native_host;
pub mod nats;
pub mod process;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::clock::Time;
use crate::envelope::{Failure, Message, NotReserved, Reservation, Turn};
use crate::ids::{Attempt, CallId, ListenerName, Position, ThreadId};
use crate::trace::TraceParent;

/// One attempt to have a listener handle a call: the call's request and every message of that call
/// since, in order.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub listener: ListenerName,
    pub call: CallId,
    pub thread: ThreadId,
    pub attempt: Attempt,
    /// Messages of the call, oldest first. The first is the request.
    pub messages: Vec<Arc<Message>>,
    /// Number of `messages`, from the end, that are new to the listener.
    pub fresh: usize,
    /// Journal position of this delivery. An agent may remember its thread up to here.
    pub position: Position,
    /// Time-out of the attempt, from the hand-over.
    pub timeout: Duration,
    /// Span of this attempt, if its tree belongs to a trace.
    pub trace: Option<TraceParent>,
}

impl Delivery {
    /// Span for log lines about this delivery. It names the trace, and is disabled without one.
    pub fn log_span(&self) -> tracing::Span {
        let Self { trace: Some(trace), listener, call, attempt, .. } = self else {
            return tracing::Span::none();
        };
        let (trace, span) = (trace.trace_id(), trace.span());
        // Of the highest level: it is there for whatever line is.
        tracing::error_span!("delivery", trace, %span, %listener, %call, %attempt)
    }
}

/// Result of a handler.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Unchecked payloads in order. Without any, the caller gets `<ack/>`.
    pub payloads: Vec<Vec<u8>>,
    /// Model call of the turn; only from agents.
    pub turn: Option<Turn>,
}

/// State of an agent's model call. It contains no text of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelState {
    /// A request was sent to this route, and no part of the answer has arrived.
    #[serde(rename = "requested")]
    Requested(String),
    /// The answer of this route arrives.
    #[serde(rename = "streaming")]
    Streaming(String),
    /// The provider of this route asked for a pause until this time.
    #[serde(rename = "delayed")]
    Delayed(String, Time),
    /// The model call has ended.
    #[serde(rename = "ended")]
    Ended,
}

/// Receiver of the answer to [`Sink::reserve`].
pub type Reserved = oneshot::Receiver<Result<(), NotReserved>>;

/// Receives the reports of hosts. Each delivery ends exactly once, even if it was cancelled. Calls
/// return at once or block briefly under back-pressure.
///
/// An answer that arrives after its attempt was reported as failed is still reported: the pump
/// refuses it on record.
pub trait Sink: Send + Sync + 'static {
    fn ended(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, Failure>,
    );
    /// Reports that no listener took the delivery. This ends the delivery, and it was no attempt. A
    /// delivery that may have been taken ends by [`Sink::ended`].
    fn not_taken(&self, listener: &ListenerName, call: CallId, attempt: Attempt, detail: String) {
        self.ended(listener, call, attempt, Err(Failure::Unreachable { detail }));
    }
    /// Reports an answer that names another attempt than the one in progress. It is recorded and
    /// has no other effect. `named` is the shortened name.
    fn stray(&self, listener: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let _ = (listener, named, payloads);
    }
    /// Reports that the handler is alive, which extends its deadline.
    fn heartbeat(&self, listener: &ListenerName, call: CallId, attempt: Attempt);
    /// Asks whether the next request of a model call may be sent, and reserves its cost. The answer
    /// arrives when the reservation is durable. A sink without budgets, or whose pump has stopped,
    /// never answers, and the request is not sent.
    fn reserve(&self, call: CallId, attempt: Attempt, reservation: Reservation) -> Reserved {
        let _ = (call, attempt, reservation);
        oneshot::channel().1
    }
    /// Reports a new state of an attempt's model call, for people who watch. Nothing depends on it.
    fn model_state(&self, listener: &ListenerName, call: CallId, state: ModelState) {
        let _ = (listener, call, state);
    }
    /// Reports that the listener is reachable again.
    fn joined(&self, listener: &ListenerName, detail: &str);
    /// Reports that the listener is unreachable. Deliveries end by [`Sink::not_taken`] until it
    /// joins again.
    fn left(&self, listener: &ListenerName, detail: &str);
    /// Reports that a process of the listener ended by itself and is restarted.
    fn restarted(&self, listener: &ListenerName) {
        let _ = listener;
    }
}

/// A hosted listener, as the pump sees it. The pump never delivers more at once than the listener's
/// contract allows.
pub trait Host: Send + Sync + 'static {
    /// Takes the delivery and returns at once; the answer goes to the [`Sink`]. The host may keep
    /// it until [`Host::flush`].
    fn deliver(&self, delivery: Delivery);
    /// Whether the records before a delivery must be readable in the journal when it arrives, and
    /// not only durable.
    fn reads_journal(&self) -> bool {
        true
    }
    /// Cancels an attempt whose caller no longer waits. The handler may stop, and is stopped after
    /// [`crate::limits::CANCEL_GRACE`]. Its end is still reported.
    fn cancel(&self, call: CallId, attempt: Attempt);
    /// Sends the deliveries that were kept. They are on their way when this returns, or soon after.
    fn flush(&self) {}
    /// Takes no new deliveries, lets running ones end within [`crate::limits::DRAIN_TIMEOUT`], then
    /// stops.
    fn drain(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
