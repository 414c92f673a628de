//! The NATS connection that all listeners of an organism share. It has an OS thread of its own, on
//! which the hosts also read and check the messages for their listeners.
//!
//! Outbound messages are queued until a flush, because each separately sent message would wake the
//! connection's thread and the server.

use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits;
use crate::locks::locked;
use crate::nats::{self, BlockingClient, Client, HeaderMap, PublishErrorKind};

/// A NATS connection with its queue of outbound messages.
#[derive(Debug)]
pub struct NatsConnection {
    link: BlockingClient,
    /// Queue of outbound messages. Locked only to queue messages or to take them from the queue,
    /// never while a message is sent. So a host never waits for the network.
    outbox: Mutex<SendQueue>,
}

#[derive(Debug, Default)]
struct SendQueue {
    messages: Vec<OutboundPublish>,
    /// Whether a task is sending messages. This task also sends the messages that are queued
    /// meanwhile, so no second task is started.
    is_sending: bool,
    /// Senders, one for each caller that waits until all messages are sent. Dropping a sender ends
    /// the wait of its receiver.
    waits: Vec<oneshot::Sender<()>>,
}

impl SendQueue {
    /// Takes the messages to send next. If there are none, returns `None`, notes that the sending
    /// task ends, and ends all waits in `waits`.
    fn take_messages(&mut self) -> Option<Vec<OutboundPublish>> {
        if self.messages.is_empty() {
            self.is_sending = false;
            self.waits.clear();
            return None;
        }

        self.is_sending = true;
        Some(std::mem::take(&mut self.messages))
    }

    /// Returns a receiver that is closed as soon as no task is sending messages. If no task is
    /// sending now, the receiver is closed already.
    fn until_sent(&mut self) -> oneshot::Receiver<()> {
        let (wait, sent) = oneshot::channel();
        if self.is_sending {
            self.waits.push(wait);
        }
        sent
    }
}

/// A message that is queued for the next flush.
pub(super) struct OutboundPublish {
    pub subject: String,
    pub reply: Option<String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Function that is called with the reason if the message cannot be sent. It runs on the
    /// connection's OS thread.
    pub unsent: Box<dyn FnOnce(SendError) + Send>,
}

/// Reason why a message was not sent.
pub(super) struct SendError {
    pub kind: PublishErrorKind,
    pub bytes: usize,
    pub detail: String,
}

impl std::fmt::Debug for OutboundPublish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes to {}", self.body.len(), self.subject)
    }
}

impl NatsConnection {
    /// Connects to the servers. `name` identifies the connection in the servers' reports.
    ///
    /// # Errors
    ///
    /// The errors of [`BlockingClient::open`].
    pub async fn open(options: &nats::Options, name: &str) -> Result<Arc<Self>, nats::Error> {
        let options = options.clone();
        let name = name.to_owned();
        let opened =
            tokio::task::spawn_blocking(move || BlockingClient::open(&options, &name)).await;
        let ended = |error: tokio::task::JoinError| nats::Error::Threads { source: error.into() };
        let link = opened.map_err(ended)??;
        Ok(Arc::new(Self { link, outbox: Mutex::default() }))
    }

    pub fn client(&self) -> &Client {
        self.link.client()
    }

    /// Returns the permission errors of this connection.
    pub fn denials(&self) -> &nats::PermissionErrors {
        self.link.denials()
    }

    pub(super) fn handle(&self) -> &Handle {
        self.link.handle()
    }

    pub(super) fn put(&self, message: OutboundPublish) {
        locked(&self.outbox).messages.push(message);
    }

    /// Sends all queued messages, in their order.
    pub(super) fn send(self: &Arc<Self>) {
        let mut outbox = locked(&self.outbox);
        if outbox.messages.is_empty() || outbox.is_sending {
            return;
        }

        outbox.is_sending = true;
        drop(outbox);
        let wire = Arc::clone(self);
        self.handle().spawn(async move {
            while let Some(messages) = wire.next_messages() {
                for message in messages {
                    message.send(wire.client()).await;
                }
            }
        });
    }

    /// Sends all queued messages, and waits for a limited time until the server has processed them.
    pub async fn send_and_confirm(self: &Arc<Self>) {
        self.send();
        let sent = locked(&self.outbox).until_sent();
        // The queue never sends a value: it drops its end when everything is sent.
        timeout(limits::NATS_ROUND_TRIP, sent).await.ok();
        // The server handles the messages of a connection in order, and the round trip comes last.
        nats::flush_and_await_denials(self.client(), self.denials()).await;
    }

    fn next_messages(&self) -> Option<Vec<OutboundPublish>> {
        locked(&self.outbox).take_messages()
    }
}

impl OutboundPublish {
    async fn send(self, client: &Client) {
        let Self { subject, reply, headers, body, unsent } = self;
        let bytes = body.len();
        let sent = match reply {
            Some(reply) => {
                client.publish_with_reply_and_headers(subject, reply, headers, body.into()).await
            }
            None => client.publish_with_headers(subject, headers, body.into()).await,
        };

        if let Err(error) = sent {
            unsent(SendError { kind: error.kind(), bytes, detail: error.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn message() -> OutboundPublish {
        OutboundPublish {
            subject: "subject".to_owned(),
            reply: None,
            headers: HeaderMap::new(),
            body: Vec::new(),
            unsent: Box::new(|_: SendError| ()),
        }
    }

    #[test]
    fn a_wait_for_the_queue_ends_when_the_last_message_is_sent_and_not_before() {
        let mut queue = SendQueue::default();
        assert_eq!(queue.until_sent().try_recv(), Err(TryRecvError::Closed));

        // Puts the queue into its state between `send` and the first run of its task.
        queue.messages.push(message());
        queue.is_sending = true;
        let mut sent = queue.until_sent();
        assert_eq!(sent.try_recv(), Err(TryRecvError::Empty));

        // The task has the message, and may not have published it yet.
        assert_eq!(queue.take_messages().map(|messages| messages.len()), Some(1));
        assert_eq!(sent.try_recv(), Err(TryRecvError::Empty));

        // A message that is queued meanwhile is waited for, too.
        queue.messages.push(message());
        assert_eq!(queue.take_messages().map(|messages| messages.len()), Some(1));
        assert_eq!(sent.try_recv(), Err(TryRecvError::Empty));

        assert!(queue.take_messages().is_none());
        assert!(!queue.is_sending);
        assert_eq!(sent.try_recv(), Err(TryRecvError::Closed));
    }
}
