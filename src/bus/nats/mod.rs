//! Listeners on NATS: programs on any host, in a queue group of their name, that answer what is
//! published to their subject (docs/PROTOCOL.md, section 12).
//!
//! Listeners use core NATS only. The subject of an answer names its listener, and the server's
//! permissions enforce it; an unguessable token names the attempt. The table of attempts under way
//! is `in_flight`; the host drives it.
//!
//! An agent may be such a program, too: `agent_host` is its end, `remote_agents` the pump's
//! (section 13).
//!
//! Must not know what a payload says: it counts elements and moves bytes.

mod agent_host;
mod agent_requests;
mod connection;
pub mod header_names;
mod host;
mod in_flight;
mod memory;
mod remote_agents;
mod request;
mod responses;
pub mod service;
mod subjects;
mod tokens;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::select;
use tokio::runtime;

use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::nats::Client;

use super::{Delivery, Host, Sink};
pub use agent_host::{RemoteAgentHost, RemoteSink};
pub use connection::NatsConnection;
use host::NatsShared;
pub use remote_agents::{RemoteAgentOptions, ThreadSource};
pub use subjects::ListenerSubjects;

/// How a listener on NATS is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the organism: a token of every subject.
    pub organism: String,
    pub listener: ListenerName,
    /// How long an attempt whose caller is gone is waited for.
    pub cancel_grace: Duration,
    /// Whether it is waited for longer, as long as its replica renews its lease: nothing may be
    /// handed over beside a handler that is at work.
    pub waits_for_end: bool,
    /// How long outstanding deliveries may run on when the host is drained.
    pub drain_timeout: Duration,
    /// Where the listener is an agent.
    pub far: Option<RemoteAgentOptions>,
}

impl Options {
    /// With every default.
    pub fn new(organism: impl Into<String>, listener: ListenerName) -> Self {
        Self {
            organism: organism.into(),
            listener,
            cancel_grace: limits::CANCEL_GRACE,
            waits_for_end: false,
            drain_timeout: limits::DRAIN_TIMEOUT,
            far: None,
        }
    }
}

/// Why there is no such host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the NATS server takes messages of {server} bytes, and payloads of {payload} bytes with \
         their headers need {needed}: raise its max_payload, or lower payload_bytes in [limits]"
    )]
    TooSmall { server: usize, payload: usize, needed: usize },
    #[error("subscribing to `{subject}`: {detail}")]
    Subscribe { subject: String, detail: String },
}

/// Whether payloads of so many bytes get through.
///
/// # Errors
/// [`Error::TooSmall`] where they do not.
pub fn fits(client: &Client, payload: usize) -> Result<(), Error> {
    let (server, needed) = (client.max_payload(), payload + limits::ENVELOPE_BYTES_MAX);
    if server < needed { Err(Error::TooSmall { server, payload, needed }) } else { Ok(()) }
}

/// Publishes deliveries and takes answers. Dropping it leaves the listener's programs alone.
pub struct NatsHost {
    shared: Arc<NatsShared>,
    listening: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for NatsHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NATS host of {}", self.shared.options.listener)
    }
}

impl NatsHost {
    /// Subscribes to the listener's answers; long ones are judged on `runtime`. Whether there is a listener shows in
    /// [`Sink::left`] and in every delivery, not here: it may come later.
    ///
    /// # Errors
    /// [`Error::Subscribe`] where the connection is closed.
    pub async fn start(
        wire: Arc<NatsConnection>,
        options: Options,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Result<Self, Error> {
        let subjects = ListenerSubjects::new(&options.organism, &options.listener);
        let shared = Arc::new(NatsShared::new(wire, options, subjects, sink, runtime));
        let [answers, here] = shared.subscribe().await?;
        let listening = Arc::clone(&shared).listen(select(answers, here));
        let listening = shared.wire.handle().spawn(listening);
        Ok(Self { shared, listening })
    }
}

impl Host for NatsHost {
    fn deliver(&self, delivery: Delivery) {
        self.shared.deliver(&delivery);
    }

    /// The thread of an agent's turn is read here, for its host.
    fn reads_journal(&self) -> bool {
        self.shared.options.far.is_some()
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.shared.cancel(call, attempt);
    }

    fn flush(&self) {
        self.shared.wire.send();
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.shared.drain().await;
            self.listening.abort();
        })
    }
}

impl Drop for NatsHost {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
