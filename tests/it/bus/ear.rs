//! A sink that tells a test what it heard, and deliveries to hear about.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use organism::bus::{Delivery, Host, Outcome, Sink};
use organism::clock::Time;
use organism::envelope::{Failure, Kind, Message, Payload};
use organism::ids::{Attempt, CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use tokio::sync::mpsc;
use uuid::Uuid;

/// No test waits this long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Trace to which every delivery belongs.
pub const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The number of the delivery, and its payloads as text.
    Answer(u32, Vec<String>),
    Failed(u32, Failure),
    Beat(u32),
    /// The attempt that a stray answer named, and its payloads.
    Stray(String, Vec<String>),
    Joined,
    Left(String),
}

type Callback = Box<dyn Fn() + Send + Sync>;

struct Mouth {
    reports: mpsc::UnboundedSender<Heard>,
    /// Called inside [`Sink::ended`].
    on_ended: OnceLock<Callback>,
}

impl Mouth {
    fn say(&self, heard: Heard) {
        // A test that has ended no longer listens.
        let _ = self.reports.send(heard);
    }
}

impl Sink for Mouth {
    fn ended(&self, _: &ListenerName, _: CallId, a: Attempt, result: Result<Outcome, Failure>) {
        let text = |payload: Vec<u8>| String::from_utf8(payload).unwrap();
        self.say(match result {
            Ok(outcome) => Heard::Answer(a.n, outcome.payloads.into_iter().map(text).collect()),
            Err(failure) => Heard::Failed(a.n, failure),
        });
        if let Some(on_ended) = self.on_ended.get() {
            on_ended();
        }
    }

    fn stray(&self, _: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let text = |payload: Vec<u8>| String::from_utf8(payload).unwrap();
        self.say(Heard::Stray(named, payloads.into_iter().map(text).collect()));
    }

    fn heartbeat(&self, _: &ListenerName, _: CallId, attempt: Attempt) {
        self.say(Heard::Beat(attempt.n));
    }

    fn joined(&self, _: &ListenerName, _: &str) {
        self.say(Heard::Joined);
    }

    fn left(&self, _: &ListenerName, detail: &str) {
        self.say(Heard::Left(detail.to_owned()));
    }
}

/// A host and everything it reports. Deliveries are numbered from 1 by their attempt.
pub struct Ear {
    pub host: Arc<dyn Host>,
    mouth: Arc<Mouth>,
    heard: mpsc::UnboundedReceiver<Heard>,
    sent: u32,
}

impl Ear {
    pub fn hosting(make: impl FnOnce(Arc<dyn Sink>) -> Arc<dyn Host>) -> Self {
        let (reports, heard) = mpsc::unbounded_channel();
        let mouth = Arc::new(Mouth { reports, on_ended: OnceLock::new() });
        Self { host: make(mouth.clone()), mouth, heard, sent: 0 }
    }

    /// Calls this inside each [`Sink::ended`] from now on.
    pub fn on_ended(&self, callback: impl Fn() + Send + Sync + 'static) {
        assert!(self.mouth.on_ended.set(Box::new(callback)).is_ok(), "it has a callback");
    }

    /// Hands the next deliveries over inside [`Sink::ended`], one at each end, once `begin` has
    /// returned: as a pump on another thread may.
    pub fn hand_over_at_each_end<const N: usize>(
        &mut self,
        texts: [&str; N],
        begin: impl Fn() + Send + Sync + 'static,
    ) {
        let deliveries = texts.map(|text| {
            self.sent += 1;
            delivery(call(self.sent), self.sent, vec![message(1, Kind::Call, text)], 1)
        });
        let deliveries = Mutex::new(deliveries.into_iter());
        let host = Arc::downgrade(&self.host);
        self.on_ended(move || {
            let next = deliveries.lock().unwrap().next();
            if let (Some(delivery), Some(host)) = (next, host.upgrade()) {
                begin();
                host.deliver(delivery);
                host.flush();
            }
        });
    }

    /// Delivers a `<do>` with this text; gives its number.
    pub fn tell(&mut self, text: &str) -> u32 {
        self.deliver(vec![message(1, Kind::Call, text)], 1)
    }

    pub fn deliver(&mut self, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        let number = self.put(messages, fresh);
        self.host.flush();
        number
    }

    /// Delivers a call of this number once more, in a new attempt; gives the attempt's number.
    pub fn deliver_again(&mut self, of: u32, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        let number = self.put_in(call(of), messages, fresh);
        self.host.flush();
        number
    }

    /// Delivers like [`Ear::deliver`], without a flush of the host.
    pub fn put(&mut self, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        self.put_in(call(self.sent + 1), messages, fresh)
    }

    fn put_in(&mut self, call: CallId, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        self.sent += 1;
        self.host.deliver(delivery(call, self.sent, messages, fresh));
        self.sent
    }

    pub fn cancel(&self, number: u32) {
        self.host.cancel(call(number), attempt(number));
        self.host.flush();
    }

    pub async fn next(&mut self) -> Heard {
        let heard = tokio::time::timeout(PATIENCE, self.heard.recv()).await;
        heard.expect("something should have been reported by now").unwrap()
    }

    pub async fn expect(&mut self, expected: Heard) {
        assert_eq!(self.next().await, expected);
    }

    /// Delivers, and gives the text of the one payload that is answered.
    pub async fn ask(&mut self, text: &str) -> String {
        let number = self.tell(text);
        match self.next().await {
            Heard::Answer(n, payloads) if n == number && payloads.len() == 1 => {
                inner(&payloads[0]).to_owned()
            }
            other => panic!("expected one payload for delivery {number}, heard {other:?}"),
        }
    }

    /// Nothing more has been reported. Only of use after a drain, when nothing can come.
    pub fn is_quiet(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }
}

fn delivery(call: CallId, number: u32, messages: Vec<Arc<Message>>, fresh: usize) -> Delivery {
    Delivery {
        listener: name("tested"),
        call,
        thread: ThreadId::parse("sess-k3v9t2m8").unwrap(),
        attempt: attempt(number),
        messages,
        fresh,
        position: Position(1),
        timeout: Duration::from_millis(1500),
        trace: Some(TRACEPARENT.parse().unwrap()),
    }
}

pub fn done(text: &str) -> String {
    format!("<done xmlns=\"urn:test\">{text}</done>")
}

fn inner(payload: &str) -> &str {
    payload.strip_prefix("<done xmlns=\"urn:test\">").unwrap().strip_suffix("</done>").unwrap()
}

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

pub fn call(number: u32) -> CallId {
    CallId(MessageId(Uuid::from_u128(number.into())))
}

pub fn attempt(number: u32) -> Attempt {
    Attempt { epoch: 1, n: number }
}

pub fn message(seq: u64, kind: Kind, text: &str) -> Arc<Message> {
    let payload = Payload::new(format!("<do xmlns=\"urn:test\">{text}</do>"));
    let id = MessageId(Uuid::from_u128(seq.into()));
    Arc::new(Message {
        id,
        kind,
        from: name("tester"),
        to: name("tested"),
        thread: ThreadId::parse("sess-k3v9t2m8").unwrap(),
        seq,
        cause: None,
        call: Some(CallId(id)),
        time: Time(0),
        name: PayloadName::new("urn:test", "do"),
        payload,
    })
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn script(file: &str) -> String {
    format!("{}/tests/data/listeners/{file}", env!("CARGO_MANIFEST_DIR"))
}
