//! `verify` follows forks to their sources (design 11.20; issue 18, 1.2).

use organism::audit::{ForkPoint, VerifyOptions, verify_with};
use organism::ids::{CallId, Digest, Position};
use organism::journal::Journal as _;
use organism::pump::core::CORE_VERSION;
use organism::thread::{Fact, ForkSource, InheritedThread, Input};

use super::{ROOT, researched};
use crate::journal::Place;
use crate::journal::script::{Script, name, research, thread};

/// Creates a journal with a fork at the end of the researched thread. `change` may falsify two
/// parts of the fork's record: the source and the inherited threads.
fn forked(change: impl FnOnce(&mut ForkSource, &mut Vec<InheritedThread>)) -> Place {
    forked_in(researched(), change)
}

/// Appends a fork as [`forked`] does to the journal at `place`.
fn forked_in(
    place: Place,
    change: impl FnOnce(&mut ForkSource, &mut Vec<InheritedThread>),
) -> Place {
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

/// Creates a journal with the researched thread. The subthread is bound to the first call, which
/// has ended. The core that wrote the records has the version `version`.
fn researched_in_bound_thread(version: u32) -> Place {
    let mut script = Script::default();
    let mut boot = script.boot(1);
    if let Some(Fact::Booted { core_version, .. }) = boot.facts.first_mut() {
        *core_version = version;
    }

    let mut records = research(&mut script, ROOT);
    records.insert(0, boot);
    let first = records.iter().flat_map(|record| &record.facts).find_map(|fact| match fact {
        Fact::Accepted { message, opening: Some(_), .. } => Some(CallId(message.id)),
        _ => None,
    });
    for fact in records.iter_mut().flat_map(|record| &mut record.facts) {
        if let Fact::ThreadOpened { thread, bound, .. } = fact {
            *bound = first.filter(|_| !thread.is_root());
        }
    }
    Place::with(&mut records)
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

/// For a bound thread that has ended with its call, the record of a fork states this call. A record
/// that an earlier core wrote does not state it. `verify` accepts only the form of the core that
/// wrote the record.
#[test]
fn verify_expects_the_calls_of_ended_bound_threads_by_the_version_of_the_core() {
    let unbound = |_: &mut ForkSource, threads: &mut Vec<InheritedThread>| {
        assert!(threads.iter().any(|own| own.bound.is_some()), "{threads:?}");
        threads.iter_mut().for_each(|own| own.bound = None);
    };
    let journal = researched_in_bound_thread;
    assert_eq!(broken(&forked_in(journal(CORE_VERSION), |_, _| {})), None);
    assert_eq!(broken(&forked_in(journal(60), unbound)), None);

    let detail = broken(&forked_in(journal(CORE_VERSION), unbound)).unwrap();
    assert!(detail.contains("its threads are not those of its history"), "{detail}");
}
