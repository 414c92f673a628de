//! Replay: a new pump that gets the inputs of a journal gives the same outputs, including ids.
//! Every scenario of the pump tests is replayed at its end; this file replays further scenarios.

use organism::contract::TreeLimits;
use organism::envelope::{Payload, RefusalRule, Turn};
use organism::pump::core::replay::event_of;
use organism::pump::core::{Event, Target};
use organism::thread::{Input, Record, Verdict};

use super::world::{World, agent, client, core, listener, name, reread, word, workflow};

fn world() -> World {
    World::with_limits(
        vec![
            client("desk", &["thinker", "finder"]),
            agent("thinker", &["plan"], &["answer"], &["finder"]),
            listener("finder", &["look"], &["found"], &[]),
        ],
        TreeLimits { messages: 14, ..Default::default() },
    )
}

/// A world in which the pump has refused payloads for every reason that it checks after the gate.
/// Each refused payload occurs twice.
fn refusing() -> World {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let delivery = world.delivery("thinker");
    let send = core("send-to-thread", "thread_id=\"sess-nothere1\"", &word("look", "q"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"a b\"", "");
    let turn = Turn { note: core("model-turn", "", "<x xmlns=\"\"/>"), ..Turn::default() };
    let same = [send.clone(), spawn.clone(), word("look", "q"), "<look".to_owned(), send, spawn];
    world.answer_turn(&delivery, &same, Some(turn));
    world.answer(&delivery, &same);
    for _ in 0..4 {
        let Some(next) = world.deliveries.pop_front() else { break };
        match next.listener.as_str() {
            "finder" => world.answer(&next, &[word("found", "f"), word("found", "f")]),
            _ => world.answer(&next, &[word("look", "1"), word("look", "1"), word("look", "1")]),
        }
    }
    let target = || Target::Thread { id: thread.to_string() };
    world.submit_to("desk", target(), None, &word("plan", "more"));
    let long = word("look", &"x".repeat(50_000));
    world.submit_to("desk", Target::Thread { id: "sess-nothere1".into() }, None, &long);
    world.submit_to("desk", Target::Thread { id: "sess-nothere1".into() }, None, "<look");
    world.submit_to("desk", Target::New { suggested: Some("x".into()) }, None, &long);
    world
}

#[test]
pub fn whatever_the_pump_refused_is_refused_again() {
    let world = refusing();
    let refusals = world.refusals();
    for rule in ["unknown-thread", "bad-label", "stale-attempt", "budget-spent", "not-well-formed"]
    {
        assert!(refusals.iter().any(|refusal| refusal.ends_with(rule)), "{rule} in {refusals:?}");
    }
    world.check_replay();
}

/// Law 1: every payload of every input is either accepted or refused.
#[test]
fn every_payload_of_an_input_is_accepted_or_refused() {
    let world = refusing();
    let mut counted = 0;
    for record in &world.records {
        let verdicts = match &record.input {
            Input::Submitted { verdict, .. } => std::slice::from_ref(verdict),
            Input::Outcome { verdicts, .. } => verdicts.as_slice(),
            _ => &[],
        };
        for verdict in verdicts {
            counted += 1;
            let json = serde_json::to_string(&record.facts).unwrap();
            let (digest, word) = match verdict {
                Verdict::Passed(digest) => (digest, "\"payload\":{\"digest\":\""),
                Verdict::Refused(digest) => (digest, "\"digest\":\""),
            };
            assert!(json.contains(&format!("{word}{digest}")), "{verdict:?} in {json}");
        }
    }
    assert!(counted > 20);
}

#[test]
fn a_record_with_redacted_bytes_cannot_be_processed_again() {
    let mut world = world();
    world.open("desk", &word("look", "private"));
    let mut record: Record = world.records.last().unwrap().clone();
    assert!(event_of(&record, &world.gate).is_some());
    for payload in record.payloads_mut() {
        let blank = "\0".repeat(payload.len());
        assert!(payload.restore(&blank));
        assert_ne!(*payload, Payload::new(blank));
    }
    assert!(event_of(&record, &world.gate).is_none());
}

#[test]
fn a_record_read_from_its_text_gives_the_same_event_once_its_bytes_are_back() {
    let mut world = world();
    world.open("desk", &word("look", "q"));
    let record = world.records.last().unwrap();
    let read = reread(record);
    let events = [record, &read].map(|record| format!("{:?}", event_of(record, &world.gate)));
    assert_eq!(events[0], events[1]);
}

#[test]
fn a_payload_for_one_listener_opens_no_call_to_another_that_accepts_it() {
    let flow = |peers: &[&str]| workflow("flow", &["plan"], &["answer"], peers);
    let finder = |finder: &str| listener(finder, &["look"], &["found"], &[]);
    let desk = || client("desk", &["flow"]);
    let mut world =
        World::new(vec![desk(), flow(&["finder", "other"]), finder("finder"), finder("other")]);
    world.open("desk", &word("plan", "p"));
    let delivery = world.delivery("flow");
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"a\"", &inner);
    let payload =
        |callee: &str| world.gate.check_for(&name("flow"), spawn.as_bytes(), Some(&name(callee)));
    let refusal = payload("desk").unwrap_err();
    assert_eq!(refusal.rule, RefusalRule::NotInVocabulary);
    let payloads = vec![payload("other"), Err(refusal)];
    let again = payloads[0].clone().unwrap();

    let (listener, call, attempt) = (delivery.listener.clone(), delivery.call, delivery.attempt);
    let arrived = Some(world.now);
    world.step(Event::Outcome { listener, call, attempt, payloads, turn: None, arrived });
    assert_eq!(world.refusals(), ["flow not-in-vocabulary"]);
    let next = world.delivery_for("other");
    world.answer(&next, &[word("found", "f")]);
    assert!(world.deliveries.iter().all(|delivery| delivery.listener != name("finder")));

    // A reload restricts the payload to the same listener.
    world.reload(vec![desk(), flow(&["finder"]), finder("finder")]);
    assert!(world.gate.check_again(&name("flow"), &again).is_err());
    world.check_replay();
}
