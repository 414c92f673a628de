//! A crash at every failpoint of the journal. After each crash, every acknowledged record remains.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use organism::audit;
use organism::clock::Time;
use organism::failpoint;
use organism::ids::Position;
use organism::journal::Journal as _;
use organism::journal::sqlite::SqliteJournal;
use tempfile::TempDir;

use super::Place;
use super::script::Script;
use crate::campaign::Campaign;
use crate::organism::kill::torture;
use crate::organism::until;

const HOME: &str = "JOURNAL_TEST_HOME";
const RECORDS: u64 = 8;

#[test]
#[ignore = "the process that the tests below let die"]
fn writer() {
    let home = std::env::var_os(HOME).expect("started by a test");
    let home = Path::new(&home);
    let mut journal =
        SqliteJournal::open(&home.join("data"), &home.join("state"), &mut |_| Ok(())).unwrap();
    let ledger = home.join("ledger");
    let mut ledger = std::fs::OpenOptions::new().append(true).create(true).open(ledger).unwrap();
    let mut script = Script::default();
    for _ in 0..RECORDS {
        let mut record = script.boot(journal.epoch());
        // Late enough that each commit includes a checkpoint.
        let apart =
            organism::limits::CHECKPOINT_INTERVAL * u32::try_from(journal.next().0).unwrap();
        record.time = record.time.plus(apart);
        journal.append(&mut [record]).unwrap();
        writeln!(ledger, "{}", journal.heads().last()).unwrap();
    }
    journal.close(Time::now()).unwrap();
}

const BEFORE_LAST: u64 = 3;

#[test]
#[ignore = "the process that is killed between the sync of the log and the return of the commit"]
fn paused_writer() {
    let home = std::env::var_os(HOME).expect("started by a test");
    let home = Path::new(&home);
    let mut journal =
        SqliteJournal::open(&home.join("data"), &home.join("state"), &mut |_| Ok(())).unwrap();
    let mut script = Script::default();
    for _ in 0..BEFORE_LAST {
        journal.append(&mut [script.boot(journal.epoch())]).unwrap();
    }
    std::fs::write(home.join("paused"), "").unwrap();
    until("the test lets it go on", || home.join("go-on").exists().then_some(()));
    journal.append(&mut [script.boot(journal.epoch())]).unwrap();
}

/// Size of the header of the write-ahead log's index. The index stores its header twice.
const INDEX_HEADER_BYTES: usize = 96;

fn read_index(place: &Place) -> Vec<u8> {
    let shared = place.data().join("journal.db-shm");
    let mut copy = Command::new("head");
    copy.arg("-c").arg(INDEX_HEADER_BYTES.to_string()).arg(shared);
    copy.output().unwrap().stdout
}

/// Writes the header of the write-ahead log's index in a child process. If the test process wrote
/// the header itself, it would release its own locks when it closes the file.
fn write_index(place: &Place, header: &[u8]) {
    let mut target = std::ffi::OsString::from("of=");
    target.push(place.data().join("journal.db-shm"));
    let mut copy = Command::new("dd");
    copy.args(["bs=96", "conv=notrunc", "status=none"]).arg(target).stdin(Stdio::piped());
    let mut child = copy.spawn().unwrap();
    child.stdin.take().unwrap().write_all(header).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The journal of a killed pump. The last commit is in the write-ahead log but not in the log's
/// index. The returned reader keeps the log's index alive.
fn killed_within_a_commit() -> (Place, organism::journal::sqlite::JournalReader) {
    let place = Place { home: TempDir::new().unwrap() };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::death::paused_writer", "--ignored", "--quiet"])
        .env(HOME, place.home.path())
        .env("ORGANISM_FAILPOINT", format!("after-commit:{}", BEFORE_LAST + 1))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it is paused", || place.home.path().join("paused").exists().then_some(()));
    let before = read_index(&place);
    assert_eq!(before.len(), INDEX_HEADER_BYTES);

    let reader = place.reader();
    std::fs::write(place.home.path().join("go-on"), "").unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(6));
    write_index(&place, &before);
    assert_eq!(reader.last().unwrap(), Position(BEFORE_LAST));
    (place, reader)
}

#[test]
fn a_start_writes_behind_what_it_proved_when_a_killed_pump_left_a_commit_in_the_log_alone() {
    let (place, reader) = killed_within_a_commit();
    let mut reader = Some(reader);
    let mut proved = Position(0);
    let mut journal = place
        .open_with(&mut |sealed| {
            proved = sealed.record.position;
            reader.take();
            Ok(())
        })
        .unwrap();
    assert_eq!(journal.heads().last(), proved);
    journal.append(&mut [Script::default().boot(journal.epoch())]).unwrap();
    journal.close(Time::now()).unwrap();
    let report = audit::verify(&place.data(), Some(&place.state()), &mut |_, _| {}).unwrap();
    assert_eq!(report.broken, None);
    assert_eq!(report.records, proved.0 + 1);
}

/// Runs the writer in a child process. Returns true if the writer crashed at the failpoint, and
/// false if it reached its end.
fn write(place: &Place, failpoint: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::death::writer", "--ignored", "--quiet"])
        .env(HOME, place.home.path())
        .env("ORGANISM_FAILPOINT", failpoint)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(6), "{failpoint}: {status}");
    !status.success()
}

fn acknowledged(place: &Place) -> u64 {
    let ledger = std::fs::read_to_string(place.home.path().join("ledger")).unwrap_or_default();
    ledger.lines().last().map_or(0, |line| line.parse().unwrap())
}

#[test]
fn a_death_at_any_place_loses_nothing_acknowledged_and_leaves_a_sound_journal() {
    let mut campaign = Campaign::new("death in the journal");
    let nths = if torture() { vec![1, 3, 7] } else { vec![1, 3] };
    campaign.note(format!("{} places, passes {nths:?}", failpoint::JOURNAL.len()));
    for point in failpoint::JOURNAL {
        for nth in nths.clone() {
            let place = Place { home: TempDir::new().unwrap() };
            assert!(!write(&place, "none"));
            let died = write(&place, &format!("{point}:{nth}"));
            let once_a_run = matches!(point, "epoch-raised" | "during-recovery");
            assert_eq!(died, nth == 1 || !once_a_run, "{point}:{nth}");
            let acknowledged = acknowledged(&place);
            let mut journal = place.open().unwrap_or_else(|error| panic!("{point}:{nth}: {error}"));
            let last = journal.heads().last().0;
            assert!((acknowledged..=acknowledged + 1).contains(&last), "{point}:{nth}: {last}");
            journal.append(&mut [Script::default().boot(journal.epoch())]).unwrap();
            let (data, state) = (place.data(), place.state());
            let report = audit::verify(&data, Some(&state), &mut |_, _| {}).unwrap();
            assert_eq!(report.broken, None, "{point}:{nth}");
            assert_eq!(report.records, last + 1);
        }
    }
}

#[test]
fn dying_during_recovery_again_and_again_changes_nothing() {
    let place = Place { home: TempDir::new().unwrap() };
    assert!(!write(&place, "none"));
    for point in ["during-recovery", "epoch-raised"].repeat(5) {
        assert!(write(&place, point), "{point}");
    }
    let journal = place.open().unwrap();
    assert_eq!(journal.heads().last(), Position(RECORDS));
    // Each of the five starts that could raise the epoch did so once.
    assert_eq!(journal.epoch(), 7);
}

#[test]
fn the_holder_is_named_at_once_while_another_process_writes_and_gone_when_it_dies() {
    let place = Place { home: TempDir::new().unwrap() };
    let journal = place.open().unwrap();
    let begun = std::time::Instant::now();
    assert!(
        !Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::death::writer", "--ignored"])
            .env(HOME, place.home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(place.reader().last().unwrap(), Position(0));
    // The `holder` file of a killed process blocks no other process.
    drop(journal);
    std::fs::write(place.data().join("holder"), "process 1 on elsewhere").unwrap();
    assert!(!write(&place, "none"));
}
