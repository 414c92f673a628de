//! Writes durations for people.

use std::time::Duration;

/// Formats a duration like `0.3 s`, `4 min 10 s` or `2 h 5 min`.
pub fn duration(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", length.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a duration in microseconds with its unit, like `1.2 ms`.
pub fn micros(time: impl TryInto<u64>) -> String {
    let micros = time.try_into().unwrap_or_default();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", micros as f64 / 1e6),
        _ => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

/// Formats an elapsed time, such as `+0.137s`. From 100 seconds on, writes minutes and seconds;
/// from 100 minutes on, hours and minutes.
pub fn offset(since: Duration) -> String {
    let seconds = since.as_secs();
    match seconds {
        0..100 => format!("+{:.3}s", since.as_secs_f64()),
        100..6000 => format!("+{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("+{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}
