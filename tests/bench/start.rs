//! Duration of a start. Two kinds are measured: the start on a long journal, until every record is
//! verified and the state is rebuilt; and the start of the real program, until it is ready.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use organism::bus::Delivery;
use organism::clock::Time;
use organism::config::{Config, StorageConfig};
use organism::ids::{ListenerName, MessageId};
use organism::journal::Journal;
use organism::journal::jetstream::StreamJournal;
use organism::journal::sqlite::SqliteJournal;
use organism::organism::{Organism, gate, project};
use organism::pump::core::{Core, Effect, Event, Submission, Target};
use organism::pump::gate::{Checked, Gate};
use organism::thread::Record;
use uuid::Uuid;

use super::figures::{Bench, median};
use super::floor::{TASK, directory};
use super::relay::{self, DONE, ROUNDS, START};

/// Number of simultaneously active threads, as in the relay. When one thread ends, another begins.
const THREADS: usize = 64;
/// Records in each commit of the generated journal.
const COMMIT: usize = 1_024;
const MICROS_PER_HOP: i64 = 50;

pub fn hundred_thousand(bench: &mut Bench) {
    let value = on_journal(100_000, bench.runs);
    bench.figures.add("start_100k", 1e3 * value, "ms", None);
}

pub fn million(bench: &mut Bench) {
    if !bench.quick {
        let value = on_journal(1_000_000, bench.runs);
        bench.figures.add("start_1m", 1e3 * value, "ms", None);
    }
}

/// Duration of `organism check` on the config of the demo.
pub fn check(bench: &mut Bench) {
    let value = median(bench.runs, checked);
    bench.figures.add("cold_start_check", value, "ms", None);
}

/// Duration from the start of `organism run` in an empty directory, with the config of the demo,
/// until it is ready.
pub fn run(bench: &mut Bench) {
    let value = median(bench.runs, ready);
    bench.figures.add("cold_start_run", value, "ms", None);
}

/// Median seconds until an organism is ready on a journal with `records` records: all records
/// verified, the state rebuilt, and the control socket open. `runs` is the number of measured
/// starts.
fn on_journal(records: usize, runs: usize) -> f64 {
    let place = directory("start");
    fill(&place, records, ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    median(runs, || {
        let config = config(&place);
        runtime.block_on(async {
            let began = Instant::now();
            let organism = Organism::start_with(config, HashMap::new()).await.unwrap();
            let took = began.elapsed();
            organism.stop("the bench is done").await.unwrap();
            took.as_secs_f64()
        })
    })
}

/// Duration of one `organism check` in milliseconds.
fn checked() -> f64 {
    let mut check = organism(&directory("cold"), "check");
    let began = Instant::now();
    let done = check.stdout(Stdio::null()).status().unwrap();
    let took = began.elapsed();
    assert!(done.success());
    1e3 * took.as_secs_f64()
}

/// Duration of one start of `organism run` in milliseconds.
fn ready() -> f64 {
    let place = directory("cold");
    let began = Instant::now();
    let mut running = run_demo(&place);
    let took = began.elapsed();
    interrupt(&mut running);
    1e3 * took.as_secs_f64()
}

/// Starts `organism run` on the config of the demo, and waits until it is ready.
pub fn run_demo(place: &Path) -> Child {
    when_ready(organism(place, "run"))
}

/// Starts `run`, and waits until it reports that it is ready.
pub fn when_ready(mut run: Command) -> Child {
    let mut running = run.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("is ready") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
    }
    // Without this setting, the organism would end when it is idle.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    running
}

pub fn interrupt(running: &mut Child) {
    let id = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert!(running.wait().unwrap().success());
}

/// Returns a command of the program on the config of the demo, with the program's files in `place`.
/// The benches search no code, so a script that only waits replaces the program `code-search`.
fn organism(place: &Path, verb: &str) -> Command {
    let bin = place.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let search = bin.join("code-search");
    std::fs::write(&search, "#!/bin/sh\nexec cat\n").unwrap();
    std::fs::set_permissions(&search, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut paths = vec![bin];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args([
        verb,
        "--config",
        concat!(env!("CARGO_MANIFEST_DIR"), "/config/research-desk.toml"),
    ]);
    command.env("PATH", std::env::join_paths(paths).unwrap());
    for (name, folder) in [("XDG_DATA_HOME", "data"), ("XDG_STATE_HOME", "state")] {
        command.env(name, place.join(folder));
    }
    command
}

fn config(place: &Path) -> Config {
    relay::config(place, &relay::commanded(&["true".to_owned()], THREADS), "")
}

/// Writes the journal of a relay. Each call has `rounds` rounds and a separate thread.
pub fn fill(place: &Path, records: usize, rounds: usize) {
    let config = config(place);
    project::begin(&config.directories(), false).unwrap();
    let mut journal = SqliteJournal::open(&config.data, &config.state, &mut |_| Ok(())).unwrap();
    let now = append(config, &mut journal, records, rounds);
    journal.close(now).unwrap();
}

/// Fills the journal on JetStream that `config` names with the same records as [`fill`]. Returns
/// the open journal.
pub fn fill_stream(config: Config, records: usize, rounds: usize) -> StreamJournal {
    project::begin(&config.directories(), false).unwrap();
    let StorageConfig::JetStream { servers, journal } = &config.storage else {
        unreachable!("the journal is a stream");
    };
    let Config { data, state, .. } = &config;
    let opened = StreamJournal::open(servers, journal, data, state, &mut |_| Ok(()));
    let mut journal = opened.unwrap();
    append(config, &mut journal, records, rounds);
    journal
}

/// Appends the records of a relay. Returns the time of the last record.
fn append(config: Config, journal: &mut dyn Journal, records: usize, rounds: usize) -> Time {
    let mut relay = Relay::new(config, journal, rounds);
    while relay.records < records {
        let mut batch: Vec<Record> = std::mem::take(&mut relay.batch);
        while batch.len() < COMMIT.min(records - relay.records) {
            relay.hop();
            batch.append(&mut relay.batch);
        }
        relay.records += batch.len();
        journal.append(&mut batch).unwrap();
    }
    relay.now
}

/// The relay without hosts: the pump's core takes its steps, and the bench answers each delivery at
/// once.
struct Relay {
    core: Core,
    now: Time,
    next: u64,
    task: [Checked; 2],
    start: Checked,
    done: Checked,
    waiting: VecDeque<Delivery>,
    open: usize,
    submitted: u128,
    batch: Vec<Record>,
    records: usize,
    rounds: usize,
}

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

impl Relay {
    fn new(config: Config, journal: &dyn Journal, rounds: usize) -> Self {
        let contracts = Arc::new(config.contracts.clone());
        let core = Core::new(contracts, config.limits, config.digest);
        let gate: Gate = gate(config).unwrap();
        let checked = |from: &str, text: &str| gate.check(&name(from), text.as_bytes()).unwrap();
        let mut relay = Self {
            core,
            now: Time::now(),
            next: 1,
            task: [checked("ping", TASK), checked("pong", TASK)],
            start: checked("client", START),
            done: checked("ping", DONE),
            waiting: VecDeque::new(),
            open: 0,
            submitted: 0,
            batch: Vec::new(),
            records: 0,
            rounds,
        };
        let (journal, epoch) = (journal.id(), journal.epoch());
        let detail = "the relay".to_owned();
        relay.step(Event::Boot { journal, epoch, detail, blobs: Vec::new() });
        relay
    }

    fn hop(&mut self) {
        if self.open < THREADS {
            return self.submit();
        }
        let delivery = self.waiting.pop_front().unwrap();
        let pings = delivery.listener.as_str() == "ping";
        let payload = match pings && delivery.messages.len() > self.rounds {
            true => self.done.clone(),
            false => self.task[usize::from(!pings)].clone(),
        };
        self.step(Event::Outcome {
            listener: delivery.listener,
            call: delivery.call,
            attempt: delivery.attempt,
            payloads: vec![Ok(payload)],
            turn: None,
            arrived: None,
        });
    }

    fn submit(&mut self) {
        self.open += 1;
        self.submitted += 1;
        // Ids like those made from the time, but equal in every run.
        let id = MessageId(Uuid::from_u128(self.submitted << 64 | 7 << 76 | 2 << 62));
        let suggested = Some(format!("sess-relay{:06}", self.submitted));
        self.step(Event::Submit(Box::new(Submission {
            id,
            client: name("client"),
            target: Target::New { suggested },
            key: None,
            payload: Ok(self.start.clone()),
            refused_digest: None,
            trace: None,
            begun: None,
        })));
    }

    fn step(&mut self, event: Event) {
        self.now = Time(self.now.0 + MICROS_PER_HOP);
        let mut step = self.core.step(organism::ids::Position(self.next), self.now, event);
        for effect in std::mem::take(&mut step.effects) {
            match effect {
                Effect::Deliver(delivery) => self.waiting.push_back(delivery),
                Effect::Result { .. } => self.open -= 1,
                _ => {}
            }
        }
        if let Some(record) = step.into_record() {
            self.next += 1;
            self.batch.push(record);
        }
    }
}
