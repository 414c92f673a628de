//! Processor time of a thread. A test can limit the processor time of its work even on a busy
//! machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures the processor time of the thread that starts the measurement.
pub struct ProcessorTime {
    begun: Duration,
}

impl ProcessorTime {
    pub fn start() -> Self {
        Self { begun: spent() }
    }

    /// Processor time since the start, of this thread alone.
    pub fn elapsed(&self) -> Duration {
        spent() - self.begun
    }
}

fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}
