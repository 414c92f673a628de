//! The control socket in front of a pump: clients that are silent, late, or gone, and the bound on
//! connections.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use organism::bus::native_host::NativeHost;
use organism::limits;
use organism::organism::control::{ControlContext, ControlServer};
use organism::service::socket_path;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::driver::{PATIENCE, Running, silent, start, start_hosting};
use super::slow_disk::Silent;
use super::world::{name, word};

/// A server in front of this pump, and the path of its socket.
fn serve(running: &Running, patience: Duration) -> (ControlServer, PathBuf) {
    let data = running.place.data();
    let path = socket_path(&data);
    let context = ControlContext::new(running.handle.clone(), data, patience);
    (ControlServer::open(&path, context).unwrap(), path)
}

async fn close(server: ControlServer) {
    let closed = tokio::time::timeout(PATIENCE, server.close().all()).await;
    closed.expect("an open connection holds up the stop");
}

async fn end(running: Running) {
    running.handle.stop();
    running.ended().await.unwrap();
}

/// An orderly stop waits for every open connection, but only for a time for a silent one.
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

// The runtime has one thread, and nothing is awaited between the connection and the end: the server
// has not accepted it.
#[tokio::test]
async fn a_client_that_is_connected_and_not_accepted_when_the_socket_closes_is_served() {
    let running = start(None, silent);
    let (server, path) = serve(&running, PATIENCE);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.write_all(b"no request\n").unwrap();
    let closing = server.close();
    assert!(!path.exists(), "no client connects from here on");

    let closed = tokio::time::timeout(PATIENCE, closing.all()).await;
    closed.expect("an open connection holds up the stop");
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(!response.is_empty(), "it gets its response");
    end(running).await;
}

// Its path still exists: clients that retry would keep it busy for ever.
#[tokio::test]
async fn a_server_that_is_dropped_without_being_closed_serves_no_further_connection() {
    let running = start(None, silent);
    let (server, path) = serve(&running, PATIENCE);
    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(b"no request\n").await.unwrap();
    drop(server);

    let mut response = Vec::new();
    let read = tokio::time::timeout(PATIENCE, client.read_to_end(&mut response)).await;
    // The system reports a request that was never read as a reset.
    read.expect("the connection stays open").ok();
    assert_eq!(response, b"");
    end(running).await;
}

/// A submission that waits for its result, over a connection of its own.
async fn submit_and_wait(path: &Path) -> UnixStream {
    let payload = base64::engine::general_purpose::STANDARD.encode(word("look", "x"));
    let request = format!(
        "organism/2 {{\"do\":\"send\",\"client\":\"desk\",\"thread\":null,\"suggested\":null,\
         \"key\":null,\"payload\":\"{payload}\",\"wait\":true}}\n"
    );
    let mut connection = UnixStream::connect(path).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// The first response to a request.
async fn first_line(connection: &mut UnixStream) -> String {
    let mut line = String::new();
    let read = tokio::io::BufReader::new(connection).read_line(&mut line).await;
    read.unwrap();
    line
}

/// Senders may wait for weeks for a person's decision. Those that leave must not keep their places,
/// and those that stay must not keep the person out.
#[tokio::test]
async fn a_client_that_leaves_frees_its_place_and_queries_need_none() {
    let runtime = tokio::runtime::Handle::current();
    let running = start_hosting(None, |pump| {
        let host = NativeHost::new(name("finder"), Silent, pump.sink(), runtime);
        pump.host(name("finder"), Arc::new(host));
    });
    let (server, path) = serve(&running, PATIENCE);
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
    follower.write_all(b"organism/2 {\"do\":\"follow\"}\n").await.unwrap();
    let no_place = first_line(&mut follower).await;
    assert!(no_place.starts_with("organism/2 {\"gone\":"), "it may try again: {no_place}");
    let mut query = UnixStream::connect(&path).await.unwrap();
    query.write_all(b"organism/2 {\"do\":\"held\",\"partition\":0}\n").await.unwrap();
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

const KEPT: &[u8] = b"organism/2 {\"do\":\"held\",\"partition\":0,\"keep\":true}\n";

#[tokio::test]
async fn a_connection_that_is_kept_takes_another_request_and_holds_up_no_stop() {
    let running = start(None, silent);
    let (server, path) = serve(&running, PATIENCE);
    let mut kept = tokio::io::BufReader::new(UnixStream::connect(&path).await.unwrap());
    for _ in 0..3 {
        kept.write_all(KEPT).await.unwrap();
        for expected in ["organism/2 \"heldend\"\n", "organism/2 \"end\"\n"] {
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
    let (server, path) = serve(&running, PATIENCE);
    let mut follower = UnixStream::connect(&path).await.unwrap();
    follower.write_all(b"organism/2 {\"do\":\"follow\",\"keep\":true}\n").await.unwrap();
    let first = first_line(&mut follower).await;
    assert!(first.starts_with("organism/2 {\"recorded\":{\"partition\":0,"), "{first}");

    close(server).await;
    end(running).await;
}
