//! A harness for tests of hosts: a sink that reports its events to a test, and functions that hand
//! deliveries to a host.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use organism::bus::{Delivery, DeliveryPreview, Host, Outcome, Sink};
use organism::clock::Time;
use organism::envelope::{AttemptFailure, Message, MessageKind, Payload};
use organism::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId,
};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::organism::PATIENCE;

/// Trace to which every delivery belongs.
pub const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, Clone, PartialEq)]
pub enum SinkEvent {
    /// An answer: the attempt number of its delivery, and the payloads of the answer as text.
    Answer(u32, Vec<String>),
    Failed(u32, AttemptFailure),
    Beat(u32),
    /// The attempt that a stray answer named, and the payloads of the answer.
    Stray(String, Vec<String>),
    Joined,
    Left(String),
    /// The denied operations, and how often they were reported.
    Denied(String, u64),
    /// The reason why the answers of the listener are denied; `None` if they are permitted again.
    AnswersDenied(Option<String>),
}

type Callback = Box<dyn Fn() + Send + Sync>;

struct ReportingSink {
    reports: mpsc::UnboundedSender<SinkEvent>,
    /// Callback that runs inside [`Sink::ended`].
    on_ended: OnceLock<Callback>,
}

impl ReportingSink {
    fn report(&self, heard: SinkEvent) {
        // A test that has ended no longer listens.
        let _ = self.reports.send(heard);
    }
}

impl Sink for ReportingSink {
    fn ended(
        &self,
        _: &ListenerName,
        _: CallId,
        a: Attempt,
        result: Result<Outcome, AttemptFailure>,
    ) {
        let text = |payload: Vec<u8>| String::from_utf8(payload).unwrap();
        self.report(match result {
            Ok(outcome) => SinkEvent::Answer(a.n, outcome.payloads.into_iter().map(text).collect()),
            Err(failure) => SinkEvent::Failed(a.n, failure),
        });
        if let Some(on_ended) = self.on_ended.get() {
            on_ended();
        }
    }

    fn stray(&self, _: &ListenerName, named: String, payloads: Vec<Vec<u8>>) {
        let text = |payload: Vec<u8>| String::from_utf8(payload).unwrap();
        self.report(SinkEvent::Stray(named, payloads.into_iter().map(text).collect()));
    }

    fn heartbeat(&self, _: &ListenerName, _: CallId, attempt: Attempt) {
        self.report(SinkEvent::Beat(attempt.n));
    }

    fn joined(&self, _: &ListenerName, _: &str) {
        self.report(SinkEvent::Joined);
    }

    fn left(&self, _: &ListenerName, detail: &str) {
        self.report(SinkEvent::Left(detail.to_owned()));
    }

    fn denied(&self, _: &ListenerName, operations: String, count: u64) {
        self.report(SinkEvent::Denied(operations, count));
    }

    fn answers_denied(&self, _: &ListenerName, why: Option<String>) {
        self.report(SinkEvent::AnswersDenied(why));
    }
}

/// A host and its reported events. The attempt numbers of deliveries count from 1.
pub struct HostHarness {
    pub host: Arc<dyn Host>,
    sink: Arc<ReportingSink>,
    events: mpsc::UnboundedReceiver<SinkEvent>,
    sent: u32,
}

impl HostHarness {
    pub fn hosting(make: impl FnOnce(Arc<dyn Sink>) -> Arc<dyn Host>) -> Self {
        let (reports, heard) = mpsc::unbounded_channel();
        let mouth = Arc::new(ReportingSink { reports, on_ended: OnceLock::new() });
        Self { host: make(mouth.clone()), sink: mouth, events: heard, sent: 0 }
    }

    /// Sets a callback for each later [`Sink::ended`].
    pub fn on_ended(&self, callback: impl Fn() + Send + Sync + 'static) {
        assert!(self.sink.on_ended.set(Box::new(callback)).is_ok(), "it has a callback");
    }

    /// From now on, each [`Sink::ended`] calls `begin` and hands over the next of these deliveries.
    /// This imitates a pump on another thread, which may deliver at the moment at which an attempt
    /// ends.
    pub fn hand_over_at_each_end<const N: usize>(
        &mut self,
        texts: [&str; N],
        begin: impl Fn() + Send + Sync + 'static,
    ) {
        let deliveries = texts.map(|text| {
            self.sent += 1;
            delivery(call(self.sent), self.sent, vec![message(1, MessageKind::Call, text)], 1)
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

    /// Delivers a `<do>` with this text. Returns the number of the delivery.
    pub fn tell(&mut self, text: &str) -> u32 {
        self.deliver(vec![message(1, MessageKind::Call, text)], 1)
    }

    pub fn deliver(&mut self, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        let number = self.put(messages, fresh);
        self.host.flush();
        number
    }

    /// Delivers the call with the number `of` again, in a new attempt. Returns the number of the
    /// attempt.
    pub fn deliver_again(&mut self, of: u32, messages: Vec<Arc<Message>>, fresh: usize) -> u32 {
        let number = self.put_in(call(of), messages, fresh);
        self.host.flush();
        number
    }

    /// Requests the preview of a call. A preview is no attempt of the call; its number is 0.
    pub fn ask_for_preview(&mut self, text: &str) -> u32 {
        let messages = vec![message(1, MessageKind::Call, text)];
        let preview = DeliveryPreview::Requested;
        self.host.deliver(Delivery { preview, ..delivery(call(0), 0, messages, 1) });
        self.host.flush();
        0
    }

    /// Delivers the call with the number 0, for which [`HostHarness::ask_for_preview`] requests a
    /// preview.
    pub fn tell_in_call_of_preview(&mut self, text: &str) -> u32 {
        self.deliver_again(0, vec![message(1, MessageKind::Call, text)], 1)
    }

    /// Delivers a call whose approval names the preview with the digest `preview`.
    pub fn tell_approved(&mut self, text: &str, preview: Digest) -> u32 {
        self.sent += 1;
        let messages = vec![message(1, MessageKind::Call, text)];
        let preview = DeliveryPreview::Approved(preview);
        let number = self.sent;
        self.host.deliver(Delivery { preview, ..delivery(call(number), number, messages, 1) });
        self.host.flush();
        number
    }

    /// Delivers as [`HostHarness::deliver`] does, but does not flush the host afterwards.
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

    pub async fn next(&mut self) -> SinkEvent {
        let heard = tokio::time::timeout(PATIENCE, self.events.recv()).await;
        heard.expect("something should have been reported by now").unwrap()
    }

    pub async fn expect(&mut self, expected: SinkEvent) {
        assert_eq!(self.next().await, expected);
    }

    /// Delivers a request with this text. Returns the text of the only payload in the answer.
    pub async fn ask(&mut self, text: &str) -> String {
        let number = self.tell(text);
        match self.next().await {
            SinkEvent::Answer(n, payloads) if n == number && payloads.len() == 1 => {
                inner(&payloads[0]).to_owned()
            }
            other => panic!("expected one payload for delivery {number}, heard {other:?}"),
        }
    }

    /// Returns whether no further event was reported. Meaningful only after a drain, because no
    /// event can follow a drain.
    pub fn is_quiet(&mut self) -> bool {
        self.events.try_recv().is_err()
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
        preview: DeliveryPreview::None,
        source: None,
        uncounted: Vec::new(),
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

pub fn message(seq: u64, kind: MessageKind, text: &str) -> Arc<Message> {
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
