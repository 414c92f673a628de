//! Rules that are newer than the code they check: `tests/tidy/today/` lists the offences that are
//! older than their rule, and the lists only shrink.
//!
//! A line is a key, followed by the number of its offences if there are several. A new offence
//! fails the test. A line without an offence fails the test, too: delete it, or run `TIDY_SHRINK=1
//! cargo test --locked -p organism --test tidy`, which deletes all such lines. Nothing adds a line.

use std::collections::BTreeMap;

use crate::tree::{read, root};

/// One violation of a rule.
pub struct Offence {
    /// Key in the list. It contains no file name, so that code can move.
    pub key: String,
    pub place: String,
}

type Counts = BTreeMap<String, usize>;

#[track_caller]
pub fn only_shrinks(list: &str, offences: Vec<Offence>, rule: &str) {
    let path = format!("tests/tidy/today/{list}.txt");
    let listed = parse(&read(&path));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for offence in offences {
        found.entry(offence.key).or_default().push(offence.place);
    }

    let mut wrong = added(&listed, &found);
    let left = shrunk(&listed, &found);
    if std::env::var_os("TIDY_SHRINK").is_some() {
        let head: String = read(&path)
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|l| format!("{l}\n"))
            .collect();
        std::fs::write(root().join(&path), head + &written(&left)).expect("the list is written");
    } else {
        wrong.extend(stale(&listed, &left).into_iter().map(|line| format!("{path}: {line}")));
    }
    crate::nothing(wrong, rule);
}

fn parse(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let counted = line.rsplit_once(" × ");
            let counted = counted.and_then(|(key, count)| Some((key, count.parse().ok()?)));
            let (key, count) = counted.unwrap_or((line, 1));
            (key.to_owned(), count)
        })
        .collect()
}

fn written(counts: &Counts) -> String {
    let lines = counts.iter().map(|(key, count)| match count {
        1 => format!("{key}\n"),
        _ => format!("{key} × {count}\n"),
    });
    lines.collect()
}

/// Offences that are in the code but not in the list.
fn added(listed: &Counts, found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let excess = found.iter().filter_map(|(key, places)| {
        let known = listed.get(key).copied().unwrap_or_default();
        let is_new = places.len() > known;
        is_new
            .then(|| format!("{key} ({} now, {known} listed): {}", places.len(), places.join(", ")))
    });
    excess.collect()
}

/// The list without lines whose offences are gone.
fn shrunk(listed: &Counts, found: &BTreeMap<String, Vec<String>>) -> Counts {
    let kept = listed.iter().filter_map(|(key, known)| {
        let now = found.get(key).map_or(0, Vec::len);
        (now > 0).then(|| (key.clone(), now.min(*known)))
    });
    kept.collect()
}

fn stale(listed: &Counts, left: &Counts) -> Vec<String> {
    let gone = listed.iter().filter_map(|(key, known)| match left.get(key) {
        None => Some(format!("`{key}` offends no more: delete this line (TIDY_SHRINK=1 does it)")),
        Some(now) if now < known => {
            Some(format!("`{key}`: {now} are left: write {now} (TIDY_SHRINK=1 does it)"))
        }
        Some(_) => None,
    });
    gone.collect()
}

#[cfg(test)]
fn places(pairs: &[(&str, usize)]) -> BTreeMap<String, Vec<String>> {
    let pairs =
        pairs.iter().map(|(key, count)| ((*key).to_owned(), vec!["x.rs:1".to_owned(); *count]));
    pairs.collect()
}

#[test]
fn a_new_offence_and_one_more_of_a_listed_kind_fail() {
    let listed = parse("# head\ntype Door × 2\ntype Kin\n");
    assert!(added(&listed, &places(&[("type Door", 2), ("type Kin", 1)])).is_empty());
    assert_eq!(added(&listed, &places(&[("type Door", 3)])).len(), 1);
    assert_eq!(added(&listed, &places(&[("type Desk", 1)])).len(), 1);
}

#[test]
fn a_line_whose_offence_is_gone_fails_until_it_is_deleted() {
    let listed = parse("type Door × 2\ntype Kin\n");
    let found = places(&[("type Door", 1), ("type Desk", 4)]);
    let left = shrunk(&listed, &found);
    assert_eq!(written(&left), "type Door\n");
    assert_eq!(stale(&listed, &left).len(), 2);
    assert!(stale(&left, &shrunk(&left, &found)).is_empty());
}
