//! HTTP servers: the web view, and a separate server for health, readiness and metrics.
//!
//! The server for health, readiness and metrics responds only to clients on this machine, and not
//! to web pages in a browser (see `only_here`). It has no authentication, so it changes nothing,
//! and shows no threads and no payloads. It gets its reports from [`crate::organism`], and must not
//! know how they are computed.

mod connections;
mod health;
mod view;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::journal;
use crate::limits;
use crate::organism::{Error, HealthMonitor};
use crate::owned_tasks::AbortOnDrop;
use connections::HttpListener;
pub use view::{OperateOptions, TlsFiles, ViewError, ViewOptions, ViewPerson, ViewToken, WebView};

/// Source of health reports. Empty until the organism has started.
type HealthSource = Arc<OnceLock<HealthMonitor>>;

/// An HTTP server that runs until it is dropped.
pub struct WebServer {
    address: SocketAddr,
    health: HealthSource,
    _serving: AbortOnDrop,
}

impl WebServer {
    /// Opens the configured address. Returns `None` if the config has no address. The server
    /// responds immediately, and reports that it is not ready until
    /// [`WebServer::set_health_source`] is called.
    pub async fn open(config: &Config) -> Result<Option<Self>, Error> {
        let Some(address) = config.http else { return Ok(None) };
        match Self::listen(address).await {
            Ok(server) => Ok(Some(server)),
            Err(source) => {
                // If another process holds the journal, it very likely holds the port, too, and its
                // error is clearer.
                journal::sqlite::require_free(&config.data)?;
                let context = format!("listening on {address}, as [http] says");
                Err(Error::Io { context, source })
            }
        }
    }

    /// Opens a server as [`WebServer::open`] does, but at a given loopback address.
    pub async fn listen(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr().unwrap_or(address);
        let health = HealthSource::default();
        let _serving = {
            let router = router(Arc::clone(&health));
            let connections_max = limits::HTTP_CONNECTIONS_MAX;
            let is_keep_alive = false;
            let server = HttpListener { listener, connections_max, is_keep_alive, tls: None };
            AbortOnDrop::new(tokio::spawn(connections::serve(server, move |_| router.clone())))
        };
        Ok(Self { address, health, _serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the health monitor whose reports are served.
    pub fn set_health_source(&self, watcher: HealthMonitor) {
        // Only the first monitor counts: it belongs to the running organism.
        self.health.set(watcher).ok();
    }
}

fn router(health: HealthSource) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "nothing here; /healthz, /readyz, /metrics\n"))
        .layer(from_fn(only_here))
        .with_state(health)
}

/// Refuses requests whose `Host` header names another machine. This protects against DNS rebinding,
/// in which the host name of a foreign web page resolves to this machine. The browser then sends
/// the foreign host name in the header.
async fn only_here(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_here) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "ask by an address of this machine\n").into_response()
    }
}

fn is_here(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["127.0.0.1:9464", "127.0.0.1", "[::1]:80", "[::1]", "localhost:1", "localhost"]
        {
            assert!(is_here(host), "{host}");
        }

        for host in ["example.com", "example.com:9464", "192.0.2.1:9464", "", "localhost.example"] {
            assert!(!is_here(host), "{host}");
        }
    }
}
