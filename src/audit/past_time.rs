//! Parses points of time in the past, in the forms in which people write them.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

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

/// Returns the error of [`parse`] for a text that begins like a date. Returns `None` for any other
/// text, and for a text that is a time.
pub fn reason_for_date(text: &str) -> Option<String> {
    begins_with_date(text).then(|| parse(text).err()).flatten()
}

/// Parses a time. `zone` is the zone of this machine or, as an error, the value of `TZ` if this
/// value names no zone.
fn parse_at(text: &str, now: Time, zone: Result<&TimeZone, &str>) -> Result<Time, String> {
    // All other parsers ignore a zone in brackets.
    if text.contains('[') {
        return time_of(text, text.parse());
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
    time_of(text, local.and_then(|local| local.to_zoned(zone)))
}

/// Returns the time of `zoned`, which was parsed from `text`. A date after the last time that this
/// program can represent becomes this last time.
fn time_of(text: &str, zoned: Result<Zoned, jiff::Error>) -> Result<Time, String> {
    let date = Pieces::parse(text).map(|pieces| pieces.date());
    let last = Timestamp::MAX;
    match zoned {
        Ok(zoned) => Ok(Time(zoned.timestamp().as_microsecond())),
        Err(_) if date.is_ok_and(|date| date >= last.to_zoned(TimeZone::UTC).date()) => {
            Ok(Time(last.as_microsecond()))
        }
        Err(error) if begins_with_date(text) => {
            Err(format!("`{text}` is no time: {error}; write {FORMS}"))
        }
        Err(_) => Err(format!("`{text}` is no time; write {FORMS}")),
    }
}

/// Whether a text begins like a date, such as `2023-02-29`. If so, the parser's error explains the
/// mistake, and the message for the user quotes this error.
fn begins_with_date(text: &str) -> bool {
    text.get(..10).is_some_and(|date| {
        let mut characters = date.char_indices();
        characters.all(|(at, c)| if at == 4 || at == 7 { c == '-' } else { c.is_ascii_digit() })
    })
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
    fn a_date_beyond_every_time_is_the_last_time_and_a_day_that_does_not_exist_is_named() {
        let now = Time::parse("2026-11-20T12:00:00Z").unwrap();
        let last = Time(Timestamp::MAX.as_microsecond());
        let parse = |text| parse_at(text, now, Ok(&TimeZone::UTC));
        for text in ["9999-12-31", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59+01:00"] {
            assert_eq!(parse(text), Ok(last), "{text}");
        }
        assert_eq!(parse("9999-12-31T23:59[Asia/Tokyo]"), Ok(last));
        assert_eq!(parse("9999-12-30"), Ok(Time::parse("9999-12-30T00:00:00Z").unwrap()));

        for text in ["2023-02-29", "2023-02-29T10:00:00Z", "2023-02-29T10:00"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("day") && refused.contains(FORMS), "{refused}");
        }
        let expected = format!("`yesterdayish` is no time; write {FORMS}");
        assert_eq!(parse("yesterdayish").unwrap_err(), expected);
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
