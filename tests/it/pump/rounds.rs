//! Rounds in which every call of a caller fails. The pump delays such rounds and limits their
//! number.

use std::time::Duration;

use organism::contract::{Contract, TreeLimits};
use organism::envelope::AttemptFailure;
use organism::ids::CallId;

use super::world::{World, agent, client, core, fresh, listener, word};

/// A world with a caller, two peers of the caller, and a client.
fn world(limits: TreeLimits) -> World {
    world_of(listener, limits)
}

fn world_of(kind: fn(&str, &[&str], &[&str], &[&str]) -> Contract, limits: TreeLimits) -> World {
    let contracts = vec![
        client("desk", &["caller"]),
        kind("caller", &["plan"], &["answer"], &["left", "right"]),
        listener("left", &["ask"], &["report"], &[]),
        listener("right", &["look"], &["found"], &[]),
    ];
    World::with_limits(contracts, limits)
}

fn refused() -> AttemptFailure {
    AttemptFailure::Refused { detail: "no".to_owned() }
}

/// Plays a round in which the caller calls its peer `left`, and the call fails.
fn failed_round(world: &mut World) {
    world.play("caller", &[word("ask", "again")]);
    let asked = world.delivery("left");
    world.fail(&asked, refused());
}

/// Passes time until the pump makes the next delivery. Returns the length of this time.
fn pause(world: &mut World) -> Duration {
    let before = world.now;
    while world.deliveries.is_empty() {
        assert!(world.now.since(before) < Duration::from_secs(60), "nothing comes");
        world.pass(Duration::from_millis(10));
    }
    world.now.since(before)
}

fn open(world: &mut World) -> CallId {
    world.open("desk", &word("plan", "go")).1
}

#[test]
fn a_call_ends_with_its_twentieth_round_of_failures_in_a_row() {
    let mut world = world(TreeLimits::default());
    let call = open(&mut world);
    for round in 1..=20 {
        assert_eq!(world.result(call), "none", "round {round}");
        failed_round(&mut world);
        world.pass(Duration::from_secs(20));
    }
    assert_eq!(world.result(call), "failed: system-error limit-reached");
    assert!(world.deliveries.is_empty());
}

#[test]
fn the_third_failed_round_in_a_row_is_followed_by_a_pause_and_each_later_one_by_a_longer_one() {
    let mut world = world(TreeLimits::default());
    open(&mut world);
    failed_round(&mut world);
    assert_eq!(world.handed(), ["caller"]);
    failed_round(&mut world);
    assert_eq!(world.handed(), ["caller"]);
    failed_round(&mut world);
    assert!(world.deliveries.is_empty(), "the third is paced");
    let first = pause(&mut world);
    failed_round(&mut world);
    let second = pause(&mut world);
    assert!(first >= Duration::from_millis(50) && second > first, "{first:?} {second:?}");
}

#[test]
fn a_round_with_one_reply_begins_the_count_again() {
    let limits = TreeLimits { rounds_failed: 3, ..TreeLimits::default() };
    let mut world = world(limits);
    let call = open(&mut world);
    for _ in 0..4 {
        failed_round(&mut world);
        failed_round(&mut world);
        world.play("caller", &[word("ask", "again"), word("look", "too")]);
        let asked = world.delivery_for("left");
        world.fail(&asked, refused());
        world.play("right", &[word("found", "it")]);
    }
    let last = world.play("caller", &[word("answer", "done")]);
    assert_eq!(fresh(&last), ["system-error listener-failed", "found(it)"]);
    assert_eq!(world.result(call), "completed: answer(done)");
}

#[test]
pub fn a_pause_that_a_restart_cuts_short_loses_no_result() {
    let limits = TreeLimits { rounds_failed: 4, ..TreeLimits::default() };
    let mut world = world(limits);
    let call = open(&mut world);
    failed_round(&mut world);
    failed_round(&mut world);
    failed_round(&mut world);
    world.restart();
    assert_eq!(world.handed(), ["caller"]);
    failed_round(&mut world);
    assert_eq!(world.result(call), "failed: system-error limit-reached");
}

#[test]
fn an_agent_is_bounded_and_not_paced() {
    let limits = TreeLimits { rounds_failed: 5, ..TreeLimits::default() };
    let mut world = world_of(agent, limits);
    let call = open(&mut world);
    for _ in 0..5 {
        failed_round(&mut world);
    }
    assert_eq!(world.result(call), "failed: system-error limit-reached");
}

/// The core's confirmation of a primitive is not a result, so it neither ends nor restarts the
/// count of failed rounds.
#[test]
fn confirmations_between_failures_do_not_begin_the_count_again() {
    let limits = TreeLimits { rounds_failed: 4, ..TreeLimits::default() };
    let mut world = world_of(agent, limits);
    let call = open(&mut world);
    let timer = core("set-timer", "after=\"PT1H\"", "");
    for _ in 0..4 {
        assert_eq!(world.result(call), "none");
        let answered = world.play("caller", std::slice::from_ref(&timer));
        assert!(!fresh(&answered).is_empty());
        failed_round(&mut world);
    }
    assert_eq!(world.result(call), "failed: system-error limit-reached");
}

/// A timer that fires between two failed rounds restarts the count of failed rounds, because a
/// caller that waits between its tries does not loop.
#[test]
fn a_timer_that_fires_begins_the_count_again() {
    let limits = TreeLimits { rounds_failed: 2, ..TreeLimits::default() };
    let mut world = world_of(agent, limits);
    let call = open(&mut world);
    for _ in 0..5 {
        failed_round(&mut world);
        let timer = core("set-timer", "after=\"PT60S\"", "");
        world.play("caller", &[timer, core("wait", "", "")]);
        world.pass(Duration::from_secs(61));
    }
    world.play("caller", &[word("answer", "done")]);
    assert_eq!(world.result(call), "completed: answer(done)");
}
