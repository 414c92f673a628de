//! Generates values of simple types for examples.

use std::cmp::Ordering;

use super::model::AnnotationText;
use super::outline::SimpleTypeOutline;
use super::pattern;
use super::sample_time;

/// Generates a text that should be valid for a simple type. Examples in the schema are preferred.
/// Different values of `attempt` give different texts, as far as possible.
pub fn value(
    value: &SimpleTypeOutline,
    notes: &AnnotationText,
    name: &str,
    attempt: usize,
) -> String {
    let offered = notes.examples.iter().chain(&value.notes.examples);
    if let Some(example) = offered.filter(|e| !e.starts_with('<')).nth(attempt) {
        return example.clone();
    }

    if let Some(item) = &value.list_of {
        let facets = &value.facets;
        let times = facets.length.or(facets.min_length).unwrap_or(1).max(1);
        let one = self::value(item, &AnnotationText::default(), name, attempt);
        let times = usize::try_from(times).unwrap_or(1).min(1_000);
        return vec![one; times].join(" ");
    }

    let choices = value.choices();
    if let Some(choice) = choices.get(attempt % choices.len().max(1)) {
        return choice.value.clone();
    }

    if !value.union_of.is_empty() {
        let member = value.union_of.get(attempt % value.union_of.len());
        return member.map(|m| self::value(m, notes, name, attempt)).unwrap_or_default();
    }

    if let Some(text) = usual_text(value, attempt).or_else(|| patterned(value, attempt)) {
        return text;
    }

    plain(value, name, attempt)
}

/// Whether a text is within the bounds of a type, and matches a pattern of each derivation step. An
/// unsupported pattern counts as matched.
fn fits(value: &SimpleTypeOutline, text: &str) -> bool {
    let matches = |pattern: &String| pattern::matches(pattern, text).unwrap_or(true);
    value.pattern_steps.iter().all(|step| step.iter().any(matches)) && is_within(value, text)
}

/// Whether a number, date, time or duration is within the bounds of its type.
fn is_within(value: &SimpleTypeOutline, text: &str) -> bool {
    let facets = &value.facets;
    let is = |bound: &Option<String>, wanted: &[Ordering]| {
        let Some(bound) = bound else { return true };
        match order(&value.builtin, text, bound.trim()) {
            Some(order) => wanted.contains(&order),
            // The gate refuses a time that cannot be compared with its bound.
            None => !sample_time::has_times(&value.builtin),
        }
    };

    is(&facets.min_inclusive, &[Ordering::Greater, Ordering::Equal])
        && is(&facets.max_inclusive, &[Ordering::Less, Ordering::Equal])
        && is(&facets.min_exclusive, &[Ordering::Greater])
        && is(&facets.max_exclusive, &[Ordering::Less])
}

fn order(builtin: &str, a: &str, b: &str) -> Option<Ordering> {
    if sample_time::has_times(builtin) {
        return sample_time::order(builtin, a, b);
    }

    let number = |text: &str| text.parse::<f64>().ok();
    number(a)?.partial_cmp(&number(b)?)
}

/// Returns a text that fits the facets of the type, as an example in prose. Returns `None` if no
/// such text is found.
pub fn fitting(value: &SimpleTypeOutline) -> Option<String> {
    let text = self::value(value, &AnnotationText::default(), "", 0);
    fits(value, &text).then_some(text)
}

/// Returns a common text of a built-in type that fits the facets. Covers only types with patterns,
/// and types for dates, times or durations. Returns `None` for any other type, or if no common text
/// fits: the caller then generates a text in another way.
fn usual_text(value: &SimpleTypeOutline, attempt: usize) -> Option<String> {
    let texts: &[&str] = match value.builtin.as_str() {
        _ if value.pattern_steps.is_empty() => &[],
        "boolean" => &["true", "false", "1", "0"],
        "decimal" | "float" | "double" => &["1.5", "1", "1.50", "0.5", "10", "100", "-1.5"],
        "anyURI" => &["https://example.org/", "urn:example:a", "http://example.org/"],
        _ => &[],
    };

    let mut texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    texts.extend(sample_time::candidates(&value.builtin, &value.facets));
    texts.retain(|text| fits(value, text));
    if texts.is_empty() {
        texts = sample_time::unusual(&value.builtin);
        texts.retain(|text| fits(value, text));
    }
    let count = texts.len();
    Some(texts.swap_remove(attempt.checked_rem(count)?))
}

/// Returns a text that matches the type's patterns and has a permitted length. Generates texts from
/// the patterns of the last derivation step, and keeps those that also match a pattern of every
/// other step. Returns `None` if no such text is found.
fn patterned(value: &SimpleTypeOutline, attempt: usize) -> Option<String> {
    let patterns = value.pattern_steps.last()?;
    let facets = &value.facets;
    let low = facets.length.or(facets.min_length).unwrap_or(0);
    let high = facets.length.or(facets.max_length).unwrap_or(u64::MAX);
    let fits = |text: &String| {
        let length = text.chars().count() as u64;
        (low..=high).contains(&length) && fits(value, text)
    };

    let wishes = [3, 1, 0, 2, 4, 8, usize::try_from(low).unwrap_or(0)];
    let mut samples = Vec::new();

    for pattern in patterns {
        for wish in wishes {
            samples.extend(pattern::sample(pattern, wish).filter(fits));
        }
    }

    samples.dedup();
    let count = samples.len();
    (count > 0).then(|| samples.swap_remove(attempt % count))
}

fn plain(value: &SimpleTypeOutline, name: &str, attempt: usize) -> String {
    if let Some(usual) = sample_time::usual(&value.builtin) {
        return usual.to_owned();
    }

    match value.builtin.as_str() {
        "boolean" => "true".to_owned(),
        "decimal" | "float" | "double" => number(value, "1.5"),
        "int" | "integer" | "long" | "short" | "byte" | "positiveInteger"
        | "nonNegativeInteger" | "unsignedInt" | "unsignedLong" | "unsignedShort"
        | "unsignedByte" => number(value, "1"),
        "negativeInteger" | "nonPositiveInteger" => number(value, "-1"),
        "anyURI" => lengthened(value, "https://example.org/", "a"),
        "base64Binary" => bytes(value, "AAAA", 3, "b3JnYW5pc20="),
        "hexBinary" => bytes(value, "00", 1, "00ff"),
        "language" => "en".to_owned(),
        "NMTOKEN" | "Name" | "NCName" | "ENTITY" | "QName" | "NOTATION" => {
            lengthened(value, name, "a")
        }
        "ID" | "IDREF" => format!("id{}", attempt + 1),
        _ => lengthened(value, name, "a"),
    }
}

/// Returns a number within the bounds of the type, near `usual`.
fn number(value: &SimpleTypeOutline, usual: &str) -> String {
    let facets = &value.facets;
    let read = |bound: &Option<String>| bound.as_ref().and_then(|b| b.trim().parse::<f64>().ok());
    let usual_number: f64 = usual.parse().unwrap_or(1.0);
    let low = read(&facets.min_inclusive);
    let high = read(&facets.max_inclusive);
    let above = read(&facets.min_exclusive);
    let below = read(&facets.max_exclusive);
    let good = |n: f64| {
        low.is_none_or(|b| n >= b)
            && high.is_none_or(|b| n <= b)
            && above.is_none_or(|b| n > b)
            && below.is_none_or(|b| n < b)
    };

    let whole = usual_number.fract() == 0.0 || facets.fraction_digits == Some(0);
    let usual_number = if whole { usual_number.trunc() } else { usual_number };
    if good(usual_number) {
        return if whole { format!("{usual_number:.0}") } else { usual.to_owned() };
    }

    if let Some(bound) = facets.min_inclusive.as_ref().or(facets.max_inclusive.as_ref()) {
        return bound.trim().to_owned();
    }

    let halfway = match (above, below) {
        (Some(a), Some(b)) => f64::midpoint(a, b),
        _ => 0.0,
    };

    let tries = [above.map(|b| b + 1.0), below.map(|b| b - 1.0), Some(halfway)];
    let found = tries.into_iter().flatten().find(|n| good(*n)).unwrap_or(usual_number);
    if found.fract() == 0.0 { format!("{found:.0}") } else { found.to_string() }
}

/// Shortens `usual`, or lengthens it with `filler`, until its length fits the facets of the type.
fn lengthened(value: &SimpleTypeOutline, usual: &str, filler: &str) -> String {
    let facets = &value.facets;
    let count = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
    let low = count(facets.length.or(facets.min_length)).unwrap_or(0).min(100_000);
    let high = count(facets.length.or(facets.max_length)).unwrap_or(usize::MAX);
    let mut text: String = usual.chars().take(high).collect();
    let missing = low.saturating_sub(text.chars().count());
    text.push_str(&filler.repeat(missing));
    text
}

/// Returns the text of a binary value with as many bytes as the facets of the type require.
fn bytes(value: &SimpleTypeOutline, unit: &str, unit_bytes: u64, usual: &str) -> String {
    let facets = &value.facets;
    match facets.length.or(facets.min_length).or(facets.max_length) {
        None => usual.to_owned(),
        Some(wanted) if unit_bytes == 1 => unit.repeat(usize::try_from(wanted).unwrap_or(0)),
        Some(wanted) => {
            let whole = unit.repeat(usize::try_from(wanted / unit_bytes).unwrap_or(0));
            let rest = match wanted % unit_bytes {
                1 => "AA==",
                2 => "AAA=",
                _ => "",
            };
            whole + rest
        }
    }
}
