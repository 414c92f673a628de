//! Portable names of a config's files. A portable name is valid in any directory.
//!
//! The portable name of a file within the project is its path. A file outside the project, or with
//! a name that some file systems do not accept, gets a name beneath `outside/`. A portable name
//! depends only on the path as the config writes it, so all machines with the same config use the
//! same names.

use std::path::{Component, Path};

use crate::ids::Digest;
use crate::shipped::SCHEMA_PREFIX;

/// Name that the config file gets in each directory to which a stored config is written.
pub const CONFIG_NAME: &str = "organism.toml";

/// Directory for files from outside of the project.
const OUTSIDE: &str = "outside";
/// Directory for schemas that the program ships.
const SHIPPED: &str = "outside/organism/";
/// Maximum bytes of one path component of a portable name.
const PART_BYTES_MAX: usize = 200;
/// Maximum number of path components of a portable name.
const PARTS_MAX: usize = 32;
/// Number of digits of the digest in a portable name. Only names beneath `outside/` contain a
/// digest.
const DIGITS: usize = 12;

/// Returns the portable name of the file that the config names by `path`.
pub fn file_name(path: &str) -> String {
    if let Some(shipped) = path.strip_prefix(SCHEMA_PREFIX) {
        return format!("{SHIPPED}{}", plain(shipped));
    }

    let normal = normalised(path);
    if is_safe(&normal) && normal != CONFIG_NAME {
        return normal;
    }

    let (parent, name) = normal.rsplit_once('/').unwrap_or((".", &normal));
    format!("{OUTSIDE}/{}/{}", digits(parent), plain(name))
}

/// Returns the portable name of the directory that the config names by `path`: the normalised path
/// if [`is_safe`] accepts it, and otherwise a name beneath `outside/`.
pub fn directory_name(path: &str) -> String {
    let normal = normalised(path);
    if normal == "." || is_safe(&normal) {
        return normal;
    }

    format!("{OUTSIDE}/{}", digits(&normal))
}

/// Returns the portable name of the file at `path`, a path that is relative to `directory`.
pub fn beneath(directory: &str, path: &str) -> String {
    let joined = if directory == "." { path.to_owned() } else { format!("{directory}/{path}") };
    file_name(&joined)
}

/// Returns the name that a schema has in the effective config. The name stays the same if the
/// config is copied to another directory.
pub fn schema_name(path: &str) -> String {
    let name = file_name(path);
    match name.strip_prefix(SHIPPED) {
        Some(shipped) => format!("{SCHEMA_PREFIX}{shipped}"),
        None => name,
    }
}

/// Whether `name`, joined to any directory, names a path within that directory.
pub fn is_safe(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_name = !part.is_empty() && part != "." && part != "..";
        is_name && part.len() <= PART_BYTES_MAX && !part.contains(is_odd)
    };
    name.split('/').all(is_part) && name.split('/').count() <= PARTS_MAX
}

/// Whether this character is forbidden in names of stored files.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\\' | ':' | '"' | '<' | '>' | '|' | '?' | '*')
}

/// Returns the path without `.` components. A `..` component removes the name before it. If there
/// is no such name, the `..` stays. Does not follow symbolic links.
fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut root = "";
    for component in Path::new(path).components() {
        match component {
            Component::RootDir | Component::Prefix(_) => root = "/",
            Component::CurDir => {}
            Component::ParentDir if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            Component::ParentDir => parts.push(".."),
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
        }
    }

    match format!("{root}{}", parts.join("/")) {
        empty if empty.is_empty() => ".".to_owned(),
        normal => normal,
    }
}

fn digits(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string().chars().take(DIGITS).collect()
}

/// Returns `name` unchanged if it is a single path component that [`is_safe`] accepts. Otherwise,
/// returns a name that consists only of ASCII letters, digits, `.`, `_` and `-`.
fn plain(name: &str) -> String {
    if is_safe(name) && !name.contains('/') {
        return name.to_owned();
    }

    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let kept: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let end: String = kept.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{}-{}", digits(name), end.trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_within_the_project_keeps_its_name() {
        for (path, name) in [
            ("prompts/rules.md", "prompts/rules.md"),
            ("./a/../schemas/x.xsd", "schemas/x.xsd"),
            ("Schéma 1.xsd", "Schéma 1.xsd"),
        ] {
            assert_eq!(file_name(path), name);
            assert_eq!(schema_name(path), name);
        }
    }

    #[test]
    fn a_path_elsewhere_gets_a_safe_name_that_keeps_itself() {
        let paths =
            ["../x.xsd", "/etc/x.xsd", "../../x.xsd", "a\nb.xsd", "..", "organism.toml", "c:x"];
        let names = paths.map(file_name);
        for (path, name) in paths.iter().zip(&names) {
            assert!(name.starts_with("outside/") && is_safe(name), "{path}: {name}");
            assert_eq!(file_name(name), *name, "{path}");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{path}: {name}");
        }
    }

    #[test]
    fn a_shipped_schema_has_one_name_in_the_effective_config() {
        assert_eq!(file_name("organism:actions.xsd"), "outside/organism/actions.xsd");
        assert_eq!(schema_name("outside/organism/actions.xsd"), "organism:actions.xsd");
        assert_eq!(schema_name("organism:actions.xsd"), "organism:actions.xsd");
    }

    #[test]
    fn names_that_leave_a_directory_are_not_safe() {
        for name in ["", ".", "..", "/a", "a/../b", "a//b", "a/", "a\\b", "a\0b", "\u{1b}[2J"] {
            assert!(!is_safe(name), "{name:?}");
        }
        assert!(!is_safe(&"a".repeat(PART_BYTES_MAX + 1)));
        assert!(!is_safe(&vec!["a"; PARTS_MAX + 1].join("/")));
    }
}
