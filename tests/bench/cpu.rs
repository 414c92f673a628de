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

/// What all cores did since the system started, in its own unit: idle, and altogether.
pub type OfAll = Option<(u64, u64)>;

pub fn of_all() -> OfAll {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?;
    let times: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    // Idle, and waiting for a disk.
    Some((times[3] + times[4], times[..8].iter().sum()))
}

/// How much of them was in use since then, of one; None where the system does not say.
pub fn busy_since(before: OfAll) -> Option<f64> {
    let ((idle_before, before), (idle, now)) = (before?, of_all()?);
    Some(1.0 - (idle - idle_before) as f64 / (now - before).max(1) as f64)
}
