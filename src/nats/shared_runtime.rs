//! A single-threaded runtime that its callers drive. A caller that blocks drives the runtime
//! itself, so that no thread is woken between it and the socket. While no caller blocks, a
//! background thread drives the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::limits;

/// The runtime of one connection.
pub struct SharedRuntime {
    /// `None` while this is being dropped.
    runtime: Option<Arc<Runtime>>,
    handle: Handle,
    shared: Arc<RuntimeShared>,
    driver_thread: std::thread::Thread,
}

#[derive(Default)]
struct RuntimeShared {
    /// Number of blocking waits begun so far.
    begun: AtomicUsize,
    /// Number of blocking waits in progress.
    waiting: AtomicUsize,
    /// Whether the background thread drives the runtime at present.
    driver_drives: AtomicBool,
    stop_driving: Notify,
    has_ended: AtomicBool,
}

impl SharedRuntime {
    /// # Errors
    /// If the operating system refuses a thread.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let (handle, shared) = (runtime.handle().clone(), Arc::new(RuntimeShared::default()));
        let (kept, driver_state) = (Arc::clone(&runtime), Arc::clone(&shared));
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

    /// Spawns a task. The next blocked caller or the background thread runs it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
        // The background thread may be parked, and possibly no caller drives the runtime.
        self.driver_thread.unpark();
    }

    /// Handle for spawning tasks. Blocking on it does not drive the runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drives the runtime until `task` is done. Must not be called from a thread that runs
    /// asynchronous work. Returns `None` while this is being dropped.
    pub fn wait<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let RuntimeShared { begun, waiting, driver_drives, stop_driving, .. } = &*self.shared;
        begun.fetch_add(1, Ordering::SeqCst);
        waiting.fetch_add(1, Ordering::SeqCst);
        if driver_drives.load(Ordering::SeqCst) {
            stop_driving.notify_one();
        }

        // Ordering rule: the count rose before the background thread was stopped. Should that
        // thread still drive the runtime, `block_on` polls `task` beside it.
        let done = runtime.block_on(task);
        waiting.fetch_sub(1, Ordering::SeqCst);
        Some(done)
    }
}

impl RuntimeShared {
    /// Drives the runtime while no caller blocks. Callers usually come in quick succession, so this
    /// takes over only after a pause without callers.
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
                std::thread::park_timeout(limits::LINK_REST);
                let is_quiet = self.waiting.load(Ordering::SeqCst) == 0;
                if is_quiet && self.begun.load(Ordering::SeqCst) == begun {
                    break;
                }
            }
        }
    }
}

/// Shuts the runtime down without blocking. Dropping it would panic on a thread that runs
/// asynchronous work.
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
