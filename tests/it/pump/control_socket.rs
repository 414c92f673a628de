//! The control socket in front of a pump: clients that are silent, late, or gone, and the bound on
//! connections.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use organism::bus::native_host::NativeHost;
use organism::ids::Position;
use organism::limits;
use organism::organism::control::{ControlContext, ControlServer};
use organism::pump::core::Target;
use organism::service::encoding::VERSION;
use organism::service::{Error, ServiceResponse, follow, response_queue, socket_path};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::driver::{PATIENCE, Running, silent, start, start_hosting};
use super::slow_disk::Silent;
use super::world::{name, word};

/// Time-out of the server for a connection. It is longer than a test waits for the server to stop,
/// so that the server does not end the connection first.
const SERVER_PATIENCE: Duration = PATIENCE.saturating_mul(3);

/// Opens a server in front of a pump. Returns the server and the path of its socket.
fn serve(running: &Running, patience: Duration) -> (ControlServer, PathBuf) {
    let data = running.place.data();
    let path = socket_path(&data);
    let context = ControlContext::new(running.handle.clone(), data, patience);
    (ControlServer::open(&path, context).unwrap(), path)
}

/// Returns a line of the service protocol: the version, and then `json`.
fn versioned(json: &str) -> String {
    format!("organism/{VERSION} {json}\n")
}

async fn close(server: ControlServer) {
    let closed = tokio::time::timeout(PATIENCE, server.close().all()).await;
    closed.expect("an open connection holds up the stop");
}

async fn end(running: Running) {
    running.handle.stop();
    running.ended().await.unwrap();
}

/// A regular stop waits for open connections. For a silent connection, it waits only a limited
/// time.
#[tokio::test]
async fn a_silent_connection_does_not_hold_up_a_stop() {
    let running = start(None, silent);
    let (server, path) = serve(&running, Duration::from_millis(10));
    let mut client = UnixStream::connect(&path).await.unwrap();
    let mut response = String::new();
    let read = tokio::time::timeout(PATIENCE, client.read_to_string(&mut response)).await;
    read.expect("the connection stays open").unwrap();
    assert!(response.contains("no request came in time"), "{response}");

    close(server).await;
    end(running).await;
}

#[tokio::test]
async fn bytes_that_are_not_utf8_get_an_error_response() {
    let running = start(None, silent);
    let (server, path) = serve(&running, PATIENCE);
    let request = [format!("organism/{VERSION} ").as_bytes(), b"{\"do\":\"\xff\"}\n"].concat();
    for line in [&b"\xff\xfe\n"[..], &request, b"organism/\xff {}\n"] {
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(line).await.unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).await.unwrap();
        let response = String::from_utf8(response).unwrap();
        assert!(response.contains("\"failed\""), "{line:?}: {response}");
    }

    close(server).await;
    end(running).await;
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_with_the_limit() {
    let running = start(None, silent);
    let (server, path) = serve(&running, PATIENCE);
    let mut client = UnixStream::connect(&path).await.unwrap();
    let payload = "A".repeat(limits::FRAME_BYTES_MAX + (1 << 20));
    let request = versioned(&format!("{{\"do\":\"send\",\"payload\":\"{payload}\"}}"));
    // The server reads no further than the limit, so the end of the request may not be sent.
    client.write_all(request.as_bytes()).await.ok();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    let expected = format!("the request has more than {} bytes", limits::FRAME_BYTES_MAX);
    assert!(response.contains(&expected), "{response}");
    assert!(!response.contains("use the program that the organism runs with"), "{response}");

    close(server).await;
    end(running).await;
}

// The runtime has one thread, and the test awaits nothing between the connection and the stop, so
// the server has not accepted the connection.
#[tokio::test]
async fn a_client_that_is_connected_and_not_accepted_when_the_socket_closes_is_served() {
    let running = start(None, silent);
    let (server, path) = serve(&running, SERVER_PATIENCE);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.write_all(b"no request\n").unwrap();
    let mut closing = server.close();
    assert!(!path.exists(), "no client connects from here on");

    let closed = tokio::time::timeout(PATIENCE, closing.all()).await;
    closed.expect("an open connection holds up the stop");
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(!response.is_empty(), "it gets its response");
    end(running).await;
}

// The path still exists: retrying clients would keep the server busy.
#[tokio::test]
async fn a_server_that_is_dropped_without_being_closed_serves_no_further_connection() {
    let running = start(None, silent);
    let (server, path) = serve(&running, SERVER_PATIENCE);
    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(b"no request\n").await.unwrap();
    drop(server);

    let mut response = Vec::new();
    let read = tokio::time::timeout(PATIENCE, client.read_to_end(&mut response)).await;
    // The operating system reports an unread request as a reset.
    read.expect("the connection stays open").ok();
    assert_eq!(response, b"");
    end(running).await;
}

/// Sends a submission that waits for its result, over a separate connection. Returns the
/// connection.
async fn submit_and_wait(path: &Path) -> UnixStream {
    submit_with(path, "", "").await
}

/// Submits as [`submit_and_wait`] does, with further fields in the request, and with `rest` after
/// the request.
async fn submit_with(path: &Path, fields: &str, rest: &str) -> UnixStream {
    let payload = base64::engine::general_purpose::STANDARD.encode(word("look", "x"));
    let request = format!(
        "organism/{VERSION} {{\"do\":\"send\",\"client\":\"desk\",\"thread\":null,\"suggested\":null,\
         \"key\":null,\"payload\":\"{payload}\",\"wait\":true{fields}}}\n{rest}"
    );
    let mut connection = UnixStream::connect(path).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// Reads the first response on a connection.
async fn first_line(connection: &mut UnixStream) -> String {
    let mut line = String::new();
    let read = tokio::io::BufReader::new(connection).read_line(&mut line).await;
    read.unwrap();
    line
}

/// The number of waiting connections is limited. A client that disconnects makes room for another
/// one, and queries do not count. Clients may wait for weeks for a person's decision, so the person
/// must be able to decide while the limit is reached.
#[tokio::test]
async fn a_client_that_leaves_frees_its_place_and_queries_need_none() {
    let (running, server, path) = never_answering();
    let mut waiting = Vec::new();
    for _ in 0..limits::CONTROL_CONNECTIONS_MAX {
        waiting.push(submit_and_wait(&path).await);
    }
    for connection in &mut waiting {
        let line = first_line(connection).await;
        assert!(line.contains("accepted"), "{line}");
    }

    let refused = first_line(&mut submit_and_wait(&path).await).await;
    assert!(refused.contains("busy"), "{refused}");
    assert!(refused.contains("retry_after_ms"), "{refused}");
    let mut follower = UnixStream::connect(&path).await.unwrap();
    follower.write_all(versioned("{\"do\":\"follow\"}").as_bytes()).await.unwrap();
    let no_place = first_line(&mut follower).await;
    assert!(
        no_place.starts_with(versioned("{\"gone\":").trim_end()),
        "it may try again: {no_place}"
    );
    let mut query = UnixStream::connect(&path).await.unwrap();
    query.write_all(versioned("{\"do\":\"held\",\"partition\":0}").as_bytes()).await.unwrap();
    let held = first_line(&mut query).await;
    assert!(!held.contains("busy"), "{held}");

    drop(waiting.pop());
    let accepted = async {
        while !first_line(&mut submit_and_wait(&path).await).await.contains("accepted") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.expect("a place is free");
    drop(waiting);
    close(server).await;
    end(running).await;
}

/// A pump with a server. The only listener of the pump never answers.
fn never_answering() -> (Running, ControlServer, PathBuf) {
    let runtime = tokio::runtime::Handle::current();
    let running = start_hosting(None, |pump| {
        let host = NativeHost::new(name("finder"), Silent, pump.sink(), runtime);
        pump.host(name("finder"), Arc::new(host));
    });
    let (server, path) = serve(&running, SERVER_PATIENCE);
    (running, server, path)
}

#[tokio::test]
async fn a_client_that_sent_more_than_its_request_and_left_holds_up_no_stop() {
    let half = format!("organism/{VERSION} {{\"do\":\"he");
    let half = half.as_str();
    let large = "x".repeat(limits::FRAME_BYTES_MAX / 4);
    for (fields, rest) in [
        ("", "\n"),
        ("", large.as_str()),
        (",\"keep\":true", "\n"),
        (",\"keep\":true", half),
        (",\"keep\":true", large.as_str()),
    ] {
        let (running, server, path) = never_answering();
        let sent = tokio::time::timeout(PATIENCE, submit_with(&path, fields, rest)).await;
        let mut client = sent.expect("the server reads on");
        let line = first_line(&mut client).await;
        assert!(line.contains("accepted"), "{line}");

        drop(client);
        close(server).await;
        end(running).await;
    }
}

const KEPT: &str = "{\"do\":\"held\",\"partition\":0,\"keep\":true}";

#[tokio::test]
async fn a_connection_that_is_kept_takes_another_request_and_holds_up_no_stop() {
    let running = start(None, silent);
    let (server, path) = serve(&running, SERVER_PATIENCE);
    let mut kept = tokio::io::BufReader::new(UnixStream::connect(&path).await.unwrap());
    for _ in 0..3 {
        kept.write_all(versioned(KEPT).as_bytes()).await.unwrap();
        for expected in [versioned("\"heldend\""), versioned("\"end\"")] {
            let mut line = String::new();
            kept.read_line(&mut line).await.unwrap();
            assert_eq!(line, expected);
        }
    }

    close(server).await;
    assert_eq!(kept.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    end(running).await;
}

#[tokio::test]
async fn a_follower_gets_the_position_at_once_and_holds_up_no_stop() {
    let running = start(None, silent);
    let (server, path) = serve(&running, SERVER_PATIENCE);
    let mut follower = UnixStream::connect(&path).await.unwrap();
    follower.write_all(versioned("{\"do\":\"follow\",\"keep\":true}").as_bytes()).await.unwrap();
    let first = first_line(&mut follower).await;
    assert!(first.starts_with(versioned("{\"recorded\":{\"partition\":0,").trim_end()), "{first}");

    close(server).await;
    end(running).await;
}

#[tokio::test]
async fn a_follower_gets_the_last_position_although_the_pump_has_ended() {
    let (sender, recorded) = watch::channel(Position(1));
    let (responses, mut received) = response_queue();
    let following = tokio::spawn(async move { follow(0, recorded, &responses).await });
    let first = received.recv().await;
    let is_at = |response: &Option<ServiceResponse>, at: u64| matches!(response, Some(ServiceResponse::Recorded { position, .. }) if position.0 == at);
    assert!(is_at(&first, 1), "{first:?}");

    sender.send(Position(2)).unwrap();
    drop(sender);
    let last = received.recv().await;
    assert!(is_at(&last, 2), "{last:?}");
    let end = received.recv().await;
    assert!(end.is_none(), "{end:?}");
    let ended = following.await.unwrap();
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
}

#[tokio::test]
async fn a_follower_of_a_pump_that_has_ended_gets_nothing() {
    let (sender, recorded) = watch::channel(Position(1));
    drop(sender);
    let (responses, mut received) = response_queue();
    let ended = follow(0, recorded, &responses).await;
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    let first = received.try_recv();
    assert!(first.is_none(), "{first:?}");
}

#[tokio::test]
async fn a_follower_gets_a_line_where_something_is_recorded_and_none_otherwise() {
    let running = start(None, silent);
    let (server, path) = serve(&running, SERVER_PATIENCE);
    let recorded = running.handle.recorded();
    let mut follower = tokio::io::BufReader::new(UnixStream::connect(&path).await.unwrap());
    follower.write_all(versioned("{\"do\":\"follow\"}").as_bytes()).await.unwrap();
    let target = Target::New { suggested: None };
    let look = word("look", "x");
    let submitted = running.handle.submit(&name("desk"), target, None, look.as_bytes()).await;
    submitted.unwrap().1.next().await.unwrap().unwrap();

    let mut positions = Vec::new();
    while positions.last() != Some(&*recorded.borrow()) {
        let mut line = String::new();
        follower.read_line(&mut line).await.unwrap();
        let json = line.split_once(' ').unwrap().1;
        let line: serde_json::Value = serde_json::from_str(json).unwrap();
        positions.push(Position(line["recorded"]["position"].as_u64().unwrap()));
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");

    for _ in 0..20 {
        let mut query = UnixStream::connect(&path).await.unwrap();
        query.write_all(versioned("{\"do\":\"held\",\"partition\":0}").as_bytes()).await.unwrap();
        assert_eq!(first_line(&mut query).await, versioned("\"heldend\""));
    }
    assert_eq!(positions.last(), Some(&*recorded.borrow()), "a query records nothing");
    assert_eq!(follower.buffer(), b"");
    let more = follower.get_ref().try_read(&mut [0]).unwrap_err();
    assert_eq!(more.kind(), std::io::ErrorKind::WouldBlock);

    close(server).await;
    end(running).await;
}

/// Connects a client that sends a `follow` request before the server accepts the connection.
fn follow_now(path: &Path) -> UnixStream {
    let mut client = std::os::unix::net::UnixStream::connect(path).unwrap();
    client.write_all(versioned("{\"do\":\"follow\"}").as_bytes()).unwrap();
    client.set_nonblocking(true).unwrap();
    UnixStream::from_std(client).unwrap()
}

#[tokio::test]
async fn a_follower_that_reads_nothing_is_cut_off_and_delays_no_submission() {
    let running = start(None, silent);
    let (server, path) = serve(&running, Duration::from_millis(100));
    let deaf = follow_now(&path);
    let look = word("look", "x");
    let is_open = || match deaf.try_write(b"\n") {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    };
    let submitting = async {
        while is_open() {
            let target = Target::New { suggested: None };
            let client = name("desk");
            let submitted = running.handle.submit(&client, target, None, look.as_bytes()).await;
            let done = submitted.unwrap().1.next().await.unwrap();
            assert!(done.is_ok(), "{done:?}");
        }
    };
    let cut = tokio::time::timeout(PATIENCE * 3, submitting).await;
    cut.expect("its connection stays open although it reads nothing");

    let line = first_line(&mut follow_now(&path)).await;
    assert!(line.starts_with(versioned("{\"recorded\":").trim_end()), "{line}");
    close(server).await;
    end(running).await;
}
