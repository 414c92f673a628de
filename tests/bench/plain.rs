//! The floor under everything that reads text: a loop over its bytes.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Counts `<`, one byte after another. The compiler is kept from looking at many at once, which
/// nothing can do that has to tell markup from text.
pub fn count(text: &[u8]) -> usize {
    let mut found = 0;
    for byte in text {
        if black_box(*byte) == b'<' {
            found += 1;
        }
    }
    found
}

/// How long a figure looks at one class in one run.
pub const LOOK: Duration = Duration::from_millis(100);

/// Seconds that `work` takes, on average over a look.
pub fn seconds(mut work: impl FnMut() -> usize) -> f64 {
    let began = Instant::now();
    let mut times = 0_u32;
    while began.elapsed() < LOOK {
        black_box(work());
        times += 1;
    }
    began.elapsed().as_secs_f64() / f64::from(times)
}

pub fn megabytes_per_second(bytes: usize, work: impl FnMut() -> usize) -> f64 {
    bytes as f64 / 1e6 / seconds(work)
}
