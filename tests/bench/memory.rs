//! Memory of a running organism. The real program is measured when idle and during a hundred
//! simultaneous answers; an organism inside this program is measured after ten thousand threads.
//! The memory is read from `/proc`, so these figures exist on Linux alone.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome};
use organism::envelope::AttemptFailure;
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};

use super::figures::Bench;
use super::floor::directory;
use super::mode_process::{ModeProcess, stay};
use super::relay::{self, DONE, START};
use super::start;
use super::streams::{Server, noise, text};

const THREADS: usize = 10_000;
const THREADS_MANY: usize = 60_000;
/// Number of clients that make exchanges at the same time.
const CLIENTS: usize = 64;

pub fn idle(bench: &mut Bench) {
    add(bench, "rss_idle", running());
}

/// Memory of ten thousand idle root threads after one exchange each.
pub fn at_rest(bench: &mut Bench) {
    add(bench, "rss_10k_threads", rested(THREADS));
}

/// Bytes of memory that the program keeps for each finished root thread. The first ten thousand
/// threads are not counted.
pub fn finished(bench: &mut Bench) {
    match (rested(THREADS), rested(THREADS_MANY)) {
        (Some(few), Some(many)) => {
            let bytes = (many - few) * 1e6 / (THREADS_MANY - THREADS) as f64;
            bench.figures.add_small("finished_thread", bytes, "bytes");
        }
        _ => println!("{:<24} not measured: there is no /proc", "finished_thread"),
    }
}

/// Memory of the program while a hundred answers of 8 MB each stream in, compared with answers of
/// 200 KB.
pub fn streams(bench: &mut Bench) {
    match (streamed(PIECES), streamed(PIECES * 64)) {
        (Some(short), Some(long)) => {
            bench.figures.add("rss_100_streams", long, "MB", Some(short));
        }
        _ => println!("{:<24} not measured: there is no /proc", "rss_100_streams"),
    }
}

const STREAMS: usize = 100;
/// Number of pieces of text in every stream. Each piece has about 1 KB.
const PIECES: usize = 64;

const SLOW: &str = r#"
[organism]
name = "slow"

[clients.desk]
peers = ["mind"]

[models.slow]
provider = "openai-compatible"
model = "slow"
base_url = "http://127.0.0.1:PORT/v1"
concurrency = 100
attempts = 1

[agents.mind]
schema = "words.xsd"
accepts = ["plan"]
final = "answer"
model = "slow"
concurrency = 100
timeout = "300s"
"#;

/// Returns the program's peak memory in MB after the program has read a hundred streams with
/// `noises` ignored events each.
fn streamed(noises: usize) -> Option<f64> {
    let place = directory("streams");
    let server = Server::start();
    // Text among the noise, which is the same in every run.
    let event = text(&"all work and no play ".repeat(50)) + &noise().repeat(noises / PIECES);
    server.says(&event, PIECES);
    std::fs::write(place.join("organism.toml"), SLOW.replace("PORT", &server.port.to_string()))
        .unwrap();
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    std::fs::copy(words, place.join("words.xsd")).unwrap();
    // One command sends at most this number of files at once.
    let halves = ["a", "b"].map(|half| {
        std::fs::create_dir(place.join(half)).unwrap();
        for number in 0..STREAMS / 2 {
            let text = format!("{half}{number}");
            let plan = format!("<plan xmlns=\"urn:test:words\"><text>{text}</text></plan>");
            std::fs::write(place.join(half).join(format!("{number}.xml")), plan).unwrap();
        }
        half
    });
    let mut running = start::when_ready(organism(&place, &["run"]));
    let sending = halves.map(|half| {
        let mut send = organism(&place, &["send", "--each", half, "--as", "desk"]);
        send.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    server.wait_for(STREAMS);
    server.release();
    for mut send in sending {
        assert!(send.wait().unwrap().success());
    }
    let megabytes = held(&running, "VmHWM:");
    start::interrupt(&mut running);
    megabytes
}

fn add(bench: &mut Bench, name: &str, megabytes: Option<f64>) {
    match megabytes {
        Some(megabytes) => bench.figures.add(name, megabytes, "MB", None),
        None => println!("{name:<24} not measured: there is no /proc"),
    }
}

/// Memory of the idle program in MB; `None` without `/proc`.
fn running() -> Option<f64> {
    let mut running = start::run_demo(&directory("idle"));
    let megabytes = resident(&running);
    start::interrupt(&mut running);
    megabytes
}

/// Memory of a program in MB after one exchange in each of `threads` root threads.
fn rested(threads: usize) -> Option<f64> {
    let mut child = ModeProcess::start("rest", &[("BENCH_THREADS", &threads.to_string())]);
    child.wait_for("at rest");
    let megabytes = resident(&child.process);
    child.end();
    megabytes
}

pub fn organism(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(arguments).current_dir(place);
    command.env("XDG_DATA_HOME", place.join("data")).env("XDG_STATE_HOME", place.join("state"));
    command
}

pub fn resident(child: &Child) -> Option<f64> {
    held(child, "VmRSS:")
}

pub fn held(child: &Child, what: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// Main function of the child process. The process reports when it is idle, and stays idle until
/// its input ends.
pub fn rest() {
    let threads: usize = std::env::var("BENCH_THREADS").unwrap().parse().unwrap();
    let config =
        relay::config(&directory("rest"), &relay::commanded(&["true".to_owned()], CLIENTS), "");
    let answer = |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        Ok(Outcome { payloads: vec![DONE.as_bytes().to_vec()], turn: None, ..Outcome::default() })
    };
    let ping = start::name("ping");
    let native: NativeHostBuilder = Box::new(move |sink, runtime| -> Arc<dyn Host> {
        Arc::new(NativeHost::new(start::name("ping"), from_fn(answer), sink, runtime.clone()))
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = Organism::start_with(config, HashMap::from([(ping, native)])).await.unwrap();
        let clients = (0..CLIENTS).map(|client| {
            let handle = organism.handle();
            tokio::spawn(async move {
                for _ in (client..threads).step_by(CLIENTS) {
                    let target = Target::New { suggested: None };
                    let from = start::name("client");
                    let sent = handle.submit(&from, target, None, START.as_bytes()).await;
                    let (receipt, mut results) = sent.unwrap();
                    assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
                    while let Some(done) = results.next().await {
                        done.unwrap();
                    }
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        stay("at rest");
        organism.stop("the bench is done").await.unwrap();
    });
}
