//! Watches the pump that sends calls to a listener. If the pump ends while a handler runs, the
//! listener's program ends, too, because the answer would reach no pump. The next pump delivers the
//! call again.
//!
//! Two pipes connect the program with the pump, usually its standard input and standard output. The
//! pump has ended when the other ends of both pipes are closed. The end of standard input alone
//! does not prove this, because standard input may be a file.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::locks::locked;

/// Whether a handler runs, and whether the pump has ended. The main loop and the OS thread that
/// watches the pump share this state.
#[derive(Debug, Clone, Default)]
pub(super) struct PumpWatch(Arc<Mutex<WatchedPump>>);

#[derive(Debug, Default)]
struct WatchedPump {
    is_handling: bool,
    pump_has_ended: bool,
}

impl PumpWatch {
    /// Starts an OS thread that waits until the other ends of the pipes `input` and `output` are
    /// closed.
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

    /// Records that a handler is about to begin. Returns false if the pump has ended; in this case,
    /// the handler must not begin.
    pub fn begin(&self) -> bool {
        let mut state = self.state();
        state.is_handling = !state.pump_has_ended;
        state.is_handling
    }

    pub fn end(&self) {
        self.state().is_handling = false;
    }

    fn pump_ended(&self) {
        // Lock: held until the program has ended, so that a handler that finishes now cannot send
        // its answer.
        let mut state = self.state();
        state.pump_has_ended = true;
        if state.is_handling {
            // Standard error may have lost its reader, too.
            let _ = writeln!(std::io::stderr(), "the pump has ended; this call is given up");
            std::process::exit(1);
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchedPump> {
        locked(&self.0)
    }
}

/// Waits until the other end of a pipe is closed. Returns false if the pipe cannot be watched.
fn wait_for_hang_up(pipe: &OwnedFd) -> bool {
    loop {
        // `poll` reports hang-ups and errors without a request for them.
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
