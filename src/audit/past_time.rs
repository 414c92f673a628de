//! Parses points of time in the past, in the forms in which people write them.

use std::time::Duration;

use jiff::Zoned;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::clock::Time;

/// Examples of the accepted forms of a time, for help texts and error messages.
pub const FORMS: &str = "2026-11-20, 2026-11-20T10:00, 2026-11-20T10:00:00Z, or 15m, 2h, 3d ago";

/// Parses a time: a date, a date with a time of day, or a duration before now. A date may state its
/// time zone as an offset, as a name in brackets, or as both. Without a time zone, the zone of this
/// machine applies.
///
/// # Errors
///
/// Returns a sentence for the user if the text is no time, or if it needs the zone of this machine
/// and the variable `TZ` names none.
pub fn parse(text: &str) -> Result<Time, String> {
    let zone = TimeZone::try_system();
    let named = std::env::var("TZ").unwrap_or_default();
    parse_at(text, Time::now(), zone.ok().as_ref().ok_or(named.as_str()))
}

/// Parses a time. `zone` is the zone of this machine, or the value of `TZ` that names no zone.
fn parse_at(text: &str, now: Time, zone: Result<&TimeZone, &str>) -> Result<Time, String> {
    // All other parsers ignore a zone in brackets.
    if text.contains('[') {
        let zoned = text.parse::<Zoned>();
        let time = zoned.map(|zoned| Time(zoned.timestamp().as_microsecond()));
        return time.map_err(|error| format!("`{text}` is no time: {error}; write {FORMS}"));
    }

    if let Some(time) = Time::parse(text) {
        return Ok(time);
    }

    if let Some(ago) = ago(text) {
        let micros = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
        return Ok(Time(now.0.saturating_sub(micros)));
    }

    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    let zone = match (&local, zone) {
        (Ok(_), Err(named)) if !named.is_empty() => {
            return Err(format!(
                "`{text}` states no time zone, and TZ=`{named}` names none; correct TZ, or state \
                 the zone, as in 2026-11-20T10:00:00Z"
            ));
        }
        (_, zone) => zone.cloned().unwrap_or(TimeZone::UTC),
    };
    let zoned = local.ok().and_then(|local| local.to_zoned(zone).ok());
    let time = zoned.map(|zoned| Time(zoned.timestamp().as_microsecond()));
    time.ok_or_else(|| format!("`{text}` is no time; write {FORMS}"))
}

/// Parses a duration with its unit, such as `15m` or `2h ago`. Returns `None` for any other text.
fn ago(text: &str) -> Option<Duration> {
    let unit = text.strip_suffix(" ago").unwrap_or(text);
    let digits = unit.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let seconds = match unit.get(digits.len()..)?.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    digits.parse::<u64>().ok().map(|number| Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_time_is_read() {
        let now = Time::parse("2026-11-20T12:00:00Z").unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let cases = [
            ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z"),
            ("2026-11-20T10:00:00+01:00", "2026-11-20T09:00:00Z"),
            ("2026-11-20", "2026-11-19T22:00:00Z"),
            ("2026-11-20T10:00", "2026-11-20T08:00:00Z"),
            ("2026-11-20 10:00:30", "2026-11-20T08:00:30Z"),
            ("2026-11-28T03:44:00[America/New_York]", "2026-11-28T08:44:00Z"),
            ("2026-11-28T03:44[Asia/Tokyo]", "2026-11-27T18:44:00Z"),
            ("2026-11-28T03:44:00-05:00[America/New_York]", "2026-11-28T08:44:00Z"),
            ("2026-11-28T03:44:00Z[America/New_York]", "2026-11-28T03:44:00Z"),
            ("30s", "2026-11-20T11:59:30Z"),
            ("15m", "2026-11-20T11:45:00Z"),
            ("2h ago", "2026-11-20T10:00:00Z"),
            ("1 d", "2026-11-19T12:00:00Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_at(text, now, Ok(&zone)),
                Ok(Time::parse(expected).unwrap()),
                "{text}"
            );
        }

        let wrong_zones = [
            "2026-11-28T03:44:00[Mars/Olympus]",
            "2026-11-28T03:44:00+09:00[America/New_York]",
            "2026-11-28T03:44:00[",
        ];
        let wrong = ["", "yesterdayish", "2026-13-01", "5", "5y", "-2h", "h"];
        for text in wrong.into_iter().chain(wrong_zones) {
            let refused = parse_at(text, now, Ok(&zone)).unwrap_err();
            assert!(refused.contains(text) && refused.contains(FORMS), "{refused}");
        }
    }

    #[test]
    fn a_zone_that_does_not_exist_is_refused_where_a_time_needs_it() {
        let now = Time::parse("2026-11-20T12:00:00Z").unwrap();
        for text in ["2026-11-20", "2026-11-20T10:00"] {
            let refused = parse_at(text, now, Err("Europe/Berln")).unwrap_err();
            assert!(refused.contains("TZ=`Europe/Berln`"), "{refused}");
        }
        for text in ["15m", "2026-11-20T10:00:00Z", "2026-11-28T03:44[Asia/Tokyo]"] {
            assert!(parse_at(text, now, Err("Europe/Berln")).is_ok(), "{text}");
        }
        assert_eq!(
            parse_at("2026-11-20", now, Err("")),
            Ok(Time::parse("2026-11-20T00:00:00Z").unwrap())
        );
    }
}
