//! Processor time of the thread that asks: what others do meanwhile does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// What `work` takes, in microseconds.
pub fn micros(work: impl FnOnce()) -> f64 {
    let before = spent();
    work();
    (spent() - before).as_secs_f64() * 1e6
}
