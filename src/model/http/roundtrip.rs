//! One HTTP/1.1 request over one connection, with a response that is read in pieces (RFC 9112).
//! Connections are not reused.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Response, Status};
use tokio::io::{AsyncReadExt as _, AsyncWrite};

use super::connect::{BoxedStream, ConnectFailure, HttpStream};
use super::endpoint::ProviderEndpoint;
use super::framing::{BodyFraming, OVER};
use super::{CallDeadlines, HttpError, tls};
use crate::limits;
use crate::model::error::CallPhase;

const NOT_HTTP: HttpError = HttpError::NoResponse {
    detail: Cow::Borrowed("answered with something that is not HTTP/1.1"),
    is_request_sent: false,
};

const CLOSED: &str = "closed the connection without a complete answer";

/// Encodes a request: the request line, the headers and the body.
pub(super) fn request(
    endpoint: &ProviderEndpoint,
    path: &str,
    headers: &[(&str, String)],
    body: &str,
    stream: &HttpStream,
) -> Result<Vec<u8>, HttpError> {
    let bad =
        |detail: String| HttpError::Connect { host: endpoint.authority(), detail, advice: None };
    let host = endpoint.authority();
    let path = endpoint.at(path);
    let target = match &stream.relay {
        Some(_) => format!("http://{host}{path}"),
        None => path,
    };

    if !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad("its path is no address".to_owned()));
    }

    let mut head = format!(
        "POST {target} HTTP/1.1\r\nhost: {host}\r\nuser-agent: organism/{}\r\n\
         content-type: application/json\r\naccept: text/event-stream, application/json\r\n\
         accept-encoding: identity\r\n",
        env!("CARGO_PKG_VERSION"),
    );
    let relay = stream.relay.as_ref().and_then(|proxy| proxy.authorization.as_ref());
    let relay = relay.map(|value| ("proxy-authorization", value));

    for (name, value) in headers.iter().map(|(name, value)| (*name, value)).chain(relay) {
        // A line break in a value would begin another header.
        if !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            return Err(bad(format!("the header {name} cannot be written")));
        }
        let _ = write!(head, "{name}: {value}\r\n");
    }

    let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
    Ok([head.as_bytes(), body.as_bytes()].concat())
}

/// A response whose body is read in pieces. Dropping the response closes the connection.
pub struct HttpResponse {
    line: HttpConnection,
    head: ResponseHead,
    /// Framing of the unread part of the body.
    framing: BodyFraming,
    /// The bytes of the body that the latest call of `chunk` returned.
    piece: Vec<u8>,
    /// Bytes of the body that the next call of `chunk` returns, because only `peek` has seen them.
    peeked: Vec<u8>,
    /// Failure that `peek` met after these bytes; `None` if it met none.
    failure: Option<HttpError>,
    deadlines: CallDeadlines,
    /// Whether any byte of the body has arrived.
    has_begun: bool,
}

struct ResponseHead {
    status: u16,
    headers: HeaderMap,
}

impl HttpResponse {
    pub(super) async fn send(
        endpoint: &ProviderEndpoint,
        stream: BoxedStream,
        request: Vec<u8>,
        deadlines: CallDeadlines,
    ) -> Result<Self, HttpError> {
        let deadlines = deadlines.after_request();
        let writer = Some(RequestWriter { request, written: 0 });
        let received = Vec::new();
        let mut line = HttpConnection { stream, writer, is_request_sent: false, received };
        let head = deadlines.wait(CallPhase::FirstByte, line.send(endpoint)).await??;
        let framing = BodyFraming::of(head.status, &head.headers)?;
        Ok(Self {
            line,
            head,
            framing,
            piece: Vec::new(),
            peeked: Vec::new(),
            failure: None,
            deadlines,
            has_begun: false,
        })
    }

    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// Returns the next bytes of the body and leaves them unread. Waits until `is_enough` holds for
    /// them, unless the body ends or fails before. The next call of `chunk` returns the same bytes.
    pub async fn peek(&mut self, is_enough: fn(&[u8]) -> bool) -> &[u8] {
        let mut peeked = Vec::new();
        while !is_enough(&peeked) {
            match self.chunk().await {
                Ok(Some(piece)) => peeked.extend_from_slice(piece),
                Ok(None) => break,
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }

        self.peeked = peeked;
        &self.peeked
    }

    /// Returns the next available bytes of the body. Returns `None` at the proper end of the body.
    pub async fn chunk(&mut self) -> Result<Option<&[u8]>, HttpError> {
        self.piece.clear();
        if !self.peeked.is_empty() {
            std::mem::swap(&mut self.piece, &mut self.peeked);
            return Ok(Some(&self.piece));
        }

        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }

        loop {
            let taken = self.framing.take(&self.line.received, &mut self.piece);
            self.line.received.drain(..taken);
            if !self.piece.is_empty() {
                self.has_begun = true;
                return Ok(Some(&self.piece));
            }

            match self.framing {
                OVER => return Ok(None),
                BodyFraming::Broken => return Err(HttpError::Broken),
                _ => {}
            }

            self.deadlines.spent()?;
            let phase = if self.has_begun { CallPhase::Stall } else { CallPhase::FirstByte };
            let received = self.deadlines.wait(phase, self.line.receive()).await?;
            match received.map_err(|_| HttpError::Broken)? {
                0 if self.framing == BodyFraming::UntilClosed => return Ok(None),
                0 => return Err(HttpError::Broken),
                _ => {}
            }
        }
    }
}

/// A connection together with the unsent part of the request and the unread part of the response.
struct HttpConnection {
    stream: BoxedStream,
    /// Writer of the request; `None` once the whole request is written, or writing has failed.
    writer: Option<RequestWriter>,
    is_request_sent: bool,
    received: Vec<u8>,
}

impl HttpConnection {
    /// Sends the request and waits for the head of the response.
    async fn send(&mut self, endpoint: &ProviderEndpoint) -> Result<ResponseHead, HttpError> {
        loop {
            match self.receive().await {
                Ok(0) => return Err(self.no_response(CLOSED)),
                Ok(_) => {}
                Err(error) => return Err(self.failed_read(endpoint, &error)),
            }
            if let Some(head) = self.head()? {
                return Ok(head);
            }
        }
    }

    /// Reads from the connection, and returns the number of bytes read. Meanwhile writes the
    /// request body, because a server may respond before it has the whole body.
    async fn receive(&mut self) -> io::Result<usize> {
        let Self { stream, writer, is_request_sent, received } = self;
        received.reserve(limits::HTTP_READ_BYTES);
        if writer.is_none() {
            return stream.read_buf(received).await;
        }

        let (mut read_half, mut write_half) = tokio::io::split(stream);
        let mut receive = pin!(read_half.read_buf(received));
        poll_fn(|cx| {
            let written = writer.as_mut().map(|writer| writer.poll(&mut write_half, cx));
            if let Some(Poll::Ready(is_complete)) = written {
                *is_request_sent = is_complete;
                *writer = None;
            }
            receive.as_mut().poll(cx)
        })
        .await
    }

    /// Returns the error for a failed read before the head of the response was complete.
    fn failed_read(&self, endpoint: &ProviderEndpoint, error: &io::Error) -> HttpError {
        // A server that has begun its response has read the request, and is charged.
        let refusal = tls::refusal_after_handshake(error).filter(|_| self.received.is_empty());
        if let Some(ConnectFailure { detail, advice }) = refusal {
            return HttpError::Connect { host: endpoint.authority(), detail, advice };
        }

        match tls::tls_error(error) {
            Some(error) => self.no_response(format!("{CLOSED} (TLS: {error})")),
            None => self.no_response(CLOSED),
        }
    }

    fn no_response(&self, detail: impl Into<Cow<'static, str>>) -> HttpError {
        let detail = detail.into();
        HttpError::NoResponse { detail, is_request_sent: self.is_request_sent }
    }

    /// Parses the head of the response, and skips interim (1xx) heads. Returns `None` if the head
    /// has not arrived completely.
    fn head(&mut self) -> Result<Option<ResponseHead>, HttpError> {
        loop {
            let mut headers = [EMPTY_HEADER; limits::HTTP_HEADERS_MAX];
            let mut response = Response::new(&mut headers);
            match response.parse(&self.received) {
                Ok(Status::Complete(length)) => {
                    let head = ResponseHead::of(&response)?;
                    self.received.drain(..length);
                    match head.status {
                        101 => return Err(NOT_HTTP),
                        100..=199 => {}
                        _ => return Ok(Some(head)),
                    }
                }
                Ok(Status::Partial) if self.received.len() < limits::HTTP_HEAD_BYTES_MAX => {
                    return Ok(None);
                }
                Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return Err(self.no_response("answered with a head that is too large"));
                }
                Err(_) => return Err(NOT_HTTP),
            }
        }
    }
}

impl ResponseHead {
    fn of(response: &Response<'_, '_>) -> Result<Self, HttpError> {
        let mut headers = HeaderMap::new();
        for header in response.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let value = HeaderValue::from_bytes(header.value);
            headers.append(name.map_err(|_| NOT_HTTP)?, value.map_err(|_| NOT_HTTP)?);
        }

        Ok(Self { status: response.code.ok_or(NOT_HTTP)?, headers })
    }
}

/// A request that is being written.
struct RequestWriter {
    request: Vec<u8>,
    written: usize,
}

impl RequestWriter {
    /// Writes as much of the request as the connection accepts. Returns `Ready` when the whole
    /// request is written, or when writing has failed: true in the first case, false in the second.
    /// After a failure, the caller must still read from the connection, because the server may have
    /// sent a response.
    fn poll(&mut self, to: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<bool> {
        while let Some(unwritten) = self.request.get(self.written..).filter(|rest| !rest.is_empty())
        {
            match ready!(Pin::new(&mut *to).poll_write(cx, unwritten)) {
                Ok(written @ 1..) => self.written += written,
                Ok(0) | Err(_) => return Poll::Ready(false),
            }
        }

        Pin::new(to).poll_flush(cx).map(|flushed| flushed.is_ok())
    }
}
