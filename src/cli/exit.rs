//! Exit codes of commands. Scripts may rely on them.

use std::process::ExitCode;

use super::config_error_carets;
use super::stop_signals::DrainSignal;
use crate::{index, journal, organism, service};

/// The result of a command. Its number is the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandExit {
    Done = 0,
    WorkflowFailed = 1,
    Usage = 2,
    ApprovalPending = 3,
    ChainBroken = 4,
    /// Verification found no violation, but lacks evidence for a part of the journal.
    NotProved = 5,
    /// A replay made a decision that differs from the recorded decision.
    DecisionDiffers = 6,
    InvalidData = 65,
    Unavailable = 69,
    Bug = 70,
    TryAgain = 75,
    Config = 78,
    /// SIGHUP stopped the command, after its organism was drained.
    HungUp = 129,
    /// SIGINT stopped the command, after its organism was drained.
    Interrupted = 130,
    /// SIGTERM stopped the command, after its organism was drained.
    Terminated = 143,
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error together with the exit code of the command.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandFailure {
    pub exit: CommandExit,
    pub message: String,
}

impl CommandFailure {
    pub fn new(exit: CommandExit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Makes the failure of a command that was called with unusable arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(CommandExit::Usage, message)
    }

    /// Makes a failure whose message was already printed.
    pub fn silent(exit: CommandExit) -> Self {
        Self { exit, message: String::new() }
    }
}

/// Prints an error with all its causes to stderr. Returns the exit code of the command.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(organism::Error::Keys(missing)) = error.downcast_ref::<organism::Error>() {
        return config_error_carets::report(missing);
    }

    let text = describe(error);
    if !text.is_empty() {
        note!("organism: {text}");
    }

    code(error).into()
}

/// Describes an error with its causes. Omits a cause if the description already contains the text
/// of that cause.
fn describe(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.as_str() {
            "" => cause,
            known if known.ends_with(&cause) => text,
            _ => format!("{text}: {cause}"),
        }
    })
}

/// Returns the exit code of an error.
pub fn code(error: &anyhow::Error) -> CommandExit {
    if let Some(failed) = error.downcast_ref::<CommandFailure>() {
        return failed.exit;
    }

    if let Some(error) = error.downcast_ref::<journal::Error>() {
        of_journal(error)
    } else if let Some(error) = error.downcast_ref::<service::Error>() {
        of_service(error)
    } else if let Some(error) = error.downcast_ref::<organism::Error>() {
        of_organism(error)
    } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
        of_io(error)
    } else if let Some(signal) = error.downcast_ref::<DrainSignal>() {
        signal.exit()
    } else {
        CommandExit::Bug
    }
}

fn of_organism(error: &organism::Error) -> CommandExit {
    use organism::Error;
    match error {
        Error::Journal(error) => of_journal(error),
        Error::IndexWithRedactedWords(error) => of_index(error),
        Error::Service(error) => of_service(error),
        Error::Keys(_) | Error::Project(_) => CommandExit::Config,
        Error::Io { source, .. } => of_io(source),
        Error::NotUp { .. } => CommandExit::TryAgain,
        Error::Preview { .. }
        | Error::Divided { .. }
        | Error::NotEmbedded
        | Error::OneHost
        | Error::NotOnJetStream => CommandExit::Usage,
        Error::NameInUse { .. } => CommandExit::Config,
        // This error has the same exit code as a refusal at the control socket.
        Error::HostedProcess { .. } => CommandExit::InvalidData,
        Error::Builtin { .. } | Error::Schedule { .. } => CommandExit::Bug,
        _ => CommandExit::Unavailable,
    }
}

/// Returns the exit code of a command whose request to an organism failed.
pub fn of_service(error: &service::Error) -> CommandExit {
    use service::Error;
    match error {
        Error::Journal(error) => of_journal(error),
        Error::OtherProject(_) | Error::OtherPartitions { .. } => CommandExit::Config,
        Error::Io { source, .. } => of_io(source),
        Error::Lost
        | Error::NotReady { .. }
        | Error::Undecided { .. }
        | Error::Panicked
        | Error::ResultsRefused { .. }
        | Error::Unanswered { .. }
        | Error::MaybeRetried { .. }
        | Error::NoPump { .. }
        | Error::ConfigChanged { .. } => CommandExit::TryAgain,
        Error::NoThread { .. } => CommandExit::Usage,
        _ => CommandExit::Unavailable,
    }
}

/// Returns the exit code of a command that failed with this error of the file system.
pub fn of_io(error: &std::io::Error) -> CommandExit {
    match error.kind() {
        std::io::ErrorKind::StorageFull => CommandExit::TryAgain,
        _ => CommandExit::Unavailable,
    }
}

/// Returns the exit code of a command that could not write a file that the command line names.
pub fn of_written_file(error: &std::io::Error) -> CommandExit {
    match of_io(error) {
        CommandExit::TryAgain => CommandExit::TryAgain,
        _ => CommandExit::Usage,
    }
}

/// Returns the exit code of a command that failed with this error of an index.
pub fn of_index(error: &index::Error) -> CommandExit {
    use index::Error;
    match error {
        Error::Journal(error) => of_journal(error),
        Error::Query { .. } => CommandExit::Usage,
        Error::Building { .. } | Error::TimedOut { .. } => CommandExit::TryAgain,
        Error::Io { source, .. } => of_io(source),
        error if error.is_disk_full() => CommandExit::TryAgain,
        _ => CommandExit::Unavailable,
    }
}

/// Returns the exit code of a command that failed with this error of its journal.
pub fn of_journal(error: &journal::Error) -> CommandExit {
    use journal::Error;
    match error {
        Error::Broken { .. }
        | Error::Damaged { .. }
        | Error::Uncovered { .. }
        | Error::UncoveredStream { .. }
        | Error::UnprovedStream { .. }
        | Error::StreamShorter { .. }
        | Error::OtherHostAhead { .. }
        | Error::RepairPending { .. }
        | Error::PayloadInStream { .. }
        | Error::StreamForked { .. } => CommandExit::ChainBroken,
        Error::OtherKey { .. } => CommandExit::NotProved,
        Error::WithoutMac { .. } => CommandExit::Config,
        Error::Format { .. }
        | Error::StreamVersion { .. }
        | Error::Unreadable { .. }
        | Error::ForeignJournal { .. } => CommandExit::InvalidData,
        Error::InUse { .. }
        | Error::StateInUse { .. }
        | Error::Full { .. }
        | Error::Unavailable { .. } => CommandExit::TryAgain,
        error if error.is_disk_full() => CommandExit::TryAgain,
        Error::Partitions { .. } | Error::OtherJournal { .. } => CommandExit::Config,
        Error::PositionMismatch { .. } => CommandExit::Bug,
        _ => CommandExit::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use anyhow::Context as _;

    use super::*;

    #[test]
    fn an_error_of_the_file_system_is_no_bug() {
        let code_of = |kind: ErrorKind| {
            let failed: Result<(), _> = Err(Error::from(kind));
            code(&failed.context("writing the export").unwrap_err())
        };
        assert_eq!(code_of(ErrorKind::PermissionDenied), CommandExit::Unavailable);
        assert_eq!(code_of(ErrorKind::StorageFull), CommandExit::TryAgain);
        assert_eq!(code(&anyhow::anyhow!("no schema named")), CommandExit::Bug);
        let code_of = |kind: ErrorKind| of_written_file(&Error::from(kind));
        assert_eq!(code_of(ErrorKind::StorageFull), CommandExit::TryAgain);
        assert_eq!(code_of(ErrorKind::AlreadyExists), CommandExit::Usage);
    }

    #[test]
    fn a_full_disk_under_an_index_is_no_failure_of_the_disk() {
        use rusqlite::ffi;

        let failed = |code| {
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            index::Error::Sqlite { path: "index.db".into(), source }
        };
        for full in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            let error = failed(full);
            assert_eq!(of_index(&error), CommandExit::TryAgain);
            assert_eq!(error.to_string(), "the index index.db: the disk is full");
        }
        assert_eq!(of_index(&failed(ffi::SQLITE_IOERR_READ)), CommandExit::Unavailable);
    }
}
