//! A failing disk: a failed sync, a write without space, and a short write.

use std::collections::BTreeMap;
use std::process::ExitStatus;

use organism::ids::Position;
use organism::thread::Fact;

use super::{SMALL, Tracer, may_trace, skip};
use crate::campaign::Campaign;
use crate::organism::kill::clients::Clients;
use crate::organism::kill::{Tail, embedded_house, house, settle, start, torture};
use crate::organism::{CommandOutput, House, PATIENCE, Running, numbered, until, until_within};

/// Checks that clients received no acceptance that is missing on disk: every received acceptance
/// must be on record at `mark` or earlier. `mark` is the position of the last synced record.
fn assert_nothing_was_accepted_after(house: &House, mark: Position) {
    let reader = house.reader();
    let records = reader.records(Position(1), mark).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let threads: Vec<String> = facts
        .filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(message.thread.to_string()),
            _ => None,
        })
        .collect();
    let ledger = std::fs::read_to_string(house.path("ledger")).unwrap();
    for line in ledger.lines().filter(|line| line.starts_with("accepted ")) {
        let (_, thread) = line.rsplit_once(' ').unwrap();
        assert!(threads.iter().any(|known| known == thread), "{line}, on disk up to {mark}");
    }
}

fn acknowledged(house: &House) -> Position {
    let journal = house.reader().about().unwrap().journal;
    organism::journal::acknowledged(&house.state(), journal).unwrap().0
}

/// Makes the nth sync of each thread fail, counted from now on. Returns how the organism ended. An
/// organism survives a failed sync of the checkpoints outside the journal; in this case, a further
/// sync is made to fail.
fn fail_a_sync_of_the_journal(house: &House, running: &mut Running, nth: u32) -> ExitStatus {
    let inject = format!("fsync,fdatasync:error=EIO:when={nth}");
    let warnings = || house.log().matches("could not write checkpoints to the file").count();
    loop {
        let before = warnings();
        let tracer = Tracer::attach(house, running.child.id(), &inject);
        let ended = until_within(PATIENCE, "it stops, or goes on with a warning", || {
            let ended = running.child.try_wait().unwrap();
            (ended.is_some() || warnings() > before).then_some(ended)
        });
        drop(tracer);
        if let Some(status) = ended {
            return status;
        }
    }
}

#[test]
fn a_sync_that_fails_stops_it_and_nothing_more_is_acknowledged() {
    if let Err(reason) = may_trace() {
        return skip("syncs that fail", &reason);
    }
    let mut campaign = Campaign::new("syncs that fail");
    let house = embedded_house();
    let clients = Clients::start_few(&house);
    let nths = if torture() { 1..=30 } else { 1..=3 };
    campaign.note(format!("{} failed", nths.clone().count()));
    for nth in nths {
        let before = house.log().matches("is ready").count();
        let mut running = start(&house, None);
        until("it is ready", || (house.log().matches("is ready").count() > before).then_some(()));
        let said = house.log().len();
        let ended = fail_a_sync_of_the_journal(&house, &mut running, nth);
        assert_eq!(ended.code(), Some(69), "{}", house.log());
        let said = house.log().split_off(said);
        assert!(said.contains("organism: writing to the journal: disk I/O error"), "{said}");
        assert!(said.contains("the pump stopped"), "{said}");
        assert_nothing_was_accepted_after(&house, acknowledged(&house));
        house.verified();
    }
    campaign.note(settle(&house, clients));
}

#[test]
fn a_write_that_fails_or_is_cut_short_under_load_loses_nothing() {
    if let Err(reason) = may_trace() {
        return skip("writes that fail", &reason);
    }
    let mut campaign = Campaign::new("writes that fail under load");
    let house = house();
    let clients = Clients::start(&house);
    let mut tail = Tail::default();
    let mut hits: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    let faults = ["error=ENOSPC", "error=EIO", "retval=0"];
    for (nth, fault) in (1..=if torture() { 30 } else { 3 }).zip(faults.iter().cycle()) {
        let before = house.log().matches("is ready").count();
        let mut running = start(&house, None);
        until("it is ready", || (house.log().matches("is ready").count() > before).then_some(()));
        let pid = running.child.id();
        let tracer = Tracer::attach(&house, pid, &format!("pwrite64:{fault}:when={nth}+20"));
        // The organism continues after a lack of space, and stops after an error of the disk.
        tail.in_flight(&house);
        let enough = tail.messages + if torture() { 100 } else { 50 };
        until_within(PATIENCE, "enough has happened, or it stops", || {
            tail.in_flight(&house);
            let over = running.child.try_wait().unwrap();
            (over.is_some() || tail.messages >= enough).then_some(())
        });
        if let Some(status) = running.child.try_wait().unwrap() {
            assert!(matches!(status.code(), Some(69 | 75)), "{fault}: {}", house.log());
            assert_nothing_was_accepted_after(&house, acknowledged(&house));
        }
        let is_over = running.child.try_wait().unwrap().is_some();
        drop(running);
        drop(tracer);
        let hit = hits.entry(fault).or_default();
        hit[0] += injected(&house);
        hit[1] += u32::from(is_over);
        house.verified();
    }
    for (fault, [hits, stops]) in hits {
        campaign.note(format!("{fault} {hits} times, stopped {stops} times"));
    }
    campaign.note(settle(&house, clients));
}

/// Number of injected faults.
fn injected(house: &House) -> u32 {
    let calls = std::fs::read_to_string(house.path("calls")).unwrap();
    u32::try_from(calls.matches("(INJECTED)").count()).unwrap()
}

/// Sends one payload through a new organism. In each thread of the organism, the nth of the given
/// system calls fails.
fn send_under(house: &House, calls: &str, fault: &str, nth: u32) -> (CommandOutput, bool) {
    let organism = house.command(&["send", "p.xml", "--as", "desk", "--key", "k"]);
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qq", "-o", "calls", "-e", &format!("trace={calls}")]);
    command.args(["-e", &format!("inject={calls}:{fault}:when={nth}")]);
    command.arg(organism.get_program()).args(organism.get_args());
    command.current_dir(organism.get_current_dir().unwrap());
    for (name, value) in organism.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let said: CommandOutput = command.output().unwrap().into();
    (said, injected(house) > 0)
}

#[test]
fn a_start_with_one_failing_system_call_reports_it_or_succeeds_and_the_next_start_succeeds() {
    if let Err(reason) = may_trace() {
        return skip("starts on a failing disk", &reason);
    }
    let mut campaign = Campaign::new("starts on a failing disk");
    let pong = numbered("pong", "1") + "\n";
    let faults = [
        ("fsync,fdatasync", "error=EIO", 2),
        ("pwrite64", "error=ENOSPC", 8),
        ("pwrite64", "error=EIO", 8),
        ("pwrite64", "retval=0", 8),
    ];
    let mut hits = 0;
    for (calls, fault, step) in faults {
        let before = hits;
        let step = if torture() { 1 } else { step };
        for nth in (1..).step_by(step) {
            let house = House::with(SMALL);
            house.write("p.xml", numbered("ping", "1"));
            let (said, was_hit) = send_under(&house, calls, fault, nth);
            let what = format!("{calls}:{fault}:when={nth}: {said:?}");
            if !was_hit {
                assert_eq!(said.code, Some(0), "{what}");
                break;
            }
            hits += 1;
            match said.code {
                Some(0) => assert_eq!(said.out, pong, "{what}"),
                Some(69 | 75) => assert!(said.err.contains("organism: "), "{what}"),
                _ => panic!("{what}"),
            }
            let again = house.organism(&["send", "p.xml", "--as", "desk", "--key", "k"]);
            assert_eq!((again.code, &again.out), (Some(0), &pong), "{what}; then {again:?}");
            assert_eq!((house.recorded("ping"), house.recorded("pong")), (1, 1), "{what}");
            house.verified();
        }
        campaign.note(format!("{calls} {fault} {} times", hits - before));
    }
    assert!(hits > 10, "{hits}");
}
