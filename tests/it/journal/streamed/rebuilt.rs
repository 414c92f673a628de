//! A lost or damaged projection is rebuilt from its stream, because the stream is the journal.

use organism::audit;
use organism::clock::Time;
use organism::ids::{Digest, Position};
use organism::journal::{Error, Journal as _, checkpoint::CheckpointFile};
use organism::limits;
use serde_json::json;

use super::Place;
use crate::journal::script::{Script, research};

fn verified(place: &Place) -> audit::ProofReport {
    let report = audit::verify(&place.data(), Some(&place.state()), &mut |_, _| {}).unwrap();
    assert_eq!(report.broken, None);
    report
}

#[test]
fn a_host_that_never_saw_the_journal_has_all_of_it() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let first = Place::with(&mut records);
    let mut journal = first.open().unwrap();
    let blob = journal.put_blob(b"a schema").unwrap();
    let large = vec![b'x'; 3 << 20];
    let large = (journal.put_blob(&large).unwrap(), large);
    journal.close(Time(0)).unwrap();
    let second = first.elsewhere();
    let mut seen = Vec::new();
    let mut note = |sealed: organism::journal::HashedRecord| {
        seen.push(sealed.record);
        Ok(())
    };
    let mut journal = second.open_with(&mut note).unwrap();
    assert_eq!(seen, records);
    assert_eq!(journal.heads().last(), Position(records.len() as u64));
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();
    let (ours, theirs) = (first.records(), second.records());
    let hashes = |sealed: &[organism::journal::HashedRecord]| -> Vec<Digest> {
        sealed.iter().map(|sealed| sealed.hash).collect()
    };
    assert_eq!(hashes(&ours), hashes(&theirs)[..ours.len()]);
    let reader = second.reader();
    assert_eq!(reader.blob(blob).unwrap().unwrap(), b"a schema");
    assert_eq!(reader.blob(large.0).unwrap().unwrap(), large.1);
    let (about, checkpoints) = (reader.about().unwrap(), reader.checkpoints().unwrap());
    assert_eq!(about.journal, first.reader().about().unwrap().journal);
    assert_eq!((about.epoch, checkpoints.len()), (3, 2));
    assert_eq!(CheckpointFile::new(&second.state(), about.journal).read().unwrap(), checkpoints);
    assert_eq!(verified(&second).records, records.len() as u64 + 1);
    // The first host continues at its own position.
    let journal = first.open().unwrap();
    assert_eq!(journal.heads().last(), Position(records.len() as u64 + 1));
    drop(journal);
    assert_eq!(hashes(&first.records()), hashes(&second.records()));
    verified(&first);
}

#[test]
fn an_interrupted_projection_still_knows_its_first_epoch() {
    let place = Place::new();
    for _ in 0..2 {
        place.open().unwrap().close(Time(0)).unwrap();
    }
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    // More records than one read returns, so that some of them are stored.
    for _ in 0..3 * limits::STREAM_READ_AHEAD {
        journal.append(&mut [script.boot(3)]).unwrap();
    }
    assert_eq!(journal.epoch(), 3);
    journal.close(Time(0)).unwrap();
    let elsewhere = place.elsewhere();
    let cut = Position(2 * limits::STREAM_READ_AHEAD);
    let cut_short = elsewhere.open_with(&mut |sealed| match sealed.record.position {
        at if at == cut => Err(Error::Stopped { cause: "a test".to_owned() }),
        _ => Ok(()),
    });
    assert!(matches!(cut_short, Err(Error::Stopped { .. })));
    assert!(elsewhere.reader().last().unwrap() > Position(0), "nothing was kept");
    assert_eq!(elsewhere.open().unwrap().epoch(), 4);
    verified(&elsewhere);
}

#[test]
fn a_projection_that_lost_its_end_reads_it_again() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    journal.append(&mut [script.boot(1), script.boot(1)]).unwrap();
    drop(journal);
    let before = place.copy();
    let mut journal = place.open().unwrap();
    journal.append(&mut [script.boot(2), script.boot(2), script.boot(2)]).unwrap();
    drop(journal);
    // Its watermark refers to records that the file no longer contains.
    std::fs::copy(place.watermark(), before.watermark()).unwrap();
    let journal = before.open().unwrap();
    assert_eq!((journal.heads().last(), journal.epoch()), (Position(5), 3));
    drop(journal);
    assert_eq!(verified(&before).records, 5);
}

#[test]
fn a_projection_that_was_deleted_is_made_anew() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(place.data().join(file)).ok();
    }
    drop(place.open().unwrap());
    assert_eq!(verified(&place).records, records.len() as u64);
}

#[test]
fn a_group_too_large_for_a_message_travels_in_several() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let text = "x".repeat(900 << 10);
    let tree = crate::journal::script::thread("sess-abcdefgh");
    let mut group: Vec<_> = (0..5).map(|_| script.question(&tree, &text).1).collect();
    journal.append(&mut group).unwrap();
    drop(journal);
    let info = place.admin().info(&place.options.stream());
    // The id of the journal, the epoch, and five parts.
    assert_eq!(info["state"]["messages"], 7);
    let elsewhere = place.elsewhere();
    drop(elsewhere.open().unwrap());
    let read: Vec<_> = elsewhere.records().into_iter().map(|sealed| sealed.record).collect();
    assert_eq!(read, group);
}

#[test]
fn parts_that_their_pump_did_not_live_to_complete_count_for_nothing() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    let begun = "{\"organism\":2,\"epoch\":1,\"part\":1,\"parts\":2}\n{\"step\":";
    place.admin().publish(&place.options.subject(), begun);
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(2)]).unwrap();
    drop(journal);
    for host in [&place, &place.elsewhere()] {
        drop(host.open().unwrap());
        assert_eq!(verified(host).records, records.len() as u64 + 1);
    }
}

/// A message that a later version of the program has written.
const LATER: &str = "{\"organism\":99,\"epoch\":1,\"part\":1,\"parts\":1}\n{\"step\":{}}\n\n";

fn asks_for_an_upgrade(place: &Place) {
    let refused = place.open().unwrap_err();
    assert!(matches!(refused, Error::StreamVersion { version: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("upgrade this program"), "{refused}");
}

#[test]
fn a_message_of_a_later_version_is_no_damage() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    place.admin().publish(&place.options.subject(), LATER);
    asks_for_an_upgrade(&place);
}

/// A host that joins a stream first reads the first message, which names the journal of the stream.
/// If that message is of a later version, the host needs an upgrade, and the stream is not damaged.
#[test]
fn a_stream_that_begins_with_a_later_version_is_no_damage() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let admin = place.admin();
    let stream = place.options.stream();
    let config = admin.must(&format!("STREAM.INFO.{stream}"), &json!({}))["config"].clone();
    admin.must(&format!("STREAM.DELETE.{stream}"), &json!({}));
    admin.must(&format!("STREAM.CREATE.{stream}"), &config);
    admin.publish(&place.options.subject(), LATER);
    asks_for_an_upgrade(&place.elsewhere());
}

#[test]
fn changes_in_the_stream_are_found() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    let foreign = "{\"organism\":2,\"epoch\":1,\"part\":1,\"parts\":1}\n{\"step\":{}}\n\n";
    place.admin().publish(&place.options.subject(), foreign);
    let broken = place.open().unwrap_err();
    assert!(matches!(broken, Error::Broken { .. }), "{broken}");
    for part in ["of the stream", "delete the stream and publish it again"] {
        assert!(broken.to_string().contains(part), "{broken}");
    }
}
