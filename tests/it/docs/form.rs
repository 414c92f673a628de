//! Compares outputs exactly, except for values that differ in each run, such as ids and times. For
//! such a value, only the form is compared. An id that the page repeats must also be repeated in
//! the output.

use std::collections::HashMap;

/// A line in which a placeholder replaces each value, and the ids of the line in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MaskedLine {
    text: String,
    ids: Vec<String>,
}

/// Kind of a value that is compared by form.
enum Value {
    Id,
    Time,
    Duration,
    Count,
    /// A path, of which only the last component is compared.
    Path,
}

/// How outputs are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Whether the order of the lines is ignored, because concurrent tasks write the lines.
    pub any_order: bool,
    /// Whether line breaks are ignored, because the lengths of paths decide where lines break.
    pub wrapped: bool,
}

/// The ids of a page, with the ids of the run that correspond to them.
#[derive(Debug, Default)]
pub struct KnownIds {
    runs: HashMap<String, String>,
    pages: HashMap<String, String>,
}

/// Length of the longest prefix of a text whose characters all fulfil `fits`.
fn length(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|c| !fits(c)).unwrap_or(text.len())
}

fn is_hex(c: char) -> bool {
    matches!(c, '0'..='9' | 'a'..='f')
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Length of the prefix that matches a pattern, in which `9` stands for any digit; `None` if the
/// text has no such prefix.
fn shaped(text: &str, pattern: &str) -> Option<usize> {
    let mut rest = text.chars();
    for expected in pattern.chars() {
        let found = rest.next()?;
        let fits = if expected == '9' { is_digit(found) } else { found == expected };
        if !fits {
            return None;
        }
    }
    Some(pattern.len())
}

fn time(text: &str) -> Option<usize> {
    let stamp = shaped(text, "9999-99-99T99:99:99").map(|length| {
        let rest = &text[length..];
        length + self::length(rest, |c| is_digit(c) || matches!(c, '.' | 'Z'))
    });
    let short = || shaped(text, "99-99 99:99");
    let clock = || shaped(text, "99:99:99");
    let date = || shaped(text, "9999-99-99");
    stamp.or_else(short).or_else(clock).or_else(date)
}

fn id(text: &str) -> Option<usize> {
    if let Some(label) = text.strip_prefix("sess-") {
        let length = length(label, |c| c.is_ascii_lowercase() || is_digit(c));
        let is_own = &label[..length] != "organism" && length >= 8;
        return is_own.then_some(5 + length);
    }

    let uuid = length(text, |c| is_hex(c) || c == '-');
    if uuid == 36 && text[..36].matches('-').count() == 4 {
        return Some(36);
    }
    let hex = length(text, is_hex);
    let is_word_end = !text[hex..].starts_with(|c: char| c.is_alphanumeric());
    (hex >= 8 && is_word_end).then_some(hex)
}

/// Length of a number, and whether it has decimals.
fn number(text: &str) -> Option<(usize, bool)> {
    let whole = length(text, is_digit);
    let decimals = text[whole..].strip_prefix('.').map_or(0, |rest| length(rest, is_digit));
    let end = if decimals > 0 { whole + 1 + decimals } else { whole };
    (whole > 0).then_some((end, decimals > 0))
}

/// Length of a duration in two units: `2 min 3 s`, `1 h 4 min`.
fn long_duration(text: &str) -> Option<usize> {
    let first = length(text, is_digit);
    let (unit, smaller) = [(" min ", " s"), (" h ", " min")]
        .into_iter()
        .find(|(unit, _)| first > 0 && text[first..].starts_with(unit))?;
    let start = first + unit.len();
    let second = length(&text[start..], is_digit);
    let end = start + second;
    let is_whole = second > 0 && text[end..].starts_with(smaller);
    is_whole.then_some(end + smaller.len())
}

fn duration(text: &str) -> Option<usize> {
    if let Some(end) = long_duration(text) {
        return Some(end);
    }
    let sign = usize::from(text.starts_with('+'));
    let (end, has_decimals) = number(&text[sign..])?;
    let end = sign + end;
    let units: &[&str] = if has_decimals { &["s", " s", " min"] } else { &[" ms"] };
    let unit = units.iter().find(|unit| text[end..].starts_with(**unit))?;
    let end = end + unit.len();
    let is_word_end = !text[end..].starts_with(|c: char| c.is_alphanumeric());
    is_word_end.then_some(end)
}

/// Returns the length of a number of tokens or records, or of a sum of two such numbers. The words
/// after the number do not count.
fn count(text: &str) -> Option<usize> {
    let (first, _) = number(text)?;
    let both = text[first..].strip_prefix(" + ").and_then(|rest| {
        let (second, _) = number(rest)?;
        Some(first + 3 + second)
    });
    let end = both.unwrap_or(first);
    let rest = &text[end..];
    let nouns = [
        " tokens",
        " of prompt",
        " of the",
        " in ",
        " blobs",
        " checkpoints",
        ", those",
        ": payload",
        ", by a copy",
    ];
    nouns.iter().any(|noun| rest.starts_with(noun)).then_some(end)
}

fn path(text: &str) -> Option<usize> {
    let starts = text.starts_with('/') || text.starts_with("…/");
    let end = length(text, |c| !c.is_whitespace() && !matches!(c, ';' | ',' | ')' | '`'));
    let is_deep = text.starts_with('…') || text[..end].matches('/').count() > 1;
    (starts && is_deep).then_some(end)
}

/// The value at the start of a text, and its length.
fn value(text: &str, is_after_space: bool) -> Option<(Value, usize)> {
    if is_after_space && let Some(end) = path(text) {
        return Some((Value::Path, end));
    }
    if let Some(end) = time(text) {
        return Some((Value::Time, end));
    }
    if let Some(end) = id(text) {
        return Some((Value::Id, end));
    }
    if let Some(end) = duration(text) {
        return Some((Value::Duration, end));
    }
    count(text).map(|end| (Value::Count, end))
}

/// Calls `found` for each value of a line, and `other` for each character between values.
fn scan(line: &str, mut found: impl FnMut(Value, &str), mut other: impl FnMut(char)) {
    let mut rest = line;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let is_start = !before.is_alphanumeric();
        let is_after_space = before.is_whitespace() || before == '(';
        match value(rest, is_after_space).filter(|_| is_start) {
            Some((value, end)) => {
                found(value, &rest[..end]);
                before = 'x';
                rest = &rest[end..];
            }
            None => {
                other(next);
                before = next;
                rest = &rest[next.len_utf8()..];
            }
        }
    }
}

fn mask(line: &str) -> MaskedLine {
    let text = std::cell::RefCell::new(String::new());
    let mut ids = Vec::new();
    let found = |value, shown: &str| {
        let mark = match value {
            Value::Id => {
                ids.push(shown.to_owned());
                "ID".to_owned()
            }
            Value::Time => "TIME".to_owned(),
            Value::Duration => "DURATION".to_owned(),
            Value::Count => "COUNT".to_owned(),
            Value::Path => {
                let last = mask(shown.rsplit('/').next().unwrap_or_default());
                ids.extend(last.ids);
                format!("PATH/{}", last.text)
            }
        };
        text.borrow_mut().push_str(&mark);
    };
    scan(line, found, |c| text.borrow_mut().push(c));

    // Columns are as wide as their values, and the system names the user and the host.
    let mut text = text.into_inner();
    if let (Some(start), true) = (text.find("by operator: "), text.contains(", uid ")) {
        text.truncate(start);
        text.push_str("by operator: USER");
    }
    let words: Vec<_> = text.split_whitespace().collect();
    let indent = if text.starts_with(' ') { " " } else { "" };
    MaskedLine { text: format!("{indent}{}", words.join(" ")), ids }
}

fn masked(output: &str, comparison: Comparison) -> Vec<MaskedLine> {
    let mut lines: Vec<_> = output.lines().map(mask).collect();
    if comparison.any_order {
        lines.sort();
    }
    if comparison.wrapped {
        let words: Vec<_> = lines.iter().flat_map(|line| line.text.split_whitespace()).collect();
        let text = words.join(" ");
        let ids = lines.iter().flat_map(|line| line.ids.clone()).collect();
        return vec![MaskedLine { text, ids }];
    }
    lines
}

impl KnownIds {
    /// Compares the output on a page with the output of a run. Returns the first difference.
    pub fn compare(&mut self, page: &str, run: &str, comparison: Comparison) -> Result<(), String> {
        let expected = masked(page, comparison);
        let found = masked(run, comparison);
        let texts =
            |lines: &[MaskedLine]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        if texts(&expected) != texts(&found) {
            let is_different = |(a, b): &(&MaskedLine, &MaskedLine)| a.text != b.text;
            let pair = expected.iter().zip(&found).find(is_different);
            let first = pair.map_or_else(
                || format!("{} lines and {}", expected.len(), found.len()),
                |(page, run)| format!("`{}` and `{}`", page.text, run.text),
            );
            return Err(format!("differ first in {first}"));
        }

        let ids = |lines: &[MaskedLine]| {
            lines.iter().flat_map(|line| line.ids.clone()).collect::<Vec<_>>()
        };
        let pairs: Vec<_> = ids(&expected).into_iter().zip(ids(&found)).collect();
        let wrong = pairs.iter().find(|(page, run)| {
            let other_run = self.runs.get(page).is_some_and(|known| known != run);
            let other_page = self.pages.get(run).is_some_and(|known| known != page);
            other_run || other_page
        });
        if let Some((page, run)) = wrong {
            return Err(format!("the id `{page}` stands for another one than `{run}` elsewhere"));
        }
        for (page, run) in pairs {
            self.pages.insert(run.clone(), page.clone());
            self.runs.insert(page, run);
        }
        Ok(())
    }

    /// A command of the page, in which the ids of the run replace the ids of the page.
    pub fn in_run(&self, command: &str) -> String {
        replaced(command, &self.runs)
    }

    /// An output of the run, in which the ids of the page replace the ids of the run.
    pub fn on_page(&self, output: &str) -> String {
        replaced(output, &self.pages)
    }
}

fn replaced(text: &str, ids: &HashMap<String, String>) -> String {
    let written = std::cell::RefCell::new(String::new());
    let found = |value, shown: &str| {
        let same = match (value, shown.rsplit_once('/')) {
            (Value::Path, Some((folder, last))) => format!("{folder}/{}", replaced(last, ids)),
            _ => ids.get(shown).map_or(shown, String::as_str).to_owned(),
        };
        written.borrow_mut().push_str(&same);
    };
    scan(text, found, |c| written.borrow_mut().push(c));
    written.into_inner()
}

#[track_caller]
fn assert_same(page: &str, run: &str) {
    KnownIds::default().compare(page, run, Comparison::default()).unwrap();
}

fn is_same(page: &str, run: &str) -> bool {
    KnownIds::default().compare(page, run, Comparison::default()).is_ok()
}

#[test]
fn ids_times_durations_counts_and_folders_are_compared_by_form() {
    assert_same("thread sess-k3v9t2m8.price", "thread sess-aaaaaaaa.price");
    assert_same("  +0.017s  a → b  reply  1.2 s", "  +12.250s  a → b  reply   11.0 s");
    assert_same("reply  1.2 s", "reply  2 min 3 s");
    assert_same("reply  1.2 s  4 tokens", "reply  1 h 4 min  4 tokens");
    assert_same("1209 + 18 tokens  4 ms", "998 + 9 tokens  321 ms");
    assert_same("since 2026-11-23T01:37:28.820317Z", "since 2027-01-01T00:00:00.1Z");
    assert_same(
        "approve 7b23e242-2ad4-5e7f-9bc9-09bb0a1cb1ca --hash 512dbda144602f49",
        "approve 4c390b11-11d5-5eb2-99d9-62618d083ad5 --hash aaaaaaaaaaaaaaaa",
    );
    assert_same("journal  …/shop-177e1bdb", "journal /x/y/shop-00000000");
}

#[test]
fn everything_else_is_compared_exactly() {
    assert!(!is_same("12 boxes", "13 boxes"));
    assert!(!is_same("thread sess-k3v9t2m8.price", "thread sess-k3v9t2m8.stock"));
    assert!(!is_same("sess-organism", "sess-k3v9t2m8"));
    assert!(!is_same("plays /x/y/turns.toml", "plays /x/y/other.toml"));
    assert!(!is_same("one line", "one line\nand another"));
    assert!(!is_same("completed  0.1 s", "failed  0.1 s"));
}

#[test]
fn an_id_recurs_where_it_recurs_on_the_page() {
    let mut ids = KnownIds::default();
    let exact = Comparison::default();
    ids.compare("sess-aaaaaaaa sess-bbbbbbbb", "sess-11111111 sess-22222222", exact).unwrap();
    assert_eq!(ids.in_run("thread sess-bbbbbbbb"), "thread sess-22222222");
    assert_eq!(ids.on_page("of sess-11111111.x"), "of sess-aaaaaaaa.x");
    assert_eq!(ids.on_page("/x/y/sess-11111111"), "/x/y/sess-aaaaaaaa");
    assert!(ids.compare("sess-aaaaaaaa", "sess-22222222", exact).is_err());
    assert!(ids.compare("sess-cccccccc", "sess-22222222", exact).is_err());
}
