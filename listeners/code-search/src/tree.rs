//! The directory tree that this listener may read. Lists the files of this tree, except hidden and
//! ignored files.
//!
//! **Invariant:** no file outside the root is ever opened. All links in a path are resolved before
//! the file is read, and the resolved path must still be beneath the root. This path is opened one
//! name after another from the root, without following links. So no other process can exchange a
//! directory or file on the path for a link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

use crate::limits;
use crate::tool_error::{ToolError, ToolErrorCode};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags for opening a file to read. With `NONBLOCK`, opening does not wait even if the file is a
/// pipe.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

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

/// Reason why a file of the tree was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadFile {
    #[error("is a directory")]
    Directory,
    /// A link, a device, a pipe or a socket.
    #[error("is neither a file nor a directory")]
    Special,
    /// The file has more than [`limits::FILE_BYTES_MAX`] bytes.
    #[error("has {0} bytes")]
    TooLarge(u64),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl SearchTree {
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let in_git = root.ancestors().any(|a| a.join(".git").exists());
        Ok(Self { root, in_git })
    }

    /// Reads the file `inside`, a path that [`Self::resolve`] or [`Self::files`] has returned.
    pub(crate) fn read(&self, inside: &Path) -> Result<Vec<u8>, UnreadFile> {
        // An empty path is the root itself.
        let Some(name) = inside.file_name() else { return Err(UnreadFile::Directory) };
        let parent = inside.parent().unwrap_or(Path::new(""));
        // The root is opened each time, because another directory may have taken its place.
        let mut dir =
            rustix::fs::open(&self.root, DIRECTORY, Mode::empty()).map_err(io::Error::from)?;
        for name in parent {
            dir = openat(&dir, name, DIRECTORY, Mode::empty()).map_err(io::Error::from)?;
        }
        read_in(&dir, name)
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
            .filter_entry(move |e| {
                // An ignore file can include a hidden file again, which must stay hidden.
                let is_hidden = e.depth() > 0 && e.file_name().as_encoded_bytes().starts_with(b".");
                let is_on_path = wanted.starts_with(e.path()) || e.path().starts_with(&wanted);
                is_on_path && !is_hidden
            })
            .build()
    }
}

/// Reads a regular file in an open directory.
fn read_in(dir: &OwnedFd, name: &OsStr) -> Result<Vec<u8>, UnreadFile> {
    // The type is checked before opening, because opening a device may already have an effect.
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(UnreadFile::Directory),
        _ => return Err(UnreadFile::Special),
    }

    let file = File::from(openat(dir, name, READ, Mode::empty()).map_err(io::Error::from)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(UnreadFile::Special);
    }
    if metadata.len() > limits::FILE_BYTES_MAX {
        return Err(UnreadFile::TooLarge(metadata.len()));
    }

    // The file may grow while it is read.
    let mut bytes = Vec::new();
    let count = file.take(limits::FILE_BYTES_MAX + 1).read_to_end(&mut bytes)? as u64;
    if count > limits::FILE_BYTES_MAX {
        return Err(UnreadFile::TooLarge(count));
    }
    Ok(bytes)
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

    #[test]
    fn a_root_that_another_directory_replaces_is_read_anew() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let next = place.path().join("next");
        for (directory, text) in [(&root, "old"), (&next, "new")] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("file.txt"), text).unwrap();
        }
        let tree = SearchTree::open(&root).unwrap();
        assert_eq!(tree.read(Path::new("file.txt")).unwrap(), b"old");

        std::fs::rename(&root, place.path().join("before")).unwrap();
        std::fs::rename(&next, &root).unwrap();
        assert_eq!(tree.read(Path::new("file.txt")).unwrap(), b"new");

        // A link in place of the root is not followed.
        std::fs::rename(&root, &next).unwrap();
        std::os::unix::fs::symlink(&next, &root).unwrap();
        assert!(tree.read(Path::new("file.txt")).is_err());
    }

    #[test]
    fn a_path_that_becomes_a_link_after_it_was_resolved_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let outside = place.path().join("outside");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        for directory in [&root, &root.join("a"), &outside] {
            std::fs::write(directory.join("file.txt"), "text").unwrap();
        }

        let tree = SearchTree::open(&root).unwrap();
        let paths = ["a/file.txt", "file.txt"].map(|path| tree.resolve(path).unwrap());
        for path in &paths {
            assert_eq!(tree.read(path).unwrap(), b"text");
        }

        std::fs::rename(root.join("a"), root.join("b")).unwrap();
        std::fs::remove_file(root.join("file.txt")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("a")).unwrap();
        std::os::unix::fs::symlink(outside.join("file.txt"), root.join("file.txt")).unwrap();
        for path in &paths {
            assert!(tree.read(path).is_err(), "{}", path.display());
        }
    }
}
