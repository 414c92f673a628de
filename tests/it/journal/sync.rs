//! Every record is synced before it is acknowledged. The tests trace the system calls.

use std::process::{Command, Stdio};

use super::Place;

#[test]
fn every_record_is_synced_before_it_is_acknowledged() {
    let place = Place::new();
    let library = place.home.path().join("note_syncs.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journal/note_syncs.c");
    // The C compiler that built SQLite.
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .args([library.as_os_str(), source.as_ref()])
        .status();
    assert!(built.unwrap().success());
    let ledger = place.home.path().join("ledger");
    let written = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::death::writer", "--ignored", "--quiet"])
        .env("JOURNAL_TEST_HOME", place.home.path())
        .env("LD_PRELOAD", &library)
        .env("NOTE_SYNCS", &ledger)
        .stdout(Stdio::null())
        .status();
    assert!(written.unwrap().success());
    let ledger = std::fs::read_to_string(ledger).unwrap();
    let (mut synced, mut acknowledged) = (false, 0);
    for line in ledger.lines() {
        if line != "synced" {
            assert!(synced, "record {line} was acknowledged and not synced:\n{ledger}");
            acknowledged += 1;
        }
        synced = line == "synced";
    }
    assert!(acknowledged > 3, "{ledger}");
}
