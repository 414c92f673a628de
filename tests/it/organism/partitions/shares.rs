//! Processes that may lead the same partitions divide them among each other, whenever a process
//! starts or stops. Clients notice no change.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use organism::ids::Position;
use organism::journal::HashedRecord;
use organism::journal::sqlite::JournalReader;
use organism::thread::Input;

use super::super::kill::torture;
use super::super::{CommandOutput, House, Running, numbered, say, until, until_within};
use super::load::Load;
use super::{
    PARTITIONS, TAKEOVER, all_verified, ask_in, command, config, effects, host, root, run,
};
use crate::nats::Server;
use crate::web::{address, ask};

/// Maximum time until a process takes over a free partition.
const FREE_PARTITION_MAX: Duration = Duration::from_secs(3);

/// The partitions that the process at this address reports as its own.
pub fn has(at: SocketAddr) -> Vec<u32> {
    let page = ask(at, "/metrics").body;
    let line = |n: &u32| format!("organism_partition_pumped{{partition=\"{n}\"}} 1\n");
    (0..PARTITIONS).filter(|n| page.contains(&line(n))).collect()
}

/// Waits until each of these processes has this number of partitions, and each partition has an
/// owner.
pub fn share(houses: &[&House], shares: &[usize]) {
    let at: Vec<_> = houses.iter().map(|house| address(house)).collect();
    let mut seen = Vec::new();
    until_within(2 * TAKEOVER, "everybody has their share", || {
        seen = at.iter().map(|at| has(*at)).collect();
        let mut all = seen.concat();
        all.sort_unstable();
        let counts: Vec<_> = seen.iter().map(Vec::len).collect();
        let whole = all == (0..PARTITIONS).collect::<Vec<_>>();
        (whole && counts == shares).then_some(())
    });
}

/// Checks that each submission was accepted once, according to the journal with the most records.
fn judge(houses: [&House; 2], count: usize) {
    let house = houses.into_iter().max_by_key(|house| house.recorded("pong")).unwrap();
    assert_eq!((house.recorded("ping"), house.recorded("pong")), (count, count));
    let done: usize = houses.iter().map(|house| effects(house).len()).sum();
    assert!(done >= count, "{done} of {count}");
    all_verified(house);
}

#[test]
fn processes_that_come_and_die_under_load_have_half_each_and_nothing_is_lost_or_doubled() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut first = run(&one, "0,1,2,3");
    let load = Load::start(&[&other], if torture() { 4 } else { 2 });
    load.has_done(10);
    let second = run(&other, "0,1,2,3");
    share(&[&one, &other], &[2, 2]);
    load.has_done(10);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    share(&[&other], &[4]);
    load.has_done(10);
    let first = run(&one, "0,1,2,3");
    share(&[&one, &other], &[2, 2]);
    load.has_done(10);
    let count = load.stop();
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
    run(&other, "0,1,2,3").stop();
    judge([&one, &other], count);
}

#[test]
fn a_rolling_restart_under_load_ends_with_half_each_and_fails_no_message() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut running: [Option<Running>; 2] = [&one, &other].map(|at| Some(run(at, "0,1,2,3")));
    share(&[&one, &other], &[2, 2]);
    let load = Load::start(&[&one, &other], if torture() { 3 } else { 2 });
    load.has_done(10);
    for (at, house) in [&one, &other].into_iter().enumerate() {
        assert_eq!(running[at].take().unwrap().stop(), Some(0));
        share(&[[&other, &one][at]], &[4]);
        load.has_done(10);
        running[at] = Some(run(house, "0,1,2,3"));
        share(&[&one, &other], &[2, 2]);
        load.has_done(10);
    }
    let count = load.stop();
    for running in running.into_iter().flatten() {
        assert_eq!(running.stop(), Some(0));
    }
    run(&other, "0,1,2,3").stop();
    judge([&one, &other], count);
    // No submission was executed twice: every process finished its deliveries before it ended or
    // handed a partition over.
    assert_eq!(effects(&one).len() + effects(&other).len(), count);
}

#[test]
fn a_process_is_given_what_it_may_pump_and_nothing_else() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1,2,3");
    let second = run(&other, "3");
    share(&[&one, &other], &[3, 1]);
    assert_eq!(has(address(&other)), [3]);
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
}

/// A partition is handed over only after its deliveries in flight have ended. The process that
/// takes it over never gets these deliveries.
#[test]
fn a_partition_is_handed_over_when_what_is_out_has_ended() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut first = command(&one, "0,1,2,3");
    first.env("ORGANISM_LOG", "info");
    let first = one.run_with(first);
    let held: Vec<_> = (0..PARTITIONS).map(|partition| root(partition, 0)).collect();
    for partition in 0..PARTITIONS {
        let new = root(partition, 1);
        let sent = one.send_text(&say("open"), &["--new", &new, "--no-wait"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
    }
    for root in &held {
        let hold = ["--new", root, "--key", root, "--no-wait"];
        assert_eq!(one.send_text(&numbered("hold", "1"), &hold).code, Some(0));
    }
    until("all are handed over", || (effects(&one).len() == held.len()).then_some(()));
    let second = run(&other, "0,1,2,3");
    let at = address(&one);
    until_within(TAKEOVER, "one is to be handed over", || (has(at).len() == 3).then_some(()));
    assert_eq!(one.organism(&["threads"]).code, Some(0));
    let begun = Instant::now();
    until("the other process has taken over what was free too early", || {
        assert!(effects(&other).is_empty(), "it begins what is still out at the first");
        (begun.elapsed() >= FREE_PARTITION_MAX).then_some(())
    });
    one.write("let-go", "");
    other.write("let-go", "");
    share(&[&one, &other], &[2, 2]);
    until("both partitions are handed over with their held calls", || {
        let log = one.log();
        let lines = log.lines().filter(|line| line.contains("handed over with open work: 1 call"));
        (lines.filter(|line| line.contains("partition=")).count() == 2).then_some(())
    });
    assert!(!one.log().contains("stopped with open work"), "{}", one.log());
    for root in &held {
        let told = other.send_text(&numbered("hold", "1"), &["--new", root, "--key", root]);
        assert_eq!((told.code, told.out), (Some(0), numbered("held", "1") + "\n"), "{}", told.err);
    }
    assert_eq!((effects(&one).len(), effects(&other).len()), (held.len(), 0));
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
}

#[test]
fn a_partition_that_is_handed_over_ends_with_a_checkpoint_of_its_pump() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let key = one.organism(&["key", "show"]).out.trim().to_owned();
    let first = run(&one, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_in(&one, partition, 0).code, Some(0));
    }
    let second = run(&other, "0,1,2,3");
    share(&[&one, &other], &[2, 2]);
    for partition in has(address(&other)) {
        let data = other.data().join(format!("p{partition}"));
        let reader = JournalReader::open(&data).unwrap();
        let is_boot = |sealed: &HashedRecord| matches!(sealed.record.input, Input::Boot { .. });
        // The partition counts as pumped a moment before its boot can be read.
        let begun = until("the second pump has begun", || {
            let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
            let begun = records.into_iter().rfind(is_boot).unwrap().record.position;
            (begun > Position(1)).then_some(begun)
        });
        let left = Position(begun.0 - 1);
        let signed = reader.checkpoints().unwrap();
        let is_signed = signed.iter().any(|line| line.position == left && line.key == key);
        assert!(is_signed, "partition {partition} was left at {left}: {signed:?}");
    }
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
}

#[test]
fn members_with_different_configs_hand_nothing_over_and_warn_of_each_other() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let more = format!("{}\n[limits]\ndepth = 3\n", config(&server, PARTITIONS));
    other.write("organism.toml", more);
    let mut first = run(&one, "0,1,2,3");
    let second = run(&other, "0,1,2,3");
    for house in [&one, &other] {
        until("it is told", || house.log().contains("runs another config").then_some(()));
    }
    assert_eq!(has(address(&one)).len(), PARTITIONS as usize);
    // After a kill, the other process continues it.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    share(&[&other], &[4]);
    assert_eq!(ask_in(&other, 0, 0).code, Some(0));
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn work_for_a_pump_with_the_config_of_before_is_taken_from_a_host_with_the_new_one() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let new = format!("{}\n[limits]\ndepth = 3\n", config(&server, PARTITIONS));
    let first = run(&one, "0,1");
    other.write("organism.toml", &new);
    let second = run(&other, "2,3");

    // The config of a command is compared with that of the organism on its own host alone.
    assert_eq!(ask_in(&other, 0, 0).code, Some(0), "{}", other.log());
    assert_eq!(ask_in(&one, 2, 0).code, Some(0), "{}", one.log());
    assert_eq!((effects(&one).len(), effects(&other).len()), (1, 1));

    // A file that equals the config of another host does not open the way to that host.
    one.write("organism.toml", &new);
    for partition in [0, 2] {
        let refused = ask_in(&one, partition, 1);
        assert_eq!(refused.code, Some(75), "{refused:?}");
        assert!(refused.err.contains("nothing was sent"), "{refused:?}");
    }
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));

    // After its restart the host takes work again.
    let first = run(&one, "0,1,2,3");
    assert_eq!(ask_in(&one, 2, 1).code, Some(0), "{}", one.log());
    assert_eq!(first.stop(), Some(0));
    assert_eq!((one.recorded("ping"), one.recorded("pong")), (3, 3));
}

#[test]
fn a_second_process_with_the_same_state_is_refused_with_what_to_name() {
    let server = Server::start();
    let house = host(&server);
    let with_data = |directory: &str| {
        let mut run = command(&house, "0,1,2,3");
        run.env("ORGANISM_ORGANISM__DATA", house.path(directory));
        run
    };
    let first = house.run_with(with_data("one-data"));
    let refused = CommandOutput::from(with_data("other-data").output().unwrap());
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.err.contains("name another `state` under [organism]"), "{refused:?}");
    let holder = format!("in use by process {}", first.child.id());
    assert!(refused.err.contains(&holder), "{refused:?}");
    assert_eq!(first.stop(), Some(0));
}
