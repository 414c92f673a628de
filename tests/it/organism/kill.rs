//! Crashes under load. Clients submit payloads while the organism is killed repeatedly. Sometimes
//! it crashes after a record is durable and before its effects. Afterwards the clients' ledger, the
//! record and the effects of the listeners must agree.
//!
//! A kill must never leave a journal that the next start refuses. Refused starts are counted over
//! all kills; the campaign continues with another journal, and fails at the end.
//!
//! `KILLS=…` sets the number of kills; `SEED=…` repeats the choices. `ORGANISM_TORTURE=1` enlarges
//! this campaign and all similar ones.

pub mod clients;
pub mod judge;
mod left_behind;
mod paid;
pub mod rebuilt;

use std::collections::HashSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use organism::envelope::MessageKind;
use organism::ids::{MessageId, Position};
use organism::journal::sqlite::JournalReader;
use organism::thread::Fact;

use super::{CommandOutput, House, PATIENCE, Running, TALK, order_config, until, until_within};
use crate::campaign::Campaign;
use crate::nats::is_streamed;
use clients::Clients;
use left_behind::Started;

/// Number of kills with one journal. A longer campaign continues with a new journal.
const KILLS_A_JOURNAL: u64 = 20;
const IN_FLIGHT_MIN: usize = 10;
/// Maximum time of all kills with one journal.
const CAMPAIGN_MAX: Duration = Duration::from_secs(3_600);
/// Number of refused starts after which the campaign ends early.
const REFUSED_MAX: usize = 10;
/// Number of random kills after which one crash at a failpoint follows.
const AIMED_EVERY: u64 = 3;

/// Failpoints between the moment when a record is durable and the end of its effects.
const BETWEEN: [&str; 8] = [
    "after-commit",
    "after-append",
    "before-receipt",
    "after-receipt",
    "before-deliver",
    "after-deliver",
    "before-result",
    "after-result",
];

/// Failpoints between the arrival of an input and its record.
const BEFORE: [&str; 4] = ["answered", "stepped", "before-append", "before-commit"];

/// SplitMix64: equal seeds give equal choices.
pub struct Choices(pub u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// How the organism is killed.
#[derive(Debug, Clone)]
enum Death {
    /// `kill -9` some time after the organism has recorded a number of messages in this run. The
    /// fields are the number of messages and the time.
    Random(u64, Duration),
    /// The process aborts at a failpoint.
    Aimed(String),
}

impl Death {
    fn random(choices: &mut Choices) -> Self {
        let most = if torture() { 400 } else { 200 };
        let (messages, micros) = (10 + choices.below(most), choices.below(20_000));
        Self::Random(messages, Duration::from_micros(micros))
    }

    fn aimed(choices: &mut Choices) -> Self {
        let place = match choices.below(3) {
            0 => choices.of(&BEFORE),
            _ => choices.of(&BETWEEN),
        };
        Self::Aimed(format!("{place}:{}", 20 + choices.below(100)))
    }
}

/// Messages in flight and counts, read from the growing journal.
#[derive(Default)]
pub struct Tail {
    read: Position,
    open: HashSet<MessageId>,
    pub messages: u64,
    /// Number of messages that listeners sent.
    pub answers: u64,
}

impl Tail {
    pub fn in_flight(&mut self, house: &House) -> usize {
        // Before the first commit, the journal is empty.
        let Ok(reader) = JournalReader::open(&house.data()) else { return 0 };
        let last = reader.last().unwrap();
        for sealed in reader.records(Position(self.read.0 + 1), last).unwrap() {
            for fact in &sealed.record.facts {
                match fact {
                    Fact::Accepted { message, .. } => {
                        self.open.insert(message.id);
                        self.messages += 1;
                        self.answers += u64::from(message.kind == MessageKind::Reply);
                    }
                    Fact::Disposed { message, .. } => {
                        self.open.remove(message);
                    }
                    _ => {}
                }
            }
        }
        self.read = last;
        self.open.len()
    }
}

/// The number in an environment variable; `None` if the variable is not set, or is empty.
pub fn environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty());
    text.map(|text| text.parse().unwrap())
}

#[test]
fn after_kills_under_load_nothing_is_lost_or_done_twice_and_no_start_is_refused() {
    let mut counted = Counted::new("kills under load");
    let mut choices = choices();
    let kills = kills();
    while counted.total.kills < kills && counted.total.refused.len() < REFUSED_MAX {
        let left = kills - counted.total.kills;
        campaign(left.min(KILLS_A_JOURNAL), &mut choices, &mut counted.total);
    }
    let refused = &counted.total.refused;
    assert!(refused.is_empty(), "{} starts were refused: {refused:#?}", refused.len());
    assert!(counted.total.left_behind > 0 || !cfg!(target_os = "linux"), "no kill left a process");
}

/// A campaign with its totals, which are reported also if the campaign fails.
struct Counted {
    report: Campaign,
    total: Total,
}

impl Counted {
    fn new(name: &str) -> Self {
        Self { report: Campaign::new(name), total: Total::default() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.report.note(self.total.to_string());
    }
}

/// A start that exited by itself, because it refused its journal or found an error in it.
#[derive(Debug)]
struct Refused(#[expect(dead_code, reason = "shown where the campaign fails")] String);

/// Totals of the campaigns.
#[derive(Default)]
struct Total {
    kills: u64,
    aimed: u64,
    recovering: u64,
    starts: u64,
    refused: Vec<Refused>,
    messages: u64,
    /// Number of processes that outlived a killed pump.
    left_behind: u64,
    /// Time from the first answer of a listener to the kill, in each run.
    at_work: Work,
}

#[derive(Default)]
struct Work {
    messages: u64,
    time: Duration,
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, aimed, recovering, starts, refused, messages, left_behind, at_work } =
            self;
        let rate = at_work.messages as f64 / at_work.time.as_secs_f64();
        write!(f, "{kills} kills, {aimed} deaths at a place, {recovering} while recovering; ")?;
        write!(f, "{} refused of {starts} starts; ", refused.len())?;
        write!(f, "{left_behind} processes left behind; ")?;
        write!(f, "{messages} messages, {rate:.0} a second from first answer to kill")
    }
}

/// Creates the random choices from the seed in `SEED`, or from a new seed. Prints the seed.
pub fn choices() -> Choices {
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = environment("SEED").unwrap_or_else(|| clock().as_nanos() as u64);
    println!("SEED={seed}");
    Choices(seed)
}

/// Whether `ORGANISM_TORTURE` is set, so that long tests run in addition to the short ones.
pub fn torture() -> bool {
    std::env::var_os("ORGANISM_TORTURE").is_some()
}

/// Number of kills of a campaign: the value of `KILLS`, or by default 7 on an embedded journal, 4
/// on JetStream, and 1,000 with `ORGANISM_TORTURE`. Every third kill is followed by a crash at a
/// failpoint.
fn kills() -> u64 {
    let few = if is_streamed() { 4 } else { 7 };
    environment("KILLS").unwrap_or(if torture() { 1_000 } else { few })
}

/// A house with eight listener processes.
pub fn house() -> House {
    left_behind::house(House::with(&left_behind::config(&often_lost())))
}

/// A house for a test of the embedded journal.
pub fn embedded_house() -> House {
    House::settled(&often_lost())
}

/// A config that permits 50 attempts of each call, because a delivery is often lost with its pump.
fn often_lost() -> String {
    let replies = ["done", "worked"].map(|name| format!("replies = [\"{name}\"]\n"));
    let allowed = replies.iter().fold(order_config(2), |config, replies| {
        config.replace(replies, &format!("{replies}attempts = 50\n"))
    });
    format!("{allowed}attempts = 50\ninstances = 2\n")
}

fn campaign(kills: u64, choices: &mut Choices, total: &mut Total) {
    let house = house();
    let clients = Clients::start(&house);
    let mut tail = Tail::default();
    let stop = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let readers = scope.spawn(|| read_beside(&house, &stop));
        let stopper = StopReaders(&stop);
        let ended = kill_again_and_again(&house, kills, choices, &mut tail, total);
        drop(stopper);
        let read = readers.join().unwrap();
        // A journal that no start accepts may be refused to a reader, too.
        assert!(ended.is_err() || read.is_ok(), "{read:?}");
        ended
    });
    total.messages += tail.messages;
    if let Err(refused) = ended {
        println!("a start was refused, and another journal is begun: {refused:?}");
        return total.refused.push(refused);
    }
    let before = tail.messages;
    total.starts += 1;
    match start_and_stay(&house) {
        Ok(running) => drop(settle_running(&house, clients, running)),
        Err(refused) => total.refused.push(refused),
    }
    tail.in_flight(&house);
    total.messages += tail.messages - before;
}

/// When this value is dropped, the commands that read the journal beside the pump stop, even if the
/// campaign fails.
struct StopReaders<'s>(&'s AtomicBool);

impl Drop for StopReaders<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs commands in other processes until `stop` is set. Such a command sometimes holds the journal
/// open while a pump dies and the next pump starts. If a command fails, returns its output as the
/// error.
fn read_beside(house: &House, stop: &AtomicBool) -> Result<(), CommandOutput> {
    let commands: &[&[&str]] = match torture() {
        true => &[&["threads", "--json"], &["verify"], &["stats"], &["approvals"]],
        false => &[&["threads", "--json"]],
    };
    let mut commands = commands.iter().cycle();
    until_within(CAMPAIGN_MAX, "the campaign ends", || {
        if stop.load(Ordering::Relaxed) {
            return Some(Ok(()));
        }
        let read = house.organism(commands.next().unwrap());
        matches!(read.code, Some(4 | 70) | None).then_some(Err(read))
    })
}

fn kill_again_and_again(
    house: &House,
    kills: u64,
    choices: &mut Choices,
    tail: &mut Tail,
    total: &mut Total,
) -> Result<(), Refused> {
    let begun = Instant::now();
    let mut number = 0;
    let mut aimed = 0;
    while number < kills {
        let is_aimed = aimed < number / AIMED_EVERY;
        let death = if is_aimed { Death::aimed(choices) } else { Death::random(choices) };
        total.starts += 1;
        let in_flight = die(house, tail, &death, total)?;
        // A round with too little in flight proves nothing and is repeated later.
        let counts = in_flight >= IN_FLIGHT_MIN;
        println!("{number}: {death:?}, {in_flight} in flight, {} messages so far", tail.messages);
        if is_aimed {
            aimed += 1;
            total.aimed += 1;
        } else {
            number += u64::from(counts);
            total.kills += u64::from(counts);
        }
        if counts && choices.below(8) == 0 {
            die_while_recovering(house, choices, total)?;
        }
        assert!(begun.elapsed() < Duration::from_secs(20 * kills + 60), "no progress");
    }
    Ok(())
}

/// Starts the organism again, waits until all calls have ended, and compares the ledgers, the
/// record and the effects. Returns a summary.
pub fn settle(house: &House, clients: Clients) -> String {
    // A stop before the organism is ready would kill it.
    settle_running(house, clients, start_and_stay(house).unwrap())
}

/// Starts the organism, and waits until it is ready.
fn start_and_stay(house: &House) -> Result<Running, Refused> {
    let before = house.log().len();
    let mut running = start(house, None);
    until("the organism is ready or ends", || match running.child.try_wait().unwrap() {
        Some(ended) => Some(Err(refused(house, ended))),
        None => house.log()[before..].contains("is ready").then_some(Ok(())),
    })?;
    Ok(running)
}

fn settle_running(house: &House, clients: Clients, mut running: Running) -> String {
    let ledger = clients.finish();
    let mut tail = Tail::default();
    until("everything is settled", || {
        assert_eq!(running.child.try_wait().unwrap(), None, "{}", house.log());
        (tail.in_flight(house) == 0).then_some(())
    });
    assert_eq!(running.stop(), Some(0), "{}", house.log());
    house.verified();
    let evidence = judge::Evidence::gather(house, ledger);
    let defects = evidence.defects();
    assert!(defects.is_empty(), "{}: {:#?}", defects.len(), &defects[..defects.len().min(10)]);
    static JUDGE: Once = Once::new();
    JUDGE.call_once(|| judge::assert_each_defect_would_show(&evidence));
    rebuilt::assert_rebuilt_state_is_live_state(house);
    evidence.to_string()
}

/// A refused start, with the log of the process that exited before it was killed.
fn refused(house: &House, ended: std::process::ExitStatus) -> Refused {
    Refused(format!("{ended}\n{}", house.log()))
}

/// Runs the organism until it is killed. Returns the number of messages in flight.
fn die(house: &House, tail: &mut Tail, death: &Death, total: &mut Total) -> Result<usize, Refused> {
    match death {
        Death::Random(messages, after) => {
            let mut running = start(house, None);
            let (enough, answers) = (tail.messages + messages, tail.answers);
            let (started, mut begun) = (Instant::now(), None);
            let stayed = until_within(3 * PATIENCE, "enough has happened", || {
                let in_flight = tail.in_flight(house);
                // A start that exits by itself counts as refused: nothing would restart it.
                if let Some(ended) = running.child.try_wait().unwrap() {
                    return Some(Err(refused(house, ended)));
                }
                let told = || format!("{in_flight} in flight, {} of {enough}", tail.messages);
                assert!(started.elapsed() < 2 * PATIENCE, "{}\n{}", told(), house.log());
                if tail.answers > answers && begun.is_none() {
                    begun = Some((Instant::now(), tail.messages));
                    let pumps = Started::find(house).pumps;
                    assert!(pumps.len() <= 1, "it delivers beside an earlier pump's: {pumps:?}");
                }
                (in_flight >= IN_FLIGHT_MIN && tail.messages >= enough).then_some(Ok(()))
            });
            stayed?;
            let due = Instant::now() + *after;
            until("it is time", || (Instant::now() >= due).then_some(()));
            let died = Instant::now();
            running.child.kill().unwrap();
            running.child.wait().unwrap();
            total.left_behind += Started::find(house).processes;
            if let Some((at, messages)) = begun {
                tail.in_flight(house);
                total.at_work.messages += tail.messages - messages;
                total.at_work.time += died - at;
            }
        }
        Death::Aimed(failpoint) => {
            die_at(house, failpoint)?;
        }
    }
    Ok(tail.in_flight(house))
}

/// Starts the organism, which aborts at a failpoint.
fn die_at(house: &House, failpoint: &str) -> Result<(), Refused> {
    let mut running = start(house, Some(failpoint));
    let child = &mut running.child;
    let ended = until_within(PATIENCE, "it dies", || child.try_wait().unwrap());
    match ended.code() {
        Some(_) => Err(refused(house, ended)),
        None => {
            assert_eq!(ended.signal(), Some(6), "{failpoint}: {}", house.log());
            Ok(())
        }
    }
}

/// Kills the organism while it recovers, with messages in flight from earlier runs.
fn die_while_recovering(
    house: &House,
    choices: &mut Choices,
    total: &mut Total,
) -> Result<(), Refused> {
    for _ in 0..2 {
        let place = choices.of(&["during-recovery", "epoch-raised", "before-boot", "stepped"]);
        total.starts += 1;
        total.recovering += 1;
        die_at(house, place)?;
    }
    Ok(())
}

pub fn start(house: &House, failpoint: Option<&str>) -> Running {
    let log = std::fs::OpenOptions::new().append(true).create(true).open(house.path("log"));
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects")).stdout(Stdio::null()).stderr(log.unwrap());
    // An embedded journal makes snapshots all the time, and each start continues from one.
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let is_embedded = !config.contains("jetstream") && std::env::var("ORGANISM_TEST_NATS").is_err();
    if is_embedded {
        command.env("ORGANISM_JOURNAL__SNAPSHOT_RECORDS", "50");
    }
    if let Some(failpoint) = failpoint {
        command.env("ORGANISM_FAILPOINT", failpoint);
    }
    Running { child: command.spawn().unwrap() }
}

/// Waits for the end of a process. Returns the signal that killed it.
pub fn end_within(child: &mut Child, patience: Duration) -> Option<i32> {
    until_within(patience, "it dies", || child.try_wait().unwrap()).signal()
}
