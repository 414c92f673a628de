//! Memory of threads that wait, for a person or for a timer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome};
use organism::config::{self, Config, ConfigEnvironment};
use organism::envelope::AttemptFailure;
use organism::ids::ListenerName;
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::system::NAMESPACE;
use tokio::sync::watch;

use super::figures::Bench;
use super::floor::directory;
use super::memory::{held, resident};
use super::mode_process::{ModeProcess, stay};
use super::start::name;

const FEW: usize = 10_000;
const MANY: usize = 1_000_000;
const MANY_QUICK: usize = 110_000;
/// Number of clients that send at once.
const CLIENTS: usize = 64;

const CONFIG: &str = r#"
organism = { name = "waiting", data = "data", state = "state" }
clients.client = { peers = ["ana", "sleeper"] }

[humans.ana]
schema = "words.xsd"
accepts = ["ask"]
replies = ["answer"]
backlog = 1_000_000

[listeners.sleeper]
command = "true"
schema = "words.xsd"
accepts = ["look"]
replies = ["found"]
core = ["set-timer", "wait"]
instances = 64
backlog = 1_000_000
"#;

/// Bytes of memory for each thread that waits for a person.
pub fn people(bench: &mut Bench) {
    add(bench, "waiting_people", "ask");
    let Some((took, peak)) = reopened("ask") else { return };
    bench.figures.add_small("waiting_people_start", took, "s");
    bench.figures.add_small("waiting_people_start_rss", peak, "MB");
}

/// Bytes of memory for each thread that waits for a timer.
pub fn timers(bench: &mut Bench) {
    add(bench, "waiting_timers", "look");
    let Some((took, peak)) = reopened("look") else { return };
    bench.figures.add_small("waiting_timers_start", took, "s");
    bench.figures.add_small("waiting_timers_start_rss", peak, "MB");
}

fn add(bench: &mut Bench, figure: &str, word: &str) {
    let many = if bench.quick { MANY_QUICK } else { MANY };
    match (waiting(word, FEW), waiting(word, many)) {
        (Some(before), Some(after)) => {
            let bytes = (after - before) * 1e6 / (many - FEW) as f64;
            bench.figures.add_small(figure, bytes, "bytes a thread");
        }
        _ => println!("{figure:<24} not measured: there is no /proc"),
    }
}

/// Returns the memory of a process with `threads` waiting threads, in MB. `word` is the payload
/// that makes each thread wait.
fn waiting(word: &str, threads: usize) -> Option<f64> {
    let threads = threads.to_string();
    let variables = [("BENCH_THREADS", &*threads), ("BENCH_WORD", word)];
    let mut child = ModeProcess::start("waiting", &variables);
    child.wait_for("all wait");
    let megabytes = resident(&child.process);
    child.end();
    megabytes
}

/// Starts an organism in the directory of the last run. Returns the time in seconds until the
/// organism accepts requests, and its peak memory in MB.
fn reopened(word: &str) -> Option<(f64, f64)> {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/waiting");
    let variables = [("BENCH_THREADS", "0"), ("BENCH_WORD", word), ("BENCH_PLACE", place)];
    let began = Instant::now();
    let mut child = ModeProcess::start("waiting", &variables);
    child.wait_for("all wait");
    let took = began.elapsed().as_secs_f64();
    let peak = held(&child.process, "VmHWM:");
    child.end();
    Some((took, peak?))
}

/// Main function of the child process: opens the threads, and keeps them waiting until the input of
/// the process ends. With `BENCH_PLACE`, opens the organism in this directory, in which threads are
/// already waiting.
pub fn wait() {
    let threads: usize = std::env::var("BENCH_THREADS").unwrap().parse().unwrap();
    let word = std::env::var("BENCH_WORD").unwrap();
    let payload = format!("<{word} xmlns=\"urn:test:words\"><text>now?</text></{word}>");
    let again = std::env::var_os("BENCH_PLACE").map(PathBuf::from);
    let config = config(&again.unwrap_or_else(|| directory("waiting")));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (answered, mut answers) = watch::channel(0);
        let organism = Organism::start_with(config, sleeper(answered)).await.unwrap();
        let clients = (0..CLIENTS).map(|client| {
            let (handle, payload) = (organism.handle(), payload.clone());
            tokio::spawn(async move {
                let from = name("client");
                for _ in (client..threads).step_by(CLIENTS) {
                    let target = Target::New { suggested: None };
                    let sent = handle.submit(&from, target, None, payload.as_bytes());
                    let (receipt, _) = sent.await.unwrap();
                    assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        // A thread waits for its timer once its request is answered.
        if word == "look" {
            answers.wait_for(|answers| *answers >= threads).await.unwrap();
        }
        stay("all wait");
        organism.stop("the bench is done").await.unwrap();
    });
}

fn config(place: &Path) -> Config {
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    std::fs::copy(words, place.join("words.xsd")).unwrap();
    let file = place.join("organism.toml");
    std::fs::write(&file, CONFIG).unwrap();
    config::load(&file, &ConfigEnvironment::of_process())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// A listener that answers each request with a timer of a day and a `wait` for this timer. Counts
/// the answers in `answered`.
fn sleeper(answered: watch::Sender<usize>) -> HashMap<ListenerName, NativeHostBuilder> {
    let answer = move |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        answered.send_modify(|answers| *answers += 1);
        let timer = format!("<set-timer xmlns=\"{NAMESPACE}\" after=\"P1D\"/>");
        let wait = format!("<wait xmlns=\"{NAMESPACE}\"/>");
        Ok(Outcome {
            payloads: vec![timer.into_bytes(), wait.into_bytes()],
            turn: None,
            ..Outcome::default()
        })
    };
    let build: NativeHostBuilder = Box::new(move |sink, runtime| -> Arc<dyn Host> {
        Arc::new(NativeHost::new(name("sleeper"), from_fn(answer), sink, runtime.clone()))
    });
    HashMap::from([(name("sleeper"), build)])
}
