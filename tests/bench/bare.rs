//! The lower bound of the cost of a message over NATS: a process that receives each message on core
//! NATS, publishes it to JetStream, and forwards it after JetStream has acknowledged it. The
//! process parses nothing.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use organism::nats::{Client, NatsCredentials, Options, connect};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::figures::median_of;
use super::floor::TASK;
use super::nats::Server;

const IN: &str = "bare.in";
const KEPT: &str = "bare.kept";
const OUT: &str = "bare.out";
const STREAM: &str = "bare";

/// Result of a run of the bare forwarder: messages per second, and latency.
pub struct Bare {
    pub per_second: f64,
    /// Latency of one message to the forwarder and back.
    pub micros: f64,
}

/// A child process. Dropping this value kills the process.
pub struct Program(Child);

impl Program {
    /// Starts this executable again with the argument `word` and these environment variables.
    pub fn start(word: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(word).envs(variables.iter().copied()).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Measures the bare forwarder for `span`, with `threads` messages of 1 KB in flight at any time.
pub fn run(server: &Server, threads: usize, span: Duration) -> Bare {
    let admin = server.admin();
    let stream = json!({ "name": STREAM, "subjects": [KEPT], "storage": "file",
        "retention": "limits", "num_replicas": 1, "max_consumers": -1, "max_msgs": -1,
        "max_bytes": -1, "max_age": 0, "discard": "new" });
    admin.must(&format!("STREAM.CREATE.{STREAM}"), &stream);
    let forwarder = Program::start("forwarder", &[("BENCH_NATS", &server.address())]);
    let bare = alone().block_on(drive(&server.options(), threads, span));
    drop(forwarder);
    admin.delete(STREAM);
    bare
}

/// Creates a runtime with a single thread. No message is then handed to another thread, which would
/// have to be woken.
fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn drive(options: &Options, threads: usize, span: Duration) -> Bare {
    let client = connect(options, "bare driver").await.unwrap();
    let mut back = client.subscribe(OUT).await.unwrap();
    client.flush().await.unwrap();
    // The forwarder is ready after its first reply.
    loop {
        client.publish(IN, "".into()).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(50), back.next()).await;
        if answer.is_ok() {
            break;
        }
    }
    let send = || async { client.publish(IN, TASK.into()).await.unwrap() };
    for _ in 0..threads {
        send().await;
    }
    let (began, mut last) = (Instant::now(), Instant::now());
    let mut times = Vec::new();
    while began.elapsed() < span {
        let message = back.next().await.unwrap();
        if message.payload.len() < TASK.len() {
            continue;
        }
        times.push(last.elapsed().as_secs_f64() * 1e6);
        last = Instant::now();
        send().await;
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    Bare { per_second, micros: median_of(times.into_iter()) }
}

/// Main function of the forwarder process. The process has one connection and one thread, and
/// publishes further messages while it waits for acknowledgements.
pub fn forward() {
    let server = std::env::var("BENCH_NATS").unwrap();
    let options =
        Options { servers: vec![server], credentials: NatsCredentials::Anonymous, ca: None };
    alone().block_on(async {
        let client = connect(&options, "bare forwarder").await.unwrap();
        forward_all(&client).await;
    });
}

async fn forward_all(client: &Client) {
    let mut incoming = client.subscribe(IN).await.unwrap();
    let mut acks = client.subscribe("bare.ack.*").await.unwrap();
    let (mut waiting, mut count) = (HashMap::new(), 0_u64);
    loop {
        tokio::select! {
            message = incoming.next() => {
                let Some(message) = message else { return };
                count += 1;
                let ack = format!("bare.ack.{count}");
                waiting.insert(ack.clone(), message.payload.clone());
                client.publish_with_reply(KEPT, ack, message.payload).await.unwrap();
            }
            ack = acks.next() => {
                let Some(ack) = ack else { return };
                let text = String::from_utf8_lossy(&ack.payload);
                assert!(text.contains("\"seq\":"), "not acknowledged: {text}");
                let payload = waiting.remove(ack.subject.as_str()).unwrap();
                client.publish(OUT, payload).await.unwrap();
            }
        }
    }
}
