//! A model provider that keeps all its streams open at once. Each stream sends a given event a
//! given number of times, and ends when the test releases it. A bench uses this module as well.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A time-out that is long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct State {
    /// The event that each stream sends `times` times.
    event: String,
    times: usize,
    waiting: usize,
    round: usize,
}

/// The state, and a condition variable that signals its changes.
type Shared = Arc<(Mutex<State>, Condvar)>;

pub struct Server {
    pub port: u16,
    shared: Shared,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared::default();
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&own);
                // A stream that disconnects early is missing from the count.
                std::thread::spawn(move || serve(stream, &shared).ok());
            }
        });
        Self { port, shared }
    }

    /// Sets the event that streams send from now on.
    pub fn says(&self, event: &str, times: usize) {
        let mut state = self.shared.0.lock().unwrap();
        (state.event, state.times) = (event.to_owned(), times);
    }

    /// Waits until this number of streams has sent everything except its end.
    pub fn wait_for(&self, streams: usize) {
        let (state, bell) = &*self.shared;
        let missing = |state: &mut State| state.waiting < streams;
        let state = state.lock().unwrap();
        let (state, waited) = bell.wait_timeout_while(state, PATIENCE, missing).unwrap();
        assert!(!waited.timed_out(), "{} of {streams} streams came", state.waiting);
    }

    pub fn release(&self) {
        let mut state = self.shared.0.lock().unwrap();
        (state.waiting, state.round) = (0, state.round + 1);
        self.shared.1.notify_all();
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    read_request(&stream)?;
    let (state, bell) = &**shared;
    let (event, times, round) = {
        let state = state.lock().unwrap();
        (chunk(&state.event), state.times, state.round)
    };
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    for _ in 0..times {
        stream.write_all(event.as_bytes())?;
    }
    let mut state = state.lock().unwrap();
    state.waiting += 1;
    bell.notify_all();
    drop(bell.wait_while(state, |state| state.round == round).unwrap());
    let end = [text("<answer><text>done</text></answer>"), stop(), "data: [DONE]\n\n".to_owned()];
    let end: String = end.iter().map(|event| chunk(event)).collect();
    stream.write_all(format!("{end}0\r\n\r\n").as_bytes())
}

fn read_request(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(said) = line.strip_prefix("content-length:") {
            length = said.trim().parse().unwrap_or_default();
        }
        if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).map(drop)
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn stop() -> String {
    "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\
     \"finish_reason\":\"stop\"}]}\n\n"
        .to_owned()
}

/// A piece of the answer's text. The piece must need no escaping.
pub fn text(said: &str) -> String {
    format!(
        "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":\
         {{\"content\":\"{said}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// About two KiB of stream that an agent ignores: a comment, and an event without text but with
/// padding.
pub fn noise() -> String {
    let padding = "x4Gd".repeat(250);
    format!(
        ": {padding}\n\ndata: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"\"}}}}],\"obfuscation\":\"{padding}\"}}\n\n"
    )
}
