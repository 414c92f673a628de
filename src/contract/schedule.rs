//! Schedules: the times at which the organism itself sends a payload, in the name of a client.
//!
//! The caller passes the time from which a schedule computes its times, so this module reads no
//! clock.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{self, Weekday};
use jiff::tz::TimeZone;

use crate::clock::Time;
use crate::ids::{ListenerName, ScheduleName};

/// A schedule as declared in the config.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub name: ScheduleName,
    pub times: ScheduleTimes,
    /// The client that is the sender of the payload.
    pub client: ListenerName,
    /// Payload that is sent, as XML text.
    pub payload: String,
    pub missed: MissedPolicy,
    /// Maximum number of runs of the schedule that are open at once.
    pub concurrency: u32,
}

/// Policy for runs that were missed, because the payload could not be sent at the scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedPolicy {
    /// A single run replaces all missed runs.
    #[default]
    Once,
    /// Missed runs are not replaced.
    Skip,
}

impl MissedPolicy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Skip => "skip",
        }
    }
}

/// The times of a schedule.
#[derive(Debug, Clone)]
pub enum ScheduleTimes {
    /// Times at a fixed interval.
    Every(Duration),
    Daily(DailyTime),
}

/// A time of day on some days of the week.
#[derive(Debug, Clone)]
pub struct DailyTime {
    pub at: civil::Time,
    /// The days of the week; empty for every day.
    pub days: Vec<Weekday>,
    pub zone: TimeZone,
    /// Name of the time zone in the IANA database.
    pub zone_name: String,
}

/// Summary of the scheduled times that have passed and are not handled yet. `latest` is the last of
/// these times, and `count` is their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedTimes {
    pub latest: Time,
    /// The second-to-last of the scheduled times that have passed and are not handled yet; `None`
    /// if there is only one.
    pub before_latest: Option<Time>,
    pub count: u64,
}

/// The days of the week with their names in the config.
pub const WEEKDAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

impl ScheduleTimes {
    /// Returns the first scheduled time after `time`. For a fixed interval, the result is `time`
    /// plus the interval.
    pub fn after(&self, time: Time) -> Time {
        match self {
            Self::Every(interval) => time.plus(*interval),
            Self::Daily(daily) => daily.after(time),
        }
    }

    /// Summarises the scheduled times from `due` to `now`, including both. `due` is the first
    /// scheduled time that is not handled yet, and must not be later than `now`.
    pub fn passed(&self, due: Time, now: Time) -> PassedTimes {
        match self {
            Self::Every(interval) => {
                let interval = interval.as_micros().max(1);
                let later = u64::try_from(now.since(due).as_micros() / interval).unwrap_or(0);
                let nth = |n: u64| {
                    let micros = interval.saturating_mul(u128::from(n));
                    due.plus(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
                };

                let before_latest = later.checked_sub(1).map(nth);
                PassedTimes { latest: nth(later), before_latest, count: later.saturating_add(1) }
            }
            Self::Daily(daily) => {
                let mut passed = PassedTimes { latest: due, before_latest: None, count: 1 };
                loop {
                    let next = daily.after(passed.latest);
                    if next > now || next <= passed.latest {
                        return passed;
                    }

                    let before_latest = Some(passed.latest);
                    let count = passed.count.saturating_add(1);
                    passed = PassedTimes { latest: next, before_latest, count };
                }
            }
        }
    }
}

impl DailyTime {
    /// Returns the first moment after `time` at which this time of day occurs on one of the
    /// scheduled days. Returns `i64::MAX` if there is no such moment.
    fn after(&self, time: Time) -> Time {
        self.first_after(time).unwrap_or(Time(i64::MAX))
    }

    fn first_after(&self, time: Time) -> Option<Time> {
        let now = Timestamp::from_microsecond(time.0).ok()?;
        // If the clock is set forward, the time of one day may move into the next day.
        let mut date = now.to_zoned(self.zone.clone()).date().yesterday().ok()?;

        loop {
            if self.days.is_empty() || self.days.contains(&date.weekday()) {
                let found = self.on(date)?;
                if found > time {
                    return Some(found);
                }
            }

            date = date.tomorrow().ok()?;
        }
    }

    /// Returns the scheduled time on `date`; `None` if this time cannot be represented. If a clock
    /// change repeats the scheduled hour, returns the first occurrence. If a clock change skips the
    /// hour, returns a time that is later by the length of the gap.
    fn on(&self, date: civil::Date) -> Option<Time> {
        let local = date.to_datetime(self.at);
        let found = self.zone.to_ambiguous_timestamp(local).compatible().ok()?;
        Some(Time(found.as_microsecond()))
    }
}

/// Writes the times on one line, which the pump records. If a changed config gives another line
/// than the recorded one, the pump plans the schedule anew.
impl fmt::Display for ScheduleTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => write!(f, "every {} s", interval.as_secs_f64()),
            Self::Daily(DailyTime { at, days, zone_name, .. }) => {
                write!(f, "at {at}")?;
                let named = WEEKDAYS.iter().filter(|(_, day)| days.contains(day));
                let named: Vec<_> = named.map(|(name, _)| *name).collect();
                if !named.is_empty() {
                    write!(f, " on {}", named.join(", "))?;
                }
                write!(f, " in {zone_name}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    fn daily(at: &str, days: &[Weekday], zone: &str) -> ScheduleTimes {
        ScheduleTimes::Daily(DailyTime {
            at: at.parse().unwrap(),
            days: days.to_vec(),
            zone: TimeZone::get(zone).unwrap(),
            zone_name: zone.to_owned(),
        })
    }

    /// Returns the first `count` times after `from`, in UTC.
    fn times(schedule: &ScheduleTimes, from: &str, count: usize) -> Vec<String> {
        let next = |after: &Time| Some(schedule.after(*after));
        let found = std::iter::successors(Some(time(from)), next).skip(1).take(count);
        found.map(|time| time.to_string().replace(".000000", "")).collect()
    }

    #[test]
    fn a_time_of_day_comes_once_a_day_in_its_zone() {
        let utc = daily("03:00:00", &[], "UTC");
        let found = times(&utc, "2026-11-22T03:00:00Z", 2);
        assert_eq!(found, ["2026-11-23T03:00:00Z", "2026-11-24T03:00:00Z"]);

        let tokyo = daily("00:30:00", &[], "Asia/Tokyo");
        let found = times(&tokyo, "2026-11-22T15:00:00Z", 2);
        assert_eq!(found, ["2026-11-22T15:30:00Z", "2026-11-23T15:30:00Z"]);
    }

    #[test]
    fn only_the_named_days_count_and_they_are_those_of_the_zone() {
        let days = [Weekday::Monday, Weekday::Friday];
        // 2026-11-22 is a Sunday. At 20:00 UTC, it is Monday in Auckland.
        let found = times(&daily("09:00:00", &days, "Pacific/Auckland"), "2026-11-22T19:00:00Z", 3);
        assert_eq!(found, ["2026-11-22T20:00:00Z", "2026-11-26T20:00:00Z", "2026-11-29T20:00:00Z"]);
    }

    #[test]
    fn a_time_that_the_clock_leaves_out_comes_later_by_the_gap() {
        let berlin = daily("02:30:00", &[], "Europe/Berlin");
        let found = times(&berlin, "2026-03-27T12:00:00Z", 3);
        // On 29 March 2026 the clock goes from 02:00 to 03:00: the time comes at 03:30.
        assert_eq!(found, ["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn a_time_that_the_clock_repeats_comes_once_and_first() {
        let berlin = daily("02:30:00", &[], "Europe/Berlin");
        let found = times(&berlin, "2026-10-24T12:00:00Z", 2);
        // On 25 October 2026 the clock goes from 03:00 back to 02:00.
        assert_eq!(found, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn a_day_that_a_zone_leaves_out_gives_no_second_time() {
        let apia = daily("10:00:00", &[], "Pacific/Apia");
        // Samoa had no 30 December 2011.
        let found = times(&apia, "2011-12-29T00:00:00Z", 3);
        assert_eq!(found, ["2011-12-29T20:00:00Z", "2011-12-30T20:00:00Z", "2011-12-31T20:00:00Z"]);
    }

    #[test]
    fn the_times_that_have_come_are_counted_and_the_latest_is_found() {
        let due = time("2026-11-22T03:00:00Z");
        let every = ScheduleTimes::Every(Duration::from_secs(600));
        let passed = every.passed(due, time("2026-11-22T03:25:00Z"));
        let [latest, before] = ["2026-11-22T03:20:00Z", "2026-11-22T03:10:00Z"].map(time);
        assert_eq!(passed, PassedTimes { latest, before_latest: Some(before), count: 3 });

        let only = PassedTimes { latest: due, before_latest: None, count: 1 };
        assert_eq!(every.passed(due, due), only);

        let utc = daily("03:00:00", &[], "UTC");
        assert_eq!(utc.passed(due, time("2026-11-23T02:59:59Z")), only);
        let passed = utc.passed(due, time("2026-11-25T03:00:00Z"));
        let [latest, before] = ["2026-11-25T03:00:00Z", "2026-11-24T03:00:00Z"].map(time);
        assert_eq!(passed, PassedTimes { latest, before_latest: Some(before), count: 4 });
    }

    #[test]
    fn a_schedule_ends_where_time_ends() {
        let every = ScheduleTimes::Every(Duration::MAX);
        assert_eq!(every.after(time("2026-11-22T03:00:00Z")), Time(i64::MAX));
        let utc = daily("03:00:00", &[], "UTC");
        assert_eq!(utc.after(time("9999-12-30T04:00:00Z")), Time(i64::MAX));
    }
}
