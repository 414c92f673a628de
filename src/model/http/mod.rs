//! HTTP client for providers. It sends one POST request, and reads the response as a stream.
//!
//! Each call has its own connection. The connection is closed at the end of the call, or when the
//! response is dropped. So no call uses a pooled connection that the server has closed. Redirects
//! are not followed. This module must not interpret the content of requests and responses.

mod connect;
mod endpoint;
mod framing;
mod proxy;
mod roundtrip;
mod tls;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use connect::ConnectFailure;
pub use endpoint::{BadAddress, ProviderEndpoint};
use proxy::PROXY_AUTHENTICATION_REQUIRED;
pub use proxy::ProxyRules;
pub use roundtrip::HttpResponse;
pub use tls::TrustRoots;

use super::error::CallPhase;
use crate::limits;

/// Maximum time by which each time-out is extended, in order to read bytes that arrived in time. If
/// this process was suspended, a time-out may expire before the process has read such bytes.
const LATE_READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Time-outs of the phases of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// Maximum duration of name lookup, TCP, proxy and TLS together.
    pub connect: Duration,
    /// Maximum time from the sending of the request to the first byte of the body.
    pub first_byte: Duration,
    /// Maximum time between two bytes of the body.
    pub stall: Duration,
    /// Maximum duration of the whole call.
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

/// Reason why a request or its response failed.
#[derive(Debug)]
pub enum HttpError {
    Connect {
        host: String,
        detail: String,
        /// Special advice for this failure; `None` if the general advice for connections applies.
        advice: Option<&'static str>,
    },
    Timeout {
        phase: CallPhase,
        after: Duration,
    },
    /// The connection carried no complete head of an HTTP response. `detail` states what the server
    /// did instead.
    NoResponse {
        detail: Cow<'static, str>,
        /// Whether the provider may have read the whole request: all of it was sent, to a server
        /// that sent nothing else than HTTP.
        is_request_sent: bool,
    },
    /// The connection ended early or carried bytes that are not HTTP, after the head of the
    /// response.
    Broken,
}

/// HTTP client. Cheap to clone. TLS sessions are resumed across calls.
#[derive(Debug, Clone)]
pub struct HttpClient {
    tls: Arc<tls::TlsClient>,
    proxies: Arc<ProxyRules>,
}

impl HttpClient {
    pub fn new(roots: TrustRoots, proxies: ProxyRules) -> Self {
        Self { tls: Arc::new(tls::TlsClient::new(roots)), proxies: Arc::new(proxies) }
    }

    /// Makes a client with the system's certificates and the proxies that the environment names.
    pub fn of_system() -> Self {
        Self::new(TrustRoots::System, ProxyRules::of_environment())
    }

    /// Sends `body` and waits for the head of the response.
    pub async fn post(
        &self,
        endpoint: &ProviderEndpoint,
        path: &str,
        headers: &[(&str, String)],
        body: String,
        timeouts: HttpTimeouts,
    ) -> Result<HttpResponse, HttpError> {
        let deadlines = CallDeadlines::new(timeouts);
        let connecting = connect::connect(endpoint, &self.tls, &self.proxies);
        let connected = deadlines.wait(CallPhase::Connect, connecting).await?;
        let stream = connected.map_err(|ConnectFailure { detail, advice }| HttpError::Connect {
            host: endpoint.authority(),
            detail,
            advice,
        })?;

        let request = roundtrip::request(endpoint, path, headers, &body, &stream)?;
        let response = HttpResponse::send(endpoint, stream.stream, request, deadlines).await?;
        match stream.relay {
            Some(proxy) if response.status() == PROXY_AUTHENTICATION_REQUIRED => {
                let ConnectFailure { detail, advice } = proxy.denied();
                Err(HttpError::Connect { host: endpoint.authority(), detail, advice })
            }
            _ => Ok(response),
        }
    }
}

/// Deadlines of one call: one for its current phase, and one for the whole call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallDeadlines {
    timeouts: HttpTimeouts,
    ends: Instant,
    /// Deadline for the first byte of the body; `None` until the request is sent.
    first_by: Option<Instant>,
}

impl CallDeadlines {
    pub fn new(timeouts: HttpTimeouts) -> Self {
        Self { timeouts, ends: Instant::now() + timeouts.total, first_by: None }
    }

    /// Starts the time-out for the first byte of the body. Returns the deadlines, which now include
    /// the deadline of this time-out.
    pub fn after_request(self) -> Self {
        Self { first_by: Some(Instant::now() + self.timeouts.first_byte), ..self }
    }

    pub async fn wait<T>(
        &self,
        phase: CallPhase,
        what: impl Future<Output = T>,
    ) -> Result<T, HttpError> {
        let mut what = pin!(what);
        // If the future is ready at once, no clock needs to be read.
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await {
            return Ok(done);
        }

        let after = match phase {
            CallPhase::Connect => self.timeouts.connect,
            CallPhase::FirstByte => self.timeouts.first_byte,
            CallPhase::Stall => self.timeouts.stall,
            CallPhase::Total => self.timeouts.total,
        };

        let until = match (phase, self.first_by) {
            (CallPhase::FirstByte, Some(by)) => by,
            _ => Instant::now() + after,
        };

        let (phase, after) = if until < self.ends {
            (phase, after)
        } else {
            (CallPhase::Total, self.timeouts.total)
        };

        let waited = tokio::time::timeout_at(until.min(self.ends), what.as_mut()).await;
        if let Ok(done) = waited {
            return Ok(done);
        }
        // After the process stood still, the timer can be due before the runtime has seen bytes that
        // came in time.
        let late = tokio::time::timeout(LATE_READ_TIMEOUT, what).await;
        late.map_err(|_| HttpError::Timeout { phase, after })
    }

    /// Returns an error if the deadline of the whole call has passed.
    pub fn spent(&self) -> Result<(), HttpError> {
        if Instant::now() < self.ends {
            Ok(())
        } else {
            Err(HttpError::Timeout { phase: CallPhase::Total, after: self.timeouts.total })
        }
    }
}
