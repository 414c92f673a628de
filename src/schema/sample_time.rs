//! Texts of dates, times and durations for examples, and their order.

use std::cmp::Ordering;

use super::model::ValueFacets;

/// Smallest and largest number of each field of a date and time. Each month has the 28th day.
const FIELDS: [(u32, u32); 6] = [(1, 9999), (1, 12), (1, 28), (0, 23), (0, 59), (0, 59)];

/// A usual text of a date, a time or a duration.
pub fn usual(builtin: &str) -> Option<&'static str> {
    all_usual(builtin).first().copied()
}

/// Usual texts of a built-in type. Empty for a type of another kind.
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

/// Texts that may fit the facets: the inclusive bounds, usual texts, and texts beside the bounds.
/// Empty for a type of another kind.
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

/// Texts that differ from `text` by one in one field, the smallest field first.
fn beside(builtin: &str, text: &str) -> Vec<String> {
    let first = match builtin {
        "gMonthDay" | "gMonth" => 1,
        "gDay" => 2,
        "time" => 3,
        _ => 0,
    };

    let mut found = Vec::new();
    for (index, (start, digits)) in numbers(text).into_iter().enumerate().rev() {
        let bounds = match builtin {
            "duration" => Some((0, u32::MAX)),
            // What follows the fields is the time zone.
            _ => FIELDS.get(first + index).copied(),
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

/// Start and length of each number in a text.
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

/// Compares two texts of a built-in type, without their time zones. `None` for a type of another
/// kind.
pub fn order(builtin: &str, a: &str, b: &str) -> Option<Ordering> {
    if builtin == "duration" {
        return seconds(a)?.partial_cmp(&seconds(b)?);
    }

    (!all_usual(builtin).is_empty()).then(|| local(a).cmp(local(b)))
}

/// A date or time without its time zone.
fn local(text: &str) -> &str {
    let text = text.trim_end_matches('Z');
    let zone = text.len().checked_sub(6).and_then(|at| text.get(at..).map(|zone| (at, zone)));
    match zone {
        Some((at, zone)) if zone.starts_with(['+', '-']) && zone.get(3..4) == Some(":") => {
            text.get(..at).unwrap_or(text)
        }
        _ => text,
    }
}

/// The length of a duration, with months of average length.
fn seconds(text: &str) -> Option<f64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };

    let (days, times) = text.strip_prefix('P')?.split_once('T').unwrap_or((text.get(1..)?, ""));
    let units = [
        (days, 'Y', 31_556_952.0),
        (days, 'M', 2_629_746.0),
        (days, 'D', 86_400.0),
        (times, 'H', 3_600.0),
        (times, 'M', 60.0),
        (times, 'S', 1.0),
    ];
    let count = |(part, unit, length): (&str, char, f64)| {
        let (before, _) = part.split_once(unit)?;
        let digits = before.rsplit(|c: char| c.is_ascii_alphabetic()).next()?;
        Some(digits.parse::<f64>().ok()? * length)
    };
    Some(sign * units.into_iter().filter_map(count).sum::<f64>())
}
