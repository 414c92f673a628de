//! Deliveries that were in flight when their pump died: the hand-over of such a delivery is
//! recorded, and counts as an attempt.

use std::time::Duration;

use organism::contract::Contract;
use organism::ids::CallId;
use organism::pump::core::Alarm;
use organism::thread::{Fact, Input};

use super::world::{World, agent, client, core, fresh, listener, word};

fn contracts(attempts: u32) -> Vec<Contract> {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.attempts = attempts;
    finder.serial_per_thread = true;
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        finder,
    ]
}

fn world(attempts: u32) -> World {
    World::new(contracts(attempts))
}

/// The recorded hand-overs of a call, each as the number of its attempt, in order.
fn handed_over(world: &World, call: CallId) -> Vec<String> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let handed = facts.filter_map(|fact| match fact {
        Fact::HandedOver { call: of, attempt } if *of == call => Some(attempt.to_string()),
        _ => None,
    });
    handed.collect()
}

#[test]
fn a_hand_over_is_in_the_record_of_the_step_that_decides_it() {
    let mut world = world(3);
    let (_, call) = world.open("desk", &word("look", "q"));
    let record = world.records.last().unwrap();
    assert!(matches!(record.input, Input::Submitted { .. }), "no record of its own");
    assert_eq!(handed_over(&world, call), ["1.1"]);
    world.restart();
    assert_eq!(handed_over(&world, call), ["1.1", "2.1"]);
}

#[test]
fn a_single_attempt_that_was_out_when_the_pump_died_is_never_delivered_again() {
    let mut world = world(1);
    let (thread, call) = world.open("desk", &word("look", "q"));
    let before = world.delivery("finder");
    world.restart();
    assert!(world.deliveries.is_empty(), "its effects may not be repeated");
    assert_eq!(world.result(call), "failed: system-error unknown-outcome");
    let (_, messages) = &world.results[&call];
    assert!(messages[0].payload.as_str().contains("retry_allowed=\"false\""));
    world.answer(&before, &[word("found", "late")]);
    assert_eq!(world.refusals(), ["finder stale-attempt"]);
    let refusal = world.records.last().unwrap().facts.iter().find_map(|fact| match fact {
        Fact::Refused { refusal, .. } => Some(refusal.message.clone()),
        _ => None,
    });
    let message = format!("attempt 1.1 of the call {call} is no longer the current one");
    assert_eq!(refusal, Some(message), "the refusal is not in the thread of the call");
    expect_test::expect![[r#"
        1 call desk>finder look(q) [failed]
        2 system core>desk system-error unknown-outcome [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    world.check_replay();
}

#[test]
fn a_lost_attempt_is_no_time_out_although_the_time_of_its_thread_is_over() {
    let mut world = world(1);
    world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"a\" timeout=\"PT10M\"", &inner);
    world.play("thinker", &[spawn, core("wait", "", "")]);
    world.delivery("finder");
    world.now = world.now.plus(Duration::from_secs(11 * 60));
    let died = world.now;
    world.restart();

    let is_thread_time = |alarm: &Alarm| matches!(alarm, Alarm::ThreadTime { .. });
    let mut alarms = world.alarms.iter().filter(|(_, alarm)| is_thread_time(alarm));
    assert!(alarms.all(|(at, _)| *at > died), "the alarms of lost attempts are due first");
    let lost = world.records.iter().any(|record| matches!(record.input, Input::Lost { .. }));
    assert!(lost, "the attempt is lost");
    let woken = world.delivery("thinker");
    let result = woken.messages.last().unwrap().payload.as_str();
    assert!(result.contains("code=\"unknown-outcome\""), "{result}");
    world.check_replay();
}

#[test]
fn a_single_attempt_that_was_not_handed_over_is_delivered_after_a_restart() {
    let mut contracts = contracts(1);
    contracts[2].concurrency = 1;
    let mut world = World::new(contracts);
    world.open("desk", &word("look", "first"));
    let (_, waiting) = world.open("desk", &word("look", "second"));
    assert_eq!(handed_over(&world, waiting), [""; 0]);
    world.restart();
    let delivery = world.delivery_for("finder");
    assert_eq!(fresh(&delivery), ["look(second)"]);
    world.answer(&delivery, &[word("found", "f")]);
    assert_eq!(world.result(waiting), "completed: found(f)");
    world.check_replay();
}

#[test]
fn a_single_attempt_that_was_answered_survives_any_restart() {
    let mut world = world(1);
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    world.play("finder", &[word("found", "f")]);
    world.delivery("thinker");
    world.restart();
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

/// A hand-over counts as an attempt even if the record of another tree contains it.
#[test]
pub fn a_hand_over_in_the_record_of_another_tree_counts_too() {
    let mut contracts = contracts(1);
    contracts[2].concurrency = 1;
    let mut world = World::new(contracts);
    world.open("desk", &word("look", "first"));
    let (thread, second) = world.open("desk", &word("look", "second"));
    world.play("finder", &[word("found", "f")]);
    assert_ne!(world.records.last().unwrap().tree, thread);
    assert_eq!(handed_over(&world, second), ["1.1"]);
    world.restart();
    assert_eq!(world.result(second), "failed: system-error unknown-outcome");
    world.check_replay();
}

#[test]
fn a_delivery_that_ends_its_pump_each_time_is_not_handed_over_at_every_start() {
    let mut world = world(3);
    let (_, call) = world.open("desk", &word("look", "q"));
    let mut starts = 0;
    while !world.deliveries.is_empty() {
        starts += 1;
        assert!(starts < 10, "for ever");
        world.restart();
    }
    assert_eq!(starts, 3);
    assert_eq!(handed_over(&world, call), ["1.1", "2.1", "3.1"]);
    assert_eq!(world.result(call), "failed: system-error unknown-outcome");
    world.check_replay();
}

#[test]
fn delivered_calls_go_before_waiting_calls_of_their_thread() {
    for opener in ["look", "plan"] {
        let mut world = world(3);
        let (thread, _) = world.open("desk", &word(opener, "1"));
        world.say("desk", &thread, &word(opener, "2"));
        world.restart();
        let [first] = [world.deliveries.pop_front().unwrap()];
        assert_eq!(fresh(&first), [format!("{opener}(1)")]);
        assert!(world.deliveries.is_empty(), "one of a thread at a time");
    }
}
