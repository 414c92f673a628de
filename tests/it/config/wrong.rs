//! Wrong configs, each answered with its own code, place and suggestion.

use std::collections::BTreeSet;
use std::path::Path;

use organism::config::{Code, load, locate};

use super::{data, good_with, load_text, said, surroundings};

/// The files with what they expect, both read from the file.
fn cases() -> Vec<(String, Vec<String>, Vec<String>)> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = |mark: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
        };
        let variables = lines("#env ");
        let variables: Vec<_> = variables.iter().map(|v| v.split_once('=').unwrap()).collect();
        let result = load(Path::new(&name), &surroundings(&data(), &variables));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let kept: String = text.split_inclusive('\n').filter(|l| !l.starts_with("#! ")).collect();
            let said: String = said(&result).iter().map(|line| format!("#! {line}\n")).collect();
            std::fs::write(&path, kept + &said).unwrap();
        }
        cases.push((name, lines("#! "), said(&result)));
    }
    cases.sort();
    cases
}

#[test]
fn each_wrong_config_is_answered_with_its_code_place_and_suggestion() {
    let cases = cases();
    let mut wrong = 0;
    for (name, expected, said) in &cases {
        assert_eq!(expected, said, "{name}");
        wrong += usize::from(!expected.is_empty());
        assert_eq!(expected.is_empty(), name.starts_with("good"), "{name}");
    }
    assert!(wrong >= 45, "only {wrong} wrong configs");
}
