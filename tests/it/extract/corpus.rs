//! The public corpus of model turns. Each turn is extracted under every chunk plan, and the result
//! is judged as the README of the corpus says.

use std::sync::Arc;

use organism::cli::debug::{ExtractTurn, describe};
use serde_json::Value as Json;

use super::chunks::{extract, plans};

pub const CASES: &str = include_str!("../../data/llm_stream/cases.jsonl");

/// Joins parts of the form `[[text, times], …]` to one text.
fn repeated(parts: &Json) -> String {
    let part = |p: &Json| p[0].as_str().unwrap().repeat(p[1].as_u64().unwrap() as usize);
    parts.as_array().unwrap().iter().map(part).collect()
}

/// Expands each long value, which is written as `{"repeat": parts}`.
fn expanded(value: &Json) -> Json {
    match value {
        Json::Object(members) if members.len() == 1 && members.contains_key("repeat") => {
            Json::String(repeated(&members["repeat"]))
        }
        Json::Object(members) => members.iter().map(|(k, v)| (k.clone(), expanded(v))).collect(),
        Json::Array(values) => values.iter().map(expanded).collect(),
        other => other.clone(),
    }
}

fn is_some(list: &Json) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// Difference between the result of the extraction and the expectation of the case; `None` if they
/// agree.
fn judge(expect: &Json, got: &Json) -> Option<String> {
    let actions = &got["actions"];
    let any_of = expect["any_of"].as_array();
    if any_of.is_some_and(|lists| lists.iter().any(|list| expanded(list) == *actions)) {
        return None;
    }
    let repair = expanded(&expect["repair"]["actions"]);
    if expect["mode"] == "repair_or_reject" && repair == *actions {
        return None;
    }
    if expanded(&expect["actions"]) != *actions {
        return Some(format!("actions differ: {actions}"));
    }
    let wants_error = is_some(&expect["errors"]);
    let wants_word = wants_error || is_some(&expect["notices"]);
    let word_given = is_some(&got["errors"]) || is_some(&got["notices"]);
    match (wants_error, is_some(&got["errors"])) {
        (true, false) => Some(format!("no error, expected {}", expect["errors"])),
        (false, true) => Some(format!("an error in a good turn: {}", got["errors"])),
        _ if wants_word && !word_given => Some("silent".to_owned()),
        _ => None,
    }
}

/// Runs one case. Returns the first defect.
fn run(case: &Json) -> Option<String> {
    let turn: ExtractTurn = serde_json::from_value(case.clone()).unwrap();
    let grammar = Arc::new(turn.grammar());
    let text = match &case["text"] {
        Json::String(text) => text.clone(),
        _ => repeated(&case["text_parts"]),
    };
    let mut first = None;
    for (plan, cuts) in plans(text.as_bytes(), case["id"].as_str().unwrap()) {
        let extraction = extract(&grammar, text.as_bytes(), &cuts);
        if let Some(why) = judge(&case["expect"], &describe(&extraction)) {
            return Some(format!("{why} [{plan}]"));
        }
        let first = first.get_or_insert_with(|| extraction.clone());
        if *first != extraction {
            return Some(format!("depends on the chunking [{plan}]"));
        }
    }
    None
}

// T3 T4 T5 T7 T13 A14, R1 to R23
#[test]
fn every_case_of_the_corpus_passes_under_every_chunk_plan() {
    let cases: Vec<Json> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cases.len(), 148);
    let fail = |case: &Json| {
        let why = run(case)?;
        Some(format!("{} {}: {why}", case["id"], case["title"]))
    };
    let failures: Vec<String> = cases.iter().filter_map(fail).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

// R2
#[test]
fn text_around_actions_is_kept_byte_for_byte() {
    for case in CASES.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()) {
        let (Some(text), Some(want)) = (case["text"].as_str(), case["expect"]["text"].as_str())
        else {
            continue;
        };
        let turn: ExtractTurn = serde_json::from_value(case.clone()).unwrap();
        let extraction = extract(&Arc::new(turn.grammar()), text.as_bytes(), &[]);
        assert_eq!(extraction.text(), want, "{} {}", case["id"], case["title"]);
    }
}
