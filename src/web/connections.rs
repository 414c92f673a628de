//! Bounds the number of connections, and the time for which a connection may be idle. An idle
//! client occupies only one of these connections.

use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::limits;

/// Serves connections until the future is dropped, which also closes the connections. `router_of`
/// makes the router of a connection.
pub(super) async fn serve(listener: TcpListener, router_of: impl Fn(&TcpStream) -> Router) {
    let permits = Arc::new(Semaphore::new(limits::HTTP_CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed, so a permit becomes free eventually.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router_of(&stream);
                connections.spawn(async move {
                    converse(stream, router).await;
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

async fn converse(stream: TcpStream, router: Router) {
    let mut server = Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits::HTTP_HEAD_TIMEOUT);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!("a connection over HTTP ended early: {error}");
    }
}
