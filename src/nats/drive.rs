//! One thread at a time drives a connection, whichever wants something of it: who waits does it
//! itself, so that nobody has to be woken between it and the socket; while nobody waits, a thread
//! of the connection's own does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::limits;

/// What a connection's tasks run on.
pub struct Drive {
    /// None while it is being dropped.
    runtime: Option<Arc<Runtime>>,
    handle: Handle,
    shared: Arc<Shared>,
    keeper: std::thread::Thread,
}

#[derive(Default)]
struct Shared {
    /// Waits that were begun.
    begun: AtomicUsize,
    /// Waits that go on.
    waiting: AtomicUsize,
    /// The keeper drives, and stops when it is told to.
    is_kept: AtomicBool,
    let_go: Notify,
    has_ended: AtomicBool,
}

impl Drive {
    /// # Errors
    /// Where there is no thread to be had.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let (handle, shared) = (runtime.handle().clone(), Arc::new(Shared::default()));
        let (kept, keeping) = (Arc::clone(&runtime), Arc::clone(&shared));
        let keeper = std::thread::Builder::new().name("nats".to_owned()).spawn(move || {
            keeping.keep(&kept);
            let_go_of(kept);
        })?;
        Ok(Self { runtime: Some(runtime), handle, shared, keeper: keeper.thread().clone() })
    }

    /// For whoever waits next to drive, and for the keeper.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
        // It may rest, and nobody else drives this.
        self.keeper.unpark();
    }

    /// What is spawned on it, others drive; what waits through it does not drive.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drives everything until `task` is done. Not from a thread that runs asynchronous work.
    /// None while it is being dropped.
    pub fn wait<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let Shared { begun, waiting, is_kept, let_go, .. } = &*self.shared;
        begun.fetch_add(1, Ordering::SeqCst);
        waiting.fetch_add(1, Ordering::SeqCst);
        if is_kept.load(Ordering::SeqCst) {
            let_go.notify_one();
        }

        // Should the keeper still drive, or again, `task` gets on all the same.
        let done = runtime.block_on(task);
        waiting.fetch_sub(1, Ordering::SeqCst);
        Some(done)
    }
}

impl Shared {
    /// Drives while nobody waits. Who asks usually asks again soon: only when nobody did for a
    /// while does the keeper take over again.
    fn keep(&self, runtime: &Runtime) {
        loop {
            self.is_kept.store(true, Ordering::SeqCst);
            runtime.block_on(self.let_go.notified());
            self.is_kept.store(false, Ordering::SeqCst);
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

/// A runtime must not end where asynchronous work runs, and this may be anywhere.
fn let_go_of(runtime: Arc<Runtime>) {
    if let Some(last) = Arc::into_inner(runtime) {
        last.shutdown_background();
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.let_go.notify_one();
        self.keeper.unpark();
        if let Some(runtime) = self.runtime.take() {
            let_go_of(runtime);
        }
    }
}
