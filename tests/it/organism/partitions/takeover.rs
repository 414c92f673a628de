//! The time from the death or freeze of a pump or its server until the next answer, on three
//! servers that keep every stream three times. `ROUNDS=…` sets the number of repetitions.

use std::time::{Duration, Instant};

use organism::nats::{BlockingClient, NatsRequest};
use serde_json::{Value, json};

use super::super::kill::environment;
use super::super::{House, Running, until_within};
use super::{CONFIG, PARTITIONS, TAKEOVER, all_verified, ask_in, ask_until_served, run};
use crate::campaign::Campaign;
use crate::nats::{Cluster, Server};

const STREAM: &str = "ORGANISM-talk-0";
const LEASES: &str = "KV_ORGANISM-talk-pumps";
const BARE: &str = "BARE";

/// Maximum time until a request is answered during a takeover. It is shorter than two minutes,
/// because a server keeps message ids for two minutes and refuses messages that it takes for
/// duplicates.
const OUTAGE: Duration = Duration::from_secs(60);

fn rounds() -> u32 {
    environment("ROUNDS").and_then(|rounds| u32::try_from(rounds).ok()).unwrap_or(1)
}

fn host(cluster: &Cluster) -> House {
    let urls = cluster.urls();
    let journal = format!("replicas = 3\npartitions = {PARTITIONS}\n");
    House::settled(&format!("{CONFIG}{journal}\n[nats]\nurl = {urls}\n"))
}

/// Sorts durations, and shows them in seconds.
fn shown(all: &mut [Duration]) -> String {
    all.sort();
    let all: Vec<_> = all.iter().map(|took| format!("{:.1}", took.as_secs_f64())).collect();
    all.join(" ")
}

/// Submits a request to partition 0 through this host's socket. Returns the time until the answer.
fn answered(house: &House, number: u32) -> Duration {
    let begun = Instant::now();
    let sent = ask_in(house, 0, number);
    assert_eq!(sent.code, Some(0), "{sent:?}\n{}", house.log());
    let took = begun.elapsed();
    assert!(took < OUTAGE, "{took:?}\n{}", house.log());
    took
}

#[test]
fn requests_are_answered_within_five_seconds_after_a_pump_died_or_froze() {
    let mut report = Campaign::new("takeovers");
    let cluster = Cluster::start();
    let houses = [host(&cluster), host(&cluster)];
    // One partition, which one of the two hosts leads.
    let mut running: Vec<Running> = houses.iter().map(|house| run(house, "0")).collect();
    cluster.wait_until_whole(&[STREAM, LEASES]);
    let mut number = 0;
    let (mut killed, mut frozen) = (Vec::new(), Vec::new());
    let mut office = 0;
    for round in 0..2 * rounds() {
        let (here, there) = (office, 1 - office);
        answered(&houses[there], number);
        number += 1;
        let is_kill = round % 2 == 0;
        let child = &mut running[here];
        if is_kill {
            child.child.kill().unwrap();
            child.child.wait().unwrap();
        } else {
            child.signal("-STOP");
        }
        let took = answered(&houses[there], number);
        number += 1;
        assert!(took < TAKEOVER, "{took:?}");
        if is_kill {
            killed.push(took);
            running[here] = run(&houses[here], "0");
        } else {
            frozen.push(took);
            // The frozen process takes connections on its host, and serves none of them.
            answered(&houses[here], number);
            number += 1;
            running[here].signal("-CONT");
            until_within(TAKEOVER, "it stands by", || {
                let log = houses[here].log();
                log.contains("partition 0: pumped by process").then_some(())
            });
        }
        office = there;
    }
    report.note(format!("killed, s: {}", shown(&mut killed)));
    report.note(format!("frozen, s: {}", shown(&mut frozen)));
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
    houses[office].verified();
}

/// A stream that belongs to the test alone and has no pump. It shows how long the servers take
/// until a stream acknowledges messages again.
struct Bare {
    link: BlockingClient,
}

impl Bare {
    fn make(cluster: &Cluster) -> Self {
        let link = BlockingClient::open(&cluster.options(), "bare").unwrap();
        let bare = Self { link };
        let config = json!({
            "name": BARE, "subjects": ["bare"], "storage": "file", "num_replicas": 3,
        });
        until_within(TAKEOVER, "the bare stream is made", || {
            bare.ask(&format!("$JS.API.STREAM.CREATE.{BARE}"), &config.to_string())
        });
        bare
    }

    fn ask(&self, subject: &str, body: &str) -> Option<Value> {
        let (subject, body) = (subject.to_owned(), body.into());
        let patience = Duration::from_millis(200);
        let reply =
            self.link.request(NatsRequest { subject, headers: None, body, patience }).ok()?;
        let answer: Value = serde_json::from_slice(&reply).unwrap();
        answer.get("error").is_none().then_some(answer)
    }

    /// Makes this node the leader of the bare stream, and uses another node for queries from now
    /// on.
    fn led_by(self, cluster: &Cluster, node: usize) -> Self {
        until_within(2 * TAKEOVER, "the bare stream has that leader", || {
            if cluster.leader(BARE) == node {
                return Some(());
            }
            self.ask(&format!("$JS.API.STREAM.LEADER.STEPDOWN.{BARE}"), "");
            None
        });
        let other = &cluster.nodes[(node + 1) % cluster.nodes.len()];
        Self { link: BlockingClient::open(&other.options(), "bare").unwrap() }
    }

    fn answered(&self) -> Duration {
        let begun = Instant::now();
        until_within(2 * TAKEOVER, "a bare message is acknowledged", || self.ask("bare", "x"));
        begun.elapsed()
    }
}

#[test]
fn requests_are_answered_soon_after_the_election_of_a_new_stream_leader() {
    let mut report = Campaign::new("stream leaders");
    let cluster = Cluster::start();
    let house = host(&cluster);
    let running = run(&house, "0,1,2,3");
    // No stream can be created while a server is missing.
    (0..PARTITIONS).for_each(|partition| assert_eq!(ask_in(&house, partition, 0).code, Some(0)));
    let mut bare = Bare::make(&cluster);
    let mut number = 1;
    let mut all = [const { Vec::<Duration>::new() }; 4];
    for round in 0..2 * rounds() {
        cluster.wait_until_whole(&[STREAM, LEASES, BARE]);
        answered(&house, number);
        number += 1;
        let leader = cluster.leader(STREAM);
        bare = bare.led_by(&cluster, leader);
        cluster.wait_until_whole(&[BARE]);
        let node = &cluster.nodes[leader];
        let is_kill = round % 2 == 0;
        match is_kill {
            true => node.kill(),
            false => node.signal("-STOP"),
        }
        let (ours, floor) = std::thread::scope(|scope| {
            let floor = scope.spawn(|| bare.answered());
            (answered(&house, number), floor.join().unwrap())
        });
        number += 1;
        match is_kill {
            true => node.restart(),
            false => node.signal("-CONT"),
        }
        let at = if is_kill { 0 } else { 2 };
        all[at].push(ours);
        all[at + 1].push(floor);
    }
    let [killed, bare_killed, frozen, bare_frozen] = &mut all;
    report.note(format!("killed, s: {} (bare: {})", shown(killed), shown(bare_killed)));
    report.note(format!("frozen, s: {} (bare: {})", shown(frozen), shown(bare_frozen)));
    // The server that was frozen last may not serve the stream yet.
    cluster.wait_until_whole(&[STREAM, LEASES]);
    assert_eq!(running.stop(), Some(0));
    all_verified(&house);
}

#[test]
fn a_standby_outlasts_a_moment_in_which_its_account_has_no_jetstream() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("account.conf");
    let store = home.path().join("store");
    let set_jetstream = |state: &str| {
        let text = format!(
            "host: 127.0.0.1\nport: -1\njetstream {{ store_dir: \"{}\" }}\n\
             accounts {{ A {{ jetstream: {state}, users: [{{ user: a, password: a }}] }} }}\n\
             no_auth_user: a\n",
            store.display()
        );
        std::fs::write(&path, text).unwrap();
    };

    set_jetstream("enabled");
    let server = Server::written(&path);
    let (one, other) = (super::host(&server), super::host(&server));
    let first = run(&one, "0");
    let second = run(&other, "0");

    set_jetstream("disabled");
    server.signal("-HUP");
    until_within(TAKEOVER, "the server refuses the standby", || {
        other.log().contains("(10039)").then_some(())
    });
    set_jetstream("enabled");
    server.signal("-HUP");

    let sent = ask_until_served(&other, 0, 0);
    assert_eq!(sent.code, Some(0), "{sent:?}\n{}", other.log());
    for house in [&one, &other] {
        assert!(!house.log().contains("stopped pumping the partition"), "{}", house.log());
    }
    assert_eq!(first.stop(), Some(0));
    assert_eq!(second.stop(), Some(0));
}
