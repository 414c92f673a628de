//! The index of docs/ARCHITECTURE.md: each row names a file that exists and declares the item.

use crate::items::declared_items;
use crate::nothing;
use crate::source::words;
use crate::tree::{read, rust};

const ROWS_MIN: usize = 40;

/// One row: a rule and its location.
struct IndexRow<'a> {
    rule: &'a str,
    path: &'a str,
    item: &'a str,
}

/// Rows of the form "| rule | `path` · `item` |".
fn index_rows(text: &str) -> Vec<IndexRow<'_>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [rule, place] = cells[..] else { continue };
        let Some((path, item)) = place.split_once("` · `") else { continue };
        rows.push(IndexRow { rule, path: path.trim_matches('`'), item: item.trim_matches('`') });
    }
    rows
}

/// Explains how a row is wrong; `None` if the row is right. `code` is the code of the file that the
/// row names.
fn fault_of(row: &IndexRow<'_>, code: Option<&str>) -> Option<String> {
    let Some(code) = code else { return Some(format!("{}: {} is gone", row.rule, row.path)) };
    let (owner, name) = row.item.rsplit_once("::").map_or((None, row.item), |(o, n)| (Some(o), n));
    let is_declared = declared_items(code).iter().any(|item| item.name == name);
    let has_owner = owner.is_none_or(|owner| words(code, owner).next().is_some());
    let is_there = is_declared && has_owner;
    (!is_there).then(|| format!("{}: {} does not declare {}", row.rule, row.path, row.item))
}

#[test]
fn every_rule_of_the_index_is_in_its_file() {
    let text = read("docs/ARCHITECTURE.md");
    let rows = index_rows(&text);
    assert!(rows.len() >= ROWS_MIN, "the index has {} rows", rows.len());

    let code = |path: &str| rust().find(|file| file.path == path).map(|file| file.code.as_str());
    let wrong = rows.iter().filter_map(|row| fault_of(row, code(row.path)));
    nothing(wrong.collect(), "rows of docs/ARCHITECTURE.md: name the file and the item of today");
}

#[test]
fn a_row_whose_file_or_item_is_gone_is_found() {
    let text = "| rule | file · item |\n|---|---|\n| one `x` | `src/a.rs` · `Desk::next` |\n| **part** | |\n";
    let rows = index_rows(text);
    assert_eq!(rows.len(), 1);
    let fault = |code| fault_of(&rows[0], code);
    assert_eq!(fault(Some("impl Desk { fn next() {} }")), None);
    assert!(fault(None).is_some_and(|fault| fault.contains("src/a.rs is gone")));
    assert!(fault(Some("impl Desk { fn last() { next() } }")).is_some());
    assert!(fault(Some("impl Queue { fn next() {} }")).is_some());
}
