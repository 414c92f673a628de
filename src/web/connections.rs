//! Limits the number of connections, and the time for which a connection may be idle, so that an
//! idle client occupies a connection only for a short time.

use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::limits;

/// A listening socket, with the connection limit and the TLS settings of its server.
pub(super) struct HttpListener {
    pub listener: TcpListener,
    /// Maximum open connections of the server.
    pub connections_max: usize,
    /// Makes the TLS sessions, if the server uses TLS.
    pub tls: Option<TlsAcceptor>,
}

/// Serves connections until the future is dropped, which closes them. `router_of` makes the router
/// of each connection.
pub(super) async fn serve(server: HttpListener, router_of: impl Fn(&TcpStream) -> Router) {
    let HttpListener { listener, connections_max, tls } = server;
    let permits = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed, so a permit becomes free eventually.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router_of(&stream);
                let tls = tls.clone();
                connections.spawn(async move {
                    match tls {
                        Some(tls) => converse_securely(stream, &tls, router).await,
                        None => converse(stream, router).await,
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("could not accept an HTTP connection: {error}");
                tokio::time::sleep(limits::BACKOFF_FIRST).await;
            }
        }
    }
}

async fn converse_securely(stream: TcpStream, tls: &TlsAcceptor, router: Router) {
    match timeout(limits::HTTP_HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, router).await,
        Ok(Err(error)) => tracing::debug!("a client made no TLS session: {error}"),
        Err(_) => tracing::debug!("a client made no TLS session in time"),
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let mut server = Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits::HTTP_HEAD_TIMEOUT);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!("a connection over HTTP ended early: {error}");
    }
}
