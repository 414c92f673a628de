//! The server fails, recovers, runs out of space, or loses the stream, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use organism::audit;
use organism::clock::Time;
use organism::ids::Position;
use organism::journal::{Error, Journal as _};

use super::Place;
use crate::journal::script::Script;
use crate::nats::{Server, Settings};
use crate::organism::{PATIENCE, until};

/// Appends `record`, and repeats this while the journal is unavailable.
fn append(
    journal: &mut organism::journal::jetstream::StreamJournal,
    record: organism::thread::Record,
) {
    let (mut record, begun) = ([record], Instant::now());
    while let Err(error) = journal.append(&mut record) {
        let is_passing = matches!(error, Error::Unavailable { .. }) && begun.elapsed() < PATIENCE;
        assert!(is_passing, "{error}");
    }
}

#[test]
fn a_server_killed_and_restarted_under_load_loses_nothing_and_keeps_nothing_twice() {
    let place = Place::on(&Arc::new(Server::start()));
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    for round in 0..3 {
        let is_back = AtomicBool::new(false);
        let appends = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                while !is_back.load(Ordering::Acquire) {
                    append(&mut journal, script.boot(1));
                    appends.fetch_add(1, Ordering::Release);
                }
            });
            until("the load runs", || (appends.load(Ordering::Acquire) > 20).then_some(()));
            place.server().kill();
            let mut last = (appends.load(Ordering::Acquire), Instant::now());
            until("an append waits for the server", || {
                let now = appends.load(Ordering::Acquire);
                if now != last.0 {
                    last = (now, Instant::now());
                }
                (last.1.elapsed() > Duration::from_millis(200)).then_some(())
            });
            place.server().restart();
            is_back.store(true, Ordering::Release);
            load.join().unwrap();
        });
        assert_eq!(journal.epoch(), 1, "round {round}");
    }
    let last = journal.heads().last();
    journal.close(Time(0)).unwrap();
    let elsewhere = place.elsewhere();
    let journal = elsewhere.open().unwrap();
    assert_eq!(journal.heads().last(), last);
    let report = audit::verify(&elsewhere.data(), None, &mut |_, _| {}).unwrap();
    assert_eq!((report.broken, report.records), (None, last.0));
}

#[test]
fn a_frozen_server_is_reported_in_time_and_its_records_exist_once() {
    let place = Place::on(&Arc::new(Server::start()));
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    append(&mut journal, script.boot(1));
    place.server().signal("-STOP");
    // The threads of the journal may stop slightly later.
    let (mut record, begun, away) = loop {
        let (mut record, begun) = ([script.boot(1)], Instant::now());
        if let Err(away) = journal.append(&mut record) {
            break (record, begun, away);
        }
        assert!(journal.heads().last() < Position(1_000), "it does not freeze");
    };
    assert!(matches!(away, Error::Unavailable { .. }), "{away}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    place.server().signal("-CONT");
    while matches!(journal.append(&mut record), Err(Error::Unavailable { .. })) {
        assert!(begun.elapsed() < PATIENCE);
    }
    append(&mut journal, script.boot(1));
    let last = journal.heads().last();
    drop(journal);
    let elsewhere = place.elsewhere();
    assert_eq!(elsewhere.open().unwrap().heads().last(), last);
    assert_eq!(elsewhere.records().len() as u64, last.0);
}

#[test]
fn a_stream_at_its_limit_is_a_full_disk_and_does_not_stop_the_journal() {
    let jetstream = Some("max_file_store: 4MB");
    let place = Place::on(&Arc::new(Server::start_with(Settings { jetstream, more: "" })));
    let mut journal = place.open().unwrap();
    let (mut script, tree) = (Script::default(), crate::journal::script::thread("sess-abcdefgh"));
    let text = "x".repeat(400 << 10);
    let full = loop {
        let mut record = [script.question(&tree, &text).1];
        if let Err(error) = journal.append(&mut record) {
            break error;
        }
        assert!(journal.heads().last() < Position(20), "there is no limit");
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert!(full.to_string().contains("no room for the stream "), "{full}");
    let small = journal.append(&mut [script.boot(1)]);
    assert!(small.is_ok() || matches!(small, Err(Error::Full { .. })));
}

/// Appends records under load until the journal reports that it is broken or unsafe, within 8 s.
/// Returns the text of the error.
fn told(journal: &mut organism::journal::jetstream::StreamJournal) -> String {
    let mut script = Script::default();
    let begun = Instant::now();
    let told = until("the journal notices", || match journal.append(&mut [script.boot(1)]) {
        Ok(_) | Err(Error::Unavailable { .. } | Error::Full { .. }) => None,
        Err(error) => Some(error),
    });
    // Five seconds, and a margin for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(matches!(told, Error::Broken { .. } | Error::UnsafeServer { .. }), "{told}");
    told.to_string()
}

/// Appends records until the journal reports that it is broken. Asserts that the stream is deleted,
/// or that the error states that another stream has replaced it. Returns the text of the error.
fn hears(place: &Place, journal: &mut organism::journal::jetstream::StreamJournal) -> String {
    let told = told(journal);
    let stream = format!("STREAM.INFO.{}", place.options.stream());
    let answer = place.admin().ask(&stream, &serde_json::json!({}));
    assert!(answer.get("error").is_some() || told.contains("another one"));
    told
}

#[test]
fn a_stream_deleted_under_load_is_noticed_and_not_made_again() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    place.admin().delete(&place.options.stream());
    let told = hears(&place, &mut journal);
    assert!(told.contains("is gone"), "{told}");
}

#[test]
fn a_stream_whose_settings_are_changed_under_load_is_noticed_by_the_setting() {
    for (key, value) in [
        ("max_age", serde_json::json!(3_600_000_000_000_u64)),
        ("max_msgs", serde_json::json!(9)),
        ("discard", serde_json::json!("old")),
    ] {
        let place = Place::new();
        let mut journal = place.open().unwrap();
        journal.append(&mut [Script::default().boot(1)]).unwrap();
        let (admin, stream) = (place.admin(), place.options.stream());
        let mut config = admin.info(&stream)["config"].clone();
        config[key] = value;
        admin.must(&format!("STREAM.UPDATE.{stream}"), &config);
        let told = told(&mut journal);
        assert!(told.contains(&format!("`{key}` is ")), "{key}: {told}");
    }
}

#[test]
fn a_stream_that_was_replaced_is_noticed() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    let (admin, stream) = (place.admin(), place.options.stream());
    let config = admin.info(&stream)["config"].clone();
    admin.delete(&stream);
    admin.must(&format!("STREAM.CREATE.{stream}"), &config);
    let mut script = Script::default();
    let told = until("the journal notices", || match journal.append(&mut [script.boot(1)]) {
        Ok(_) | Err(Error::Unavailable { .. }) => None,
        Err(error) => Some(error),
    });
    assert!(matches!(told, Error::Broken { .. }), "{told}");
}

#[test]
fn the_server_denies_the_purge_of_a_journal() {
    let place = Place::new();
    drop(place.open().unwrap());
    let stream = place.options.stream();
    let refused = place.admin().ask(&format!("STREAM.PURGE.{stream}"), &serde_json::json!({}));
    assert!(refused.get("error").is_some(), "{refused}");
    // The lease does not come back either.
    let mut config = place.admin().info(&stream)["config"].clone();
    config["deny_purge"] = false.into();
    let refused = place.admin().ask(&format!("STREAM.UPDATE.{stream}"), &config);
    assert!(refused.get("error").is_some(), "{refused}");
    let delete = serde_json::json!({ "seq": 1 });
    let refused = place.admin().ask(&format!("STREAM.MSG.DELETE.{stream}"), &delete);
    assert!(refused.get("error").is_some(), "{refused}");
}
