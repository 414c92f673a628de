//! Each refused start names a command that helps. No two refusals refer to each other in a circle.

use std::path::Path;

use organism::journal::sqlite::JournalReader;

use super::proof::{answered, copy, last, sql};
use super::{CommandOutput, House, say};

/// Removes the journal's directories.
fn remove_directories(house: &House) {
    for directory in [house.data(), house.state()] {
        std::fs::remove_dir_all(directory).ok();
    }
}

fn restore(house: &House, backup: &Path) {
    remove_directories(house);
    copy(&backup.join("data"), &house.data());
    copy(&backup.join("state"), &house.state());
}

fn backed_up(house: &House) -> std::path::PathBuf {
    let backup = house.path("backup");
    let made = house.organism(&["backup", backup.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    backup
}

#[track_caller]
fn refused(house: &House, code: i32, way_on: &str) {
    let said = house.send_text(&say("again"), &[]);
    assert_eq!(said.code, Some(code), "{said:?}");
    assert!(said.err.contains(way_on), "{said:?}");
}

#[track_caller]
fn done(said: &CommandOutput) {
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[track_caller]
fn goes_on(house: &House) {
    done(&house.send_text(&say("again"), &[]));
    let verified = house.organism(&["verify"]);
    assert!(!verified.out.contains("BROKEN"), "{verified:?}");
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

#[test]
fn a_backup_overwrites_nothing_and_names_the_way_on() {
    let house = answered();
    let backup = backed_up(&house);
    let before = std::fs::read(backup.join("data/journal.db")).unwrap();
    house.write("file", "");
    for (directory, why) in
        [(backup.clone(), "holds a journal already"), (house.path("file"), "is a file")]
    {
        let refused = house.organism(&["backup", directory.to_str().unwrap()]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
        assert!(refused.err.contains("Name a directory that is new or empty"), "{refused:?}");
    }
    assert_eq!(std::fs::read(backup.join("data/journal.db")).unwrap(), before);
}

#[test]
fn a_backup_restored_without_its_key_continues_after_one_repair() {
    let house = answered();
    let backup = backed_up(&house);
    restore(&house, &backup);
    refused(&house, 5, "organism repair --accept-key");
    done(&house.organism(&["repair", "--accept-key"]));
    goes_on(&house);
}

/// Restores a backup, and then puts back a copy of the host's key.
fn restore_with_key(house: &House, backup: &Path) {
    let kept = house.path("kept-key");
    std::fs::copy(house.state().join("key"), &kept).unwrap();
    restore(house, backup);
    std::fs::copy(&kept, house.state().join("key")).unwrap();
}

#[test]
fn a_backup_restored_with_its_kept_key_continues_at_once() {
    let house = answered();
    let backup = backed_up(&house);
    restore_with_key(&house, &backup);
    goes_on(&house);
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn a_backup_restored_beside_newer_copies_names_its_lost_records_and_continues_after_one_repair() {
    let house = answered();
    let backup = backed_up(&house);
    let kept = last(&house);
    done(&house.send_text(&say("later"), &[]));
    let lost = last(&house);
    restore_with_key(&house, &backup);
    refused(&house, 4, "organism repair --accept-loss");
    let repaired = house.organism(&["repair", "--accept-loss", "--note", "restored"]);
    done(&repaired);
    assert!(repaired.out.contains(&format!("records {} to {lost}", kept.0 + 1)), "{repaired:?}");
    let copies = std::fs::read_dir(house.copies()).unwrap();
    let mut names = copies.map(|copy| copy.unwrap().file_name().into_string().unwrap());
    assert!(names.any(|name| name.ends_with(".lost-1")), "the copies of lost records");
    goes_on(&house);
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn a_journal_that_names_no_project_is_repaired_and_adopted_in_either_order() {
    for commands in
        [&[&["repair", "--accept-key"][..], &["adopt"]][..], &[&["adopt", "--accept-key"][..]]]
    {
        let house = answered();
        let backup = backed_up(&house);
        std::fs::remove_file(backup.join("data/project")).unwrap();
        restore(&house, &backup);
        refused(&house, 78, "organism adopt");
        let adopted = house.organism(&["adopt"]);
        assert_eq!(adopted.code, Some(5), "{adopted:?}");
        assert!(adopted.err.contains("--accept-key"), "{adopted:?}");
        for command in commands {
            let out = house.organism(command);
            done(&out);
            let is_repair = command[0] == "repair";
            assert_eq!(out.out.contains("run `organism adopt`, and then start"), is_repair);
        }
        goes_on(&house);
    }
}

#[test]
fn a_backup_from_before_a_key_rotation_continues_after_one_repair() {
    let house = answered();
    let backup = backed_up(&house);
    done(&house.send_text(&say("later"), &[]));
    std::fs::remove_file(house.state().join("key")).unwrap();
    done(&house.organism(&["repair", "--accept-key", "--note", "rotated"]));
    std::fs::copy(backup.join("data/journal.db"), house.data().join("journal.db")).unwrap();

    refused(&house, 4, "organism repair --accept-loss --accept-key");
    let loss = house.organism(&["repair", "--accept-loss"]);
    assert_eq!(loss.code, Some(5), "{loss:?}");
    assert!(loss.err.contains("organism repair --accept-loss --accept-key"), "{loss:?}");
    let key = house.organism(&["repair", "--accept-key"]);
    assert_eq!(key.code, Some(4), "{key:?}");
    assert!(key.err.contains("organism repair --accept-loss --accept-key"), "{key:?}");
    done(&house.organism(&["repair", "--accept-loss", "--accept-key"]));
    goes_on(&house);
    let exported = house.organism(&["export"]);
    assert!(exported.out.contains("key-before"), "{exported:?}");
    assert!(exported.out.contains("acknowledged-up-to"), "{exported:?}");
}

#[test]
fn records_that_are_cut_off_beneath_their_checkpoints_are_accepted_as_lost() {
    for tables in [&["step"][..], &["step", "checkpoint"]] {
        let house = answered();
        let first = last(&house).0 - 1;
        for table in tables {
            sql(&house, &format!("DELETE FROM {table} WHERE position >= {first}"));
        }
        refused(&house, 4, "organism repair --accept-loss");
        done(&house.organism(&["repair", "--accept-loss"]));
        let verified = house.organism(&["verify"]);
        assert!(!verified.out.contains("BROKEN"), "{tables:?}: {verified:?}");
        goes_on(&house);
    }
}

#[test]
fn a_file_that_is_no_journal_is_set_aside_where_a_journal_lay() {
    for bytes in [Vec::new(), b"this is no journal".repeat(500)] {
        let house = answered();
        std::fs::write(house.data().join("journal.db"), &bytes).unwrap();
        refused(&house, 4, "organism repair --accept-loss");
        let verified = house.organism(&["verify"]);
        assert_eq!(verified.code, Some(4), "{verified:?}");
        let repaired = house.organism(&["repair", "--accept-loss"]);
        done(&repaired);
        assert!(repaired.out.contains("set aside"), "{repaired:?}");
        assert_eq!(std::fs::read(house.data().join("journal.db.lost-1")).unwrap(), bytes);
        goes_on(&house);
    }
}

#[test]
fn a_file_that_is_cut_off_is_moved_away_where_there_is_no_backup() {
    for part in [100, 4096, 40_960] {
        let house = answered();
        let file = house.data().join("journal.db");
        let journal = std::fs::File::options().write(true).open(&file).unwrap();
        assert!(journal.metadata().unwrap().len() > part);
        journal.set_len(part).unwrap();
        let advice = "Without a backup, move `journal.db` and the files that begin with its name \
                      away, and begin anew with `organism repair --accept-loss`";
        refused(&house, 4, advice);
        let verified = house.organism(&["verify"]);
        assert_eq!(verified.code, Some(4), "{verified:?}");
        assert!(verified.out.contains("its id and its epoch cannot be read"), "{verified:?}");
        assert!(!verified.out.contains("00000000-"), "{verified:?}");
        let json = house.organism(&["verify", "--json"]).json().remove(0);
        assert_eq!(json["journal"], serde_json::Value::Null);

        for suffix in ["", "-wal", "-shm"] {
            let moved = house.path(&format!("moved{suffix}"));
            std::fs::rename(house.data().join(format!("journal.db{suffix}")), moved).ok();
        }
        refused(&house, 4, "organism repair --accept-loss");
        done(&house.organism(&["repair", "--accept-loss"]));
        goes_on(&house);
    }
}

/// The refusal of a journal with a changed record reports damage, and names the journal and a
/// backup. Only a missing tail is a loss.
#[test]
fn a_rewritten_record_is_no_loss_and_its_refusal_names_the_journal_and_a_backup() {
    let house = answered();
    sql(&house, "UPDATE step SET hash = zeroblob(32) WHERE position = 2");
    for arguments in [
        &["send", "organism.toml", "--as", "desk"][..],
        &["repair", "--accept-loss"],
        &["threads"],
        &["export"],
    ] {
        let said = house.organism(arguments);
        assert_eq!(said.code, Some(4), "{said:?}");
        let named = format!("the journal {} is broken at position 2", house.data().display());
        assert!(said.err.contains(&named), "{said:?}");
        assert!(said.err.contains("organism verify"), "{said:?}");
    }
}

#[test]
fn checkpoints_that_are_gone_start_nothing_until_they_are_put_back() {
    let house = answered();
    let before = house.reader().checkpoints().unwrap();
    sql(&house, "DELETE FROM checkpoint");
    refused(&house, 4, "organism repair --accept-loss");
    let repaired = house.organism(&["repair", "--accept-loss"]);
    done(&repaired);
    assert!(repaired.out.contains("put back"), "{repaired:?}");
    assert!(house.reader().checkpoints().unwrap().starts_with(&before));
    goes_on(&house);
}

#[test]
fn a_payload_that_is_blanked_starts_nothing_until_it_is_on_record() {
    let house = answered();
    sql(&house, "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0");
    refused(&house, 4, "organism repair --accept-redaction");
    done(&house.organism(&["repair", "--accept-redaction"]));
    goes_on(&house);
}

#[test]
fn a_wrong_table_of_trees_is_made_anew_by_a_start() {
    let house = answered();
    sql(&house, "UPDATE tree SET head = 1, records = 99, first = 1, opened = 0");
    goes_on(&house);
}

#[test]
fn a_repair_where_nothing_ever_was_makes_nothing() {
    let house = answered();
    remove_directories(&house);
    for flag in ["--accept-loss", "--accept-key"] {
        let repaired = house.organism(&["repair", flag]);
        done(&repaired);
        assert!(repaired.out.contains("nothing was recorded"), "{repaired:?}");
        assert!(JournalReader::open(&house.data()).is_err());
    }
    goes_on(&house);
}
