//! A command connects to the organism once, whatever it asks, and again where the connection has ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use organism::ids::{Digest, ThreadId};
use organism::journal::sqlite::DirectoryLock;
use organism::service::{ServiceResponse, SubmitUpdate, encoding, socket_path};
use uuid::Uuid;

use super::{House, say};

/// Stands for an organism: holds the journal and takes every request.
struct Recorder {
    /// The requests of each connection.
    connections: Arc<Mutex<Vec<Vec<String>>>>,
    _lock: DirectoryLock,
}

impl Recorder {
    fn start(house: &House) -> Self {
        let lock = DirectoryLock::take(&house.data()).unwrap();
        let socket = UnixListener::bind(socket_path(&house.data())).unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&connections);
        std::thread::spawn(move || {
            // A command sends one request after another.
            while let Ok((stream, _)) = socket.accept() {
                recorded.lock().unwrap().push(Vec::new());
                let mut lines = BufReader::new(&stream).lines();
                while let Some(Ok(request)) = lines.next() {
                    let response = response_to(&request);
                    recorded.lock().unwrap().last_mut().unwrap().push(request);
                    for line in [response, ServiceResponse::End] {
                        let line = encoding::encode(&line).unwrap();
                        (&stream).write_all(&[&*line, b"\n"].concat()).unwrap();
                    }
                }
            }
        });
        Self { connections, _lock: lock }
    }

    /// The verbs of the requests of each connection.
    fn carried(&self) -> Vec<Vec<String>> {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        let verb = |request: String| {
            let json = request.split_once(' ').unwrap().1;
            let request: serde_json::Value = serde_json::from_str(json).unwrap();
            request["do"].as_str().unwrap().to_owned()
        };
        connections.into_iter().map(|requests| requests.into_iter().map(verb).collect()).collect()
    }
}

fn response_to(request: &str) -> ServiceResponse {
    match request {
        _ if request.contains("\"do\":\"status\"") => {
            ServiceResponse::Status { config: Digest::of(b"another") }
        }
        _ if request.contains("\"do\":\"send\"") => {
            let thread = ThreadId::parse("sess-onlyonce").unwrap();
            let calls = Vec::new();
            let receipt = SubmitUpdate::Accepted { thread, calls, again: false, held: false };
            ServiceResponse::SubmitUpdate(receipt)
        }
        _ if request.contains("\"do\":\"held\"") => ServiceResponse::HeldCallsEnd,
        _ if request.contains("\"do\":\"cancel\"") => ServiceResponse::Cancelled,
        _ => ServiceResponse::Ruled(None),
    }
}

#[test]
fn a_command_sends_all_its_requests_over_one_connection() {
    let house = House::new();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    let organism = Recorder::start(&house);
    let message = Uuid::now_v7().to_string();

    let approve = ["approve", &message, "--hash", "0123456789abcdef"];
    house.write("second.xml", say("second"));
    let commands: [(&[&str], &[&str]); 5] = [
        (&["send", "second.xml", "--as", "desk", "--no-wait"], &["send"]),
        (&["approvals"], &["status", "held"]),
        (&approve, &["status", "held", "decide"]),
        (&["refuse", &message], &["status", "decide"]),
        (&["cancel", "sess-any00000"], &["status", "cancel"]),
    ];
    for (command, requests) in commands {
        let ended = house.organism(command);
        assert_eq!(ended.code, Some(0), "{command:?}: {ended:?}");
        assert_eq!(organism.carried(), [requests], "{command:?}");
    }
}
