//! Order of deliveries: serial agents, concurrent listeners, and fairness between threads.

use std::time::Duration;

use organism::contract::Contract;
use organism::envelope::AttemptFailure;

use super::world::{World, agent, client, fresh, listener, word};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder", "planner"]),
        agent("planner", &["ask"], &["report"], &["finder", "thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

#[test]
fn an_agent_has_one_open_call_a_thread_and_the_others_wait_in_order() {
    let mut world = World::new(contracts());
    let (thread, first) = world.open("desk", &word("plan", "1"));
    let second = world.say("desk", &thread, &word("plan", "2"));
    let third = world.say("desk", &thread, &word("plan", "3"));
    world.play("thinker", &[word("look", "q")]);
    assert_eq!(world.handed(), ["finder"], "an open call keeps the thread while it waits");
    world.play("finder", &[word("found", "f")]);
    for (call, text) in [(first, "1"), (second, "2"), (third, "3")] {
        assert_eq!(world.handed(), ["thinker"]);
        let woken = world.play("thinker", &[word("answer", text)]);
        assert_eq!(woken.call, call);
        assert_eq!(world.result(call), format!("completed: answer({text})"));
    }
}

#[test]
fn an_agent_takes_turns_in_several_threads_at_once() {
    let mut world = World::new(contracts());
    for _ in 0..3 {
        world.open("desk", &word("plan", "p"));
    }
    assert_eq!(world.handed(), ["thinker", "thinker", "thinker"]);
}

#[test]
fn a_listener_takes_as_many_deliveries_as_its_concurrency_allows() {
    let mut contracts = contracts();
    contracts[3].concurrency = 2;
    let mut world = World::new(contracts);
    world.open("desk", &word("ask", "p"));
    let looks: Vec<_> = (0..5).map(|n| word("look", &n.to_string())).collect();
    world.play("planner", &looks);
    for left in [2, 2, 2, 2, 1] {
        assert_eq!(world.deliveries.len(), left);
        world.play("finder", &[word("found", "f")]);
    }
    assert_eq!(world.handed(), ["planner"]);
}

#[test]
fn serial_per_thread_keeps_order_within_a_thread_and_not_between_them() {
    let mut contracts = contracts();
    contracts[3].serial_per_thread = true;
    let mut world = World::new(contracts);
    let (one, _) = world.open("desk", &word("look", "1a"));
    world.say("desk", &one, &word("look", "1b"));
    world.open("desk", &word("look", "2a"));
    let (a, other) = (world.delivery("finder"), world.delivery("finder"));
    assert_eq!((fresh(&a), fresh(&other)), (vec!["look(1a)".into()], vec!["look(2a)".into()]));
    assert!(world.deliveries.is_empty());
    world.answer(&a, &[word("found", "f")]);
    assert_eq!(fresh(&world.delivery("finder")), ["look(1b)"]);
}

#[test]
fn serial_per_thread_keeps_order_while_a_failed_attempt_waits_to_be_retried() {
    let mut contracts = contracts();
    contracts[3].serial_per_thread = true;
    let mut world = World::new(contracts);
    let (thread, _) = world.open("desk", &word("look", "first"));
    world.say("desk", &thread, &word("look", "second"));
    let first = world.delivery("finder");
    world.fail(&first, AttemptFailure::Crashed { detail: "signal 9".to_owned() });
    assert!(world.deliveries.is_empty(), "the second waits for the first");
    world.pass(Duration::from_secs(1));
    let order = [(); 2].map(|()| fresh(&world.play("finder", &[word("found", "f")])).concat());
    assert_eq!(order, ["look(first)", "look(second)"]);
}

#[test]
fn serial_per_thread_waits_for_a_handler_that_was_timed_out_or_cancelled() {
    for is_cancelled in [false, true] {
        let mut contracts = contracts();
        contracts[3].serial_per_thread = true;
        let mut world = World::new(contracts);
        let (thread, first) = world.open("desk", &word("look", "first"));
        let at_work = world.delivery("finder");
        if is_cancelled {
            world.cancel(&thread);
        } else {
            world.pass(Duration::from_secs(61));
        }
        assert_eq!(world.withdrawn, [first]);

        world.say("desk", &thread, &word("look", "second"));
        assert!(world.deliveries.is_empty(), "its handler still works");
        world.open("desk", &word("look", "elsewhere"));
        assert_eq!(fresh(&world.delivery("finder")), ["look(elsewhere)"]);

        world.fail(&at_work, AttemptFailure::Crashed { detail: "it was killed".to_owned() });
        assert_eq!(fresh(&world.delivery("finder")), ["look(second)"]);
    }
}

#[test]
fn an_agent_takes_no_second_turn_in_a_thread_before_a_cancelled_one_has_ended() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("plan", "first"));
    let at_work = world.delivery("thinker");
    world.cancel(&thread);
    world.say("desk", &thread, &word("plan", "second"));
    assert!(world.deliveries.is_empty(), "its turn goes on until its host ends it");
    world.answer(&at_work, &[word("answer", "late")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["plan(second)"]);
}

#[test]
fn one_instance_is_given_nothing_before_a_timed_out_handler_has_ended() {
    let mut contracts = contracts();
    contracts[3].concurrency = 1;
    let mut world = World::new(contracts);
    world.open("desk", &word("look", "first"));
    let at_work = world.delivery("finder");
    world.pass(Duration::from_secs(61));
    world.open("desk", &word("look", "second"));
    assert!(world.deliveries.is_empty(), "its handler still works");
    world.answer(&at_work, &[word("found", "late")]);
    assert_eq!(fresh(&world.delivery("finder")), ["look(second)"]);
}

/// A busy thread does not starve another thread.
#[test]
fn threads_take_turns() {
    let mut contracts = contracts();
    contracts[3].concurrency = 1;
    contracts[1].actions_per_turn = 100;
    let mut world = World::new(contracts);
    let (busy, _) = world.open("desk", &word("ask", "p"));
    let looks: Vec<_> = (0..100).map(|n| word("look", &n.to_string())).collect();
    world.play("planner", &looks);
    let (quiet, call) = world.open("desk", &word("look", "quiet"));
    let (third, _) = world.open("desk", &word("look", "third"));
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(world.play("finder", &[word("found", "f")]).thread);
    }
    assert_eq!(order, [busy.clone(), busy.clone(), quiet, third, busy]);
    assert_eq!(world.result(call), "completed: found(f)");
}

/// A thread that was cancelled and then opened again has one place in the order of threads, like
/// every other thread.
#[test]
pub fn a_cancelled_and_reopened_thread_gets_no_second_turn() {
    let mut contracts = contracts();
    contracts[3].concurrency = 1;
    let mut world = World::new(contracts);
    world.open("desk", &word("look", "runs"));
    let (twice, _) = world.open("desk", &word("look", "x"));
    world.cancel(&twice);
    for text in ["1", "2", "3"] {
        world.say("desk", &twice, &word("look", text));
    }
    let (other, _) = world.open("desk", &word("look", "o"));
    world.say("desk", &other, &word("look", "o"));
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(world.play("finder", &[word("found", "f")]).thread);
    }
    assert_eq!(order[1..], [twice.clone(), other.clone(), twice, other]);
}
