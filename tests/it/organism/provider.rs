//! A provider of models on this machine that speaks the real wire format of chat completions. It
//! streams slowly, and counts its requests, the events that it sent, and the clients that left.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::until;
use crate::model::server::{STREAM_HEAD, Script, http_chunk};

/// How one request is answered.
#[derive(Debug, Clone)]
pub enum Answer {
    /// With this text, complete.
    Text(String),
    /// With one word after another, until the client leaves.
    Trickle,
    /// With so many words, and then this text, complete.
    Slowly(usize, String),
    /// With so many words, and then with nothing, until the client leaves.
    Stall(usize),
    /// With a status, headers that each end in a line break, and a body.
    Status(&'static str, String, String),
}

impl Answer {
    pub fn said(text: &str) -> Self {
        Self::Text(format!("<said xmlns=\"{}\">{text}</said>", super::TALK))
    }

    /// An error as providers of this format write it.
    pub fn error(status: &'static str, headers: &str, message: &str) -> Self {
        let error = json!({"error": {"message": message, "type": "test_error"}});
        let headers = format!("Content-Type: application/json\r\n{headers}");
        Self::Status(status, headers, error.to_string())
    }
}

#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Their bodies.
    pub requests: Vec<String>,
    /// Words sent.
    pub words: usize,
    /// Clients that left while they were answered.
    pub left: usize,
}

/// Between two words.
const PAUSE: Duration = Duration::from_millis(20);

/// One word, with the space behind it.
pub const WORD: &str = "word ";

pub struct Provider {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Provider {
    /// Answers each request with the next of these, the last one for ever.
    pub fn start(answers: Vec<Answer>) -> Self {
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

    /// The `[models.NAME]` of a config, with more lines.
    pub fn model(&self, name: &str, more: &str) -> String {
        format!(
            "\n[models.{name}]\nprovider = \"openai-compatible\"\nmodel = \"{name}-1\"\n\
             base_url = \"http://127.0.0.1:{}/v1\"\n{more}\n",
            self.port
        )
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub fn requests(&self) -> usize {
        self.seen().requests.len()
    }

    /// Waits until it has sent so many words.
    pub fn sends(&self, words: usize) {
        until("the model speaks", || (self.seen().words >= words).then_some(()));
    }

    /// Waits until so many clients have left it.
    pub fn is_left(&self, clients: usize) {
        until("the stream is closed", || (self.seen().left >= clients).then_some(()));
    }
}

fn event(delta: Json, finish: Json) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let event = json!({"object": "chat.completion.chunk", "model": "m-1", "choices": [choice]});
    format!("data: {event}\n\n")
}

/// The events of a text and of its end.
fn events(text: &str) -> [String; 3] {
    let text = event(json!({"role": "assistant", "content": text}), Json::Null);
    [text, event(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()]
}

fn attend(mut stream: TcpStream, answers: &[Answer], seen: &Mutex<Seen>) {
    let Some(request) = request(&mut stream) else { return };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.requests.push(request);
        seen.requests.len() - 1
    };
    let answer = &answers[number.min(answers.len() - 1)];
    let (words, end) = match answer {
        Answer::Text(text) => (0, Some(text)),
        Answer::Slowly(words, text) => (*words, Some(text)),
        Answer::Trickle => (usize::MAX, None),
        Answer::Stall(words) => (*words, None),
        Answer::Status(status, headers, body) => {
            // Whoever asked may have left.
            stream.write_all(&Script::whole(status, headers, body).bytes()).ok();
            return;
        }
    };
    if !speak(&mut stream, words, end, seen) {
        seen.lock().unwrap().left += 1;
    }
}

/// Says so many words and the end, or waits for the client to leave. False: it has left.
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

/// Waits for so long, or until the client closes its connection.
fn has_left(stream: &mut TcpStream, pause: Duration) -> bool {
    stream.set_read_timeout(Some(pause)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// The body of a request; `None` where the client leaves before it is complete.
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
