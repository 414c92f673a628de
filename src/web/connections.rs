//! Limits the number of connections. Also limits the time for which a client may send nothing or
//! take no bytes of a response, because such a client occupies a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::accept_failures::AcceptFailures;
use crate::limits;

/// A listening socket, with the connection limit and the TLS settings of its server.
pub(super) struct HttpListener {
    pub listener: TcpListener,
    /// Maximum open connections of the server.
    pub connections_max: usize,
    /// Whether a connection serves further requests after its first.
    pub is_keep_alive: bool,
    /// Makes the TLS sessions, if the server uses TLS.
    pub tls: Option<TlsAcceptor>,
}

/// Serves connections until the future is dropped, and then closes them. `router_of` makes the
/// router of each connection.
pub(super) async fn serve(server: HttpListener, router_of: impl Fn(&TcpStream) -> Router) {
    let HttpListener { listener, connections_max, is_keep_alive, tls } = server;
    let permits = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    let mut failures = AcceptFailures::new("an HTTP connection");
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed, so a permit becomes free eventually.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                failures.end();
                limit_lost(&stream);
                let router = router_of(&stream);
                let tls = tls.clone();
                let stream = WriteTimeout::new(stream);
                connections.spawn(async move {
                    match tls {
                        Some(tls) => converse_securely(stream, &tls, router, is_keep_alive).await,
                        None => converse(stream, router, is_keep_alive).await,
                    }
                    drop(permit);
                });
            }
            Err(error) => failures.wait_after(&error).await,
        }
    }
}

/// Makes the kernel end a connection whose client acknowledges nothing for
/// [`limits::HTTP_ACK_TIMEOUT`]. The connection of a client whose network is gone would otherwise
/// remain for about 15 minutes.
#[cfg(target_os = "linux")]
fn limit_lost(stream: &TcpStream) {
    let millis = u32::try_from(limits::HTTP_ACK_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, millis) {
        tracing::debug!("could not limit the time of a connection without a client: {error}");
    }
}

/// Does nothing. Only Linux can end a connection whose client acknowledges nothing.
#[cfg(not(target_os = "linux"))]
fn limit_lost(_: &TcpStream) {}

async fn converse_securely(
    stream: WriteTimeout<TcpStream>,
    tls: &TlsAcceptor,
    router: Router,
    is_keep_alive: bool,
) {
    match timeout(limits::HTTP_HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, router, is_keep_alive).await,
        Ok(Err(error)) => tracing::debug!("a client made no TLS session: {error}"),
        Err(_) => tracing::debug!("a client made no TLS session in time"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    is_keep_alive: bool,
) {
    let mut server = Builder::new();
    server.keep_alive(is_keep_alive);
    server.timer(TokioTimer::new()).header_read_timeout(limits::HTTP_HEAD_TIMEOUT);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!("a connection over HTTP ended early: {error}");
    }
}

/// A stream whose writes fail if the other side takes no bytes for [`limits::HTTP_WRITE_TIMEOUT`].
struct WriteTimeout<S> {
    stream: S,
    /// Timer of the time-out. Set while the send buffer is full, and `None` at all other times.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S) -> Self {
        Self { stream, blocked: None }
    }

    /// Returns the result of a write, or the error of the time-out if the send buffer has been full
    /// for too long.
    fn limit(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }

        let start = || Box::pin(sleep(limits::HTTP_WRITE_TIMEOUT));
        let blocked = self.blocked.get_or_insert_with(start);
        blocked.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// Sends two requests at once to a server whose response is larger than the buffer of the
    /// connection.
    async fn served(is_keep_alive: bool) -> (tokio::task::JoinHandle<()>, DuplexStream) {
        let (mut client, server) = duplex(256);
        let router = Router::new().route("/", get(|| async { "x".repeat(10_000) }));
        client.write_all(REQUEST.repeat(2).as_bytes()).await.unwrap();
        let stream = WriteTimeout::new(server);
        (tokio::spawn(converse(stream, router, is_keep_alive)), client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_response_loses_its_connection() {
        for is_keep_alive in [true, false] {
            let begun = Instant::now();
            let (serving, _client) = served(is_keep_alive).await;
            timeout(Duration::from_secs(600), serving).await.unwrap().unwrap();
            assert_eq!(begun.elapsed().as_secs(), limits::HTTP_WRITE_TIMEOUT.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_its_whole_response() {
        let (serving, mut client) = served(false).await;
        let mut received = 0;
        let mut bytes = [0; 1_000];
        loop {
            match client.read(&mut bytes).await.unwrap() {
                0 => break,
                count => received += count,
            }
            tokio::time::advance(limits::HTTP_WRITE_TIMEOUT / 2).await;
        }

        assert!((10_000..12_000).contains(&received), "one response, not two: {received}");
        serving.await.unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_ends_a_connection_whose_client_acknowledges_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = HttpListener { listener, connections_max: 1, is_keep_alive: false, tls: None };
        let (accepted, mut timeouts) = tokio::sync::mpsc::unbounded_channel();
        let serving = tokio::spawn(serve(server, move |stream| {
            accepted.send(rustix::net::sockopt::tcp_user_timeout(stream).unwrap()).unwrap();
            Router::new()
        }));

        let _client = TcpStream::connect(at).await.unwrap();
        let millis = timeouts.recv().await.unwrap();
        assert_eq!(Duration::from_millis(millis.into()), limits::HTTP_ACK_TIMEOUT);
        serving.abort();
    }
}
