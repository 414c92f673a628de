//! A delivery as a handler gets it (docs/PROTOCOL.md, sections 3 and 5).

use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::bus::memory::CallMemory;
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, ThreadId};
use crate::owned_tasks::JoinOnDrop;
use crate::trace::TraceParent;

use super::delivery_channel::{DeliveryChannel, HeartbeatFn};
use super::payload::{Preview, TypedPayload};

mod deserialize;
mod parse;
pub(super) use parse::of_message;

/// Interval of the heartbeats of [`Request::keep_alive`]. The interval is much shorter than the
/// time by which one heartbeat extends the deadline.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

/// A call that a handler must answer, with all messages of the call so far.
#[derive(Debug)]
pub struct Request {
    pub listener: ListenerName,
    pub thread: ThreadId,
    pub call: CallId,
    pub attempt: Attempt,
    /// Time from the hand-over of the call until this attempt times out. A heartbeat extends this
    /// time.
    pub timeout: Duration,
    /// Trace of this attempt, if any. Spans that the handler itself makes belong to this trace.
    pub trace: Option<TraceParent>,
    /// Whether this delivery requests only a preview of the call, because the call waits for a
    /// person's decision. The kit passes such a delivery to the handler of
    /// [`super::Listener::on_preview`].
    pub asks_preview: bool,
    /// Digest of the preview that a person approved together with the call; `None` if the call has
    /// no approved preview. See [`Request::holds`].
    pub approved_preview: Option<Digest>,
    /// Messages of the call, oldest first. The first message opened the call.
    pub messages: Vec<Received>,
    /// Number of earlier messages of the call that this delivery does not contain. The pump left
    /// these messages out, because the listener reported that it remembers them. `None` if the
    /// delivery contains all messages.
    after: Option<usize>,
    line: Rc<dyn DeliveryChannel>,
}

/// One message of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub id: MessageId,
    /// Kind of the message: `call`, `reply`, `self`, `note` or `system`.
    pub kind: String,
    pub seq: u64,
    /// Whether the message is new: no earlier delivery of the call contains it.
    pub new: bool,
    pub from: String,
    /// Time of the message in RFC 3339.
    pub time: String,
    pub name: PayloadName,
    /// Payload of the message: one XML element, byte for byte as recorded.
    pub payload: String,
}

/// Reason why a payload could not be deserialized.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("expected {expected}, got {got}")]
    Name { expected: PayloadName, got: PayloadName },
    #[error("{name} does not have the fields of its type")]
    Content { name: PayloadName, source: quick_xml::DeError },
}

impl Received {
    /// Deserializes the payload of the message. Ignores elements and attributes of other namespaces
    /// than those of the type; see [`TypedPayload::IMPORTED_NAMESPACES`].
    pub fn read<P: TypedPayload>(&self) -> Result<P, ReadError> {
        if self.name != P::payload_name() {
            let expected = P::payload_name();
            let got = self.name.clone();
            return Err(ReadError::Name { expected, got });
        }
        deserialize::deserialize(&self.payload)
            .map_err(|source| ReadError::Content { name: self.name.clone(), source })
    }
}

impl Request {
    pub(super) fn parse(frame: &[u8], line: Rc<dyn DeliveryChannel>) -> Result<Self, String> {
        parse::request(frame, line)
    }

    /// Completes a delivery from which the pump left out earlier messages of the call: puts the
    /// remembered messages before those of the delivery. Returns false if the listener does not
    /// remember exactly as many messages as the pump left out.
    pub(super) fn complete(&mut self, memory: &mut CallMemory<Vec<Received>>) -> bool {
        let remembered = memory.take(&self.call);
        let Some(after) = self.after else { return true };
        let Some(mut messages) = remembered.filter(|messages| messages.len() == after) else {
            return false;
        };

        messages.iter_mut().for_each(|message| message.new = false);
        messages.append(&mut self.messages);
        self.messages = messages;
        true
    }

    /// Remembers all messages of the call for the call's next delivery. Returns false if the
    /// messages are too large to be remembered.
    pub(super) fn remember(self, memory: &mut CallMemory<Vec<Received>>) -> bool {
        let bytes = |message: &Received| message.payload.len() + size_of::<Received>();
        let bytes = self.messages.iter().map(bytes).sum();
        memory.put(self.call, self.messages, bytes)
    }

    /// Returns the message that opened the call.
    pub fn message(&self) -> &Received {
        self.messages.first().expect("a request is only built with at least one message")
    }

    pub fn payload_name(&self) -> &PayloadName {
        &self.message().name
    }

    /// Returns the payload that opened the call.
    pub fn payload(&self) -> &str {
        &self.message().payload
    }

    pub fn read<P: TypedPayload>(&self) -> Result<P, ReadError> {
        self.message().read()
    }

    /// Returns the messages after the first: the results of calls that the handler made.
    pub fn results(&self) -> &[Received] {
        self.messages.get(1..).unwrap_or_default()
    }

    /// Sends a heartbeat, which extends the deadline of this attempt.
    pub fn heartbeat(&self) -> io::Result<()> {
        self.line.heartbeat_fn()()
    }

    /// Sends heartbeats from a second OS thread until the returned guard is dropped. Sends the
    /// first heartbeat at once, because the time-out may be shorter than the interval of
    /// heartbeats. The handler must drop the guard before it returns, because no heartbeat may
    /// follow the answer.
    #[must_use = "heartbeats stop when the guard is dropped"]
    pub fn keep_alive(&self) -> HeartbeatGuard {
        self.send_heartbeats(None)
    }

    /// Sends heartbeats as [`Self::keep_alive`] does, but for at most `limit`. After that, the
    /// time-out ends the attempt, so that a handler that never returns cannot occupy the listener.
    #[must_use = "heartbeats stop when the guard is dropped"]
    pub fn keep_alive_for(&self, limit: Duration) -> HeartbeatGuard {
        self.send_heartbeats(Instant::now().checked_add(limit))
    }

    fn send_heartbeats(&self, until: Option<Instant>) -> HeartbeatGuard {
        let heartbeat: HeartbeatFn = self.line.heartbeat_fn();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while until.is_none_or(|until| Instant::now() < until) {
                let is_sent = heartbeat().is_ok();
                let stop = stopped.recv_timeout(HEARTBEAT_EVERY);
                if !is_sent || stop != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
        });
        HeartbeatGuard { _stop: stop, _thread: JoinOnDrop::new(thread) }
    }

    /// Checks whether the handler may carry out the call. `preview` is the preview that the handler
    /// would return now. Returns true if the person approved an equal preview, or if the call has
    /// no approved preview. If this function returns false, the handler must do nothing and answer
    /// [`super::Reply::stale_preview`].
    ///
    /// The work of a failed attempt may change the preview. So the handler must first check whether
    /// it has already carried out the call.
    pub fn holds(&self, preview: &Preview) -> bool {
        self.approved_preview.is_none_or(|approved| approved == preview.digest())
    }

    /// Whether the pump has cancelled the call. The handler must still answer, possibly without
    /// payloads.
    pub fn is_cancelled(&self) -> bool {
        self.line.is_cancelled(self.call)
    }
}

/// Guard that keeps sending heartbeats until it is dropped; see [`Request::keep_alive`].
#[derive(Debug)]
pub struct HeartbeatGuard {
    /// Sender of a channel on which the heartbeat thread waits. Dropping the sender ends this
    /// thread.
    _stop: mpsc::Sender<()>,
    _thread: JoinOnDrop,
}
