//! Durations in the notation of the config: `500ms`, `30s`, `5m`, `1h30m`, `2d`.

use std::time::Duration;

/// Units from the shortest to the longest, each with its length in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration. Returns `None` if the text is no valid duration.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0u64;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, next) = after.split_at_checked(letters)?;
        let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*milliseconds)?)?;
        if next.is_empty() {
            return Some(Duration::from_millis(total));
        }
        rest = next;
    }
}

/// Guesses the duration that the author meant by an invalid text, such as `5m` for `5 minutess`.
/// Returns `None` if the text does not begin with a number, or if the unit after the number is
/// unknown.
pub fn guess(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, word) = text.split_at_checked(digits)?;
    let word = word.trim_start().to_ascii_lowercase();
    let unit = match word.as_str() {
        "" => "s",
        word if word.starts_with("ms") || word.starts_with("mil") => "ms",
        word => UNITS.iter().map(|(name, _)| *name).find(|name| word.starts_with(name))?,
    };

    (!number.is_empty()).then(|| format!("{number}{unit}"))
}

/// Formats a duration in the notation that [`parse`] reads.
pub fn show(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut out = String::new();
    for (name, milliseconds) in [UNITS[4], UNITS[3], UNITS[2], UNITS[1], UNITS[0]] {
        if left >= milliseconds {
            out.push_str(&format!("{}{name}", left / milliseconds));
            left %= milliseconds;
        }
    }

    if out.is_empty() { "0s".to_owned() } else { out }
}
