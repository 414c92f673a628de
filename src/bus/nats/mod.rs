//! Listeners on NATS: programs on any machine that form a queue group and answer deliveries on the
//! listener's subject (docs/PROTOCOL.md, section 12).
//!
//! Listeners need core NATS only. The subject of an answer contains the name of the listener and an
//! unguessable token of the attempt. The permissions of the servers ensure that the name is right.
//! The module `in_flight` is the table of attempts, and the module `host` uses it.
//!
//! Agents on other machines are connected the same way (section 13): `agent_host` is the side of
//! the agent, and `remote_agents` is the side of the pump.
//!
//! This module must not know the contents of payloads: it counts elements and moves bytes.

mod agent_host;
mod agent_requests;
mod announced_leases;
mod connection;
mod denied_operations;
mod encode;
pub mod endpoint_variables;
pub mod header_names;
mod host;
mod in_flight;
mod live;
mod memory;
mod remote_agents;
mod responses;
pub mod service;
mod stray_answers;
mod subjects;
mod subscriptions;
mod tokens;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime;

use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::nats::Client;

use super::{Delivery, Host, Sink};
pub use agent_host::{ConfiguredHosts, RemoteAgentHost, RemoteSink};
pub use agent_requests::{AGENT_PROTOCOL_VERSION, ThreadMark};
pub use connection::NatsConnection;
use host::NatsShared;
pub use remote_agents::{PromptConfig, RemoteAgentOptions, ThreadSource, ThreadTransfer};
pub use subjects::ListenerSubjects;

/// Settings of a host for a listener on NATS.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the organism, which is the running system with its pump and its listeners. Every
    /// subject contains this name as a token.
    pub organism: String,
    pub listener: ListenerName,
    /// The partition whose pump delivers, for log lines; `None` if there is only one partition.
    pub partition: Option<u32>,
    /// Maximum time from the cancellation of an attempt to its end.
    pub cancel_grace: Duration,
    /// Whether a cancelled attempt stays in flight as long as its replica renews the lease. True
    /// for listeners that must get only one delivery at a time.
    pub waits_for_end: bool,
    /// Whether the caller starts the replicas itself, and may deliver before the first one is
    /// connected. Such an absence causes no warning.
    pub starts_replicas: bool,
    /// Maximum time for deliveries in flight to end during a drain.
    pub drain_timeout: Duration,
    /// Settings of a remote agent; `None` for other listeners.
    pub remote_agents: Option<RemoteAgentOptions>,
}

impl Options {
    /// Returns settings with default values.
    pub fn new(organism: impl Into<String>, listener: ListenerName) -> Self {
        Self {
            organism: organism.into(),
            listener,
            partition: None,
            cancel_grace: limits::CANCEL_GRACE,
            waits_for_end: false,
            starts_replicas: false,
            drain_timeout: limits::DRAIN_TIMEOUT,
            remote_agents: None,
        }
    }
}

/// Reason why a host for a listener on NATS cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the NATS server accepts messages of {server} bytes, and payloads of {payload} bytes with \
         their headers need {needed}: raise its max_payload, or lower payload_bytes in [limits]"
    )]
    TooSmall { server: usize, payload: usize, needed: usize },
    #[error("cannot subscribe to `{subject}`: {detail}")]
    Subscribe { subject: String, detail: String },
}

/// Checks that the servers accept messages with a payload of `payload` bytes.
///
/// # Errors
///
/// [`Error::TooSmall`] if the servers do not accept messages of this size.
pub fn check_max_payload(client: &Client, payload: usize) -> Result<(), Error> {
    let server = client.max_payload();
    let needed = payload + limits::ENVELOPE_BYTES_MAX;
    if server < needed { Err(Error::TooSmall { server, payload, needed }) } else { Ok(()) }
}

/// A host that publishes the deliveries of one listener on NATS and receives the answers. The
/// listener's programs continue when the host is dropped.
pub struct NatsHost {
    shared: Arc<NatsShared>,
    listening: tokio::task::JoinHandle<()>,
    /// Task that requests the text of models from the hosts of an agent; `None` for a listener that
    /// is no agent.
    asking: Option<tokio::task::JoinHandle<()>>,
}

impl std::fmt::Debug for NatsHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NATS host of {}", self.shared.options.listener)
    }
}

impl NatsHost {
    /// Subscribes to the listener's answers. Long answers are checked on `runtime`. Succeeds even
    /// if the listener has no replica. As long as there is no replica, the host reports this by
    /// [`Sink::left`] and in the result of each delivery.
    ///
    /// # Errors
    ///
    /// [`Error::Subscribe`] if the connection is closed.
    pub async fn start(
        wire: Arc<NatsConnection>,
        options: Options,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Result<Self, Error> {
        let subjects = ListenerSubjects::new(&options.organism, &options.listener);
        let shared = Arc::new(NatsShared::new(wire, options, subjects, sink, runtime));
        let messages = shared.messages().await?;
        let listening = Arc::clone(&shared).listen(messages);
        let listening = shared.wire.handle().spawn(listening);
        let asking = shared.options.remote_agents.is_some().then(|| {
            let asking = Arc::clone(&shared).ask_for_texts();
            shared.wire.handle().spawn(asking)
        });
        Ok(Self { shared, listening, asking })
    }

    /// Returns the number of answers that this host has refused because they match no attempt in
    /// flight.
    pub fn refused_answers(&self) -> u64 {
        self.shared.strays.load(Ordering::Relaxed)
    }

    /// Ends the host. Waits for answers to the deliveries in flight, but only for `patience`.
    async fn end_within(&self, patience: Duration) {
        self.shared.drain(patience).await;
        self.listening.abort();
    }
}

impl Host for NatsHost {
    fn deliver(&self, delivery: Delivery) {
        self.shared.deliver(&delivery);
    }

    /// Whether this host reads the journal. True if the listener is an agent on another machine.
    /// Such an agent cannot read the journal itself, so this host reads the agent's threads and
    /// sends them to the agent.
    fn reads_journal(&self) -> bool {
        self.shared.options.remote_agents.is_some()
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.shared.cancel(call, attempt);
    }

    fn flush(&self) {
        self.shared.wire.send();
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(self.shared.options.drain_timeout))
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(Duration::ZERO))
    }
}

impl Drop for NatsHost {
    fn drop(&mut self) {
        self.listening.abort();
        if let Some(asking) = &self.asking {
            asking.abort();
        }
        self.shared.set_answers_denied(None);
    }
}
