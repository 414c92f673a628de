//! Packages that the tests install are pinned, each by the hash of its files.

use crate::tree::read;

const WANTED: &str = "tests/data/model/sdks.in";
const PINNED: &str = "tests/data/model/sdks.txt";

fn is_hash(line: &str) -> bool {
    let hash = line.trim().trim_end_matches('\\').trim_end().strip_prefix("--hash=sha256:");
    hash.is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[test]
fn python_packages_are_installed_by_hash_and_run_nothing_of_their_own() {
    let script = read(".ci/sdks");
    for option in ["--require-hashes", "--only-binary=:all:"] {
        assert!(script.contains(option), ".ci/sdks installs without {option}");
    }
    let pinned = read(PINNED);
    let mut wrong = Vec::new();
    let mut lines = pinned.lines().peekable();
    while let Some(line) = lines.next() {
        let is_pin = line.contains("==") && lines.peek().is_some_and(|next| is_hash(next));
        if !(is_pin || is_hash(line)) {
            wrong.push(format!("{PINNED}: `{line}` has no hash"));
        }
    }
    let wanted = read(WANTED);
    let missing = wanted.lines().filter(|line| !line.starts_with('#')).filter(|package| {
        let pin = format!("{package} ");
        !pinned.lines().any(|line| line.starts_with(&pin))
    });
    wrong.extend(missing.map(|package| format!("{PINNED}: {package} of {WANTED} is not there")));
    crate::nothing(wrong, "every Python package has its version and its hashes");
}
