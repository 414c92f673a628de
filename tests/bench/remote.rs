//! The relay on NATS. The journal is a stream, and both listeners are separate programs. For
//! comparison, a bare forwarder on the same server shows the lower bound of a hop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use organism::nats::{BlockingClient, NatsRequest};

use super::bare::{self, Bare, Program};
use super::figures::{Bench, median_of};
use super::floor::directory;
use super::nats::{Server, Settings};
use super::relay::{self, Played};

/// The time at which a server syncs its files: before each acknowledgement (`Always`), or later
/// (`Lazy`).
#[derive(Clone, Copy, PartialEq)]
pub enum Sync {
    Lazy,
    Always,
}

impl Sync {
    pub fn server(self) -> Server {
        let jetstream = match self {
            Self::Lazy => "",
            Self::Always => "sync_interval: always",
        };
        Server::start_with(Settings { jetstream: Some(jetstream), more: "" })
    }

    fn durability(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Always => "synced",
        }
    }
}

pub fn t1(bench: &mut Bench) {
    one(bench, "relay_nats_t1", Sync::Lazy);
}

pub fn t1_synced(bench: &mut Bench) {
    one(bench, "relay_nats_t1_synced", Sync::Always);
}

pub fn t64(bench: &mut Bench) {
    many(bench, "relay_nats_t64", Sync::Lazy);
}

pub fn t64_synced(bench: &mut Bench) {
    many(bench, "relay_nats_t64_synced", Sync::Always);
}

fn one(bench: &mut Bench, name: &str, sync: Sync) {
    let (played, bare) = beside(bench, sync, 1);
    let value = median_of(played.iter().map(Played::median_micros_per_hop));
    let floor = median_of(bare.iter().map(|bare| bare.micros));
    bench.figures.add(name, value, "us", Some(floor));
}

fn many(bench: &mut Bench, name: &str, sync: Sync) {
    let (played, bare) = beside(bench, sync, 64);
    let value = median_of(played.iter().map(Played::hops_per_second));
    let floor = median_of(bare.iter().map(|bare| bare.per_second));
    bench.figures.add(name, value, "messages/s", Some(floor));
}

/// Runs the relay and the bare forwarder in alternation, on one server.
fn beside(bench: &Bench, sync: Sync, threads: usize) -> (Vec<Played>, Vec<Bare>) {
    let server = sync.server();
    let runs = (0..bench.runs).map(|_| {
        let bare = bare::run(&server, threads, bench.span);
        (played(&server, sync, threads, bench.span), bare)
    });
    runs.unzip()
}

fn played(server: &Server, sync: Sync, threads: usize, span: Duration) -> Played {
    static STREAMS: AtomicU64 = AtomicU64::new(0);
    let stream = format!("relay{}", STREAMS.fetch_add(1, Ordering::Relaxed));
    let listeners = ["ping", "pong"].map(|name| listener(server, name));
    let journal = format!(
        "[nats]\nurl = \"{}\"\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         durability = \"{}\"\n",
        server.address(),
        sync.durability()
    );
    let hosting = format!("nats = true\nconcurrency = {threads}");
    let config = relay::config(&directory("relay"), &hosting, &journal);
    let played = relay::play(config, HashMap::new(), threads, span);
    drop(listeners);
    let admin = server.admin();
    admin.delete(&format!("{stream}-0"));
    played
}

/// Starts a separate program, and waits until it takes deliveries.
pub fn listener(server: &Server, name: &str) -> Program {
    let variables = [
        ("ORGANISM_BUS_URL", server.address()),
        ("ORGANISM_NAME", "relay".to_owned()),
        ("ORGANISM_LISTENER", name.to_owned()),
    ];
    let program = Program::start("listener", &variables.each_ref().map(|(k, v)| (*k, v.as_str())));
    let link = BlockingClient::open(&server.options(), "bench").unwrap();
    let question = NatsRequest {
        subject: format!("$SRV.PING.{name}"),
        headers: None,
        body: Vec::new(),
        patience: Duration::from_secs(1),
    };
    let until = Instant::now() + Duration::from_secs(20);
    while link.request(question.clone()).is_err() {
        assert!(Instant::now() < until, "{name} does not come");
        std::thread::yield_now();
    }
    program
}
