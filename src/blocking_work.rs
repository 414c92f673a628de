//! Runs work that may block on OS threads of the runtime, also while the system starts no threads.
//!
//! Tokio panics if it has no thread for such work and can start none. It keeps the work in its
//! queue all the same, so that a later thread may still run it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::locks::locked;

/// The reason why work has no result.
#[derive(Debug, thiserror::Error)]
pub enum BlockingWorkError {
    /// The work panicked, or the system started no thread for it. The panic is in the log.
    #[error("it failed, or no thread could be started for it; the log has the reason")]
    Panicked,
    #[error("the program is stopping")]
    Stopped,
}

/// Runs `work` on an OS thread that may block, and returns its result. After an error, a thread may
/// still run `work`, whose result is then lost.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingWorkError> {
    let started: JoinHandle<T> = catch_unwind(AssertUnwindSafe(|| spawn_blocking(work)))
        .map_err(|_| BlockingWorkError::Panicked)?;
    started.await.map_err(|error| {
        if error.is_panic() { BlockingWorkError::Panicked } else { BlockingWorkError::Stopped }
    })
}

/// Runs `work` once, on an OS thread of `runtime` that may block. If the system starts no thread,
/// runs `work` on this thread, before the function returns. A panic of `work` ends only `work`. The
/// receiver resolves at the end of `work`.
pub fn start(runtime: &Handle, work: impl FnOnce() + Send + 'static) -> oneshot::Receiver<()> {
    let (sender, ended) = oneshot::channel();
    let work = move || {
        work();
        sender.send(()).ok();
    };
    // Taken out before the run, because the runtime may run its queued part later.
    let pending = Arc::new(Mutex::new(Some(work)));
    let queued = Arc::clone(&pending);
    let run_queued = move || {
        let work = locked(&queued).take();
        if let Some(work) = work {
            work();
        }
    };

    let started = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(run_queued)));
    if started.is_err() {
        let work = locked(&pending).take();
        if let Some(work) = work {
            // The panic hook logs a panic of the work.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime_without_threads() -> Runtime {
        // No system has room for this stack.
        Builder::new_current_thread().thread_stack_size(1 << 50).build().unwrap()
    }

    #[test]
    fn work_without_a_thread_is_done_once_on_the_thread_that_starts_it() {
        let runtime = runtime_without_threads();
        let (sender, threads) = mpsc::channel();
        let work = move || sender.send(std::thread::current().id()).unwrap();
        let ended = start(runtime.handle(), work);
        assert_eq!(runtime.block_on(ended), Ok(()));
        drop(runtime);
        assert_eq!(threads.iter().collect::<Vec<_>>(), [std::thread::current().id()]);
    }

    #[test]
    fn a_panic_of_work_without_a_thread_ends_only_the_work() {
        let runtime = runtime_without_threads();
        let ended = start(runtime.handle(), || panic!("the work fails"));
        runtime.block_on(ended).unwrap_err();
    }

    #[test]
    fn work_that_failed_is_not_taken_for_the_end_of_the_program() {
        let with_threads = Builder::new_current_thread().build().unwrap();
        for runtime in [with_threads, runtime_without_threads()] {
            let ended = runtime.block_on(run(|| panic!("the work fails")));
            let error: BlockingWorkError = ended.map(|()| "done").unwrap_err();
            assert!(matches!(error, BlockingWorkError::Panicked), "{error}");
        }
    }

    #[test]
    fn work_of_a_runtime_that_ended_is_not_taken_for_a_failure() {
        let ended = Builder::new_current_thread().build().unwrap();
        let handle = ended.handle().clone();
        drop(ended);
        let _entered = handle.enter();
        let result = futures_util::FutureExt::now_or_never(run(|| "done"));
        assert!(matches!(result, Some(Err(BlockingWorkError::Stopped))), "{result:?}");
    }
}
