//! Clock by which alerts are raised and end.

use std::time::Duration;

use crate::clock::Time;
use crate::limits;

/// Clock of the alerts of one pump. It is never before the time of a record, and advances as real
/// time does. So it follows the clock of the pump, which never goes back.
///
/// It reads the time of the system only when it starts. If the system clock is ahead for a moment
/// and no record is made meanwhile, this clock does not follow it: the clock of the pump, which is
/// read only for records and timers, may not follow it either.
pub(super) struct AlertClock {
    time: Time,
    /// Uptime of the machine at `time`.
    uptime: Duration,
}

/// A jump by which an [`AlertClock`] was set forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockJump {
    /// Time just before the jump.
    pub before: Time,
    pub step: Duration,
}

impl AlertClock {
    /// Starts the clock at the system's time `system`.
    pub fn start(system: Time, uptime: Duration) -> Self {
        Self { time: system, uptime }
    }

    /// Returns the time of the latest change of the clock.
    pub fn time(&self) -> Time {
        self.time
    }

    /// Sets the clock to `recorded` or later, which is no jump. `recorded` is the time of the last
    /// record before the clock started.
    pub fn begin_after(&mut self, recorded: Time, uptime: Duration) {
        self.advance(uptime);
        self.time = self.time.max(recorded);
    }

    /// Advances the clock by the real time that has passed.
    pub fn advance(&mut self, uptime: Duration) {
        self.time = self.time.plus(uptime.saturating_sub(self.uptime));
        self.uptime = uptime;
    }

    /// Advances the clock to the present, and at least to `recorded`, the time of a record. Returns
    /// the jump if this sets the clock forward by [`limits::STANDSTILL_MIN`] or more.
    pub fn reach(&mut self, recorded: Time, uptime: Duration) -> Option<ClockJump> {
        self.advance(uptime);
        let before = self.time;
        self.time = before.max(recorded);
        let step = self.time.since(before);
        (step >= limits::STANDSTILL_MIN).then_some(ClockJump { before, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    fn noon() -> Time {
        Time(0).plus(12 * HOUR)
    }

    #[test]
    fn the_clock_jumps_to_a_record_that_is_ahead_and_advances_from_there() {
        let mut clock = AlertClock::start(noon(), HOUR);
        let jump = clock.reach(noon().plus(HOUR), HOUR + SECOND);
        let before = noon().plus(SECOND);
        assert_eq!(jump, Some(ClockJump { before, step: HOUR - SECOND }));
        assert_eq!(clock.time(), noon().plus(HOUR));

        clock.advance(HOUR + 2 * SECOND);
        assert_eq!(clock.time(), noon().plus(HOUR + SECOND));
        assert_eq!(clock.reach(noon().plus(HOUR), HOUR + 2 * SECOND), None, "an earlier record");
        assert_eq!(clock.time(), noon().plus(HOUR + SECOND));
    }

    /// The system clock may have been ahead for a moment: the pump made no record then.
    #[test]
    fn the_clock_stays_with_records_at_the_pace_of_real_time() {
        let mut clock = AlertClock::start(noon(), HOUR);
        clock.advance(HOUR + 5 * SECOND);
        assert_eq!(clock.reach(noon().plus(10 * SECOND), HOUR + 10 * SECOND), None);
        assert_eq!(clock.time(), noon().plus(10 * SECOND));
    }

    #[test]
    fn a_start_after_a_record_that_is_ahead_is_no_jump() {
        let mut clock = AlertClock::start(noon(), HOUR);
        clock.begin_after(noon().plus(HOUR), HOUR + 3 * SECOND);
        assert_eq!(clock.time(), noon().plus(HOUR));
        clock.advance(HOUR + 4 * SECOND);
        assert_eq!(clock.time(), noon().plus(HOUR + SECOND));
    }

    #[test]
    fn time_that_passes_before_the_start_has_ended_counts_once() {
        let mut clock = AlertClock::start(noon(), HOUR);
        clock.begin_after(noon(), HOUR + 3 * SECOND);
        clock.advance(HOUR + 4 * SECOND);
        assert_eq!(clock.time(), noon().plus(4 * SECOND));
    }
}
