//! The pump's own time: the system's, but never going back and never standing still.

use std::time::{Duration, Instant};

use crate::clock::Time;

/// A system clock that is set back is overtaken at the pace of real time, so that timers and
/// deadlines keep their distance.
pub(super) struct Watch {
    set: (Time, Instant),
    jumped: Duration,
}

impl Watch {
    pub fn start() -> Self {
        Self { set: (Time::now(), Instant::now()), jumped: Duration::ZERO }
    }

    pub fn now(&mut self) -> Time {
        self.at(Time::now(), Instant::now())
    }

    fn at(&mut self, system: Time, now: Instant) -> Time {
        let (time, since) = self.set;
        let ours = time.plus(now.saturating_duration_since(since));
        if system > ours {
            self.jumped += system.since(ours);
            self.set = (system, now);
        }
        system.max(ours)
    }

    /// By how much the system's clock was ahead of the time that had passed, since this was last
    /// asked: it was set, or the machine slept.
    pub fn jumped(&mut self) -> Duration {
        std::mem::take(&mut self.jumped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_neither_turns_time_back_nor_stops_it() {
        let (start, hour) = (Instant::now(), Duration::from_secs(3600));
        let noon = Time(0).plus(12 * hour);
        let mut watch = Watch { set: (noon, start), jumped: Duration::ZERO };
        let mut at = |system: Time, passed: Duration| watch.at(system, start + passed);
        assert_eq!(at(noon.plus(hour), hour), noon.plus(hour), "in step");
        assert_eq!(at(noon, 2 * hour), noon.plus(2 * hour), "set back by two hours");
        assert_eq!(at(noon.plus(hour), 3 * hour), noon.plus(3 * hour), "still behind");
        assert_eq!(at(noon.plus(9 * hour), 4 * hour), noon.plus(9 * hour), "set forward");
        assert_eq!(at(noon, 5 * hour), noon.plus(10 * hour), "and back again");
        assert_eq!((watch.jumped(), watch.jumped()), (5 * hour, Duration::ZERO));
    }
}
