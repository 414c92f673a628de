//! Parses the paths that agents write. Rejects paths that lead out of the workspace. Reads no file.

use std::fmt;
use std::path::Path;

use crate::failure::{ActionFailure, FailureCode};
use crate::limits;
use crate::self_running;

/// Prefix of the names of this listener's temporary files.
pub const TEMPORARY: &str = ".organism-";

/// A path beneath the workspace: a list of plain names from the top. An empty list is the workspace
/// itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePath {
    names: Vec<String>,
}

impl WorkspacePath {
    /// Parses the path of a file or directory. A relative path counts from the workspace; an
    /// absolute path must lead beneath `root`.
    pub fn parse(text: &str, root: &Path) -> Result<Self, ActionFailure> {
        let place = Self::recorded(text, root)?;
        if place.names.iter().any(|name| is_protected(name)) {
            let message = format!("`{}` is not for agents to write; leave it alone", shown(text));
            return Err(ActionFailure::new(FailureCode::Protected, message));
        }

        Ok(place)
    }

    /// Parses a path of a recorded set of changes, as [`Self::parse`] does. The names in it may be
    /// protected, because an earlier version of this program may have allowed them.
    pub fn recorded(text: &str, root: &Path) -> Result<Self, ActionFailure> {
        let shown = shown(text);
        if text.is_empty() || text.len() > limits::PATH_BYTES_MAX {
            let most = limits::PATH_BYTES_MAX;
            return Err(bad(format!("a path has 1 to {most} bytes; this one has {}", text.len())));
        }

        if text.chars().any(char::is_control) {
            return Err(bad(format!("`{shown}` holds a control character")));
        }

        let outside = |why: &str| {
            let message =
                format!("`{shown}` {why}; give a path relative to the workspace, without `..`");
            ActionFailure::new(FailureCode::OutsideWorkspace, message)
        };

        let within = match text.strip_prefix('/') {
            None => text,
            Some(_) => beneath(text, root).ok_or_else(|| outside("is outside the workspace"))?,
        };

        let mut names = Vec::new();

        for name in within.split('/').filter(|name| !matches!(*name, "" | ".")) {
            if name == ".." {
                return Err(outside("climbs out of a directory"));
            }
            if name.len() > limits::NAME_BYTES_MAX {
                return Err(bad(format!("a name in `{shown}` is too long")));
            }
            names.push(name.to_owned());
        }

        if names.len() > limits::PATH_PARTS_MAX {
            return Err(bad(format!("`{shown}` is too deep")));
        }

        Ok(Self { names })
    }

    /// Parses the path of a file.
    pub fn file(text: &str, root: &Path) -> Result<Self, ActionFailure> {
        let place = Self::parse(text, root)?;
        let is_directory = text.ends_with('/') || text.ends_with("/.");
        if place.names.is_empty() || is_directory {
            let message = format!("`{}` is a directory; name a file", shown(text));
            return Err(ActionFailure::new(FailureCode::NotAFile, message));
        }

        Ok(place)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Splits the path into the names of its directories and its last name.
    pub fn split(&self) -> (&[String], &str) {
        match self.names.split_last() {
            Some((last, before)) => (before, last),
            None => (&[], "."),
        }
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() { f.write_str(".") } else { f.write_str(&self.names.join("/")) }
    }
}

/// Returns the part of an absolute path beneath `root`, or `None` if the path does not lead beneath
/// `root`.
fn beneath<'t>(text: &'t str, root: &Path) -> Option<&'t str> {
    let rest = text.strip_prefix(root.to_str()?)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Whether agents must not write files with this name. True for this listener's temporary files,
/// and for git's own directory in every spelling that some file system accepts. Git's directory is
/// protected because git executes files in it without approval.
fn is_protected(name: &str) -> bool {
    self_running::is_git(name) || self_running::plain(name).starts_with(TEMPORARY)
}

fn bad(message: String) -> ActionFailure {
    ActionFailure::new(FailureCode::BadPath, message)
}

/// Shortens a path to one line for an error message.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    let plain = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
    let mut out: String = text.chars().take(CHARS_MAX).map(plain).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }

    out
}
