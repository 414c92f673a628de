//! A command opens one connection for all its requests. It opens a second connection only after the
//! first one has ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use organism::ids::{Digest, ListenerName, ThreadId};
use organism::journal::sqlite::DirectoryLock;
use organism::limits;
use organism::service::handshake::Handshake;
use organism::service::{
    Error, PartitionUnavailable, ServiceRequest, ServiceResponse, SocketTransport, SubmitUpdate,
    encoding, response_queue, socket_path,
};
use tokio::net::UnixSocket;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{House, PATIENCE, say};

/// Fate of the first connection after its first request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FirstConnection {
    IsKept,
    EndsWithoutResponse,
    EndsWithinResponse,
    TakesNoBytes,
}

/// A fake organism. It holds the lock of the journal's directory, and accepts every request.
struct Recorder {
    /// Requests, in one list for each connection.
    connections: Arc<Mutex<Vec<Vec<String>>>>,
    _lock: DirectoryLock,
}

impl Recorder {
    fn start(house: &House) -> Self {
        Self::with(house, FirstConnection::IsKept)
    }

    fn with(house: &House, first: FirstConnection) -> Self {
        let lock = DirectoryLock::take(&house.data()).unwrap();
        let socket = UnixListener::bind(socket_path(&house.data())).unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&connections);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            // A command sends one request after another.
            while let Ok((stream, _)) = socket.accept() {
                let is_first = recorded.lock().unwrap().is_empty();
                let fate = if is_first { first } else { FirstConnection::IsKept };
                recorded.lock().unwrap().push(Vec::new());
                serve(&stream, fate, &recorded);
                if fate == FirstConnection::TakesNoBytes {
                    open.push(stream);
                }
            }
        });
        Self { connections, _lock: lock }
    }

    /// Verbs of the requests, in one list for each connection.
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

fn serve(stream: &UnixStream, fate: FirstConnection, recorded: &Mutex<Vec<Vec<String>>>) {
    let mut write = stream;
    let mut lines = BufReader::new(stream).lines();
    let mut served = 0;
    while let Some(Ok(request)) = lines.next() {
        let response = response_to(&request);
        recorded.lock().unwrap().last_mut().unwrap().push(request);
        match fate {
            FirstConnection::EndsWithoutResponse if served == 1 => return,
            FirstConnection::EndsWithinResponse if served == 1 => {
                write.write_all(format!("organism/{} ", encoding::VERSION).as_bytes()).unwrap();
                return;
            }
            FirstConnection::TakesNoBytes => stream.shutdown(Shutdown::Read).unwrap(),
            _ => {}
        }

        for line in [response, ServiceResponse::End] {
            let line = encoding::encode(&line).unwrap();
            write.write_all(&[&*line, b"\n"].concat()).unwrap();
        }
        served += 1;
    }
}

fn response_to(request: &str) -> ServiceResponse {
    match request {
        _ if request.contains("\"do\":\"status\"") => {
            ServiceResponse::Status { config: Digest::of(b"another"), partitions: None }
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

/// The responses to a request over this transport.
async fn responses(socket: &SocketTransport, request: &ServiceRequest) -> Vec<ServiceResponse> {
    let (sender, mut received) = response_queue();
    let sent = socket.send(request, &sender).await;
    assert!(matches!(sent, Ok(()) | Err(Error::Lost)), "{sent:?}");
    drop(sender);
    let mut responses = Vec::new();
    while let Some(response) = received.recv().await {
        responses.push(response);
    }
    responses
}

fn cancel() -> ServiceRequest {
    ServiceRequest::Cancel {
        thread: ThreadId::parse("sess-any00000").unwrap(),
        by: ListenerName::parse("desk").unwrap(),
        reason: String::new(),
        origin: None,
    }
}

const QUERY: ServiceRequest = ServiceRequest::HeldCalls { partition: 0, message: None };

#[tokio::test]
async fn a_request_whose_kept_connection_had_ended_is_sent_again_where_that_is_safe() {
    let cancel = cancel();
    let cases: [(FirstConnection, &ServiceRequest, &[&[&str]], usize); 6] = [
        (FirstConnection::EndsWithoutResponse, &QUERY, &[&["status", "held"], &["held"]], 1),
        (FirstConnection::EndsWithoutResponse, &cancel, &[&["status", "cancel"]], 0),
        (FirstConnection::EndsWithinResponse, &QUERY, &[&["status", "held"]], 0),
        (FirstConnection::EndsWithinResponse, &cancel, &[&["status", "cancel"]], 0),
        (FirstConnection::TakesNoBytes, &QUERY, &[&["status"], &["held"]], 1),
        (FirstConnection::TakesNoBytes, &cancel, &[&["status"], &["cancel"]], 1),
    ];
    for (first, request, carried, count) in cases {
        let house = House::new();
        assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
        let organism = Recorder::with(&house, first);
        let socket = SocketTransport::new(&house.data(), house.handshake());

        let status = responses(&socket, &ServiceRequest::Status).await;
        assert_eq!(status.len(), 1, "{first:?}: {status:?}");
        let received = responses(&socket, request).await;
        assert_eq!(received.len(), count, "{first:?} {request:?}: {received:?}");
        assert_eq!(organism.carried(), carried, "{first:?} {request:?}");
    }
}

#[tokio::test]
async fn a_client_continues_with_the_organism_that_was_started_again() {
    let house = House::with_echo();
    let handshake = house.handshake();
    let running = house.run();
    let socket = SocketTransport::new(&house.data(), handshake);
    let first = responses(&socket, &QUERY).await;
    assert!(matches!(*first, [ServiceResponse::HeldCallsEnd]), "{first:?}");

    assert_eq!(running.stop(), Some(0));
    let running = house.run();
    let second = responses(&socket, &QUERY).await;
    assert!(matches!(*second, [ServiceResponse::HeldCallsEnd]), "{second:?}");
    assert_eq!(running.stop(), Some(0));
}

/// If the queue of the socket is full, a command waits for a place, and does not report that no
/// organism runs. A hosted listener can fill the queue with connections.
#[tokio::test]
async fn a_full_queue_of_connections_is_no_missing_organism() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let _lock = DirectoryLock::take(data).unwrap();
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(socket_path(data)).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut queued = Vec::new();
    while let Ok(connection) = tokio::net::UnixStream::connect(socket_path(data)).await {
        queued.push(connection);
    }

    let transport = SocketTransport::new(data, Handshake::default());
    let mut locating = Box::pin(transport.locate());
    let early = timeout(Duration::from_millis(50), &mut locating).await;
    assert!(early.is_err(), "{early:?}");
    listener.accept().await.unwrap();
    let located = timeout(PATIENCE, locating).await.expect("there is a place in the queue");
    assert!(located.unwrap());
}

/// Begins to send a request. Returns the organism's end of the connection, over which the client
/// has sent nothing yet.
fn begin<F>(sending: Pin<&mut F>, organism: &UnixListener) -> UnixStream
where
    F: Future<Output = Result<(), Error>>,
{
    let early = sending.poll(&mut Context::from_waker(Waker::noop()));
    assert!(early.is_pending(), "{early:?}");
    organism.accept().unwrap().0
}

fn write_response(mut connection: &UnixStream, response: ServiceResponse) {
    let line = encoding::encode(&response).unwrap();
    connection.write_all(&[&*line, b"\n"].concat()).unwrap();
}

/// A client waits longer for an organism that stands still if the organism has already responded.
/// The accepted request may be carried out when the machine continues.
#[tokio::test(start_paused = true)]
async fn a_client_waits_longer_for_an_organism_that_has_responded_before_it_stopped() {
    for has_response in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let _lock = DirectoryLock::take(data).unwrap();
        let organism = UnixListener::bind(socket_path(data)).unwrap();
        let transport = SocketTransport::new(data, Handshake::default());
        let request = cancel();
        let (responses, _received) = response_queue();

        let begun = Instant::now();
        let mut sending = Box::pin(transport.send(&request, &responses));
        let connection = begin(sending.as_mut(), &organism);
        if has_response {
            write_response(&connection, ServiceResponse::Cancelled);
        }
        let ended = sending.await;
        assert!(matches!(ended, Err(Error::Undecided { .. })), "{ended:?}");
        let waited = begun.elapsed();
        let is_long = waited >= limits::SOCKET_PROBE_LATER_TIMEOUT;
        assert_eq!(is_long, has_response, "{waited:?}");
    }
}

/// An organism with too many connections of hosted processes closes a further one before it reads
/// the request. The client still gets the reason.
#[tokio::test]
async fn a_client_gets_the_reason_for_a_connection_that_was_closed_before_its_request() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let _lock = DirectoryLock::take(data).unwrap();
    let organism = UnixListener::bind(socket_path(data)).unwrap();
    let transport = SocketTransport::new(data, Handshake::default());
    let request = cancel();
    let (responses, mut received) = response_queue();

    let mut sending = Box::pin(transport.send(&request, &responses));
    let connection = begin(sending.as_mut(), &organism);
    let why = PartitionUnavailable::lasting("too many commands");
    write_response(&connection, ServiceResponse::Unavailable(why));
    drop(connection);
    let ended = sending.await;
    assert!(matches!(ended, Err(Error::Lost)), "{ended:?}");
    let response = received.try_recv();
    assert!(matches!(response, Some(ServiceResponse::Unavailable(_))), "{response:?}");
}
