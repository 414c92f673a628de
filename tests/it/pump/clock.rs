//! Time that counts against no time limit: changes of the system clock, a frozen pump, and the time
//! without a pump.

use std::time::Duration;

use organism::clock::Time;
use organism::contract::{Contract, TreeLimits};
use organism::ids::{CallId, Digest};
use organism::pump::core::{Core, Event, Standstill};
use organism::thread::Fact;

use super::world::{World, agent, client, core, fresh, listener, word};

const HOUR: Duration = Duration::from_secs(3600);
const WALL_TIME: Duration = Duration::from_secs(600);

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

fn world() -> World {
    world_of(contracts())
}

fn world_of(contracts: Vec<Contract>) -> World {
    let limits = TreeLimits { wall_time: WALL_TIME, ..TreeLimits::default() };
    World::with_limits(contracts, limits)
}

/// Sets the system clock forward.
fn set_forward(world: &mut World, by: Duration) {
    world.now = world.now.plus(by);
    world.step(Event::Standstill(Standstill { stood: Duration::ZERO, stepped: by }));
}

/// Freezes the pump.
fn freeze(world: &mut World, time: Duration) {
    world.now = world.now.plus(time);
    world.step(Event::Standstill(Standstill { stood: time, stepped: Duration::ZERO }));
}

/// Lets time pass without a running pump.
fn without_a_pump(world: &mut World, time: Duration) {
    world.now = world.now.plus(time);
    world.restart();
}

/// An agent with an open call, in a tree that has a limit of wall time.
fn called(world: &mut World) -> CallId {
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    call
}

fn ends(world: &mut World, call: CallId) -> String {
    world.play("finder", &[word("found", "f")]);
    if !world.deliveries.is_empty() {
        world.play("thinker", &[word("answer", "a")]);
    }
    world.check_replay();
    world.result(call)
}

#[test]
fn a_clock_that_is_set_forward_ends_no_tree_and_no_attempt() {
    let mut world = world();
    let call = called(&mut world);
    set_forward(&mut world, HOUR);
    world.pass(Duration::from_secs(1));
    assert_eq!(ends(&mut world, call), "completed: answer(a)");
}

#[test]
fn time_in_which_the_pump_was_frozen_is_wall_time_and_not_a_time_out() {
    let mut world = world();
    let call = called(&mut world);
    freeze(&mut world, HOUR);
    world.pass(Duration::from_millis(500));
    assert_eq!(world.result(call), "none", "its listener is not late");
    assert_eq!(ends(&mut world, call), "failed: system-error budget-spent");
}

/// Answers that arrived while the pump was frozen or did not run are not read yet. So the end of
/// the tree waits a second for them.
#[test]
fn a_tree_whose_wall_time_passed_without_a_pump_ends_after_a_second() {
    for pause in [freeze, without_a_pump] {
        let mut world = world();
        let call = called(&mut world);
        pause(&mut world, HOUR);
        world.pass(Duration::from_millis(500));
        assert_eq!(world.result(call), "none");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.result(call), "failed: system-error budget-spent");
        world.check_replay();
    }
}

#[test]
fn time_without_a_pump_is_wall_time() {
    let mut world = world();
    let call = called(&mut world);
    without_a_pump(&mut world, HOUR);
    assert!(world.deliveries.is_empty(), "the lost attempt has no successor");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

/// Opens two calls to a listener that takes one at a time, and lets an hour pass before the first
/// one is answered. Returns the world and the second call.
fn queued_for_an_hour() -> (World, CallId) {
    let mut contracts = contracts();
    contracts[2].concurrency = 1;
    contracts[2].timeout = 2 * HOUR;
    let mut world = world_of(contracts);
    world.open("desk", &word("look", "1"));
    let (_, queued) = world.open("desk", &word("look", "2"));
    let first = world.delivery("finder");
    world.now = world.now.plus(HOUR);
    world.answer(&first, &[word("found", "f")]);
    assert!(world.deliveries.is_empty(), "its time is over");
    (world, queued)
}

/// The end of the tree waits a second for answers that have arrived, but no attempt starts then.
#[test]
fn a_queued_call_whose_time_is_over_is_not_handed_over() {
    let (mut world, queued) = queued_for_an_hour();
    world.pass(Duration::ZERO);
    assert_eq!(world.result(queued), "failed: system-error budget-spent");
    world.check_replay();
}

#[test]
fn a_queued_call_is_handed_over_once_a_step_of_the_clock_is_known() {
    let (mut world, queued) = queued_for_an_hour();
    world.step(Event::Standstill(Standstill { stood: Duration::ZERO, stepped: HOUR }));
    world.play("finder", &[word("found", "g")]);
    assert_eq!(world.result(queued), "completed: found(g)");
    world.check_replay();
}

#[test]
fn a_timer_after_a_time_does_not_fire_when_the_clock_is_set_forward() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let timer = core("set-timer", "after=\"PT30S\" label=\"tea\"", "");
    world.play("thinker", &[timer, core("wait", "", "")]);
    set_forward(&mut world, HOUR);
    world.pass(Duration::from_secs(25));
    assert!(world.deliveries.is_empty(), "half a minute has not passed");
    world.pass(Duration::from_secs(10));
    assert!(fresh(&world.delivery("thinker")).contains(&"timer-fired tea".to_owned()));
    world.check_replay();
}

#[test]
fn a_timer_for_a_time_of_the_clock_fires_when_the_clock_is_set_past_it() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let at = world.now.plus(HOUR / 2);
    let timer = core("set-timer", &format!("at=\"{at}\" label=\"tea\""), "");
    world.play("thinker", &[timer, core("wait", "", "")]);
    set_forward(&mut world, HOUR);
    world.pass(Duration::from_secs(1));
    assert!(fresh(&world.delivery("thinker")).contains(&"timer-fired tea".to_owned()));
    world.check_replay();
}

#[test]
pub fn a_timer_fires_on_time_when_the_pump_stood_still_or_there_was_none() {
    for pause in [freeze, without_a_pump] {
        let mut world = world();
        world.open("desk", &word("plan", "p"));
        let timer = core("set-timer", "after=\"PT30S\" label=\"tea\"", "");
        world.play("thinker", &[timer, core("wait", "", "")]);
        pause(&mut world, Duration::from_secs(31));
        world.pass(Duration::ZERO);
        assert!(fresh(&world.delivery("thinker")).contains(&"timer-fired tea".to_owned()));
        world.check_replay();
    }
}

#[test]
fn a_wait_for_an_absent_listener_continues_after_a_restart() {
    let contracts =
        vec![client("desk", &["finder"]), listener("finder", &["look"], &["found"], &[])];
    let mut world = World::new(contracts);
    let (_, call) = world.open("desk", &word("look", "q"));
    let give_back = |world: &mut World| {
        while let Some(delivery) = world.deliveries.pop_front() {
            world.not_taken(&delivery);
        }
    };
    give_back(&mut world);
    for _ in 0..40 {
        world.pass(Duration::from_secs(1));
        give_back(&mut world);
    }
    without_a_pump(&mut world, HOUR);
    give_back(&mut world);
    assert_eq!(world.result(call), "none", "an hour without a pump is not waited");
    for _ in 0..30 {
        world.pass(Duration::from_secs(1));
        give_back(&mut world);
    }
    assert_eq!(world.result(call), "failed: system-error undeliverable");
    world.check_replay();
}

#[test]
fn a_standstill_without_open_calls_is_not_recorded() {
    let mut world = world();
    let before = world.records.len();
    set_forward(&mut world, HOUR);
    assert_eq!(world.records.len(), before);
    assert!(world.now > Time(0));
}

#[test]
fn a_clock_that_is_set_forward_shortens_no_allotment_of_a_tree_at_rest() {
    for beside in [false, true] {
        let contracts = vec![
            client("desk", &["thinker", "finder"]),
            agent("thinker", &["plan"], &["answer"], &["finder"]),
            listener("finder", &["look"], &["found"], &[]),
        ];
        let mut world = World::new(contracts);
        let (thread, _) = world.open("desk", &word("plan", "p"));
        let inner = format!("<initial-payload>{}</initial-payload>", word("look", "q"));
        let limits = "suggested_sub_id=\"a\" timeout=\"PT10M\"";
        world.play("thinker", &[core("spawn-thread", limits, &inner), core("wait", "", "")]);
        world.play("finder", &[word("found", "f")]);
        world.play("thinker", &[word("answer", "a")]);
        if beside {
            world.open("desk", &word("look", "other"));
            world.delivery("finder");
        }
        set_forward(&mut world, HOUR);
        world.say("desk", &thread, &word("plan", "q"));
        let a = format!("thread_id=\"{thread}.a\"");
        let send = core("send-to-thread", &a, &word("look", "more"));
        world.play("thinker", &[send, core("wait", "", "")]);
        world.play("finder", &[word("found", "f")]);
        world.check_replay();
    }
}

#[test]
fn an_older_journal_keeps_the_times_of_its_trees_at_rest() {
    let contracts = vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ];
    let mut world = World::new(contracts);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let limits = "suggested_sub_id=\"a\" timeout=\"PT10M\"";
    world.play("thinker", &[core("spawn-thread", limits, "")]);
    world.play("thinker", &[word("answer", "a")]);
    world.open("desk", &word("look", "other"));
    set_forward(&mut world, HOUR);

    let until = |core: &Core| {
        let a = core.state().thread(&thread.child("a")).unwrap();
        a.allotted.as_ref().unwrap().limits.until.unwrap()
    };
    let mut older = Core::new(world.gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    for mut record in world.records.clone() {
        for fact in &mut record.facts {
            if let Fact::Booted { core_version, .. } = fact {
                *core_version = 28;
            }
        }
        older.replay(&record);
    }
    assert_eq!(until(&older).plus(HOUR), until(&world.core));
}
