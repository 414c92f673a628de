//! `verify` follows forks to their sources (design 11.20; issue 18, 1.2).

use organism::audit::{ForkPoint, VerifyOptions, verify_with};
use organism::ids::{Digest, Position};
use organism::journal::Journal as _;
use organism::thread::{Fact, ForkSource, InheritedThread, Input};

use super::{ROOT, researched};
use crate::journal::Place;
use crate::journal::script::{Script, name, thread};

/// Creates a journal with a fork at the end of the researched thread. `change` may falsify two
/// parts of the fork's record: the source and the inherited threads.
fn forked(change: impl FnOnce(&mut ForkSource, &mut Vec<InheritedThread>)) -> Place {
    let place = researched();
    let reader = place.reader();
    let head = reader.head(&thread(ROOT)).unwrap().unwrap();
    let record = reader.existing_record(head).unwrap().record;
    let message = record.facts.iter().rev().find_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message.id),
        _ => None,
    });
    let fork = thread("sess-forked01");
    let point = ForkPoint::find(&reader, head, message.unwrap(), |_| true).unwrap().unwrap();
    let (mut threads, _) = point.taken_over(&reader, &fork, |_| true).unwrap().unwrap();
    assert!(threads.iter().any(|own| own.thread == fork && own.seq > 0), "{threads:?}");
    let mut source = point.source;
    change(&mut source, &mut threads);
    drop(reader);

    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let step = script.step(&fork, Input::Shutdown { detail: "a fork".to_owned() });
    let mut record = step.end();
    let live = Vec::new();
    let by = name("ana");
    let allotment = None;
    record.facts.push(Fact::Forked { thread: fork, by, source, live, allotment, threads });
    let last = journal.next().0 - 1;
    let before = place.reader().existing_record(Position(last)).unwrap().record.time;
    record.time = before;
    journal.append(&mut [record]).unwrap();
    journal.close(before).unwrap();
    place
}

/// Returns the reason why `verify` reports the journal as broken; `None` if the journal is not
/// broken.
fn broken(place: &Place) -> Option<String> {
    let options = VerifyOptions { state: Some(place.state()), ..VerifyOptions::default() };
    let report = verify_with(&place.data(), &options, &mut |_, _| {}).unwrap();
    report.broken.map(|broken| broken.detail)
}

#[test]
fn verify_follows_the_lineage_of_a_fork() {
    assert_eq!(broken(&forked(|_, _| {})), None);

    let detail = broken(&forked(|source, _| source.hash = Digest::of(b"another"))).unwrap();
    assert!(detail.contains("the record of its source is another one"), "{detail}");
    let detail = broken(&forked(|source, _| source.thread = thread("sess-elsewhere"))).unwrap();
    assert!(detail.contains("the record of its source is another one"), "{detail}");
    let detail = broken(&forked(|source, _| source.record = Position(999))).unwrap();
    assert!(detail.contains("its source has no such record"), "{detail}");
    let detail = broken(&forked(|source, _| source.history = Position(1))).unwrap();
    assert!(detail.contains("its history does not end at that record"), "{detail}");
    let detail = broken(&forked(|_, threads| threads[0].seq += 1)).unwrap();
    assert!(detail.contains("its threads are not those of its history"), "{detail}");
}
