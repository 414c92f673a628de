//! A client's trace contains all work of the tree.

use std::collections::BTreeSet;

use organism::bus::Delivery;
use organism::pump::core::Target;
use organism::thread::Fact;
use organism::trace::TraceParent;

use super::world::{World, agent, client, core, listener, word};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn world(trace: Option<&str>) -> World {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]);
    world.trace = trace.map(|trace| trace.parse().unwrap());
    world.open("desk", &word("plan", "p"));
    world
}

/// The trace of a delivery, and the span in it.
fn traced(delivery: &Delivery) -> (String, String) {
    let trace = delivery.trace.expect("it belongs to a trace");
    (trace.trace_id(), trace.span().to_string())
}

#[test]
fn every_delivery_of_the_tree_has_the_trace_and_a_unique_span() {
    let mut world = world(Some(GIVEN));
    let given: TraceParent = GIVEN.parse().unwrap();
    let mut seen = BTreeSet::from([given.span().to_string()]);
    let mut look = |delivery: &Delivery| {
        let (trace, span) = traced(delivery);
        assert_eq!(trace, given.trace_id());
        assert!(seen.insert(span), "a span of its own");
    };
    let first = world.delivery("thinker");
    look(&first);
    let spawn = format!("<initial-payload>{}</initial-payload>", word("look", "child"));
    world.answer(&first, &[core("spawn-thread", "", &spawn), word("look", "q")]);
    for _ in 0..2 {
        let found = world.delivery("finder");
        look(&found);
        world.answer(&found, &[word("found", "f")]);
    }
    look(&world.delivery("thinker"));
    world.check_replay();
}

#[test]
pub fn a_trace_outlives_a_restart_and_another_attempt_is_another_span() {
    let mut world = world(Some(GIVEN));
    let before = traced(&world.delivery("thinker"));
    world.restart();
    let after = traced(&world.delivery("thinker"));
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1);
    world.check_replay();
}

#[test]
fn a_request_with_another_trace_continues_the_conversation_in_that_trace() {
    let mut world = world(Some(GIVEN));
    let first = world.delivery("thinker");
    world.answer(&first, &[word("answer", "a")]);
    let go_on = |world: &mut World| {
        let target = Target::Thread { id: first.thread.to_string() };
        world.submit_to("desk", target, None, &word("plan", "more"));
        let next = world.delivery("thinker");
        world.answer(&next, &[word("answer", "b")]);
        traced(&next).0
    };
    world.trace = None;
    assert_eq!(go_on(&mut world), traced(&first).0, "none is said: still the first one");
    world.trace = Some(OTHER.parse().unwrap());
    let other = world.trace.unwrap().trace_id();
    assert_eq!(go_on(&mut world), other);
    world.check_replay();
}

#[test]
fn a_trace_begins_only_where_the_tree_belongs_to_none() {
    let begun: TraceParent = OTHER.parse().unwrap();
    let traces = |world: &World| {
        let facts = world.records.iter().flat_map(|record| &record.facts);
        let traced = facts.filter_map(|fact| match fact {
            Fact::Traced { trace } => Some(trace.to_string()),
            _ => None,
        });
        traced.collect::<Vec<_>>()
    };
    for (given, recorded) in [(Some(GIVEN), GIVEN), (None, OTHER)] {
        let mut world = World::new(vec![
            client("desk", &["thinker"]),
            agent("thinker", &["plan"], &["answer"], &[]),
        ]);
        world.trace = given.map(|given| given.parse().unwrap());
        world.begun = Some(begun);
        world.open("desk", &word("plan", "p"));
        let first = world.delivery("thinker");
        world.answer(&first, &[word("answer", "a")]);
        world.trace = None;
        let target = Target::Thread { id: first.thread.to_string() };
        world.submit_to("desk", target, None, &word("plan", "more"));
        assert_eq!(traced(&world.delivery("thinker")).0, traced(&first).0);
        assert_eq!(traces(&world), [recorded], "one for the whole tree");
        world.check_replay();
    }
}

#[test]
fn without_a_trace_nothing_of_one_is_recorded_or_delivered() {
    let mut world = world(None);
    assert_eq!(world.delivery("thinker").trace, None);
    let recorded = serde_json::to_string(&world.records).unwrap();
    assert!(!recorded.contains("trace"), "{recorded}");
}
