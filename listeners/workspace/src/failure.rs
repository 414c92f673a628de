//! Reasons why an action of a caller failed. The caller gets such a failure as the ordinary result
//! of its call.

use rustix::io::Errno;

use crate::place::WorkspacePath;

/// Code of a failure. The type `FailureCode` of `schemas/actions.xsd` lists all codes except
/// [`FailureCode::StalePreview`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCode {
    /// The path is absolute and outside the workspace, or contains `..`.
    OutsideWorkspace,
    BadPath,
    /// No agent may write the file, because it is in git's own directory or is a temporary file of
    /// this listener.
    Protected,
    /// Other programs execute the file automatically, so each change of the file needs a person's
    /// approval. No person has approved this change.
    Dangerous,
    /// A symbolic link is part of the path.
    Link,
    NotAFile,
    NotADirectory,
    NotFound,
    Exists,
    TooLarge,
    TooMany,
    NoMatch,
    SeveralMatches,
    BadLine,
    /// Two paths of a set of changes lead to the same file.
    SameFile,
    ChangedMeanwhile,
    NothingToUndo,
    UnknownSet,
    UnknownLanguage,
    BadPackage,
    UnknownProposal,
    /// The preview with which a person approved the call is no longer valid. The schema lacks this
    /// code, because the listener refuses such a call instead of answering with a failure.
    StalePreview,
    /// The listener died while a command was running, or a signal killed the supervisor of the
    /// command. The result of the command is unknown.
    Interrupted,
    DiskFull,
    NotPermitted,
    Failed,
}

impl FailureCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutsideWorkspace => "outside-workspace",
            Self::BadPath => "bad-path",
            Self::Protected => "protected",
            Self::Dangerous => "dangerous",
            Self::Link => "link",
            Self::NotAFile => "not-a-file",
            Self::NotADirectory => "not-a-directory",
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::TooLarge => "too-large",
            Self::TooMany => "too-many",
            Self::NoMatch => "no-match",
            Self::SeveralMatches => "several-matches",
            Self::BadLine => "bad-line",
            Self::SameFile => "same-file",
            Self::ChangedMeanwhile => "changed-meanwhile",
            Self::NothingToUndo => "nothing-to-undo",
            Self::UnknownSet => "unknown-set",
            Self::UnknownLanguage => "unknown-language",
            Self::BadPackage => "bad-package",
            Self::UnknownProposal => "unknown-proposal",
            Self::StalePreview => "stale-preview",
            Self::Interrupted => "interrupted",
            Self::DiskFull => "disk-full",
            Self::NotPermitted => "not-permitted",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ActionFailure {
    pub code: FailureCode,
    /// Text that states the defect, the affected file or argument, and what to do next.
    pub message: String,
}

impl ActionFailure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Creates the failure for an error of the operating system. `doing` is the attempted action as
    /// a verb, such as `read`, and `place` is the path of the file.
    pub fn of(error: Errno, doing: &str, place: &WorkspacePath) -> Self {
        Self::system(error, &format!("cannot {doing} `{place}`"))
    }

    /// Creates the failure for an error of the operating system that concerns no path of the
    /// workspace.
    pub fn system(error: Errno, what: &str) -> Self {
        let code = match error {
            Errno::NOSPC | Errno::DQUOT => FailureCode::DiskFull,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FailureCode::NotPermitted,
            Errno::NOENT => FailureCode::NotFound,
            Errno::EXIST => FailureCode::Exists,
            Errno::LOOP => FailureCode::Link,
            Errno::NOTDIR => FailureCode::NotADirectory,
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => FailureCode::BadPath,
            _ => FailureCode::Failed,
        };

        Self::new(code, format!("{what}: {}", std::io::Error::from(error)))
    }

    /// Creates the failure for an I/O error that concerns no path of the workspace. `what` states
    /// what could not be done.
    pub fn io(error: &std::io::Error, what: &str) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::system(errno, what),
            None => Self::new(FailureCode::Failed, format!("{what}: {error}")),
        }
    }
}
