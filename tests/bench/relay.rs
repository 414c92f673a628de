//! The relay: in each of T threads, one message goes back and forth between two listeners. Each hop
//! passes the gate and is durable before it is delivered.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use organism::bus::native_host::{InlineHost, NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome};
use organism::config::{self, Config, ConfigEnvironment};
use organism::envelope::AttemptFailure;
use organism::ids::ListenerName;
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::pump::driver::Handle;

use super::figures::{Bench, median, median_of};
use super::floor::{TASK, TASK_SCHEMA, directory};

/// Number of rounds in each call. With more rounds, each delivery would repeat too many messages.
/// With fewer rounds, the cost of opening a call would have too much weight.
pub const ROUNDS: usize = 8;

pub const DONE: &str = r#"<done xmlns="urn:bench:relay:done"/>"#;
pub const DONE_SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  targetNamespace="urn:bench:relay:done"><xs:element name="start"><xs:complexType/></xs:element>
  <xs:element name="done"><xs:complexType/></xs:element></xs:schema>"#;
pub const START: &str = r#"<start xmlns="urn:bench:relay:done"/>"#;

pub struct Relay {
    hops: u64,
    took: Duration,
    threads: usize,
}

impl Relay {
    pub fn hops_per_second(&self) -> f64 {
        self.hops as f64 / self.took.as_secs_f64()
    }

    pub fn micros_per_hop(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 * self.threads as f64 / self.hops as f64
    }
}

pub fn native_t64(bench: &mut Bench) {
    let value = median(bench.runs, || native(64, bench.span).hops_per_second());
    bench.figures.add("relay_native_t64", value, "messages/s", Some(bench.floors.rows));
}

pub fn native_t1(bench: &mut Bench) {
    let value = median(bench.runs, || native(1, bench.span).micros_per_hop());
    bench.figures.add("relay_native_t1", value, "us", Some(bench.floors.commit));
}

pub fn process_t64(bench: &mut Bench) {
    let value = median(bench.runs, || process(64, bench.span).hops_per_second());
    bench.figures.add("relay_process_t64", value, "messages/s", Some(bench.floors.rows));
}

/// Speed of the relay while the index follower is at full load, compared with the speed without the
/// index follower. Runs with and without the follower alternate.
pub fn indexed(bench: &mut Bench) {
    let runs: Vec<[f64; 2]> = (0..bench.runs)
        .map(|_| {
            let without = native_without_index(&directory("relay"), 64, bench.span, None);
            [native(64, bench.span).hops_per_second(), without.hops_per_second()]
        })
        .collect();
    let of = |which: usize| median_of(runs.iter().map(|pair| pair[which]));
    bench.figures.add("relay_indexed", of(0), "messages/s", Some(of(1)));
}

/// Runs the relay as [`native_paced`] does, without the follower of the index.
pub fn native_without_index(
    place: &Path,
    threads: usize,
    span: Duration,
    interval: Option<Duration>,
) -> Relay {
    let _lock = unindexed(place);
    native_paced(place, threads, span, interval)
}

/// Stops the follower of the index by holding the lock of the index, as another writing process
/// would.
fn unindexed(place: &Path) -> std::fs::File {
    let data = place.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let lock = std::fs::File::create(data.join(organism::index::INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    lock
}

/// Number of hops of 64 threads during `span`, without an index.
pub fn hops(host: &str, span: Duration) -> u64 {
    let place = directory("relay");
    let _lock = unindexed(&place);
    match host {
        "process" => process_in(&place, 64, span).hops,
        _ => native_in(&place, 64, span).hops,
    }
}

fn native(threads: usize, span: Duration) -> Relay {
    native_in(&directory("relay"), threads, span)
}

/// Runs the relay on the journal in `place`.
pub fn native_in(place: &Path, threads: usize, span: Duration) -> Relay {
    native_paced(place, threads, span, None)
}

/// Runs the relay on the journal in `place`. With an interval, each thread sends one call in each
/// interval. Without an interval, each thread sends its next call after the result of the last one.
pub fn native_paced(
    place: &Path,
    threads: usize,
    span: Duration,
    interval: Option<Duration>,
) -> Relay {
    let hops = Arc::new(AtomicU64::new(0));
    let natives =
        ["ping", "pong"].map(|name| (listener(name), player(name, hops.clone(), threads)));
    let config = config(place, &commanded(&["true".to_owned()], threads), "");
    let played = play_paced(config, HashMap::from(natives), threads, span, interval);
    Relay { hops: hops.load(Ordering::Relaxed), took: played.took, threads }
}

/// Runs the relay with two child processes for each listener.
fn process(threads: usize, span: Duration) -> Relay {
    process_in(&directory("relay"), threads, span)
}

fn process_in(place: &Path, threads: usize, span: Duration) -> Relay {
    let program = std::env::current_exe().unwrap().display().to_string();
    let command = [program, "listener".to_owned()];
    let config = config(place, &commanded(&command, threads), "");
    let played = play(config, HashMap::new(), threads, span);
    Relay { hops: played.hops(), took: played.took, threads }
}

pub fn listener(name: &str) -> ListenerName {
    ListenerName::parse(name).unwrap()
}

/// Returns the host of `ping` or of `pong`. `ping` sends the task to `pong` repeatedly, and `pong`
/// returns it.
fn player(name: &str, hops: Arc<AtomicU64>, threads: usize) -> NativeHostBuilder {
    let (listener, pings) = (listener(name), name == "ping");
    let answer = move |delivery: &Delivery| -> Result<Outcome, AttemptFailure> {
        hops.fetch_add(1, Ordering::Relaxed);
        let last = pings && delivery.messages.len() > ROUNDS;
        let text = if last { DONE } else { TASK };
        Ok(Outcome { payloads: vec![text.as_bytes().to_vec()], turn: None, ..Outcome::default() })
    };
    Box::new(move |sink, runtime| -> Arc<dyn Host> {
        match threads {
            // With one message in flight, every wake-up of another thread counts.
            1 => Arc::new(InlineHost::new(listener, answer, sink)),
            _ => Arc::new(NativeHost::new(listener, from_fn(answer), sink, runtime.clone())),
        }
    })
}

/// The calls of a run, and the duration of the run.
pub struct Played {
    /// Duration of each call in microseconds.
    calls: Vec<f64>,
    took: Duration,
}

/// Number of deliveries of one call: one for the request, and two for each round.
pub const HOPS: usize = 2 * ROUNDS + 1;

impl Played {
    fn hops(&self) -> u64 {
        (self.calls.len() * HOPS) as u64
    }

    pub fn hops_per_second(&self) -> f64 {
        self.hops() as f64 / self.took.as_secs_f64()
    }

    pub fn median_micros_per_hop(&self) -> f64 {
        median_of(self.calls.iter().map(|call| call / HOPS as f64))
    }
}

pub fn play(
    config: Config,
    natives: HashMap<ListenerName, NativeHostBuilder>,
    threads: usize,
    span: Duration,
) -> Played {
    play_paced(config, natives, threads, span, None)
}

fn play_paced(
    config: Config,
    natives: HashMap<ListenerName, NativeHostBuilder>,
    threads: usize,
    span: Duration,
    interval: Option<Duration>,
) -> Played {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = Organism::start_with(config, natives).await.unwrap();
        let began = Instant::now();
        let clients =
            (0..threads).map(|_| tokio::spawn(call(organism.handle(), began + span, interval)));
        let mut calls = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            calls.extend(client.await.unwrap());
        }
        let took = began.elapsed();
        organism.stop("the bench is done").await.unwrap();
        Played { calls, took }
    })
}

/// Calls `ping` repeatedly in one thread, at most once in each interval.
async fn call(handle: Handle, until: Instant, interval: Option<Duration>) -> Vec<f64> {
    let mut pace = interval.map(tokio::time::interval);
    let client = ListenerName::parse("client").unwrap();
    let (mut calls, mut thread) = (Vec::new(), None);
    while Instant::now() < until {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        let begun = Instant::now();
        let target = match thread.take() {
            None => Target::New { suggested: None },
            Some(id) => Target::Thread { id },
        };
        let sent = handle.submit(&client, target, None, START.as_bytes()).await;
        let (receipt, mut results) = sent.unwrap();
        let Receipt::Accepted { thread: id, .. } = receipt else {
            panic!("not accepted: {receipt:?}")
        };
        while let Some(done) = results.next().await {
            let done = done.unwrap();
            let answer = done.messages[0].payload.as_str();
            assert!(answer.contains("done"), "{answer}");
        }
        thread = Some(id.to_string());
        calls.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    calls
}

/// The config lines of a listener that is run by a command.
pub fn commanded(command: &[String], threads: usize) -> String {
    // In-process handlers take deliveries of all threads at once; a process takes one delivery.
    let instances = if command.len() > 1 { threads.min(8) } else { threads };
    let command = serde_json::to_string(command).unwrap();
    format!("command = {command}\ninstances = {instances}")
}

/// Writes and loads the config of the relay. `hosting` has the config lines that run both
/// listeners; `more` has further sections.
pub fn config(place: &Path, hosting: &str, more: &str) -> Config {
    std::fs::write(place.join("done.xsd"), DONE_SCHEMA).unwrap();
    let text = format!(
        "[organism]\nname = \"relay\"\ndata = \"data\"\nstate = \"state\"\n\
         [limits]\nmessages = 10000000\n\
         [clients.client]\npeers = [\"ping\"]\n\
         [listeners.ping]\ndescription = \"sends\"\n{hosting}\n\
         schema = [\"done.xsd\", \"{TASK_SCHEMA}\"]\n\
         accepts = [\"start\"]\nreplies = [\"done\"]\npeers = [\"pong\"]\n\
         [listeners.pong]\ndescription = \"sends back\"\n{hosting}\n\
         schema = \"{TASK_SCHEMA}\"\n\
         accepts = [\"task\"]\nreplies = [\"task\"]\n{more}"
    );
    let file = place.join("relay.toml");
    std::fs::write(&file, text).unwrap();
    config::load(&file, &ConfigEnvironment::of_process())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// The process listener of the relay: counts the messages of a call.
pub fn listen() -> ! {
    let code = organism::listener::Listener::new()
        .otherwise(|request: &organism::listener::Request| {
            let is_ping = &*request.payload_name().local == "start";
            let last = is_ping && request.results().len() >= ROUNDS;
            Ok::<_, String>(organism::listener::Reply::raw(if last { DONE } else { TASK }))
        })
        .serve();
    std::process::exit(if code == std::process::ExitCode::SUCCESS { 0 } else { 1 })
}
