//! Processor time of a thread: a bound on it holds on a machine that has other things to do.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures the processor time of the thread that starts it.
pub struct ProcessorTime {
    begun: Duration,
}

impl ProcessorTime {
    pub fn start() -> Self {
        Self { begun: spent() }
    }

    /// Since the start, in this thread alone.
    pub fn elapsed(&self) -> Duration {
        spent() - self.begun
    }
}

fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

#[test]
fn a_thread_that_waits_spends_no_processor_time() {
    let time = ProcessorTime::start();
    std::thread::sleep(Duration::from_millis(50));
    assert!(time.elapsed() < Duration::from_millis(50));
}
