//! Two pumps that share four partitions, compared with one pump that has all four partitions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use organism::config::{self, Config, ConfigEnvironment};
use organism::organism::{OrganismClient, PartitionedOrganism};
use organism::service::{SubmitRequest, SubmitUpdate};

use super::bare::Program;
use super::cpu;
use super::figures::{Bench, median_of};
use super::floor::directory;
use super::nats::Server;
use super::relay::{self, HOPS, START};
use super::remote::{Sync, listener};

const THREADS: usize = 64;
const PARTITIONS: [&str; 2] = ["0,1", "2,3"];

pub fn two(bench: &mut Bench) {
    let server = Sync::Lazy.server();
    let runs = (0..bench.runs).map(|_| {
        let one = played(&server, &[&PARTITIONS.join(",")], bench.span);
        (played(&server, &PARTITIONS, bench.span), one)
    });
    let (two, one): (Vec<Played>, Vec<Played>) = runs.unzip();
    let rate = |played: &[Played]| median_of(played.iter().map(|played| played.per_second));
    bench.figures.add("relay_nats_pumps", rate(&two), "messages/s", Some(rate(&one)));
    // Without a free core, a second pump cannot help.
    if let Some(busy) = one.iter().map(|played| played.busy).collect::<Option<Vec<_>>>() {
        let percent = median_of(busy.into_iter()) * 100.0;
        bench.figures.add("relay_nats_pumps_busy", percent, "% of cores", None);
    }
}

struct Played {
    per_second: f64,
    /// Share of all cores that was in use, if the system reports it.
    busy: Option<f64>,
}

fn played(server: &Server, pumps: &[&str], span: Duration) -> Played {
    static STREAMS: AtomicU64 = AtomicU64::new(0);
    let stream = format!("pumps{}", STREAMS.fetch_add(1, Ordering::Relaxed));
    let journal = format!(
        "[nats]\nurl = \"{}\"\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         partitions = 4\ndurability = \"lazy\"\n",
        server.address(),
    );
    let hosting = format!("nats = true\nconcurrency = {THREADS}");
    let config = |name: &str| relay::config(&directory(name), &hosting, &journal);
    let listeners = ["ping", "pong"].map(|name| listener(server, name));
    let running = pumps.iter().map(|partitions| {
        let name = format!("pump-{partitions}");
        config(&name);
        Program::start("pump", &[("BENCH_PLACE", &name), ("BENCH_PARTITIONS", partitions)])
    });
    let running: Vec<_> = running.collect();
    let played = drive(config("door"), span);
    drop((running, listeners));
    let admin = server.admin();
    (0..4).for_each(|partition| admin.delete(&format!("{stream}-{partition}")));
    admin.delete(&format!("KV_{stream}-pumps"));
    played
}

/// Main function of a pump process, which runs some of the relay's partitions.
pub fn pump() {
    let place = std::env::var("BENCH_PLACE").unwrap();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench").join(place);
    let partitions = std::env::var("BENCH_PARTITIONS").unwrap();
    let partitions: Vec<u32> = partitions.split(',').map(|one| one.parse().unwrap()).collect();
    let config = config::load(&place.join("relay.toml"), &ConfigEnvironment::of_process());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = PartitionedOrganism::start(config.unwrap(), &partitions).await.unwrap();
        organism.join().await.unwrap();
    });
}

fn drive(config: Config, span: Duration) -> Played {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Arc::new(OrganismClient::open(config).await.unwrap());
        // Each client has its thread, so the partition has its pump.
        let opening = (0..THREADS).map(|_| tokio::spawn(call(Arc::clone(&client), None)));
        let mut threads = Vec::new();
        for opened in opening.collect::<Vec<_>>() {
            threads.push(opened.await.unwrap());
        }
        let (began, before) = (Instant::now(), cpu::of_all());
        let calls = threads.into_iter().map(|mut thread| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let mut calls = 0;
                while began.elapsed() < span {
                    thread = call(Arc::clone(&client), Some(thread)).await;
                    calls += 1;
                }
                calls
            })
        });
        let mut count = 0;
        for calls in calls.collect::<Vec<_>>() {
            count += calls.await.unwrap();
        }
        let per_second = (count * HOPS) as f64 / began.elapsed().as_secs_f64();
        Played { per_second, busy: cpu::busy_since(before) }
    })
}

/// Calls `ping` once, in `thread` or in a new thread. Returns the id of the call's thread.
async fn call(client: Arc<OrganismClient>, thread: Option<String>) -> String {
    let request = SubmitRequest {
        client: relay::listener("client"),
        thread,
        suggested: None,
        key: None,
        payload: START.as_bytes().to_vec(),
        wait: true,
        trace: None,
        secret: None,
    };
    let mut found = None;
    let sent = client.submit(request, |sent| match sent {
        SubmitUpdate::Accepted { thread, .. } => found = Some(thread.to_string()),
        SubmitUpdate::Result { replies, .. } => {
            assert!(replies.iter().any(|reply| reply.text().contains("done")), "{replies:?}");
        }
        other => panic!("{other:?}"),
    });
    sent.await.unwrap();
    found.unwrap()
}
