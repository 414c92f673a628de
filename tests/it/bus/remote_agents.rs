//! The messages between a remote host of agents and its pump, apart from deliveries and answers.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use organism::bus::native_host::{HandlerContext, NativeHandler, NativeHost};
use organism::bus::nats::{
    AGENT_PROTOCOL_VERSION, PromptConfig, RemoteAgentHost, RemoteAgentOptions, RemoteSink,
    ThreadMark, ThreadSource, ThreadTransfer,
};
use organism::bus::{Delivery, Host, Outcome};
use organism::envelope::{AttemptFailure, MessageKind, Turn};
use organism::ids::{Attempt, CallId, Digest, MessageId, Position, ThreadId};
use organism::nats::{Client, HeaderMap, connect_with};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use super::harness::{HostHarness, SinkEvent, message, name};
use super::remote::leaving::{
    Ending, is_silent_after_cancel, is_silent_on_a_new_connection, server,
};
use super::remote::{Meeting, RUNTIME, Stranger, wait};
use crate::nats::shared;
use crate::organism::PATIENCE;

fn noted() -> Option<Turn> {
    Some(Turn { note: "<noted/>".to_owned(), ..Turn::default() })
}

/// A thread source with a different text for each position.
struct PositionText;

impl ThreadSource for PositionText {
    fn thread(
        &self,
        thread: &ThreadId,
        known: Option<ThreadMark>,
        up_to: Position,
    ) -> Result<ThreadTransfer, String> {
        let after = known.map_or(Position(0), |known| known.position);
        let from = known.map_or_else(String::new, |known| format!(" after {}", known.position));
        let text = format!("{thread}{from} up to {up_to}").into_bytes();
        Ok(ThreadTransfer { after, text, mark: Digest::of(up_to.to_string().as_bytes()) })
    }
}

/// A thread source with a long thread. The first read fails, and all reads are counted.
#[derive(Default)]
struct Counted(AtomicUsize);

/// Size of a thread that does not fit into one NATS message, in bytes.
const LONG_BYTES: usize = 3 << 20;

impl ThreadSource for Counted {
    fn thread(
        &self,
        _: &ThreadId,
        _: Option<ThreadMark>,
        _: Position,
    ) -> Result<ThreadTransfer, String> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Err("not now".to_owned()),
            _ => {
                let text = vec![b'x'; LONG_BYTES];
                Ok(ThreadTransfer { after: Position(0), text, mark: Digest::ZERO })
            }
        }
    }
}

/// An agent that requests its thread twice at the same time, and a third time later.
struct Asks {
    relay: RemoteSink,
}

impl NativeHandler for Asks {
    async fn handle(
        &self,
        delivery: Delivery,
        _: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        let ask = || self.relay.thread(&delivery, None);
        let mut told = try_join_all([ask(), ask()]).await?;
        told.push(ask().await?);
        assert!(told.iter().all(|told| told.text.len() == LONG_BYTES));
        Ok(Outcome { payloads: vec![b"<told/>".to_vec()], turn: noted(), ..Outcome::default() })
    }
}

/// A handler that sends a heartbeat, waits until its call is cancelled, and answers with the text
/// of its thread.
struct Waits {
    relay: RemoteSink,
}

impl NativeHandler for Waits {
    async fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        assert_eq!(delivery.trace.unwrap().to_string(), super::harness::TRACEPARENT);
        let told = String::from_utf8(self.relay.thread(&delivery, None).await?.text).unwrap();
        context.heartbeat();
        context.cancelled().await;
        Ok(Outcome {
            payloads: vec![format!("<told>{told}</told>").into()],
            turn: noted(),
            ..Outcome::default()
        })
    }
}

struct Post {
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn post<H: NativeHandler>(meeting: &Meeting, config: Digest, handler: fn(RemoteSink) -> H) -> Post {
    let inbox = meeting.subjects.inbox();
    let servers = organism::nats::Options {
        servers: vec![meeting.address.clone()],
        credentials: organism::nats::NatsCredentials::Anonymous,
        ca: None,
    };
    wait(async {
        let (client, _) = connect_with(&servers, "a host", Some(&inbox)).await.unwrap();
        let runtime = RUNTIME.handle().clone();
        let relay = RemoteSink::new(client, meeting.subjects.clone(), runtime.clone());
        let handler = handler(relay.clone());
        let host = NativeHost::new(name("tested"), handler, Arc::new(relay.clone()), runtime);
        let host: Arc<dyn Host> = Arc::new(host);
        let post = RemoteAgentHost::open(&meeting.organism, name("tested"), config, relay, host);
        let post = post.await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(post.serve(async {
            stopped.await.ok();
        }));
        Post { stop, served }
    })
}

impl Post {
    fn ask_to_end(self) -> Ending {
        self.stop.send(()).unwrap();
        Box::new(move || wait(self.served).unwrap())
    }
}

fn ear(meeting: &Meeting, config: Digest, memory: Arc<dyn ThreadSource>) -> HostHarness {
    let remote_agents = Some(RemoteAgentOptions { memory, config: PromptConfig::new(config) });
    let options = organism::bus::nats::Options { remote_agents, ..meeting.options() };
    HostHarness::hosting(|sink| Arc::new(meeting.host_with(options, sink)))
}

const THREAD_PAYLOAD: &str = "<told>sess-k3v9t2m8 up to 1</told>";

#[tokio::test]
async fn a_heartbeat_and_a_cancel_reach_the_other_end() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let mut ear = ear(&meeting, config, Arc::new(PositionText));
    let post = post(&meeting, config, |relay| Waits { relay });
    // The host reads the thread for the agent, so the text of the source must be readable.
    assert!(ear.host.reads_journal() && !meeting.ear().host.reads_journal());
    let number = ear.tell("anything");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![THREAD_PAYLOAD.to_owned()])).await;
    post.stop.send(()).unwrap();
    post.served.await.unwrap();
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

#[tokio::test]
async fn of_an_agents_host_no_call_is_remembered() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let mut ear = ear(&meeting, config, Arc::new(PositionText));
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let _own = stranger.hears("_INBOX_tested.agent").await;
    let outcome = json!({ "outcome": { "payloads": ["<told/>"], "turn": noted().unwrap() } });
    let outcome = outcome.to_string();
    let size = outcome.len().to_string();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("Organism-Ask", "answer"),
        ("Organism-Offset", "0"),
        ("Organism-Size", &size),
        ("Organism-Remembers", "_INBOX_tested.agent"),
    ] {
        headers.insert(name, value);
    }
    for count in 1..=3 {
        let kind = |seq| if seq == 1 { MessageKind::Call } else { MessageKind::Reply };
        let messages = (1..=count).map(|seq| message(seq, kind(seq), "anything")).collect();
        let number = ear.deliver_again(1, messages, 1);
        let to = deliveries.next().await.reply.unwrap();
        let (reply, headers, outcome) = ("_INBOX_tested.reply", headers.clone(), outcome.clone());
        let answer = stranger.0.publish_with_reply_and_headers(to, reply, headers, outcome.into());
        answer.await.unwrap();
        ear.expect(SinkEvent::Answer(number, vec!["<told/>".to_owned()])).await;
    }
}

/// Repeated requests of a host for a thread do not make the pump read its journal again in the same
/// turn.
#[tokio::test]
async fn a_thread_is_read_once_for_a_turn_with_repeated_requests() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let memory = Arc::new(Counted::default());
    let mut ear = ear(&meeting, config, memory.clone());
    let post = post(&meeting, config, |relay| Asks { relay });
    // Each part of the thread is a request, and a part that could not be read is requested again.
    for reads in [2, 3] {
        let number = ear.tell("anything");
        ear.expect(SinkEvent::Answer(number, vec!["<told/>".to_owned()])).await;
        assert_eq!(memory.0.load(Ordering::Relaxed), reads);
    }
    post.stop.send(()).unwrap();
    post.served.await.unwrap();
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

#[tokio::test]
async fn a_leaving_host_answers_its_deliveries_and_no_discovery_request() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let ear = ear(&meeting, config, Arc::new(PositionText));
    let post = post(&meeting, config, |relay| Waits { relay });
    is_silent_after_cancel(&meeting, ear, THREAD_PAYLOAD, || post.ask_to_end()).await;
}

#[tokio::test]
async fn a_host_that_leaves_announces_no_new_connection_and_answers_what_it_has() {
    let server = server();
    let (meeting, config) = (Meeting::at(&server), Digest::of(b"one config"));
    let ear = ear(&meeting, config, Arc::new(PositionText));
    let post = post(&meeting, config, |relay| Waits { relay });
    is_silent_on_a_new_connection(&server, &meeting, ear, THREAD_PAYLOAD, || post.ask_to_end())
        .await;
}

/// An agent that reports the start and the end of each call, and blocks each call until the test
/// releases it.
struct Stuck {
    go: Mutex<mpsc::Receiver<()>>,
    noted: mpsc::Sender<(&'static str, CallId)>,
}

impl Host for Stuck {
    fn deliver(&self, delivery: Delivery) {
        self.noted.send(("delivered", delivery.call)).unwrap();
        self.go.lock().unwrap().recv().unwrap();
    }
    fn cancel(&self, call: CallId, _: Attempt) {
        self.noted.send(("cancelled", call)).unwrap();
    }
    fn flush(&self) {}
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// The agent host of a blocking agent, on a separate thread.
fn stuck(
    meeting: &Meeting,
    client: Client,
    host: Stuck,
    stopped: oneshot::Receiver<()>,
) -> thread::JoinHandle<()> {
    let (subjects, runtime) = (meeting.subjects.clone(), RUNTIME.handle().clone());
    let (relay, config) = (RemoteSink::new(client, subjects, runtime), Digest::of(b"one config"));
    let host = Arc::new(host);
    let post = RemoteAgentHost::open(&meeting.organism, name("tested"), config, relay, host);
    let post = wait(post).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = post.serve(std::future::pending()) => {}
                _ = stopped => {}
            }
        });
    })
}

fn headers(call: CallId) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("Organism-Call", &*call.to_string()),
        ("Organism-Attempt", "1.2"),
        ("Organism-Thread", "sess-k3v9t2m8"),
        ("Organism-Timeout", "1.5"),
        ("Organism-Position", "1"),
        ("Organism-Config", &Digest::of(b"one config").to_string()),
    ] {
        headers.insert(name, value);
    }
    headers
}

#[tokio::test]
async fn a_cancel_that_comes_together_with_its_delivery_does_not_overtake_it() {
    let meeting = Meeting::at(shared());
    let Stranger(client) = wait(meeting.stranger());
    let ((go, is_let_go), (noted, notes)) = (mpsc::channel(), mpsc::channel());
    let (stop, stopped) = oneshot::channel();
    let host = Stuck { go: Mutex::new(is_let_go), noted };
    let thread = stuck(&meeting, client.clone(), host, stopped);
    let probe = client.new_inbox();
    let mut probed = client.subscribe(probe.clone()).await.unwrap();
    let deliver = async |call| {
        let (to, reply) = (meeting.subjects.deliveries(), meeting.subjects.answer("token"));
        let delivery = headers(call);
        client.publish_with_reply_and_headers(to, reply, delivery, "".into()).await.unwrap();
    };
    let next = || notes.recv_timeout(PATIENCE).unwrap();
    // So many calls that random order would fail the test.
    for n in 0..40 {
        let [other, call] = [2 * n, 2 * n + 1].map(|n| CallId(MessageId(Uuid::from_u128(n))));
        deliver(other).await;
        assert_eq!(next(), ("delivered", other));
        deliver(call).await;
        let (to, cancel) = (meeting.subjects.cancels(), headers(call));
        client.publish_with_headers(to, cancel, "".into()).await.unwrap();
        // Messages of one connection arrive in order, so both earlier messages have arrived with
        // this one.
        client.publish(probe.clone(), "".into()).await.unwrap();
        timeout(PATIENCE, probed.next()).await.unwrap().unwrap();
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!([next(), next()], [("delivered", call), ("cancelled", call)], "round {n}");
    }
    stop.send(()).unwrap();
    thread.join().unwrap();
}

/// Waits for the answer of an agent host to its delivery. Acknowledges the answer and returns it.
async fn answer_of_host(client: &Client, at: &mut organism::nats::Subscriber) -> String {
    loop {
        let message = timeout(PATIENCE, at.next()).await.unwrap().unwrap();
        let headers = message.headers.unwrap_or_default();
        if headers.get("Organism-Ask").is_none_or(|asked| asked.as_str() != "answer") {
            continue;
        }
        client.publish(message.reply.unwrap(), "".into()).await.unwrap();
        return String::from_utf8(message.payload.to_vec()).unwrap();
    }
}

#[tokio::test]
async fn a_host_refuses_a_delivery_of_a_pump_of_another_version_and_names_both() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let post = post(&meeting, config, |relay| Waits { relay });
    let Stranger(client) = meeting.stranger().await;
    for (stated, theirs) in [("9", 9), ("x", 0)] {
        let reply = meeting.subjects.answer("token");
        let mut answers = client.subscribe(reply.clone()).await.unwrap();
        let mut delivery = headers(CallId(MessageId(Uuid::from_u128(theirs))));
        delivery.insert("Organism-Agent-Protocol", stated);
        let to = meeting.subjects.deliveries();
        client.publish_with_reply_and_headers(to, reply, delivery, "".into()).await.unwrap();

        let answer = answer_of_host(&client, &mut answers).await;
        let both = format!(
            "the agent host speaks version {AGENT_PROTOCOL_VERSION} of the agent protocol, and the \
             pump version {theirs}"
        );
        assert!(answer.contains("unreachable"), "{answer}");
        assert!(answer.contains(&both), "{answer}");
    }
    post.stop.send(()).unwrap();
    post.served.await.unwrap();
}
