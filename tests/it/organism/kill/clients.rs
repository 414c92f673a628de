//! Clients that submit payloads continuously, whatever happens to the organism. Each client writes
//! its own ledger to the disk before it continues.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use organism::ids::ListenerName;
use organism::service::handshake::Handshake;
use organism::service::{
    ServiceClient, ServiceRequest, ServiceResponse, SubmitRequest, SubmitUpdate,
};
use organism::thread::Closing;
use tokio::sync::oneshot;

use super::super::numbered;
use super::{House, PATIENCE, torture};

/// Number of clients of a short run. They keep enough messages in flight for each kill. The further
/// clients of a long run only raise the load.
const CLIENTS: usize = 16;
/// Number of clients of a short run, if the events of the run do not depend on the load. Each
/// client pauses for `FEW_PAUSE` after a result. Usually at least one client has a submission in
/// flight.
const FEW_CLIENTS: usize = 5;
const FEW_PAUSE: Duration = Duration::from_millis(200);
const TORTURE_CLIENTS: usize = 50;
/// One submission in this many continues the thread of the previous submission.
const GOES_ON_EVERY: usize = 2;
/// Minimum number of submissions of each client. One of them continues the thread of an earlier
/// submission, and one is refused.
const SUBMISSIONS_MIN: usize = 3;

/// A line of the ledger, and the channel that reports that the line is on the disk.
type Entry = (String, oneshot::Sender<()>);

/// The fate of a submission from the view of its client.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Number of times that the client has sent the submission.
    pub sent: u32,
    pub refused: bool,
    pub thread: Option<String>,
    /// The result that the client got.
    pub result: Option<String>,
}

/// The fate of each submission, by key.
pub type Ledger = HashMap<String, Seen>;

pub struct Clients {
    runtime: tokio::runtime::Runtime,
    tasks: Vec<tokio::task::JoinHandle<Ledger>>,
    stop: Arc<AtomicBool>,
}

impl Clients {
    pub fn start(house: &House) -> Self {
        Self::start_some(house, CLIENTS, Duration::ZERO)
    }

    /// Starts clients as [`Self::start`] does. In a short run, the clients are fewer and pause
    /// after each result.
    pub fn start_few(house: &House) -> Self {
        Self::start_some(house, FEW_CLIENTS, FEW_PAUSE)
    }

    fn start_some(house: &House, count: usize, pause: Duration) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let (entries, inbox) = channel();
        let file = File::create(house.path("ledger")).unwrap();
        std::thread::spawn(move || keep(file, &inbox));
        let stop = Arc::new(AtomicBool::new(false));
        let handshake = house.handshake();
        let count = if torture() { TORTURE_CLIENTS } else { count };
        let pause = if torture() { Duration::ZERO } else { pause };
        let tasks = (0..count).map(|number| {
            let (handshake, entries) = (handshake.clone(), entries.clone());
            let desk = LoadClient { number, data: house.data(), handshake, entries, pause };
            runtime.spawn(desk.work(Arc::clone(&stop)))
        });
        let tasks = tasks.collect();
        Self { runtime, tasks, stop }
    }

    /// Waits until all clients have their results. Returns their ledger.
    pub fn finish(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Ledger::new();
        for task in self.tasks {
            all.extend(self.runtime.block_on(task).unwrap());
        }
        all
    }
}

/// Writes the ledger lines that wait in `inbox` to the file, and syncs the file once for all of
/// them. Repeats this until all clients are gone.
fn keep(mut file: File, inbox: &Receiver<Entry>) {
    while let Ok(first) = inbox.recv() {
        let entries: Vec<Entry> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let lines: String = entries.iter().map(|(line, _)| format!("{line}\n")).collect();
        file.write_all(lines.as_bytes()).unwrap();
        file.sync_data().unwrap();
        for (_, written) in entries {
            // After a failed test, no client waits.
            written.send(()).ok();
        }
    }
}

struct LoadClient {
    number: usize,
    data: PathBuf,
    handshake: Handshake,
    entries: Sender<Entry>,
    pause: Duration,
}

impl LoadClient {
    async fn note(&self, line: String) {
        let (written, done) = oneshot::channel();
        self.entries.send((line, written)).unwrap();
        done.await.unwrap();
    }

    /// Submits payloads one after another. Repeats each submission until its result arrives.
    async fn work(self, stop: Arc<AtomicBool>) -> Ledger {
        let mut ledger = Ledger::new();
        let mut count = 0;
        let mut last = None;
        while count < SUBMISSIONS_MIN || !stop.load(Ordering::Relaxed) {
            count += 1;
            let key = format!("c{}-{count}", self.number);
            let seen = self.submit(&key, count, last.take()).await;
            last = seen.thread.clone();
            ledger.insert(key, seen);
            tokio::time::sleep(self.pause).await;
        }
        ledger
    }

    async fn submit(&self, key: &str, count: usize, last: Option<String>) -> Seen {
        let payload = match count % 10 {
            3 => format!("<order xmlns=\"{}\"><m>{key}</m></order>", super::TALK),
            5 => numbered("ping", key),
            _ => numbered("order", key),
        };
        let parcel = SubmitRequest {
            client: ListenerName::parse("desk").unwrap(),
            thread: last.filter(|_| count.is_multiple_of(GOES_ON_EVERY)),
            suggested: None,
            key: Some(key.to_owned()),
            payload: payload.into_bytes(),
            wait: true,
            trace: None,
            secret: None,
        };
        let mut seen = Seen::default();
        // In a long campaign, the organism may be killed many times before it handles this
        // submission.
        let deadline = Instant::now() + PATIENCE * if torture() { 20 } else { 2 };
        loop {
            if self.attempt(key, &parcel, &mut seen).await {
                self.note(format!("ended {key} {seen:?}")).await;
                return seen;
            }
            assert!(Instant::now() < deadline, "{key} never got its result: {seen:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a submission. Returns whether the submission got its result; if not, the client
    /// repeats it with the same key.
    async fn attempt(&self, key: &str, parcel: &SubmitRequest, seen: &mut Seen) -> bool {
        // While no organism runs, nothing is written to the ledger, so that the disk is free for
        // the next start.
        let found = ServiceClient::find(&self.data, self.handshake.clone()).await.unwrap();
        let Some(client) = found else { return false };
        seen.sent += 1;
        self.note(format!("sent {key}")).await;
        let mut said = Vec::new();
        let ask = ServiceRequest::Submit(parcel.clone());
        // Responses before the connection broke count.
        client.attempt(0, &ask, |line| said.push(line)).await.ok();
        for line in said {
            match line {
                ServiceResponse::SubmitUpdate(SubmitUpdate::Accepted { thread, .. }) => {
                    let thread = thread.to_string();
                    self.note(format!("accepted {key} {thread}")).await;
                    let before = seen.thread.replace(thread.clone());
                    assert!(
                        before.is_none_or(|before| before == thread),
                        "another thread: {seen:?}"
                    );
                }
                ServiceResponse::SubmitUpdate(SubmitUpdate::Refused {
                    refusal,
                    retry_after_ms: None,
                }) => {
                    assert_eq!(refusal.rule.as_str(), "schema-invalid", "{refusal:?}");
                    seen.refused = true;
                    return true;
                }
                ServiceResponse::SubmitUpdate(SubmitUpdate::Result { how, replies, .. }) => {
                    assert_eq!(how, Closing::Completed, "{replies:?}");
                    assert_eq!(replies.len(), 1, "{replies:?}");
                    seen.result = Some(replies[0].text().to_owned());
                    return true;
                }
                _ => {}
            }
        }
        false
    }
}
