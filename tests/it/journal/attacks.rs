//! Attacks on a journal, with the result of each proof. The cases vary in three ways: the pump
//! runs, has stopped or was killed; the attacker has the key of the journal or lacks it; and a copy
//! of the checkpoints on other storage exists or is missing.

use std::path::{Path, PathBuf};

use organism::audit::{self, ProofReport, ProofVerdict, VerifyOptions};
use organism::clock::Time;
use organism::ids::{Digest, Position};
use organism::journal::sqlite::{DATABASE, JournalReader, SqliteJournal};
use organism::journal::{HashedRecord, Journal as _, OperatorAcceptance};
use organism::thread::Record;
use rusqlite::Connection;

use super::Place;
use super::script::{Script, research};

use ProofVerdict::{Broken, NotProved, Proved};

/// State of the pump when the attack begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pump {
    Stopped,
    Killed,
    Runs,
}

use Pump::{Killed, Runs, Stopped};

/// The evidence that a proof uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Auditor {
    /// The state directory.
    State,
    /// The state directory, without the checkpoints in it.
    WaryState,
    /// A copy of the checkpoints on other storage.
    Elsewhere,
    /// The public key alone.
    PublicKey,
    /// Only the journal.
    Nothing,
}

use Auditor::{Elsewhere, Nothing, PublicKey, State, WaryState};

/// Blobs that the first start lists.
const BLOBS: [&[u8]; 2] = [b"the config", b"the schema"];

/// A journal, an earlier copy of it with fewer records, and a copy of its checkpoints.
struct Scene {
    place: Place,
    earlier: Place,
    /// Directory of the copies of checkpoints.
    copy: PathBuf,
    public: String,
    /// The open journal, if the pump runs.
    journal: Option<SqliteJournal>,
}

fn records(script: &mut Script, tree: &str) -> Vec<Record> {
    research(script, tree)
}

impl Scene {
    fn new(pump: Pump) -> Self {
        let place = Place::new();
        let mut script = Script::default();
        let append = |journal: &mut SqliteJournal, script: &mut Script, trees: [&str; 2]| {
            let mut all: Vec<_> = trees.iter().flat_map(|tree| records(script, tree)).collect();
            for group in all.chunks_mut(3) {
                journal.append(group).unwrap();
            }
        };
        let mut journal = place.open().unwrap();
        let blobs = BLOBS.map(|bytes| journal.put_blob(bytes).unwrap());
        journal.append(&mut [script.boot_with(1, &blobs)]).unwrap();
        append(&mut journal, &mut script, ["sess-firsttree", "sess-othertree"]);
        journal.close(Time(0)).unwrap();
        let earlier = place.copy();

        let mut journal = place.open().unwrap();
        append(&mut journal, &mut script, ["sess-thirdtree", "sess-lasttree0"]);
        let public = journal.public_key().to_owned();
        let journal = match pump {
            Stopped => {
                journal.close(Time(0)).unwrap();
                None
            }
            Killed => {
                drop(journal);
                None
            }
            Runs => Some(journal),
        };
        let copy = place.home.path().join("elsewhere");
        std::fs::copy(checkpoints(&place), &copy).unwrap();
        Self { place, earlier, copy, public, journal }
    }

    /// A copy of a scene whose pump does not run.
    fn copy(&self) -> Self {
        assert!(self.journal.is_none());
        let (place, earlier) = (self.place.copy(), self.earlier.copy());
        let copy = place.home.path().join("elsewhere");
        std::fs::copy(&self.copy, &copy).unwrap();
        Self { place, earlier, copy, public: self.public.clone(), journal: None }
    }

    fn verify(&self, auditor: Auditor) -> ProofReport {
        let mut options = VerifyOptions::default();
        let state = Some(self.place.state());
        match auditor {
            State => options.state = state,
            WaryState => (options.state, options.distrust_state) = (state, true),
            Elsewhere => (options.state, options.copies) = (state, vec![self.copy.clone()]),
            PublicKey => (options.state, options.keys) = (state, vec![self.public.clone()]),
            Nothing => {}
        }
        match audit::verify_with(&self.place.data(), &options, &mut |_, _| {}) {
            Ok(report) => report,
            Err(error) => panic!("{error}"),
        }
    }
}

fn checkpoints(place: &Place) -> PathBuf {
    let journal = place.reader().about().unwrap().journal;
    place.state().join(format!("{journal}.checkpoints"))
}

fn sql(place: &Place, statement: &str) {
    let db = Connection::open(place.data().join(DATABASE)).unwrap();
    db.execute_batch(statement).unwrap();
}

fn last(place: &Place) -> HashedRecord {
    place.records().pop().unwrap()
}

/// Writes a record into the journal in `data`, with the correct hash. `mac` is an SQL expression
/// for its MAC.
pub fn put(data: &Path, record: &Record, mac: &str) {
    let mut body = Vec::new();
    record.write_text(&mut body).unwrap();
    let hash = organism::journal::record_hash(&record.into(), &body);
    let payloads: Vec<u8> =
        record.payloads().flat_map(|payload| payload.bytes.as_bytes().to_vec()).collect();
    let insert = format!(
        "INSERT OR REPLACE INTO step(position, tree, previous, previous_hash, time, hash, body, \
         payloads, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, {mac})"
    );
    let db = Connection::open(data.join(DATABASE)).unwrap();
    db.execute(
        &insert,
        (
            record.position.0,
            record.tree.as_str(),
            record.previous.0,
            record.previous_hash.0,
            record.time.0,
            hash.0,
            String::from_utf8(body).unwrap(),
            payloads,
        ),
    )
    .unwrap();
}

/// Appends a record that no pump wrote.
fn append(place: &Place, mac: &str) {
    let HashedRecord { mut record, hash, .. } = last(place);
    record.previous = record.position;
    record.previous_hash = hash;
    record.position = Position(record.position.0 + 1);
    record.time = Time(record.time.0 + 1);
    record.facts.clear();
    put(&place.data(), &record, mac);
}

/// Changes the time of the last record, and recomputes every value that needs no key.
fn edit(place: &Place, mac: &str) {
    let HashedRecord { mut record, .. } = last(place);
    record.time = Time(record.time.0 + 1);
    put(&place.data(), &record, mac);
}

fn cut(place: &Place, records: u64) {
    let from = last(place).record.position.0 + 1 - records;
    sql(place, &format!("DELETE FROM step WHERE position >= {from}"));
    sql(place, &format!("DELETE FROM checkpoint WHERE position >= {from}"));
    forget_trees(place);
}

fn forget_trees(place: &Place) {
    sql(place, "DELETE FROM tree; UPDATE meta SET value = '0' WHERE key = 'refreshed'");
}

/// Writes to `file` a watermark, which names the last record of the journal as acknowledged.
fn forge_mark(place: &Place, file: &Path) {
    let last = last(place);
    let mut mark = [&last.record.position.0.to_be_bytes()[..], &last.hash.0].concat();
    let check = Digest::of(&mark);
    mark.extend_from_slice(&check.0[..8]);
    std::fs::write(file, mark).unwrap();
}

fn forget_mark(place: &Place) {
    std::fs::remove_file(place.watermark()).unwrap();
}

fn forget_copies(place: &Place) {
    std::fs::remove_file(checkpoints(place)).unwrap();
}

/// Replaces directory `to` by a copy of directory `from`.
pub fn replace(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).unwrap();
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Appends a different tail to the earlier copy, with a program that has the key.
fn forge_with_key(scene: &Scene) {
    let mut journal = scene.earlier.open().unwrap();
    let mut script = Script::default();
    let mut more: Vec<_> = (0..30).map(|_| script.boot(2)).collect();
    journal.append(&mut more).unwrap();
    journal.close(Time(0)).unwrap();
}

/// Appends a different tail to the earlier copy, with a program that has a new key of the attacker.
fn forge_with_new_key(scene: &Scene) {
    std::fs::remove_file(scene.earlier.state().join("key")).unwrap();
    let (data, state) = (scene.earlier.data(), scene.earlier.state());
    let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
    let journal =
        SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
    drop(journal);
    let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
    let mut journal =
        SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
    let mut script = Script::default();
    let mut more: Vec<_> = (0..30).map(|_| script.boot(3)).collect();
    journal.append(&mut more).unwrap();
    journal.close(Time(0)).unwrap();
}

fn put_data_back(scene: &Scene) {
    replace(&scene.earlier.data(), &scene.place.data());
}

fn put_state_back(scene: &Scene) {
    replace(&scene.earlier.state(), &scene.place.state());
}

type Attack = (&'static str, Pump, fn(&Scene), Auditor, ProofVerdict);

const NO_KEY: &[Attack] = &[
    ("nothing", Stopped, |_| {}, State, NotProved),
    ("nothing", Killed, |_| {}, State, NotProved),
    ("nothing", Runs, |_| {}, State, NotProved),
    ("nothing", Stopped, |_| {}, Elsewhere, Proved),
    ("nothing", Killed, |_| {}, Elsewhere, Proved),
    ("nothing", Runs, |_| {}, Elsewhere, Proved),
    ("nothing", Stopped, |_| {}, Nothing, NotProved),
    ("append without a MAC", Stopped, |s| append(&s.place, "NULL"), State, Broken),
    ("append without a MAC", Killed, |s| append(&s.place, "NULL"), State, Broken),
    ("append without a MAC", Runs, |s| append(&s.place, "NULL"), State, Broken),
    ("append without a MAC", Stopped, |s| append(&s.place, "NULL"), Nothing, Broken),
    ("append with a copied MAC", Killed, |s| append(&s.place, LAST_MAC), State, Broken),
    (
        "append, forget the mark",
        Stopped,
        |s| {
            forget_mark(&s.place);
            append(&s.place, "NULL")
        },
        State,
        Broken,
    ),
    ("edit the tail", Killed, |s| edit(&s.place, LAST_MAC), State, Broken),
    (
        "edit the tail, forget the mark",
        Killed,
        |s| {
            edit(&s.place, LAST_MAC);
            forget_mark(&s.place)
        },
        State,
        Broken,
    ),
    ("edit the tail", Runs, |s| edit(&s.place, LAST_MAC), State, Broken),
    ("edit what is signed", Stopped, |s| edit(&s.place, LAST_MAC), State, Broken),
    ("edit what is signed", Stopped, |s| edit(&s.place, LAST_MAC), Nothing, Broken),
    ("cut a commit", Killed, |s| cut(&s.place, 2), State, Broken),
    (
        "cut the last checkpoint along, forget the mark",
        Stopped,
        |s| {
            cut(&s.place, 5);
            forget_mark(&s.place)
        },
        State,
        Broken,
    ),
    (
        "cut half a commit",
        Killed,
        |s| {
            cut(&s.place, 1);
            forget_mark(&s.place)
        },
        State,
        Broken,
    ),
    ("cut all", Stopped, |s| cut(&s.place, last(&s.place).record.position.0), State, Broken),
    (
        "remove a tree",
        Stopped,
        |s| {
            sql(&s.place, "DELETE FROM step WHERE tree = 'sess-thirdtree'");
            forget_trees(&s.place)
        },
        State,
        Broken,
    ),
    ("reorder", Stopped, reorder, State, Broken),
    ("splice another tree", Stopped, splice, State, Broken),
    (
        "delete the last MAC",
        Killed,
        |s| {
            sql(
                &s.place,
                "UPDATE step SET mac = NULL WHERE position = (SELECT max(position) FROM step)",
            )
        },
        State,
        Broken,
    ),
    (
        "delete a MAC",
        Killed,
        |s| {
            sql(
                &s.place,
                "UPDATE step SET mac = NULL WHERE position = \
                 (SELECT max(position) FROM step WHERE mac IS NOT NULL AND position <= 20)",
            )
        },
        State,
        Broken,
    ),
    ("delete all MACs", Stopped, |s| sql(&s.place, "UPDATE step SET mac = NULL"), State, Broken),
    (
        "delete all MACs",
        Stopped,
        |s| sql(&s.place, "UPDATE step SET mac = NULL"),
        Nothing,
        NotProved,
    ),
    ("delete the checkpoints", Stopped, |s| sql(&s.place, "DELETE FROM checkpoint"), State, Broken),
    (
        "delete the checkpoints",
        Stopped,
        |s| sql(&s.place, "DELETE FROM checkpoint"),
        Nothing,
        NotProved,
    ),
    (
        "blank every payload",
        Stopped,
        |s| sql(&s.place, "UPDATE step SET payloads = zeroblob(length(payloads))"),
        State,
        Broken,
    ),
    (
        "blank every payload",
        Runs,
        |s| sql(&s.place, "UPDATE step SET payloads = zeroblob(length(payloads))"),
        State,
        Broken,
    ),
    (
        "add a blob under another digest",
        Stopped,
        |s| sql(&s.place, "INSERT INTO blob VALUES (printf('%064d', 0), x'01')"),
        State,
        Broken,
    ),
    ("rename a blob beside its index", Stopped, rename_blob, State, Broken),
    ("swap two blobs", Stopped, swap_blobs, State, Broken),
    ("swap two blobs", Runs, swap_blobs, Elsewhere, Broken),
    ("delete every blob", Stopped, |s| sql(&s.place, "DELETE FROM blob"), State, Broken),
    ("delete every blob", Killed, |s| sql(&s.place, "DELETE FROM blob"), Nothing, Broken),
    ("delete every blob", Runs, |s| sql(&s.place, "DELETE FROM blob"), State, Broken),
    (
        "append, and forge a mark beside the journal",
        Stopped,
        |s| {
            append(&s.place, "NULL");
            forge_mark(&s.place, &s.place.data().join("watermark"))
        },
        State,
        Broken,
    ),
    (
        "append, and forge the mark",
        Stopped,
        |s| {
            append(&s.place, LAST_MAC);
            forge_mark(&s.place, &s.place.watermark())
        },
        State,
        Broken,
    ),
    (
        "append, and forge the mark",
        Killed,
        |s| {
            append(&s.place, "NULL");
            forge_mark(&s.place, &s.place.watermark())
        },
        Elsewhere,
        Broken,
    ),
    (
        "cut the tail, and forge the mark",
        Stopped,
        |s| {
            cut(&s.place, 5);
            forge_mark(&s.place, &s.place.watermark())
        },
        State,
        Broken,
    ),
    ("put old data back", Stopped, put_data_back, State, Broken),
    ("put old data back", Stopped, put_data_back, Elsewhere, Broken),
    ("put old state back", Stopped, put_state_back, State, NotProved),
    ("put old state back", Stopped, put_state_back, Elsewhere, Proved),
    (
        "put both back",
        Stopped,
        |s| {
            put_data_back(s);
            put_state_back(s)
        },
        Elsewhere,
        Broken,
    ),
    (
        "put both back",
        Stopped,
        |s| {
            put_data_back(s);
            put_state_back(s)
        },
        WaryState,
        NotProved,
    ),
    (
        "another key, old state",
        Stopped,
        |s| {
            forge_with_new_key(s);
            put_data_back(s)
        },
        State,
        Broken,
    ),
    (
        "another key, no copies",
        Stopped,
        |s| {
            forge_with_new_key(s);
            forget_mark(&s.place);
            forget_copies(&s.place);
            put_data_back(s)
        },
        State,
        NotProved,
    ),
    (
        "another key",
        Stopped,
        |s| {
            forge_with_new_key(s);
            put_data_back(s)
        },
        Elsewhere,
        Broken,
    ),
    (
        "another key everywhere",
        Stopped,
        |s| {
            forge_with_new_key(s);
            put_data_back(s);
            put_state_back(s)
        },
        PublicKey,
        NotProved,
    ),
    (
        "another key everywhere",
        Stopped,
        |s| {
            forge_with_new_key(s);
            put_data_back(s);
            put_state_back(s)
        },
        Elsewhere,
        Broken,
    ),
];

const WITH_KEY: &[Attack] = &[
    (
        "rewrite",
        Stopped,
        |s| {
            forge_with_key(s);
            put_data_back(s)
        },
        State,
        Broken,
    ),
    (
        "rewrite",
        Killed,
        |s| {
            forge_with_key(s);
            put_data_back(s)
        },
        State,
        Broken,
    ),
    (
        "rewrite",
        Runs,
        |s| {
            forge_with_key(s);
            put_data_back(s)
        },
        State,
        Broken,
    ),
    ("rewrite, remove the copies", Runs, rewrite_without_copies, State, NotProved),
    ("rewrite data and state", Runs, rewrite_data_and_state, State, NotProved),
    ("rewrite data and state", Runs, rewrite_data_and_state, WaryState, NotProved),
    // The pump signed no checkpoint after the kept copy.
    ("rewrite data and state", Runs, rewrite_data_and_state, Elsewhere, NotProved),
    ("rewrite, remove the copies", Stopped, rewrite_without_copies, State, NotProved),
    ("rewrite, remove the copies", Stopped, rewrite_without_copies, Elsewhere, Broken),
    ("rewrite, remove the copies", Killed, rewrite_without_copies, State, NotProved),
    ("rewrite data and state", Stopped, rewrite_data_and_state, State, NotProved),
    ("rewrite data and state", Stopped, rewrite_data_and_state, WaryState, NotProved),
    ("rewrite data and state", Stopped, rewrite_data_and_state, Elsewhere, Broken),
    ("rewrite data and state", Killed, rewrite_data_and_state, State, NotProved),
    ("rewrite data and state", Killed, rewrite_data_and_state, WaryState, NotProved),
    // The pump signed no checkpoint after the kept copy.
    ("rewrite data and state", Killed, rewrite_data_and_state, Elsewhere, NotProved),
];

fn rewrite_data_and_state(scene: &Scene) {
    forge_with_key(scene);
    put_data_back(scene);
    put_state_back(scene);
}

/// SQL expression for the MAC of the last commit.
pub const LAST_MAC: &str =
    "(SELECT mac FROM step WHERE mac IS NOT NULL ORDER BY position DESC LIMIT 1)";

fn rewrite_without_copies(scene: &Scene) {
    forge_with_key(scene);
    forget_mark(&scene.place);
    forget_copies(&scene.place);
    put_data_back(scene);
}

/// Changes the digest of a blob in its table, and not in the index by which the blob is found.
fn rename_blob(scene: &Scene) {
    let file = scene.place.data().join(DATABASE);
    let mut bytes = std::fs::read(&file).unwrap();
    let [blob, _] = BLOBS;
    let digest = Digest::of(blob).to_string();
    // Only the row of the table has the bytes of the blob behind the digest.
    let row = [digest.as_bytes(), blob].concat();
    let at = bytes.windows(row.len()).position(|window| window == row).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
}

/// Swaps the contents of two blobs.
fn swap_blobs(scene: &Scene) {
    sql(
        &scene.place,
        "UPDATE blob SET bytes = CASE bytes \
         WHEN CAST('the config' AS BLOB) THEN CAST('the schema' AS BLOB) \
         ELSE CAST('the config' AS BLOB) END",
    );
}

fn reorder(scene: &Scene) {
    sql(
        &scene.place,
        "UPDATE step SET position = 1000 WHERE position = 20; \
         UPDATE step SET position = 20 WHERE position = 21; \
         UPDATE step SET position = 21 WHERE position = 1000",
    );
}

/// Appends the last record once more, as a continuation of another tree.
fn splice(scene: &Scene) {
    let all = scene.place.records();
    let mut record = all.last().unwrap().record.clone();
    let other = all.iter().rfind(|sealed| sealed.record.tree.as_str() == "sess-firsttree").unwrap();
    record.tree = other.record.tree.clone();
    record.previous = other.record.position;
    record.previous_hash = other.hash;
    record.facts.clear();
    put(&scene.place.data(), &record, LAST_MAC);
}

fn judge(attacks: &[Attack]) {
    let [stopped, killed] = [Stopped, Killed].map(Scene::new);
    for (number, (name, pump, attack, auditor, expected)) in attacks.iter().enumerate() {
        let scene = match pump {
            Stopped => stopped.copy(),
            Killed => killed.copy(),
            Runs => Scene::new(Runs),
        };
        attack(&scene);
        let report = scene.verify(*auditor);
        let case = format!("{number}: {name}, pump {pump:?}, auditor has {auditor:?}");
        assert_eq!(report.verdict, *expected, "{case}: {:?} {:?}", report.broken, report.unproved);
        drop(scene.journal);
    }
}

#[test]
fn an_attack_without_the_key_is_never_proved() {
    judge(NO_KEY);
}

#[test]
fn an_attack_with_the_key_shows_against_a_copy_elsewhere_and_is_never_proved_without() {
    judge(WITH_KEY);
}

#[test]
fn a_start_refuses_a_tail_without_a_mac_and_continues_after_its_removal() {
    for forge in [|s: &Scene| append(&s.place, "NULL"), |s: &Scene| edit(&s.place, LAST_MAC)] {
        let scene = Scene::new(Killed);
        let before = last(&scene.place).record.position;
        forge(&scene);
        let refused = scene.place.open().unwrap_err().to_string();
        assert!(
            refused.contains("organism repair --accept-loss") || refused.contains("not the record"),
            "{refused}"
        );

        let (data, state) = (scene.place.data(), scene.place.state());
        let accept = OperatorAcceptance { loss: true, ..OperatorAcceptance::default() };
        let mut journal =
            SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
        let out = journal.found().taken_out.clone().unwrap();
        assert!(out.first <= Position(before.0 + 1), "{out:?}");
        assert!(std::fs::read_to_string(&out.file).unwrap().lines().count() > 0);
        journal.append(&mut [Script::default().boot(3)]).unwrap();
        journal.close(Time(0)).unwrap();
        scene.place.open().unwrap();
    }
}

#[test]
fn a_start_refuses_older_data_another_key_and_a_journal_from_before_macs_until_it_is_accepted() {
    let scene = Scene::new(Stopped);
    put_data_back(&scene);
    let refused = scene.place.open().unwrap_err().to_string();
    assert!(refused.contains("organism repair --accept-loss"), "{refused}");

    let scene = Scene::new(Stopped);
    std::fs::remove_file(scene.place.state().join("key")).unwrap();
    let refused = scene.place.open().unwrap_err().to_string();
    assert!(refused.contains("organism repair --accept-key"), "{refused}");
    let (data, state) = (scene.place.data(), scene.place.state());
    let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
    let mut journal =
        SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();
    scene.place.open().unwrap();
    let report = scene.verify(State);
    assert_eq!(report.key_changes.len(), 2, "{:?}", report.key_changes);

    let scene = Scene::new(Stopped);
    let mark = std::fs::read(scene.place.watermark()).unwrap();
    forget_mark(&scene.place);
    std::fs::write(scene.place.data().join("watermark"), mark).unwrap();
    sql(&scene.place, "UPDATE step SET mac = NULL");
    let refused = scene.place.open().unwrap_err().to_string();
    assert!(refused.contains("organism adopt"), "{refused}");
    let (data, state) = (scene.place.data(), scene.place.state());
    let accept = OperatorAcceptance { without_mac: true, ..OperatorAcceptance::default() };
    let mut journal =
        SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
    assert!(journal.found().without_mac);
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();
    scene.place.open().unwrap();
    assert_eq!(JournalReader::open(&data).unwrap().last().unwrap(), journal_end(&scene));
}

fn journal_end(scene: &Scene) -> Position {
    last(&scene.place).record.position
}
