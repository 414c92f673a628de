//! A loop over the bytes of a text. Its time is the lower bound for the figures of parsers.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Counts `<` byte by byte. The form of the loop prevents vectorisation, because a parser cannot
/// use vectorisation to tell markup from text.
pub fn count(text: &[u8]) -> usize {
    let mut found = 0;
    for byte in text {
        if black_box(*byte) == b'<' {
            found += 1;
        }
    }
    found
}

/// Time for which the measured work is repeated.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the median duration of `work` in seconds. A median is not affected by the runs that
/// other processes delay.
pub fn seconds(mut work: impl FnMut() -> usize) -> f64 {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < LOOK {
        let start = Instant::now();
        black_box(work());
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

pub fn megabytes_per_second(bytes: usize, work: impl FnMut() -> usize) -> f64 {
    bytes as f64 / 1e6 / seconds(work)
}
