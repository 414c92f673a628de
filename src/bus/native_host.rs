//! Listeners that are Rust code in this process.
//!
//! The cheapest host is [`InlineHost`], which runs a plain function on the OS thread that calls
//! `deliver`. The most general is [`NativeHost`], which runs a [`NativeHandler`] as asynchronous
//! tasks. [`from_fn`] makes a [`NativeHandler`] of a plain function. A panic of a handler fails
//! only its attempt, and never ends the process.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{Notify, Semaphore};
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;

use crate::envelope::{AttemptFailure, NotReserved, Reservation};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::locks::locked;

use super::live::{AnswerPart, LiveSource};
use super::{Delivery, DeliveryPreview, Host, ModelState, Outcome, Sink};

type HandlerResult = Result<Outcome, AttemptFailure>;
type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// Handles the deliveries of a listener that is Rust code. Several deliveries may be handled at the
/// same time.
pub trait NativeHandler: Send + Sync + 'static {
    fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> impl Future<Output = HandlerResult> + Send;

    /// Returns the preview of a held call, as one `preview` payload of the core's namespace. Called
    /// only if the listener declares previews. The handler must change nothing in this function.
    fn preview(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> impl Future<Output = HandlerResult> + Send {
        let _ = (delivery, context);
        let detail = "this handler gives no previews".to_owned();
        std::future::ready(Err(AttemptFailure::Refused { detail }))
    }
}

/// Limits how many handlers block on the disk at the same time, so that some OS threads remain for
/// other work.
static BLOCKING: Semaphore = Semaphore::const_new(limits::BLOCKING_HANDLERS_MAX);

/// Runs `work`, which may block on the disk, on a separate OS thread, so that it does not block an
/// async worker.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AttemptFailure> + Send + 'static,
) -> Result<T, AttemptFailure> {
    let permit = BLOCKING.acquire().await;
    let ended = tokio::task::spawn_blocking(work).await;
    drop(permit);
    match ended {
        Ok(result) => result,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(AttemptFailure::Lost { detail: "the program is stopping".to_owned() }),
    }
}

/// Makes a [`NativeHandler`] of a plain function. The function must be quick, because its worker
/// thread runs nothing else until the function returns.
pub fn from_fn<F>(handle: F) -> FromFn<F>
where
    F: Fn(&Delivery) -> HandlerResult + Send + Sync + 'static,
{
    FromFn(handle)
}

/// A handler made by [`from_fn`].
#[derive(Debug, Clone)]
pub struct FromFn<F>(F);

impl<F> NativeHandler for FromFn<F>
where
    F: Fn(&Delivery) -> HandlerResult + Send + Sync + 'static,
{
    async fn handle(&self, delivery: Delivery, _: HandlerContext) -> HandlerResult {
        (self.0)(&delivery)
    }
}

/// A [`NativeHandler`] of any type, for use as a trait object.
trait AnyHandler: Send + Sync {
    fn start(self: Arc<Self>, delivery: Delivery, context: HandlerContext) -> HandlerFuture;
}

impl<H: NativeHandler> AnyHandler for H {
    fn start(self: Arc<Self>, delivery: Delivery, context: HandlerContext) -> HandlerFuture {
        Box::pin(async move {
            match delivery.preview {
                DeliveryPreview::Requested => self.preview(delivery, context).await,
                _ => self.handle(delivery, context).await,
            }
        })
    }
}

/// Level of urgency with which an attempt has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum StopLevel {
    /// Nothing waits for the result of the attempt any more.
    Cancelled = 1,
    /// The host stops, and the attempt must stop immediately.
    Now,
}

/// The signal that makes one attempt stop. A signal must be cheap to create, because each delivery
/// has a signal of its own, and hardly any signal is ever raised.
#[derive(Default)]
struct StopSignal {
    /// The highest [`StopLevel`] of the signal so far; 0 if the signal was never raised.
    reached: AtomicU8,
    raised: Notify,
}

impl StopSignal {
    fn raise(&self, stop: StopLevel) {
        self.reached.fetch_max(stop as u8, Ordering::AcqRel);
        self.raised.notify_waiters();
    }

    fn has(&self, stop: StopLevel) -> bool {
        self.reached.load(Ordering::Acquire) >= stop as u8
    }

    async fn wait_for(&self, stop: StopLevel) {
        let mut raised = pin!(self.raised.notified());
        loop {
            // Registers for the signal before the level is read, so that a signal raised in between
            // is not lost.
            raised.as_mut().enable();
            if self.has(stop) {
                return;
            }
            raised.as_mut().await;
            raised.set(self.raised.notified());
        }
    }
}

/// The services that a host offers a running handler: heartbeats, reservations, reports about model
/// calls, and the cancellation of the attempt.
#[derive(Clone)]
pub struct HandlerContext {
    listener: ListenerName,
    thread: ThreadId,
    call: CallId,
    attempt: Attempt,
    sink: Arc<dyn Sink>,
    stop: Arc<StopSignal>,
}

impl std::fmt::Debug for HandlerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in call {}", self.listener, self.call)
    }
}

impl HandlerContext {
    /// Reports that the handler is alive, which extends the deadline of the attempt.
    pub fn heartbeat(&self) {
        self.sink.heartbeat(&self.listener, self.call, self.attempt);
    }

    /// Reserves the maximum cost of the next request of a model call, and waits until the
    /// reservation is durable or refused. Returns `None` if the pump has stopped. The reservation
    /// lasts until the attempt makes its next reservation, or until the turn is recorded with its
    /// actual cost.
    pub async fn reserve(&self, reservation: Reservation) -> Option<Result<(), NotReserved>> {
        self.sink.reserve(self.call, self.attempt, reservation).await.ok()
    }

    /// Reports the state of the attempt's model call.
    pub fn model_state(&self, state: ModelState) {
        let source = self.source();
        if let Some(live) = self.sink.live() {
            live.model_state(&source, &state, true);
        }
        self.sink.model_state(&source, state);
    }

    /// Sends a piece of the text that a model writes to the readers of the live channel. Very cheap
    /// if there are no readers.
    pub fn model_text(&self, part: AnswerPart, text: &str) {
        if let Some(live) = self.sink.live().filter(|live| live.has_text_readers()) {
            live.text(&self.source(), part, text);
        }
    }

    fn source(&self) -> LiveSource {
        let thread = self.thread.clone();
        let agent = self.listener.clone();
        LiveSource { thread, agent, call: self.call, attempt: self.attempt }
    }

    pub fn is_cancelled(&self) -> bool {
        self.stop.has(StopLevel::Cancelled)
    }

    /// Whether the attempt must end because its host stops. Another host should then repeat the
    /// attempt, because its result is still wanted.
    pub fn is_host_stopping(&self) -> bool {
        self.stop.has(StopLevel::Now)
    }

    /// Waits until the attempt is cancelled or its host stops. An attempt is cancelled when nothing
    /// waits for its result any more. The handler may then continue for [`limits::CANCEL_GRACE`]
    /// before it is dropped. When the host stops, the handler is dropped at once.
    pub async fn cancelled(&self) {
        self.stop.wait_for(StopLevel::Cancelled).await;
    }
}

/// A host that runs an asynchronous handler on a Tokio runtime.
///
/// Deliveries wait in one queue. Queue tasks take deliveries from the queue, and start the handler
/// for each delivery. There are at most as many queue tasks as worker threads of the runtime. If a
/// handler does not finish when it is first polled, the handler continues as a separate task, and
/// so does not delay the queue.
pub struct NativeHost {
    runtime: runtime::Handle,
    /// Maximum number of tasks that take deliveries from the queue: the number of worker threads of
    /// the runtime.
    workers_max: usize,
    drain_timeout: Duration,
    shared: Arc<NativeShared>,
}

struct NativeShared {
    listener: ListenerName,
    handler: Arc<dyn AnyHandler>,
    sink: Arc<dyn Sink>,
    cancel_grace: Duration,
    /// The queue of this host. Never locked while the handler or the sink runs, because both may
    /// block.
    state: Mutex<HandlerQueue>,
    /// Notified when the last running attempt has ended.
    idle: Notify,
}

#[derive(Default)]
struct HandlerQueue {
    draining: bool,
    running: HashMap<(CallId, Attempt), Arc<StopSignal>, foldhash::fast::RandomState>,
    /// Deliveries in their order of arrival. Their number never exceeds the listener's concurrency,
    /// because the pump hands over no more.
    line: VecDeque<(Delivery, HandlerContext)>,
    /// Number of tasks that take deliveries from the queue.
    workers: usize,
}

impl std::fmt::Debug for NativeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "native host of {}", self.shared.listener)
    }
}

impl NativeHost {
    pub fn new(
        listener: ListenerName,
        handler: impl NativeHandler,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Self {
        let shared = NativeShared {
            listener,
            handler: Arc::new(handler),
            sink,
            cancel_grace: limits::CANCEL_GRACE,
            state: Mutex::default(),
            idle: Notify::new(),
        };

        let workers_max = runtime.metrics().num_workers();
        let drain_timeout = limits::DRAIN_TIMEOUT;
        Self { runtime, workers_max, drain_timeout, shared: Arc::new(shared) }
    }

    /// Sets two time limits: a handler must end within `cancel_grace` after a cancellation, and
    /// within `drain_timeout` after the host begins to drain.
    pub fn with_patience(mut self, cancel_grace: Duration, drain_timeout: Duration) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("a host in the making is not shared");
        shared.cancel_grace = cancel_grace;
        self.drain_timeout = drain_timeout;
        self
    }

    /// Refuses new deliveries, and stops each handler that has not ended within `patience`.
    async fn end_within(&self, patience: Duration) {
        locked(&self.shared.state).draining = true;
        if timeout(patience, self.shared.idle()).await.is_err() {
            locked(&self.shared.state).running.values().for_each(|stop| stop.raise(StopLevel::Now));
            self.shared.idle().await;
        }
    }
}

impl Host for NativeHost {
    fn deliver(&self, delivery: Delivery) {
        let call = delivery.call;
        let attempt = delivery.attempt;
        match self.shared.admit(delivery, self.workers_max) {
            AdmissionResult::Queued => {}
            AdmissionResult::NeedsTask => {
                self.runtime.spawn(Arc::clone(&self.shared).work());
            }
            AdmissionResult::Refused => {
                let detail = draining(&self.shared.listener);
                self.shared.sink.not_taken(&self.shared.listener, call, attempt, detail);
            }
        }
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        if let Some(stop) = locked(&self.shared.state).running.get(&(call, attempt)) {
            stop.raise(StopLevel::Cancelled);
        }
    }

    fn is_idle(&self) -> bool {
        locked(&self.shared.state).running.is_empty()
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(self.drain_timeout))
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(Duration::ZERO))
    }
}

/// Result of the attempt to queue a new delivery.
enum AdmissionResult {
    /// The delivery was refused, because the host is draining.
    Refused,
    /// The delivery was queued, and a running task will take it.
    Queued,
    /// The delivery was queued, and the caller must start a task that takes it.
    NeedsTask,
}

impl NativeShared {
    fn admit(self: &Arc<Self>, delivery: Delivery, workers_max: usize) -> AdmissionResult {
        let call = delivery.call;
        let attempt = delivery.attempt;
        let stop = Arc::new(StopSignal::default());
        let listener = self.listener.clone();
        let sink = Arc::clone(&self.sink);
        let thread = delivery.thread.clone();
        let signal = Arc::clone(&stop);
        let context = HandlerContext { listener, thread, call, attempt, sink, stop: signal };
        let mut state = locked(&self.state);
        if state.draining {
            return AdmissionResult::Refused;
        }

        state.running.insert((call, attempt), stop);
        state.line.push_back((delivery, context));
        if state.workers >= workers_max {
            return AdmissionResult::Queued;
        }

        state.workers += 1;
        AdmissionResult::NeedsTask
    }

    /// Takes deliveries from the queue and handles them, until the queue is empty.
    async fn work(self: Arc<Self>) {
        while let Some((delivery, context)) = self.next() {
            let call = delivery.call;
            let attempt = delivery.attempt;
            let log_span = delivery.log_span();
            let stop = Arc::clone(&context.stop);
            let handler = Arc::clone(&self.handler);
            let running = handler.start(delivery, context);
            let attended = attend(running, stop, self.cancel_grace);
            let mut answer: HandlerFuture = if log_span.is_disabled() {
                Box::pin(attended)
            } else {
                Box::pin(attended.instrument(log_span))
            };
            // Most quick handlers finish at this first poll. The others continue as tasks.
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                Poll::Ready(answer) => self.finish_attempt(call, attempt, answer),
                Poll::Pending => {
                    let shared = Arc::clone(&self);
                    tokio::spawn(async move { shared.finish_attempt(call, attempt, answer.await) });
                }
            }
            // Yields to other tasks of this worker when this task's share is used up.
            consume_budget().await;
        }
    }

    fn next(&self) -> Option<(Delivery, HandlerContext)> {
        let mut state = locked(&self.state);
        let next = state.line.pop_front();
        if next.is_none() {
            state.workers -= 1;
        }
        next
    }

    fn finish_attempt(&self, call: CallId, attempt: Attempt, result: HandlerResult) {
        // Ordering rule: the result is reported before the attempt leaves the table, so that a
        // drain ends only when all results are with the pump. The sink may block, so the lock is
        // taken after it.
        self.sink.ended(&self.listener, call, attempt, result);

        let mut state = locked(&self.state);
        state.running.remove(&(call, attempt));
        if state.running.is_empty() {
            self.idle.notify_waiters();
        }
    }

    async fn idle(&self) {
        let mut notified = pin!(self.idle.notified());
        loop {
            notified.as_mut().enable();
            if locked(&self.state).running.is_empty() {
                return;
            }
            notified.as_mut().await;
            notified.set(self.idle.notified());
        }
    }
}

/// Runs one attempt until its handler answers or panics. Fails the attempt if its handler still
/// runs at one of two moments: when `grace` has passed since a cancellation, or when the host stops
/// its handlers.
async fn attend(running: HandlerFuture, stop: Arc<StopSignal>, grace: Duration) -> HandlerResult {
    let overdue = async {
        stop.wait_for(StopLevel::Cancelled).await;
        tokio::select! {
            () = sleep(grace) => "did not end after its caller was gone",
            () = stop.wait_for(StopLevel::Now) => "did not end before the host was stopped",
        }
    };

    tokio::select! {
        // An answer that is complete counts, even if the time is over at the same moment.
        biased;
        answer = unwinding(running) => answer,
        why = overdue => Err(AttemptFailure::Crashed { detail: format!("the handler {why}") }),
    }
}

/// Guard that owns the future of a handler. A panic in the future's destructor is caught when the
/// guard is dropped.
struct PanicGuard(Option<HandlerFuture>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        let running = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(running))).is_err() {
            tracing::warn!("a handler panicked in its destructor; its delivery has ended");
        }
    }
}

/// Runs the future of a handler. A panic of the future becomes a failure of the attempt.
async fn unwinding(running: HandlerFuture) -> HandlerResult {
    let mut running = PanicGuard(Some(running));
    poll_fn(|cx| {
        // After a panic, the future is dropped and never polled again.
        let Some(running) = running.0.as_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    })
    .await
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> AttemptFailure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    AttemptFailure::Crashed {
        detail: format!("panicked: {}", text.unwrap_or("no reason is known")),
    }
}

fn draining(listener: &ListenerName) -> String {
    format!("`{listener}` is shutting down")
}

/// A host for a plain function, which runs on the OS thread that calls `deliver`. The [`Sink`] gets
/// the answer before `deliver` returns. So the sink must not take a lock that the caller of
/// `deliver` holds. The plain function must be quick, and cannot be cancelled.
pub struct InlineHost<F> {
    listener: ListenerName,
    handle: F,
    sink: Arc<dyn Sink>,
    draining: std::sync::atomic::AtomicBool,
}

impl<F> std::fmt::Debug for InlineHost<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "inline host of {}", self.listener)
    }
}

impl<F> InlineHost<F>
where
    F: Fn(&Delivery) -> HandlerResult + Send + Sync + 'static,
{
    pub fn new(listener: ListenerName, handle: F, sink: Arc<dyn Sink>) -> Self {
        Self { listener, handle, sink, draining: false.into() }
    }
}

impl<F> Host for InlineHost<F>
where
    F: Fn(&Delivery) -> HandlerResult + Send + Sync + 'static,
{
    fn deliver(&self, delivery: Delivery) {
        if self.draining.load(Ordering::Acquire) {
            let detail = draining(&self.listener);
            return self.sink.not_taken(&self.listener, delivery.call, delivery.attempt, detail);
        }

        let answer = catch_unwind(AssertUnwindSafe(|| (self.handle)(&delivery)))
            .unwrap_or_else(|panic| Err(panicked(&*panic)));
        self.sink.ended(&self.listener, delivery.call, delivery.attempt, answer);
    }

    fn cancel(&self, _: CallId, _: Attempt) {}

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.draining.store(true, Ordering::Release);
        Box::pin(std::future::ready(()))
    }
}
