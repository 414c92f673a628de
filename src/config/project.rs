//! The project of a config: the path of the config file as given, and default directories, whose
//! names depend on this path.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::ids::Digest;

/// Number of hexadecimal digits at the end of a default directory's name. These digits are the
/// beginning of the digest of the config's path.
const DIGITS: usize = 8;

/// A project, identified by the path of its config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPaths {
    /// Absolute path of the config, without `.` and `..`. Symbolic links are not resolved.
    pub path: PathBuf,
    /// Name of the organism.
    pub name: String,
    /// Parent of default data directories; `None` if the config states its own data directory.
    pub data_parent: Option<PathBuf>,
    /// Parent of default state directories; `None` if the config states its own state directory.
    pub state_parent: Option<PathBuf>,
}

impl ProjectPaths {
    /// Returns the name of this project's default directories.
    pub fn directory_name(&self) -> String {
        directory_name(&self.name, &self.path)
    }
}

/// Returns the name of the default directories of the organism `name` with the config at `path`.
pub fn directory_name(name: &str, path: &Path) -> String {
    let digest = Digest::of(path.as_os_str().as_bytes()).to_string();
    let digits: String = digest.chars().take(DIGITS).collect();
    format!("{name}-{digits}")
}

/// Whether `directory` can be the name of a default directory of the organism `name`. In early
/// versions, the directory has the organism's name alone. In later versions, a digest of the
/// config's path follows. Any digest is accepted, because the config may have been at another path
/// before.
pub fn is_directory_of(directory: &str, name: &str) -> bool {
    let Some(rest) = directory.strip_prefix(name) else { return false };
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    match rest.strip_prefix('-') {
        Some(digits) => digits.len() == DIGITS && digits.chars().all(is_digit),
        None => rest.is_empty(),
    }
}

/// Returns the absolute path of `file`, which is relative to `directory`. Removes `.` and `..` from
/// the text of the path, but resolves no symbolic links.
pub fn path_of(file: &Path, directory: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for component in directory.join(file).components() {
        match component {
            Component::CurDir => {}
            // At the root, `..` has no effect.
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }

    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projects_path_is_the_text_as_given_made_absolute() {
        let path = |file: &str| path_of(Path::new(file), Path::new("/srv/app"));
        assert_eq!(path("organism.toml"), Path::new("/srv/app/organism.toml"));
        assert_eq!(path("./config/../organism.toml"), Path::new("/srv/app/organism.toml"));
        assert_eq!(path("../b/o.toml"), Path::new("/srv/b/o.toml"));
        assert_eq!(path("/etc//./o.toml"), Path::new("/etc/o.toml"));
        assert_eq!(path("../../../o.toml"), Path::new("/o.toml"));
    }

    #[test]
    fn directories_of_one_name_differ_by_the_digits_of_the_path() {
        let one = directory_name("desk", Path::new("/a/organism.toml"));
        let other = directory_name("desk", Path::new("/b/organism.toml"));
        assert_ne!(one, other);
        assert!(is_directory_of(&one, "desk"), "{one}");
        assert!(is_directory_of("desk", "desk"));
        assert!(!is_directory_of(&one, "des"));
        assert!(!is_directory_of("desk-of-others", "desk"));
        assert!(!is_directory_of("desk-0123abcX", "desk"));
    }
}
