//! The listener kit on NATS (docs/PROTOCOL.md, section 12). Deliveries wait in a queue. One OS
//! thread, the serving thread, handles one delivery after another. While the queue is empty, the
//! serving thread also sends and receives the messages of the NATS connection. While a handler
//! runs, a second OS thread does so, so that announcements and keep-alives continue.

mod delivery;
mod endpoint;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use rand_core::{OsRng, RngCore as _};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use super::connection::missing_memory;
use super::payload::Reply;
use super::request::{Received, Request, of_message};
use super::serve::{HandlerFailure, log_failure_after_cancel};
use crate::bus::memory::CallMemory;
use crate::bus::nats::service::{Service, ServiceVerb};
use crate::bus::nats::{ListenerSubjects, header_names};
use crate::limits;
use crate::locks::locked;
use crate::nats::{
    self, HeaderMap, Message, PermissionError, PermissionErrors, RequestErrorKind, SharedRuntime,
    State, SubscribeError, Subscriber, connect_with,
};
use delivery::{DeliveryTask, NatsSender, TaskResult};
pub use endpoint::NatsEndpoint;

/// Resolves when the program gets SIGTERM or SIGINT.
pub(super) async fn signalled() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        // Without signal handlers, the default action of the signal ends the process.
        return std::future::pending().await;
    };

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Handles deliveries until `stopped` resolves. Then handles the deliveries that remain in the
/// queue, and returns. Accepts requests for previews only if `gives_previews` is set.
pub(super) fn serve(
    place: &NatsEndpoint,
    gives_previews: bool,
    stopped: impl Future<Output = ()> + Send + 'static,
    handle: &mut dyn FnMut(&Request) -> Result<Reply, HandlerFailure>,
) -> Result<(), String> {
    let starting = |e| format!("cannot start the thread that talks to NATS: {e}");
    let drive = SharedRuntime::start().map_err(starting)?;
    let (work, waiting) = unbounded_channel();
    let mut line = DeliveryQueue { waiting, driven: Instant::now() };
    let opening = KitState::open(place, gives_previews, work, stopped, drive.handle());
    let state = drive.wait(opening).unwrap_or_else(|| Err(ENDED.to_owned()))?;
    let mut answered = None;
    while let Some((message, task)) = line.next(&drive) {
        state.attend(&drive, &message, &task, handle);
        answered = Some(Instant::now());
    }

    if let Some(denied) = state.denied() {
        return Err(denied.to_string());
    }

    state.part(&drive, answered)
}

const ENDED: &str = "the connection's threads ended";

type PendingDelivery = (Message, Arc<DeliveryTask>);

/// Received deliveries that wait for the handler.
struct DeliveryQueue {
    waiting: UnboundedReceiver<PendingDelivery>,
    /// Time at which the serving thread last sent and received messages on the NATS connection.
    driven: Instant,
}

impl DeliveryQueue {
    /// Returns the next delivery; `None` if no further delivery will come. While deliveries are
    /// queued, uses the NATS connection at most once in each [`limits::KIT_BATCH_TIME`]. Answers
    /// therefore wait a short time, and several of them are sent together.
    fn next(&mut self, drive: &SharedRuntime) -> Option<PendingDelivery> {
        if self.driven.elapsed() < limits::KIT_BATCH_TIME
            && let Ok(next) = self.waiting.try_recv()
        {
            return Some(next);
        }

        let next = drive.wait(async {
            tokio::task::yield_now().await;
            self.waiting.recv().await
        });
        self.driven = Instant::now();
        next?
    }
}

/// State of the kit: the connection, and the deliveries that this replica holds.
struct KitState {
    place: NatsEndpoint,
    subjects: ListenerSubjects,
    sender: NatsSender,
    held: Mutex<Vec<Arc<DeliveryTask>>>,
    service: Service,
    /// Deadline for sending to an unreachable server. Not set until the program must stop. Once it
    /// is set, the program no longer announces itself.
    leave_by: Arc<OnceLock<Instant>>,
    denials: PermissionErrors,
    /// Subject for deliveries to this replica alone. Such a delivery builds on messages that this
    /// replica remembers.
    own_subject: String,
    memory: Mutex<CallMemory<Vec<Received>>>,
    /// Number of the last connection, and the time until which answers to deliveries from before
    /// that connection wait for the pump. Lock: tasks of the runtime begin this time, and the
    /// serving thread reads it.
    pump_awaited: Mutex<Option<(u64, Instant)>>,
}

impl KitState {
    /// Connects, subscribes to all subjects of the listener, and announces this replica.
    async fn open(
        place: &NatsEndpoint,
        gives_previews: bool,
        work: UnboundedSender<PendingDelivery>,
        stopped: impl Future<Output = ()> + Send + 'static,
        runtime: &Handle,
    ) -> Result<Arc<Self>, String> {
        let name = format!("listener {} of {}", place.listener, place.organism);
        let subjects = ListenerSubjects::new(&place.organism, &place.listener);
        let connected = connect_with(&place.servers, &name, Some(&subjects.inbox())).await;
        let (client, denials) = connected.map_err(|e| e.to_string())?;

        let leave_by = Arc::new(OnceLock::new());
        let runtime = runtime.clone();
        let by = Arc::clone(&leave_by);
        let sender = NatsSender { client: client.clone(), runtime, leave_by: by };
        let service = Service::new(&place.organism, &place.listener, place.lease, "rust");

        let held = Mutex::default();
        let memory = Mutex::default();
        let own_subject = subjects.replica(&format!("{:016x}", OsRng.next_u64()));
        let group = place.listener.to_string();
        let place = place.clone();

        let state = Arc::new(Self {
            place,
            subjects,
            sender,
            held,
            service,
            leave_by,
            denials,
            own_subject,
            memory,
            pump_awaited: Mutex::default(),
        });

        let failed = |e: SubscribeError| format!("cannot subscribe: {e}");
        let mut queues = vec![state.subjects.deliveries()];
        if gives_previews {
            queues.push(state.subjects.previews());
        }

        let mut taken = Vec::new();
        for subject in queues {
            taken.push(client.queue_subscribe(subject, group.clone()).await.map_err(failed)?);
        }

        let own = client.subscribe(state.own_subject.clone()).await.map_err(failed)?;
        let cancels = client.subscribe(state.subjects.cancels()).await.map_err(failed)?;
        for (verb, subject) in state.service.subjects() {
            let subscriber = client.subscribe(subject).await.map_err(failed)?;
            tokio::spawn(Arc::clone(&state).explain(verb, subscriber));
        }

        taken.push(own);
        tokio::spawn(Arc::clone(&state).take(taken, work, stopped));
        tokio::spawn(Arc::clone(&state).receive_cancels(cancels));
        tokio::spawn(Arc::clone(&state).live());
        Ok(state)
    }

    /// Returns a permission error that keeps this replica from receiving deliveries or from sending
    /// answers; `None` if there is no such error.
    fn denied(&self) -> Option<PermissionError> {
        let unheard = self.denials.subscription_denied(&self.subjects.deliveries());
        unheard.or_else(|| self.denials.publish_denied_below(&self.subjects.answer("")))
    }

    fn is_leaving(&self) -> bool {
        self.leave_by.get().is_some()
    }

    /// Waits until the deadline for sending to an unreachable server. Waits forever if the program
    /// is not stopping.
    async fn patience(&self) {
        match self.leave_by.get() {
            Some(by) => sleep_until((*by).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Queues arriving deliveries until the program must stop and all subscriptions are drained.
    async fn take(
        self: Arc<Self>,
        subscribers: Vec<Subscriber>,
        work: UnboundedSender<PendingDelivery>,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let mut deliveries = select_all(subscribers);
        let mut denials = 0;
        let mut reported_until = Instant::now();

        loop {
            tokio::select! {
                message = deliveries.next() => {
                    let Some(message) = message else { return };
                    let Some(task) = DeliveryTask::of(&message, &self.sender) else { continue };
                    let task = Arc::new(task);
                    locked(&self.held).push(Arc::clone(&task));
                    if work.send((message, task)).is_err() {
                        return;
                    }
                }
                () = self.denials.changed(&mut denials) => {
                    reported_until = self.report_denials(reported_until).await;
                    if self.denied().is_some() {
                        return;
                    }
                }
                () = &mut stopped, if !self.is_leaving() => {
                    self.leave_by.get_or_init(|| Instant::now() + limits::CANCEL_GRACE);

                    // Without a connection, draining fails after its timeout, and no delivery can
                    // arrive anyway.
                    for subscriber in deliveries.iter_mut() {
                        let drained = timeout(limits::CANCEL_GRACE, subscriber.drain()).await;
                        if let Ok(Err(_)) = drained {
                            return;
                        }
                    }
                }
                () = self.patience() => return,
            }
        }
    }

    /// Reports to the pump each operation that the servers denied after the time `after`, so that
    /// the pump records the denial. Returns the time of the last denial, or `after` if there was
    /// none. Does not report a denied answer: the subjects of answers and reports have the same
    /// prefix, so the servers would deny the report too.
    async fn report_denials(&self, after: Instant) -> Instant {
        let denials = self.denials.all_after(after);
        let last = denials.last().map_or(after, |(at, _)| *at);
        let own = self.subjects.answer("");
        for (_, denied) in denials.iter().filter(|(_, denied)| !denied.is_publish_below(&own)) {
            let report = denied.operation().into_bytes();
            // Without a connection, nothing can be reported.
            self.sender.publish(self.subjects.denied(), HeaderMap::new(), report).await.ok();
        }

        if self.denied().is_some() {
            timeout(limits::CANCEL_GRACE, self.sender.client.flush()).await.ok();
        }
        last
    }

    async fn receive_cancels(self: Arc<Self>, mut cancels: Subscriber) {
        while let Some(message) = cancels.next().await {
            let Some(headers) = &message.headers else { continue };
            let held = locked(&self.held);
            held.iter().filter(|task| task.is_named(headers)).for_each(|task| task.cancel());
        }
    }

    /// Announces this replica on every new connection, and sends a keep-alive for each delivery
    /// that this replica holds.
    async fn live(self: Arc<Self>) {
        let mut beat = tokio::time::interval(self.place.lease / 3);
        let mut announced = 0;

        loop {
            beat.tick().await;
            let connection = self.sender.connection();
            // The time begins with the connection, also if no answer waits yet.
            self.pump_awaited_until(connection);
            let mut subjects: Vec<_> = locked(&self.held).iter().map(|t| t.reply.clone()).collect();
            if announced != connection && !self.is_leaving() {
                announced = connection;
                subjects.push(self.subjects.here());
            }
            for subject in subjects {
                if self.sender.publish(subject, self.lease(), Vec::new()).await.is_err() {
                    return;
                }
            }
        }
    }

    fn lease(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header_names::LEASE, self.place.lease.as_secs_f64().to_string());
        headers
    }

    /// Answers the service requests of NATS (ADR-32), such as `INFO` and `STATS`.
    async fn explain(self: Arc<Self>, verb: ServiceVerb, mut requests: Subscriber) {
        while let Some(message) = requests.next().await {
            let Some(reply) = message.reply else { continue };
            if self.is_leaving() {
                return;
            }
            if !self.subjects.may_ask(&reply) {
                continue;
            }
            let text = self.service.answer(verb).to_string();
            let sent = self.sender.publish(reply.to_string(), self.lease(), text.into_bytes());
            if sent.await.is_err() {
                return;
            }
        }
    }

    /// Handles one delivery and sends the answer or the error.
    fn attend(
        &self,
        drive: &SharedRuntime,
        message: &Message,
        task: &Arc<DeliveryTask>,
        handle: &mut dyn FnMut(&Request) -> Result<Reply, HandlerFailure>,
    ) {
        let begun = Instant::now();
        let none = HeaderMap::new();
        let headers = message.headers.as_ref().unwrap_or(&none);
        let attended = catch_unwind(AssertUnwindSafe(|| {
            if task.is_cancelled() {
                return Err((GONE, "its caller was gone before it was begun".to_owned()));
            }
            let line = Rc::new(Arc::clone(task));
            let mut request = of_message(headers, &message.payload, &self.place.listener, line)
                .map_err(|why| (BAD_REQUEST, why))?;
            if !request.complete(&mut locked(&self.memory)) {
                return Ok((HeaderMap::new(), missing_memory(request.call, request.attempt)));
            }
            let reply = handle(&request).or_else(|failure| match failure {
                HandlerFailure::Failed(why) if task.is_cancelled() => {
                    log_failure_after_cancel(&why);
                    Ok(Reply::ack())
                }
                HandlerFailure::Failed(why) => Err((FAILED, why)),
                HandlerFailure::UnreadablePayload(_) => Err((BAD_REQUEST, failure.to_string())),
                HandlerFailure::UnwritableAnswer(_) => Err((UNWRITABLE, failure.to_string())),
            })?;
            Ok((self.remember(request), reply.payloads().concat()))
        }));
        let verdict = match &attended {
            Ok(verdict) => verdict.clone(),
            Err(_) => Err((FAILED, "the handler panicked".to_owned())),
        };

        let took = begun.elapsed();
        let failed = verdict.as_ref().err().map(|(_, why)| why.clone());
        self.service.count(took, failed);
        if self.is_connection_lost(task) {
            drive.wait(self.until_subscribed(task));
        }
        self.settle(task, verdict);
        if let Err(panic) = attended {
            // After a panic, the state of the handler is unknown, so the panic goes on.
            self.sender.flush();
            resume_unwind(panic);
        }
    }

    /// Remembers the messages of a call for the next delivery of the call. Returns answer headers
    /// that permit the pump to omit these messages from that delivery. Returns no headers if the
    /// messages are not remembered.
    fn remember(&self, request: Request) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !request.asks_preview && request.remember(&mut locked(&self.memory)) {
            headers.insert(header_names::REMEMBERS, self.own_subject.as_str());
        }
        headers
    }

    /// Sends the last answers before the program ends. Waits only a limited time for an unreachable
    /// server. If an answer is lost, the pump delivers the call again, because this replica no
    /// longer renews the lease on the delivery.
    fn part(&self, drive: &SharedRuntime, answered: Option<Instant>) -> Result<(), String> {
        let kept = answered.map(|at| at + limits::CANCEL_GRACE);
        let by = self.leave_by.get().copied().max(kept);
        let by = by.unwrap_or_else(|| Instant::now() + limits::CANCEL_GRACE);
        let flushed = drive.wait(async { timeout_at(by.into(), self.sender.client.flush()).await });
        let lost = |why: String| format!("the last answers may be lost: {why}");

        match flushed.ok_or_else(|| lost(ENDED.to_owned()))? {
            Ok(flushed) => flushed.map_err(|e| lost(e.to_string())),
            Err(_) => {
                tracing::warn!(
                    "the NATS server is unreachable: the last answers are lost, and the pump \
                     delivers their calls again"
                );
                Ok(())
            }
        }
    }

    /// Whether the connection on which a delivery arrived is lost.
    fn is_connection_lost(&self, task: &DeliveryTask) -> bool {
        let is_connected = self.sender.client.connection_state() == State::Connected;
        !is_connected || self.sender.connection() != task.connection
    }

    /// Waits after an outage until the pump subscribes to the answer of a delivery again. The
    /// servers drop an answer without a subscriber. The time is limited, because the pump may have
    /// ended.
    async fn until_subscribed(&self, task: &DeliveryTask) {
        loop {
            if self.sender.client.connection_state() != State::Connected {
                if self.leave_by.get().is_some_and(|by| *by <= Instant::now()) {
                    return;
                }
                sleep(limits::NATS_REQUEST_RETRY).await;
                continue;
            }

            let connection = self.sender.connection();
            if connection == task.connection || self.pump_awaited_until(connection) < Instant::now()
            {
                return;
            }
            // The pump does not respond to a keep-alive, but a server does for a subject that nobody
            // subscribes to.
            let probe = nats::Request::new().headers(self.lease());
            let probe = probe.timeout(Some(limits::KIT_PROBE_TIMEOUT));
            let response = self.sender.client.send_request(task.reply.clone(), probe).await;
            let lacks_subscriber =
                response.is_err_and(|error| error.kind() == RequestErrorKind::NoResponders);
            // The number of the connection stays the same while it is lost.
            let is_connected = self.sender.client.connection_state() == State::Connected;
            if !lacks_subscriber && is_connected && connection == self.sender.connection() {
                return;
            }
            sleep(limits::NATS_REQUEST_RETRY).await;
        }
    }

    /// Returns the time until which answers to deliveries from before the connection with this
    /// number wait for the pump.
    fn pump_awaited_until(&self, connection: u64) -> Instant {
        let mut awaited = locked(&self.pump_awaited);
        if awaited.is_none_or(|(of, _)| of != connection) {
            *awaited = Some((connection, Instant::now() + limits::CANCEL_GRACE));
        }
        awaited.map_or_else(Instant::now, |(_, until)| until)
    }

    fn settle(&self, task: &Arc<DeliveryTask>, verdict: TaskResult) {
        // Removed before the answer is sent: no keep-alive may follow the answer of a delivery.
        locked(&self.held).retain(|held| !Arc::ptr_eq(held, task));
        task.answer(verdict);
    }
}

/// Error code of a NATS service for a bad request, as in HTTP. The pump does not retry a request
/// that got this code.
const BAD_REQUEST: u16 = 400;
const TOO_LARGE: u16 = 413;
/// Error code for an answer that cannot be sent, such as one with a character that XML does not
/// allow. The pump does not retry the call, because the handler has already had its effects.
const UNWRITABLE: u16 = 422;
const GONE: u16 = 499;
const FAILED: u16 = 500;
