//! Open runs of workflows: the memory of a thousand simultaneous runs, and the time in which a run
//! continues after a kill. This is the time from the new start of the organism to the next step of
//! the run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use organism::config::Config;
use organism::ids::Position;
use organism::journal::sqlite::JournalReader;
use organism::organism::Organism;
use organism::pump::core::{Receipt, Target};
use organism::thread::Fact;

use super::figures::{Bench, median};
use super::floor::directory;
use super::memory::held;
use super::mode_process::{ModeProcess, stay};
use super::relay::{self, ROUNDS, listener};
use super::start;
use super::workflows::{Shape, call, chain_of, models_of, organism_of};

const GOALS: usize = 10;
const RUNS_MANY: usize = 1_000;
const RUNS_FEW: usize = 100;
/// Number of messages in the journal with which the organism starts again after a kill.
const MESSAGES: usize = 100_000;
/// Duration of the model's turn during which the process is killed.
const LONG: Duration = Duration::from_secs(10);

/// Peak memory of the program while a thousand runs of ten goals are open at once, compared with
/// fewer runs.
pub fn memory(bench: &mut Bench) {
    match (most(RUNS_FEW), most(RUNS_MANY)) {
        (Some(few), Some(many)) => {
            bench.figures.add("runs_1000_rss", many, "MB", Some(few));
            let kilobytes = (many - 1.1 * few) * 1e3 / RUNS_MANY as f64;
            bench.figures.add_small("runs_1000_each", kilobytes, "KB beyond 1.1x");
        }
        _ => println!("{:<24} not measured: there is no /proc", "runs_1000_rss"),
    }
}

fn most(runs: usize) -> Option<f64> {
    let mut child = ModeProcess::start("open-runs", &[("BENCH_RUNS", &runs.to_string())]);
    child.wait_for("done");
    held(&child.process, "VmHWM:")
}

/// Main function of the child process of [`memory`].
pub fn open() {
    let runs: usize = std::env::var("BENCH_RUNS").unwrap().parse().unwrap();
    let shape = chain_of(GOALS);
    let config = organism_of(&directory("runs"), &shape.turns, Duration::ZERO, &shape.text);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = Organism::start_with(config, [].into()).await.unwrap();
        let calls = (0..runs).map(|_| {
            let (handle, request) = (organism.handle(), shape.request.clone());
            tokio::spawn(async move { call(&handle, &request, "done").await })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        stay("done");
    });
}

/// Milliseconds from the new start of an organism to the next step of a run. The organism was
/// killed during a turn of a model in this run. The journal has 100,000 messages.
pub fn resume_after_kill(bench: &mut Bench) {
    let place = directory("resumed");
    start::fill(&place, MESSAGES, ROUNDS);
    let value = median(bench.runs, || resumed(&place));
    bench.figures.add("resume_after_kill", value, "ms", None);
}

fn resumed(place: &Path) -> f64 {
    drop(with_run(place, LONG));
    let mut child = ModeProcess::start("interrupted", &[("BENCH_PLACE", &place.to_string_lossy())]);
    child.wait_for("in a turn");
    drop(child);

    let (config, _) = with_run(place, Duration::ZERO);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = last_position(place);
        let began = Instant::now();
        let organism = Organism::start_with(config, [].into()).await.unwrap();
        let mut looks = tokio::time::interval(Duration::from_millis(1));
        while !has_answered_since(place, before) {
            looks.tick().await;
        }
        let took = began.elapsed();
        organism.stop("the bench is done").await.unwrap();
        took.as_secs_f64() * 1e3
    })
}

/// Returns the relay's config with a workflow of two goals. The agent of the workflow answers
/// after `delay`.
fn with_run(place: &Path, delay: Duration) -> (Config, Shape) {
    let shape = chain_of(2);
    let workflow = shape.text.replace("[clients.client]", "[clients.desk]");
    let more = format!("{}{workflow}", models_of(place, &shape.turns, delay));
    (relay::config(place, &relay::commanded(&["true".to_owned()], 1), &more), shape)
}

/// Main function of the child process of [`resume_after_kill`].
pub fn interrupted() {
    let place = PathBuf::from(std::env::var("BENCH_PLACE").unwrap());
    let (config, shape) = with_run(&place, LONG);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = last_position(&place);
        let organism = Organism::start_with(config, [].into()).await.unwrap();
        let target = Target::New { suggested: None };
        let request = shape.request.as_bytes();
        let sent = organism.handle().submit(&listener("desk"), target, None, request).await;
        let (receipt, _results) = sent.unwrap();
        assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
        let mut looks = tokio::time::interval(Duration::from_millis(1));
        while !has_called_since(&place, before) {
            looks.tick().await;
        }
        stay("in a turn");
    });
}

fn last_position(place: &Path) -> Position {
    JournalReader::open(&place.join("data")).unwrap().last().unwrap()
}

/// Whether a message to the agent was recorded after `position`.
fn has_called_since(place: &Path, position: Position) -> bool {
    has_since(place, position, |from, to| to == "worker" && from != "worker")
}

fn has_answered_since(place: &Path, position: Position) -> bool {
    has_since(place, position, |from, to| from == "worker" && to != "worker")
}

fn has_since(place: &Path, position: Position, is_it: impl Fn(&str, &str) -> bool) -> bool {
    let reader = JournalReader::open(&place.join("data")).unwrap();
    let last = reader.last().unwrap();
    if last <= position {
        return false;
    }
    let records = reader.records(Position(position.0 + 1), last).unwrap();
    let facts = records.into_iter().flat_map(|sealed| sealed.record.facts);
    facts.into_iter().any(|fact| match fact {
        Fact::Accepted { message, .. } => is_it(message.from.as_str(), message.to.as_str()),
        _ => false,
    })
}
