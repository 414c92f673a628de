//! Publishes the deliveries of one listener and receives the answers, over the connection of the
//! listener.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};
use rand_core::{OsRng, RngCore as _};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::bus::{Delivery, DeliveryPreview, Outcome, Sink};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, Position};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::nats::{Client, HeaderMap, HeaderName, Message, PublishErrorKind};

use super::agent_requests;
use super::connection::{NatsConnection, OutboundPublish, SendError};
use super::denied_operations::DeniedOperations;
use super::in_flight::{AttemptKey, EndedAttempt, InFlightTable};
use super::memory::{RecalledDelivery, ReplicaMemory};
use super::remote_agents::RemoteAgentAttempts;
use super::responses::{self, ListenerResponse};
use super::subjects::{ListenerSubjects, SubjectScope};
use super::tokens::{AttemptToken, TokenPool};
use super::{Options, encode, header_names};

pub(super) struct NatsShared {
    pub wire: Arc<NatsConnection>,
    /// Token that separates this pump's attempts from those of other pumps. The reply subject of
    /// each attempt contains this token.
    name: String,
    pub options: Options,
    subjects: ListenerSubjects,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) runtime: runtime::Handle,
    tokens: TokenPool,
    /// Attempts in flight. Locked by two OS threads: the pump's, which delivers, and the
    /// connection's, which receives. Never locked during a call of the sink or across an await.
    in_flight: Mutex<InFlightTable>,
    /// Notified when no attempt is in flight any more.
    idle: Notify,
    /// Whether the host must publish a probe, to which replicas respond with their lease. Becomes
    /// true, for example, when the listener is reachable again.
    pub(super) is_probe_due: AtomicBool,
    /// Number of attempts that were removed from the in-flight table, but whose end is not reported
    /// to the sink yet.
    ending: AtomicUsize,
    /// Number of received messages that matched no attempt.
    pub(super) strays: AtomicU64,
    /// Reports of denied operations. Locked only by the connection's thread while the host runs.
    pub denied_operations: Mutex<DeniedOperations>,
    /// Reason why this pump cannot get the listener's answers: the servers deny them, or the
    /// connection has ended and is made anew. `None` if the pump can get the answers. Locked by the
    /// OS threads of the pump and of the connection, and never during a call of the sink.
    pub(super) answers_denied: Mutex<Option<String>>,
    /// Number of keep-alives with an unreadable lease. Used to limit the log lines about them.
    bad_leases: AtomicU64,
    /// Number of requests whose reply subject is no inbox of the agent. Used to limit the log lines
    /// about them.
    refused_requests: AtomicU64,
    /// Attempts of an agent on another machine, with their state; `None` for other listeners.
    remote_agents: Option<Arc<RemoteAgentAttempts>>,
    /// Calls with messages that a replica remembers.
    pub memory: ReplicaMemory,
}

/// Guard for an attempt that was removed from the in-flight table, but whose result the sink does
/// not have yet. While the guard exists, the host does not count as idle.
pub(super) struct EndingGuard(Arc<NatsShared>);

impl Drop for EndingGuard {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, Ordering::AcqRel);
        if self.0.is_idle() {
            self.0.idle.notify_waiters();
        }
    }
}

impl NatsShared {
    pub fn new(
        wire: Arc<NatsConnection>,
        options: Options,
        subjects: ListenerSubjects,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Self {
        let in_flight = InFlightTable::new(Instant::now(), options.cancel_grace);
        let in_flight = Mutex::new(in_flight.waiting_for_end(options.waits_for_end));
        let ending = AtomicUsize::default();
        let strays = AtomicU64::default();
        let idle = Notify::new();
        let name = format!("{:016x}", OsRng.next_u64());
        let is_probe_due = AtomicBool::default();
        let remote_agents =
            options.remote_agents.clone().map(|remote| Arc::new(RemoteAgentAttempts::new(remote)));

        Self {
            wire,
            name,
            options,
            subjects,
            sink,
            runtime,
            tokens: TokenPool::default(),
            in_flight,
            idle,
            is_probe_due,
            ending,
            strays,
            denied_operations: Mutex::default(),
            answers_denied: Mutex::default(),
            bad_leases: AtomicU64::default(),
            refused_requests: AtomicU64::default(),
            remote_agents,
            memory: ReplicaMemory::new(Instant::now()),
        }
    }

    pub(super) fn subjects(&self) -> &ListenerSubjects {
        &self.subjects
    }

    pub(super) fn sink(&self) -> &Arc<dyn Sink> {
        &self.sink
    }

    /// Returns the token of this pump in its reply subjects.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn remote_agents(&self) -> Option<&Arc<RemoteAgentAttempts>> {
        self.remote_agents.as_ref()
    }

    pub(super) fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }

    /// Whether the attempt with this token is in flight, or was given up but may still be answered.
    pub(super) fn knows(&self, token: AttemptToken) -> bool {
        self.in_flight().knows(token)
    }

    /// Returns the call and the number of the attempt with this token. Returns `None` if no such
    /// attempt is in flight.
    pub(super) fn holder(&self, token: AttemptToken) -> Option<AttemptKey> {
        self.in_flight().holder(token)
    }

    /// Records that the replica that handles the attempt with this token has sent a sign of life.
    pub(super) fn mark_alive(&self, token: AttemptToken) {
        self.report_presence_at(token);
        self.in_flight().record_heartbeat(token, Instant::now());
    }

    pub(super) fn in_flight(&self) -> MutexGuard<'_, InFlightTable> {
        locked(&self.in_flight)
    }

    /// Returns a guard that keeps this host from counting as idle. The caller must take the guard
    /// before it removes an attempt from the in-flight table, so that a drain does not end before
    /// the result of the attempt is reported.
    pub(super) fn ending(self: &Arc<Self>) -> EndingGuard {
        self.ending.fetch_add(1, Ordering::AcqRel);
        EndingGuard(Arc::clone(self))
    }

    pub(super) fn client(&self) -> Client {
        self.wire.client()
    }

    fn is_idle(&self) -> bool {
        let is_reported = self.ending.load(Ordering::Acquire) == 0 || mutant("drain-too-early");
        self.in_flight().is_empty() && is_reported
    }

    /// Encodes a delivery on the OS thread of the caller, and queues it for the next flush. Reports
    /// the delivery as not taken if its answer could not arrive, or if the host drains.
    pub fn deliver(self: &Arc<Self>, delivery: &Delivery) {
        let token = self.tokens.next();
        let key = (delivery.call, delivery.attempt);
        let denied = self.answers_denied().clone();
        if let Some(denied) = denied {
            // The listener would do the work, and its answer could not arrive.
            return self.not_taken(key, denied);
        }

        let connection = self.wire.number_of_publish();
        let now = Instant::now();
        if !self.in_flight().take(token, key, connection, now) {
            return self.not_taken(key, "the listener is shutting down".to_owned());
        }

        let is_preview = delivery.attempt.is_preview();
        let recalled =
            if is_preview { None } else { self.memory.recall(delivery, connection, now) };
        self.in_flight().note_sent(token, self.sent_delivery(delivery, recalled.is_some()));
        self.publish(token, delivery, recalled);
    }

    /// Publishes a delivery whose token is in the in-flight table. The subject depends on the
    /// delivery:
    /// - If `recalled` is set, the subject is that of the replica that remembers the messages of
    ///   the call.
    /// - For a request for a preview, the subject is that of the replicas that support previews.
    /// - For any other delivery, the subject is that of all replicas.
    pub(super) fn publish(
        self: &Arc<Self>,
        token: AttemptToken,
        delivery: &Delivery,
        recalled: Option<RecalledDelivery>,
    ) {
        let remembered = recalled.as_ref().map(|recalled| recalled.count);
        let encode::EncodedDelivery { headers, body } = match &self.remote_agents {
            Some(remote_agents) => remote_agents.take(token, delivery),
            None => encode::write(delivery, remembered),
        };

        let reply = self.subjects.answer(&format!("{}.{token:032x}", self.name));
        let subject = match recalled {
            Some(to) => to.subject,
            None if delivery.preview == DeliveryPreview::Requested => self.subjects.previews(),
            None => self.subjects.deliveries(),
        };
        let shared = Arc::clone(self);
        self.wire.put(OutboundPublish {
            subject,
            reply: Some(reply),
            headers,
            body,
            unsent: Box::new(move |unsent| shared.unsent(token, &unsent)),
        });
    }

    fn unsent(self: &Arc<Self>, token: AttemptToken, unsent: &SendError) {
        let _ending = self.ending();
        let ended = self.in_flight().end(token);
        let EndedAttempt::InTime(key) = ended else { return };
        if unsent.kind == PublishErrorKind::MaxPayloadExceeded {
            let bytes = unsent.bytes;
            let max = self.client().max_payload();
            let detail = format!(
                "the delivery has {bytes} bytes, and the NATS server accepts {max}: raise its \
                 max_payload"
            );
            return self.ended(key, Err(AttemptFailure::TooLarge { detail }));
        }

        self.not_taken(key, format!("publishing: {}", unsent.detail));
    }

    pub fn cancel(&self, call: CallId, attempt: Attempt) {
        if self.in_flight().cancel((call, attempt), Instant::now()) {
            self.queue_cancel(call, attempt);
        }
    }

    /// Queues the cancellation of an attempt for the next flush.
    fn queue_cancel(&self, call: CallId, attempt: Attempt) {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(header_names::CALL), call.to_string());
        headers.insert(HeaderName::from_static(header_names::ATTEMPT), attempt.to_string());
        let unsent = |unsent: SendError| {
            tracing::warn!("could not send a cancel request to a listener: {}", unsent.detail);
        };

        let subject = self.subjects.cancels();
        let unsent = Box::new(unsent);
        self.wire.put(OutboundPublish { subject, reply: None, headers, body: Vec::new(), unsent });
    }

    /// Refuses new deliveries, and waits until no delivery is in flight. After `patience`, gives up
    /// the deliveries that are still in flight, and cancels them at the replicas.
    pub async fn drain(self: &Arc<Self>, patience: Duration) {
        self.in_flight().drain();
        if timeout(patience, self.idle()).await.is_err() {
            let _ending = self.ending();
            let left = self.in_flight().give_up();
            let is_any_left = !left.is_empty();
            for (call, attempt) in left {
                self.queue_cancel(call, attempt);
                let detail = "did not answer before the organism stopped".to_owned();
                self.ended((call, attempt), Err(AttemptFailure::Crashed { detail }));
            }
            // Without a connection, nothing can be sent before this process ends.
            if is_any_left && self.wire.number().is_some() {
                let sent = self.wire.send_and_confirm();
                timeout(limits::STOPPED_TURNS_TIMEOUT, sent).await.ok();
            }
        }

        // Reports what was denied in the unfinished interval, because this host checks no longer.
        let denied = self.denied_operations().take_all();
        self.report_denied(denied);
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

    /// Processes messages of the listener until the stream ends.
    pub async fn listen(self: Arc<Self>, mut answers: impl Stream<Item = Message> + Unpin) {
        let mut look = interval(limits::NATS_CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;

        loop {
            tokio::select! {
                // Messages that have arrived are processed before any replica counts as silent.
                biased;
                message = answers.next() => match message {
                    Some(message) => self.handle_message(&message),
                    None => return,
                },
                _ = look.tick() => {
                    let connection = self.wire.number();
                    if self.in_flight().survey_leases(Instant::now()) {
                        self.is_probe_due.store(true, Ordering::Release);
                    }
                    let is_due = connection != seen || self.is_probe_due.load(Ordering::Acquire);
                    if connection.is_some() && is_due {
                        seen = connection;
                        self.is_probe_due.store(false, Ordering::Release);
                        self.ask_who_is_there().await;
                    }
                    self.give_up_what_is_denied(connection);
                    // While its answers are denied, the host gets no signs of life, as without a
                    // connection.
                    let connection = connection.filter(|_| !self.are_answers_denied());
                    self.deliver_what_was_denied(connection);
                    let _ending = self.ending();
                    let overdue = self.in_flight().overdue(connection, Instant::now());
                    overdue.into_iter().for_each(|(key, failure)| self.ended(key, Err(failure)));
                    self.report_lingering();
                    let denied = self.denied_operations().take_due(Instant::now());
                    self.report_denied(denied);
                    if let Some(remote_agents) = &self.remote_agents {
                        remote_agents.keep(|token| self.in_flight().status(token));
                    }
                }
            }
        }
    }

    /// Warns about handlers that still run after their cancellation and delay later deliveries.
    fn report_lingering(&self) {
        if !self.options.waits_for_end {
            return;
        }

        let lingering = self.in_flight().lingering(Instant::now());
        for (call, attempt) in lingering {
            let listener = &self.options.listener;
            let waited = self.options.cancel_grace;
            tracing::warn!(
                %listener, %call, %attempt, ?waited,
                "a replica still handles a cancelled call, and the next delivery of the thread \
                 waits for its end; if it never ends, restart the replica"
            );
        }
    }

    /// Requests that all running replicas announce themselves again.
    async fn ask_who_is_there(&self) {
        let ping = self.subjects.ping();
        let here = self.subjects.here();
        if let Err(error) = self.client().publish_with_reply(ping, here, "".into()).await {
            tracing::warn!("could not ping the replicas of {}: {error}", self.options.listener);
        }
    }

    fn handle_message(self: &Arc<Self>, message: &Message) {
        let token = match self.subjects.about(&message.subject) {
            SubjectScope::Itself if responses::is_no_responders(message) => return,
            SubjectScope::Itself => {
                let lease = message.headers.as_ref().and_then(responses::lease);
                self.in_flight().leases(lease, Instant::now());
                let is_news = self.in_flight().record_presence();
                return self.report_presence(is_news);
            }
            SubjectScope::Denied => return self.take_report(message),
            SubjectScope::Attempt(token) => token,
        };

        let own = token.strip_prefix(&self.name).and_then(|token| token.strip_prefix('.'));
        let token = own.and_then(|token| AttemptToken::from_str_radix(token, 16).ok());
        let headers = message.headers.as_ref();
        if headers.is_some_and(|headers| header_names::value(headers, header_names::ASK).is_some())
        {
            return match &self.remote_agents {
                Some(remote_agents) => self.handle_request(remote_agents, token, message),
                None => self.stray(message),
            };
        }

        if self.remote_agents.is_some() && self.show_model_text(token, message) {
            return;
        }

        // The token is looked up before the body is parsed, so that a message without an attempt
        // costs nothing.
        let Some(token) = token else { return self.stray(message) };
        if !self.in_flight().knows(token) {
            return self.without_attempt(token, message);
        }

        let response = match (responses::read(message), &self.remote_agents) {
            (ListenerResponse::Named(named, answer), None) => {
                match self.named(token, &named, answer, message.payload.len()) {
                    Some(answer) => ListenerResponse::Answer(answer),
                    None => return,
                }
            }
            (ListenerResponse::MissingMemory(named), None) => {
                let none = Ok(Outcome::default());
                let named = self.named(token, &named, none, message.payload.len());
                match named.and_then(|_| self.missing_memory(token)) {
                    Some(failure) => ListenerResponse::Answer(Err(failure)),
                    None => return,
                }
            }
            // An answer of a remote agent must contain its turn, in a form of its own. These
            // responses are not in that form, so decoding them fails, and the failure ends the
            // attempt.
            (
                ListenerResponse::Answer(Ok(_))
                | ListenerResponse::Named(..)
                | ListenerResponse::MissingMemory(_),
                Some(_),
            ) => ListenerResponse::Answer(agent_requests::answer(&message.payload)),
            (response, _) => response,
        };

        self.handle_response(token, response, message);
    }

    pub(super) fn handle_response(
        self: &Arc<Self>,
        token: AttemptToken,
        response: ListenerResponse,
        message: &Message,
    ) {
        let ending = self.ending();

        match response {
            ListenerResponse::NoResponders => self.handle_no_responders(token),
            // These responses were handled above, where their named attempt is checked.
            ListenerResponse::Named(..) | ListenerResponse::MissingMemory(_) => {}
            ListenerResponse::Unreadable => {
                self.report_presence_at(token);
                let count = self.bad_leases.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    tracing::warn!(
                        listener = %self.options.listener, count,
                        "ignored a keep-alive whose lease is not a number of seconds"
                    );
                }
            }
            ListenerResponse::Heartbeat => {
                let holder = self.in_flight().record_heartbeat(token, Instant::now());
                if let Some((call, attempt)) = holder {
                    self.report_presence_at(token);
                    self.sink.heartbeat(&self.options.listener, call, attempt);
                }
            }
            ListenerResponse::ModelState(state) => {
                self.in_flight().record_heartbeat(token, Instant::now());
                self.show_model_state(token, state, message);
            }
            ListenerResponse::Lease(lease) => {
                self.report_presence_at(token);
                self.in_flight().lives(token, lease, Instant::now());
            }
            ListenerResponse::Answer(answer) => {
                if answer.is_ok() {
                    self.remember(token, message);
                }

                self.report_presence_at(token);
                let remote = self.remote_agents.as_ref();
                let position = remote.and_then(|agents| agents.position_of(token));
                let ended = self.in_flight().end_answered(token);
                match ended {
                    // The pump refuses this answer, and records the refusal.
                    EndedAttempt::InTime(key) | EndedAttempt::Late(key) => {
                        self.answered(key, position, answer, ending, message.payload.len());
                    }
                    EndedAttempt::Unknown => self.stray(message),
                }
            }
        }
    }

    /// Handles an answer. `position` is the position of the delivery to a remote agent; `None` for
    /// other listeners.
    fn answered(
        self: &Arc<Self>,
        key: AttemptKey,
        position: Option<Position>,
        answer: Result<Outcome, AttemptFailure>,
        ending: EndingGuard,
        bytes: usize,
    ) {
        let shared = Arc::clone(self);
        self.run_check(bytes, move || {
            let (call, attempt) = key;
            let listener = &shared.options.listener;
            match position {
                Some(position) => {
                    shared.sink.ended_at(listener, call, attempt, position, answer);
                }
                None => shared.sink.ended(listener, call, attempt, answer),
            }
            drop(ending);
        });
    }

    fn handle_no_responders(self: &Arc<Self>, token: AttemptToken) {
        // Only the replica that remembers the call is gone; another one can take the complete
        // delivery.
        if self.deliver_all(token) {
            return;
        }

        // The listener may have replicas that give no previews.
        let holder = self.in_flight().holder(token);
        if let Some(key) = holder.filter(|(_, attempt)| attempt.is_preview()) {
            self.in_flight().end(token);
            let detail = "no replica of it that gives previews is connected to NATS";
            return self.not_taken(key, detail.to_owned());
        }

        let (ended, is_news) = {
            let mut in_flight = self.in_flight();
            (in_flight.end(token), in_flight.record_absence(Instant::now()))
        };

        let detail = "no replica of it is connected to NATS";
        if is_news {
            let listener = &self.options.listener;
            let remedy = match self.remote_agents() {
                Some(_) => "start `organism host`",
                None => "start one",
            };
            let partition = self.options.partition;
            if !self.options.starts_replicas {
                tracing::warn!(
                    %listener, partition,
                    "no replica of {listener} is connected to NATS: {remedy}"
                );
            }
            self.sink.left(listener, detail);
        }

        if let EndedAttempt::InTime(key) = ended {
            self.not_taken(key, detail.to_owned());
        }
    }

    fn report_presence_at(&self, token: AttemptToken) {
        let is_news = self.in_flight().record_presence_at(token);
        self.report_presence(is_news);
    }

    fn report_presence(&self, is_news: bool) {
        if is_news {
            self.is_probe_due.store(true, Ordering::Release);
            let listener = &self.options.listener;
            let partition = self.options.partition;
            tracing::info!(%listener, partition, "a replica of {listener} is connected to NATS");
            self.sink.joined(listener, "a replica of it is connected to NATS");
        }
    }

    /// Counts a request whose reply subject is no inbox of the agent. Because a sender may send
    /// many of these requests, logs the request only if the count is a power of two.
    pub(super) fn count_refused_request(&self, inbox: &str) {
        let count = self.refused_requests.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let agent = &self.options.listener;
            tracing::warn!(
                %agent, count,
                "refused a request whose reply subject `{inbox}` is not an inbox of this agent"
            );
        }
    }

    pub(super) fn not_taken(&self, (call, attempt): AttemptKey, detail: String) {
        self.sink.not_taken(&self.options.listener, call, attempt, detail);
    }

    pub(super) fn ended(
        &self,
        (call, attempt): AttemptKey,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.sink.ended(&self.options.listener, call, attempt, result);
    }
}
