//! Clients that wait for the result of a call that was accepted earlier.

use std::net::SocketAddr;
use std::sync::Arc;

use organism::ids::ListenerName;
use organism::service::{
    ResultsRequest, ServiceClient, ServiceRequest, ServiceResponse, SubmitRequest, SubmitUpdate,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{CONFIG, House, PATIENCE, TALK, numbered};
use crate::web::{address, ask, listening, page::Page};

const CLIENTS: usize = 20;

/// Number of times that the journal's records were read so far.
fn reads(at: SocketAddr) -> f64 {
    Page::read(&ask(at, "/metrics").body).get("organism_journal_reads_total", &[])
}

fn repeated(key: &str) -> SubmitRequest {
    SubmitRequest {
        client: ListenerName::parse("desk").unwrap(),
        thread: None,
        suggested: None,
        key: Some(key.to_owned()),
        payload: numbered("hold", "1").into_bytes(),
        wait: true,
        trace: None,
        secret: None,
    }
}

/// Starts clients that repeat a key and wait. Returns a receiver for all their responses.
async fn start_waiters(house: &House, key: &str) -> mpsc::UnboundedReceiver<SubmitUpdate> {
    let client = ServiceClient::find(&house.data(), house.handshake()).await.unwrap().unwrap();
    let client = Arc::new(client);
    let (responses, received) = mpsc::unbounded_channel();

    for _ in 0..CLIENTS {
        let (client, responses, parcel) = (client.clone(), responses.clone(), repeated(key));
        tokio::spawn(async move {
            let on_line = |said| match said {
                ServiceResponse::SubmitUpdate(sent) => drop(responses.send(sent)),
                other => panic!("not part of a submission: {other:?}"),
            };
            client.attempt(0, &ServiceRequest::Submit(parcel), on_line).await.unwrap();
        });
    }
    received
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_wait_for_one_call_share_one_completion_and_do_not_read_the_journal() {
    let house = House::with(&listening(CONFIG));
    let running = house.run();
    let at = address(&house);
    let accepted = house.send_text(&numbered("hold", "1"), &["--key", "k", "--no-wait"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");

    let before = reads(at);
    let mut responses = start_waiters(&house, "k").await;
    for _ in 0..CLIENTS {
        let receipt = responses.recv().await.unwrap();
        assert!(matches!(receipt, SubmitUpdate::Accepted { again: true, .. }), "{receipt:?}");
    }
    house.write("let-go", "");

    for _ in 0..CLIENTS {
        let Some(SubmitUpdate::Result { replies, .. }) = responses.recv().await else {
            panic!("no result");
        };
        let payload = format!("<held xmlns=\"{TALK}\"><n>1</n></held>");
        assert_eq!(replies[0].text(), payload);
    }
    // A client whose query comes after the completion reads the record once.
    let polled = reads(at) - before;
    assert!(polled < CLIENTS as f64, "{polled} reads by {CLIENTS} clients");
    assert_eq!(running.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_no_result_of_a_call_for_which_another_client_waits() {
    let house = House::with(CONFIG);
    let running = house.run();
    let accepted = house.send_text(&numbered("hold", "1"), &["--key", "k", "--no-wait", "--json"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    house.write("say.xml", super::say("hello"));
    let own = house.organism(&["send", "say.xml", "--as", "other", "--json"]).json().remove(0);
    let mut responses = start_waiters(&house, "k").await;
    for _ in 0..CLIENTS {
        let receipt = responses.recv().await.unwrap();
        assert!(matches!(receipt, SubmitUpdate::Accepted { again: true, .. }), "{receipt:?}");
    }

    let foreign_call = accepted.json().remove(0)["calls"].clone();
    let request = ServiceRequest::AwaitResults(ResultsRequest {
        thread: serde_json::from_value(own["thread"].clone()).unwrap(),
        calls: serde_json::from_value(foreign_call).unwrap(),
        client: ListenerName::parse("other").ok(),
        secret: None,
    });
    let client = ServiceClient::find(&house.data(), house.handshake()).await.unwrap().unwrap();
    let mut refused = Vec::new();
    let attempt = client.attempt(0, &request, |response| refused.push(response));
    timeout(PATIENCE, attempt).await.expect("it does not wait for the call").unwrap();
    let [ServiceResponse::Failed(refused)] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(refused.contains("is not on record"), "{refused}");

    house.write("let-go", "");
    for _ in 0..CLIENTS {
        let result = responses.recv().await.unwrap();
        assert!(matches!(result, SubmitUpdate::Result { .. }), "{result:?}");
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_call_that_is_over_is_read_from_the_journal_once() {
    let house = House::with(&listening(CONFIG));
    let running = house.run();
    let at = address(&house);
    let first = house.send_text(&super::say("hello"), &["--key", "k"]);
    assert_eq!(first.code, Some(0), "{first:?}");

    let before = reads(at);
    let second = house.send_text(&super::say("hello"), &["--key", "k"]);
    assert_eq!(second.out, first.out);
    assert_eq!(reads(at) - before, 1.0);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_client_that_waits_for_a_repeated_key_learns_that_the_organism_ended() {
    let house = House::with(CONFIG);
    let running = house.run();
    let accepted = house.send_text(&numbered("hold", "1"), &["--key", "k", "--no-wait"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let again = house.send_text(&numbered("hold", "1"), &["--key", "k", "--no-wait"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("shows how far the first request is"), "{again:?}");
    assert!(!again.err.contains("follows"), "no result follows: {again:?}");

    let mut command = house.command(&["send", "-", "--as", "desk", "--key", "k"]);
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), numbered("hold", "1").as_bytes())
        .unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("this key was used before"), "{line}");

    drop(running);
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(75), "it may be sent again");
}
