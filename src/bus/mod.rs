//! How listeners are hosted: native handlers, child processes, and programs on NATS.
//!
//! **Invariant:** a host moves frames and watches over its listener; it never parses a payload,
//! never decides where one goes, and does not know the pump: it meets it as a [`Sink`].

mod answer;
mod delivery_frame;
pub(crate) mod memory;
pub mod native;
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

/// One attempt to have a listener handle a call: the call's request and every message of that
/// call since, in order.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub listener: ListenerName,
    pub call: CallId,
    pub thread: ThreadId,
    pub attempt: Attempt,
    /// Oldest first; the first is the request.
    pub messages: Vec<Arc<Message>>,
    /// How many of `messages`, from the end, the listener has not been given before.
    pub fresh: usize,
    /// The journal position this delivery follows from: the thread up to here is what an agent
    /// may remember.
    pub position: Position,
    /// Per attempt, from hand-over.
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

/// What a handler returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Zero or more payloads, unchecked, in order. None: the caller gets `<ack/>`.
    pub payloads: Vec<Vec<u8>>,
    /// The model call behind it; agents only.
    pub turn: Option<Turn>,
}

/// State of an agent's model call. It contains no text of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelState {
    /// A request has left for this route, and nothing of the answer has come.
    #[serde(rename = "requested")]
    Requested(String),
    /// The answer of this route streams.
    #[serde(rename = "streaming")]
    Streaming(String),
    /// This route asked for a pause that ends then.
    #[serde(rename = "delayed")]
    Delayed(String, Time),
    /// The model call has ended.
    #[serde(rename = "ended")]
    Ended,
}

/// The answer to [`Sink::reserve`].
pub type Reserved = oneshot::Receiver<Result<(), NotReserved>>;

/// Where hosts report to: each delivery ends exactly once, cancelled ones too. Calls return at
/// once or block shortly while the pump is behind.
///
/// An answer that comes although its attempt was reported as failed is reported all the same:
/// the pump refuses it on record.
pub trait Sink: Send + Sync + 'static {
    fn ended(
        &self,
        listener: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, Failure>,
    );
    /// No listener took the delivery: this is its end, and it was no attempt. A delivery that may
    /// have been taken ends by [`Sink::ended`].
    fn not_taken(&self, listener: &ListenerName, call: CallId, attempt: Attempt, detail: String) {
        self.ended(listener, call, attempt, Err(Failure::Unreachable { detail }));
    }
    /// An instance answered, and named another attempt than the one it was given: recorded, and
    /// nothing else. `named` is what it named, shortened.
    fn stray(&self, listener: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let _ = (listener, named, payloads);
    }
    /// The handler is alive: its deadline moves.
    fn heartbeat(&self, listener: &ListenerName, call: CallId, attempt: Attempt);
    /// A request of a model call is about to leave, and may take so much: whether it may, or why
    /// not. The answer comes when the reservation is durable. A sink that keeps no budgets, or whose
    /// pump has stopped, answers nothing, and the request is not made.
    fn reserve(&self, call: CallId, attempt: Attempt, asked: Reservation) -> Reserved {
        let _ = (call, attempt, asked);
        oneshot::channel().1
    }
    /// The model call of an attempt waits for something else than before. Nothing depends on it: it
    /// is for people who watch.
    fn model_state(&self, listener: &ListenerName, call: CallId, state: ModelState) {
        let _ = (listener, call, state);
    }
    /// The listener can be reached again after it had left.
    fn joined(&self, listener: &ListenerName, detail: &str);
    /// Nothing can take a delivery for now; each ends by [`Sink::not_taken`].
    fn left(&self, listener: &ListenerName, detail: &str);
    /// A process of it, or whatever else runs it, ended unasked and is started again.
    fn restarted(&self, listener: &ListenerName) {
        let _ = listener;
    }
}

/// A hosted listener, as the pump sees it. The pump never hands over more at once than the
/// listener's contract allows.
pub trait Host: Send + Sync + 'static {
    /// Takes the delivery and returns at once; the answer goes to the [`Sink`]. It may be kept
    /// until [`Host::flush`].
    fn deliver(&self, delivery: Delivery);
    /// Whether what a delivery follows from must be readable in the journal when it comes, and
    /// not only durable.
    fn reads_journal(&self) -> bool {
        true
    }
    /// The caller is gone: the handler may stop, and is stopped if it goes on for longer than
    /// [`crate::limits::CANCEL_GRACE`]. How it ended is reported all the same.
    fn cancel(&self, call: CallId, attempt: Attempt);
    /// That is all for now: what was taken is on its way when this returns, or soon after.
    fn flush(&self) {}
    /// Takes nothing more, lets what runs end within [`crate::limits::DRAIN_TIMEOUT`], stops.
    fn drain(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
