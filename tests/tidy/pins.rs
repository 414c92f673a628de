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

const KIT: &str = "listeners/typescript";

/// Faults of a lock file of npm: packages without a hash, packages with an install script, and
/// packages with the address of one registry.
fn faults_of_lock(lock: &str) -> Vec<String> {
    let lock: serde_json::Value = serde_json::from_str(lock).expect("it is JSON");
    let packages = lock["packages"].as_object().expect("it has packages");
    let others = packages.iter().filter(|(path, _)| !path.is_empty());
    let faults = others.flat_map(|(path, package)| {
        let has_hash =
            package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-"));
        let has_script = package["hasInstallScript"].as_bool().unwrap_or_default();
        let has_address = package.get("resolved").is_some();
        let found = [
            (!has_hash, "has no hash"),
            (has_script, "runs a script when it is installed"),
            (has_address, "names one registry"),
        ];
        found.into_iter().filter(|(is_so, _)| *is_so).map(move |(_, what)| format!("{path} {what}"))
    });
    faults.collect()
}

#[test]
fn packages_of_npm_are_installed_by_hash_and_run_nothing_of_their_own() {
    assert!(read(".ci/typescript").contains("npm ci"), "`npm ci` installs what the lock file has");
    let options = read(&format!("{KIT}/.npmrc"));
    for option in ["ignore-scripts=true", "omit-lockfile-registry-resolved=true"] {
        assert!(options.lines().any(|line| line == option), "{KIT}/.npmrc has no {option}");
    }
    let faults = faults_of_lock(&read(&format!("{KIT}/package-lock.json")));
    crate::nothing(faults, "every package has its version and its hash");
}

#[test]
fn a_package_of_npm_without_a_hash_is_found() {
    let lock = r#"{ "packages": { "": {}, "a": { "integrity": "sha512-x" },
        "b": { "hasInstallScript": true, "resolved": "x" } } }"#;
    let expected = ["has no hash", "runs a script when it is installed", "names one registry"];
    assert_eq!(faults_of_lock(lock), expected.map(|what| format!("b {what}")));
}
