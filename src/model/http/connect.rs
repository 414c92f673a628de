//! Connects to a provider: name lookup, TCP, proxy and TLS.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use super::endpoint::ProviderEndpoint;
use super::proxy::{HttpProxy, ProxyRules};
use super::tls::TlsClient;
use crate::limits;

pub(super) trait DuplexStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> DuplexStream for T {}

pub(super) type BoxedStream = Box<dyn DuplexStream>;

/// An open connection to a provider, directly or over a proxy.
pub(super) struct HttpStream {
    pub stream: BoxedStream,
    /// The proxy that forwards the request; `None` if the connection is direct, or goes through a
    /// tunnel. A request that a proxy forwards has the whole URL in its request line, and contains
    /// the proxy's authorization.
    pub relay: Option<HttpProxy>,
}

/// Reason why no connection was made.
#[derive(Debug, Clone)]
pub(super) struct ConnectFailure {
    pub detail: String,
    /// Special advice for this failure; `None` if the general advice for connections applies.
    pub advice: Option<&'static str>,
}

impl From<String> for ConnectFailure {
    fn from(detail: String) -> Self {
        Self { detail, advice: None }
    }
}

pub(super) async fn connect(
    endpoint: &ProviderEndpoint,
    tls: &TlsClient,
    proxies: &ProxyRules,
) -> Result<HttpStream, ConnectFailure> {
    let Some(proxy) = proxies.on_the_way_to(endpoint)? else {
        let stream = tcp(endpoint.host(), endpoint.port()).await?;
        let stream = if endpoint.is_https() {
            tls.handshake(endpoint.host(), stream).await?
        } else {
            stream
        };
        return Ok(HttpStream { stream, relay: None });
    };

    let stream = tcp(&proxy.host, proxy.port).await;
    let mut stream = stream.map_err(|e| proxy.failure(&e))?;
    if proxy.is_https {
        stream = tls.handshake(&proxy.host, stream).await?;
    }

    if !endpoint.is_https() {
        return Ok(HttpStream { stream, relay: Some(proxy) });
    }

    proxy.tunnel(&mut stream, endpoint).await?;
    Ok(HttpStream { stream: tls.handshake(endpoint.host(), stream).await?, relay: None })
}

/// Tries the addresses of a host one after another. Each attempt has a short time-out, except the
/// attempt with the last address.
async fn tcp(host: &str, port: u16) -> Result<BoxedStream, String> {
    let found = lookup_host((host, port)).await.map_err(|e| format!("its name: {e}"))?;
    let addresses: Vec<SocketAddr> = found.collect();
    let mut last = "its name leads to no address".to_owned();

    for (index, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(address);
        let connected = if index + 1 == addresses.len() {
            connecting.await
        } else {
            match tokio::time::timeout(limits::ADDRESS_TIMEOUT, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
            }
        };
        match connected {
            Ok(stream) => {
                // Failure is harmless: without the option, a request is only slower.
                let _ = stream.set_nodelay(true);
                return Ok(Box::new(stream));
            }
            Err(error) => last = error.to_string(),
        }
    }

    Err(last)
}
