//! The cost of clients that wait for the result of one call: processor time and memory of the
//! organism, with a separate connection for each client. These figures are read from `/proc`, so
//! they exist on Linux alone.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use organism::ids::{Digest, ListenerName};
use organism::service::handshake::Handshake;
use organism::service::{
    ServiceClient, ServiceRequest, ServiceResponse, SubmitRequest, SubmitUpdate,
};
use tokio::sync::mpsc;

use super::figures::Bench;
use super::floor::directory;
use super::hop::spent_micros_of;
use super::{memory, start};

const WAITERS: usize = 200;
/// Duration of the wait during which the processor time is measured.
const SPAN: Duration = Duration::from_secs(60);
const SPAN_QUICK: Duration = Duration::from_secs(5);

/// Config with a listener that takes its delivery and never answers.
const CONFIG: &str = r#"
[organism]
name = "waiters"
data = "data"
state = "state"

[clients.desk]
peers = ["silent"]

[listeners.silent]
command = ["sleep", "3600"]
schema = "words.xsd"
accepts = ["plan"]
replies = ["answer"]
timeout = "1h"
"#;

pub fn two_hundred(bench: &mut Bench) {
    if !Path::new("/proc/self/stat").exists() {
        println!("{:<24} not measured: there is no /proc", "waiters_200");
        return;
    }
    let span = if bench.quick { SPAN_QUICK } else { SPAN };
    let (share, kilobytes) = measured(span);
    bench.figures.add_small("waiters_200_cpu", share * 100.0, "% of a core");
    bench.figures.add_small("waiters_200_rss", kilobytes, "KB a waiter");
}

/// Returns the share of one core that the organism uses while clients wait, and the kilobytes of
/// memory per waiter.
fn measured(span: Duration) -> (f64, f64) {
    let place = directory("waiters");
    std::fs::write(place.join("organism.toml"), CONFIG).unwrap();
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    std::fs::copy(words, place.join("words.xsd")).unwrap();
    let mut running = start::when_ready(memory::organism(&place, &["run"]));

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let measured = runtime.block_on(async {
        // The first connection and the call itself have costs that further waiters do not have.
        let mut updates = wait(&place, 1).await;
        let memory_before = resident_kilobytes(&running);
        let mut more = wait(&place, WAITERS).await;
        let memory = resident_kilobytes(&running) - memory_before;

        let before = spent_micros_of(running.id());
        let ended = tokio::time::timeout(span, more.recv()).await;
        let spent = spent_micros_of(running.id()) - before;
        assert!(ended.is_err() && updates.try_recv().is_err(), "the call has ended");
        (spent / span.as_micros() as f64, memory / WAITERS as f64)
    });
    runtime.shutdown_background();
    start::interrupt(&mut running);
    measured
}

/// Starts `count` waiters. Returns when each waiter has its receipt.
async fn wait(place: &Path, count: usize) -> mpsc::UnboundedReceiver<SubmitUpdate> {
    let handshake = handshake(place);
    let (updates, mut received) = mpsc::unbounded_channel();
    for _ in 0..count {
        let found = ServiceClient::find(&place.join("data"), handshake.clone()).await.unwrap();
        let (client, updates) = (found.unwrap(), updates.clone());
        tokio::spawn(async move {
            let on_update = |response| {
                if let ServiceResponse::SubmitUpdate(update) = response {
                    drop(updates.send(update));
                }
            };
            drop(client.attempt(0, &ServiceRequest::Submit(submission()), on_update).await);
        });
    }
    for _ in 0..count {
        let receipt = received.recv().await.unwrap();
        assert!(matches!(receipt, SubmitUpdate::Accepted { .. }), "{receipt:?}");
    }
    received
}

fn submission() -> SubmitRequest {
    SubmitRequest {
        client: ListenerName::parse("desk").unwrap(),
        thread: None,
        suggested: None,
        key: Some("one call".to_owned()),
        payload: b"<plan xmlns=\"urn:test:words\"><text>wait</text></plan>".to_vec(),
        wait: true,
        trace: None,
        secret: None,
    }
}

fn handshake(place: &Path) -> Handshake {
    let checked = memory::organism(place, &["check", "--json"]).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    let text = |key: &str| checked[key].as_str().unwrap().to_owned();
    let config = Digest::parse(&text("digest")).unwrap();
    Handshake { project: Some(text("project")), config: Some(config), partitions: None }
}

fn resident_kilobytes(running: &Child) -> f64 {
    memory::resident(running).unwrap() * 1000.0
}
