//! Runs a task again and again, at a fixed interval, on an OS thread of its own.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::journal::Error;

/// An OS thread that runs a task at a fixed interval. Dropping this value ends the thread.
#[derive(Debug)]
pub(super) struct PeriodicThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicThread {
    /// Starts an OS thread that calls `again` at intervals of `every`. The thread ends when `again`
    /// returns false. It also ends when this value is dropped, and then first calls `last` once.
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
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Ordering rule: waits for the thread, so that `last` has run once this is dropped. The
            // task has logged its errors.
            thread.join().ok();
        }
    }
}
