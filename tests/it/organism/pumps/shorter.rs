//! The servers lose the end of the stream, because an older copy of their store is restored.
//!
//! The simulation keeps its records in one list without a second copy, so a shortened stream needs
//! a real server. `KILLS=…` sets how often the campaign kills a pump and restores the older stream;
//! `SEED=…` repeats the choices.

use std::path::Path;
use std::process::Stdio;

use organism::failpoint::REPAIR;

use super::{House, Server, ask, host, stream};
use crate::campaign::Campaign;
use crate::organism::kill::{choices, environment, torture};
use crate::organism::proof::last;
use crate::organism::{CommandOutput, Running, until};

/// Number of recorded repairs.
fn repairs(house: &House) -> usize {
    let exported = house.organism(&["export", "--format", "jsonl"]).out;
    exported.matches("published-from").count() + exported.matches("kept-up-to").count()
}

/// Starts an organism, sends the requests with these numbers, and stops the organism after the last
/// answer.
pub fn answer(house: &House, numbers: std::ops::Range<u32>) {
    let running = house.run();
    for number in numbers {
        ask(house, &number.to_string());
    }
    assert_eq!(running.stop(), Some(0));
}

/// Answers requests 1 to 4 on `house`, and restores the server's store as it was between requests 2
/// and 3.
fn goes_back(server: &Server, house: &House) {
    answer(house, 1..3);
    server.kill();
    let before = server.copy_store();
    server.restart();
    answer(house, 3..5);
    server.kill();
    server.put_back(&before);
    server.restart();
}

#[test]
fn a_store_that_went_back_gets_no_pump_and_every_command_names_what_shows_more() {
    let server = Server::start();
    let house = host(&server, &stream("back"));
    goes_back(&server, &house);
    for command in [&["run"][..], &["send", "organism.toml", "--as", "desk"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("but more was acknowledged"), "{refused:?}");
        assert!(refused.err.contains("the projection in"), "{refused:?}");
        assert!(refused.err.contains("the watermark in"), "{refused:?}");
        assert!(refused.err.contains("organism repair"), "{refused:?}");
        assert!(refused.err.contains("docs/errors/stream-shorter.md"), "{refused:?}");
    }
    assert_eq!(house.recorded("pong"), 4, "the projection keeps what the servers lost");
}

#[test]
fn a_repaired_stream_is_the_same_record_on_every_host() {
    let server = Server::start();
    let name = stream("same");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    let repaired = house.organism(&["repair", "--note", "power cut"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains("published    records "), "{repaired:?}");
    assert_eq!(repairs(&house), 1);
    let again = house.organism(&["repair"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.out.contains("nothing was done"), "{again:?}");

    answer(&house, 3..7);
    answer(&other, 3..8);
    assert_eq!(other.recorded("pong"), 7);
    assert_eq!(repairs(&other), 1);
    let verified = house.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

/// Two hosts have pumped the journal, and the first has only the beginning of the second one's
/// records. A repair on the first host would add a record after this beginning, and so fork the
/// journal. So `repair` waits until the operator chooses a host.
#[test]
fn where_two_hosts_have_pumped_a_repair_waits_for_the_choice_of_the_one_that_went_farthest() {
    let server = Server::start();
    let name = stream("replaced");
    let (first, second) = (host(&server, &name), host(&server, &name));
    answer(&first, 1..2);
    answer(&second, 2..3);
    server.kill();
    let before = server.copy_store();
    server.restart();
    let running = run(&first);
    ask(&first, "3");
    kill_pump(running);
    answer(&second, 4..7);
    server.kill();
    server.put_back(&before);
    server.restart();

    let number = |refused: &CommandOutput| {
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("has pumped this journal, too"), "{refused:?}");
        let (_, after) = refused.err.split_once("goes up to record ").unwrap();
        after.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let refused = first.organism(&["repair"]);
    assert!(refused.err.contains("--from projection --partitions 0"), "{refused:?}");
    let behind = number(&refused);
    let refused = second.organism(&["repair"]);
    assert!(refused.err.contains("may have later ones"), "{refused:?}");
    let farthest = number(&refused);
    assert!(behind < farthest, "{behind} {farthest}");
    let chosen = second.organism(&["repair", "--from", "projection", "--partitions", "0"]);
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
    answer(&first, 7..8);
    assert_eq!((first.recorded("pong"), repairs(&first)), (7, 1));
    let verified = first.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

#[test]
fn a_killed_repair_continues_and_is_recorded_once() {
    // So few records are published in one message, so the failpoint between two is never passed.
    let [noted, _, published] = REPAIR;
    for place in [published, "epoch-raised", noted, "before-publish"] {
        let server = Server::start();
        let name = stream(&format!("killed-{place}"));
        let (house, other) = (host(&server, &name), host(&server, &name));
        goes_back(&server, &house);
        let mut command = house.command(&["repair"]);
        let killed = command.env("ORGANISM_FAILPOINT", place).output().unwrap();
        assert_eq!(killed.status.code(), None, "{place}: {killed:?}");
        if [noted, "before-publish"].contains(&place) {
            // A host without any records of the journal knows the bound from the lease.
            let early = other.organism(&["run"]);
            assert_eq!(early.code, Some(4), "{place}: {early:?}");
            assert!(early.err.contains("the lease in"), "{place}: {early:?}");
        }
        let repaired = house.organism(&["repair"]);
        assert_eq!(repaired.code, Some(0), "{place}: {repaired:?}");
        answer(&other, 3..6);
        assert_eq!(other.recorded("pong"), 5, "{place}");
        assert_eq!(repairs(&other), 1, "{place}");
    }
}

#[test]
fn a_forked_stream_gets_no_pump_and_a_repair_takes_the_choice() {
    let server = Server::start();
    let name = stream("forked");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    // The host has no records of the journal, and no reachable place shows more than the stream.
    answer(&other, 7..12);
    let (ours, theirs) = (last(&house), last(&other));
    let sides =
        format!("goes up to record {ours} (the stream goes up to record {theirs}; `--from stream`");
    let refused = house.organism(&["repair"]);
    assert!(refused.err.contains(&sides), "{refused:?}");
    let (_, fork) = refused.err.split_once("is forked at record ").unwrap();
    let fork = fork.split(':').next().unwrap();
    for command in [&["run"][..], &["repair"], &["repair", "--from", "projection"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("is forked at record"), "{refused:?}");
        assert!(refused.err.contains("the projection in"), "{refused:?}");
    }
    let kept = house.organism(&["repair", "--from", "stream"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(kept.out.contains("set aside    the projection"), "{kept:?}");
    let stream = format!("kept         the stream, up to record {theirs}\n");
    assert!(kept.out.contains(&stream), "{kept:?}");
    let given_up = format!("given up     other records, from {fork} up to {ours}\n");
    assert!(kept.out.contains(&given_up), "{kept:?}");
    answer(&house, 12..13);
    assert_eq!((house.recorded("pong"), repairs(&house)), (8, 1));
    let verified = house.organism(&["verify", "--stream"]);
    let given_up = format!("given up     records {fork} to {ours} of another copy");
    assert!(verified.out.contains(&given_up), "{verified:?}");
    assert!(!verified.out.contains("lost  "), "{verified:?}");
}

/// While another host pumps, a repair cannot be recorded, so `repair` is refused and changes
/// nothing. It still compares both sides and shows the result.
#[test]
fn a_repair_shows_both_sides_while_another_host_pumps_and_changes_nothing() {
    let server = Server::start();
    let name = stream("pumped");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    answer(&other, 7..12);
    let theirs = last(&other);
    let running = other.run();
    for command in [&["repair"][..], &["repair", "--from", "stream"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("is forked at record"), "{refused:?}");
        let (shown, _) = refused.err.split_once(", and is pumped by process ").unwrap();
        let (_, end) = shown.rsplit_once("(the stream goes up to record ").unwrap();
        assert!(end.parse::<u64>().unwrap() > theirs.0, "{refused:?}");
        assert!(refused.err.contains("first stop the organism there, too"), "{refused:?}");
        assert!(!house.data().join("set-aside-1").exists());
    }

    let whole = host(&server, &name);
    let nothing = whole.organism(&["repair"]);
    assert_eq!(nothing.code, Some(0), "{nothing:?}");
    assert!(nothing.out.contains("nothing was done"), "{nothing:?}");
    assert_eq!(running.stop(), Some(0));
}

/// The first record of a pump that leads the shorter stream replaces a lost record. `repair`
/// reports this fork at once.
#[test]
fn a_repair_shows_the_fork_as_soon_as_another_host_pumps_the_shorter_stream() {
    let server = Server::start();
    let name = stream("just-pumped");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    let running = other.run();
    let refused = house.organism(&["repair"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("is forked at record"), "{refused:?}");
    assert!(refused.err.contains(", and is pumped by process "), "{refused:?}");
    assert_eq!(running.stop(), Some(0));
}

/// Another process holds the lease of the deleted stream. In this test, this process is a repair,
/// which waits at a failpoint until the test kills it.
#[test]
fn a_repair_of_a_stream_that_is_gone_waits_for_the_process_that_holds_its_lease() {
    let server = Server::start();
    let name = stream("gone");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    let [noted, ..] = REPAIR;
    let mut command = house.command(&["repair"]);
    command.env("ORGANISM_FAILPOINT", noted);
    command.env("ORGANISM_FAILPOINT_UNTIL", house.path("go-on"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let holder = Running { child: command.spawn().unwrap() };
    let journal = format!("{name}-0");
    let note = house.state().join(format!("{journal}.repair"));
    until("the repair is noted", || note.exists().then_some(()));

    server.admin().delete(&journal);
    let refused = other.organism(&["repair"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.err.contains("is in use by process "), "{refused:?}");
    kill_pump(holder);
}

/// An operator keeps the stream, and removes the forked projection of this host with its notes. The
/// next start makes the projection again from the stream.
#[test]
fn a_forked_projection_that_was_moved_away_with_its_notes_is_made_anew_from_the_stream() {
    let server = Server::start();
    let name = stream("thrown");
    let (house, other) = (host(&server, &name), host(&server, &name));
    goes_back(&server, &house);
    answer(&other, 7..12);
    let remove = |directory: &Path, is_removed: &dyn Fn(&str) -> bool| {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if is_removed(entry.file_name().to_str().unwrap()) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    };
    remove(&house.data(), &|file| file.starts_with("journal.db"));
    remove(&house.state(), &|file| file.ends_with(".watermark") || file.ends_with(".checkpoints"));
    remove(&house.copies(), &|file| file.ends_with(".checkpoints"));
    answer(&house, 12..13);
    assert_eq!((house.recorded("pong"), repairs(&house)), (8, 0));
    let verified = house.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

fn run(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects"));
    house.run_with(command)
}

fn kill_pump(mut running: Running) {
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

/// Kills the pump, and then the server.
fn kill(server: &Server, running: Running) {
    kill_pump(running);
    server.kill();
}

#[test]
fn a_stream_that_became_shorter_gets_no_pump_until_its_repair_which_loses_and_repeats_nothing() {
    let mut report = Campaign::new("streams that became shorter");
    let mut choices = choices();
    let rounds = environment("KILLS").unwrap_or(if torture() { 50 } else { 2 });
    let server = Server::start();
    let name = stream("seeded");
    let house = host(&server, &name);
    let (mut answers, mut lost) = (Vec::new(), 0);
    for _ in 0..rounds {
        let running = run(&house);
        let mut answer = |count: u64| {
            for _ in 0..count {
                let number = answers.len().to_string();
                answers.push(ask(&house, &number));
            }
        };
        answer(1 + choices.below(3));
        kill(&server, running);
        let before = server.copy_store();
        server.restart();

        let running = run(&house);
        let more = 1 + choices.below(3);
        answer(more);
        kill(&server, running);
        server.put_back(&before);
        server.restart();
        lost += more;
        if choices.below(2) == 0 {
            // The bucket of the lease is on the same servers and is lost, too.
            server.admin().delete(&format!("KV_{name}-pumps"));
        }

        for command in [&["run"][..], &["send", "organism.toml", "--as", "desk"]] {
            let refused = house.organism(command);
            assert_eq!(refused.code, Some(4), "{refused:?}");
            assert!(refused.err.contains("but more was acknowledged"), "{refused:?}");
            assert!(refused.err.contains("the projection in"), "{refused:?}");
        }
        let repaired = house.organism(&["repair"]);
        assert_eq!(repaired.code, Some(0), "{repaired:?}");
    }

    let running = run(&house);
    for (number, answered) in answers.iter().enumerate() {
        assert_eq!(ask(&house, &number.to_string()), *answered, "the same key, the same answer");
    }
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("pong"), answers.len());
    let effects = std::fs::read_to_string(house.path("effects")).unwrap();
    assert_eq!(effects.lines().count(), answers.len(), "each is done once: {effects}");
    assert_eq!(repairs(&house) as u64, rounds);
    report.note(format!("{rounds} losses of the stream's end, {lost} lost answers put back"));
}
