//! Answers of model providers: the framing of HTTP, and event streams.

use std::time::Duration;

use organism::model::http::{
    HttpClient, HttpError, HttpTimeouts, ProviderEndpoint, ProxyRules, TrustRoots,
};
use organism::model::sse::SseDecoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::driver::Dice;

/// Maximum number of connections to one address. After this number of connections, the server gets
/// a new address, because the system reserves the ports of closed connections for a while.
const CONNECTIONS_MAX: u32 = 5_000;

/// A client, and a server that answers with the fuzz input.
pub struct Provider {
    runtime: Runtime,
    client: HttpClient,
    listener: TcpListener,
    connections: u32,
}

/// An answer that the client accepted as complete.
#[derive(Debug, PartialEq, Eq)]
struct FuzzedAnswer {
    status: u16,
    body: Vec<u8>,
    /// Whether the head states the end of the body.
    has_end: bool,
}

impl Provider {
    pub fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = HttpClient::new(TrustRoots::System, ProxyRules::none());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        Self { runtime, client, listener, connections: 0 }
    }

    /// Checks that the result does not depend on how the answer is cut into chunks. If the client
    /// accepts the beginning of an answer as complete, the whole answer must give the same result,
    /// because the client ignores the bytes after a complete answer.
    pub fn http(&mut self, bytes: &[u8]) -> String {
        let whole = self.answer(&[bytes]);
        let mut dice = Dice::new(
            bytes
                .iter()
                .fold(1, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))),
        );
        let (start, end) = bytes.split_at(dice.below(bytes.len() + 1));
        assert_eq!(self.answer(&[start, end]), whole, "depends on the chunking");

        // Of several codings, the last one counts, and the client shows the first one.
        let codings = String::from_utf8_lossy(bytes).to_lowercase();
        let has_one_coding = codings.matches("transfer-encoding").count() < 2;
        let part = self.answer(&[start]).filter(|part| part.has_end && has_one_coding);
        if let Some(part) = part {
            assert_eq!(Some(&part), whole.as_ref(), "a part of it is complete");
        }
        match whole {
            Some(FuzzedAnswer { status, body, has_end }) => {
                assert!(body.len() <= bytes.len());
                format!("{} with {} bytes, {has_end}", status / 100, body.len().min(3))
            }
            None => "broken".to_owned(),
        }
    }

    /// Returns the answer that the client reads; `None` if the client reports the answer as broken.
    fn answer(&mut self, pieces: &[&[u8]]) -> Option<FuzzedAnswer> {
        let Self { runtime, client, listener, connections } = self;
        runtime.block_on(async {
            *connections += 1;
            if *connections % CONNECTIONS_MAX == 0 {
                *listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            }
            let address = format!("http://{}", listener.local_addr().unwrap());
            let endpoint = ProviderEndpoint::parse(&address, false).unwrap();

            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                for piece in pieces {
                    // The client may close the connection early.
                    stream.write_all(piece).await.ok();
                    tokio::task::yield_now().await;
                }
                stream.shutdown().await.ok();
                stream.read_to_end(&mut Vec::new()).await.ok();
            };
            tokio::join!(ask(client, &endpoint), serving).0
        })
    }
}

async fn ask(client: &HttpClient, endpoint: &ProviderEndpoint) -> Option<FuzzedAnswer> {
    let forever = Duration::from_secs(600);
    let timeouts =
        HttpTimeouts { connect: forever, first_byte: forever, stall: forever, total: forever };
    let posted = client.post(endpoint, "/", &[], "{}".to_owned(), timeouts).await;
    let mut response = match posted {
        Ok(response) => response,
        Err(HttpError::Broken | HttpError::NoResponse { .. }) => return None,
        Err(error) => panic!("{error:?}"),
    };

    let is_chunked = response.header("transfer-encoding") == Some("chunked");
    let has_coding = response.header("transfer-encoding").is_some();
    let has_length = response.header("content-length").is_some();
    let has_end = is_chunked || (has_length && !has_coding);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(piece),
            Ok(None) => return Some(FuzzedAnswer { status: response.status(), body, has_end }),
            Err(HttpError::Broken) => return None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

type Events = Vec<(String, Vec<u8>)>;

/// The events of a stream; the last one may be unfinished.
fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Events {
    let mut decoder = SseDecoder::default();
    let mut found = Events::new();
    for mut rest in pieces {
        while let Some(event) = decoder.next(&mut rest).unwrap() {
            found.push((event.name.to_owned(), event.data.to_vec()));
        }
        assert!(rest.is_empty(), "everything was read");
    }
    let unfinished = decoder.unfinished().unwrap();
    found.extend(unfinished.map(|event| (event.name.to_owned(), event.data.to_vec())));
    found
}

/// The events of a stream, read line by line as the standard says.
fn reference(bytes: &[u8]) -> Events {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut found = Events::new();
    let (mut name, mut data) = (String::new(), None::<Vec<u8>>);
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        let breaks = if after.starts_with(b"\r\n") { 2 } else { after.len().min(1) };
        rest = &after[breaks..];

        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            _ if line.is_empty() => {
                let name = std::mem::take(&mut name);
                found.extend(data.take().map(|data| (name, data)));
            }
            b"event" => name = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut data {
                Some(data) => data.extend(b"\n".iter().chain(value)),
                None => data = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    found.extend(data.map(|data| (name, data)));
    found
}

/// Checks that the parser returns the events that the standard requires, whether the input comes in
/// one piece, byte by byte, or in three parts.
pub fn sse(bytes: &[u8]) -> String {
    let expected = reference(bytes);
    assert_eq!(events(std::iter::once(bytes)), expected);
    assert_eq!(events(bytes.chunks(1)), expected, "byte by byte");
    assert_eq!(events(bytes.chunks(1 + bytes.len() / 3)), expected, "in three parts");

    let named = expected.iter().filter(|(name, _)| !name.is_empty()).count();
    let long = expected.iter().filter(|(_, data)| data.contains(&b'\n')).count();
    format!("{} events, {named} named, {long} of several lines", expected.len())
}
