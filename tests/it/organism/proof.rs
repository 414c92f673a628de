//! Proofs of `verify`, journals that a start refuses, and losses that an operator accepts on
//! record.

use std::path::Path;

use organism::ids::{Position, ThreadId};
use rusqlite::Connection;

use crate::journal::attacks::put;

use super::{COPIES_KEY, CommandOutput, ECHO_CONFIG, House, say};

/// A stopped house whose organism has answered a request.
pub fn answered() -> House {
    let house = House::settled(ECHO_CONFIG);
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    house
}

pub fn sql(house: &House, statement: &str) {
    let db = Connection::open(house.data().join("journal.db")).unwrap();
    db.execute_batch(statement).unwrap();
}

pub fn last(house: &House) -> Position {
    house.reader().last().unwrap()
}

/// Appends a row that no pump wrote. It is chained to the last row.
pub fn forge(house: &House) {
    let reader = house.reader();
    let sealed = reader.record(reader.last().unwrap()).unwrap().unwrap();
    let (mut record, before) = (sealed.record, sealed.hash);
    record.previous = record.position;
    record.previous_hash = before;
    record.position = Position(record.position.0 + 1);
    record.facts.clear();
    drop(reader);
    put(&house.data(), &record, "NULL");
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).ok();
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn an_end_that_no_mac_covers_starts_nothing_until_an_operator_takes_it_out() {
    let house = answered();
    let before = last(&house);
    forge(&house);
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("organism repair --accept-loss"), "{refused:?}");

    let repaired = house.organism(&["repair", "--accept-loss", "--note", "a test"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains(&format!("records up to {before}")), "{repaired:?}");
    let exported = house.organism(&["export"]);
    assert!(exported.out.contains("action=\"repair\""), "{exported:?}");
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
    let nothing = house.organism(&["repair", "--accept-loss"]);
    assert!(nothing.out.contains("nothing was recorded"), "{nothing:?}");
}

#[test]
fn a_restored_organism_names_its_lost_records_and_continues_after_consent() {
    let house = answered();
    let backup = house.path("backup");
    copy(&house.data(), &backup);
    let kept = last(&house);
    assert_eq!(house.send_text(&say("later"), &[]).code, Some(0));
    let lost = last(&house);
    copy(&backup, &house.data());

    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains(&format!("records up to {lost} were")), "{refused:?}");
    let repaired = house.organism(&["repair", "--accept-loss"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains(&format!("records {} to {lost}", kept.0 + 1)), "{repaired:?}");
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
}

#[test]
fn a_lost_key_is_accepted_on_record_and_its_change_is_reported() {
    let house = answered();
    let key = house.state().join("key");
    let pinned = house.organism(&["verify", "--json"]).json();
    let before = pinned[0]["keys"][0].as_str().unwrap().to_owned();
    std::fs::remove_file(&key).unwrap();
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.err.contains("organism repair --accept-key"), "{refused:?}");
    assert_eq!(house.organism(&["repair", "--accept-key"]).code, Some(0));
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));

    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains("key changed"), "{verified:?}");
    assert!(verified.out.contains(", whose MACs name the key id "), "{verified:?}");
    assert!(!verified.out.contains("which no MAC of a pump covers"), "{verified:?}");
    let pinned = house.organism(&["verify", "--key", &before]);
    assert_eq!(pinned.code, Some(5), "{pinned:?}");
}

#[test]
fn a_journal_from_before_macs_is_refused_until_it_is_adopted_on_record() {
    let house = answered();
    let state = house.state();
    let journal = house.reader().about().unwrap().journal;
    let mark = state.join(format!("{journal}.watermark"));
    std::fs::rename(mark, house.data().join("watermark")).unwrap();
    sql(&house, "UPDATE step SET mac = NULL");
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("organism adopt"), "{refused:?}");

    let adopted = house.organism(&["adopt"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    let exported = house.organism(&["export"]);
    assert!(exported.out.contains("without-mac-up-to"), "{exported:?}");
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    house.verified();
}

#[test]
fn a_copy_elsewhere_is_compared_and_named() {
    let house = answered();
    let journal = house.reader().about().unwrap().journal;
    let state = house.state();
    let copy = house.path("copy");
    std::fs::copy(state.join(format!("{journal}.checkpoints")), &copy).unwrap();
    let path = copy.to_str().unwrap();
    let verified = house.organism(&["verify", "--checkpoint", path, "--distrust-state"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains(&format!("compared     {path}")), "{verified:?}");
    let mut alone = house.command(&["verify", "--distrust-state"]);
    let alone = CommandOutput::from(alone.env_remove(COPIES_KEY).output().unwrap());
    assert_eq!(alone.code, Some(5), "{alone:?}");
    assert!(alone.out.contains("no checkpoint outside the journal was seen"), "{alone:?}");

    // A damaged line does not hide that the other lines contradict the journal.
    let sound = std::fs::read(&copy).unwrap();
    std::fs::write(&copy, [b"garbage\n".as_slice(), sound.as_slice()].concat()).unwrap();
    sql(&house, "DELETE FROM checkpoint");
    let deleted = house.organism(&["verify", "--checkpoint", path, "--json"]);
    assert_eq!(deleted.code, Some(4), "{deleted:?}");
    let report = &deleted.json()[0];
    assert_eq!(report["outside"], "disagrees", "{report}");
    assert_eq!(report["vouched"], 0, "{report}");
    let reasons = report["unproved"].to_string();
    assert!(reasons.contains("copy were compared: line 1 is damaged"), "{report}");
}

#[test]
fn a_damaged_file_of_checkpoints_hides_no_verdict_and_its_refusal_says_what_to_do() {
    let house = answered();
    let journal = house.reader().about().unwrap().journal;
    let file = house.state().join(format!("{journal}.checkpoints"));
    let sound = std::fs::read(&file).unwrap();
    std::fs::write(&file, [sound.as_slice(), b"garbage\n"].concat()).unwrap();
    let damage = " is damaged at column 1";
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    assert!(verified.out.contains(damage), "{verified:?}");
    assert!(!verified.out.contains("move the file away"), "{verified:?}");
    let distrusting = house.organism(&["verify", "--distrust-state"]);
    assert_eq!(distrusting.code, Some(0), "{distrusting:?}");
    let refused = house.send_text(&say("again"), &[]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains(&format!("{damage}: move the file away")), "{refused:?}");

    sql(&house, "UPDATE step SET time = time + 1 WHERE position = 2");
    let broken = house.organism(&["verify"]);
    assert_eq!(broken.code, Some(4), "{broken:?}");
    sql(&house, "UPDATE step SET time = time - 1 WHERE position = 2");
    std::fs::rename(&file, house.path("aside")).unwrap();
    house.verified();
}

#[test]
fn a_missing_file_of_checkpoints_is_no_evidence_against_the_journal() {
    let house = answered();
    let missing = house.path("nofile");
    let verified = house.organism(&["verify", "--checkpoint", missing.to_str().unwrap()]);
    assert_eq!(verified.code, Some(69), "{verified:?}");
    assert!(verified.err.contains("nofile cannot be read: there is no such file"), "{verified:?}");
    assert!(!verified.out.contains("BROKEN"), "{verified:?}");

    house.write("empty", "");
    let empty = house.path("empty");
    let verified = house.organism(&["verify", "--checkpoint", empty.to_str().unwrap()]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    assert!(verified.out.contains("contains no checkpoint of the journal"), "{verified:?}");
}

#[test]
fn an_embedded_journal_has_no_stream_to_be_compared_with() {
    let house = answered();
    house.verified();
    let compared = house.organism(&["verify", "--stream"]);
    assert_eq!(compared.code, Some(2), "{compared:?}");
}

#[test]
fn a_blanked_payload_is_a_break_until_an_operator_records_it() {
    let house = answered();
    sql(&house, "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0");
    // Splits of pages leave old copies of rows in the file, as a removed row does.
    let copies = "PRAGMA secure_delete = OFF; \
                  INSERT INTO blob VALUES ('copy', CAST('an old copy' AS BLOB)); \
                  DELETE FROM blob WHERE digest = 'copy'";
    sql(&house, copies);
    let has_copy = || {
        let files = ["journal.db", "journal.db-wal"].map(|file| house.data().join(file));
        let bytes = files.iter().flat_map(|file| std::fs::read(file).unwrap_or_default());
        bytes.collect::<Vec<u8>>().windows(11).any(|part| part == b"an old copy")
    };
    assert!(has_copy());

    let broken = house.organism(&["verify"]);
    assert_eq!(broken.code, Some(4), "{broken:?}");
    let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(!has_copy());
    house.verified();
}

#[test]
fn a_redacted_result_is_stated_as_redacted_to_a_client_that_repeats_its_key() {
    let house = House::settled(ECHO_CONFIG);
    let send = |arguments: &[&str]| {
        house.send_text(&say("hello"), &[&["--key", "k1"], arguments].concat())
    };
    let first = send(&[]);
    assert_eq!(first.code, Some(0), "{first:?}");
    sql(&house, "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0");
    let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");

    let again = send(&[]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(again.out, "[redacted]\n");
    let updates = send(&["--json"]).json();
    let reply = &updates.last().unwrap()["replies"][0];
    assert!(reply["name"].as_str().is_some(), "{updates:?}");
    assert!(reply["payload"].is_null(), "{updates:?}");
}

#[test]
fn a_proof_shows_the_path_of_a_backup_on_one_line_and_without_control_characters() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("x"), &[]).code, Some(0));
    let name = "copy\u{1b}[31m\nok";
    assert_eq!(house.organism(&["backup", name]).code, Some(0));
    let proved = house.organism(&["verify", name]);
    assert!(proved.out.contains("compared     copy\\u{1b}[31m\\nok/"), "{proved:?}");
    assert!(!proved.out.contains('\u{1b}'), "{proved:?}");
}

/// If the disk under a backup is full, the error names the incomplete copy, and the copy is
/// removed. Here, a limit on the size of files stands for the full disk.
#[test]
fn a_backup_without_room_names_its_copy_and_leaves_no_part_of_it() {
    let house = answered();
    assert_eq!(house.send_text(&say(&"x".repeat(300_000)), &[]).code, Some(0));
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"";
    let failed = CommandOutput::from(house.script(script, &["backup", "copy"]).output().unwrap());
    assert!(matches!(failed.code, Some(69 | 75)), "{failed:?}");
    assert!(failed.err.contains("copying the journal in "), "{failed:?}");
    assert!(failed.err.contains("copy/data/journal.new"), "{failed:?}");
    assert!(!house.path("copy/data/journal.new").exists());
    let made = house.organism(&["backup", "copy"]);
    assert_eq!(made.code, Some(0), "{made:?}");
}

#[test]
fn a_backup_of_a_running_organism_is_proved_and_restored() {
    // The stop signs the records of a send, and their checkpoint is copied elsewhere.
    let house = answered();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    let copy = house.path("copy");
    let path = copy.to_str().unwrap();
    let made = house.organism(&["backup", path]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!copy.join("state/key").exists());
    let again = house.organism(&["backup", path]);
    assert_ne!(again.code, Some(0), "{again:?}");
    let kept =
        organism::journal::sqlite::JournalReader::open(&copy.join("data")).unwrap().last().unwrap();
    assert_eq!(house.send_text(&say("second"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    // The MACs prove the records behind the last checkpoint.
    let proved = house.organism(&["verify", path, "--json"]);
    assert_eq!(proved.code, Some(0), "{proved:?}");
    assert_eq!(proved.json()[0]["covered"], kept.0, "{proved:?}");

    for log in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(house.data().join(log)).ok();
    }
    std::fs::copy(copy.join("data/journal.db"), house.data().join("journal.db")).unwrap();
    let refused = house.send_text(&say("third"), &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let repaired = house.organism(&["repair", "--accept-loss", "--note", "restored"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains(&format!("kept         records up to {kept}")), "{repaired:?}");
    assert_eq!(house.send_text(&say("third"), &[]).code, Some(0));
    house.verified();
}

/// A redaction blanks one record. Records with an equal payload, such as those of forks and of
/// operators' retries, still have it.
#[test]
fn a_repair_names_the_records_that_still_have_a_redacted_payload() {
    let house = House::settled(ECHO_CONFIG);
    let threads = ["sess-first000", "sess-second00"];
    for thread in threads {
        let sent = house.send_text(&say("hello"), &["--new", thread]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }

    let [first, second] = threads.map(|thread| {
        let thread = ThreadId::parse(thread).unwrap();
        let records = house.reader().tree(&thread, None).unwrap();
        records.first().unwrap().record.position
    });
    let repair = |which: &str| {
        let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE";
        sql(&house, &format!("{blank} {which}"));
        let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
        assert_eq!(repaired.code, Some(0), "{repaired:?}");
        repaired.out
    };
    let named = repair(&format!("position = {first}"));
    let copies = |output: &str| {
        let mut lines = output.lines().filter(|line| line.starts_with("still there"));
        lines.find(|line| line.contains("of sess-second00")).unwrap_or_default().to_owned()
    };
    assert!(copies(&named).contains(&format!("an equal <say>, in records {second}")), "{named}");
    assert!(named.contains("on record"), "{named}");

    // Nothing is left to record, but the copies are still there.
    let again = repair("false");
    assert_eq!(copies(&again), copies(&named), "{again}");
    assert!(again.contains("nothing was recorded") && !again.contains("on record"), "{again}");
    let json = house.organism(&["repair", "--accept-redaction", "--json"]).json();
    let copy = &json[0]["repaired"]["copies"][0];
    assert_eq!(copy["thread"], "sess-second00", "{json:?}");
    assert_eq!(copy["position"], second.0, "{json:?}");
    assert!(copy["name"].as_str().unwrap().ends_with("}say"), "{json:?}");

    let none = repair("length(payloads) > 0");
    assert!(none.contains("taken out") && !none.contains("still there"), "{none}");
    house.verified();
}
