//! Clients that wait for calls that are ready but not handed over.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use organism::ids::ListenerName;
use organism::service::{
    ResultsRequest, ServiceRequest, ServiceResponse, SocketTransport, SubmitUpdate, TreeWait,
    WaitKind, response_queue,
};

use tokio::time::timeout;

use super::{CONFIG, CommandOutput, House, numbered, say, until};

/// Starts a `send` that waits for its result. Also returns the first line in which the `send`
/// reports a wait.
fn send(house: &House, payload: &str, arguments: &[&str]) -> (Child, String) {
    house.write("payload.xml", payload);
    let mut send = house.command(&["send", "payload.xml", "--as", "desk"]);
    send.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut send = send.spawn().unwrap();

    let mut lines = BufReader::new(send.stderr.take().unwrap()).lines();
    let wait = lines.find_map(|line| line.ok().filter(|line| line.contains(" waits")));
    (send, wait.expect("a wait is reported before the end"))
}

/// If a pause holds back a client's call, the client gets a report of the pause, with the command
/// that ends the pause. A client that repeats the key of the call gets the same report.
#[test]
fn a_client_of_a_paused_call_gets_the_command_that_ends_the_pause() {
    let house = House::with(CONFIG);
    let running = house.run();
    assert_eq!(house.organism(&["pause", "solo", "--note", "for now"]).code, Some(0));
    let expected =
        "a call to solo waits, because a pause covers it; `organism resume solo` ends the pause";
    let (first, wait) = send(&house, &numbered("ping", "1"), &["--key", "k"]);
    assert!(wait.contains(expected), "{wait}");
    let (again, wait) = send(&house, &numbered("ping", "1"), &["--key", "k"]);
    assert!(wait.contains(expected), "{wait}");

    assert_eq!(house.organism(&["resume", "solo"]).code, Some(0));
    for sent in [first, again] {
        let sent = CommandOutput::from(sent.wait_with_output().unwrap());
        assert_eq!((sent.code, sent.out), (Some(0), numbered("pong", "1") + "\n"));
    }
    assert_eq!(running.stop(), Some(0));
}

/// A client that repeats its request to wait, as it does every 30 s over NATS, gets the report of
/// the wait again.
#[tokio::test]
async fn a_client_that_waits_again_gets_the_wait_of_its_call() {
    let house = House::with(CONFIG);
    let running = house.run();
    assert_eq!(house.organism(&["pause", "solo"]).code, Some(0));
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait", "--json"]);
    let receipt: serde_json::Value = serde_json::from_str(sent.out.trim()).unwrap();
    let request = ServiceRequest::AwaitResults(ResultsRequest {
        thread: serde_json::from_value(receipt["thread"].clone()).unwrap(),
        calls: serde_json::from_value(receipt["calls"].clone()).unwrap(),
        client: ListenerName::parse("desk").ok(),
        secret: None,
    });

    let socket = SocketTransport::new(&house.data(), house.handshake());
    let (responses, mut received) = response_queue();
    let response = tokio::select! {
        ended = socket.send(&request, &responses) => panic!("{ended:?}"),
        response = timeout(Duration::from_secs(60), received.recv()) => response.unwrap().unwrap(),
    };

    let ServiceResponse::SubmitUpdate(SubmitUpdate::Waits(TreeWait { wait, .. })) = response else {
        panic!("{response:?}");
    };
    assert_eq!(wait, WaitKind::Paused { target: "solo".to_owned() });
    assert_eq!(house.organism(&["resume", "solo"]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
}

/// If no process serves a client's call, the client gets a report with the time at which the call
/// fails.
#[test]
fn a_client_of_an_absent_listener_gets_the_time_at_which_its_call_fails() {
    let config = CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"./dead\"]\ntimeout = \"8s\"");
    let house = House::with(&config);
    house.write("dead", "#!/bin/sh\nexit 3\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("dead"), executable).unwrap();
    let running = house.run();
    house.send_text(&say("too often"), &[]);
    until("the listener has left", || {
        let thread = house.organism(&["thread", "sess-organism"]).out;
        thread.contains("listener-left").then_some(())
    });

    let (send, wait) = send(&house, &say("hello"), &[]);
    assert!(wait.contains("a call to echo waits for a process that takes it"), "{wait}");
    assert!(wait.contains("the call fails at 20"), "{wait}");
    let sent = CommandOutput::from(send.wait_with_output().unwrap());
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
}
