//! An operator's action on the organism itself is one step of the record.

use expect_test::expect;
use organism::contract::TreeLimits;
use organism::ids::{Digest, ThreadId};
use organism::journal::Journal;
use organism::organism::operator::append_actions;
use organism::pump::ResidentCore;
use organism::pump::core::{Core, Event};
use organism::pump::driver::Pump;
use organism::thread::{
    ActionDetail, Fact, Input, OperatorAction, OperatorIdentity, OperatorVerb, Record,
};
use uuid::Uuid;

use super::world::{World, client, listener, name, word};
use crate::journal::substrate::Kept;

fn world() -> World {
    World::new(vec![client("desk", &["finder"]), listener("finder", &["look"], &["found"], &[])])
}

fn adoption() -> OperatorAction {
    let login = Some("ana <root>".to_owned());
    let host = Some("box".to_owned());
    OperatorAction {
        verb: OperatorVerb::Adopt,
        by: name("operator"),
        who: OperatorIdentity { uid: Some(1000), login, host },
        note: "moved".to_owned(),
        details: vec![
            ActionDetail::new("from", "/a/organism.toml"),
            ActionDetail::new("to", "/b & c/organism.toml"),
        ],
    }
}

fn act(world: &mut World, action: OperatorAction) {
    world.step(Event::Operator { ticket: Uuid::nil(), action });
}

/// The payloads of `operator-action` in these records.
fn reported(records: &[Record]) -> Vec<String> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let payloads = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "operator-action" => {
            Some(message.payload.as_str().to_owned())
        }
        _ => None,
    });
    payloads.collect()
}

#[test]
fn an_operator_action_is_a_step_of_the_organisms_own_thread_with_verb_who_and_details() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    act(&mut world, adoption());
    let record = world.records.last().unwrap();
    assert_eq!(record.tree, ThreadId::organism());
    assert_eq!(record.input, Input::Operator(adoption()));
    expect![[r#"
        1 system core>core boot [recorded]
        2 system core>core operator-action [recorded]
    "#]]
    .assert_eq(&world.transcript(&ThreadId::organism()));
    expect![[r#"<operator-action xmlns="https://xml-pipeline.org/ns/core/v1" action="adopt" by="operator" uid="1000" login="ana &lt;root&gt;" host="box" reason="moved"><detail name="from">/a/organism.toml</detail><detail name="to">/b &amp; c/organism.toml</detail></operator-action>"#]]
    .assert_eq(&reported(&world.records)[0]);
    // No other state changed.
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    assert!(world.core.state().tree(&thread).is_some());
    world.check_replay();
}

#[test]
pub fn an_operator_action_between_two_runs_is_replayed_like_any_other_step() {
    let mut world = world();
    world.step(Event::Shutdown { reason: "update".to_owned() });
    act(&mut world, adoption());
    world.restart();
    let (_, call) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    world.check_replay();
}

#[test]
fn the_texts_of_an_operator_action_are_cut_to_their_limits() {
    let mut world = world();
    let long = "ä".repeat(10_000);
    let details = vec![ActionDetail::new(&long, &long); 1_000];
    act(&mut world, OperatorAction { note: long, details, ..adoption() });
    let Input::Operator(recorded) = &world.records.last().unwrap().input else { panic!() };
    assert_eq!(recorded.note.chars().count(), 1_000);
    assert_eq!(recorded.details.len(), 64);
    assert_eq!(recorded.details[0].name.chars().count(), 64);
    assert_eq!(recorded.details[0].value.chars().count(), 4_096);
    world.check_replay();
}

fn core() -> ResidentCore {
    let gate = world().gate.clone();
    Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO).into()
}

/// Returns the core, the records and the open journal as the next pump reads them from `kept`.
fn replayed(kept: &Kept) -> (ResidentCore, Vec<Record>, Box<dyn Journal>) {
    let journal = kept.open(None);
    let (mut core, records) = (core(), kept.records());
    records.iter().for_each(|record| core.replay(record).unwrap());
    (core, records, journal)
}

#[test]
fn an_operator_action_needs_no_pump() {
    let kept = Kept::new();
    let mut core = core();
    let mut journal = kept.open(None);
    append_actions(&mut core, &mut *journal, &[], vec![adoption()]).unwrap();
    append_actions(&mut core, &mut *journal, &[], vec![adoption()]).unwrap();
    journal.close(organism::clock::Time::now()).unwrap();

    let (core, records, _journal) = replayed(&kept);
    assert_eq!(reported(&records).len(), 2);
    assert_eq!(core.state().in_flight, 0);
    let ids = records.iter().flat_map(|record| &record.facts).filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message.id),
        _ => None,
    });
    let mut ids: Vec<_> = ids.collect();
    let messages = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), messages, "each message has an id of its own");
}

#[tokio::test]
async fn a_running_pump_records_an_operator_action_before_it_confirms() {
    let kept = Kept::new();
    let pump = Pump::new(core(), kept.open(None), world().gate.clone());
    let handle = pump.handle();
    let running = std::thread::spawn(move || pump.run("test"));
    handle.record_action(adoption()).await.unwrap();
    assert_eq!(reported(&kept.records()).len(), 1, "it is durable when it is confirmed");

    handle.drain("done").await.unwrap();
    tokio::task::spawn_blocking(move || running.join().unwrap()).await.unwrap().unwrap();
    let late = handle.record_action(adoption()).await;
    assert!(late.is_err(), "a pump that has ended confirms nothing");
}
