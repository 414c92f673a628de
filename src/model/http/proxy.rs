//! Proxies that the environment configures by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connect::{BoxedStream, ConnectFailure};
use super::endpoint::ProviderEndpoint;
use crate::limits;

/// Advice for the operator if a proxy requires a user name and a password, or refuses those that
/// the environment states.
const CHECK_CREDENTIALS: &str = "write both into the proxy's variable, as in \
                                 `HTTPS_PROXY=http://user:password@host:port`";

/// Rules that choose the proxy for an address.
#[derive(Debug)]
pub struct ProxyRules(Option<Matcher>);

/// A proxy between this machine and an endpoint.
#[derive(Debug)]
pub(super) struct HttpProxy {
    pub host: String,
    pub port: u16,
    pub is_https: bool,
    /// The value of the header `Proxy-Authorization`; `None` if the environment states no user name
    /// for the proxy.
    pub authorization: Option<String>,
}

impl ProxyRules {
    pub fn of_environment() -> Self {
        Self(Some(Matcher::from_env()))
    }

    pub fn none() -> Self {
        Self(None)
    }

    /// Creates rules that use the proxy at `uri` for every address that is not on this machine.
    pub fn all(uri: &str) -> Self {
        Self(Some(Matcher::builder().all(uri.to_owned()).build()))
    }

    /// Returns the proxy for an endpoint, or `None` for a direct connection. Servers on this
    /// machine are always reached directly.
    pub(super) fn on_the_way_to(
        &self,
        endpoint: &ProviderEndpoint,
    ) -> Result<Option<HttpProxy>, String> {
        if endpoint.is_loopback() {
            return Ok(None);
        }

        let found = self.0.as_ref().and_then(|matcher| matcher.intercept(endpoint.uri()));
        let Some(found) = found else { return Ok(None) };
        let uri: &Uri = found.uri();
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") | None => false,
            Some(other) => return Err(format!("{other} proxies are not supported, http ones are")),
        };

        let host = uri.host().unwrap_or_default();
        let basic = found.basic_auth().and_then(|value| value.to_str().ok()).map(str::to_owned);
        let raw = found.raw_auth().map(|(name, password)| {
            format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
        });
        Ok(Some(HttpProxy {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            is_https,
            authorization: basic.or(raw),
        }))
    }
}

impl HttpProxy {
    /// Requests a tunnel to `endpoint` over `stream`, an open connection to the proxy. Returns when
    /// the proxy has opened the tunnel; fails if the proxy refuses it.
    pub async fn tunnel(
        &self,
        stream: &mut BoxedStream,
        endpoint: &ProviderEndpoint,
    ) -> Result<(), ConnectFailure> {
        let host = if endpoint.host().contains(':') {
            format!("[{}]", endpoint.host())
        } else {
            endpoint.host().to_owned()
        };

        let target = format!("{host}:{}", endpoint.port());
        let mut ask = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(authorization) = &self.authorization {
            ask.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }

        ask.push_str("\r\n");
        let broken = |e: std::io::Error| format!("the proxy {}: {e}", self.host);
        stream.write_all(ask.as_bytes()).await.map_err(broken)?;
        // Reads single bytes, because the bytes after the head belong to the tunnel.
        let mut head = Vec::new();

        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= limits::PROXY_HEAD_BYTES_MAX {
                let detail = format!("the proxy {} answered at too great a length", self.host);
                return Err(detail.into());
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }

        let line = String::from_utf8_lossy(&head);
        let status = line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());

        let detail = match status {
            Some(200..=299) => return Ok(()),
            Some(407) if self.authorization.is_some() => {
                format!("the proxy {} refused the user name and the password", self.host)
            }
            Some(407) => format!("the proxy {} wants a user name and a password", self.host),
            Some(status) => format!("the proxy {} answered HTTP {status}", self.host),
            None => format!("the proxy {} does not speak HTTP", self.host),
        };
        let advice = (status == Some(407)).then_some(CHECK_CREDENTIALS);
        Err(ConnectFailure { detail, advice })
    }
}
