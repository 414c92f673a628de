//! `organism message` on a journal of real runs: an agent, a refusal, and an approval.

use std::process::Stdio;

use organism::ids::{Position, ThreadId};
use serde_json::Value as Json;

use super::{CommandOutput, House, TALK, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["echo"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<say xmlns="urn:example:talk">hello</say><order xmlns="urn:example:talk"><m/></order>'

[[turn]]
agent = "writer"
turn = 2
text = '<done xmlns="urn:example:talk"><n>1</n></done>'
"#;

const THREAD: &str = "sess-approved";

/// Returns a house whose writer called a listener after an approval, and the id of the call.
fn approved() -> (House, String) {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    house.write("order.xml", format!("<order xmlns=\"{TALK}\"><n>1</n></order>"));
    let running = house.run();
    let mut send = house.command(&["send", "order.xml", "--as", "desk", "--new", THREAD]);
    let sender = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let held = until("the call is held", || house.organism(&["approvals", "--json"]).json().pop());
    let id = held["message"].as_str().unwrap().to_owned();
    let hash = held["sha256"].as_str().unwrap();
    let approve = ["approve", &id, "--hash", hash, "--note", "read twice"];
    let approved = house.organism(&approve);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let sent: CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    (house, id)
}

fn shown(house: &House, arguments: &[&str]) -> CommandOutput {
    let shown = house.organism(&[&["message"], arguments].concat());
    assert_eq!((shown.code, &*shown.err), (Some(0), ""), "{shown:?}");
    shown
}

fn report(house: &House, id: &str) -> Json {
    shown(house, &[id, "--json"]).json()[0].clone()
}

/// Issue 17, 4.3: one command reports the approval of a call and the payload that the person saw,
/// the turn that wrote the call and the prompt of this turn, the config and the schema in force,
/// and the duration of each attempt.
#[test]
fn a_call_of_an_agent_is_shown_with_turn_config_schema_decision_and_attempts() {
    let (house, id) = approved();
    let call = report(&house, &id);
    assert_eq!(call["from"], "writer");
    assert_eq!(call["to"], "echo");
    assert_eq!(call["gate"], "passed");
    assert_eq!(call["disposition"], "handled");
    assert_eq!(call["opened_call"]["outcome"], "completed");

    let decision = &call["decisions"][0];
    assert_eq!(decision["action"], "approve");
    assert_eq!(decision["by"], "operator");
    assert_eq!(decision["accepted"], true);
    assert_eq!(decision["saw_payload"], call["digest"]);
    assert_eq!(decision["origin"]["note"], "read twice");
    assert!(decision["origin"]["who"]["uid"].is_u64(), "{decision}");
    assert_eq!(call["holds"][0]["kind"], "approval");
    assert_eq!(call["holds"][0]["outcome"], "released");
    assert!(call["holds"][0]["why"].is_string(), "{call}");

    let turn = ["prompt", "writer", "--thread", THREAD, "--turn", "1", "--json"];
    let prompt = house.organism(&turn).json()[0].clone();
    assert_eq!(call["turn"]["prompt_digest"], prompt["prompt"]);
    assert_eq!((&call["turn"]["agent"], &call["turn"]["turn"]), (&"writer".into(), &1.into()));
    let checked = house.organism(&["check", "--json"]).out;
    let checked: Json = serde_json::from_str(&checked).unwrap();
    assert_eq!(call["config"]["digest"], checked["digest"]);
    let schema = &checked["config"]["schemas"]["talk.xsd"];
    let expected = serde_json::json!([{"file": "talk.xsd", "sha256": schema}]);
    assert_eq!(call["schemas"], expected);

    let attempts = call["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{call}");
    assert_eq!(attempts[0]["outcome"], "handled");
    assert!(attempts[0]["work_us"].as_u64().unwrap() > 0, "{call}");
    assert!(attempts[0]["queue_us"].is_u64(), "{call}");
    house.verified();
}

/// Issue 17, 4.3: the chain of causes ends with the message of a client.
#[test]
fn the_causes_of_an_answer_lead_to_the_clients_message_and_its_place_is_in_the_chain() {
    let (house, id) = approved();
    let call = report(&house, &id);
    let causes = call["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 1, "{call}");
    assert_eq!((&causes[0]["from"], &causes[0]["kind"]), (&"desk".into(), &"call".into()));
    let said =
        &call["caused"]["messages"].as_array().unwrap().iter().find(|m| m["kind"] == "reply");
    let said = report(&house, said.unwrap()["id"].as_str().unwrap());
    assert_eq!(said["causes"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!(said["causes"][1]["from"], "desk");
    // The answer was delivered to the writer, in one attempt of the writer's own call.
    assert_eq!(said["attempts"][0]["listener"], "writer", "{said}");
    assert_eq!(said["turn"], Json::Null);

    let record = &call["record"];
    let reader = house.reader();
    let at = |key: &str| Position(record[key].as_u64().unwrap());
    let sealed = reader.record(at("position")).unwrap().unwrap();
    assert_eq!(record["hash"], sealed.hash.to_string());
    let head = reader.head(&ThreadId::parse(THREAD).unwrap()).unwrap().unwrap();
    assert_eq!(at("head"), head);
    assert_eq!(record["head_hash"], reader.record(head).unwrap().unwrap().hash.to_string());

    // Of the same turn, the gate refused another payload.
    let beside = &call["refused_beside"][0];
    assert_eq!(beside["rule"], "schema-invalid", "{call}");
    assert!(beside["place"]["line"].is_u64(), "{call}");
    let order = report(&house, causes[0]["id"].as_str().unwrap());
    assert_eq!(order["refused_in_call"]["total"], 1);
    assert_eq!(order["refused_in_call"]["refusals"][0], *beside);
    assert!(order["attempts"].as_array().unwrap().len() >= 2, "{order}");
}

/// The report for people has each part of the JSON report.
#[test]
fn the_report_for_people_has_each_part() {
    let (house, id) = approved();
    let drawn = shown(&house, &[&id]).out;
    let call = report(&house, &id);
    let parts = [
        "│ <say xmlns=\"urn:example:talk\">hello</say>",
        "approve   by operator at ",
        "saw the payload above",
        "note: read twice",
        "message   handled at record",
        "passed",
        ": schema-invalid of writer: ",
        "talk.xsd, sha256 ",
        "writer, turn 1",
        "to        echo",
        "desk → writer",
        "echo → writer",
        "In the chain",
        call["record"]["hash"].as_str().unwrap(),
        call["config"]["digest"].as_str().unwrap(),
        call["turn"]["prompt_digest"].as_str().unwrap(),
    ];
    for part in parts {
        assert!(drawn.contains(part), "{part} is missing in\n{drawn}");
    }
    assert_eq!(shown(&house, &[&id, "--raw"]).out, "<say xmlns=\"urn:example:talk\">hello</say>");
}
