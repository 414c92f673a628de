//! A local provider of models, which speaks the wire format of chat completions. The provider can
//! stream slowly, and counts requests, sent words, and clients that disconnected.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::until;
use crate::model::server::{STREAM_HEAD, Script, http_chunk};

/// The response to one request.
#[derive(Debug, Clone)]
pub enum ScriptedResponse {
    /// Answers with this text.
    Text(String),
    /// Sends words until the client disconnects.
    Trickle,
    /// Sends this number of words, and then this text.
    Slowly(usize, String),
    /// Sends this number of words, and then nothing, until the client disconnects.
    Stall(usize),
    /// Responds with a status, headers that each end in a line break, and a body.
    Status(&'static str, String, String),
}

impl ScriptedResponse {
    pub fn text(text: &str) -> Self {
        Self::Text(format!("<said xmlns=\"{}\">{text}</said>", super::TALK))
    }

    /// Answers with this text, and states its usage.
    pub fn counted(text: &str) -> Self {
        let [text, stop, done] = events(text);
        let usage = json!({"prompt_tokens": 12, "completion_tokens": 1});
        let usage = json!({"object": "chat.completion.chunk", "choices": [], "usage": usage});
        let body = format!("{text}{stop}data: {usage}\n\n{done}");
        Self::Status("200 OK", "Content-Type: text/event-stream\r\n".to_owned(), body)
    }

    /// An error in the form of this wire format.
    pub fn error(status: &'static str, headers: &str, message: &str) -> Self {
        let error = json!({"error": {"message": message, "type": "test_error"}});
        let headers = format!("Content-Type: application/json\r\n{headers}");
        Self::Status(status, headers, error.to_string())
    }
}

#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The bodies of the requests.
    pub requests: Vec<String>,
    /// Number of sent words.
    pub words: usize,
    /// Number of clients that disconnected during an answer.
    pub left: usize,
}

/// Pause between two words.
const PAUSE: Duration = Duration::from_millis(20);

/// One word with a trailing space.
pub const WORD: &str = "word ";

pub struct Provider {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Provider {
    /// Starts a provider that gives these answers in order, and repeats the last one.
    pub fn start(answers: Vec<ScriptedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, seen) = (answers.clone(), Arc::clone(&shared));
                std::thread::spawn(move || attend(stream, &answers, &seen));
            }
        });
        Self { port, seen }
    }

    /// The base address, as a config names it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The `[models.NAME]` section of a config, with further lines.
    pub fn model(&self, name: &str, more: &str) -> String {
        format!(
            "\n[models.{name}]\nprovider = \"openai-compatible\"\nmodel = \"{name}-1\"\n\
             base_url = \"{}\"\n{more}\n",
            self.url()
        )
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub fn requests(&self) -> usize {
        self.seen().requests.len()
    }

    /// Waits until this number of words was sent.
    pub fn sends(&self, words: usize) {
        until("the model speaks", || (self.seen().words >= words).then_some(()));
    }

    /// Waits until this number of clients has disconnected.
    pub fn is_left(&self, clients: usize) {
        until("the stream is closed", || (self.seen().left >= clients).then_some(()));
    }
}

fn event(delta: Json, finish: Json) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let event = json!({"object": "chat.completion.chunk", "model": "m-1", "choices": [choice]});
    format!("data: {event}\n\n")
}

/// The events of a streamed text, including the events that end the stream.
fn events(text: &str) -> [String; 3] {
    let text = event(json!({"role": "assistant", "content": text}), Json::Null);
    [text, event(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()]
}

fn attend(mut stream: TcpStream, answers: &[ScriptedResponse], seen: &Mutex<Seen>) {
    let Some(request) = request(&mut stream) else { return };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.requests.push(request);
        seen.requests.len() - 1
    };
    let answer = &answers[number.min(answers.len() - 1)];
    let (words, end) = match answer {
        ScriptedResponse::Text(text) => (0, Some(text)),
        ScriptedResponse::Slowly(words, text) => (*words, Some(text)),
        ScriptedResponse::Trickle => (usize::MAX, None),
        ScriptedResponse::Stall(words) => (*words, None),
        ScriptedResponse::Status(status, headers, body) => {
            // The client may have disconnected.
            stream.write_all(&Script::whole(status, headers, body).bytes()).ok();
            return;
        }
    };
    if !speak(&mut stream, words, end, seen) {
        seen.lock().unwrap().left += 1;
    }
}

/// Sends this number of words, and then `end` if there is one; otherwise waits until the client
/// disconnects. Returns false if the client has disconnected.
fn speak(stream: &mut TcpStream, words: usize, end: Option<&String>, seen: &Mutex<Seen>) -> bool {
    let mut is_sent = stream.write_all(STREAM_HEAD).is_ok();
    let mut sent = 0;
    while is_sent && sent < words && !has_left(stream, PAUSE) {
        let word = event(json!({"content": WORD}), Json::Null);
        is_sent = stream.write_all(&http_chunk(word.as_bytes())).is_ok();
        sent += 1;
        seen.lock().unwrap().words += 1;
    }
    if !is_sent || sent < words {
        return false;
    }
    match end {
        Some(text) => {
            let events = events(text).map(|event| http_chunk(event.as_bytes())).concat();
            stream.write_all(&[&events[..], b"0\r\n\r\n"].concat()).is_ok()
        }
        None => {
            while !has_left(stream, PAUSE) {}
            false
        }
    }
}

/// Waits for `pause`, or until the client disconnects. Returns whether the client has disconnected.
fn has_left(stream: &mut TcpStream, pause: Duration) -> bool {
    stream.set_read_timeout(Some(pause)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// The body of a request; `None` if the client disconnects before the request is complete.
fn request(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 8192]);
    // The last brace ends the body.
    while !request.ends_with(b"}") {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
    let text = String::from_utf8_lossy(&request);
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}
