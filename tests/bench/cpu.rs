//! Processor time of the calling thread, which excludes the time of all other threads.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Processor time that the calling thread spends on `work`, in microseconds.
pub fn micros(work: impl FnOnce()) -> f64 {
    let before = spent();
    work();
    (spent() - before).as_secs_f64() * 1e6
}

/// Idle time and total time of all cores since the system started, in ticks; `None` if the system
/// does not report these times.
pub type OfAll = Option<(u64, u64)>;

pub fn of_all() -> OfAll {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?;
    let times: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    // Idle, and waiting for a disk.
    Some((times[3] + times[4], times[..8].iter().sum()))
}

/// Share of the processor time of all cores that was in use since `before`, from 0 to 1; `None` if
/// the system does not report these times.
pub fn busy_since(before: OfAll) -> Option<f64> {
    let ((idle_before, before), (idle, now)) = (before?, of_all()?);
    Some(1.0 - (idle - idle_before) as f64 / (now - before).max(1) as f64)
}
