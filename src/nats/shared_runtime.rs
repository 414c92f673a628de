//! A single-threaded runtime for one connection. A blocked caller drives the runtime itself, so
//! that a response reaches the caller without waking another thread. While no caller blocks, a
//! background thread drives the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::limits;

/// The runtime of one NATS connection, or of several that share an OS thread.
pub struct SharedRuntime {
    /// The runtime of the connection. `None` only while the `SharedRuntime` is being dropped.
    runtime: Option<Arc<Runtime>>,
    handle: Handle,
    shared: Arc<RuntimeShared>,
    driver_thread: std::thread::Thread,
}

#[derive(Default)]
struct RuntimeShared {
    /// Number of blocking calls begun so far. The background thread reads this number before and
    /// after its sleep, and so notices a call that began and ended during the sleep.
    begun: AtomicUsize,
    /// Number of blocking calls that are waiting now.
    waiting: AtomicUsize,
    /// Whether the background thread is driving the runtime.
    driver_drives: AtomicBool,
    /// Signal to the background thread to stop driving the runtime. If the thread is not waiting
    /// for the signal yet, the signal is kept.
    stop_driving: Notify,
    has_ended: AtomicBool,
}

impl SharedRuntime {
    /// Starts the runtime and its background thread.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system if the thread cannot be started.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let handle = runtime.handle().clone();
        let shared = Arc::new(RuntimeShared::default());
        let kept = Arc::clone(&runtime);
        let driver_state = Arc::clone(&shared);
        let driver_thread =
            std::thread::Builder::new().name("nats".to_owned()).spawn(move || {
                driver_state.drive_while_idle(&kept);
                shut_down(kept);
            })?;
        Ok(Self {
            runtime: Some(runtime),
            handle,
            shared,
            driver_thread: driver_thread.thread().clone(),
        })
    }

    /// Spawns a task. A blocked caller or the background thread runs the task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
        // The background thread may be parked while no caller drives the runtime.
        self.driver_thread.unpark();
    }

    /// Returns a handle for spawning tasks. A caller that blocks on the handle does not drive the
    /// runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drives the runtime until `task` is done. Must not be called from a thread that runs
    /// asynchronous code. Returns `None` while the `SharedRuntime` is being dropped.
    pub fn wait<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let RuntimeShared { begun, waiting, driver_drives, stop_driving, .. } = &*self.shared;
        begun.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingCaller::begin(waiting);
        if driver_drives.load(Ordering::SeqCst) {
            stop_driving.notify_one();
        }

        // Ordering rule: `waiting` rises before the background thread is stopped, so that the
        // thread does not resume during this call. If the thread still drives the runtime,
        // `block_on` polls `task` beside it.
        Some(runtime.block_on(task))
    }
}

/// Guard that counts a blocking call as waiting until the guard is dropped, even if a panic drops
/// the guard.
struct WaitingCaller<'c>(&'c AtomicUsize);

impl<'c> WaitingCaller<'c> {
    fn begin(waiting: &'c AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RuntimeShared {
    /// Drives the runtime while no caller blocks. Callers usually follow each other quickly, so the
    /// background thread takes over only after a pause without callers.
    fn drive_while_idle(&self, runtime: &Runtime) {
        loop {
            self.driver_drives.store(true, Ordering::SeqCst);
            runtime.block_on(self.stop_driving.notified());
            self.driver_drives.store(false, Ordering::SeqCst);
            loop {
                if self.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                let begun = self.begun.load(Ordering::SeqCst);
                std::thread::park_timeout(limits::NATS_IDLE_TAKEOVER);
                let is_quiet = self.waiting.load(Ordering::SeqCst) == 0;
                if is_quiet && self.begun.load(Ordering::SeqCst) == begun {
                    break;
                }
            }
        }
    }
}

/// Shuts the runtime down without blocking. A plain drop of the runtime would panic on a thread
/// that runs asynchronous code.
fn shut_down(runtime: Arc<Runtime>) {
    if let Some(last) = Arc::into_inner(runtime) {
        last.shutdown_background();
    }
}

impl Drop for SharedRuntime {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.stop_driving.notify_one();
        self.driver_thread.unpark();
        if let Some(runtime) = self.runtime.take() {
            shut_down(runtime);
        }
    }
}
