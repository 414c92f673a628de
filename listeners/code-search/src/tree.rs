//! The directory tree that this listener may read. Lists the files of this tree, except hidden and
//! ignored files.
//!
//! **Invariant:** nothing outside the root is ever opened. All links in a path are resolved before
//! the file is read, and the resolved path must still be beneath the root.

use std::path::{Component, Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

use crate::tool_error::{ToolError, ToolErrorCode};

/// Names of directories that contain tests.
const TEST_DIRECTORIES: [&str; 6] = ["test", "tests", "testdata", "__tests__", "spec", "specs"];

/// The directory tree that is searched. The path of its root is resolved once, when the tree is
/// opened.
#[derive(Debug, Clone)]
pub struct SearchTree {
    root: PathBuf,
    /// Whether the root is part of a git working tree. If so, ignore files above the root also
    /// apply.
    in_git: bool,
}

impl SearchTree {
    pub fn open(root: &Path) -> std::io::Result<Self> {
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotADirectory));
        }
        let in_git = root.ancestors().any(|a| a.join(".git").exists());
        Ok(Self { root, in_git })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Finds `written` beneath the root, and resolves the links in its path. Fails if the path does
    /// not exist, leads out of the root, is hidden, or is excluded by an ignore file.
    pub fn resolve(&self, written: &str) -> Result<PathBuf, ToolError> {
        let mut inside = PathBuf::new();
        for component in Path::new(written).components() {
            match component {
                Component::Normal(part) => inside.push(part),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside(written));
                }
            }
        }

        let not_found = || {
            let message = format!(
                "there is no `{written}` here; paths are relative to the searched directory, \
                 and hidden or ignored files are not shown"
            );
            ToolError::new(ToolErrorCode::NotFound, message)
        };

        let real = self.root.join(inside).canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                let message = format!("`{written}` cannot be read: {error}");
                ToolError::new(ToolErrorCode::Unreadable, message)
            }
            _ => not_found(),
        })?;
        let inside = real.strip_prefix(&self.root).map_err(|_| outside(written))?.to_owned();
        if inside.as_os_str().is_empty() || self.shows(&inside) {
            Ok(inside)
        } else {
            Err(not_found())
        }
    }

    /// Returns the files at or beneath `within`, except hidden and ignored files, ordered by path.
    /// In place of the files of a directory that cannot be read, the result contains one `None`.
    pub fn files(&self, within: &Path) -> impl Iterator<Item = Option<PathBuf>> + use<> {
        let root = self.root.clone();
        self.walk(within).filter_map(move |entry| match entry {
            Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                entry.path().strip_prefix(&root).ok().map(|path| Some(path.to_owned()))
            }
            Err(error) if error.is_io() => Some(None),
            // A directory, a special file, or an error in an ignore file.
            Ok(_) | Err(_) => None,
        })
    }

    fn shows(&self, inside: &Path) -> bool {
        let wanted = self.root.join(inside);
        self.walk(inside).any(|entry| entry.is_ok_and(|entry| entry.path() == wanted))
    }

    /// Iterates over the directories from the root down to `within`, and over everything beneath
    /// `within`. The walk begins at the root, because ignore files above `within` also apply.
    fn walk(&self, within: &Path) -> impl Iterator<Item = Result<DirEntry, ignore::Error>> + use<> {
        let wanted = self.root.join(within);
        WalkBuilder::new(&self.root)
            .parents(self.in_git)
            .require_git(false)
            // The same tree must give the same answer on every machine, so global ignore files do
            // not count.
            .git_global(false)
            .follow_links(false)
            .sort_by_file_path(Path::cmp)
            .filter_entry(move |e| wanted.starts_with(e.path()) || e.path().starts_with(&wanted))
            .build()
    }
}

fn outside(written: &str) -> ToolError {
    let message =
        format!("`{written}` leads out of the searched directory; give a path relative to it");
    ToolError::new(ToolErrorCode::OutsideRoot, message)
}

/// Whether the path of a file, relative to the root, follows a naming convention for tests.
pub fn is_test(path: &Path) -> bool {
    let directories = path.parent().into_iter().flat_map(Path::components);
    let in_tests = directories.filter_map(|c| c.as_os_str().to_str()).any(is_test_directory);
    in_tests || path.file_name().and_then(|n| n.to_str()).is_some_and(is_test_file)
}

/// Whether `path` is a directory of tests, a path inside such a directory, or a test file.
pub fn is_within_tests(path: &Path) -> bool {
    path.components().filter_map(|c| c.as_os_str().to_str()).any(is_test_directory) || is_test(path)
}

fn is_test_directory(name: &str) -> bool {
    TEST_DIRECTORIES.contains(&name)
}

fn is_test_file(name: &str) -> bool {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let camel = matches!(extension, "java" | "kt" | "cs" | "swift" | "scala" | "php");
    matches!(stem, "test" | "tests" | "conftest")
        || stem.starts_with("test_")
        || ["_test", "_tests", ".test", ".spec", "_spec"].iter().any(|end| stem.ends_with(end))
        || camel && (stem.ends_with("Test") || stem.ends_with("Tests"))
}

/// Returns a path in the form that answers use: with `/` on every platform.
pub fn shown(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|c| c.as_os_str().to_string_lossy()).collect();
    crate::text::legible(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_read_is_reported_among_the_files() {
        let place = tempfile::tempdir().unwrap();
        for directory in ["a", "b"] {
            std::fs::create_dir(place.path().join(directory)).unwrap();
            std::fs::write(place.path().join(directory).join("file.txt"), "text").unwrap();
        }
        let tree = SearchTree::open(place.path()).unwrap();
        let mut files = tree.files(Path::new(""));
        assert_eq!(files.next(), Some(Some(PathBuf::from("a/file.txt"))));

        // The root is listed already. Permissions would not keep root from reading the directory.
        std::fs::remove_dir_all(place.path().join("b")).unwrap();
        assert_eq!(files.next(), Some(None));
        assert_eq!(files.next(), None);
    }
}
