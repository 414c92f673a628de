//! Timers that are set, fire, are cancelled, and survive a restart.

use std::time::Duration;

use expect_test::expect;

use super::world::{World, agent, client, core, fresh, listener, word};

fn world() -> World {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]);
    world.open("desk", &word("plan", "p"));
    world
}

fn after(time: &str) -> String {
    core("set-timer", &format!("after=\"{time}\" label=\"tea\""), "")
}

fn timer_id(world: &World) -> String {
    let payloads = world.records.iter().flat_map(|record| record.payloads());
    let set = payloads.filter(|p| p.as_str().contains("<timer-set")).last().unwrap();
    let (_, rest) = set.as_str().split_once("timer_id=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

/// O7: a timer is confirmed at once, and fires in time.
#[test]
fn a_timer_is_answered_at_once_and_fires_in_time() {
    let mut world = world();
    let asked = world.play("thinker", &[after("PT30S"), core("wait", "", "")]);
    world.pass(Duration::from_secs(29));
    assert!(world.deliveries.is_empty());
    world.pass(Duration::from_secs(2));
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["timer-set tea", "waiting all", "timer-fired tea"]);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core set-timer tea [handled]
        3 system core>thinker timer-set tea [handled]
        4 call thinker>core wait [handled]
        5 system core>thinker waiting all [handled]
        6 system core>thinker timer-fired tea [handled]
        7 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&asked.thread));
}

#[test]
fn a_time_that_is_past_fires_at_once() {
    let mut world = world();
    world.play(
        "thinker",
        &[core("set-timer", "at=\"2001-01-01T00:00:00Z\"", ""), core("wait", "", "")],
    );
    world.pass(Duration::ZERO);
    assert_eq!(fresh(&world.delivery("thinker")), ["timer-set", "waiting all", "timer-fired"]);
}

#[test]
fn a_time_that_is_too_far_ahead_sets_no_timer() {
    let mut world = world();
    let far = core("set-timer", "at=\"2099-01-01T00:00:00Z\" label=\"far\"", "");
    let asked = world.play("thinker", &[far]);
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["system-error limit-reached"]);
    assert!(world.core.state().tree(&asked.thread).unwrap().timers.is_empty());
    world.answer(&woken, &[core("wait", "", "")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["system-error nothing-to-wait-for"]);
    world.check_replay();
}

#[test]
fn a_timer_survives_a_restart_and_fires_even_if_its_time_passed_meanwhile() {
    for down in [1, 3_600] {
        let mut world = world();
        world.play("thinker", &[after("PT30S"), core("wait", "", "")]);
        world.now = world.now.plus(Duration::from_secs(down));
        world.restart();
        assert!(world.deliveries.is_empty(), "still waiting");
        world.pass(Duration::from_secs(30));
        let woken = fresh(&world.delivery("thinker"));
        assert_eq!(woken, ["timer-set tea", "waiting all", "timer-fired tea"]);
    }
}

#[test]
fn a_cancelled_timer_never_fires() {
    let mut world = world();
    world.play("thinker", &[after("PT30S")]);
    let id = timer_id(&world);
    world.play("thinker", &[core("cancel-timer", &format!("timer_id=\"{id}\""), "")]);
    world.pass(Duration::from_secs(31));
    let woken = world.play("thinker", &[core("cancel-timer", &format!("timer_id=\"{id}\""), "")]);
    assert_eq!(fresh(&woken), ["timer-cancelled tea"]);
    assert_eq!(fresh(&world.delivery("thinker")), ["system-error unknown-timer"]);
}

#[test]
fn another_calls_timer_is_unknown() {
    let mut world = world();
    world.play("thinker", &[after("PT30S")]);
    let id = timer_id(&world);
    world.open("desk", &word("plan", "another"));
    let other = world.deliveries.remove(1).unwrap();
    world.answer(&other, &[core("cancel-timer", &format!("timer_id=\"{id}\""), "")]);
    let woken = world.deliveries.back().unwrap();
    assert_eq!(fresh(woken), ["system-error unknown-timer"]);
}

#[test]
pub fn closing_a_call_cancels_its_timers_on_record() {
    let mut world = world();
    let asked = world.play("thinker", &[after("PT30S")]);
    world.play("thinker", &[word("answer", "a")]);
    world.pass(Duration::from_secs(31));
    assert!(world.deliveries.is_empty());
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core set-timer tea [handled]
        3 system core>thinker timer-set tea [handled]
        4 reply thinker>desk answer(a) [recorded]
        5 system core>thinker timer-cancelled tea [recorded]
    "#]]
    .assert_eq(&world.transcript(&asked.thread));
    assert!(world.core.state().tree(&asked.thread).unwrap().timers.is_empty());
}

#[test]
fn a_call_has_only_so_many_timers() {
    let mut world = world();
    for _ in 0..4 {
        let timers: Vec<_> = (0..16).map(|_| after("PT30S")).collect();
        world.play("thinker", &timers);
    }
    world.play("thinker", &[after("PT30S")]);
    assert_eq!(fresh(&world.delivery("thinker")), ["system-error limit-reached"]);
}
