//! A local server that sends exactly the given bytes, and a client for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use organism::ids::{ListenerName, ThreadId};
use organism::model::http::{HttpClient, HttpTimeouts, ProviderEndpoint, ProxyRules, TrustRoots};
use organism::model::remote::{AnswerSettings, Options, ProviderPreset};
use organism::model::{
    AnswerChunk, ChatMessage, ChatRole, Error, KeySource, ModelProvider, ModelRequest, ProviderKey,
    RemoteModel, RequestOrigin, StreamEnd,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Behaviour of the server after it has written the whole response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Close,
    Reset,
    /// Sends nothing more while the client stays connected.
    Hang,
    /// Repeats the last piece.
    Repeat,
}

/// The bytes of one response, in pieces that are written one by one.
#[derive(Debug, Clone)]
pub struct Script {
    pub pieces: Vec<Vec<u8>>,
    pub then: Then,
}

impl Script {
    pub fn new(pieces: Vec<Vec<u8>>, then: Then) -> Self {
        Self { pieces, then }
    }

    /// A complete response with a body of known length.
    pub fn whole(status: &str, headers: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        Self::new(vec![head.into_bytes(), body.as_bytes().to_vec()], Then::Close)
    }

    /// A stream of events, each in its own HTTP chunk, with a regular end.
    pub fn stream<T: AsRef<[u8]>>(events: &[T]) -> Self {
        let mut pieces = vec![STREAM_HEAD.to_vec()];
        pieces.extend(events.iter().map(|event| http_chunk(event.as_ref())));
        pieces.push(b"0\r\n\r\n".to_vec());
        Self::new(pieces, Then::Close)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

pub const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; \
    charset=utf-8\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";

pub fn http_chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// A server that answers each connection with the next script of its list, and repeats the last
/// script.
pub struct Server {
    pub port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    gone: watch::Receiver<usize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub async fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (left, gone) = watch::channel(0);
        let log = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            let mut number = 0;
            let left = Arc::new(left);
            while let Ok((stream, _)) = listener.accept().await {
                let script = scripts[number.min(scripts.len() - 1)].clone();
                number += 1;
                let (log, left) = (Arc::clone(&log), Arc::clone(&left));
                tokio::spawn(async move {
                    serve(stream, script, &log).await;
                    left.send_modify(|gone| *gone += 1);
                });
            }
        });
        Self { port, requests, gone, accepting }
    }

    pub async fn answering(script: Script) -> Self {
        Self::start(vec![script]).await
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Head and body of each request.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub fn body(&self, number: usize) -> serde_json::Value {
        let request = &self.requests()[number];
        serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Waits until this number of connections has ended.
    pub async fn ended(&self, connections: usize) {
        self.gone.clone().wait_for(|gone| *gone >= connections).await.unwrap();
    }
}

/// Placeholder in a script for the nonce of the request. The server replaces it by the nonce, which
/// has the same length.
pub const NONCE: &str = "kTHENONCE";

fn nonce(request: &str) -> Option<String> {
    let (before, _) = request.rsplit_once("-FINAL format=")?;
    let nonce = before.rsplit('<').next().unwrap();
    assert_eq!(nonce.len(), NONCE.len(), "{nonce}");
    Some(nonce.to_owned())
}

async fn serve(mut stream: TcpStream, script: Script, log: &Mutex<Vec<String>>) {
    stream.set_nodelay(true).unwrap();
    let Some(request) = read_request(&mut stream).await else { return };
    let told = nonce(&request);
    log.lock().unwrap().push(request);
    for piece in &script.pieces {
        let piece = match (&told, std::str::from_utf8(piece)) {
            (Some(told), Ok(text)) => text.replace(NONCE, told).into_bytes(),
            _ => piece.clone(),
        };
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    match script.then {
        Then::Close => {}
        Then::Reset => stream.set_zero_linger().unwrap(),
        Then::Hang => {
            let mut byte = [0];
            let _ = stream.read(&mut byte).await;
        }
        Then::Repeat => {
            let last = script.pieces.last().unwrap();
            while stream.write_all(last).await.is_ok() {}
        }
    }
}

/// A request with its body; `None` if the client disconnects before the request is complete.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text.into_owned());
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

pub const KEY: &str = "sk-test-5f1e0b7c9d2a4e6f8a1b3c5d7e9f";

pub fn key() -> ProviderKey {
    ProviderKey::new(KEY, KeySource::Variable("TEST_API_KEY".to_owned())).unwrap()
}

pub fn options(preset: &str, url: &str) -> Options {
    Options {
        preset: ProviderPreset::named(preset).unwrap(),
        model: "m-1".to_owned(),
        endpoint: ProviderEndpoint::parse(url, false).unwrap(),
        key: Some(key()),
        timeouts: HttpTimeouts {
            connect: Duration::from_secs(60),
            first_byte: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            total: Duration::from_secs(300),
        },
        answer: AnswerSettings::default(),
    }
}

pub fn remote(options: Options) -> RemoteModel {
    RemoteModel::new(options, HttpClient::new(TrustRoots::System, ProxyRules::none()))
}

pub fn ask(text: &str) -> ModelRequest {
    ModelRequest {
        origin: RequestOrigin {
            agent: ListenerName::parse("writer").unwrap(),
            thread: ThreadId::parse("sess-0123456789abcdef").unwrap(),
            turn: 1,
            trace: None,
        },
        system: "You write.".to_owned(),
        messages: vec![ChatMessage::text(ChatRole::User, text).into()],
        tools: Vec::new(),
        tool_choice: None,
        one_call: false,
        max_tokens: None,
        default_max_tokens: None,
    }
}

/// Output of a model call: text, reasoning, and the numbers of restarts and chunks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ReceivedAnswer {
    pub text: String,
    pub reasoning: String,
    pub restarts: usize,
    pub chunks: usize,
    /// Whether the stream of the answer was reported as begun.
    pub has_begun: bool,
}

impl ReceivedAnswer {
    pub fn hear(&mut self, chunk: AnswerChunk<'_>) {
        self.chunks += 1;
        match chunk {
            AnswerChunk::Text(text) => self.text.push_str(text),
            AnswerChunk::Reasoning(text) => self.reasoning.push_str(text),
            AnswerChunk::Begun => {
                self.has_begun = true;
                self.chunks -= 1;
            }
            AnswerChunk::Withheld(_)
            | AnswerChunk::Waiting(..)
            | AnswerChunk::Queued
            | AnswerChunk::Failed(_) => self.chunks -= 1,
            AnswerChunk::Restart => {
                let restarts = self.restarts + 1;
                *self = Self { restarts, chunks: self.chunks, ..Self::default() };
            }
        }
    }
}

pub async fn call(
    model: &dyn ModelProvider,
    request: &ModelRequest,
) -> (Result<StreamEnd, Error>, ReceivedAnswer) {
    let mut heard = ReceivedAnswer::default();
    let end = model.call(request, &mut |chunk| heard.hear(chunk)).await;
    (end, heard)
}

/// Makes one call with `preset` to a server that plays this script.
pub async fn answered(preset: &str, script: Script) -> (Result<StreamEnd, Error>, ReceivedAnswer) {
    let server = Server::answering(script).await;
    call(&remote(options(preset, &server.url())), &ask("Hello.")).await
}
