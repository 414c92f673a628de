//! Listeners that are Rust code in this process.
//!
//! Three ways, by what they cost: [`InlineHost`] runs a plain function on the thread that
//! delivers, [`from_fn`] makes a [`Handler`] of one, and [`NativeHost`] gives every delivery a
//! task of its own. A panic is a crashed attempt, never the end of the organism.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::envelope::Failure;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;

use super::{Delivery, Host, Outcome, Sink};

type Answer = Result<Outcome, Failure>;
type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Handles deliveries; several may run at once.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, delivery: Delivery, context: Context) -> impl Future<Output = Answer> + Send;
}

/// A plain function as a [`Handler`]. It must be quick: it holds a worker thread while it runs.
pub fn from_fn<F>(handle: F) -> FromFn<F>
where
    F: Fn(&Delivery) -> Answer + Send + Sync + 'static,
{
    FromFn(handle)
}

/// See [`from_fn`].
#[derive(Debug, Clone)]
pub struct FromFn<F>(F);

impl<F> Handler for FromFn<F>
where
    F: Fn(&Delivery) -> Answer + Send + Sync + 'static,
{
    async fn handle(&self, delivery: Delivery, _: Context) -> Answer {
        (self.0)(&delivery)
    }
}

/// [`Handler`] without its type, so that a host holds any of them.
trait AnyHandler: Send + Sync {
    fn start(self: Arc<Self>, delivery: Delivery, context: Context) -> Running;
}

impl<H: Handler> AnyHandler for H {
    fn start(self: Arc<Self>, delivery: Delivery, context: Context) -> Running {
        Box::pin(async move { self.handle(delivery, context).await })
    }
}

/// How far an attempt has been told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// The caller is gone.
    Cancelled,
    /// The host ends now.
    Now,
}

/// What a handler can say and ask while it works.
#[derive(Clone)]
pub struct Context {
    listener: ListenerName,
    call: CallId,
    attempt: Attempt,
    sink: Arc<dyn Sink>,
    stop: watch::Receiver<Stop>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in call {}", self.listener, self.call)
    }
}

impl Context {
    /// The handler is alive: its deadline moves.
    pub fn heartbeat(&self) {
        self.sink.heartbeat(&self.listener, self.call, self.attempt);
    }

    pub fn is_cancelled(&self) -> bool {
        *self.stop.borrow() >= Stop::Cancelled
    }

    /// Returns when the caller is gone. A handler that does not end within
    /// [`limits::CANCEL_GRACE`] of it is dropped where it waits.
    pub async fn cancelled(&self) {
        self.reached(Stop::Cancelled).await;
    }

    async fn reached(&self, stop: Stop) {
        let mut watched = self.stop.clone();
        // The sender lives as long as the attempt runs; if it is gone, nobody waits for this.
        let _ = watched.wait_for(|now| *now >= stop).await;
    }
}

type Attempts = HashMap<(CallId, Attempt), watch::Sender<Stop>>;

/// Hosts an asynchronous handler on a runtime, one task for each delivery.
pub struct NativeHost {
    handler: Arc<dyn AnyHandler>,
    runtime: runtime::Handle,
    cancel_grace: Duration,
    drain_timeout: Duration,
    shared: Arc<Shared>,
}

struct Shared {
    listener: ListenerName,
    sink: Arc<dyn Sink>,
    state: Mutex<State>,
    /// Notified when the last running attempt has ended.
    idle: Notify,
}

#[derive(Default)]
struct State {
    draining: bool,
    running: Attempts,
}

impl std::fmt::Debug for NativeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "native host of {}", self.shared.listener)
    }
}

impl NativeHost {
    pub fn new(
        listener: ListenerName,
        handler: impl Handler,
        sink: Arc<dyn Sink>,
        runtime: runtime::Handle,
    ) -> Self {
        let shared = Shared { listener, sink, state: Mutex::default(), idle: Notify::new() };
        Self {
            handler: Arc::new(handler),
            runtime,
            cancel_grace: limits::CANCEL_GRACE,
            drain_timeout: limits::DRAIN_TIMEOUT,
            shared: Arc::new(shared),
        }
    }

    /// How long a handler may go on after its caller is gone, and when the host is drained.
    pub fn with_patience(mut self, cancel_grace: Duration, drain_timeout: Duration) -> Self {
        (self.cancel_grace, self.drain_timeout) = (cancel_grace, drain_timeout);
        self
    }
}

impl Host for NativeHost {
    fn deliver(&self, delivery: Delivery) {
        let (call, attempt) = (delivery.call, delivery.attempt);
        let Some(context) = self.shared.admit(call, attempt) else {
            let failure = draining(&self.shared.listener);
            return self.shared.sink.ended(&self.shared.listener, call, attempt, Err(failure));
        };
        let shared = Arc::clone(&self.shared);
        let handler = Arc::clone(&self.handler);
        let grace = self.cancel_grace;
        self.runtime.spawn(async move {
            let answer = attend(handler, delivery, context, grace).await;
            shared.ended(call, attempt, answer);
        });
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        if let Some(stop) = self.shared.state().running.get(&(call, attempt)) {
            stop.send_replace(Stop::Cancelled);
        }
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.shared.state().draining = true;
            if timeout(self.drain_timeout, self.shared.idle()).await.is_err() {
                for stop in self.shared.state().running.values() {
                    stop.send_replace(Stop::Now);
                }
                self.shared.idle().await;
            }
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, call: CallId, attempt: Attempt) -> Option<Context> {
        let (stop, stopped) = watch::channel(Stop::No);
        let mut state = self.state();
        if state.draining {
            return None;
        }
        state.running.insert((call, attempt), stop);
        let (listener, sink) = (self.listener.clone(), Arc::clone(&self.sink));
        Some(Context { listener, call, attempt, sink, stop: stopped })
    }

    fn ended(&self, call: CallId, attempt: Attempt, answer: Answer) {
        self.sink.ended(&self.listener, call, attempt, answer);
        let mut state = self.state();
        state.running.remove(&(call, attempt));
        if state.running.is_empty() {
            self.idle.notify_waiters();
        }
    }

    async fn idle(&self) {
        let mut notified = pin!(self.idle.notified());
        loop {
            notified.as_mut().enable();
            if self.state().running.is_empty() {
                return;
            }
            notified.as_mut().await;
            notified.set(self.idle.notified());
        }
    }
}

/// Runs one attempt to its end: an answer, a panic, or the patience for it.
async fn attend(
    handler: Arc<dyn AnyHandler>,
    delivery: Delivery,
    context: Context,
    grace: Duration,
) -> Answer {
    let overdue = async {
        context.cancelled().await;
        tokio::select! {
            () = sleep(grace) => "did not end after its caller was gone",
            () = context.reached(Stop::Now) => "did not end before the host was stopped",
        }
    };
    tokio::select! {
        biased;
        answer = unwinding(handler, delivery, context.clone()) => answer,
        why = overdue => Err(Failure::Crashed { detail: format!("the handler {why}") }),
    }
}

/// The handler's future with its panics turned into failures.
async fn unwinding(handler: Arc<dyn AnyHandler>, delivery: Delivery, context: Context) -> Answer {
    let started = catch_unwind(AssertUnwindSafe(|| handler.start(delivery, context)));
    let mut running = started.map_err(|panic| panicked(&*panic))?;
    poll_fn(|cx| {
        // After a panic the future is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(polled) => polled,
            Err(panic) => std::task::Poll::Ready(Err(panicked(&*panic))),
        }
    })
    .await
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::Crashed { detail: format!("panicked: {}", said.unwrap_or("without a word")) }
}

fn draining(listener: &ListenerName) -> Failure {
    Failure::Unreachable { detail: format!("`{listener}` is shutting down") }
}

/// Hosts a plain function on the thread that delivers: no task, no wake, no cancel. The answer
/// is with the [`Sink`] before `deliver` returns, so the function must be quick and the sink
/// must not hold what `deliver` is called under.
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
    F: Fn(&Delivery) -> Answer + Send + Sync + 'static,
{
    pub fn new(listener: ListenerName, handle: F, sink: Arc<dyn Sink>) -> Self {
        Self { listener, handle, sink, draining: false.into() }
    }
}

impl<F> Host for InlineHost<F>
where
    F: Fn(&Delivery) -> Answer + Send + Sync + 'static,
{
    fn deliver(&self, delivery: Delivery) {
        let answer = if self.draining.load(std::sync::atomic::Ordering::Acquire) {
            Err(draining(&self.listener))
        } else {
            catch_unwind(AssertUnwindSafe(|| (self.handle)(&delivery)))
                .unwrap_or_else(|panic| Err(panicked(&*panic)))
        };
        self.sink.ended(&self.listener, delivery.call, delivery.attempt, answer);
    }

    fn cancel(&self, _: CallId, _: Attempt) {}

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.draining.store(true, std::sync::atomic::Ordering::Release);
        Box::pin(std::future::ready(()))
    }
}
