//! Detects standstills of the process. An OS thread wakes at a fixed interval. If it wakes too
//! late, no OS thread of the process ran in the meantime, for example after `SIGSTOP` or on an
//! overloaded machine. A pump that is busy, or that waits for a slow disk, does not delay this
//! thread.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::limits;
use crate::locks::locked;

/// Handle of the OS thread that detects standstills. The thread ends after the handle is dropped.
pub(super) struct StandstillDetector(Arc<Mutex<Ticks>>);

struct Ticks {
    latest: Instant,
    /// Total duration of the standstills since the last call of [`StandstillDetector::take`].
    stood: Duration,
}

impl StandstillDetector {
    pub fn start(now: Instant) -> Self {
        let ticks = Arc::new(Mutex::new(Ticks::new(now)));
        let shared = Arc::downgrade(&ticks);
        let started = std::thread::Builder::new().name("pulse".to_owned()).spawn(|| tick(shared));
        if let Err(error) = started {
            tracing::warn!("could not start the thread that detects a stopped process: {error}");
        }

        Self(ticks)
    }

    /// Returns the time for which the process has stood still since the previous call of this
    /// function.
    pub fn take(&self, now: Instant) -> Duration {
        // The first thread to lock after a standstill records the gap, so the pump always knows of
        // a gap before it checks a deadline.
        let mut ticks = locked(&self.0);
        ticks.tick(now);
        std::mem::take(&mut ticks.stood)
    }
}

fn tick(ticks: Weak<Mutex<Ticks>>) {
    while let Some(ticks) = ticks.upgrade() {
        locked(&ticks).tick(Instant::now());
        drop(ticks);
        std::thread::sleep(limits::STANDSTILL_CHECK_INTERVAL);
    }
}

impl Ticks {
    fn new(now: Instant) -> Self {
        Self { latest: now, stood: Duration::ZERO }
    }

    fn tick(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.latest);
        self.latest = self.latest.max(now);
        if gap >= limits::STANDSTILL_CHECK_INTERVAL + limits::STANDSTILL_MIN {
            self.stood += gap - limits::STANDSTILL_CHECK_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_ticks_is_a_standstill_and_is_counted_once() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start);
        let thawed = start + Duration::from_secs(10);
        ticks.tick(thawed);
        ticks.tick(thawed);
        assert_eq!(ticks.stood, Duration::from_secs(10) - limits::STANDSTILL_CHECK_INTERVAL);
    }

    #[test]
    fn a_process_that_runs_never_stands_still_however_long_its_pump_is_busy() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start);
        for n in 1..=400 {
            ticks.tick(start + limits::STANDSTILL_CHECK_INTERVAL * n);
        }
        assert_eq!(ticks.stood, Duration::ZERO);
    }
}
