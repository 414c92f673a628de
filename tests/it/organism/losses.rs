//! Journals that are lost, replaced or forged, and the operator's acceptance of each loss. Even
//! after a kill during an acceptance, the acceptance is either durable and on record, or has no
//! effect.

use std::path::PathBuf;

use organism::ids::Position;
use organism::journal::sqlite::{JournalReader, SqliteJournal};
use organism::thread::Input;

use super::kill::torture;
use super::proof::{answered, copy, forge, last, sql};
use super::{CommandOutput, ECHO_CONFIG, House, say};
use crate::nats::is_streamed;

/// Removes the journal file with its log.
fn remove_journal(house: &House) {
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(house.data().join(name)).ok();
    }
}

/// Replaces the journal of the house by an empty one with another id.
fn put_another_journal(house: &House) {
    let (data, state) = (house.path("other/data"), house.path("other/state"));
    let other = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
    other.close(organism::clock::Time(0)).unwrap();
    remove_journal(house);
    std::fs::copy(data.join("journal.db"), house.data().join("journal.db")).unwrap();
}

/// Restores an older copy of the data.
fn put_old_data_back(house: &House) {
    remove_journal(house);
    copy(&house.path("older"), &house.data());
}

fn repair(house: &House) -> CommandOutput {
    house.organism(&["repair", "--accept-loss", "--note", "a test"])
}

fn is_on_record(house: &House) -> bool {
    house.organism(&["export"]).out.contains("action=\"repair\"")
}

#[test]
fn another_journal_in_place_of_an_acknowledged_one_starts_nothing_until_accepted() {
    let house = answered();
    let (journal, records) = (house.reader().about().unwrap().journal, last(&house));
    put_another_journal(&house);

    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    assert!(verified.out.contains(&journal.to_string()), "{verified:?}");
    if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
        let unprinted = house.command(&["verify"]).stdout(full).output().unwrap();
        assert_eq!(unprinted.status.code(), Some(4), "the verdict counts: {unprinted:?}");
    }
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("organism repair --accept-loss"), "{refused:?}");

    let repaired = repair(&house);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    let lost = format!("lost         the journal {journal}, with {records} records");
    assert!(repaired.out.contains(&lost), "{repaired:?}");
    assert!(is_on_record(&house));
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
}

#[test]
fn a_journal_file_that_is_gone_is_accepted_as_lost_on_record() {
    let house = answered();
    let journal = house.reader().about().unwrap().journal;
    remove_journal(&house);
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");

    let repaired = repair(&house);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    let exported = house.organism(&["export"]);
    assert!(exported.out.contains("action=\"repair\""), "{exported:?}");
    assert!(exported.out.contains(&journal.to_string()), "{exported:?}");
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
}

/// `repair` gives another name to the write-ahead log of a lost journal file. SQLite cannot use the
/// log without this file, and the log would damage a new file of the same name.
#[test]
fn the_write_ahead_log_of_a_journal_that_is_gone_is_kept_aside_of_its_successor() {
    let house = House::settled(ECHO_CONFIG);
    let running = house.run();
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    // The organism is killed, so that its log stays.
    drop(running);
    let log = std::fs::read(house.data().join("journal.db-wal")).unwrap();
    assert!(!log.is_empty());
    std::fs::remove_file(house.data().join("journal.db")).unwrap();

    let repaired = repair(&house);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains("journal.db.lost-1-wal"), "{repaired:?}");
    let kept = std::fs::read(house.data().join("journal.db.lost-1-wal")).unwrap();
    assert!(kept == log);
    assert!(is_on_record(&house));
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
}

#[test]
fn an_empty_journal_is_not_proved() {
    let house = House::settled(super::ECHO_CONFIG);
    let (data, state) = (house.path("other/data"), house.path("other/state"));
    let other = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
    other.close(organism::clock::Time(0)).unwrap();
    let (data, state) = (data.display().to_string(), state.display().to_string());
    let verified = house.organism(&["verify", "--data", &data, "--state", &state]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    assert!(verified.out.contains("the journal is empty"), "{verified:?}");
}

type Loss = (&'static str, fn(&House));

const LOSSES: [Loss; 4] = [
    ("a forged tail", forge),
    ("older data", put_old_data_back),
    ("a journal that is gone", remove_journal),
    ("another journal", put_another_journal),
];

/// The failpoints of `repair`, in their order.
const PLACES: [&str; 9] = [
    "before-commit:1",
    "epoch-raised",
    "before-append",
    "before-commit:2",
    "after-commit",
    "before-checkpoint",
    "after-checkpoint",
    "after-outside-line",
    "after-append",
];

#[test]
fn a_repair_that_is_killed_anywhere_has_accepted_nothing_or_is_on_record() {
    let house = answered();
    copy(&house.data(), &house.path("older"));
    assert_eq!(house.send_text(&say("later"), &[]).code, Some(0));
    let whole = [
        (house.data(), house.path("data-copy")),
        (house.state(), house.path("state-copy")),
        (house.copies(), house.path("copies-copy")),
    ];
    whole.iter().for_each(|(from, to)| copy(from, to));

    for (number, (name, lose)) in LOSSES.into_iter().enumerate() {
        // In a short run, every second place.
        let (first, step) = if torture() { (0, 1) } else { (number % 2, 2) };
        for place in PLACES.into_iter().skip(first).step_by(step) {
            whole.iter().for_each(|(to, from)| copy(from, to));
            lose(&house);
            let mut killed = house.command(&["repair", "--accept-loss"]);
            let killed = killed.env("ORGANISM_FAILPOINT", place).output().unwrap();
            assert_eq!(killed.status.code(), None, "{name}, {place}: {killed:?}");

            let is_accepted = has_action(&house);
            let started = SqliteJournal::open(&house.data(), &house.state(), &mut |_| Ok(()));
            assert_eq!(started.is_ok(), is_accepted, "{name}, {place}: {started:?}");
            drop(started);
            let again = house.organism(&["repair", "--accept-loss", "--json"]);
            assert_eq!(again.code, Some(0), "{name}, {place}: {again:?}");
            assert_eq!(again.out.contains("\"repaired\":null"), is_accepted, "{name}, {place}");
            assert!(has_action(&house), "{name}, {place}");
            SqliteJournal::open(&house.data(), &house.state(), &mut |_| Ok(())).unwrap();
            let verified = house.organism(&["verify"]);
            assert_eq!(verified.code, Some(0), "{name}, {place}: {verified:?}");
        }
    }
    assert_eq!(house.send_text(&say("last"), &[]).code, Some(0));
    house.verified();
}

/// Whether the journal exists and contains an operator's acceptance of a loss.
fn has_action(house: &House) -> bool {
    let Ok(reader) = JournalReader::open(&house.data()) else { return false };
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap();
    let mut inputs = records.iter().map(|sealed| &sealed.record.input);
    inputs.any(|input| matches!(input, Input::Operator(action) if action.accepted_loss().is_some()))
}

#[test]
fn a_key_that_is_accepted_by_a_killed_repair_stays_unaccepted_and_the_old_one_is_recorded() {
    for place in ["epoch-raised", "before-append", "before-commit:2"] {
        let house = answered();
        let before = house.organism(&["verify", "--json"]).json();
        let before = before[0]["keys"][0].as_str().unwrap().to_owned();
        std::fs::remove_file(house.state().join("key")).unwrap();
        let mut killed = house.command(&["repair", "--accept-key"]);
        killed.env("ORGANISM_FAILPOINT", place).output().unwrap();
        assert_eq!(house.send_text(&say("again"), &[]).code, Some(5), "{place}");

        assert_eq!(house.organism(&["repair", "--accept-key"]).code, Some(0), "{place}");
        let exported = house.organism(&["export"]);
        assert!(exported.out.contains(&before), "{place}: {exported:?}");
        assert_eq!(house.send_text(&say("again"), &[]).code, Some(0), "{place}");
        house.verified();
    }
}

#[test]
fn a_journal_without_any_mac_of_this_host_is_refused_with_the_acceptance_that_fits() {
    let house = answered();
    sql(&house, "UPDATE step SET mac = NULL");
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("organism repair --accept-key"), "{refused:?}");
    assert!(!refused.err.contains("--accept-loss"), "{refused:?}");
    assert_eq!(house.organism(&["repair", "--accept-key"]).code, Some(0));
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
}

#[test]
fn records_that_are_taken_out_overwrite_no_earlier_file() {
    let house = answered();
    let journal = house.reader().about().unwrap().journal;
    forge(&house);
    let forged = last(&house);
    let file = |end: &str| -> PathBuf {
        house.state().join(format!("{journal}.taken-out-{forged}-{forged}{end}.jsonl"))
    };
    std::fs::write(file(""), "earlier evidence").unwrap();
    assert_eq!(repair(&house).code, Some(0));
    assert_eq!(std::fs::read_to_string(file("")).unwrap(), "earlier evidence");
    assert_eq!(std::fs::read_to_string(file("-2")).unwrap().lines().count(), 1);
}

/// A directory that was moved away can be moved back: a refused start makes nothing in its place.
#[test]
fn a_refused_start_makes_nothing_in_the_place_of_what_was_moved_away() {
    if is_streamed() {
        return;
    }
    let house = House::with(ECHO_CONFIG);
    let send = |key: &str| house.send_text(&say("hello"), &["--key", key]);
    assert_eq!(send("one").code, Some(0));
    let cases = [
        (house.state(), 5, "this host has no key: put that key back"),
        (house.data(), 4, "is gone"),
    ];
    for (directory, code, part) in cases {
        let away = house.path("away");
        std::fs::rename(&directory, &away).unwrap();
        let refused = send("two");
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.err.contains(part), "{refused:?}");
        assert!(!directory.exists(), "{}", directory.display());
        std::fs::rename(&away, &directory).unwrap();
    }
    assert_eq!(send("two").code, Some(0));
    house.verified();
}
