//! Ends this program if its pump has ended while a handler works: no pump can take the answer any
//! more, and the next pump delivers the call again.
//!
//! The pump has ended when both pipes have lost their other end. The end of standard input alone
//! does not count: a delivery from a file is answered, too.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// State shared by the watching thread and the main loop.
#[derive(Debug, Clone, Default)]
pub(super) struct PumpWatch(Arc<Mutex<WatchedPump>>);

#[derive(Debug, Default)]
struct WatchedPump {
    is_handling: bool,
    pump_has_ended: bool,
}

impl PumpWatch {
    /// Watches both pipes on a thread of its own, which blocks in the kernel.
    pub fn start(&self, input: OwnedFd, output: OwnedFd) -> std::io::Result<()> {
        let watch = self.clone();
        let run = move || {
            if wait_for_hang_up(&input) && wait_for_hang_up(&output) {
                watch.pump_ended();
            }
        };

        std::thread::Builder::new().name("pump-watch".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Marks that a handler begins. Returns false if the pump has ended, so that the handler must
    /// not begin.
    pub fn begin(&self) -> bool {
        let mut state = self.state();
        state.is_handling = !state.pump_has_ended;
        state.is_handling
    }

    pub fn end(&self) {
        self.state().is_handling = false;
    }

    fn pump_ended(&self) {
        // Lock: held until the program has ended, so that a handler that finishes now cannot
        // answer.
        let mut state = self.state();
        state.pump_has_ended = true;
        if state.is_handling {
            // Standard error may have lost its other end, too.
            let _ = writeln!(std::io::stderr(), "the pump has ended; this call is given up");
            std::process::exit(1);
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchedPump> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns false if the pipe cannot be waited for.
fn wait_for_hang_up(pipe: &OwnedFd) -> bool {
    loop {
        // Hang-ups and errors are always reported, without being requested.
        let mut polled = [PollFd::new(pipe, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        let [polled] = polled;
        let seen = polled.revents();
        if seen.contains(PollFlags::NVAL) {
            return false;
        }
        if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
            return true;
        }
    }
}
