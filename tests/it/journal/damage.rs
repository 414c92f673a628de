//! Damage that an embedded journal detects: flipped bits, cuts, rewritten records, a full disk, and
//! another pump.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use organism::audit::{self, ProofReport};
use organism::clock::Time;
use organism::ids::{ListenerName, Position, ThreadId};
use organism::journal::sqlite::{DATABASE, JournalReader};
use organism::journal::{Error, Journal as _};
use organism::limits;
use organism::thread::{
    ActionDetail, Input, OperatorAction, OperatorIdentity, OperatorVerb, Record,
};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::Place;
use super::script::{Script, research};
use crate::campaign::Campaign;
use crate::organism::kill::torture;

/// A generator of random damage. Each failure message contains the seed, with which the same damage
/// can be repeated.
struct Dice(u64);

impl Dice {
    fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn random_below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn story(trees: usize) -> Vec<Record> {
    let mut script = Script::default();
    (0..trees).flat_map(|n| research(&mut script, &format!("sess-tree{n:04}"))).collect()
}

fn sql(place: &Place) -> Connection {
    let db = Connection::open(place.data().join(DATABASE)).unwrap();
    db.execute_batch("PRAGMA synchronous = OFF").unwrap();
    db
}

fn verify(place: &Place) -> Result<ProofReport, Error> {
    audit::verify(&place.data(), Some(&place.state()), &mut |_, _| {})
}

/// Position and detail of the damage that a proof finds, or the error of the proof.
fn break_of(place: &Place) -> Option<String> {
    match verify(place) {
        Ok(report) => report.broken.map(|broken| format!("{}: {}", broken.position, broken.detail)),
        Err(error) => Some(error.to_string()),
    }
}

fn flip(path: &Path, at: u64, bit: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 1 << bit;
    std::fs::write(path, bytes).unwrap();
}

/// Everything that readers of the journal return.
fn contents(place: &Place) -> Vec<Vec<Value>> {
    let db = sql(place);
    let mut all = Vec::new();
    for table in ["meta", "step", "tree", "checkpoint", "blob"] {
        let mut query = db.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let width = query.column_count();
        let rows = query.query_map([], |row| (0..width).map(|at| row.get(at)).collect());
        all.extend(rows.unwrap().map(Result::unwrap).collect::<Vec<Vec<Value>>>());
    }
    all
}

#[test]
fn every_flipped_bit_in_a_record_is_found_at_its_position() {
    let mut campaign = Campaign::new("flipped bits, records");
    let flips = if torture() { 1_000 } else { 150 };
    let mut found_at = BTreeMap::new();
    let place = Place::with(&mut story(4));
    let last = place.reader().last().unwrap().0;
    let db = sql(&place);
    for seed in 1..=flips {
        let mut dice = Dice::seeded(seed);
        let position = last - dice.random_below(8);
        let columns = ["body", "payloads", "hash", "previous_hash", "tree", "previous", "time"];
        let column = columns[dice.random_below(columns.len() as u64) as usize];
        let kind = match column {
            "body" | "tree" => "TEXT",
            "previous" | "time" => "INTEGER",
            _ => "BLOB",
        };
        let read = format!("SELECT cast({column} AS BLOB) FROM step WHERE position = ?1");
        let sound: Vec<u8> = db.query_row(&read, [position], |row| row.get(0)).unwrap();
        if sound.is_empty() {
            *found_at.entry("nothing to flip").or_insert(0) += 1;
            continue;
        }
        let mut rotten = sound.clone();
        let at = dice.random_below(sound.len() as u64) as usize;
        match kind {
            // Replaces a digit by another one, so that each number remains a number.
            "INTEGER" => rotten[at] ^= 1,
            _ => rotten[at] ^= 1 << dice.random_below(8),
        }
        let write = format!("UPDATE step SET {column} = cast(?2 AS {kind}) WHERE position = ?1");
        db.execute(&write, (position, &rotten)).unwrap();
        let found = break_of(&place).unwrap_or_else(|| panic!("seed {seed}: not found"));
        assert!(found.starts_with(&format!("{position}: ")), "seed {seed}: {found}");
        db.execute(&write, (position, &sound)).unwrap();
        *found_at.entry(column).or_insert(0) += 1;
    }
    campaign.note(format!("{flips} flips, {found_at:?} found, none missed"));
    assert_eq!(break_of(&place), None);
}

#[test]
fn a_bit_flipped_anywhere_in_the_file_is_found_or_changes_nothing_that_can_be_read() {
    let mut campaign = Campaign::new("flipped bits, file of the journal");
    let place = Place::with(&mut story(4));
    let before = contents(&place);
    let path = place.data().join(DATABASE);
    let sound = std::fs::read(&path).unwrap();
    let flips = if torture() { 300 } else { 150 };
    let mut found = 0;
    for seed in 1..=flips {
        let mut dice = Dice::seeded(seed);
        flip(&path, dice.random_below(sound.len() as u64), dice.random_below(8));
        if break_of(&place).is_some() {
            found += 1;
        } else {
            assert_eq!(contents(&place), before, "seed {seed}");
        }
        std::fs::write(&path, &sound).unwrap();
    }
    campaign.note(format!("{flips} flips: {found} hit something that can be read, and were found"));
    assert!(found > flips / 4, "only {found} of {flips} flips hit anything");
}

#[test]
fn a_wrong_table_of_trees_is_made_right_by_the_next_start() {
    for damage in [
        "UPDATE tree SET head = head - 1 WHERE root = 'sess-tree0001'",
        "DELETE FROM tree WHERE root = 'sess-tree0002'",
        "UPDATE tree SET records = 0; UPDATE meta SET value = '3' WHERE key = 'refreshed'",
    ] {
        let place = Place::with(&mut story(4));
        sql(&place).execute_batch(damage).unwrap();
        assert!(break_of(&place).is_some(), "{damage}");
        place.open().unwrap().close(Time(0)).unwrap();
        assert_eq!(break_of(&place), None, "{damage}");
    }
}

#[test]
fn a_torn_table_of_trees_is_found_before_anything_is_written() {
    let place = Place::with(&mut story(4));
    let root: u64 = {
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'tree'";
        sql(&place).query_row(root, [], |row| row.get(0)).unwrap()
    };
    let path = place.data().join(DATABASE);
    let mut torn = std::fs::read(&path).unwrap();
    // The type of a page: no such type exists.
    torn[(root as usize - 1) * limits::JOURNAL_PAGE_BYTES] = 0xff;
    std::fs::write(&path, &torn).unwrap();
    assert!(place.open().is_err());
    assert!(std::fs::read(&path).unwrap() == torn, "the file was written to");
    let log = std::fs::read(place.data().join("journal.db-wal")).unwrap_or_default();
    assert_eq!(log.len(), 0, "the log was written to");
}

#[test]
fn a_table_that_is_not_ours_any_more_is_found_before_anything_is_written() {
    let place = left_open(&mut story(1));
    let log = place.data().join("journal.db-wal");
    let database = place.data().join(DATABASE);
    let mut bytes = std::fs::read(&database).unwrap();
    let column = b"opened INTEGER NOT NULL,\n  updated";
    let at = bytes.windows(column.len()).position(|window| window == column).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&database, &bytes).unwrap();
    let found = std::fs::read(&log).unwrap();
    assert!(matches!(place.open(), Err(Error::Broken { .. })));
    assert!(break_of(&place).is_some());
    assert!(std::fs::read(&log).unwrap() == found);
}

/// Returns the journal of a killed pump. All its records are still in the write-ahead log.
fn left_open(records: &mut [Record]) -> Place {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    for group in records.chunks_mut(2) {
        journal.append(group).unwrap();
    }
    place.copy()
}

#[test]
fn rot_in_the_write_ahead_log_differs_from_a_torn_tail() {
    let mut records = story(2);
    let place = left_open(&mut records);
    let log = place.data().join("journal.db-wal");
    let length = std::fs::metadata(&log).unwrap().len();
    for seed in 1..=60 {
        let mut dice = Dice::seeded(seed);
        let rotten = place.copy();
        let log = rotten.data().join("journal.db-wal");
        flip(&log, dice.random_below(length), dice.random_below(8));
        let found = std::fs::read(&log).unwrap();
        match rotten.open() {
            Err(Error::Broken { .. }) => {
                assert!(break_of(&rotten).is_some(), "seed {seed}");
                // The damaged files are left unchanged for inspection.
                assert!(std::fs::read(&log).unwrap() == found, "seed {seed}");
            }
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(journal) => {
                // The damage hit bytes that no record depends on, such as spare bytes of the log.
                assert_eq!(journal.next().0, records.len() as u64 + 1, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_tail_cut_at_any_byte_is_never_taken_for_the_end() {
    let mut records = story(1);
    let place = left_open(&mut records);
    let length = std::fs::metadata(place.data().join("journal.db-wal")).unwrap().len();
    let tail = 40_000.min(length);
    for cut in (0..tail).step_by(997).chain([1, 2, tail - 1]) {
        let shorter = place.copy();
        let log = std::fs::OpenOptions::new()
            .write(true)
            .open(shorter.data().join("journal.db-wal"))
            .unwrap();
        log.set_len(length - cut).unwrap();
        match shorter.open() {
            Ok(journal) => assert_eq!(journal.next().0, records.len() as u64 + 1, "cut {cut}"),
            Err(error) => {
                assert!(matches!(error, Error::Broken { .. }), "cut {cut}: {error}");
                assert!(break_of(&shorter).is_some(), "cut {cut}");
            }
        }
    }
}

#[test]
fn a_commit_that_was_never_acknowledged_may_be_lost_without_a_break() {
    let mut records = story(1);
    let place = left_open(&mut records);
    // The mark from before the last commit; later records were not acknowledged.
    let sealed = place.records();
    let before = &sealed[sealed.len() - 3];
    let check =
        organism::ids::Digest::of_parts(&[&before.record.position.0.to_be_bytes(), &before.hash.0]);
    let mut mark = before.record.position.0.to_be_bytes().to_vec();
    mark.extend_from_slice(&before.hash.0);
    mark.extend_from_slice(&check.0[..8]);
    std::fs::write(place.watermark(), mark).unwrap();
    let path = place.data().join("journal.db-wal");
    let log = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    log.set_len(std::fs::metadata(&path).unwrap().len() - 100).unwrap();
    let journal = place.open().unwrap();
    assert!(journal.next() > before.record.position);
}

#[test]
fn a_row_before_the_first_record_is_a_break() {
    let columns = "tree, previous, previous_hash, time, hash, body, payloads, mac";
    for position in [0, -5] {
        let place = Place::with(&mut story(1));
        let insert = format!("INSERT INTO step SELECT ?1, {columns} FROM step WHERE position = 3");
        sql(&place).execute(&insert, [position]).unwrap();
        let expected = format!("a row before the first record has the position {position}");
        let refused = place.open().unwrap_err().to_string();
        assert!(refused.contains(&expected), "{refused}");
        assert_eq!(break_of(&place), Some(format!("1: {expected}")));

        let place = Place::with(&mut story(1));
        sql(&place).execute("INSERT INTO checkpoint VALUES (?1, '')", [position]).unwrap();
        assert_eq!(break_of(&place), Some(format!("1: {expected}")));
    }
}

#[test]
fn the_violation_with_the_lowest_position_is_reported() {
    let cases = [
        ("UPDATE step SET time = time + 1 WHERE position = 11", 3),
        ("UPDATE step SET body = body || ' ' WHERE position = 10", 5),
    ];
    for (change, wrong) in cases {
        let place = Place::with(&mut story(2));
        sql(&place).execute_batch(change).unwrap();
        put_wrong_mac(&place, wrong);
        let found = break_of(&place).unwrap();
        let expected = format!("{wrong}: the records up to here are not those that their MAC");
        assert!(found.starts_with(&expected), "{found}");
    }
}

/// Gives the record at `position` the MAC of a later record.
fn put_wrong_mac(place: &Place, position: u64) {
    let change = "UPDATE step SET mac = (SELECT mac FROM step WHERE position = 6) \
                  WHERE position = ?1";
    sql(place).execute(change, [position]).unwrap();
}

#[test]
fn a_wrong_mac_that_an_operator_accepted_behind_a_broken_record_is_not_the_failure() {
    let mut script = Script::default();
    let mut records = research(&mut script, "sess-tree0000");
    let details = [("accepted", "key"), ("from", "1"), ("to", "6")];
    let action = OperatorAction {
        verb: OperatorVerb::Repair,
        by: ListenerName::operator(),
        who: OperatorIdentity::default(),
        note: String::new(),
        details: Vec::from(details.map(|(name, value)| ActionDetail::new(name, value))),
    };
    records.push(script.step(&ThreadId::organism(), Input::Operator(action)).end());
    let place = Place::with(&mut records);
    put_wrong_mac(&place, 3);
    sql(&place).execute("UPDATE step SET time = time + 1 WHERE position = 5", []).unwrap();

    let report = verify(&place).unwrap();
    assert_eq!(report.broken.unwrap().position, 5);
    let is_named = |reason: &String| reason.contains("up to 3 are not those that their MAC");
    assert!(report.unproved.iter().any(is_named), "{:?}", report.unproved);
}

#[test]
fn a_damaged_watermark_or_checkpoint_of_a_replaced_journal_hides_no_replacement() {
    for is_watermark in [true, false] {
        let place = Place::with(&mut story(1));
        let replaced = place.watermark();
        let checkpoints = replaced.with_extension("checkpoints");
        if is_watermark {
            std::fs::write(&replaced, "garbage").unwrap();
            std::fs::remove_file(&checkpoints).unwrap();
        } else {
            std::fs::remove_file(&replaced).unwrap();
            std::fs::write(&checkpoints, "garbage\n").unwrap();
        }

        let other = Place::with(&mut story(1));
        for end in ["", "-wal", "-shm"] {
            let file = format!("{DATABASE}{end}");
            std::fs::remove_file(place.data().join(&file)).ok();
            std::fs::copy(other.data().join(&file), place.data().join(&file)).ok();
        }
        std::fs::copy(other.state().join("key"), place.state().join("key")).unwrap();

        let expected = "of which at least 1 records were acknowledged";
        let found = break_of(&place).unwrap();
        assert!(found.starts_with("1: this is another journal"), "{found}");
        assert!(found.contains(expected), "{found}");
        let refused = place.open().unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_damaged_watermark_is_no_break_and_is_replaced_by_a_start() {
    let place = Place::with(&mut story(1));
    let intact = std::fs::read(place.watermark()).unwrap();
    let longer = [intact.as_slice(), b"more"].concat();
    let damages: [&[u8]; 3] = [&intact[..10], &[0; 48], &longer];
    for damaged in damages {
        std::fs::write(place.watermark(), damaged).unwrap();
        let report = verify(&place).unwrap();
        assert_eq!((report.records, report.broken), (7, None));
        let is_named = |reason: &String| reason.contains(".watermark is damaged, so");
        assert!(report.unproved.iter().any(is_named), "{:?}", report.unproved);

        drop(place.open().unwrap());
        let report = verify(&place).unwrap();
        assert!(!report.unproved.iter().any(is_named), "{:?}", report.unproved);
    }

    std::fs::write(place.watermark(), &intact[..10]).unwrap();
    std::fs::remove_file(place.data().join(DATABASE)).unwrap();
    let refused = place.open().unwrap_err().to_string();
    assert!(refused.contains("journal.db is gone, and "), "{refused}");
}

#[test]
fn deleted_records_show_even_when_the_mark_beside_the_journal_is_deleted_too() {
    let place = Place::with(&mut story(2));
    let last = place.reader().last().unwrap().0;
    let db = sql(&place);
    db.execute("DELETE FROM step WHERE position > ?1", [last - 2]).unwrap();
    drop(db);
    let expected = format!("the journal is broken at position {}", last - 1);
    assert!(place.open().unwrap_err().to_string().starts_with(&expected));
    std::fs::remove_file(place.watermark()).unwrap();
    assert!(place.open().unwrap_err().to_string().starts_with(&expected));
    assert!(break_of(&place).unwrap().starts_with(&format!("{}: ", last - 1)));
}

#[test]
fn a_rewritten_record_shows_against_the_checkpoint_outside() {
    let place = Place::with(&mut story(1));
    let sealed = place.records().pop().unwrap();
    let mut forged = sealed.record.clone();
    forged.time = Time(forged.time.0 + 1);
    let mut body = Vec::new();
    forged.write_text(&mut body).unwrap();
    let hash = organism::journal::record_hash(&(&forged).into(), &body);
    let body = String::from_utf8(body).unwrap();
    let db = sql(&place);
    let rewrite = "UPDATE step SET body = ?2, hash = ?3, time = ?4 WHERE position = ?1";
    db.execute(rewrite, (forged.position.0, body, hash.0, forged.time.0)).unwrap();
    drop(db);
    std::fs::remove_file(place.watermark()).unwrap();
    let at = forged.position;
    let refused = place.open().unwrap_err().to_string();
    assert!(refused.contains(&format!("at position {at}: the records up to here")), "{refused}");
    assert!(break_of(&place).unwrap().starts_with(&format!("{at}: the records up to here")));
}

#[test]
fn a_lost_journal_file_is_not_silently_begun_anew() {
    let place = Place::with(&mut story(1));
    std::fs::remove_file(place.data().join(DATABASE)).unwrap();
    let refused = place.open().unwrap_err().to_string();
    assert!(refused.contains("journal.db is gone, but 7 records were acknowledged"), "{refused}");
}

#[test]
fn a_blanked_payload_keeps_the_chain_and_is_a_break_without_an_operators_record() {
    let place = Place::with(&mut story(1));
    let db = sql(&place);
    db.execute("UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = 3", [])
        .unwrap();
    drop(db);
    let report = verify(&place).unwrap();
    let broken = report.broken.unwrap();
    assert_eq!(broken.position, 3);
    assert!(broken.detail.contains("no operator's redaction is recorded"), "{}", broken.detail);
    let redacted: Vec<_> = report.redacted.iter().map(|r| r.position).collect();
    assert_eq!(redacted, [Position(3)]);
    let reader = place.reader();
    let sealed = reader.record(Position(3)).unwrap().unwrap();
    assert!(sealed.record.payloads().all(|payload| payload.is_redacted()));
    drop(reader);
    let refused = place.open().unwrap_err().to_string();
    assert!(refused.contains("--accept-redaction"), "{refused}");
}

#[test]
fn another_format_is_refused_by_name_and_nothing_is_changed() {
    let place = Place::with(&mut story(1));
    sql(&place).execute("UPDATE meta SET value = '99' WHERE key = 'format'", []).unwrap();
    let expected = |error: Error| {
        assert!(matches!(&error, Error::Format { found, .. } if found == "99"), "{error}");
    };
    expected(place.open().unwrap_err());
    expected(JournalReader::open(&place.data()).unwrap_err());
    let other = Place::new();
    std::fs::create_dir_all(other.data()).unwrap();
    let bytes = b"this is not a journal, it is somebody's letter".repeat(100);
    std::fs::write(other.data().join(DATABASE), &bytes).unwrap();
    assert!(matches!(other.open().unwrap_err(), Error::Unreadable { .. }));
    assert_eq!(std::fs::read(other.data().join(DATABASE)).unwrap(), bytes);
}

#[test]
fn a_pump_that_lost_its_journal_to_another_is_fenced_and_stops() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    journal.append(&mut [script.boot(1)]).unwrap();
    sql(&place).execute("UPDATE meta SET value = '2' WHERE key = 'epoch'", []).unwrap();
    let fenced = journal.append(&mut [script.boot(1)]).unwrap_err();
    assert!(matches!(fenced, Error::Fenced { ours: 1, theirs: 2 }), "{fenced}");
    let stopped = journal.append(&mut [script.boot(1)]).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert_eq!(place.reader().last().unwrap(), Position(1));
}

#[test]
fn a_full_disk_appends_nothing_and_room_again_needs_no_restart() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    journal.append(&mut [script.boot(1)]).unwrap();
    journal.set_pages_max(Some(1)).unwrap();
    let mut group: Vec<_> = (0..100).map(|_| script.boot(1)).collect();
    for _ in 0..3 {
        let full = journal.append(&mut group).unwrap_err();
        assert!(matches!(full, Error::Full { .. }), "{full}");
        assert_eq!(place.reader().last().unwrap(), Position(1));
    }
    journal.set_pages_max(None).unwrap();
    let hashes = journal.append(&mut group).unwrap();
    let head = journal.heads().resident(&ThreadId::organism()).unwrap();
    assert_eq!((head.position, Some(&head.hash)), (Position(101), hashes.last()));
    journal.close(Time(0)).unwrap();
    assert_eq!(break_of(&place), None);
}

/// While the disk is full, checkpoints are put off. Otherwise a full disk would end an idle pump,
/// which writes only checkpoints.
#[test]
fn a_checkpoint_is_put_off_while_the_disk_is_full() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let mut now = Time(0);
    let mut put_off = 0;
    for _ in 0..40 {
        journal.set_pages_max(None).unwrap();
        let record = script.boot(1);
        now = record.time.max(now).plus(limits::CHECKPOINT_INTERVAL);
        journal.append(&mut [record]).unwrap();
        journal.set_pages_max(Some(1)).unwrap();
        put_off += usize::from(!journal.checkpoint_if_due(now).unwrap());
    }
    assert!(put_off > 0, "the limit was never met");
    journal.close(now).unwrap();
    assert_eq!(break_of(&place), None);
}

#[test]
fn half_a_line_outside_and_lines_not_yet_there_are_made_good_at_the_next_start() {
    let place = Place::with(&mut story(1));
    let id = place.reader().about().unwrap().journal;
    let path = place.state().join(format!("{id}.checkpoints"));
    let whole = std::fs::read(&path).unwrap();
    for left in [0, 10, whole.len() - 1] {
        std::fs::write(&path, &whole[..left]).unwrap();
        drop(place.open().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{left} bytes were left");
    }
}

#[test]
fn only_the_owner_may_read_the_key() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::with(&mut story(1));
    let mode =
        |name: &str| std::fs::metadata(place.state().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("key") & 0o777, 0o600);
}

#[test]
fn metadata_that_starts_write_meanwhile_is_never_taken_for_damaged() {
    let place = Place::new();
    let metadata = || {
        place.open().unwrap().close(Time(0)).unwrap();
        let value = "SELECT (SELECT value FROM meta WHERE key = 'epoch'), \
                     (SELECT value FROM meta WHERE key = 'check')";
        let read = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?]);
        sql(&place).query_row(value, [], read).unwrap()
    };
    let starts: [[String; 2]; 2] = [metadata(), metadata()];
    assert_ne!(starts[0], starts[1]);

    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let db = sql(&place);
            for [epoch, check] in starts.iter().cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                db.execute_batch(&format!(
                    "BEGIN; UPDATE meta SET value = '{epoch}' WHERE key = 'epoch'; \
                     UPDATE meta SET value = '{check}' WHERE key = 'check'; COMMIT"
                ))
                .unwrap();
            }
        });
        let reader = place.reader();
        let mut reads = (0..2_000).map(|_| reader.about());
        let damaged = reads.find_map(Result::err);
        is_done.store(true, Ordering::Relaxed);
        assert!(damaged.is_none(), "{damaged:?}");
    });
}
