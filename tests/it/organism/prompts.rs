//! Prompts that `organism prompt` shows, compared with the requests that a provider received.

use serde_json::Value as Json;

use super::House;
use super::model_calls::{THREAD, end, house, sending};
use super::provider::{Provider, ScriptedResponse};
use crate::model::wires::{ANTHROPIC, OPENAI, Scene, Wire};

const SSE: &str = "Content-Type: text/event-stream; charset=utf-8\r\n";
const FINAL: &str = "<said xmlns=\"urn:example:talk\">written</said>";

/// A provider that answers twice in this wire format: first with a text without an action, then
/// with the agent's final payload.
fn provider(wire: &Wire) -> Provider {
    assert!(FINAL.contains(super::TALK), "the namespace of the config");
    let answers = ["A first thought.", FINAL].map(|text| {
        let scene = Scene { text: vec![text], ..Scene::default() };
        ScriptedResponse::Status("200 OK", SSE.to_owned(), (wire.events)(&scene).concat())
    });
    Provider::start(answers.into())
}

fn prompt(house: &House, more: &[&str]) -> String {
    let shown = house.organism(&[&["prompt", "writer"], more].concat());
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.out
}

/// The recorded digest of the request of turn 1, and the digest that is computed again.
fn digests(house: &House) -> (Json, Json) {
    let shown = prompt(house, &["--thread", THREAD, "--turn", "1", "--json"]);
    let shown: Json = serde_json::from_str(&shown).unwrap();
    (shown["recorded"].clone(), shown["prompt"].clone())
}

fn two_turns(wire: &Wire, settings: &str) -> (House, Provider) {
    let provider = provider(wire);
    let model = provider
        .model("live", &format!("api_key_file = \"provider.key\"\n{settings}"))
        .replace("openai-compatible", wire.preset);
    let house = house("", &model);
    house.write("provider.key", "sk-test-0123456789abcdef");
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    (house, provider)
}

fn the_shown_bodies_were_sent(wire: &Wire) {
    let (house, provider) = two_turns(wire, "");
    let bodies = provider.seen().requests;
    assert_eq!(bodies.len(), 2, "{bodies:#?}");
    for (turn, body) in ["1", "2"].iter().zip(&bodies) {
        let shown = prompt(&house, &["--thread", THREAD, "--turn", turn, "--wire"]);
        assert_eq!(shown.trim_end_matches('\n'), body, "turn {turn}");
        // The stored config has no keys, and renders the same request.
        house.write("provider.key", "");
        let shown = prompt(&house, &["--thread", THREAD, "--turn", turn, "--json"]);
        let shown: Json = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["config_renders_it"], true, "turn {turn}");
    }
}

#[test]
fn the_prompt_of_an_unknown_thread_is_refused_because_of_the_thread() {
    let (house, _provider) = two_turns(&OPENAI, "");
    for turn in [&[][..], &["--turn", "1"]] {
        let arguments = ["prompt", "writer", "--thread", "sess-absent00"];
        let absent = house.organism(&[&arguments[..], turn].concat());
        assert_eq!(absent.code, Some(2), "{absent:?}");
        assert!(absent.err.contains("no thread sess-absent00 is on record"), "{absent:?}");
    }
}

#[test]
fn the_wire_of_a_turn_is_the_body_that_an_openai_server_received() {
    the_shown_bodies_were_sent(&OPENAI);
}

#[test]
fn the_wire_of_a_turn_is_the_body_that_an_anthropic_server_received() {
    the_shown_bodies_were_sent(&ANTHROPIC);
}

#[test]
fn requests_that_differ_in_their_sampling_have_different_digests_on_record() {
    let settings = ["", "temperature = 0.5", "max_tokens = 700"];
    let mut recorded = Vec::new();
    for setting in settings {
        let (house, _) = two_turns(&OPENAI, setting);
        let (on_record, computed) = digests(&house);
        assert_eq!(on_record, computed, "{setting}");
        recorded.push(on_record.to_string());
    }
    recorded.sort_unstable();
    recorded.dedup();
    assert_eq!(recorded.len(), settings.len(), "{recorded:?}");
}
