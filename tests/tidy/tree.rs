//! The files of the repository, read once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::source::{self, Function};

/// One text file of the repository.
pub struct File {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    pub text: String,
    /// For Rust files: the text with comments, literals and test modules blanked; lines are kept.
    pub code: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the file belongs to the product and not to its tests.
    pub fn is_product(&self) -> bool {
        (self.path.starts_with("src/") || self.path.starts_with("listeners/"))
            && !self.path.contains("/tests/")
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every text file that git does not ignore, tracked or not.
pub fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| paths().into_iter().filter_map(load).collect())
}

pub fn rust() -> impl Iterator<Item = &'static File> {
    files().iter().filter(|file| file.is_rust())
}

/// Every Rust file with its functions, which are found once.
pub fn rust_functions() -> impl Iterator<Item = (&'static File, &'static [Function<'static>])> {
    static FUNCTIONS: OnceLock<Vec<Vec<Function<'static>>>> = OnceLock::new();
    let found =
        FUNCTIONS.get_or_init(|| rust().map(|file| source::functions(&file.code)).collect());
    rust().zip(found.iter().map(Vec::as_slice))
}

pub fn product() -> impl Iterator<Item = &'static File> {
    rust().filter(|file| file.is_product())
}

fn load(path: String) -> Option<File> {
    let text = String::from_utf8(std::fs::read(root().join(&path)).ok()?).ok()?;
    let code = if path.ends_with(".rs") { source::code(&text) } else { String::new() };
    Some(File { path, text, code })
}

/// The files that git lists; without git, all files.
fn paths() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let mut paths = match listed {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect(),
        _ => walked(),
    };
    paths.sort();
    // During a merge, git lists a file once for each side.
    paths.dedup();
    assert!(paths.iter().any(|path| path == "Cargo.toml"), "the repository was found");
    paths
}

fn walked() -> Vec<String> {
    let patterns = read(".gitignore");
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root().to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(relative) = path.strip_prefix(root()) else { continue };
            let relative = relative.to_string_lossy().replace('\\', "/");
            if relative == ".git" || is_ignored(&patterns, &relative) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(relative);
            }
        }
    }
    found
}

/// Whether `patterns`, the text of `.gitignore`, names the file or directory `path`. Reads the three
/// kinds of patterns that this file contains: `/PATH`, `NAME/` and `*.END`.
fn is_ignored(patterns: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    patterns.lines().map(|pattern| pattern.trim_end_matches('/')).any(|pattern| {
        let anchored = pattern.strip_prefix('/');
        let end = pattern.strip_prefix('*');
        anchored == Some(path) || end.is_some_and(|end| name.ends_with(end)) || pattern == name
    })
}

/// Files and directories that appear in the repository when a user follows its READMEs.
const MADE_BY_USERS: [&str; 8] = [
    "hello",
    "try-it",
    "listeners/python/build",
    "listeners/python/organism_listener.egg-info",
    "listeners/python/__pycache__",
    "listeners/typescript/dist",
    "listeners/typescript/node_modules",
    "listeners/typescript/organism-listener-0.1.0.tgz",
];

#[test]
fn files_that_a_user_makes_after_the_readmes_are_not_files_of_the_repository() {
    let patterns = read(".gitignore");
    let is_kept = |path: &&str| !is_ignored(&patterns, path);
    let kept: Vec<_> = MADE_BY_USERS.into_iter().filter(is_kept).collect();
    assert_eq!(kept, Vec::<&str>::new(), "add them to .gitignore");
    assert!(!is_ignored(&patterns, "listeners/typescript/src"));

    // A pattern that ends with `/` matches directories only, and these do not exist here.
    let paths = MADE_BY_USERS.map(|path| format!("{path}/file"));
    let mut check = Command::new("git");
    check.args(["check-ignore", "--no-index"]).args(&paths).current_dir(root());
    let Ok(checked) = check.output() else { return };
    // 128: the files are in no repository of git, such as those of an archive.
    if checked.status.code() != Some(128) {
        let ignored = String::from_utf8(checked.stdout).expect("names of files");
        assert_eq!(ignored.lines().collect::<Vec<_>>(), paths);
    }
}
