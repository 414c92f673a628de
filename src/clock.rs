//! Time in records: microseconds since 1970, UTC.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant, in microseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// Reads the system clock. Pure code, such as the core of the pump, must not call this
    /// function, but gets the time as an argument.
    pub fn now() -> Self {
        let now = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Self(0).plus(since),
            Err(before) => Self(0).minus(before.duration()),
        };
        Self(now.0.saturating_add(skew()))
    }

    /// Whether this instant is before 1970. The ids of messages and journals begin with the time,
    /// and no such id exists for an instant before 1970.
    pub fn is_before_epoch(self) -> bool {
        self.0 < 0
    }

    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this instant; zero if this instant is before `earlier`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses an RFC 3339 instant, such as `2026-11-20T10:00:00Z`. Returns `None` for any other
    /// text.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_microsecond()))
    }
}

/// Returns the time since the boot of the machine, including the time in which the machine slept. A
/// change of the system clock has no effect on it.
pub fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    // On macOS, this clock includes sleep.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Returns the number of microseconds that a test adds to the clock of a running pump. Reads the
/// number from the file that the environment variable `ORGANISM_CLOCK_SKEW` names. Returns 0
/// without the variable. Only debug builds read the file.
#[cfg(debug_assertions)]
fn skew() -> i64 {
    static FILE: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("ORGANISM_CLOCK_SKEW")).as_ref();
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

#[cfg(not(debug_assertions))]
const fn skew() -> i64 {
    0
}

/// Formats the instant as RFC 3339 with microseconds, always in UTC.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// Parses an XSD duration of days and smaller units, such as `PT30S`. Returns `None` for any other
/// text.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return None;
    }

    let relative = jiff::SpanRelativeTo::days_are_24_hours();
    let seconds = span.total((jiff::Unit::Second, relative)).ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
