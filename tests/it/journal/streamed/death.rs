//! Crashes a writer at every failpoint of a journal on JetStream, including the failpoints before
//! and after a publish to the stream.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use organism::audit;
use organism::clock::Time;
use organism::failpoint::{JETSTREAM, JOURNAL};
use organism::journal::Journal as _;
use organism::journal::jetstream::StreamJournal;
use organism::nats::{NatsCredentials, Options};

use super::Place;
use crate::journal::script::Script;

const HOME: &str = "STREAMED_TEST_HOME";
const SERVER: &str = "STREAMED_TEST_SERVER";
const NAME: &str = "STREAMED_TEST_NAME";
const RECORDS: u32 = 4;

#[test]
#[ignore = "the process that the test below lets die"]
fn writer() {
    let variable = |name| std::env::var(name).expect("started by a test");
    let home = std::path::PathBuf::from(variable(HOME));
    let servers = Options {
        servers: vec![variable(SERVER)],
        credentials: NatsCredentials::Anonymous,
        ca: None,
    };
    let options = super::options(&variable(NAME));
    let (data, state) = (home.join("data"), home.join("state"));
    let mut journal =
        StreamJournal::open(&servers, &options, &data, &state, &mut |_| Ok(())).unwrap();
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

/// Runs the writer. Returns true if it crashed at its failpoint.
fn write(place: &Place, failpoint: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::streamed::death::writer", "--ignored", "--quiet"])
        .env(HOME, place.home.home.path())
        .env(SERVER, place.server().address())
        .env(NAME, &place.options.organism)
        .env("ORGANISM_FAILPOINT", failpoint)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(6), "{failpoint}: {status}");
    !status.success()
}

fn acknowledged(place: &Place) -> u64 {
    let ledger = place.home.home.path().join("ledger");
    let ledger = std::fs::read_to_string(ledger).unwrap_or_default();
    ledger.lines().last().map_or(0, |line| line.parse().unwrap())
}

#[test]
fn a_death_at_any_place_loses_nothing_acknowledged_here_or_on_another_host() {
    for point in JOURNAL.iter().chain(&JETSTREAM) {
        let place = Place::new();
        assert!(!write(&place, "none"));
        assert!(write(&place, point), "{point}");
        let acknowledged = acknowledged(&place);
        for host in [&place, &place.elsewhere()] {
            place.let_lapse();
            let mut journal = host.open().unwrap_or_else(|error| panic!("{point}: {error}"));
            let last = journal.heads().last().0;
            assert!((acknowledged..=acknowledged + 2).contains(&last), "{point}: {last}");
            journal.append(&mut [Script::default().boot(journal.epoch())]).unwrap();
            drop(journal);
            let (data, state) = (host.data(), host.state());
            let report = audit::verify(&data, Some(&state), &mut |_, _| {}).unwrap();
            assert_eq!((report.broken, report.records), (None, last + 1), "{point}");
        }
    }
}
