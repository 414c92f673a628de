//! Deliveries out and answers in, over one connection that the listeners of an organism share.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::{Stream, StreamExt as _};
use rand_core::{OsRng, RngCore as _};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::bus::answer::NamedAttempt;
use crate::bus::{Delivery, Outcome, Sink};
use crate::envelope::Failure;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{Client, HeaderMap, HeaderName, Message, PublishErrorKind, State, Subscriber};

use super::agency::Agency;
use super::answers::{self, Said};
use super::asks;
use super::desk::{Desk, Ended, Key};
use super::memory::{RecalledDelivery, ReplicaMemory};
use super::subjects::{About, Subjects};
use super::tokens::{Token, Tokens};
use super::wire::{Letter, Unsent, Wire};
use super::{Error, Options, request, words};

pub(super) struct Shared {
    pub wire: Arc<Wire>,
    /// What tells our attempts from those of other pumps.
    name: String,
    pub options: Options,
    subjects: Subjects,
    sink: Arc<dyn Sink>,
    runtime: runtime::Handle,
    tokens: Tokens,
    desk: Mutex<Desk>,
    /// Notified when nothing is out any more.
    idle: Notify,
    /// It is back, and what its replicas announced was forgotten when nobody was there.
    is_unasked: AtomicBool,
    /// Attempts that are off the desk, and not yet with the sink.
    ending: AtomicUsize,
    /// Messages that answered nothing.
    strays: AtomicU64,
    /// Where the listener is an agent.
    agency: Option<Arc<Agency>>,
    /// Calls that replicas remember.
    pub memory: ReplicaMemory,
}

/// An attempt, or several, between desk and sink: nothing is idle meanwhile.
pub(super) struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, Ordering::AcqRel);
        if self.0.is_idle() {
            self.0.idle.notify_waiters();
        }
    }
}

impl Shared {
    pub fn new(
        wire: Arc<Wire>,
        options: Options,
        subjects: Subjects,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Self {
        let desk = Desk::new(Instant::now(), options.cancel_grace);
        let desk = Mutex::new(desk.waiting_for_end(options.waits_for_end));
        let (ending, strays) = (AtomicUsize::default(), AtomicU64::default());
        let idle = Notify::new();
        let name = format!("{:016x}", OsRng.next_u64());
        let is_unasked = AtomicBool::default();
        let agency = options.far.clone().map(|far| Arc::new(Agency::new(far)));
        Self {
            wire,
            name,
            options,
            subjects,
            sink,
            runtime,
            tokens: Tokens::default(),
            desk,
            idle,
            is_unasked,
            ending,
            strays,
            agency,
            memory: ReplicaMemory::default(),
        }
    }

    /// What the listener says to us, and what it says to everybody.
    pub async fn subscribe(&self) -> Result<[Subscriber; 2], Error> {
        let one = async |subject: String| {
            let subscribed = self.client().subscribe(subject.clone()).await;
            subscribed.map_err(|e| Error::Subscribe { subject, detail: e.to_string() })
        };
        Ok([one(self.subjects.answers_to(&self.name)).await?, one(self.subjects.here()).await?])
    }

    pub(super) fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    pub(super) fn sink(&self) -> &Arc<dyn Sink> {
        &self.sink
    }

    pub(super) fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }

    /// Whether it is out, or was and an answer may still come.
    pub(super) fn knows(&self, token: Token) -> bool {
        self.desk().knows(token)
    }

    /// Whose attempt is out under this token.
    pub(super) fn holder(&self, token: Token) -> Option<Key> {
        self.desk().holder(token)
    }

    /// Whoever has it said something: that is a sign of life.
    pub(super) fn is_heard(&self, token: Token) {
        self.is_back();
        self.desk().works(token, Instant::now());
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before anything is taken off the desk.
    pub(super) fn ending(self: &Arc<Self>) -> Ending {
        self.ending.fetch_add(1, Ordering::AcqRel);
        Ending(Arc::clone(self))
    }

    pub(super) fn client(&self) -> &Client {
        self.wire.client()
    }

    fn is_idle(&self) -> bool {
        let is_told = self.ending.load(Ordering::Acquire) == 0 || mutant("drain-too-early");
        self.desk().is_empty() && is_told
    }

    /// The how manieth connection this is, where there is one.
    fn connection(&self) -> Option<u64> {
        let is_connected = self.client().connection_state() == State::Connected;
        is_connected.then(|| self.client().statistics().connects.load(Ordering::Relaxed))
    }

    /// Writes on the calling thread what the connection's sends.
    pub fn deliver(self: &Arc<Self>, delivery: &Delivery) {
        let token = self.tokens.next();
        let key = (delivery.call, delivery.attempt);
        // What is published without a connection goes out on the next one.
        let connection = self
            .connection()
            .unwrap_or_else(|| self.client().statistics().connects.load(Ordering::Relaxed) + 1);
        if !self.desk().take(token, key, connection, Instant::now()) {
            return self.not_taken(key, "the listener is shutting down".to_owned());
        }
        let recalled = self.memory.recall(delivery);
        self.desk().note_sent(token, self.sent_delivery(delivery, recalled.is_some()));
        self.publish(token, delivery, recalled);
    }

    /// Publishes a delivery whose token is on the desk: to the replica that remembers its call, or else
    /// to all.
    pub(super) fn publish(
        self: &Arc<Self>,
        token: Token,
        delivery: &Delivery,
        recalled: Option<RecalledDelivery>,
    ) {
        let remembered = recalled.as_ref().map(|recalled| recalled.count);
        let request::Written { headers, body } = match &self.agency {
            Some(agency) => agency.take(token, delivery),
            None => request::write(delivery, remembered),
        };
        let reply = self.subjects.answer(&format!("{}.{token:032x}", self.name));
        let shared = Arc::clone(self);
        self.wire.put(Letter {
            subject: recalled.map_or_else(|| self.subjects.deliveries(), |to| to.subject),
            reply: Some(reply),
            headers,
            body,
            unsent: Box::new(move |unsent| shared.unsent(token, &unsent)),
        });
    }

    fn unsent(self: &Arc<Self>, token: Token, unsent: &Unsent) {
        let _ending = self.ending();
        let ended = self.desk().end(token);
        let Ended::InTime(key) = ended else { return };
        if unsent.kind == PublishErrorKind::MaxPayloadExceeded {
            let (bytes, max) = (unsent.bytes, self.client().max_payload());
            let detail = format!(
                "a delivery of {bytes} bytes, where the NATS server takes {max}: raise its \
                 max_payload"
            );
            return self.ended(key, Err(Failure::TooLarge { detail }));
        }
        self.not_taken(key, format!("publishing: {}", unsent.detail));
    }

    pub fn cancel(&self, call: CallId, attempt: Attempt) {
        if !self.desk().cancel((call, attempt), Instant::now()) {
            return;
        }
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(words::CALL), call.to_string());
        headers.insert(HeaderName::from_static(words::ATTEMPT), attempt.to_string());
        let unsent = |unsent: Unsent| {
            tracing::warn!("a listener was not told that its caller is gone: {}", unsent.detail);
        };
        let (subject, unsent) = (self.subjects.cancels(), Box::new(unsent));
        self.wire.put(Letter { subject, reply: None, headers, body: Vec::new(), unsent });
    }

    /// Nothing is taken any more; returns when nothing is out.
    pub async fn drain(self: &Arc<Self>) {
        self.desk().drain();
        if timeout(self.options.drain_timeout, self.idle()).await.is_err() {
            let _ending = self.ending();
            let left = self.desk().give_up();
            for key in left {
                let detail = "did not answer before the organism stopped".to_owned();
                self.ended(key, Err(Failure::Crashed { detail }));
            }
        }
    }

    async fn idle(&self) {
        let mut notified = pin!(self.idle.notified());
        loop {
            notified.as_mut().enable();
            if self.is_idle() {
                return;
            }
            notified.as_mut().await;
            notified.set(self.idle.notified());
        }
    }

    /// Hears the listener, until it is dropped.
    pub async fn listen(self: Arc<Self>, mut answers: impl Stream<Item = Message> + Unpin) {
        let mut look = interval(limits::NATS_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        loop {
            tokio::select! {
                // What has come is heard before anybody is called silent.
                biased;
                message = answers.next() => match message {
                    Some(message) => self.heard(&message),
                    None => return,
                },
                _ = look.tick() => {
                    let connection = self.connection();
                    let is_due = connection != seen || self.is_unasked.load(Ordering::Acquire);
                    if connection.is_some() && is_due {
                        seen = connection;
                        self.is_unasked.store(false, Ordering::Release);
                        self.ask_who_is_there().await;
                    }
                    self.give_up_what_is_denied(connection);
                    self.deliver_what_was_denied();
                    let _ending = self.ending();
                    let overdue = self.desk().overdue(connection, Instant::now());
                    overdue.into_iter().for_each(|(key, failure)| self.ended(key, Err(failure)));
                    self.report_lingering();
                    if let Some(agency) = &self.agency {
                        agency.keep(|token| self.desk().standing(token));
                    }
                }
            }
        }
    }

    /// Warns of handlers that hold up what comes after them.
    fn report_lingering(&self) {
        if !self.options.waits_for_end {
            return;
        }
        let lingering = self.desk().lingering(Instant::now());
        for (call, attempt) in lingering {
            let (listener, waited) = (&self.options.listener, self.options.cancel_grace);
            tracing::warn!(
                %listener, %call, %attempt, ?waited,
                "a replica still works on a call whose caller is gone; what comes after it waits: \
                 should it never end, restart the replica"
            );
        }
    }

    /// What the servers do not let us publish reaches nobody, and nothing else would tell.
    fn give_up_what_is_denied(self: &Arc<Self>, connection: Option<u64>) {
        let since = Instant::now().checked_sub(2 * limits::NATS_LOOK);
        let (Some(since), Some(_)) = (since, connection) else { return };
        let denials = self.wire.denials();
        let Some(denied) = denials.of_publishing(&self.subjects.deliveries(), since) else {
            return;
        };
        let Some(published) = Instant::now().checked_sub(limits::NATS_ROUND_TRIP) else { return };
        let _ending = self.ending();
        let untaken = self.desk().denied(published);
        for key in untaken {
            self.not_taken(key, denied.to_string());
        }
    }

    /// Replicas that were there before us say what they announce.
    async fn ask_who_is_there(&self) {
        let (ping, here) = (self.subjects.ping(), self.subjects.here());
        if let Err(error) = self.client().publish_with_reply(ping, here, "".into()).await {
            tracing::warn!("nobody was asked whether {} is there: {error}", self.options.listener);
        }
    }

    fn heard(self: &Arc<Self>, message: &Message) {
        let token = match self.subjects.about(&message.subject) {
            About::Itself if answers::is_nobody(message) => return,
            About::Itself => {
                let lease = message.headers.as_ref().and_then(answers::lease);
                self.desk().leases(lease, Instant::now());
                return self.is_back();
            }
            About::Attempt(token) => token,
        };
        let own = token.strip_prefix(&self.name).and_then(|token| token.strip_prefix('.'));
        let token = own.and_then(|token| Token::from_str_radix(token, 16).ok());
        if message.headers.as_ref().is_some_and(|headers| headers.get(words::ASK).is_some()) {
            return match &self.agency {
                Some(agency) => self.asked(agency, token, message),
                None => self.stray(message),
            };
        }
        // Looked for before it is read: what answers nothing costs nothing.
        let Some(token) = token.filter(|token| self.desk().knows(*token)) else {
            return self.stray(message);
        };
        let said = match (answers::read(message), &self.agency) {
            (Said::Named(named, answer), None) => match self.named(token, &named, answer) {
                Some(answer) => Said::Answer(answer),
                None => return,
            },
            (Said::MissingMemory(named), None) => {
                let none = Ok(Outcome::default());
                match self.named(token, &named, none).and_then(|_| self.missing_memory(token)) {
                    Some(failure) => Said::Answer(Err(failure)),
                    None => return,
                }
            }
            // Payloads without the turn that wrote them.
            (Said::Answer(Ok(_)) | Said::Named(..) | Said::MissingMemory(_), Some(_)) => {
                Said::Answer(asks::answer(&message.payload))
            }
            (said, _) => said,
        };
        self.said(token, said, message);
    }

    /// An answer that names the attempt of its subject; one that names another is recorded, and
    /// changes nothing else.
    fn named(
        &self,
        token: Token,
        named: &NamedAttempt,
        answer: Result<Outcome, Failure>,
    ) -> Option<Result<Outcome, Failure>> {
        let key = self.desk().key_of(token);
        if key.is_some_and(|(call, attempt)| named.is(call, attempt)) {
            return Some(answer);
        }
        let listener = &self.options.listener;
        tracing::warn!(%listener, "an answer to {named}, which it was not given");
        let payloads = answer.map(|outcome| outcome.payloads).unwrap_or_default();
        self.sink.stray(listener, named.to_string(), payloads);
        None
    }

    pub(super) fn said(self: &Arc<Self>, token: Token, said: Said, message: &Message) {
        let ending = self.ending();
        match said {
            Said::Nobody => self.nobody(token),
            // Held to its name before.
            Said::Named(..) | Said::MissingMemory(_) => {}
            Said::Unreadable => {
                self.is_back();
                tracing::warn!(
                    listener = %self.options.listener,
                    "a lease is a number of seconds, and this one is not: it is not counted"
                );
            }
            Said::Heartbeat => {
                let holder = self.desk().works(token, Instant::now());
                if let Some((call, attempt)) = holder {
                    self.is_back();
                    self.sink.heartbeat(&self.options.listener, call, attempt);
                }
            }
            Said::ModelState(state) => {
                let holder = self.desk().works(token, Instant::now());
                if let Some((call, _)) = holder.filter(|_| self.agency.is_some()) {
                    self.sink.model_state(&self.options.listener, call, state);
                }
            }
            Said::Lease(lease) => {
                self.is_back();
                self.desk().lives(token, lease, Instant::now());
            }
            Said::Answer(answer) => {
                if answer.is_ok() {
                    self.remember(token, message);
                }
                let ended = self.desk().end(token);
                match ended {
                    // The pump refuses it, on record.
                    Ended::InTime(key) | Ended::Late(key) => {
                        self.is_back();
                        self.answered(key, answer, ending, message.payload.len());
                    }
                    Ended::Nothing => self.stray(message),
                }
            }
        }
    }

    /// What takes long to judge keeps no other listener from being heard.
    fn answered(
        self: &Arc<Self>,
        key: Key,
        answer: Result<Outcome, Failure>,
        ending: Ending,
        bytes: usize,
    ) {
        if bytes <= limits::NATS_JUDGED_AT_ONCE_BYTES {
            return self.ended(key, answer);
        }
        let shared = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            shared.ended(key, answer);
            drop(ending);
        });
    }

    fn nobody(self: &Arc<Self>, token: Token) {
        // Only the replica that remembers it is gone.
        if self.deliver_all(token) {
            return;
        }
        let (ended, is_news) = {
            let mut desk = self.desk();
            (desk.end(token), desk.is_gone())
        };
        let detail = "no replica of it is connected to NATS";
        if is_news {
            self.sink.left(&self.options.listener, detail);
        }
        if let Ended::InTime(key) = ended {
            self.not_taken(key, detail.to_owned());
        }
    }

    fn is_back(&self) {
        let is_news = self.desk().is_back();
        if is_news {
            self.is_unasked.store(true, Ordering::Release);
            self.sink.joined(&self.options.listener, "a replica of it is connected to NATS");
        }
    }

    /// An answer that was not asked for, or twice: refused, and told without filling the log.
    pub(super) fn stray(&self, message: &Message) {
        let count = self.strays.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let (listener, subject) = (&self.options.listener, &message.subject);
            tracing::warn!(%listener, count, "an answer to nothing is refused, at {subject}");
        }
    }

    fn not_taken(&self, (call, attempt): Key, detail: String) {
        self.sink.not_taken(&self.options.listener, call, attempt, detail);
    }

    pub(super) fn ended(&self, (call, attempt): Key, result: Result<Outcome, Failure>) {
        self.sink.ended(&self.options.listener, call, attempt, result);
    }
}
