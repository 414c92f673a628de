//! Writes dates, times and durations for examples, and compares such values.

use std::cmp::Ordering;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

use super::model::ValueFacets;

/// Smallest and largest number of each field of a date and time. The largest day is 28, which every
/// month has.
const FIELDS: [(u32, u32); 6] = [(1, 9999), (1, 12), (1, 28), (0, 23), (0, 59), (0, 59)];

/// Returns an example value of a built-in XSD type for dates, times or durations, such as
/// `2026-01-31` for `date`. Returns `None` for any other type.
pub fn usual(builtin: &str) -> Option<&'static str> {
    all_usual(builtin).first().copied()
}

/// Returns common texts of a built-in type for dates, times or durations. Empty for any other type.
fn all_usual(builtin: &str) -> &'static [&'static str] {
    match builtin {
        "date" => &["2026-01-31", "2026-01-31Z", "2026-01-31+00:00"],
        "time" => &["12:00:00", "12:00:00Z", "12:00:00+00:00", "12:00:00.000", "12:00:00.000Z"],
        "dateTime" => &[
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00+00:00",
            "2026-01-31T12:00:00-00:00",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00.000Z",
            "2026-01-31T12:00:00.000+00:00",
            "2026-01-31T12:00:00.000",
        ],
        "gYear" => &["2026", "2026Z"],
        "gYearMonth" => &["2026-01", "2026-01Z"],
        "gMonthDay" => &["--01-31", "--01-31Z"],
        "gMonth" => &["--01", "--01Z"],
        "gDay" => &["---31", "---31Z"],
        "duration" => &["PT30S", "PT1M", "PT1H", "P1D", "P1M", "P1Y"],
        _ => &[],
    }
}

/// Returns texts that may fit the facets of a type for dates, times or durations: its inclusive
/// bounds, common texts, and texts just above or below its bounds. Empty for any other type.
pub fn candidates(builtin: &str, facets: &ValueFacets) -> Vec<String> {
    let usual = all_usual(builtin);
    if usual.is_empty() {
        return Vec::new();
    }

    let inclusive = [&facets.min_inclusive, &facets.max_inclusive];
    let exclusive = [&facets.min_exclusive, &facets.max_exclusive];
    let inclusive: Vec<&str> = inclusive.into_iter().flatten().map(|b| b.trim()).collect();
    let exclusive: Vec<&str> = exclusive.into_iter().flatten().map(|b| b.trim()).collect();
    let beside = inclusive.iter().chain(&exclusive).flat_map(|bound| beside(builtin, bound));
    let known = inclusive.iter().chain(usual).map(|text| (*text).to_owned());
    known.chain(beside).collect()
}

/// Returns variants of the example values of a built-in type for dates, times or durations. In each
/// variant, one number of an example value, such as the day, is one higher or one lower. The
/// variants are used if no text from [`candidates`] fits the facets of a type.
pub fn unusual(builtin: &str) -> Vec<String> {
    all_usual(builtin).iter().flat_map(|text| beside(builtin, text)).collect()
}

/// Returns variants of the date, time or duration `text`. In each of them, one number of `text`,
/// such as the day, is one higher or one lower. Variants of the last number come first.
fn beside(builtin: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, (start, digits)) in numbers(text).into_iter().enumerate().rev() {
        let bounds = match builtin {
            "duration" => Some((0, u32::MAX)),
            // The numbers after the fields belong to the time zone.
            _ => FIELDS.get(first_field(builtin) + index).copied(),
        };
        let number = text.get(start..start + digits).and_then(|digits| digits.parse::<u32>().ok());
        let (Some((low, high)), Some(number)) = (bounds, number) else { continue };
        for other in [number.checked_add(1), number.checked_sub(1)].into_iter().flatten() {
            if (low..=high).contains(&other) {
                let before = text.get(..start).unwrap_or_default();
                let after = text.get(start + digits..).unwrap_or_default();
                found.push(format!("{before}{other:0digits$}{after}"));
            }
        }
    }

    found
}

/// Returns the start and length of each number in a text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (at, _) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()) {
        match found.last_mut() {
            Some((start, length)) if *start + *length == at => *length += 1,
            _ => found.push((at, 1)),
        }
    }
    found
}

/// Returns the order of two texts of a built-in type. Returns `None` if the type has no order, or
/// if the order depends on an unknown time zone or on the length of a month.
pub fn order(builtin: &str, a: &str, b: &str) -> Option<Ordering> {
    if !has_times(builtin) {
        return None;
    }

    if builtin == "duration" {
        let [a, b] = [MonthsAndSeconds::read(a)?, MonthsAndSeconds::read(b)?];
        return a.order(&b);
    }

    let [(a, zone_of_a), (b, zone_of_b)] = [moment(builtin, a)?, moment(builtin, b)?];
    let in_utc = |moment: DateTime, minutes: i32| {
        moment.checked_sub(SignedDuration::from_secs(60 * i64::from(minutes))).ok()
    };
    // A time without a zone may be in any zone from 14 hours before UTC to 14 hours after it.
    let zones = |zone: Option<i32>| zone.map_or([-14 * 60, 14 * 60], |zone| [zone, zone]);
    let orders = match (zone_of_a, zone_of_b) {
        (None, None) => return Some(a.cmp(&b)),
        _ => zones(zone_of_a).into_iter().zip(zones(zone_of_b)),
    };
    let orders = orders.map(|(of_a, of_b)| Some(in_utc(a, of_a)?.cmp(&in_utc(b, of_b)?)));
    let orders = orders.collect::<Option<Vec<_>>>()?;
    let first = *orders.first()?;
    orders.iter().all(|order| *order == first).then_some(first)
}

/// Whether a built-in type contains dates, times or durations.
pub fn has_times(builtin: &str) -> bool {
    !all_usual(builtin).is_empty()
}

/// Parses a date or a time. Also returns the UTC offset in minutes, if the text states one. If the
/// type lacks a field, such as the year of a time, the field is taken from 1 January 2000,
/// 00:00:00. Returns `None` for an invalid text.
fn moment(builtin: &str, text: &str) -> Option<(DateTime, Option<i32>)> {
    let (local, zone) = split_zone(text.trim())?;
    let (is_before_christ, local) = match local.strip_prefix('-') {
        Some(rest) if first_field(builtin) == 0 => (true, rest),
        _ => (false, local),
    };
    let (whole, fraction) = local.split_once('.').unwrap_or((local, ""));
    let mut fields = [2000, 1, 1, 0, 0, 0];
    for (index, (start, digits)) in numbers(whole).into_iter().enumerate() {
        let field = fields.get_mut(first_field(builtin) + index)?;
        *field = whole.get(start..start + digits)?.parse::<i32>().ok()?;
    }

    let [year, month, day, hour, minute, second] = fields;
    let year = i16::try_from(if is_before_christ { -year } else { year }).ok()?;
    let small = |number: i32| i8::try_from(number).ok();
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse::<i32>().ok()?;
    let date = Date::new(year, small(month)?, small(day)?).ok()?;
    let time = Time::new(small(hour)?, small(minute)?, small(second)?, nanoseconds).ok()?;
    Some((DateTime::from_parts(date, time), zone))
}

/// Returns the index in [`FIELDS`] of the first field that texts of the built-in type contain.
fn first_field(builtin: &str) -> usize {
    match builtin {
        "gMonthDay" | "gMonth" => 1,
        "gDay" => 2,
        "time" => 3,
        _ => 0,
    }
}

/// Splits the text of a date or time. Returns the part before the time zone, and the UTC offset in
/// minutes, if the text states one. Returns `None` if the offset is invalid.
fn split_zone(text: &str) -> Option<(&str, Option<i32>)> {
    if let Some(local) = text.strip_suffix('Z') {
        return Some((local, Some(0)));
    }

    let at = text.len().checked_sub(6).filter(|at| text.is_char_boundary(*at));
    let Some((local, zone)) = at.and_then(|at| text.split_at_checked(at)) else {
        return Some((text, None));
    };
    let Some((hours, minutes)) = zone.split_once(':').filter(|_| zone.starts_with(['+', '-']))
    else {
        return Some((text, None));
    };

    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let hours = hours.get(1..)?.parse::<i32>().ok()?;
    let minutes = minutes.parse::<i32>().ok()?;
    Some((local, Some(sign * (60 * hours + minutes))))
}

/// A duration in months and seconds. The two parts are separate, because a month has no fixed
/// number of seconds.
struct MonthsAndSeconds {
    months: f64,
    seconds: f64,
}

impl MonthsAndSeconds {
    fn read(text: &str) -> Option<Self> {
        let (sign, text) = match text.trim().strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text.trim()),
        };

        let text = text.strip_prefix('P')?;
        let (days, times) = text.split_once('T').unwrap_or((text, ""));
        let count = |part: &str, unit: char| {
            let (before, _) = part.split_once(unit)?;
            let digits = before.rsplit(|c: char| c.is_ascii_alphabetic()).next()?;
            digits.parse::<f64>().ok()
        };
        let count = |part: &str, unit: char| count(part, unit).unwrap_or_default();
        let months = 12.0 * count(days, 'Y') + count(days, 'M');
        let hours = 24.0 * count(days, 'D') + count(times, 'H');
        let seconds = 3_600.0 * hours + 60.0 * count(times, 'M') + count(times, 'S');
        Some(Self { months: sign * months, seconds: sign * seconds })
    }

    /// Compares two durations. Returns an order only if it is the same whether a month has 28 or 31
    /// days.
    fn order(&self, other: &Self) -> Option<Ordering> {
        let difference = |days: f64| {
            let months = self.months - other.months;
            months * days * 86_400.0 + self.seconds - other.seconds
        };
        let order = difference(28.0).partial_cmp(&0.0)?;
        (difference(31.0).partial_cmp(&0.0)? == order).then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered_with_zones_and_fractions() {
        let cases = [
            ("time", "12:00:00.000", "12:00:00", Some(Ordering::Equal)),
            ("time", "12:00:00Z", "13:00:00+02:00", Some(Ordering::Greater)),
            ("time", "12:00:00Z", "12:00:00", None),
            ("dateTime", "2026-02-01T02:00:01Z", "2026-01-31T12:00:00", Some(Ordering::Greater)),
            ("dateTime", "2026-02-01T01:59:59Z", "2026-01-31T12:00:00", None),
            ("time", "01:00:00+02:00", "00:00:00Z", Some(Ordering::Less)),
            ("dateTime", "2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00Z", Some(Ordering::Greater)),
            ("date", "-0044-03-15", "2026-01-31", Some(Ordering::Less)),
            ("date", "2026-01-31-05:00", "2026-01-31Z", Some(Ordering::Greater)),
            ("gYear", "2026", "987", Some(Ordering::Greater)),
            ("gMonthDay", "--02-29", "--03-01", Some(Ordering::Less)),
            ("gDay", "---31", "---09", Some(Ordering::Greater)),
            ("duration", "PT60S", "PT1M", Some(Ordering::Equal)),
            ("duration", "P1M", "P30D", None),
            ("duration", "P1M", "P27D", Some(Ordering::Greater)),
            ("duration", "P1Y", "P12M", Some(Ordering::Equal)),
            ("duration", "-P1D", "PT1H", Some(Ordering::Less)),
            ("string", "a", "b", None),
        ];
        for (builtin, a, b, expected) in cases {
            assert_eq!(order(builtin, a, b), expected, "{builtin} {a} {b}");
            let reverse = expected.map(Ordering::reverse);
            assert_eq!(order(builtin, b, a), reverse, "{builtin} {b} {a}");
        }
    }
}
