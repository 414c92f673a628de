//! Clock of the pump. It follows the system's time, but never goes back and always advances. It
//! also measures the time that must not count for deadlines: the time during which the pump did not
//! run, and the time by which the system's clock was set forward. In test cases of workflows, the
//! clock is frozen, and only the test case advances it.

use std::time::{Duration, Instant};

use super::standstill_detector::StandstillDetector;
use crate::clock::{Time, since_boot};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::core::Standstill;

/// The pump's clock. If the system clock is set back, this clock still advances at the pace of real
/// time, so that timers and deadlines are not delayed. If the system clock is set forward, this
/// clock jumps forward, too, but the jump does not count for deadlines.
pub(super) struct PumpClock {
    set: (Time, ClockReading),
    pulse: StandstillDetector,
    standstill: Standstill,
    /// Whether the clock is frozen. Only [`PumpClock::skip_to`] advances a frozen clock.
    is_frozen: bool,
    /// Lead of this clock over the system's that [`PumpClock::begin_lead`] has last returned.
    logged_lead: Duration,
}

/// Readings of all clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    /// Reading of a clock that stands still while the machine is suspended.
    awake: Instant,
    since_boot: Duration,
}

impl ClockReading {
    fn now() -> Self {
        Self { awake: Instant::now(), since_boot: since_boot() }
    }
}

impl PumpClock {
    /// Starts the clock at the system's time, but not before `last`, the time of the latest record.
    pub fn start(last: Time) -> Self {
        let now = Time::now();
        let start = if mutant("turn-back-the-clock") { now } else { now.max(last) };
        let reading = ClockReading::now();
        let standstill = Standstill::default();
        let pulse = StandstillDetector::start(reading.awake);
        Self {
            set: (start, reading),
            pulse,
            standstill,
            is_frozen: false,
            logged_lead: Duration::ZERO,
        }
    }

    /// Freezes this clock: from now on, only [`PumpClock::skip_to`] advances it.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    pub fn now(&mut self) -> Time {
        let (time, _) = self.set;
        if self.is_frozen {
            return time;
        }

        let reading = ClockReading::now();
        self.standstill.stood += self.pulse.take(reading.awake);
        self.at(Time::now(), reading)
    }

    /// Advances a frozen clock to `at`, if `at` is later than its time. The skipped time counts for
    /// deadlines. Does nothing if the clock is not frozen.
    pub fn skip_to(&mut self, at: Time) {
        if self.is_frozen {
            let (time, _) = &mut self.set;
            *time = at.max(*time);
        }
    }

    /// Returns the real time until this clock reaches `at`. Returns [`Duration::MAX`] if the clock
    /// is frozen and has not reached `at`, because a frozen clock does not advance by itself.
    pub fn wait_until(&mut self, at: Time) -> Duration {
        let now = self.now();
        match at.since(now) {
            Duration::ZERO => Duration::ZERO,
            _ if self.is_frozen => Duration::MAX,
            left => left,
        }
    }

    /// Returns the system's time if it is behind `now`, the time of this clock, by at least
    /// [`limits::CLOCK_DIFFERENCE_MIN`]. The system's time is behind after the system's clock was
    /// ahead and was then corrected. Returns `None` if the two times agree, or if this clock is
    /// frozen.
    pub fn system_time_if_behind(&self, now: Time) -> Option<Time> {
        let system = Time::now();
        let is_behind = now.since(system) >= limits::CLOCK_DIFFERENCE_MIN;
        (is_behind && !self.is_frozen).then_some(system)
    }

    /// Returns the system's time as [`PumpClock::system_time_if_behind`] does, but only once for each
    /// lead of this clock. A lead is another one if it differs by at least
    /// [`limits::CLOCK_DIFFERENCE_MIN`], because the system's clock was set once more.
    pub fn begin_lead(&mut self, now: Time) -> Option<Time> {
        let system = self.system_time_if_behind(now);
        let lead = system.map(|system| now.since(system)).unwrap_or_default();
        if lead.abs_diff(self.logged_lead) < limits::CLOCK_DIFFERENCE_MIN {
            return None;
        }

        self.logged_lead = lead;
        system
    }

    fn at(&mut self, system: Time, now: ClockReading) -> Time {
        let (time, then) = self.set;
        let passed = now.since_boot.saturating_sub(then.since_boot);
        let awake = now.awake.saturating_duration_since(then.awake);
        let ours = time.plus(passed);
        self.standstill.stood += passed.saturating_sub(awake);
        self.standstill.stepped += system.since(ours);
        self.set = (system.max(ours), now);
        system.max(ours)
    }

    /// Excludes the time from `since` until now from all deadlines. Called when the journal accepts
    /// records again, because the pump processed no input while the disk was full or the server was
    /// unreachable.
    pub fn was_kept(&mut self, since: Instant) {
        let now = Instant::now();
        let frozen = self.pulse.take(now);
        self.standstill.stood += frozen.max(now.saturating_duration_since(since));
    }

    /// Returns the time that must not count for deadlines. This is the time measured since the
    /// previous call of this function. The pump extends all deadlines by this time. Returns `None`
    /// if the time is shorter than [`limits::STANDSTILL_MIN`], or if the clock is frozen.
    pub fn standstill(&mut self) -> Option<Standstill> {
        let standstill = std::mem::take(&mut self.standstill);
        (!self.is_frozen && standstill.all() >= limits::STANDSTILL_MIN).then_some(standstill)
    }
}

/// Logs that this machine's clock was set forward, if `standstill` has such a step.
pub(super) fn warn_of_step(standstill: Standstill) {
    if standstill.stepped >= limits::CLOCK_DIFFERENCE_MIN {
        tracing::warn!(
            "this machine's clock was set forward by {} s: planned times in between are missed, and \
             no time-out runs down by that",
            standstill.stepped.as_secs()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn noon() -> Time {
        Time(0).plus(12 * HOUR)
    }

    /// Returns a clock that shows noon, and a function that reads this clock. The function takes
    /// the clock and three readings from the test: the time of the system clock, the uptime, and
    /// the time awake.
    fn clock() -> (PumpClock, impl Fn(&mut PumpClock, Time, Duration, Duration) -> Time) {
        let start = ClockReading { awake: Instant::now(), since_boot: HOUR };
        let pulse = StandstillDetector::start(start.awake);
        let standstill = Standstill::default();
        let set = (noon(), start);
        let clock =
            PumpClock { set, pulse, standstill, is_frozen: false, logged_lead: Duration::ZERO };
        let at = move |clock: &mut PumpClock, system: Time, up: Duration, awake: Duration| {
            let awake = start.awake + awake;
            clock.at(system, ClockReading { awake, since_boot: start.since_boot + up })
        };

        (clock, at)
    }

    #[test]
    fn a_clock_set_back_neither_turns_time_back_nor_stops_it() {
        let (mut clock, at) = clock();
        let hour = HOUR;
        assert_eq!(at(&mut clock, noon().plus(hour), hour, hour), noon().plus(hour), "in step");
        let back = at(&mut clock, noon(), 2 * hour, 2 * hour);
        assert_eq!(back, noon().plus(2 * hour), "set back by two hours");
        let behind = at(&mut clock, noon().plus(hour), 3 * hour, 3 * hour);
        assert_eq!(behind, noon().plus(3 * hour), "still behind");
        assert_eq!(clock.standstill(), None);
    }

    #[test]
    fn a_clock_set_forward_is_followed_and_no_time_has_passed_by_that() {
        let (mut clock, at) = clock();
        let forward = at(&mut clock, noon().plus(9 * HOUR), HOUR, HOUR);
        assert_eq!(forward, noon().plus(9 * HOUR));
        let expected = Standstill { stood: Duration::ZERO, stepped: 8 * HOUR };
        assert_eq!(clock.standstill(), Some(expected));
        assert_eq!(clock.standstill(), None, "once");
    }

    #[test]
    fn a_machine_that_slept_is_not_one_whose_clock_was_set() {
        let (mut clock, at) = clock();
        at(&mut clock, noon().plus(9 * HOUR), 9 * HOUR, HOUR);
        let expected = Standstill { stood: 8 * HOUR, stepped: Duration::ZERO };
        assert_eq!(clock.standstill(), Some(expected));
    }

    #[test]
    fn only_skipped_time_passes_on_a_frozen_clock() {
        let mut clock = PumpClock::start(noon());
        clock.freeze();
        let frozen = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.now(), frozen);

        let later = frozen.plus(HOUR);
        assert_eq!(clock.wait_until(later), Duration::MAX);
        clock.skip_to(later);
        assert_eq!(clock.now(), later);
        assert_eq!(clock.wait_until(later), Duration::ZERO, "what is due now does not wait");
        clock.skip_to(frozen);
        assert_eq!(clock.now(), later, "time does not go back");
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        clock.was_kept(long_ago);
        assert_eq!(clock.standstill(), None);
    }

    #[test]
    fn a_running_clock_skips_nothing() {
        let mut clock = PumpClock::start(noon());
        let later = clock.now().plus(HOUR);
        clock.skip_to(later);
        assert!(clock.now() < later);
    }

    #[test]
    fn a_new_pump_goes_on_from_the_last_recorded_time() {
        let ahead = Time::now().plus(HOUR);
        assert!(PumpClock::start(ahead).now() >= ahead);
    }

    #[test]
    fn the_systems_time_is_returned_where_this_clock_is_ahead_of_it() {
        let mut clock = PumpClock::start(Time::now().plus(HOUR));
        let now = clock.now();
        let system = clock.system_time_if_behind(now).unwrap();
        assert!(system.plus(HOUR) >= now, "{system} and {now}");
        assert!(clock.begin_lead(now).is_some());
        assert_eq!(clock.begin_lead(now), None, "once");
        assert!(clock.begin_lead(now.plus(HOUR)).is_some(), "another lead");
        assert_eq!(clock.begin_lead(Time::now()), None, "the clocks agree");
        assert!(clock.begin_lead(now).is_some(), "it is ahead again");
        clock.freeze();
        assert_eq!(clock.system_time_if_behind(now), None, "a test case has a time of its own");
    }

    #[test]
    fn time_in_which_the_journal_took_nothing_is_a_standstill() {
        let (mut clock, _) = clock();
        let since = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        clock.was_kept(since);
        let stood = clock.standstill().unwrap().stood;
        assert!(stood >= Duration::from_secs(10), "{stood:?}");
    }
}
