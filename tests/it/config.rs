//! Configs: wrong ones with their problems, and good ones with their values.
//!
//! Each `tests/data/config/*.toml` ends with its expectation: one line `#! code line:column help`
//! for each problem, in order and complete. A problem in another file has that file's name. `#env
//! NAME=value` sets a variable.

mod command;
mod good;
mod stored;
mod wrong;

use std::path::{Path, PathBuf};

use organism::config::{Config, ConfigEnvironment, ConfigProblems, load};

/// Directory of the wrong configs.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config")
}

/// An environment that contains only `variables`.
fn surroundings(directory: &Path, variables: &[(&str, &str)]) -> ConfigEnvironment {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let home = variables.iter().find(|(name, _)| *name == "HOME");
    ConfigEnvironment {
        home: Some(home.map_or(directory, |(_, home)| Path::new(*home)).to_owned()),
        variables: variables.iter().map(own).collect(),
        directory: directory.to_owned(),
        program_directory: None,
    }
}

/// Loads `text` as a config in the directory of the test data.
fn load_text(text: impl AsRef<[u8]>, variables: &[(&str, &str)]) -> Result<Config, ConfigProblems> {
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    std::fs::write(directory.path().join("organism.toml"), text).unwrap();
    load(Path::new("organism.toml"), &surroundings(directory.path(), variables))
}

/// The text of the good config with one part replaced.
fn good_with(from: &str, to: &str) -> String {
    let good = std::fs::read_to_string(data().join("good.toml")).unwrap();
    assert!(good.contains(from), "the good config has no `{from}`");
    good.replacen(from, to, 1)
}

/// Describes each problem as `code line:column help`, with the name of the file if the problem is
/// not in the config itself.
fn said(result: &Result<Config, ConfigProblems>) -> Vec<String> {
    let Err(problems) = result else { return Vec::new() };
    let say = |problem: &organism::config::ConfigProblem| {
        let (line, column) = problem.place.line_and_column();
        let help = problem.help.clone().unwrap_or_default();
        let name = problem.place.source.name();
        let name = if name.ends_with(".toml") { String::new() } else { format!("{name}:") };
        format!("{} {name}{line}:{column} {help}", problem.code)
    };
    problems.iter().map(say).collect()
}
