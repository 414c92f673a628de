//! The first build of an index. The index of a long journal is made in separate files, and is the
//! same as an index that has followed the journal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use organism::envelope::MessageKind;
use organism::failpoint::{INDEX, INDEX_BUILD};
use organism::ids::{MessageId, Position};
use organism::index::{FollowResult, INDEX_DATABASE, INDEX_LOCK, follow};
use organism::journal::Journal as _;
use organism::journal::sqlite::JournalReader;
use organism::thread::{Fact, Record};

use super::damage::redact;
use super::{command, contents, organism, rows, text};
use crate::journal::Place;
use crate::journal::script::{Script, research, thread};

/// Number of researches in the journal. With so many records, the index is made by a first build.
const TREES: usize = 572;

/// Number of records that [`researches`] adds after the last research.
const LATE: usize = 3;

/// Returns the records of many researches, and then of a further question. The last two records
/// refer to a call of the first research, which ended long ago: a note with this call as its cause,
/// and an outcome of this call.
fn researches() -> Vec<Record> {
    let mut script = Script::default();
    let mut records = Vec::new();
    let mut first_call = None;
    for n in 0..TREES {
        let root = format!("sess-tree{n:05}");
        records.extend(research(&mut script, &root));
        first_call = first_call.or_else(|| records.first().and_then(accepted));
    }
    let tree = thread("sess-lateone1");
    let (asked, question) = script.question(&tree, "Once more?");
    let mut step = script.outcome(&tree, "researcher", asked);
    let note = "<thinking xmlns=\"https://xml-pipeline.org/ns/core/v1\">again</thinking>";
    step.say(MessageKind::Note, "researcher", "researcher", "thinking", note, first_call);
    let noted = step.end();
    records.extend([question, noted]);
    let late = script.outcome(&thread("sess-tree00000"), "researcher", first_call.unwrap());
    records.push(late.end());
    records
}

/// A closed journal with these researches, in few commits. Each caller gets a copy of its own.
pub fn researched() -> Place {
    original().copy()
}

/// The journal that [`researched`] copies. It is written once for the tests that run at the same
/// time.
fn original() -> Arc<Place> {
    static ORIGINAL: Mutex<Weak<Place>> = Mutex::new(Weak::new());
    let mut original = ORIGINAL.lock().unwrap();
    original.upgrade().unwrap_or_else(|| {
        let written = Arc::new(written());
        *original = Arc::downgrade(&written);
        written
    })
}

fn written() -> Place {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut records = researches();
    for portion in records.chunks_mut(500) {
        journal.append(portion).unwrap();
    }
    let last = records.last().unwrap().time;
    Box::new(journal).close(last).unwrap();
    place
}

fn accepted(record: &Record) -> Option<MessageId> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message.id),
        _ => None,
    })
}

fn file(place: &Place, suffix: &str) -> PathBuf {
    place.data().join(format!("{INDEX_DATABASE}{suffix}"))
}

fn remove(place: &Place) {
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(file(place, suffix)).ok();
    }
}

/// Returns the causes of all messages as the index stores them: the number of the causing message,
/// or the id of a cause that is not on record.
fn causes(place: &Place) -> Vec<String> {
    let db = rusqlite::Connection::open(file(place, "")).unwrap();
    let mut query = db.prepare("SELECT quote(cause) FROM message_row ORDER BY n").unwrap();
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Returns the answers to several searches. Searches read the table of words.
fn found(place: &Place) -> BTreeMap<&'static str, String> {
    let search = |words| text(&organism(place, &["search", "--count", words]).stdout);
    ["\"login checked\"", "verif*", "again"]
        .into_iter()
        .map(|words| (words, search(words)))
        .collect()
}

fn assert_no_build(place: &Place) {
    for entry in std::fs::read_dir(place.data()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.contains("building"), "{name}");
    }
}

/// Issue 17, 3.1: an index that is made at once has the same rows and words as an index that
/// followed the journal in small steps. This includes references to messages that ended long ago.
#[test]
fn a_first_build_makes_the_index_that_following_makes() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut records = researches();
    for portion in records.chunks_mut(500) {
        journal.append(portion).unwrap();
        rows(&place.data(), "SELECT 1");
    }
    let followed = (contents(&place.data()), found(&place));
    assert_eq!(followed.1["again"], "1\n");
    let caused = causes(&place);

    remove(&place);
    assert_eq!((contents(&place.data()), found(&place)), followed);
    assert_eq!(causes(&place), caused);
    assert_no_build(&place);

    // The index goes on as any other.
    let mut more = research(&mut Script::default(), "sess-morexxxx");
    journal.append(&mut more).unwrap();
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM tree"), [(TREES + 2).to_string()]);
}

/// Issue 17, 3.1: if a build is killed at any point, the next query completes the build, and
/// deletes the files of the build.
#[test]
fn a_killed_build_goes_on() {
    let place = researched();
    let whole = (contents(&place.data()), found(&place));
    for failpoint in INDEX.into_iter().chain(INDEX_BUILD) {
        remove(&place);
        let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
        let killed = killed.env("ORGANISM_FAILPOINT", failpoint).output().unwrap();
        assert_eq!(killed.status.code(), None, "{failpoint}: {}", text(&killed.stderr));
        assert!(!file(&place, "").exists(), "{failpoint}");
        assert!(file(&place, "-building").exists(), "{failpoint}");

        assert_eq!((contents(&place.data()), found(&place)), whole, "{failpoint}");
        assert_no_build(&place);
    }
}

/// A resumed build has none of the earlier messages in memory. It still finds the cause of a later
/// message, and the call of a late outcome.
#[test]
fn a_resumed_build_finds_messages_of_before() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut records = researches();
    let (early, late) = records.split_at_mut(TREES * 7);
    assert_eq!(late.len(), LATE);
    journal.append(early).unwrap();
    let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
    killed.env("ORGANISM_FAILPOINT", "index-after-commit").output().unwrap();
    assert!(file(&place, "-building").exists());

    journal.append(late).unwrap();
    assert_eq!(found(&place)["again"], "1\n");
    assert_eq!(causes(&place).last().unwrap(), "1", "the first message");
    let resumed = contents(&place.data());
    remove(&place);
    assert_eq!(contents(&place.data()), resumed);
}

/// If the files of a build do not belong together, are damaged or belong to another journal, the
/// build begins again.
#[test]
fn a_build_with_unusable_files_begins_again() {
    type Damage = fn(&Place);
    let cases: [(&str, Damage); 4] = [
        ("no words", |place| std::fs::remove_file(file(place, "-building-words")).unwrap()),
        ("words of nothing", |place| {
            std::fs::write(file(place, "-building-words"), "").unwrap();
        }),
        ("no database", |place| std::fs::write(file(place, "-building"), "none").unwrap()),
        ("other journal", |place| {
            let db = rusqlite::Connection::open(file(place, "-building")).unwrap();
            db.execute("UPDATE meta SET value = 'x' WHERE key = 'journal'", []).unwrap();
        }),
    ];

    let place = researched();
    let whole = (contents(&place.data()), found(&place));
    remove(&place);
    let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
    killed.env("ORGANISM_FAILPOINT", "index-after-commit").output().unwrap();
    assert!(file(&place, "-building").exists());
    for (case, damage) in cases {
        let place = place.copy();
        damage(&place);
        assert_eq!((contents(&place.data()), found(&place)), whole, "{case}");
        assert_no_build(&place);
    }
}

/// Design 8.18: if a payload is redacted while a build is interrupted, the finished index does not
/// contain its words, wherever the build was interrupted.
#[test]
fn words_that_are_redacted_during_an_interrupted_build_leave_it() {
    let unread = researched();
    for failpoint in INDEX.into_iter().chain(INDEX_BUILD) {
        let place = unread.copy();
        let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
        killed.env("ORGANISM_FAILPOINT", failpoint).output().unwrap();
        assert!(file(&place, "-building").exists(), "{failpoint}");
        redact(&place, 1);

        let checked = text(&organism(&place, &["search", "--count", "\"login checked\""]).stdout);
        assert_eq!(checked, format!("{}\n", TREES - 1), "{failpoint}");
        assert_no_build(&place);
    }
}

/// The write-ahead log of a deleted index has no effect on the index that is made next.
#[test]
fn the_log_of_a_deleted_index_does_not_reach_its_successor() {
    let place = researched();
    let whole = (contents(&place.data()), found(&place));
    let changed = rusqlite::Connection::open(file(&place, "")).unwrap();
    changed.execute_batch("PRAGMA wal_autocheckpoint = 0; DELETE FROM message_row").unwrap();
    let log = std::fs::read(file(&place, "-wal")).unwrap();
    drop(changed);

    std::fs::remove_file(file(&place, "")).unwrap();
    std::fs::write(file(&place, "-wal"), log).unwrap();
    let mut killed = command(&place, &["sql", "SELECT count(*) FROM message"]);
    killed.env("ORGANISM_FAILPOINT", "index-complete").output().unwrap();
    assert!(!file(&place, "-wal").exists());
    assert_eq!((contents(&place.data()), found(&place)), whole);
}

/// Issue 17, 3.4: if another process is making the first index, a query states how many records
/// this process has read.
#[test]
fn a_query_states_how_far_a_build_is() {
    let place = researched();
    let mut lock = File::create(place.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    write!(lock, "1200 4202").unwrap();
    let answer = organism(&place, &["threads"]);
    assert_eq!(answer.status.code(), Some(75));
    let error = text(&answer.stderr);
    assert!(error.contains("has read 1200 of 4202 records; try again"), "{error}");
}

/// If the caller stops a build, no reader finds an index that could be taken for a complete one.
/// The next session completes the build.
#[test]
fn a_stopped_build_is_completed_by_the_next_session() {
    let place = researched();
    let last = JournalReader::open(&place.data()).unwrap().last().unwrap();
    let stopped = follow(&place.data(), &mut || false, &mut |_| None).unwrap();
    assert_eq!(stopped, FollowResult::Ended);
    assert!(!file(&place, "").exists());

    // After the last record, too.
    // A process that another test has just forked keeps the lock until it runs its own program, and a
    // session that is stopped does not wait for the lock.
    let stopped = loop {
        let result = follow(&place.data(), &mut || true, &mut |_| Some(last)).unwrap();
        if result != FollowResult::Busy {
            break result;
        }
    };
    assert_eq!(stopped, FollowResult::Ended);
    assert!(!file(&place, "").exists());

    let mut next = |reached: Position| (reached < last).then_some(last);
    let ended = follow(&place.data(), &mut || false, &mut next).unwrap();
    assert_eq!(ended, FollowResult::Ended);
    assert!(file(&place, "").exists());
    assert_no_build(&place);
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM tree"), [(TREES + 1).to_string()]);
}

/// A request to rebuild an index that was made before or during a build concerns an earlier index,
/// so the index is built only once.
#[test]
fn a_request_to_rebuild_the_index_during_a_build_causes_no_second_build() {
    let place = researched();
    let last = JournalReader::open(&place.data()).unwrap().last().unwrap();
    let mut begun = 0;
    let mut next = |reached: Position| {
        if reached == Position(0) {
            begun += 1;
            File::create(file(&place, "-rebuild")).unwrap();
        }
        (reached < last).then_some(last)
    };
    let ended = follow(&place.data(), &mut || false, &mut next).unwrap();
    assert_eq!(ended, FollowResult::Ended);
    assert_eq!(begun, 1);
    assert!(!file(&place, "-rebuild").exists());
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM tree"), [(TREES + 1).to_string()]);
}

/// An error in writing a build costs only what was not committed. Here, a limit on the size of files
/// causes the error.
#[test]
fn a_build_goes_on_after_an_error_in_writing() {
    let place = researched();
    let query = command(&place, &["sql", "SELECT count(*) FROM message"]);
    let mut limited = std::process::Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\"";
    limited.args(["-c", script]).arg(query.get_program()).args(query.get_args());
    let failed = limited.output().unwrap();
    assert!(matches!(failed.status.code(), Some(69 | 75)), "{}", text(&failed.stderr));
    assert!(text(&failed.stderr).contains("index.db-building"), "{}", text(&failed.stderr));
    assert!(!file(&place, "").exists());
    assert!(file(&place, "-building").exists());
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM tree"), [(TREES + 1).to_string()]);
    assert_no_build(&place);
}
