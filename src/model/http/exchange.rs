//! One request over one connection, and its answer piece by piece.

use std::pin::Pin;
use std::task::Poll;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, Connection};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;

use super::connect::{Stream, Way};
use super::endpoint::Endpoint;
use super::{Failed, Patience};
use crate::limits;
use crate::model::error::Phase;

type Body = Full<Bytes>;

pub(super) fn request(
    endpoint: &Endpoint,
    path: &str,
    headers: &[(&'static str, String)],
    body: String,
    way: &Way,
) -> Result<Request<Body>, Failed> {
    let bad = |detail: String| Failed::Connect { host: endpoint.authority(), detail };
    let path = endpoint.at(path);
    let uri: Uri = match &way.relay {
        Some(_) => format!("http://{}{path}", endpoint.authority()),
        None => path,
    }
    .parse()
    .map_err(|_| bad("its path is no address".to_owned()))?;
    let mut request = Request::post(uri)
        .header(header::HOST, endpoint.authority())
        .header(header::USER_AGENT, concat!("organism/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "text/event-stream, application/json");
    let relay = way.relay.as_ref().and_then(|proxy| proxy.authorization.as_ref());
    let relay = relay.map(|value| ("proxy-authorization", value));
    for (name, value) in headers.iter().map(|(name, value)| (*name, value)).chain(relay) {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| bad(format!("the header {name} cannot be written")))?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    request.body(Full::from(body)).map_err(|e| bad(e.to_string()))
}

/// An answer whose body is still to come. Dropping it closes the connection.
pub struct Answer {
    response: Response<Incoming>,
    line: Line,
    patience: Patience,
    /// A byte of the body has come.
    has_begun: bool,
}

/// The connection, worked by whoever waits for something that comes over it: no task of its own.
struct Line(Option<Connection<TokioIo<Stream>, Body>>);

impl Line {
    async fn wait_for<T>(&mut self, mut what: impl Future<Output = T> + Unpin) -> T {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = Pin::new(&mut what).poll(cx) {
                return Poll::Ready(done);
            }
            // What became of the connection is told by what was waited for.
            if let Some(connection) = &mut self.0
                && Pin::new(connection).poll(cx).is_ready()
            {
                self.0 = None;
            }
            Pin::new(&mut what).poll(cx)
        })
        .await
    }
}

impl Answer {
    pub(super) async fn ask(
        stream: Stream,
        request: Request<Body>,
        patience: Patience,
    ) -> Result<Self, Failed> {
        let mut builder = Builder::new();
        builder.max_buf_size(limits::HTTP_BUFFER_BYTES);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|_| Failed::Broken)?;
        let mut line = Line(Some(connection));
        let patience = patience.asked();
        let sending = Box::pin(sender.send_request(request));
        let response = patience.wait(Phase::FirstByte, line.wait_for(sending)).await?;
        let response = response.map_err(|_| Failed::Broken)?;
        Ok(Self { response, line, patience, has_begun: false })
    }

    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// The next bytes of the body; `None` at its proper end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failed> {
        loop {
            self.patience.spent()?;
            let phase = if self.has_begun { Phase::Stall } else { Phase::FirstByte };
            let frame = self.line.wait_for(self.response.body_mut().frame());
            let frame = self.patience.wait(phase, frame).await?;
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(Failed::Broken),
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if !bytes.is_empty() {
                        self.has_begun = true;
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}
