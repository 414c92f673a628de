//! A takeover continues from the state of its standby. That state is in memory, or in a snapshot if
//! the standby was a pump before and lost its lease.

use organism::clock::Time;
use organism::journal::sqlite::DATABASE;

use super::super::snapshots::{CONTINUES, RECORDS_KEY, snapshot};
use super::*;

const HERE: &str = "partition 0: pumped here";
const ELSEWHERE: &str = "partition 0: pumped by process";

/// Runs partition 0 with a snapshot at each checkpoint.
fn run_partition(house: &House) -> Running {
    let mut command = command(house, "0");
    command.env(RECORDS_KEY, "1").env("ORGANISM_LOG", "info");
    house.run_with(command)
}

/// Makes the pump of partition 0 write a snapshot.
fn make_snapshot(house: &House) {
    let thread = root(0, 90);
    let held = house.send_text(&numbered("hold", "0"), &["--new", &thread, "--no-wait"]);
    assert_eq!(held.code, Some(0), "{held:?}");
    // A decision always leads to a checkpoint.
    let cancelled = house.organism(&["cancel", &thread]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    until("a snapshot is made", || snapshot(house));
}

fn logs(house: &House, text: &str) {
    until_within(TAKEOVER, text, || house.log().contains(text).then_some(()));
}

fn served(house: &House, number: u32) -> String {
    let sent = ask_until_served(house, 0, number);
    assert_eq!(sent.code, Some(0), "{sent:?}\n{}", house.log());
    sent.out
}

fn kill(mut running: Running) {
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

/// Number of deliveries of pings on these hosts.
fn pings(houses: &[&House]) -> usize {
    let effects = houses.iter().flat_map(|house| effects(house));
    effects.filter(|effect| effect.starts_with("solo")).count()
}

#[test]
fn a_pump_that_lost_its_lease_stands_by_from_its_snapshot_and_takes_over_again() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run_partition(&one);
    let second = run_partition(&other);
    let recorded = served(&one, 1);
    make_snapshot(&one);

    let stopped = Time::now().to_string();
    first.signal("-STOP");
    served(&other, 2);
    first.signal("-CONT");
    logs(&one, ELSEWHERE);
    let log = one.log();
    let (_, taken) = log.rsplit_once(", since ").unwrap();
    let taken = taken.split(' ').next().unwrap();
    assert!(taken > stopped.as_str(), "since it pumps, not since it began: {taken}\n{log}");
    logs(&one, CONTINUES);
    kill(second);

    served(&one, 3);
    assert_eq!(served(&one, 1), recorded, "a repeated key is answered from the record");
    served(&one, 2);
    assert_eq!(first.stop(), Some(0));
    assert_eq!((one.recorded("ping"), one.recorded("pong")), (3, 3));
    assert_eq!(pings(&[&one, &other]), 3, "each is delivered once");
    one.verified();
}

#[test]
fn a_standby_that_lags_reads_the_rest_before_it_takes_over_from_a_killed_pump() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run_partition(&one);
    let second = run_partition(&other);
    served(&one, 1);
    second.signal("-STOP");
    let missed: Vec<_> = (2..8).map(|number| served(&one, number)).collect();
    kill(first);
    second.signal("-CONT");

    served(&other, 8);
    let repeated: Vec<_> = (2..8).map(|number| served(&other, number)).collect();
    assert_eq!(repeated, missed);
    assert_eq!(second.stop(), Some(0));
    assert_eq!((other.recorded("ping"), other.recorded("pong")), (8, 8));
    assert_eq!(pings(&[&one, &other]), 8, "each is delivered once");
    other.verified();
}

#[test]
fn one_of_two_standbys_takes_over_and_the_other_follows_it() {
    let server = Server::start();
    let houses = [host(&server), host(&server), host(&server)];
    let [one, two, three] = &houses;
    let first = run_partition(one);
    let mut standbys = vec![(two, run_partition(two)), (three, run_partition(three))];
    served(one, 1);
    kill(first);

    served(two, 2);
    let leads = |house: &House| house.log().contains(HERE);
    until_within(TAKEOVER, "one of them leads", || (leads(two) != leads(three)).then_some(()));
    let at = standbys.iter().position(|(house, _)| leads(house)).unwrap();
    let (_, leader) = standbys.remove(at);
    kill(leader);
    let (last, running) = standbys.pop().unwrap();
    served(last, 3);
    served(last, 2);
    assert_eq!(running.stop(), Some(0));
    assert_eq!((last.recorded("ping"), last.recorded("pong")), (3, 3));
    assert_eq!(pings(&[one, two, three]), 3, "each is delivered once");
    last.verified();
}

#[test]
fn a_standby_whose_projection_was_deleted_reads_the_stream_and_takes_over() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run_partition(&one);
    let second = run_partition(&other);
    served(&one, 1);
    make_snapshot(&one);
    assert_eq!(first.stop(), Some(0));
    served(&other, 2);
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(one.data().join(format!("p0/{DATABASE}{end}"))).ok();
    }

    let first = run_partition(&one);
    logs(&one, "is ignored, and every record is read");
    assert!(!one.log().contains(CONTINUES), "{}", one.log());
    kill(second);
    served(&one, 3);
    served(&one, 1);
    assert_eq!(first.stop(), Some(0));
    assert_eq!((one.recorded("ping"), one.recorded("pong")), (3, 3));
    assert_eq!(pings(&[&one, &other]), 3, "each is delivered once");
    one.verified();
}
