//! A delivery that the kit has received and not answered yet, and the sender of the NATS messages
//! about the delivery, such as its answer.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::delivery_channel::{DeliveryChannel, HeartbeatFn};
use super::TOO_LARGE;
use crate::bus::nats::header_names;
use crate::ids::CallId;
use crate::limits;
use crate::nats::{Client, HeaderMap, Message, PublishErrorKind};

/// Result of handling a delivery: headers and body of an answer, or an error code with a
/// description.
pub(super) type TaskResult = Result<(HeaderMap, String), (u16, String)>;

/// Publishes NATS messages from any thread.
#[derive(Debug, Clone)]
pub(super) struct NatsSender {
    pub client: Client,
    pub runtime: Handle,
    /// Deadline for sending to an unreachable server. Not set until the program must stop.
    pub leave_by: Arc<OnceLock<Instant>>,
}

impl NatsSender {
    /// Returns the number of the current connection, or of the last one while disconnected.
    pub fn connection(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    pub async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<(), PublishErrorKind> {
        let body = body.into();
        let published = if headers.is_empty() {
            self.client.publish(subject, body).await
        } else {
            self.client.publish_with_headers(subject, headers, body).await
        };

        published.map_err(|error| error.kind())
    }

    /// Publishes a message. If the send buffer is full, blocks the OS thread of the caller until
    /// the buffer has room.
    fn publish_now(
        &self,
        subject: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), PublishErrorKind> {
        let publish = || self.publish(subject.to_owned(), headers.clone(), body.to_vec());
        match publish().now_or_never() {
            Some(published) => published,
            // The send buffer of the connection is full, so the publish blocks.
            None => self.publish_when_there_is_room(publish),
        }
    }

    /// Calls `publish` again and again until the send buffer has room. If the program must stop,
    /// gives up at the deadline, because the buffer for an unreachable server never empties.
    fn publish_when_there_is_room<P>(&self, publish: impl Fn() -> P) -> Result<(), PublishErrorKind>
    where
        P: Future<Output = Result<(), PublishErrorKind>>,
    {
        while self.leave_by.get().is_none_or(|by| Instant::now() < *by) {
            let waited = async { timeout(limits::KIT_POLL_INTERVAL, publish()).await };
            if let Ok(published) = self.runtime.block_on(waited) {
                return published;
            }
        }

        Err(PublishErrorKind::Send)
    }

    pub fn flush(&self) {
        // Without a connection, the flush fails after its timeout, which needs no handling.
        let flushed = async { timeout(limits::CANCEL_GRACE, self.client.flush()).await };
        self.runtime.block_on(flushed).map(drop).ok();
    }
}

#[derive(Debug)]
pub(super) struct DeliveryTask {
    pub reply: String,
    /// Number of the connection on which the delivery arrived.
    pub connection: u64,
    call: String,
    attempt: String,
    is_cancelled: AtomicBool,
    sender: NatsSender,
}

impl DeliveryTask {
    /// Reads the delivery in a NATS message. Returns `None` if the message has no reply subject and
    /// so cannot be answered.
    pub fn of(message: &Message, sender: &NatsSender) -> Option<Self> {
        let header = |name: &'static str| {
            let value = message.headers.as_ref().and_then(|headers| headers.get(name));
            value.map(ToString::to_string).unwrap_or_default()
        };

        Some(Self {
            reply: message.reply.as_ref()?.to_string(),
            connection: sender.connection(),
            call: header(header_names::CALL),
            attempt: header(header_names::ATTEMPT),
            is_cancelled: AtomicBool::new(false),
            sender: sender.clone(),
        })
    }

    /// Whether a cancel message with these headers cancels this delivery.
    pub fn is_named(&self, headers: &HeaderMap) -> bool {
        let is = |name: &'static str, text: &str| {
            headers.get(name).is_some_and(|value| value.as_str() == text)
        };
        is(header_names::CALL, &self.call) && is(header_names::ATTEMPT, &self.attempt)
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Sends an answer or an error. If the answer is larger than the message limit of the server,
    /// sends an error instead, which states that the answer is too large.
    pub fn answer(&self, verdict: TaskResult) {
        let (code, why) = match verdict {
            Ok((headers, body)) => match self.answer_with(&headers, body.as_bytes()) {
                Err(PublishErrorKind::MaxPayloadExceeded) => {
                    let bytes = body.len();
                    let max = self.sender.client.max_payload();
                    let why = format!("an answer of {bytes} bytes, where the server takes {max}");
                    (TOO_LARGE, why)
                }
                // Nothing more can be done: the pump notices a missing answer and delivers again.
                Ok(()) | Err(_) => return,
            },
            Err(failed) => failed,
        };

        let mut headers = HeaderMap::new();
        headers.insert(header_names::ERROR_CODE, code.to_string());
        headers.insert(header_names::ERROR, one_line(&why));
        self.answer_with(&headers, b"").ok();
    }

    fn answer_with(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), PublishErrorKind> {
        self.sender.publish_now(&self.reply, headers, body)
    }
}

impl DeliveryChannel for Arc<DeliveryTask> {
    fn is_cancelled(&self, _: CallId) -> bool {
        DeliveryTask::is_cancelled(self)
    }

    fn heartbeat_fn(&self) -> HeartbeatFn {
        let task = Arc::clone(self);
        Arc::new(move || {
            let mut headers = HeaderMap::new();
            headers.insert(header_names::HEARTBEAT, "1");
            let sent = task.answer_with(&headers, b"");
            sent.map_err(|kind| io::Error::other(format!("publishing: {kind}")))
        })
    }
}

/// Shortens a text and puts it on one line, as a header requires.
fn one_line(text: &str) -> String {
    let words = text.chars().take(limits::LAST_STDERR_LINE_CHARS_MAX);
    words.map(|c| if c.is_control() { ' ' } else { c }).collect()
}
