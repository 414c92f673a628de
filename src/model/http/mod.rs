//! HTTP as providers need it: one POST, one answer that is read while it comes.
//!
//! Each call has a connection of its own, which ends with the call: dropping it closes the socket,
//! and no later call can meet a connection that died in a pool. Redirects are not followed. Knows
//! nothing of models.

mod connect;
mod endpoint;
mod exchange;
mod framing;
mod proxy;
mod tls;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

pub use endpoint::{BadAddress, Endpoint};
pub use exchange::Answer;
pub use proxy::Proxies;
pub use tls::Roots;

use super::error::Phase;
use crate::limits;

/// How long what may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// Name, TCP, proxy and TLS together.
    pub connect: Duration,
    /// From the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Between two bytes of the answer.
    pub stall: Duration,
    /// The whole call.
    pub total: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: limits::MODEL_CONNECT_TIMEOUT,
            first_byte: limits::MODEL_FIRST_BYTE_TIMEOUT,
            stall: limits::MODEL_STALL_TIMEOUT,
            total: limits::MODEL_TOTAL_TIMEOUT,
        }
    }
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub enum Failed {
    Connect {
        host: String,
        detail: String,
    },
    Timeout {
        phase: Phase,
        after: Duration,
    },
    /// The connection ended, or what came over it was no HTTP.
    Broken,
}

/// Makes calls. Cheap to clone; TLS sessions are resumed across calls.
#[derive(Debug, Clone)]
pub struct Client {
    tls: Arc<tls::Tls>,
    proxies: Arc<Proxies>,
}

impl Client {
    pub fn new(roots: Roots, proxies: Proxies) -> Self {
        Self { tls: Arc::new(tls::Tls::new(roots)), proxies: Arc::new(proxies) }
    }

    /// With the system's certificates and the proxies of the environment.
    pub fn of_system() -> Self {
        Self::new(Roots::System, Proxies::of_environment())
    }

    /// Sends `body` and waits for the head of the answer.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        path: &str,
        headers: &[(&str, String)],
        body: String,
        timeouts: HttpTimeouts,
    ) -> Result<Answer, Failed> {
        let patience = Patience::new(timeouts);
        let connecting = connect::connect(endpoint, &self.tls, &self.proxies);
        let way = patience.wait(Phase::Connect, connecting).await?;
        let way = way.map_err(|detail| Failed::Connect { host: endpoint.authority(), detail })?;
        let request = exchange::request(endpoint, path, headers, &body, &way)?;
        Answer::ask(way.stream, request, patience).await
    }
}

/// Waits, but neither longer than each wait may take nor than all may together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    timeouts: HttpTimeouts,
    ends: Instant,
    /// When the first byte is due, once the request is on its way.
    first_by: Option<Instant>,
}

impl Patience {
    pub fn new(timeouts: HttpTimeouts) -> Self {
        Self { timeouts, ends: Instant::now() + timeouts.total, first_by: None }
    }

    /// From here on the first byte is waited for.
    pub fn asked(self) -> Self {
        Self { first_by: Some(Instant::now() + self.timeouts.first_byte), ..self }
    }

    pub async fn wait<T>(&self, phase: Phase, what: impl Future<Output = T>) -> Result<T, Failed> {
        let mut what = pin!(what);
        // What is there already costs no look at the clock.
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await {
            return Ok(done);
        }
        let after = match phase {
            Phase::Connect => self.timeouts.connect,
            Phase::FirstByte => self.timeouts.first_byte,
            Phase::Stall => self.timeouts.stall,
            Phase::Total => self.timeouts.total,
        };
        let until = match (phase, self.first_by) {
            (Phase::FirstByte, Some(by)) => by,
            _ => Instant::now() + after,
        };
        let (phase, after) = match until < self.ends {
            true => (phase, after),
            false => (Phase::Total, self.timeouts.total),
        };
        let waited = tokio::time::timeout_at(until.min(self.ends), what).await;
        waited.map_err(|_| Failed::Timeout { phase, after })
    }

    /// Whether the whole call has taken too long, however much came.
    pub fn spent(&self) -> Result<(), Failed> {
        match Instant::now() < self.ends {
            true => Ok(()),
            false => Err(Failed::Timeout { phase: Phase::Total, after: self.timeouts.total }),
        }
    }
}
