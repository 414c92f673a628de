//! The real command continues from a snapshot when it starts on an embedded journal.

use std::path::PathBuf;
use std::process::Stdio;

use organism::failpoint;
use organism::ids::Position;
use organism::journal::checkpoint::CheckpointKey;
use organism::journal::sqlite::{DATABASE, SnapshotPlace};
use organism::pump::core::CORE_VERSION;
use serde_json::Value as Json;

use super::{CONFIG, House, Running, numbered, say, talk_reply, until};
use crate::web::{address, ask, listening};

/// Environment variable that sets the number of records between two snapshots.
pub const RECORDS_KEY: &str = "ORGANISM_JOURNAL__SNAPSHOT_RECORDS";
pub const CONTINUES: &str = "continues from the snapshot at";

fn house() -> House {
    House::settled(&listening(CONFIG))
}

pub fn run(house: &House, failpoint: Option<&str>) -> Running {
    let mut command = house.command(&["run"]);
    command.env(RECORDS_KEY, "1").env("ORGANISM_LOG", "info");
    if let Some(failpoint) = failpoint {
        command.env("ORGANISM_FAILPOINT", failpoint);
        command.env("ORGANISM_FAILPOINT_UNTIL", house.path("go-on"));
    }
    house.run_with(command)
}

/// Files of snapshots, and of trees at rest, in the directories for state and data.
fn files(house: &House) -> Vec<PathBuf> {
    let entries = [house.state(), house.data()].into_iter().flat_map(|directory| {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path())
    });
    let is_snapshot = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.contains("snapshot") || name.starts_with("resting") || name.starts_with("heads")
    };
    entries.filter(is_snapshot).collect()
}

/// Path of the snapshot file with a name that ends with `end`; `None` if there is no such file.
pub fn file(house: &House, end: &str) -> Option<PathBuf> {
    files(house).into_iter().find(|path| path.to_string_lossy().ends_with(end))
}

/// Position of the present snapshot.
pub fn snapshot(house: &House) -> Option<u64> {
    let text = std::fs::read_to_string(file(house, "snapshot.json")?).ok()?;
    let line: Json = serde_json::from_str(text.lines().next()?).ok()?;
    line["checkpoint"]["position"].as_u64()
}

/// Submits an operator's decision. After every such decision, the pump signs a checkpoint.
pub fn decide(house: &House) {
    let sent = house.send_text(&numbered("hold", "0"), &["--no-wait", "--json"]);
    let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    let cancelled = house.organism(&["cancel", &thread]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
}

/// Runs the organism until it has made a snapshot of some work, and kills it. Returns the
/// snapshot's position.
pub fn killed_after_a_snapshot(house: &House) -> u64 {
    let running = run(house, None);
    assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
    let held = house.send_text(&numbered("hold", "7"), &["--no-wait", "--key", "k-7"]);
    assert_eq!(held.code, Some(0), "{held:?}");
    let before = snapshot(house);
    decide(house);
    let made = until("a snapshot is made", || snapshot(house).filter(|at| Some(*at) != before));
    drop(running);
    made
}

/// Text with which the proof of the records up to the snapshot at `position` logs its success.
fn passed(position: u64) -> String {
    format!("the records up to {position} are proved")
}

#[test]
fn a_start_continues_from_a_snapshot_with_its_open_calls_and_its_keys() {
    let house = house();
    let earlier = killed_after_a_snapshot(&house);
    let position = killed_after_a_snapshot(&house);
    assert!(earlier < position);
    let last = house.reader().last().unwrap();
    // The last checkpoint in the state directory is older than the snapshot.
    let name = format!("{}.checkpoints", house.reader().about().unwrap().journal);
    let noted = house.state().join(name);
    let lines = std::fs::read_to_string(&noted).unwrap();
    let (first, _) = lines.split_once('\n').unwrap();
    std::fs::write(&noted, format!("{first}\n")).unwrap();

    let running = run(&house, None);
    assert!(house.log().contains(CONTINUES), "{}", house.log());
    assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
    assert_eq!(house.recorded("say"), 1, "a repeated key is answered from the record");
    house.write("let-go", "");
    until("the open call goes on", || (house.recorded("held") == 1).then_some(()));
    let held = house.send_text(&numbered("hold", "7"), &["--key", "k-7"]);
    assert_eq!(held.out, numbered("held", "7") + "\n", "{held:?}");
    assert_eq!(house.recorded("hold"), 3, "a repeated key opens no call");

    assert!(house.reader().last().unwrap() > last);
    assert_eq!(running.stop(), Some(0));
    assert!(house.log().contains(&passed(position)), "{}", house.log());
    let written = std::fs::read_to_string(&noted).unwrap();
    assert!(lines.lines().count() > 1 && written.starts_with(&lines), "{lines} {written}");
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// Checkpoint files grow as long as the journal does, but a start from a snapshot reads only their
/// ends. The proof in the background reads the copies once.
#[test]
fn a_start_from_a_snapshot_reads_only_the_ends_of_long_checkpoint_files() {
    let house = house();
    let position = killed_after_a_snapshot(&house);
    let name = format!("{}.checkpoints", house.reader().about().unwrap().journal);
    let lines = std::fs::read_to_string(house.state().join(&name)).unwrap();
    let first = lines.lines().next().unwrap();
    let earlier = format!("{first}\n").repeat((20 << 20) / first.len());
    let long = [earlier, lines].concat();
    for directory in [house.state(), house.copies()] {
        std::fs::write(directory.join(&name), &long).unwrap();
    }

    let running = run(&house, None);
    assert!(house.log().contains(CONTINUES), "{}", house.log());
    until("the proof has passed", || house.log().contains(&passed(position)).then_some(()));
    if cfg!(target_os = "linux") {
        let counters = std::fs::read_to_string(format!("/proc/{}/io", running.child.id())).unwrap();
        let read = counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        assert!(read.parse::<usize>().unwrap() < 2 * long.len(), "{counters}");
    }
    assert_eq!(running.stop(), Some(0));

    let copies = std::fs::read_to_string(house.copies().join(&name)).unwrap();
    let added = copies.strip_prefix(&long).expect("the copies stay");
    assert!(added.lines().all(|line| !long.contains(line)), "{added}");
    house.verified();
}

/// A start from a snapshot compares only the last copies, and the proof behind it all others, also
/// those for positions after the snapshot.
#[test]
fn a_proof_stops_the_pump_if_an_early_copy_contradicts_the_journal() {
    for (is_beyond, detail) in [
        (true, "were signed in a checkpoint in"),
        (false, "the records up to here are not those of the checkpoint in"),
    ] {
        let house = house();
        killed_after_a_snapshot(&house);
        let name = format!("{}.checkpoints", house.reader().about().unwrap().journal);
        let file = house.copies().join(name);
        let lines = std::fs::read_to_string(&file).unwrap();
        let first = lines.lines().next().unwrap();
        let mut other: Json = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        if is_beyond {
            other["position"] = 1_000_000.into();
        } else {
            let root = other["merkle_root"].as_str().unwrap();
            let digit = if root.starts_with('0') { '1' } else { '0' };
            other["merkle_root"] = format!("{digit}{}", &root[1..]).into();
        }
        let filler = format!("{first}\n").repeat((2 << 20) / first.len());
        std::fs::write(&file, format!("{other}\n{filler}{lines}")).unwrap();

        let (code, running) = ended_run(&house);
        assert_eq!(code, Some(4), "{running}");
        assert!(running.contains(CONTINUES), "{running}");
        assert!(running.contains(detail), "{running}");
        assert_eq!(snapshot(&house), None, "it is not trusted again");
    }
}

#[test]
fn a_snapshot_that_cannot_be_used_is_ignored_and_made_again() {
    let flip = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let database = |house: &House| file(house, ".state.db").unwrap();
    let heads = |house: &House| file(house, ".heads.db").unwrap();
    let header = |house: &House| file(house, "snapshot.json").unwrap();
    type Damage<'d> = &'d dyn Fn(&House);
    let damages: [(&str, Damage<'_>); 7] = [
        ("a flipped bit in the header", &|house| flip(header(house))),
        ("a flipped bit in the database", &|house| flip(database(house))),
        ("a flipped bit in the heads", &|house| flip(heads(house))),
        ("a lost database", &|house| std::fs::remove_file(database(house)).unwrap()),
        ("lost heads", &|house| std::fs::remove_file(heads(house)).unwrap()),
        ("a torn header", &|house| std::fs::write(header(house), "{").unwrap()),
        ("another key", &|house| {
            let text = std::fs::read_to_string(header(house)).unwrap();
            let (line, _) = text.split_once('\n').unwrap();
            std::fs::write(header(house), format!("{line}\n{}\n", "0".repeat(128))).unwrap();
        }),
    ];

    let house = house();
    killed_after_a_snapshot(&house);
    for (what, damage) in damages {
        damage(&house);
        // With the default number of records, no other snapshot is made now.
        let running = house.run();
        let log = house.log();
        assert!(log.contains("is ignored, and every record is read"), "{what}: {log}");
        assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
        assert_eq!(house.recorded("say"), 1, "{what}");
        assert!(files(&house).is_empty(), "{what}: {:?}", files(&house));
        drop(running);

        let running = run(&house, None);
        assert!(!house.log().contains(CONTINUES), "{what}: {}", house.log());
        decide(&house);
        until("a snapshot is made again", || snapshot(&house));
        drop(running);
        house.verified();
    }
}

/// A start that continues from a snapshot does not check the rows of older trees in the derived
/// table of trees. The proof in the background checks these rows, and writes a wrong row anew.
#[test]
fn a_wrong_row_of_an_older_tree_is_written_anew_after_the_proof() {
    for change in [
        "UPDATE tree SET records = 99 WHERE first = (SELECT max(first) FROM tree WHERE head < 9)",
        "DELETE FROM tree WHERE first = (SELECT max(first) FROM tree WHERE head < 9)",
        "INSERT INTO tree VALUES ('sess-forgedforged', 1000, 1000, 1, 0, 0)",
    ] {
        let house = house();
        killed_after_a_snapshot(&house);
        // A start and a stop bring the table of trees up to date.
        assert_eq!(house.run().stop(), Some(0));
        let journal = rusqlite::Connection::open(house.data().join("journal.db")).unwrap();
        assert_eq!(journal.execute(change, []).unwrap(), 1, "{change}");
        drop(journal);
        assert_ne!(house.organism(&["verify"]).code, Some(0), "{change}");

        let running = run(&house, None);
        assert!(house.log().contains(CONTINUES), "{}", house.log());
        until("the proof finds it", || house.log().contains("written anew").then_some(()));
        assert_eq!(house.send_text(&say("two"), &[]).out, talk_reply("two"));
        house.verified();
        drop(running);
    }
}

/// After a kill, the table of trees is older than the snapshot. A start brings the table up to
/// date, and writes only the rows of trees with later records. The test changes the other rows
/// beforehand, to show that the start does not write them.
#[test]
fn a_start_after_a_kill_writes_only_the_rows_of_trees_with_later_records() {
    let house = house();
    assert_eq!(house.send_text(&say("zero"), &[]).out, talk_reply("zero"));
    let refreshed = house.reader().last().unwrap();
    let running = run(&house, None);
    // The next snapshot waits some time after the last one, and then for a checkpoint.
    until("a snapshot after the first run is made", || {
        decide(&house);
        snapshot(&house).filter(|at| *at > refreshed.0)
    });
    drop(running);
    let journal = rusqlite::Connection::open(house.data().join("journal.db")).unwrap();
    let refreshed = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'refreshed'";
    let refreshed: u64 = journal.query_row(refreshed, [], |row| row.get(0)).unwrap();
    assert!((1..snapshot(&house).unwrap()).contains(&refreshed), "up to date to {refreshed}");
    let mark = "UPDATE tree SET opened = opened + 1 WHERE root <> 'sess-organism'";
    assert_eq!(journal.execute(mark, []).unwrap(), 1, "the thread of the first run");
    let rows = "SELECT total(opened) FROM tree WHERE root IN \
                (SELECT tree FROM step WHERE position <= ?1) AND root <> 'sess-organism'";
    let marked: f64 = journal.query_row(rows, [refreshed], |row| row.get(0)).unwrap();

    let own = "SELECT opened FROM tree WHERE root = 'sess-organism'";
    let opened: i64 = journal.query_row(own, [], |row| row.get(0)).unwrap();
    journal
        .execute("UPDATE tree SET opened = opened + 1 WHERE root = 'sess-organism'", [])
        .unwrap();

    let [place] = failpoint::PROOF;
    let running = run(&house, Some(place));
    assert!(house.log().contains(CONTINUES), "{}", house.log());
    let missing = "SELECT count(*) FROM step WHERE position <= ?1 \
                   AND tree NOT IN (SELECT root FROM tree)";
    let missing: u64 = journal.query_row(missing, [snapshot(&house)], |row| row.get(0)).unwrap();
    assert_eq!(missing, 0, "the trees between the table and the snapshot are written");
    let now: i64 = journal.query_row(own, [], |row| row.get(0)).unwrap();
    assert_eq!(now, opened, "a row that is written is right as a whole");
    let after: f64 = journal.query_row(rows, [refreshed], |row| row.get(0)).unwrap();
    assert_eq!(after, marked, "the row was not written");
    house.write("go-on", "");
    until("the proof finds it", || house.log().contains("written anew").then_some(()));
    assert_eq!(house.send_text(&say("two"), &[]).out, talk_reply("two"));
    house.verified();
    drop(running);
}

#[test]
fn a_deleted_snapshot_changes_nothing_and_no_file_of_it_stays() {
    let house = house();
    killed_after_a_snapshot(&house);
    files(&house).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let running = run(&house, None);
    assert!(!house.log().contains("snapshot"), "{}", house.log());
    assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
    drop(running);
    house.verified();
}

#[test]
fn a_snapshot_of_another_version_of_the_core_is_not_used() {
    let house = house();
    let position = killed_after_a_snapshot(&house);
    let key = CheckpointKey::open(&house.state()).unwrap();
    let state = house.state();
    let journal = house.reader().about().unwrap().journal;
    let place = |core_version| SnapshotPlace { state: &state, key: &key, journal, core_version };

    // A kill between the renames of an earlier snapshot leaves such a file.
    std::fs::write(house.state().join(format!("{journal}.snapshot-1.state.db")), "").unwrap();
    let ours = place(CORE_VERSION);
    assert_eq!(ours.position(), Position(position));
    assert!(ours.load(&|_, _| true).is_some());
    assert_eq!(files(&house).len(), 3, "no copy stays: {:?}", files(&house));
    assert!(place(CORE_VERSION + 1).load(&|_, _| true).is_none());
    assert!(ours.load(&|_, _| true).is_none(), "it is deleted");
}

#[test]
fn a_kill_while_a_snapshot_is_made_leaves_the_earlier_one_or_the_new_one() {
    for place in failpoint::SNAPSHOT {
        let house = house();
        let earlier = killed_after_a_snapshot(&house);
        let mut command = house.command(&["run"]);
        command.env(RECORDS_KEY, "1").env("ORGANISM_FAILPOINT", place);
        let mut running = house.run_with(command);
        // The checkpoint of this decision leads to the snapshot.
        decide_if_alive(&house);
        until("it is killed", || running.child.try_wait().unwrap());
        let found = snapshot(&house).unwrap();
        assert_eq!(found == earlier, place != "snapshot-written", "{place}");

        let running = run(&house, None);
        assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
        decide(&house);
        until("it is made again", || snapshot(&house).filter(|at| *at > earlier));
        until("nothing else stays", || (files(&house).len() == 3).then_some(()));
        drop(running);
        house.verified();
    }
}

/// Submits an operator's decision as [`decide`] does, but on an organism that may die meanwhile.
fn decide_if_alive(house: &House) {
    let sent = house.send_text(&numbered("hold", "0"), &["--no-wait", "--json"]);
    let thread = sent.out.lines().next().and_then(|line| serde_json::from_str::<Json>(line).ok());
    if let Some(thread) = thread.as_ref().and_then(|sent| sent["thread"].as_str()) {
        house.organism(&["cancel", thread]);
    }
}

#[test]
fn what_is_not_proved_yet_is_stated_until_the_proof_has_passed() {
    let house = house();
    let position = killed_after_a_snapshot(&house);
    let [place] = failpoint::PROOF;
    let running = run(&house, Some(place));
    let at = address(&house);
    let ready = until("it is ready", || Some(ask(at, "/readyz")).filter(|it| it.status == 200));
    let ready: Json = serde_json::from_str(&ready.body).unwrap();
    assert_eq!(ready["ok"], true);
    assert_eq!(ready["unproved"][0]["proved_from"], position + 1, "{ready}");
    assert_eq!(ready["unproved"][0]["proved_up_to"], 0, "{ready}");
    let metric = format!("organism_journal_unproved_records {position}");
    assert!(ask(at, "/metrics").body.contains(&metric));
    decide(&house);

    house.write("go-on", "");
    until("all is proved", || {
        let ready: Json = serde_json::from_str(&ask(at, "/readyz").body).unwrap();
        ready.get("unproved").is_none().then_some(())
    });
    assert!(ask(at, "/metrics").body.contains("organism_journal_unproved_records 0"));
    decide(&house);
    let signed = house.reader().checkpoints().unwrap();
    let from: Vec<_> = signed.iter().rev().take(2).map(|line| line.proved_from).collect();
    assert_eq!(from, [None, Some(Position(position + 1))]);
    assert!(signed.iter().all(organism::journal::Checkpoint::is_genuine));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_proof_that_fails_stops_the_pump_as_it_would_have_stopped_the_start() {
    let first = "(SELECT min(position) FROM step WHERE length(payloads) > 0)";
    let damages = [
        (format!("time = time + 1 WHERE position = {first}"), "its hash does not match"),
        (
            format!("payloads = zeroblob(length(payloads)) WHERE position = {first}"),
            "a payload of it was blanked",
        ),
    ];

    for (damage, detail) in damages {
        let house = house();
        killed_after_a_snapshot(&house);
        let db = rusqlite::Connection::open(house.data().join(DATABASE)).unwrap();
        assert_eq!(db.execute(&format!("UPDATE step SET {damage}"), []).unwrap(), 1);
        drop(db);

        let (code, running) = ended_run(&house);
        assert!(running.contains(CONTINUES), "{running}");
        assert!(running.contains(detail), "{running}");
        assert_eq!(snapshot(&house), None, "it is not trusted again");

        let (refused, starting) = ended_run(&house);
        assert!(!starting.contains(CONTINUES), "{starting}");
        assert!(starting.contains(detail), "{starting}");
        assert_eq!(code, refused, "{running}");
    }
}

/// Exit code and log of an `organism run` that ends by itself.
pub fn ended_run(house: &House) -> (Option<i32>, String) {
    let mut command = house.command(&["run"]);
    let log = std::fs::File::create(house.path("log")).unwrap();
    command.env(RECORDS_KEY, "1").env("ORGANISM_LOG", "info").stderr(log);
    let mut running = Running { child: command.stdout(Stdio::null()).spawn().unwrap() };
    let ended = until("it ends by itself", || running.child.try_wait().unwrap());
    (ended.code(), house.log())
}

#[test]
fn a_journal_that_was_cut_before_its_snapshot_is_refused_at_once() {
    let house = house();
    let position = killed_after_a_snapshot(&house);
    let db = rusqlite::Connection::open(house.data().join(DATABASE)).unwrap();
    db.execute("DELETE FROM step WHERE position >= ?1", [position]).unwrap();
    drop(db);

    let refused = house.organism(&["run"]);
    assert!(!refused.err.contains("is ready"), "{refused:?}");
    assert!(refused.err.contains("its tail was cut or damaged"), "{refused:?}");
}
