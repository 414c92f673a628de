//! The order of recorded turns in forks under load: calls of a fork that are queued or wait for a
//! retry keep their place in the order of the source (issue 18, 1.6).

use std::time::Duration;

use organism::bus::Delivery;
use organism::envelope::{AttemptFailure, Turn};
use organism::ids::{CallId, Position, ThreadId};
use organism::pump::core::ForkRuling;
use organism::thread::{Fact, PauseTarget, PauseVerb};

use super::world::{World, agent, client, core, name, word};

const MOMENT: Duration = Duration::from_millis(10);

/// An agent with two peers, `ann` and `bob`. Each peer takes one delivery at a time. The client may
/// call the agent and `ann`, and has a conversation in which it has called the agent.
fn world() -> (World, ThreadId) {
    let mut ann = agent("ann", &["look"], &["found"], &[]);
    let mut bob = agent("bob", &["vote"], &["ballot"], &[]);
    ann.concurrency = 1;
    bob.concurrency = 1;
    let boss = agent("boss", &["plan"], &["answer"], &["ann", "bob"]);
    let mut world = World::new(vec![client("desk", &["boss", "ann"]), boss, ann, bob]);
    let (source, _) = world.open("desk", &word("plan", "p"));
    world.play("boss", &[word("answer", "a")]);
    (world, source)
}

fn fork(world: &mut World, source: &ThreadId) -> ThreadId {
    let ruling = world.fork(source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let ForkRuling::Forked { thread, .. } = ruling else { panic!("not forked") };
    thread
}

/// Answers a delivery with a turn that the source has at `position`.
fn answer_recorded(world: &mut World, delivery: &Delivery, payload: &str, position: u64) {
    let turn = Turn { recorded: Some(Position(position)), ..Turn::default() };
    world.answer_turn(delivery, &[payload.to_owned()], Some(turn));
    world.pass(MOMENT);
}

/// Returns which of these calls are closed, in the order of the record.
fn closed(world: &World, calls: &[CallId]) -> Vec<CallId> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let closed = facts.filter_map(|fact| match fact {
        Fact::CallClosed { call, .. } => Some(*call),
        _ => None,
    });
    closed.filter(|call| calls.contains(call)).collect()
}

/// Work of another thread delays one of two parallel calls. The recorded turn of the other call
/// waits for it, because the delayed call had its turn first in the source.
#[test]
fn a_queued_call_of_a_fork_keeps_its_place_in_the_order_of_the_source() {
    let (mut world, source) = world();
    world.open("desk", &word("look", "busy"));
    let busy = world.delivery("ann");
    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), word("vote", "v")]);
    let bob = world.delivery("bob");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
    assert_eq!(closed(&world, &[bob.call]), [], "the call to ann is queued");

    world.answer(&busy, &[word("found", "other")]);
    let ann = world.delivery("ann");
    world.fail(&ann, AttemptFailure::Crashed { detail: "!".to_owned() });
    world.pass(MOMENT);
    assert_eq!(closed(&world, &[bob.call]), [], "the call to ann waits for its retry");

    world.pass(Duration::from_secs(3));
    let ann = world.delivery("ann");
    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    assert_eq!(closed(&world, &[ann.call, bob.call]), [ann.call, bob.call]);
    world.check_replay();
}

/// A pause of a listener has its record outside the tree of the fork. The fork still goes on with
/// the turns that are on record.
#[test]
fn a_pause_of_a_listener_holds_up_no_turn_on_record() {
    let (mut world, source) = world();
    world.open("desk", &word("look", "busy"));
    world.delivery("ann");
    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), word("vote", "v")]);
    let bob = world.delivery("bob");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 7);
    assert_eq!(closed(&world, &[bob.call]), []);

    world.pause(PauseVerb::Pause, &PauseTarget::Listener(name("ann")));
    world.pass(MOMENT);
    assert_eq!(closed(&world, &[bob.call]), [bob.call]);
    world.check_replay();
}

/// Each fork has a recorded turn that holds the only place of a listener, and a call that is queued
/// for the place of the other fork. Neither waits for the other.
#[test]
fn forks_whose_recorded_turns_hold_every_place_do_not_wait_for_each_other() {
    let (mut world, source) = world();
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);

    fork(&mut world, &source);
    world.play("boss", &[word("look", "l"), spawn.clone()]);
    let ann = world.delivery_for("ann");
    let first_side = world.delivery_for("boss");
    fork(&mut world, &source);
    world.play("boss", &[word("vote", "v"), spawn]);
    let bob = world.delivery_for("bob");
    let second_side = world.delivery_for("boss");
    world.answer(&first_side, &[word("vote", "w")]);
    world.answer(&second_side, &[word("look", "m")]);
    assert!(world.deliveries.is_empty(), "both calls are queued");

    answer_recorded(&mut world, &ann, &word("found", "f"), 5);
    assert_eq!(closed(&world, &[ann.call]), [], "bob still works for the other fork");
    answer_recorded(&mut world, &bob, &word("ballot", "b"), 5);
    assert_eq!(closed(&world, &[ann.call, bob.call]).len(), 1, "one fork goes on");

    for _ in 0..32 {
        let Some(delivery) = world.deliveries.pop_front() else { break };
        let answer = match delivery.listener.as_str() {
            "ann" => word("found", "n"),
            "bob" => word("ballot", "c"),
            _ => word("answer", "a"),
        };
        world.answer(&delivery, &[answer]);
        world.pass(MOMENT);
    }
    assert_eq!(closed(&world, &[ann.call, bob.call]).len(), 2, "and so does the other one");
    assert!(world.core.state().calls.is_empty(), "all work of both forks is done");
    world.check_replay();
}
