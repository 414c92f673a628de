//! `organism cancel`: waiting clients get a result, and cancelled work is not awaited.

use std::process::Stdio;

use organism::ids::Position;
use organism::thread::Fact;
use serde_json::json;

use super::{CommandOutput, House, numbered, until};

/// Returns how often a call was handed over.
fn handed_over(house: &House) -> usize {
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap().into_iter();
    let facts = records.flat_map(|sealed| sealed.record.facts);
    facts.filter(|fact| matches!(fact, Fact::HandedOver { .. })).count()
}

#[test]
fn a_cancelled_thread_tells_who_waits_and_frees_its_listener() {
    let house = House::new();
    house.write("hold.xml", numbered("hold", "1"));
    let running = house.run();
    let mut command =
        house.command(&["send", "--as", "desk", "--new", "sess-hold0000", "hold.xml"]);
    let sender = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it is on record", || (house.recorded("hold") == 1).then_some(()));

    // The record would have only the beginning of a longer reason.
    let long = "r".repeat(1_001);
    let refused = house.organism(&["cancel", "sess-hold0000", "--reason", &long]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("--reason <REASON>: the text has 1001 characters"), "{refused:?}");
    assert!(refused.err.contains("at most 1000") && !refused.err.contains("rrr"), "{refused:?}");

    let cancelled = house.organism(&["cancel", "sess-hold0000", "--reason", "no longer needed"]);
    assert_eq!(
        (cancelled.code, cancelled.err.trim()),
        (Some(0), "sess-hold0000: all open calls in it and its subthreads are cancelled")
    );
    let told: CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.out.contains("code=\"cancelled\""), "{told:?}");
    assert!(told.out.contains("no longer needed"), "{told:?}");
    assert!(told.err.contains("failed; `organism thread sess-hold0000` shows how"), "{told:?}");

    let shown = house.organism(&["thread", "sess-hold0000"]);
    assert!(shown.out.starts_with("sess-hold0000  cancelled"), "{}", shown.out);
    // The listener is free again after it has given up the first call.
    house.write("let-go", "");
    let next = house.send_text(&numbered("hold", "2"), &[]);
    assert_eq!((next.code, next.out), (Some(0), numbered("held", "2") + "\n"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_thread_of_a_stopped_organism_can_be_cancelled_and_an_unknown_one_is_named() {
    let house = House::new();
    let mut running = house.run();
    let queued = ["sess-queued00", "sess-queued01", "sess-queued02"];
    for (thread, number) in ["sess-hold0000"].into_iter().chain(queued).zip(["1", "2", "3", "4"]) {
        let send = ["--no-wait", "--new", thread];
        assert_eq!(house.send_text(&numbered("hold", number), &send).code, Some(0));
    }
    until("the first call is in flight", || (handed_over(&house) == 1).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    // The organism that a command starts hands over neither the cancelled call nor others. Each
    // command waits until the organisms of the others have ended.
    let cancelling = queued.map(|thread| {
        let mut command = house.command(&["cancel", thread]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for cancel in cancelling {
        let cancelled: CommandOutput = cancel.wait_with_output().unwrap().into();
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    }
    let cancelled = house.organism(&["cancel", "sess-hold0000", "--json"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(cancelled.json(), [json!({"thread": "sess-hold0000", "result": "done"})]);
    let shown = house.organism(&["thread", "sess-hold0000"]);
    assert!(shown.out.starts_with("sess-hold0000  cancelled"), "{}", shown.out);
    let again = house.organism(&["cancel", "sess-hold0000", "--json"]);
    assert_eq!(again.code, Some(65), "{again:?}");
    assert_eq!(again.json()[0]["refusal"]["rule"], "not-waiting");
    assert!(again.err.contains("not-waiting: nothing is open in sess-hold0000"), "{again:?}");
    assert!(again.err.contains("all of it has ended already"), "{again:?}");
    let messages = |shown: &str| shown.matches("operator-action").count();
    let after = house.organism(&["thread", "sess-hold0000"]);
    assert_eq!(messages(&after.out), messages(&shown.out), "{}", after.out);
    let unknown = house.organism(&["cancel", "sess-absent00"]);
    assert!(unknown.err.contains("no thread sess-absent00 is on record"), "{unknown:?}");
    assert_eq!(handed_over(&house), 1);
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    house.verified();
}
