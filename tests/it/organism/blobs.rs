//! Blobs that are missing although records name them: the inputs of a boot, and the request of a
//! turn.

use organism::audit::{self, ProofVerdict, VerifyOptions};
use organism::clock::Time;
use organism::ids::Digest;
use organism::journal::{CheckpointCopies, Journal as _};
use organism::thread::Fact;
use rusqlite::Connection;

use super::{CommandOutput, House, say};
use crate::journal::Place;
use crate::journal::script::Script;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["say"]
final = "said"

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<said xmlns="urn:example:talk">done</said>'
"#;

/// A stopped house whose agent took one turn.
fn written() -> House {
    let house = House::settled(CONFIG);
    house.write("turns.toml", TURNS);
    let sent = house.send_text(&say("write"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    house
}

/// Blobs that the boot record of the house lists.
fn listed(house: &House) -> Vec<Digest> {
    let reader = house.reader();
    let boot = reader.record(organism::ids::Position(1)).unwrap().unwrap();
    let listed = boot.record.facts.iter().find_map(|fact| match fact {
        Fact::Booted { blobs, .. } => Some(blobs.clone()),
        _ => None,
    });
    listed.unwrap()
}

fn verify_without(house: &House, blob: Digest) -> CommandOutput {
    let db = Connection::open(house.data().join("journal.db")).unwrap();
    let sql = "DELETE FROM blob WHERE digest = ?1";
    assert_eq!(db.execute(sql, [blob.to_string()]).unwrap(), 1);
    house.organism(&["verify"])
}

#[test]
fn a_blob_that_a_boot_lists_and_the_journal_has_lost_is_a_break() {
    let house = written();
    let blobs = listed(&house);
    // The effective config, its manifest, its text, the schema of the agent and the recording.
    assert_eq!(blobs.len(), 5, "{blobs:?}");
    assert_eq!(house.organism(&["verify"]).code, Some(0));
    for index in 0..blobs.len() {
        let house = written();
        let blob = listed(&house)[index];
        let verified = verify_without(&house, blob);
        assert_eq!(verified.code, Some(4), "{verified:?}");
        let missing = format!("blob {blob}, which this boot lists, is missing");
        assert!(verified.out.contains(&missing), "{verified:?}");
    }
}

#[test]
fn a_missing_request_of_a_turn_leaves_the_record_unproved() {
    let house = written();
    let boot = listed(&house);
    let kept = house.reader().blobs().unwrap();
    let turns: Vec<_> = kept.into_iter().filter(|blob| !boot.contains(blob)).collect();
    assert_eq!(turns.len(), 1, "{turns:?}");
    let verified = verify_without(&house, turns[0]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    let missing = format!("blob {} of a turn at ", turns[0]);
    assert!(verified.out.contains(&missing), "{verified:?}");
}

#[test]
fn a_config_of_an_older_boot_that_is_missing_leaves_the_record_unproved() {
    for (is_kept, expected) in [(true, ProofVerdict::Proved), (false, ProofVerdict::NotProved)] {
        let place = Place::new();
        let mut journal = place.open().unwrap();
        if is_kept {
            journal.put_blob(b"config").unwrap();
        }
        journal.append(&mut [Script::default().boot(1)]).unwrap();
        journal.close(Time(0)).unwrap();
        let journal = place.reader().about().unwrap().journal;
        let copy = place.home.path().join("copy");
        std::fs::copy(CheckpointCopies::file_in(&place.state(), journal), &copy).unwrap();
        let state = Some(place.state());
        let options = VerifyOptions { state, copies: vec![copy], ..VerifyOptions::default() };
        let report = audit::verify_with(&place.data(), &options, &mut |_, _| {}).unwrap();
        assert_eq!(report.verdict, expected, "{:?} {:?}", report.broken, report.unproved);
    }
}
