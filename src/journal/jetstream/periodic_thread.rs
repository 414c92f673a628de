//! Runs a task again and again, at a fixed interval, on an OS thread of its own.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::journal::Error;
use crate::owned_tasks::JoinOnDrop;

/// An OS thread that runs a task at a fixed interval. Dropping this value ends the thread.
#[derive(Debug)]
pub(super) struct PeriodicThread {
    // Ordering rule: this field is dropped first, which ends the thread, and the other field then
    // waits until the last task has run.
    _stop: Sender<()>,
    _thread: JoinOnDrop,
}

impl PeriodicThread {
    /// Starts an OS thread that calls `again` at intervals of `every`. The thread ends in one of
    /// two cases:
    /// - `again` returned false.
    /// - The returned value was dropped. In this case, the thread first calls `last` once.
    pub fn start(
        name: &str,
        every: Duration,
        mut again: impl FnMut() -> bool + Send + 'static,
        last: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Error> {
        let (stop, stopped) = channel();
        let go_round = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if !again() {
                    return;
                }
            }
            last();
        };

        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(go_round);
        let thread = thread.map_err(Error::io(format!("starting the thread {name}")))?;
        Ok(Self { _stop: stop, _thread: JoinOnDrop::new(thread) })
    }
}
