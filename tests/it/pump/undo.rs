//! Calls that undo other calls. Each such call has one attempt, whatever number of attempts the
//! config sets for its listener.

use std::time::Duration;

use organism::contract::{Contract, UndoRule};
use organism::envelope::AttemptFailure;

use super::world::{World, client, listener, names, word};

/// Contracts of a client and of the listener `finder`. A call `count` to the finder undoes a call
/// `look`.
fn contracts() -> Vec<Contract> {
    let mut finder = listener("finder", &["look", "count"], &["found"], &[]);
    let [request, payload] = ["look", "count"].map(|local| names(&[local]).remove(0));
    finder.undo = vec![UndoRule { request, payload, with: Vec::new() }];
    assert!(finder.attempts > 1);
    vec![client("desk", &["finder"]), finder]
}

fn crashed() -> AttemptFailure {
    AttemptFailure::Crashed { detail: "it died".to_owned() }
}

#[test]
pub fn a_call_that_undoes_another_is_handed_over_once() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("count", "c"));
    let delivery = world.delivery("finder");
    world.fail(&delivery, crashed());
    assert_eq!(world.result(call), "failed: system-error listener-failed");

    let (_, call) = world.open("desk", &word("look", "l"));
    let delivery = world.delivery("finder");
    world.fail(&delivery, crashed());
    world.pass(Duration::from_secs(60));
    let again = world.delivery("finder");
    world.answer(&again, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
}

#[test]
fn an_undo_that_was_out_when_the_pump_died_has_an_unknown_outcome() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("count", "c"));
    world.delivery("finder");
    world.restart();
    world.pass(Duration::ZERO);
    assert_eq!(world.result(call), "failed: system-error unknown-outcome");
}
