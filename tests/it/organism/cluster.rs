//! Three servers, a pump and its listeners, which are killed or frozen one after another while
//! clients submit payloads. Afterwards, the clients' ledger, the journal and the effects of the
//! listeners are compared, as in the module `kill`.
//!
//! `ROUNDS=…` sets the number of rounds; `SEED=…` repeats the choices of an earlier run.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use super::kill::clients::Clients;
use super::kill::{Choices, Tail, choices, environment, settle, start, torture};
use super::{CONFIG, House, PATIENCE, Running, numbered, order_config, until, until_within};
use crate::bus::harness::{name, script};
use crate::bus::remote::{Kit, Meeting};
use crate::campaign::Campaign;
use crate::nats::Cluster;

const STREAM: &str = "ORGANISM-talk-0";
const LEASES: &str = "KV_ORGANISM-talk-pumps";
/// Number of further answers after which a new pump counts as working. Fewer answers are enough if
/// no message is in flight any more.
const TAKEN_OVER: u64 = 5;
/// Number of rounds with one cluster and one journal. A longer campaign continues with a new
/// cluster and a new journal.
const ROUNDS_A_JOURNAL: u64 = 20;
/// Number of recorded answers that prove the recovery from a fault.
const ANSWERS: u64 = 10;
const FROZEN: Duration = Duration::from_secs(2);
/// Maximum time until another pump, or another node, leads.
const TAKEOVER_MAX: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    KillNode,
    FreezeNode,
    KillLeader,
    FreezeLeader,
    KillPump,
    FreezePump,
    KillProcess,
    KillReplica,
    /// Kills the pump, and a second pump takes over.
    SucceedKilled,
    SucceedFrozen,
}

const BLOWS: [Blow; 10] = [
    Blow::KillLeader,
    Blow::KillPump,
    Blow::KillReplica,
    Blow::FreezeNode,
    Blow::KillProcess,
    Blow::KillNode,
    Blow::FreezePump,
    Blow::FreezeLeader,
    Blow::SucceedKilled,
    Blow::SucceedFrozen,
];

/// For each kind of fault: the time after each fault until the organism answered again.
#[derive(Default)]
struct Outages(BTreeMap<Blow, Vec<Duration>>);

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work went on after, seconds:")?;
        for (blow, all) in &self.0 {
            let shown: Vec<_> = all.iter().map(|o| format!("{:.1}", o.as_secs_f64())).collect();
            let most = all.iter().max().map_or(0.0, Duration::as_secs_f64);
            match all.len() {
                0..5 => write!(f, " {blow:?} {};", shown.join(" "))?,
                many => write!(f, " {blow:?} {many} times, at most {most:.1};")?,
            }
        }
        Ok(())
    }
}

/// An organism on a cluster. It has listeners on NATS in addition to the processes that it starts.
fn house(cluster: &Cluster) -> House {
    let solo = "[listeners.solo]\ncommand = [\"./player.pl\", \"solo\"]";
    let config = order_config(2);
    assert!(config.contains(solo));
    let config = config.replace(solo, "[listeners.solo]\nnats = true\nattempts = 100");
    let config = config.replace("accepts = [\"order\"]", "accepts = [\"order\"]\nattempts = 20");
    let config = config.replace("accepts = [\"work\"]", "accepts = [\"work\"]\nattempts = 20");
    House::settled(&format!("{config}{}", on(cluster)))
}

fn on(cluster: &Cluster) -> String {
    let urls = cluster.urls();
    format!("\n[journal]\nstore = \"jetstream\"\nreplicas = 3\n\n[nats]\nurl = {urls}\n")
}

struct Stage {
    house: House,
    running: Running,
    /// A second host, whose pump takes over from time to time.
    second: House,
    /// Number of late deliveries by replaced pumps. After its replacement, a pump may still deliver
    /// messages that it had recorded earlier.
    late: usize,
    replicas: Vec<Kit>,
    tail: Tail,
    // The last field, so that it is dropped after everything that is connected to it.
    cluster: Cluster,
}

impl Stage {
    fn set() -> Self {
        let cluster = Cluster::start();
        let (house, second) = (house(&cluster), self::house(&cluster));
        let replicas = (0..2).map(|at| replica(&cluster, &house, at)).collect();
        let running = start(&house, None);
        Self { house, running, second, late: 0, replicas, tail: Tail::default(), cluster }
    }

    /// Waits for further recorded answers. Returns the duration of the wait.
    fn wait_for_answers(&mut self, what: &str) -> Duration {
        let begun = Instant::now();
        self.tail.in_flight(&self.house);
        let enough = self.tail.answers + if torture() { 2 * ANSWERS } else { ANSWERS };
        until_within(3 * PATIENCE, "work goes on", || {
            self.tail.in_flight(&self.house);
            let told = || format!("{what}\n{}", self.house.log());
            assert!(begun.elapsed() < 2 * TAKEOVER_MAX, "{}", told());
            (self.tail.answers >= enough).then_some(())
        });
        begun.elapsed()
    }

    /// Injects a fault, waits for the recovery, and repairs the cluster.
    fn strike(&mut self, blow: Blow, choices: &mut Choices) -> Duration {
        let node = match blow {
            Blow::KillLeader | Blow::FreezeLeader => self.cluster.leader(STREAM),
            _ => choices.below(3) as usize,
        };
        let what = format!("{blow:?} {node}");
        println!("{what}");
        match blow {
            Blow::KillNode | Blow::KillLeader => {
                self.cluster.nodes[node].kill();
                let outage = self.wait_for_answers(&what);
                self.cluster.nodes[node].restart();
                outage
            }
            Blow::FreezeNode | Blow::FreezeLeader => {
                self.cluster.nodes[node].signal("-STOP");
                let outage = self.wait_for_answers(&what);
                self.cluster.nodes[node].signal("-CONT");
                outage
            }
            Blow::KillPump => {
                self.running.child.kill().unwrap();
                self.running.child.wait().unwrap();
                let begun = Instant::now();
                self.running = start(&self.house, None);
                self.wait_for_answers(&what);
                begun.elapsed()
            }
            Blow::FreezePump => {
                self.running.signal("-STOP");
                let due = Instant::now() + FROZEN;
                until("it was frozen for long enough", || (Instant::now() >= due).then_some(()));
                self.running.signal("-CONT");
                self.wait_for_answers(&what)
            }
            Blow::KillProcess => {
                kill_a_child_of(self.running.child.id(), choices);
                self.wait_for_answers(&what)
            }
            Blow::KillReplica => {
                let at = choices.below(2) as usize;
                self.replicas[at].kill();
                let outage = self.wait_for_answers(&what);
                self.replicas[at] = replica(&self.cluster, &self.house, at);
                outage
            }
            Blow::SucceedKilled => {
                self.running.child.kill().unwrap();
                self.running.child.wait().unwrap();
                let outage = self.succeed(&what, |_| {});
                self.wait_for_answers(&what);
                outage
            }
            Blow::SucceedFrozen => {
                self.running.signal("-STOP");
                let epoch = self.house.reader().about().unwrap().epoch;
                self.tail.in_flight(&self.house);
                let outage = self.succeed(&what, |stage| stage.wake_the_replaced(epoch));
                self.wait_for_answers(&what);
                outage
            }
        }
    }

    /// Makes the second host take over, and calls `meanwhile` when the second host leads. Then the
    /// second host stops, and the first host continues. Returns the time without a leader.
    fn succeed(&mut self, what: &str, meanwhile: impl FnOnce(&mut Self)) -> Duration {
        let begun = Instant::now();
        self.tail.in_flight(&self.house);
        let (mut tail, enough) = (Tail::default(), self.tail.answers + TAKEN_OVER);
        let mut command = self.second.command(&["run"]);
        let log = std::fs::File::create(self.second.path("log")).unwrap();
        command.env("EFFECTS", self.house.path("effects")).stderr(log);
        let second = Running { child: command.spawn().unwrap() };
        until_within(2 * PATIENCE, "another pump is at work", || {
            let told = || format!("{what}\n{}", self.second.log());
            assert!(begun.elapsed() < TAKEOVER_MAX, "{}", told());
            // Sometimes the last round left less work.
            let is_done =
                tail.in_flight(&self.second) == 0 && self.second.log().contains("is ready");
            (tail.answers >= enough || is_done).then_some(())
        });
        let outage = begun.elapsed();
        meanwhile(self);
        assert_eq!(second.stop(), Some(0), "{}", self.second.log());
        self.running = start(&self.house, None);
        outage
    }

    /// Resumes the replaced pump. Its writes are refused, and it ends. It may deliver only messages
    /// that it had recorded before the second pump took over.
    fn wake_the_replaced(&mut self, epoch: u32) {
        let done = |house: &House| {
            let effects = std::fs::read_to_string(house.path("effects")).unwrap();
            effects.lines().filter(|line| line.contains(&format!(" {epoch}."))).count()
        };
        let before = done(&self.house);
        self.running.signal("-CONT");
        let child = &mut self.running.child;
        let ended = until("the replaced pump ends", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(69), "{}", self.house.log());
        assert!(self.house.log().contains("another pump took over"), "{}", self.house.log());
        self.late += done(&self.house) - before;
        let last = self.house.reader().about().unwrap().epoch;
        assert_eq!(last, epoch, "it wrote nothing with an epoch that is not its own");
    }
}

/// Starts a listener that answers pings. It connects to this node first.
fn replica(cluster: &Cluster, house: &House, node: usize) -> Kit {
    let mut meeting = Meeting::of("talk", &cluster.nodes[node]);
    meeting.subjects = organism::bus::nats::ListenerSubjects::new("talk", &name("solo"));
    let effects = house.path("effects");
    let variables = [
        ("ORGANISM_LISTENER", "solo"),
        ("EFFECTS", effects.to_str().unwrap()),
        ("ORGANISM_BUS_LEASE", "1"),
    ];
    Kit::running(&script("solo.py"), &meeting, &variables)
}

fn kill_a_child_of(pid: u32, choices: &mut Choices) {
    let found = Command::new("pgrep").args(["-P", &pid.to_string()]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let children: Vec<&str> = found.lines().collect();
    assert!(!children.is_empty(), "the organism has no listeners");
    let child = children[choices.below(children.len() as u64) as usize];
    // A new pump may have taken its place already.
    Command::new("kill").args(["-9", child]).status().unwrap();
}

/// Returns the next fault. Each round contains every fault once, in a random order.
fn next(left: &mut Vec<Blow>, choices: &mut Choices) -> Blow {
    if left.is_empty() {
        left.extend(BLOWS);
    }
    left.swap_remove(choices.below(left.len() as u64) as usize)
}

#[test]
fn a_cluster_whose_parts_die_and_freeze_under_load_loses_nothing_and_does_nothing_twice() {
    let mut report = Campaign::new("a cluster under load");
    let mut choices = choices();
    let (mut outages, mut blows) = (Outages::default(), Vec::new());
    let all = environment("ROUNDS").unwrap_or(if torture() { 100 } else { 10 });
    let (mut left, mut messages, mut late) = (all, 0, 0);
    while left > 0 {
        let mut stage = Stage::set();
        let clients = Clients::start(&stage.house);
        stage.wait_for_answers("the start");
        for _ in 0..left.min(ROUNDS_A_JOURNAL) {
            let blow = next(&mut blows, &mut choices);
            let outage = stage.strike(blow, &mut choices);
            outages.0.entry(blow).or_default().push(outage);
            stage.cluster.wait_until_whole(&[STREAM, LEASES]);
        }
        left = left.saturating_sub(ROUNDS_A_JOURNAL);
        late += stage.late;
        messages += end(stage, clients);
    }
    report.note(format!(
        "{all} rounds, {messages} messages; lost 0, done twice 0; deliveries of a replaced pump, \
         of what it had recorded before: {late}; {outages}"
    ));
}

/// Runs all work to its end and judges the result. Asserts that a host without any local data can
/// verify the stream.
fn end(stage: Stage, clients: Clients) -> u64 {
    let Stage { house, mut running, replicas, cluster, .. } = stage;
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    println!("{}", settle(&house, clients));
    let other = House::settled(&std::fs::read_to_string(house.path("organism.toml")).unwrap());
    let running = other.run();
    assert_eq!(running.stop(), Some(0));
    other.verified();
    let told = |house: &House| house.organism(&["export", "--format", "jsonl"]).out;
    let (here, there) = (told(&house), told(&other));
    assert!(there.starts_with(&here), "the stream and the projection differ");
    drop((replicas, cluster));
    here.lines().count() as u64
}

#[test]
fn a_server_in_lame_duck_mode_loses_no_message() {
    let cluster = Cluster::start();
    let house = House::settled(&format!("{CONFIG}{}", on(&cluster)));
    let running = house.run();
    let leader = cluster.leader(STREAM);
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        let number = sent.to_string();
        until_within(PATIENCE, "it goes through", || {
            let told = house.send_text(&numbered("ping", &number), &["--key", &number]);
            assert!(matches!(told.code, Some(0 | 75)), "{told:?}");
            (told.code == Some(0)).then_some(())
        });
    };
    send();
    // The signal of `nats-server --signal ldm`.
    cluster.nodes[leader].signal("-USR2");
    let begun = Instant::now();
    until_within(3 * PATIENCE, "it ends", || {
        send();
        (!cluster.nodes[leader].is_alive()).then_some(())
    });
    println!("the lame duck was gone after {:?}", begun.elapsed());
    send();
    assert_ne!(cluster.leader(STREAM), leader);
    cluster.nodes[leader].kill();
    cluster.nodes[leader].restart();
    cluster.wait_until_whole(&[STREAM, LEASES]);
    send();
    assert_eq!(running.stop(), Some(0));
    assert_eq!((house.recorded("ping"), house.recorded("pong")), (sent, sent));
    house.verified();
}
