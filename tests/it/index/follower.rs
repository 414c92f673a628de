//! A running organism keeps the index of its journal up to date, whatever happens to the journal or
//! the index.

use std::path::PathBuf;
use std::process::Stdio;

use organism::index::{self, FollowResult, INDEX_DATABASE, INDEX_LOCK, TreeFilter, follow};
use organism::journal::Journal as _;
use organism::journal::sqlite::DATABASE;

use super::{contents, rows, with_index};
use crate::journal::Place;
use crate::journal::script::{Script, research};
use crate::organism::{CONFIG, CommandOutput, House, say, talk_reply, until};
use crate::web::view::operate::operating;
use crate::web::{address, ask, listening, page::Page};

const COUNT: &str = "SELECT count(*) FROM message WHERE payload = 'say'";

fn house() -> House {
    House::with(&listening(CONFIG))
}

fn file(house: &House) -> PathBuf {
    house.data().join(INDEX_DATABASE)
}

fn metric(house: &House, name: &str) -> f64 {
    Page::read(&ask(address(house), "/metrics").body).get(name, &[])
}

fn send(house: &House, text: &str) {
    assert_eq!(house.send_text(&say(text), &[]).out, talk_reply(text));
}

/// Waits until the index holds every record.
fn until_complete(house: &House) {
    until("the index is complete", || {
        let position = metric(house, "organism_index_position");
        let is_complete = position > 0.0
            && position >= metric(house, "organism_journal_position")
            && metric(house, "organism_index_lag_records") == 0.0;
        is_complete.then_some(())
    });
    assert_eq!(metric(house, "organism_index_lag_seconds"), 0.0);
}

/// Returns the number of `say` messages in the index, without bringing the index up to date.
fn counted(house: &House) -> u64 {
    let db = rusqlite::Connection::open(file(house)).unwrap();
    db.query_row(COUNT, [], |row| row.get(0)).unwrap()
}

/// Output of the query [`COUNT`] while the organism runs.
fn queried(house: &House) -> String {
    house.organism(&["sql", "--csv", COUNT]).out
}

/// Asserts that the index has the same rows as an index that is made from nothing.
fn assert_like_new(house: &House) {
    let followed = contents(&house.data());
    std::fs::remove_file(file(house)).unwrap();
    assert_eq!(followed, contents(&house.data()));
}

/// Issue 17, 3.4: the organism keeps the index complete without any command, and continues after a
/// restart.
#[test]
fn a_running_organism_keeps_the_index_complete() {
    let house = house();
    for round in 1..=2 {
        let running = house.run();
        for text in ["a", "b", "c"] {
            send(&house, text);
        }
        until_complete(&house);
        assert_eq!(counted(&house), 3 * round);
        assert_eq!(metric(&house, "organism_index_failures_total"), 0.0);
        assert_eq!(running.stop(), Some(0));
    }
    assert_like_new(&house);
}

/// Issue 17, 3.4: if an organism dies in a commit of the index, the next organism completes this
/// index.
#[test]
fn an_organism_that_is_killed_in_a_commit_of_the_index_leaves_no_gap() {
    for failpoint in organism::failpoint::INDEX {
        let house = house();
        let mut run = house.command(&["run"]);
        run.env("ORGANISM_FAILPOINT", failpoint).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = run.spawn().unwrap();
        let killed = until("it is killed", || child.try_wait().unwrap());
        assert_eq!(killed.code(), None, "{failpoint}");

        let running = house.run();
        send(&house, "a");
        until_complete(&house);
        assert_eq!(counted(&house), 1, "{failpoint}");
        assert_eq!(running.stop(), Some(0));
        assert_like_new(&house);
        house.verified();
    }
}

/// Design 8.15: if the index is deleted while an organism runs, it is made again, by the next query
/// or with the next record.
#[test]
fn an_index_that_is_deleted_under_an_organism_is_made_again() {
    let house = house();
    let running = house.run();
    send(&house, "a");
    for sent in 2..5 {
        until_complete(&house);
        for suffix in ["", "-wal", "-shm"] {
            let name = format!("{INDEX_DATABASE}{suffix}");
            // The last two exist only while somebody uses the database.
            std::fs::remove_file(house.data().join(name)).ok();
        }
        if sent == 2 {
            assert!(queried(&house).ends_with("\n1\r\n"));
        }
        send(&house, "b");
        until_complete(&house);
        assert_eq!(counted(&house), sent);
    }
    assert_eq!(running.stop(), Some(0));
    assert_like_new(&house);
}

/// Design 8.18: after a repair that accepts a redaction, no file of the data directory contains the
/// words of the redacted payload. This includes the files of an unfinished build.
#[test]
fn a_repair_that_accepts_a_redaction_deletes_the_words_from_all_files() {
    let house = house();
    let running = house.run();
    send(&house, "xylophone");
    until_complete(&house);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(counted(&house), 1);
    std::fs::write(house.data().join("index.db-building-words"), "xylophone").unwrap();
    let with_word = || {
        let files = std::fs::read_dir(house.data()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file());
        let has_word = |path: &PathBuf| {
            std::fs::read(path).unwrap().windows(9).any(|part| part == b"xylophone")
        };
        files.filter(has_word).collect::<Vec<_>>()
    };
    assert!(with_word().contains(&file(&house)));

    let journal = rusqlite::Connection::open(house.data().join(DATABASE)).unwrap();
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0";
    journal.execute_batch(blank).unwrap();
    drop(journal);
    let repaired = house.run_once(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert_eq!(with_word(), Vec::<PathBuf>::new());
    assert!(queried(&house).starts_with("count(*)"));
    assert_eq!(with_word(), Vec::<PathBuf>::new());
}

/// Issue 17, 3.4: a failure of the index stops nothing else. The log states the failure once, a
/// metric counts it, and the index recovers without an operator.
#[test]
fn an_index_that_cannot_be_written_disturbs_no_organism() {
    let house = house();
    assert_eq!(house.run().stop(), Some(0));
    std::fs::remove_file(file(&house)).ok();
    std::fs::create_dir(file(&house)).unwrap();

    let running = house.run();
    until("two attempts fail", || {
        (metric(&house, "organism_index_failures_total") >= 2.0).then_some(())
    });
    send(&house, "a");
    assert!(metric(&house, "organism_index_lag_records") > 0.0);
    assert!(metric(&house, "organism_index_lag_seconds") > 0.0);
    assert_eq!(house.log().matches("the index could not be brought up to date").count(), 1);

    std::fs::remove_dir(file(&house)).unwrap();
    until_complete(&house);
    assert_eq!(counted(&house), 1);
    until("it says so", || house.log().contains("the index is up to date again").then_some(()));
    assert_eq!(running.stop(), Some(0));
}

/// Issue 17, 3.4: while the follower is in the middle of a commit, a query waits some seconds and
/// then states up to which record the index is complete. A message that the index lacks is not
/// reported as missing. The pump does not wait at all.
#[test]
fn a_query_beside_a_slow_follower_states_how_far_the_index_is() {
    let house = house();
    let running = house.run();
    send(&house, "a");
    until_complete(&house);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(rows(&house.data(), COUNT), ["1"]);

    let mut run = house.command(&["run"]);
    run.env("ORGANISM_FAILPOINT", "index-before-commit");
    run.env("ORGANISM_FAILPOINT_UNTIL", house.path("let-go"));
    let running = house.run_with(run);
    until("the follower waits", || house.log().contains("waits at a failpoint").then_some(()));
    send(&house, "b");
    let messages = house.messages("say");
    let [known, sent] = [0, 1].map(|at| messages[at].0.to_string());
    assert_nothing_is_called_missing(&house, &known, &sent);
    let behind = house.run_once(&["sql", "--csv", COUNT]);
    assert!(behind.out.ends_with("\n1\r\n"), "{behind:?}");
    assert!(behind.err.contains("the index is at record "), "{behind:?}");
    assert!(metric(&house, "organism_index_lag_records") > 0.0);

    house.write("let-go", "");
    until_complete(&house);
    let complete = house.organism(&["sql", "--csv", COUNT]);
    assert!(complete.out.ends_with("\n2\r\n"), "{complete:?}");
    assert_eq!(complete.err, "");
    assert_eq!(house.organism(&["message", &sent]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
}

/// Asserts that no command and no page reports the message `sent` as missing while the index lacks
/// it. Meanwhile, the beginning of an id selects no message, because the id of a message that the
/// index lacks may begin in the same way. A record that does not exist is still reported as
/// missing.
fn assert_nothing_is_called_missing(house: &House, known: &str, sent: &str) {
    for command in ["message", "retry"] {
        let early = house.run_once(&[command, sent]);
        assert_eq!(early.code, Some(75), "{early:?}");
        assert!(early.err.contains("the index has no message"), "{early:?}");
    }
    let part = house.run_once(&["message", &known[..8]]);
    assert_eq!(part.code, Some(75), "{part:?}");
    assert!(part.err.contains("another message may begin with"), "{part:?}");
    assert_eq!(house.run_once(&["message", known]).code, Some(0));

    let view = operating(house);
    for path in ["/messages/", "/operate/fork?message=", "/operate/retry?message="] {
        let page = view.get(&format!("{path}{sent}"));
        assert_eq!(page.status, 503, "{path} {}", page.body);
        assert!(page.body.contains("Not indexed yet"), "{path} {}", page.body);
    }
    assert_eq!(view.get("/records/999999").status, 404);
}

/// Issue 17, 3.4: a query beside a running organism sees every record that was written before the
/// query began.
#[test]
fn queries_beside_an_organism_see_every_earlier_record() {
    let house = house();
    let running = house.run();
    for sent in 1..=5 {
        send(&house, "a");
        let queries: Vec<_> = (0..3)
            .map(|_| {
                let mut query = house.command(&["sql", "--csv", COUNT]);
                query.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for query in queries {
            let answer: CommandOutput = query.wait_with_output().unwrap().into();
            let counted = if answer.is_behind() { queried(&house) } else { answer.out };
            assert!(counted.ends_with(&format!("\n{sent}\r\n")), "{counted}");
        }
    }
    assert_eq!(running.stop(), Some(0));
    assert_like_new(&house);
}

/// Design 8.15: the process that writes the index makes it again if the file is deleted between two
/// commits, or if a reader finds damage.
#[test]
fn a_follower_makes_an_index_anew_that_is_deleted_or_damaged_between_commits() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let whole = contents(&place.data());
    let last = place.reader().last().unwrap();
    let path = place.data().join(INDEX_DATABASE);
    let follow_after = |damage: &dyn Fn()| {
        let mut is_damaged = false;
        let mut next = |reached| {
            if !std::mem::replace(&mut is_damaged, true) {
                damage();
            }
            (reached < last).then_some(last)
        };
        let result = follow(&place.data(), &mut || false, &mut next).unwrap();
        assert_eq!(result, FollowResult::Ended);
        let db = rusqlite::Connection::open(&path).unwrap();
        let count = db.query_row("SELECT count(*) FROM message", [], |row| row.get(0));
        assert_eq!(count, Ok(10));
    };

    follow_after(&|| std::fs::remove_file(&path).unwrap());
    let request = place.data().join("index.db-rebuild");
    let change = "UPDATE message_row SET bytes = bytes + 1";
    rusqlite::Connection::open(&path).unwrap().execute_batch(change).unwrap();
    follow_after(&|| std::fs::write(&request, "").unwrap());
    assert!(!request.exists());
    assert_eq!(contents(&place.data()), whole);
}

/// If a reader finds damage while another process writes the index, the reader leaves a request for
/// this process to make the index again.
#[test]
fn a_reader_asks_the_writer_to_make_a_damaged_index_again() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::new();
    place.open().unwrap().append(&mut records).unwrap();
    let whole = contents(&place.data());
    let path = place.data().join(INDEX_DATABASE);
    let change = "UPDATE tree_row SET messages = -1";
    rusqlite::Connection::open(&path).unwrap().execute_batch(change).unwrap();

    let trees = || {
        let filter = TreeFilter::default();
        with_index(&place.data(), &mut |reader| reader.trees(&filter, 9))
    };
    let lock = std::fs::File::create(place.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    let refused = trees().unwrap_err();
    assert!(matches!(refused, index::Error::Building { .. }), "{refused}");
    let request = place.data().join("index.db-rebuild");
    assert!(request.exists());

    drop(lock);
    assert_eq!(trees().unwrap().len(), 1);
    assert_eq!(contents(&place.data()), whole);
    assert!(!request.exists());
}
