//! Tests of an index that is missing, damaged, of another version or of another journal. The index
//! is made again, and the new index gives the same answers as an undamaged index.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use organism::audit::{self, SearchRequest};
use organism::ids::Position;
use organism::index::{self, INDEX_DATABASE, INDEX_LOCK, SearchFilter};
use organism::journal::Journal as _;
use organism::journal::sqlite::DATABASE;
use organism::limits;
use organism::thread::{ActionDetail, Input, OperatorAction, OperatorIdentity, OperatorVerb};

use super::{command, contents, organism, rows, text, try_rows, with_index};
use crate::journal::Place;
use crate::journal::script::{Script, name, research, thread};

fn researched(root: &str) -> Place {
    Place::with(&mut research(&mut Script::default(), root))
}

fn file(place: &Place) -> PathBuf {
    place.data().join(INDEX_DATABASE)
}

/// Writes `bytes` into the closed index at `offset`.
fn overwrite(place: &Place, offset: usize, bytes: &[u8]) {
    let mut whole = std::fs::read(file(place)).unwrap();
    whole[offset..offset + bytes.len()].copy_from_slice(bytes);
    std::fs::write(file(place), whole).unwrap();
}

fn change(place: &Place, sql: &str) {
    rusqlite::Connection::open(file(place)).unwrap().execute_batch(sql).unwrap();
}

/// Issue 17, 3.1 and design 8.15: whatever happens to the file of the index, the answers stay the
/// same, and no person has to run a command.
#[test]
fn a_damaged_index_is_made_anew() {
    type Damage = fn(&Place);
    let cases: [(&str, Damage); 10] = [
        ("deleted", |place| std::fs::remove_file(file(place)).unwrap()),
        ("empty", |place| drop(File::create(file(place)).unwrap())),
        ("cut", |place| {
            let whole = std::fs::read(file(place)).unwrap();
            std::fs::write(file(place), &whole[..whole.len() / 2]).unwrap();
        }),
        ("no database", |place| std::fs::write(file(place), "not a database").unwrap()),
        ("a bit of the header", |place| overwrite(place, 3, b"\xff")),
        ("a page of zeros", |place| overwrite(place, 3 * 8192, &[0; 8192])),
        ("other version", |place| {
            change(place, "UPDATE meta SET value = '0' WHERE key = 'format'");
        }),
        ("other journal", |place| {
            let other = researched("sess-zzzzzzzz");
            assert_eq!(rows(&other.data(), "SELECT 1"), ["1"]);
            std::fs::copy(file(&other), file(place)).unwrap();
        }),
        ("other end", |place| change(place, "UPDATE meta SET value = 'x' WHERE key = 'hash'")),
        ("no table", |place| change(place, "DROP TABLE message_row")),
    ];

    let place = researched("sess-abcdefgh");
    let whole = contents(&place.data());
    for (case, damage) in cases {
        damage(&place);
        assert_eq!(contents(&place.data()), whole, "{case}");
    }
    // A journal that was repaired may be shorter than its index.
    change(&place, "UPDATE meta SET value = '99' WHERE key = 'position'");
    assert_eq!(contents(&place.data()), whole, "a longer index");
}

/// A truncated index is made again even while a reader has its file open, as a web view has between
/// its queries.
#[test]
fn an_index_that_is_truncated_while_a_reader_has_it_open_is_made_anew() {
    let place = researched("sess-abcdefgh");
    let whole = contents(&place.data());
    let reader = rusqlite::Connection::open(file(&place)).unwrap();
    let known = reader.query_row("SELECT count(*) FROM meta", [], |row| row.get::<_, u64>(0));
    assert!(known.unwrap() > 0);

    // Another process truncates the file: closing it in this one would release the reader's locks.
    let truncate = Command::new("truncate").args(["-s", "0"]).arg(file(&place)).status();
    assert!(truncate.unwrap().success());
    assert_eq!(contents(&place.data()), whole);
    assert!(reader.is_autocommit(), "the reader stays open until here");
}

/// A query with a number or a character that SQLite does not take leaves the index as it is.
#[test]
fn a_query_with_an_extreme_value_leaves_the_index() {
    let place = researched("sess-abcdefgh");
    let data = place.data();
    let id = rows(&data, "SELECT id FROM message WHERE seq = 1").remove(0);
    change(&place, "INSERT INTO meta(key, value) VALUES ('mark', 'set')");

    let shown = organism(&place, &["message", &id, "--limit", &u64::MAX.to_string()]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));

    let found = |words: &str| {
        let filter = SearchFilter { words: words.to_owned(), ..SearchFilter::default() };
        let request = SearchRequest { filter, limit: 9, ..SearchRequest::default() };
        with_index(&data, &mut |reader| audit::search(reader, &request)).unwrap().items
    };
    assert_eq!(found("login\0verify*"), found("login verify*"));
    assert_eq!(found("\"login\0name\"").len(), 1);

    let root = thread("sess-abcdefgh");
    let branches =
        with_index(&data, &mut |reader| reader.child_branches(&root, u64::MAX, usize::MAX));
    assert_eq!(branches.unwrap().len(), 0);
    let boot = with_index(&data, &mut |reader| reader.boot_before(Position(u64::MAX)));
    assert!(matches!(boot, Err(index::Error::Query { .. })), "{boot:?}");

    let db = rusqlite::Connection::open(file(&place)).unwrap();
    let marks = "SELECT count(*) FROM meta WHERE key = 'mark'";
    let marks: u64 = db.query_row(marks, [], |row| row.get(0)).unwrap();
    assert_eq!(marks, 1);
}

/// Issue 17, 3.1: if a command dies in a commit of the index, the next command completes the index.
#[test]
fn a_command_that_is_killed_leaves_an_index_that_is_completed() {
    for failpoint in organism::failpoint::INDEX {
        let place = researched("sess-abcdefgh");
        let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
        let killed = killed.env("ORGANISM_FAILPOINT", failpoint).output().unwrap();
        assert_eq!(killed.status.code(), None, "{failpoint}: {}", text(&killed.stderr));

        assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"], "{failpoint}");
        let completed = contents(&place.data());
        std::fs::remove_file(file(&place)).unwrap();
        assert_eq!(contents(&place.data()), completed, "{failpoint}");
    }
}

/// If a command dies after it has renamed an index for deletion, the next query deletes the renamed
/// file. This file may contain words that an operator has redacted since.
#[test]
fn an_index_whose_removal_was_interrupted_does_not_stay() {
    let place = researched("sess-abcdefgh");
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);
    let renamed = file(&place).with_extension("db-deleted");
    std::fs::rename(file(&place), &renamed).unwrap();
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);
    assert!(!renamed.exists());
}

/// Issue 17, 3.4: a query waits at most five seconds for another writer of an index that lacks a few
/// records. Then it answers from the present contents of the index, and states that the index is
/// behind.
#[test]
fn a_query_waits_some_seconds_for_another_writer_and_states_how_far_the_index_is() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let (first, rest) = records.split_at_mut(3);
    journal.append(first).unwrap();

    let lock = File::create(place.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    let nothing = try_rows(&place.data(), "SELECT 1").unwrap_err();
    assert!(matches!(nothing, index::Error::Building { .. }), "{nothing}");

    lock.unlock().unwrap();
    assert_eq!(rows(&place.data(), "SELECT max(position) FROM message"), ["3"]);
    journal.append(rest).unwrap();
    lock.lock().unwrap();
    let begun = Instant::now();
    let behind = organism(&place, &["sql", "--csv", "SELECT max(position) FROM message"]);
    assert!(begun.elapsed() >= limits::INDEX_NEAR_WAIT);
    assert_eq!(text(&behind.stdout), "max(position)\r\n3\r\n");
    assert!(text(&behind.stderr).contains("record 3 of 7"), "{}", text(&behind.stderr));

    // Complete again, the index needs no writer.
    lock.unlock().unwrap();
    assert_eq!(rows(&place.data(), "SELECT max(position) FROM message"), ["7"]);
    lock.lock().unwrap();
    assert_eq!(rows(&place.data(), "SELECT max(position) FROM message"), ["7"]);
}

/// Issue 17, 3.4: many commands at once share one index.
#[test]
fn queries_at_the_same_time_get_the_same_answer() {
    let place = researched("sess-abcdefgh");
    let data = place.data();
    std::thread::scope(|scope| {
        let ask = || rows(&data, "SELECT count(*) FROM message");
        let answers: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        for answer in answers {
            assert_eq!(answer.join().unwrap(), ["10"]);
        }
    });
}

/// Design 8.18: if an operator redacts a payload, the words of the payload disappear from the
/// index, and the file that contained the words is deleted.
#[test]
fn redacted_payloads_leave_the_index() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::with(&mut records);
    let logins = || text(&organism(&place, &["search", "--count", "login"]).stdout);
    assert_eq!(logins(), "4\n");
    let before = rows(&place.data(), "SELECT first_words FROM tree");
    assert_eq!(before, ["How is a login checked, & where?"]);

    redact(&place, 1);

    assert_eq!(rows(&place.data(), "SELECT first_words FROM tree LIMIT 1"), ["-"]);
    assert_eq!(logins(), "3\n");
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message WHERE redacted"), ["1"]);
    let bytes = std::fs::read(file(&place)).unwrap();
    let words = b"How is a login";
    assert!(!bytes.windows(words.len()).any(|part| part == words));
    assert_eq!(rows(&place.data(), "SELECT action, person FROM action"), ["repair | operator"]);
}

/// Makes the payloads of the record at `position` unreadable, and records that an operator accepted
/// this redaction.
pub fn redact(place: &Place, position: u64) {
    let db = rusqlite::Connection::open(place.data().join(DATABASE)).unwrap();
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = ?1";
    db.execute(blank, [position]).unwrap();
    drop(db);
    let action = OperatorAction {
        verb: OperatorVerb::Repair,
        by: name("operator"),
        who: OperatorIdentity::default(),
        note: String::new(),
        details: vec![ActionDetail::new("redacted", position)],
    };
    let mut script = Script::default();
    let record = script.step(&thread("sess-organism"), Input::Operator(action)).end();
    append_unproved(place, record);
}

/// Appends a record as `organism repair` does: opens the journal although the redacted payloads
/// would make a normal start refuse it.
fn append_unproved(place: &Place, record: organism::thread::Record) {
    use organism::journal::{OperatorAcceptance, sqlite::SqliteJournal};
    let accept = OperatorAcceptance { redaction: true, ..OperatorAcceptance::default() };
    let (data, state) = (place.data(), place.state());
    let mut journal =
        SqliteJournal::open_with_copies(&data, &state, None, accept, &mut |_| Ok(())).unwrap();
    let time = record.time;
    journal.append(&mut [record]).unwrap();
    Box::new(journal).close(time).unwrap();
}

/// A reader that found damage in an index that was replaced meanwhile requests no rebuild of the new
/// index.
#[test]
fn damage_in_a_replaced_index_causes_no_rebuild_of_its_successor() {
    let place = researched("sess-abcdefgh");
    assert_eq!(rows(&place.data(), "SELECT 1"), ["1"]);
    let lock = File::create(place.data().join(INDEX_LOCK)).unwrap();
    let mut is_replaced = false;
    let answer = with_index(&place.data(), &mut |reader| {
        if !std::mem::replace(&mut is_replaced, true) {
            lock.lock().unwrap();
            let copy = file(&place).with_extension("copy");
            std::fs::copy(file(&place), &copy).unwrap();
            std::fs::rename(copy, file(&place)).unwrap();
        }
        let failed = reader.connection().query_row("SELECT 1 FROM nothing", [], |_| Ok(()));
        failed.map_err(|error| reader.failed(error))
    });
    assert!(matches!(answer, Err(index::Error::Building { .. })), "{answer:?}");
    assert!(!place.data().join("index.db-rebuild").exists());
}

/// Beside a running organism of another version, a command states the cause and the remedy.
#[test]
fn a_query_beside_a_writer_of_another_version_says_so() {
    let place = researched("sess-abcdefgh");
    assert_eq!(rows(&place.data(), "SELECT 1"), ["1"]);
    change(&place, "UPDATE meta SET value = '17' WHERE key = 'format'");
    let lock = File::create(place.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();

    let refused = organism(&place, &["threads"]);
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused.stderr));
    let error = text(&refused.stderr);
    assert!(error.contains("has the version 17."), "{error}");
    assert!(error.contains("restart it"), "{error}");

    lock.unlock().unwrap();
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);
}
