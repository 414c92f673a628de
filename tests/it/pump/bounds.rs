//! Bounds on waiting submissions. A submission beyond a bound is answered with `busy`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use organism::contract::TreeLimits;
use organism::envelope::RefusalRule;
use organism::ids::{Digest, ListenerName, MessageId, ThreadId};
use organism::journal::Error;
use organism::limits;
use organism::organism::control::{ControlContext, ControlServer};
use organism::pump::core::{BusyCount, Core, Event, Receipt, Target};
use organism::pump::driver::{Handle, Pump};
use organism::service::socket_path;
use organism::thread::{Decision, Input, PauseAction, PauseTarget, PauseVerb, Record};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::slow_disk::WatchedJournal;
use super::world::{World, client, listener, name, word};
use crate::journal::substrate::Kept;
use crate::organism::PATIENCE;

const CLIENTS: usize = limits::INBOX_REQUESTS_MAX / limits::NEW_THREADS_AT_ONCE + 1;

/// A pump whose journal blocks after the boot record, until the test releases it.
struct Stuck {
    handle: Handle,
    pump: JoinHandle<Result<(), Error>>,
    /// Dropping this sender releases the journal.
    let_go: Option<Sender<()>>,
    /// Gets a message each time the journal blocks.
    blocked: Receiver<()>,
    place: Kept,
}

impl Stuck {
    fn start() -> Self {
        let names: Vec<String> = (0..CLIENTS).map(|n| format!("client-{n}")).collect();
        let mut contracts: Vec<_> = names.iter().map(|who| client(who, &["finder"])).collect();
        contracts.push(listener("finder", &["look"], &["found"], &[]));
        let gate = World::new(contracts).gate.clone();
        let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
        let place = Kept::new();
        let (let_go, gone) = channel::<()>();
        let (blocks, blocked) = channel();
        let before_write = move |records: &[Record]| {
            if !records.iter().any(|record| matches!(record.input, Input::Boot { .. })) {
                blocks.send(()).ok();
                gone.recv().ok();
            }
        };
        let journal = WatchedJournal::new(place.open(None), before_write);
        let pump = Pump::new(core, Box::new(journal), gate);
        let handle = pump.handle();
        let pump = std::thread::spawn(move || pump.run("test"));
        Self { handle, pump, let_go: Some(let_go), blocked, place }
    }

    /// A submission of this client into a new thread.
    fn submit(&self, client: usize) -> impl Future<Output = Receipt> + use<> {
        let handle = self.handle.clone();
        let client = name(&format!("client-{client}"));
        async move {
            let target = Target::New { suggested: None };
            let sent = handle.submit(&client, target, None, word("look", "x").as_bytes()).await;
            sent.unwrap().0
        }
    }

    /// Submits for each of these clients while the journal blocks. Returns the first response, and
    /// the submissions that still wait.
    async fn first_answer(
        &self,
        clients: impl Iterator<Item = usize>,
    ) -> (Receipt, JoinSet<Receipt>) {
        let mut sent: JoinSet<_> = clients.map(|client| self.submit(client)).collect();
        let first = tokio::time::timeout(PATIENCE, sent.join_next()).await;
        (first.expect("one is answered").unwrap().unwrap(), sent)
    }

    /// Releases the journal, and stops the pump.
    async fn end(mut self) -> Vec<Input> {
        drop(self.let_go.take());
        self.handle.stop();
        let ended = tokio::task::spawn_blocking(move || self.pump.join().unwrap());
        tokio::time::timeout(PATIENCE, ended).await.expect("it ends").unwrap().unwrap();
        self.place.records().into_iter().map(|record| record.input).collect()
    }
}

fn busy(receipt: &Receipt) -> Option<&str> {
    let Receipt::Refused { refusal, retry_after } = receipt else { return None };
    assert_eq!(refusal.rule, RefusalRule::Busy);
    assert!(retry_after.is_some(), "with a hint when to try again");
    Some(&refusal.message)
}

#[test]
pub fn a_count_of_busy_answers_is_replayed_like_any_other_step() {
    let mut world = World::new(vec![
        client("desk", &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]);
    let desk = name("desk");
    let since = world.now;
    world.pass(Duration::from_secs(60));
    world.step(Event::Busy(BusyCount { client: desk.clone(), since, count: 7 }));

    let input = &world.records.last().unwrap().input;
    assert_eq!(*input, Input::Busy { client: desk, since, count: 7 });
    world.restart();
    let (_, call) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("found", "f")]);
    assert!(world.results.contains_key(&call));
}

#[tokio::test]
async fn submissions_of_one_client_into_new_threads_are_busy_at_their_bound() {
    let mut pump = Stuck::start();
    let one_too_many = std::iter::repeat_n(0, limits::NEW_THREADS_AT_ONCE + 1);
    let (receipt, sent) = pump.first_answer(one_too_many).await;
    assert!(busy(&receipt).unwrap().contains("new threads"), "{receipt:?}");

    // Another client is still accepted.
    let other = tokio::spawn(pump.submit(1));
    drop(pump.let_go.take());
    let other = tokio::time::timeout(PATIENCE, other).await.expect("it is answered").unwrap();
    assert!(matches!(other, Receipt::Accepted { .. }), "{other:?}");
    let receipts = tokio::time::timeout(PATIENCE, sent.join_all()).await.expect("all are answered");
    assert!(receipts.iter().all(|receipt| matches!(receipt, Receipt::Accepted { .. })));

    let inputs = pump.end().await;
    let counts = inputs.iter().filter_map(|input| match input {
        Input::Busy { client, count, .. } => Some((client.to_string(), *count)),
        _ => None,
    });
    assert_eq!(counts.collect::<Vec<_>>(), [("client-0".to_owned(), 1)]);
}

#[tokio::test]
async fn a_full_inbox_is_busy_for_submissions_and_decisions() {
    let pump = Stuck::start();
    let clients = (0..CLIENTS).flat_map(|n| std::iter::repeat_n(n, limits::NEW_THREADS_AT_ONCE));
    let (receipt, sent) = pump.first_answer(clients).await;
    assert!(busy(&receipt).unwrap().contains("wait for the pump"), "{receipt:?}");

    let message = MessageId(Uuid::nil());
    let refuse = Decision::Refuse { reason: String::new() };
    let decided = pump.handle.decide(message, refuse, None).await.unwrap();
    assert_eq!(decided.unwrap_err().rule, RefusalRule::Busy);
    let thread = ThreadId::organism();
    let cancelled = pump.handle.cancel(thread, String::new(), None).await.unwrap();
    assert_eq!(cancelled.unwrap_err().rule, RefusalRule::Busy);
    drop(sent);
    pump.end().await;
}

#[tokio::test]
async fn a_pause_whose_sender_has_given_up_is_not_carried_out_later() {
    let pump = Stuck::start();
    let sent = tokio::spawn(pump.submit(0));
    // The submission reaches the pump before this task continues.
    tokio::task::yield_now().await;
    pump.blocked.recv_timeout(PATIENCE).expect("the pump writes the submission");

    let by = ListenerName::operator();
    let all = PauseAction { verb: PauseVerb::Pause, target: PauseTarget::All, by, origin: None };
    let mut pausing = Box::pin(pump.handle.pause(all));
    let polled = pausing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "{polled:?}");
    drop(pausing);

    let inputs = pump.end().await;
    assert!(!inputs.iter().any(|input| matches!(input, Input::Pause(_))), "{inputs:?}");
    assert!(matches!(sent.await.unwrap(), Receipt::Accepted { .. }), "the submission counts");
}

#[tokio::test]
async fn connections_beyond_the_bound_of_the_control_socket_get_busy() {
    let pump = Stuck::start();
    let data = pump.place.data();
    let path = socket_path(&data);
    let server =
        ControlServer::open(&path, ControlContext::new(pump.handle.clone(), data, PATIENCE))
            .unwrap();
    let mut connected = Vec::new();
    for _ in 0..limits::CONTROL_CONNECTIONS_MAX {
        connected.push(UnixStream::connect(&path).await.unwrap());
    }

    let payload = base64::engine::general_purpose::STANDARD.encode(word("look", "x"));
    let request = format!(
        "organism/{} {{\"do\":\"send\",\"client\":\"client-0\",\"thread\":null,\"suggested\":null,\
         \"key\":null,\"payload\":\"{payload}\",\"wait\":false}}\n",
        organism::service::encoding::VERSION
    );
    let mut one_more = UnixStream::connect(&path).await.unwrap();
    one_more.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    let read = one_more.read_to_string(&mut response);
    tokio::time::timeout(PATIENCE, read).await.expect("it is answered").unwrap();
    assert!(response.contains("busy"), "{response}");
    assert!(response.contains("retry_after_ms"), "{response}");

    drop(connected);
    tokio::time::timeout(PATIENCE, server.close().all()).await.expect("all are done");
    pump.end().await;
}
