//! The files of the repository, read once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::source;

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
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root().to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name == "target" || name == ".git" {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(path) = path.strip_prefix(root()) {
                found.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found
}
