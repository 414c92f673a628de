//! Two pumps on one stream: only one of them writes.

use std::time::{Duration, Instant};

use organism::ids::Position;
use organism::journal::{Error, Journal as _};
use organism::limits;
use organism::nats::NatsCredentials;
use serde_json::json;

use super::Place;
use crate::journal::script::Script;
use crate::nats::Admin;
use crate::organism::until;

#[test]
fn a_second_pump_elsewhere_is_refused_within_a_second_with_the_holders_name() {
    let first = Place::new();
    let journal = first.open().unwrap();
    let begun = Instant::now();
    let refused = first.elsewhere().open().unwrap_err();
    // One renewal of the lease, and a margin for a busy machine.
    assert!(
        begun.elapsed() < limits::LEASE_RENEWAL_INTERVAL + Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    let holder = format!("process {} on ", std::process::id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    drop(journal);
    // The lease was released, so the next pump does not wait for its expiry.
    let begun = Instant::now();
    first.elsewhere().open().unwrap();
    assert!(begun.elapsed() < limits::LEASE_LAPSE, "{:?}", begun.elapsed());
}

#[test]
fn a_pump_that_was_frozen_while_another_took_over_appends_nothing_more() {
    let first = Place::new();
    let mut script = Script::default();
    let mut frozen = first.open().unwrap();
    frozen.append(&mut [script.boot(1)]).unwrap();
    first.let_lapse();
    let second = first.elsewhere();
    let mut journal = second.open().unwrap();
    let fenced = frozen.append(&mut [script.boot(1)]).unwrap_err();
    assert!(matches!(fenced, Error::Fenced { ours: 1, theirs: 2 }), "{fenced}");
    assert!(matches!(frozen.append(&mut [script.boot(1)]), Err(Error::Stopped { .. })));
    drop(frozen);
    journal.append(&mut [script.boot(2)]).unwrap();
    assert_eq!(journal.heads().last(), Position(2));
    drop(journal);
    assert_eq!(second.records().len(), 2);
}

#[test]
fn a_foreign_write_into_the_stream_fences_the_pump_whatever_the_lease_contains() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    let theirs = "{\"organism\":2,\"epoch\":2,\"part\":1,\"parts\":1}\n{\"epoch\":{\"epoch\":2,\"holder\":\"another\"}}\n\n";
    place.admin().publish(&place.options.subject(), theirs);
    let fenced = journal.append(&mut [Script::default().boot(1)]).unwrap_err();
    assert!(matches!(fenced, Error::Fenced { ours: 1, theirs: 2 }), "{fenced}");
    let info = place.admin().info(&place.options.stream());
    // The id of the journal, the epoch, a record, and the record of the other pump.
    assert_eq!(info["state"]["messages"], 4, "nothing of ours stands behind it");
}

#[test]
fn an_idle_pump_detects_that_its_lease_was_taken() {
    let first = Place::new();
    let mut idle = first.open().unwrap();
    first.let_lapse();
    let _second = first.elsewhere().open().unwrap();
    let fenced = until("it hears of it", || idle.checkpoint_if_due(organism::clock::Time(0)).err());
    assert!(matches!(fenced, Error::Fenced { .. }), "{fenced}");
}

/// Number of messages of a stream; `None` if the stream does not exist.
fn messages(admin: &Admin, stream: &str) -> Option<u64> {
    admin.ask(&format!("STREAM.INFO.{stream}"), &json!({}))["state"]["messages"].as_u64()
}

/// A pump renews its lease while it checks the sync settings of the servers. No server responds
/// here, so the check takes its whole time-out.
#[test]
fn a_lease_is_renewed_during_the_check_of_sync_settings() {
    let mut place = Place::new();
    place.options.system = Some(Box::new(NatsCredentials::Anonymous));
    let (admin, stream) = (place.admin(), place.options.stream());
    let leases = format!("KV_{}", place.options.bucket());
    let beats = || admin.info(&leases)["state"]["last_seq"].as_u64().unwrap();
    let opened = std::thread::scope(|scope| {
        let opened = scope.spawn(|| place.open());
        // The holder of the lease creates the stream, and writes nothing before the check has
        // ended.
        while messages(&admin, &stream).is_none() && !opened.is_finished() {}
        let first = beats();
        let mut last = first;
        loop {
            let now = beats();
            match messages(&admin, &stream) {
                Some(0) if !opened.is_finished() => last = now,
                _ => break,
            }
        }
        assert!(last - first >= 2, "{} beats", last - first);
        opened.join().unwrap()
    });
    assert_eq!(opened.unwrap().epoch(), 1);
}
