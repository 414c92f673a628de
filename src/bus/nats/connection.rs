//! The NATS connection of one listener on the pump's side. The connections of all listeners of a
//! pump share an OS thread, on which the listeners' hosts also read and check their messages.
//!
//! Each listener has a connection of its own. A message with malformed headers makes the NATS
//! client end its connection, or even its own task. So a listener's program that publishes such a
//! message interrupts its own calls alone.
//!
//! Outbound messages are queued until a flush, because each separately sent message would wake the
//! connection's thread and the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};

use crate::limits;
use crate::locks::locked;
use crate::nats::{
    self, Client, HeaderMap, PermissionErrors, PublishErrorKind, SharedRuntime, State,
};

/// A NATS connection with its queue of outbound messages.
pub struct NatsConnection {
    options: nats::Options,
    /// Name of the connection in the log and in the servers' reports.
    name: String,
    /// Client of the connection at present. Locked only to read or to replace the client, never
    /// across an await.
    current: Mutex<Arc<ConnectedClient>>,
    /// Queue of outbound messages. Locked only to queue messages or to take them from the queue,
    /// never while a message is sent. So a host never waits for the network.
    outbox: Mutex<SendQueue>,
    runtime: Arc<SharedRuntime>,
}

impl std::fmt::Debug for NatsConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NATS connection `{}`", self.name)
    }
}

/// A client of a [`NatsConnection`]. The client reconnects after each outage, as long as the
/// client's task runs. A panic of the NATS library ends this task.
pub(super) struct ConnectedClient {
    client: Client,
    denials: PermissionErrors,
    /// Number of this client among the clients of the connection. The first client has the number
    /// 1.
    number: u64,
    /// How often the earlier clients of the connection connected to a server.
    earlier_connects: u64,
    /// Whether the task of this client has ended.
    has_ended: AtomicBool,
}

impl ConnectedClient {
    fn first((client, denials): (Client, PermissionErrors)) -> Self {
        let has_ended = AtomicBool::default();
        Self { client, denials, number: 1, earlier_connects: 0, has_ended }
    }

    /// Returns the client that takes the place of this client, whose task has ended.
    fn successor(&self, (client, denials): (Client, PermissionErrors)) -> Self {
        let number = self.number + 1;
        let earlier_connects = self.connects();
        Self { client, denials, number, earlier_connects, has_ended: AtomicBool::default() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn denials(&self) -> &PermissionErrors {
        &self.denials
    }

    /// Returns how often this client and the clients before it have connected to a server.
    fn connects(&self) -> u64 {
        self.earlier_connects + self.client.statistics().connects.load(Ordering::Relaxed)
    }

    fn is_connected(&self) -> bool {
        // A client whose task has ended keeps its last state.
        !self.has_ended.load(Ordering::Acquire)
            && self.client.connection_state() == State::Connected
    }
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
    /// Takes the messages to send next. If there are no messages, returns `None`, notes that the
    /// sending task ends, and ends all waits in `waits`.
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
    /// Starts the OS thread that connections share.
    ///
    /// # Errors
    ///
    /// [`nats::Error::Threads`] if the thread cannot be started.
    pub fn start_thread() -> Result<Arc<SharedRuntime>, nats::Error> {
        let started = SharedRuntime::start();
        Ok(Arc::new(started.map_err(|source| nats::Error::Threads { source })?))
    }

    /// Connects to the servers, on an OS thread for this connection alone. `name` identifies the
    /// connection in the log and in the servers' reports.
    ///
    /// # Errors
    ///
    /// The errors of [`NatsConnection::start_thread`] and of [`nats::connect`].
    pub async fn open(options: &nats::Options, name: &str) -> Result<Arc<Self>, nats::Error> {
        Self::open_on(&Self::start_thread()?, options, name).await
    }

    /// Connects to the servers as [`NatsConnection::open`] does, on the thread of `runtime`. On a
    /// shared thread, a connection needs one open file; with a thread of its own, it would need
    /// five.
    ///
    /// # Errors
    ///
    /// The errors of [`nats::connect`], and [`nats::Error::Threads`] if the thread has ended.
    pub async fn open_on(
        runtime: &Arc<SharedRuntime>,
        options: &nats::Options,
        name: &str,
    ) -> Result<Arc<Self>, nats::Error> {
        let runtime = Arc::clone(runtime);
        let options = options.clone();
        let name = name.to_owned();
        let connecting = {
            let options = options.clone();
            let name = name.clone();
            // The runtime on which the client is made runs the tasks of the client.
            runtime.handle().spawn(async move { nats::connect_with_denials(&options, &name).await })
        };

        let ended = |error: JoinError| nats::Error::Threads { source: error.into() };
        let connected = connecting.await.map_err(ended)??;
        let current = Mutex::new(Arc::new(ConnectedClient::first(connected)));
        Ok(Arc::new(Self { options, name, current, outbox: Mutex::default(), runtime }))
    }

    /// Returns the client of the connection at present.
    pub fn client(&self) -> Client {
        self.current().client.clone()
    }

    /// Returns the permission errors of the present client.
    pub fn denials(&self) -> PermissionErrors {
        self.current().denials.clone()
    }

    pub(super) fn current(&self) -> Arc<ConnectedClient> {
        Arc::clone(&locked(&self.current))
    }

    /// Returns the number of the current connection to a server, or `None` while disconnected. Each
    /// reconnect begins a connection with a higher number.
    pub(super) fn number(&self) -> Option<u64> {
        let current = self.current();
        current.is_connected().then(|| current.connects())
    }

    /// Returns the number of the connection that will send the next published message. This is the
    /// current connection or, while disconnected, the connection that the next reconnect begins.
    pub(super) fn number_of_publish(&self) -> u64 {
        self.number().unwrap_or_else(|| self.current().connects() + 1)
    }

    /// Replaces the client `ended`, whose task has ended, by a new client. Tries until a server
    /// accepts the connection. Does nothing if `ended` has been replaced already.
    ///
    /// Must run on the runtime of this connection, which then runs the tasks of the new client.
    pub(super) async fn renew(&self, ended: &Arc<ConnectedClient>) {
        ended.has_ended.store(true, Ordering::Release);
        // A program may end one client after the other. The log must not grow with each of them.
        if ended.number.is_power_of_two() {
            tracing::error!(
                connection = %self.name, count = ended.number,
                "the NATS client of this connection has ended: most likely a message with \
                 malformed headers arrived; the panic message above has the reason. Find the \
                 program of this listener that publishes such messages. Connecting anew"
            );
        }

        let mut failures = 0_u64;
        loop {
            // Without this pause, a program that ends each client would keep this process busy.
            sleep(limits::NATS_BACKOFF_MAX).await;
            if !Arc::ptr_eq(&self.current(), ended) {
                return;
            }

            match nats::connect_with_denials(&self.options, &self.name).await {
                Ok(connected) => return self.replace(ended, connected),
                Err(error) => {
                    failures += 1;
                    if failures.is_power_of_two() {
                        tracing::warn!(connection = %self.name, failures, "{error}");
                    }
                }
            }
        }
    }

    fn replace(&self, ended: &Arc<ConnectedClient>, connected: (Client, PermissionErrors)) {
        let mut current = locked(&self.current);
        if Arc::ptr_eq(&current, ended) {
            *current = Arc::new(ended.successor(connected));
            if ended.number.is_power_of_two() {
                tracing::warn!(connection = %self.name, "connected to NATS anew");
            }
        }
    }

    pub(super) fn handle(&self) -> &Handle {
        self.runtime.handle()
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
                let client = wire.client();
                for message in messages {
                    message.send(&client).await;
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
        nats::flush_and_await_denials(&self.client(), &self.denials()).await;
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
