//! A waiting client gets reports about the calls in its tree that wait.

use organism::ids::{ListenerName, ThreadId};
use organism::service::handshake::Handshake;
use organism::service::{
    ResultsRequest, ServiceRequest, ServiceResponse, SocketTransport, SubmitUpdate, TreeWait,
    WaitKind, response_queue,
};
use tokio::time::timeout;

use super::model_calls::{CONFIG, THREAD, end, sending};
use super::provider::{Provider, ScriptedResponse};
use super::{House, PATIENCE, TALK, say};

/// Config lines that let a writer call the listener `solo`, and that hold each of these calls for
/// an approval.
const HELD: &str = r#"
peers = ["solo"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
approval = "always"
"#;

fn spawns() -> ScriptedResponse {
    let ping = format!("<ping xmlns=\"{TALK}\"><n>1</n></ping>");
    let spawn = format!("<spawn-thread><initial-payload>{ping}</initial-payload></spawn-thread>");
    ScriptedResponse::Text(format!("{spawn}<wait for=\"all\"/>"))
}

#[test]
fn a_waiting_client_is_notified_of_a_hold_deep_in_its_tree() {
    let provider = Provider::start(vec![spawns(), ScriptedResponse::text("at last")]);
    let lines = format!("max_actions_per_turn = 2\n{HELD}");
    let house = House::with(&format!("{CONFIG}{lines}{}", provider.model("live", "")));
    let running = house.run();
    let sent = sending(&house);
    let held = super::until("it is held", || {
        let held = house.organism(&["approvals", "--json"]).json();
        held.into_iter().next()
    });

    let message = held["message"].as_str().unwrap();
    let hash = held["sha256"].as_str().unwrap();
    let approved = house.organism(&["approve", message, "--hash", hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let sent = end(sent);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let thread = held["thread"].as_str().unwrap();
    let told = format!(
        "a call to solo waits for an approval; `organism approvals --all-from {thread}` shows it, \
         `organism approve {message}` lets it go"
    );
    assert_eq!(sent.err.matches(&told).count(), 1, "{sent:?}");
    assert!(sent.err.contains(&format!("{THREAD}.")), "of a subthread: {sent:?}");
    assert_eq!(running.stop(), Some(0));
}

/// A client repeats its request to wait, every 30 s over NATS and after its partition has moved.
/// The pump reports the hold to the client again, although it has reported the hold to another
/// connection.
#[test]
fn a_client_that_waits_again_is_notified_of_a_call_that_is_held_already() {
    let provider = Provider::start(vec![spawns(), ScriptedResponse::text("at last")]);
    let lines = format!("max_actions_per_turn = 2\n{HELD}");
    let house = House::with(&format!("{CONFIG}{lines}{}", provider.model("live", "")));
    let running = house.run();
    let sent = house.send_text(&say("write"), &["--new", THREAD, "--no-wait", "--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let receipt = sent.json().remove(0);
    let held = super::until("it is held", || {
        let held = house.organism(&["approvals", "--json"]).json();
        held.into_iter().next()
    });

    let request = ServiceRequest::AwaitResults(ResultsRequest {
        thread: ThreadId::parse(THREAD).unwrap(),
        calls: serde_json::from_value(receipt["calls"].clone()).unwrap(),
        client: ListenerName::parse("desk").ok(),
        secret: None,
    });
    let handshake = Handshake::of_path(&house.path("organism.toml"));
    let socket = SocketTransport::new(&house.data(), handshake);
    let (responses, mut received) = response_queue();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let response = runtime.block_on(async {
        tokio::select! {
            ended = socket.send(&request, &responses) => panic!("{ended:?}"),
            response = timeout(PATIENCE, received.recv()) => response.unwrap().unwrap(),
        }
    });

    let ServiceResponse::SubmitUpdate(SubmitUpdate::Waits(TreeWait { wait, .. })) = response else {
        panic!("{response:?}");
    };
    let message = serde_json::from_value(held["message"].clone()).unwrap();
    assert_eq!(wait, WaitKind::Approval { message });
    drop(running);
}

#[test]
fn a_waiting_client_sees_which_agent_waits_for_which_model_and_until_when() {
    let limited = "Retry-After: 3\r\n";
    let provider = Provider::start(vec![
        ScriptedResponse::error("429 Too Many Requests", limited, "slow down"),
        ScriptedResponse::Slowly(200, format!("<said xmlns=\"{TALK}\">after all</said>")),
    ]);
    let house = super::model_calls::house("", &provider.model("live", ""));
    let running = house.run();
    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let pause = "writer waits for openai-compatible/live-1, which asks for a pause until 20";
    assert!(sent.err.contains(pause), "{sent:?}");
    let streams = "writer receives the answer of openai-compatible/live-1, ";
    assert!(sent.err.contains(streams), "{sent:?}");
    assert!(!sent.err.contains("word word"), "states only: {sent:?}");
    assert_eq!(running.stop(), Some(0));
}
