//! The table of requirements is complete, and every named test exists and has the id in a comment.

use std::collections::{BTreeMap, BTreeSet};

use crate::nothing;
use crate::tree::{read, rust_functions};

/// Each founding document: the first character of the ids of its requirements, and the number of
/// its requirements.
const DOCUMENTS: &[(char, usize)] = &[('O', 11), ('T', 15), ('A', 15), ('F', 17), ('C', 9)];

struct Row {
    id: String,
    test: String,
    place: String,
    mutant: String,
}

fn rows() -> Vec<Row> {
    let text = read("docs/requirements.md");
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| id"));
    lines
        .filter_map(|line| {
            let line = line.replace("\\|", "\u{1}");
            let cells: Vec<_> =
                line.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
            let [_, id, test, place, mutant, _] = cells.as_slice() else { return None };
            let [id, test, place, mutant] = [id, test, place, mutant].map(Clone::clone);
            Some(Row { id, test, place, mutant })
        })
        .collect()
}

fn required() -> BTreeSet<String> {
    let ids = |(letter, count): &(char, usize)| {
        let letter = *letter;
        (1..=*count).map(move |number| format!("{letter}{number}"))
    };
    DOCUMENTS.iter().flat_map(ids).collect()
}

/// Maps the location of each test to the requirement ids in the comments above the test.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for (file, functions) in rust_functions() {
        let lines: Vec<_> = file.text.lines().collect();
        for function in functions {
            let above = lines[..function.line - 1].iter().rev();
            let own = above.take_while(|line| {
                let line = line.trim_start();
                line.starts_with("//") || line.starts_with('#')
            });
            let ids = own.flat_map(|line| ids_in(line)).collect();
            found.insert(format!("{}::{}", file.path, function.name), ids);
        }
    }
    found
}

fn ids_in(line: &str) -> Vec<String> {
    let comment = line.trim_start();
    if !comment.starts_with("//") {
        return Vec::new();
    }
    let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| {
            let mut chars = word.chars();
            let letter = chars.next().is_some_and(|c| DOCUMENTS.iter().any(|(d, _)| *d == c));
            letter && word.len() > 1 && chars.all(|c| c.is_ascii_digit())
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_requirement_has_a_row_or_says_when_it_comes() {
    let rows = rows();
    let listed: BTreeSet<_> = rows.iter().map(|row| row.id.clone()).collect();
    let missing = required().difference(&listed).cloned().collect();
    nothing(missing, "requirements without a row in docs/requirements.md");
    let unknown = listed.difference(&required()).cloned().collect();
    nothing(unknown, "rows about no requirement");
}

#[test]
fn every_test_in_the_table_exists_and_names_its_requirement() {
    let tests = tests();
    let mut wrong = Vec::new();
    for row in rows() {
        if row.test.starts_with("later") {
            continue;
        }
        let test = row.test.trim_matches('`');
        match tests.get(test) {
            None => wrong.push(format!("{}: {test} does not exist", row.id)),
            Some(ids) if !ids.contains(&row.id) => {
                wrong.push(format!("{}: {test} does not name it", row.id));
            }
            Some(_) => {}
        }
        if row.place.is_empty() || row.mutant.is_empty() {
            wrong.push(format!("{}: no place, or no break that turns {test} red", row.id));
        }
    }
    nothing(wrong, "docs/requirements.md");
}

#[test]
fn what_this_version_promises_has_a_test_and_not_a_date() {
    let later: Vec<_> = rows()
        .into_iter()
        .filter(|row| row.id.starts_with(['O', 'T']) && row.test.starts_with("later"))
        .map(|row| row.id)
        .collect();
    nothing(later, "promised requirements without a test");
}

#[test]
fn a_test_that_names_a_requirement_names_one_that_exists() {
    let required = required();
    let mut wrong = Vec::new();
    for (test, ids) in tests().into_iter().filter(|(path, _)| path.contains("tests/")) {
        wrong.extend(ids.difference(&required).map(|id| format!("{test}: {id}")));
    }
    nothing(wrong, "ids of no requirement");
}
