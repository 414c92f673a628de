//! A delivery does not count as an attempt if no process of its listener takes the delivery.

use std::time::Duration;

use organism::bus::Delivery;
use organism::bus::process::RestartPolicy;
use organism::contract::Contract;
use organism::envelope::AttemptFailure;
use organism::ids::CallId;
use organism::pump::core::{Event, Standstill};

use super::world::{World, client, fresh, listener, name, word};

const TIMEOUT: Duration = Duration::from_secs(60);

fn contracts(attempts: u32) -> Vec<Contract> {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    (finder.attempts, finder.timeout) = (attempts, TIMEOUT);
    vec![client("desk", &["finder"]), finder]
}

fn world() -> World {
    World::new(contracts(1))
}

fn joined(world: &mut World) {
    world.step(Event::Joined { listener: name("finder"), detail: "here".to_owned() });
}

/// During `time`, reports each delivery to the pump as not taken, because the listener is absent.
/// Returns these deliveries.
fn absent_for(world: &mut World, time: Duration) -> Vec<Delivery> {
    let until = world.now.plus(time);
    let mut probes = Vec::new();
    while world.now < until {
        while let Some(delivery) = world.deliveries.pop_front() {
            world.not_taken(&delivery);
            probes.push(delivery);
        }
        world.pass(Duration::from_millis(10));
    }
    probes
}

fn open(world: &mut World, text: &str) -> CallId {
    world.open("desk", &word("look", text)).1
}

#[test]
fn an_absence_of_less_than_the_time_out_is_no_attempt() {
    let mut world = world();
    let call = open(&mut world, "q");
    let probes = absent_for(&mut world, Duration::from_millis(360));
    assert!(probes.len() > 1, "tried again with backoff");
    joined(&mut world);
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    world.check_replay();
}

/// After too many restarts, the processes of a listener rest. With the default time-out, calls that
/// wait meanwhile still have enough time for the start of a process after the rest.
#[test]
fn calls_outlast_the_rest_of_a_listener_with_the_default_time_out() {
    let policy = RestartPolicy::default();
    let before_rest = policy.backoff_first * (1 << policy.max);
    let mut world = world();
    let calls: Vec<_> = ["1", "2", "3"].map(|text| open(&mut world, text)).into();
    absent_for(&mut world, before_rest + policy.rest + Duration::from_secs(20));
    joined(&mut world);
    for _ in &calls {
        world.play("finder", &[word("found", "f")]);
    }
    for call in calls {
        assert_eq!(world.result(call), "completed: found(f)");
    }
    world.check_replay();
}

#[test]
fn a_delivery_that_no_listener_took_is_undeliverable_after_the_time_out() {
    let mut world = world();
    let call = open(&mut world, "q");
    absent_for(&mut world, TIMEOUT - Duration::from_secs(1));
    assert_eq!(world.result(call), "none");
    absent_for(&mut world, Duration::from_secs(2));
    assert_eq!(world.result(call), "failed: system-error undeliverable");
    let (_, messages) = &world.results[&call];
    assert!(!messages[0].payload.as_str().contains("nobody there"), "the caller sees no inside");
    world.pass(TIMEOUT);
    assert!(world.deliveries.is_empty(), "nothing is left to be tried");
    world.check_replay();
}

#[test]
fn probes_double_their_distance_up_to_five_seconds() {
    let mut world = world();
    open(&mut world, "q");
    let mut times = Vec::new();
    while world.deliveries.front().is_some() || times.len() < 9 {
        let probe = world.delivery("finder");
        times.push(world.now);
        world.not_taken(&probe);
        while world.deliveries.is_empty() && world.results.is_empty() {
            world.pass(Duration::from_millis(10));
        }
        if !world.results.is_empty() {
            break;
        }
    }
    let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis() / 50 * 50);
    assert_eq!(gaps.take(8).collect::<Vec<_>>(), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
}

#[test]
fn one_call_of_an_absent_listener_is_tried_and_the_others_wait() {
    let mut world = world();
    let calls: Vec<_> = ["1", "2", "3"].map(|text| open(&mut world, text)).into();
    let probes = absent_for(&mut world, Duration::from_millis(50));
    assert_eq!(probes.len(), 3, "they were handed over before it was known");
    let later = open(&mut world, "4");
    assert!(world.deliveries.is_empty(), "not handed over while it is absent");
    world.pass(Duration::from_millis(500));
    assert_eq!(world.deliveries.len(), 1, "one probe");
    world.deliveries.clear();
    joined(&mut world);
    let handed: Vec<_> = world.deliveries.iter().map(fresh).collect();
    assert_eq!(handed.len(), 3, "the rest at once, {handed:?}");
    let all: Vec<_> = calls.into_iter().chain([later]).collect();
    assert!(all.iter().all(|call| world.result(*call) == "none"));
    world.check_replay();
}

#[test]
pub fn calls_that_wait_for_an_absent_listener_end_after_their_time_out_too() {
    let mut world = world();
    let first = open(&mut world, "1");
    absent_for(&mut world, Duration::from_secs(30));
    let second = open(&mut world, "2");
    absent_for(&mut world, Duration::from_secs(31));
    assert_eq!(world.result(first), "failed: system-error undeliverable");
    assert_eq!(world.result(second), "none");
    absent_for(&mut world, Duration::from_secs(30));
    assert_eq!(world.result(second), "failed: system-error undeliverable");
    world.check_replay();
}

#[test]
fn a_probe_that_does_not_come_back_was_taken_and_lets_the_others_go() {
    let mut world = world();
    let first = open(&mut world, "1");
    absent_for(&mut world, Duration::from_millis(50));
    let second = open(&mut world, "2");
    world.pass(Duration::from_millis(200));
    let probe = world.delivery("finder");
    assert!(world.deliveries.is_empty());
    world.pass(Duration::from_millis(1_100));
    let other = world.delivery("finder");
    world.answer(&other, &[word("found", "2")]);
    world.answer(&probe, &[word("found", "1")]);
    assert_eq!(world.result(first), "completed: found(1)");
    assert_eq!(world.result(second), "completed: found(2)");
    world.check_replay();
}

#[test]
fn a_probe_that_was_in_flight_during_a_standstill_releases_the_others_too() {
    let mut world = world();
    open(&mut world, "1");
    absent_for(&mut world, Duration::from_millis(50));
    let second = open(&mut world, "2");
    world.pass(Duration::from_millis(200));
    world.delivery("finder");
    let stood = Duration::from_secs(3600);
    world.now = world.now.plus(stood);
    world.step(Event::Standstill(Standstill { stood, stepped: Duration::ZERO }));

    world.pass(Duration::from_millis(500));
    assert!(world.deliveries.is_empty(), "the probe may still come back");
    world.pass(Duration::from_secs(3));
    world.play("finder", &[word("found", "2")]);
    assert_eq!(world.result(second), "completed: found(2)");
    world.check_replay();
}

#[test]
fn a_hand_over_that_was_taken_back_is_not_lost_with_its_pump() {
    let mut world = world();
    let call = open(&mut world, "q");
    let delivery = world.delivery("finder");
    world.not_taken(&delivery);
    world.restart();
    let again = world.delivery("finder");
    assert!(again.attempt > delivery.attempt, "no number is used twice");
    world.answer(&again, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    world.check_replay();
}

#[test]
fn attempts_that_a_listener_took_count_beside_those_that_none_took() {
    let mut world = World::new(contracts(2));
    let call = open(&mut world, "q");
    for _ in 0..2 {
        let delivery = world.delivery("finder");
        world.not_taken(&delivery);
        world.pass(Duration::from_secs(1));
        let delivery = world.delivery("finder");
        world.fail(&delivery, AttemptFailure::Crashed { detail: "!".to_owned() });
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.result(call), "failed: system-error listener-failed");
    world.check_replay();
}

/// A reload with another time-out does not extend the deadline of a call that already waits. The
/// fault states the time-out from which the deadline was calculated.
#[test]
fn a_call_that_waits_for_its_listener_keeps_its_deadline_over_a_reload() {
    let mut world = world();
    let call = open(&mut world, "q");
    absent_for(&mut world, Duration::from_secs(1));
    let mut patient = contracts(1);
    patient[1].timeout = 5 * TIMEOUT;
    world.reload(patient);
    absent_for(&mut world, TIMEOUT);
    assert_eq!(world.result(call), "failed: system-error undeliverable");
    let (_, messages) = &world.results[&call];
    let error = messages[0].payload.as_str();
    assert!(error.contains("finder could not be reached within 60 s"), "{error}");
    world.check_replay();
}

/// `undeliverable` states that a call had no effect, which is not known after a failed attempt.
#[test]
fn a_call_that_failed_before_its_listener_left_is_not_undeliverable() {
    let mut world = World::new(contracts(3));
    let call = open(&mut world, "q");
    let delivery = world.delivery("finder");
    world.fail(&delivery, AttemptFailure::Crashed { detail: "!".to_owned() });
    absent_for(&mut world, TIMEOUT + Duration::from_secs(10));
    assert_eq!(world.result(call), "failed: system-error listener-failed");
    let (_, messages) = &world.results[&call];
    let error = messages[0].payload.as_str();
    let text = "finder could not be reached within 60 s; finder was given this before, and failed";
    assert!(error.contains(text), "{error}");
    world.check_replay();
}

#[test]
fn a_cancelled_probe_leaves_the_others_their_turn() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "1"));
    absent_for(&mut world, Duration::from_millis(50));
    let second = open(&mut world, "2");
    world.pass(Duration::from_millis(200));
    let probe = world.delivery("finder");
    world.cancel(&thread);
    world.not_taken(&probe);
    world.pass(Duration::from_secs(2));
    world.play("finder", &[word("found", "2")]);
    assert_eq!(world.result(second), "completed: found(2)");
    world.check_replay();
}

/// The time for which a call waits for a free instance is not part of the time for which it waits
/// for an absent listener.
#[test]
fn the_time_a_call_waited_for_its_turn_does_not_count() {
    let mut contracts = contracts(1);
    contracts[1].concurrency = 1;
    let mut world = World::new(contracts);
    open(&mut world, "1");
    let second = open(&mut world, "2");
    let first = world.delivery("finder");
    world.pass(TIMEOUT - Duration::from_secs(1));
    world.answer(&first, &[word("found", "1")]);
    absent_for(&mut world, Duration::from_secs(5));
    assert_eq!(world.result(second), "none");
    joined(&mut world);
    world.play("finder", &[word("found", "2")]);
    assert_eq!(world.result(second), "completed: found(2)");
}
