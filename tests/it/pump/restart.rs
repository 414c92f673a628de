//! Restart from the records alone.

use std::time::Duration;

use expect_test::expect;
use organism::contract::Contract;
use organism::envelope::AttemptFailure;
use organism::ids::ThreadId;
use organism::pump::core::CORE_VERSION;
use organism::thread::Fact;

use super::world::{World, agent, client, core, fresh, listener, word};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

fn world() -> World {
    World::new(contracts())
}

#[test]
fn a_delivery_is_repeated_with_its_id_and_a_higher_attempt() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let before = world.delivery("finder");
    world.restart();
    let after = world.delivery("finder");
    assert_eq!(before.messages[0].id, after.messages[0].id);
    assert_eq!(
        (before.attempt.to_string(), after.attempt.to_string()),
        ("1.1".into(), "2.1".into())
    );
    assert!(before.attempt < after.attempt);
    world.answer(&before, &[word("found", "from the last run")]);
    assert_eq!(world.refusals(), ["finder stale-attempt"]);
    world.answer(&after, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
}

#[test]
fn an_answer_to_a_call_that_ended_before_the_restart_is_refused_visibly() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "q"));
    let before = world.delivery("finder");
    world.cancel(&thread);
    world.restart();
    world.answer(&before, &[word("found", "late")]);
    assert_eq!(world.refusals(), ["finder stale-attempt"]);
    assert_eq!(world.records.last().unwrap().tree, ThreadId::organism());
}

#[test]
fn attempts_used_before_a_restart_count() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    for _ in 0..2 {
        let delivery = world.delivery("finder");
        world.fail(&delivery, AttemptFailure::Crashed { detail: "!".to_owned() });
        world.restart();
    }
    let third = world.delivery("finder");
    assert_eq!(third.attempt.to_string(), "3.1");
    world.fail(&third, AttemptFailure::Crashed { detail: "!".to_owned() });
    assert_eq!(world.result(call), "failed: system-error listener-failed");
}

#[test]
fn an_agent_that_waits_keeps_its_thread_over_a_restart() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "one"));
    world.play("thinker", &[word("look", "q")]);
    world.say("desk", &thread, &word("plan", "two"));
    world.restart();
    assert_eq!(world.handed(), ["finder"], "the second call waits for the first");
    world.play("finder", &[word("found", "f")]);
    let woken = world.play("thinker", &[word("answer", "1")]);
    assert_eq!(fresh(&woken), ["found(f)"]);
    assert_eq!(fresh(&world.delivery("thinker")), ["plan(two)"]);
}

#[test]
pub fn calls_that_waited_their_turn_keep_their_order() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "1"));
    for text in ["2", "3"] {
        world.say("desk", &thread, &word("plan", text));
    }
    world.restart();
    for text in ["1", "2", "3"] {
        let woken = world.play("thinker", &[word("answer", text)]);
        assert_eq!(fresh(&woken), [format!("plan({text})")]);
    }
}

#[test]
fn a_listener_that_the_config_no_longer_has_is_undeliverable() {
    let mut contracts = contracts();
    contracts[2].concurrency = 1;
    let mut world = World::new(contracts.clone());
    let (_, out) = world.open("desk", &word("look", "out"));
    world.delivery("finder");
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    let mut rest = contracts;
    rest.pop();
    rest[0].peers.pop();
    rest[1].peers.clear();
    world.restart_with(rest);
    world.pass(Duration::ZERO);
    assert_eq!(world.result(out), "failed: system-error unknown-outcome", "it had this one");
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error undeliverable"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>finder look(q) [failed]
        3 system core>thinker system-error undeliverable [handled]
        4 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// Section 4: records that belong to no tree are in the reserved thread.
#[test]
fn starts_and_stops_are_on_record() {
    let mut world = world();
    world.step(organism::pump::core::Event::Joined {
        listener: super::world::name("finder"),
        detail: "started".to_owned(),
    });
    world.step(organism::pump::core::Event::Left {
        listener: super::world::name("finder"),
        detail: "crashed".to_owned(),
    });
    world.step(organism::pump::core::Event::Denied {
        listener: super::world::name("finder"),
        operations: "subscribe organism.talk.cancel.finder".to_owned(),
        count: 2,
    });
    world.step(organism::pump::core::Event::Alert {
        ticket: uuid::Uuid::nil(),
        report: organism::system::AlertReport {
            event: organism::system::AlertEvent::Raised,
            kind: organism::system::AlertKind::Failures,
            subject: "finder".to_owned(),
            cause: organism::ids::Position(3),
            through: organism::ids::Position(3),
            since: organism::clock::Time(3),
            count: 1,
            thread: None,
            detail: "calls to `finder` end as failed".to_owned(),
        },
    });
    world.step(organism::pump::core::Event::Shutdown { reason: "done".to_owned() });
    world.restart();
    expect![[r#"
        1 system core>core boot [recorded]
        2 system core>core listener-joined [recorded]
        3 system core>core listener-left [recorded]
        4 system core>core listener-denied [recorded]
        5 system core>core alert [recorded]
        6 system core>core shutdown-signal [recorded]
        7 system core>core boot [recorded]
    "#]]
    .assert_eq(&world.transcript(&ThreadId::organism()));
    world.check_replay();
}

#[test]
fn each_boot_records_the_version_of_the_core() {
    let mut world = world();
    world.restart();
    let boots = world.records.iter().flat_map(|record| &record.facts);
    let versions = boots.filter_map(|fact| match fact {
        Fact::Booted { core_version, .. } => Some(*core_version),
        _ => None,
    });
    assert_eq!(versions.collect::<Vec<_>>(), [CORE_VERSION; 2]);
    let shown = world.records.iter().flat_map(|record| record.payloads());
    let told = format!("core_version=\"{CORE_VERSION}\"");
    assert_eq!(shown.filter(|payload| payload.as_str().contains(&told)).count(), 2);
}

#[test]
fn a_waiting_agent_is_not_woken_by_a_restart() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[core("set-timer", "after=\"PT1H\"", ""), core("wait", "", "")]);
    world.restart();
    assert!(world.deliveries.is_empty());
}
