//! Exit codes: what a script may rely on.

use std::process::ExitCode;

use super::problems;
use crate::{journal, organism};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    WorkflowFailed = 1,
    Usage = 2,
    ApprovalPending = 3,
    ChainBroken = 4,
    /// The record holds, but it is not proved.
    NotProved = 5,
    InvalidData = 65,
    Unavailable = 69,
    Bug = 70,
    TryAgain = 75,
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that knows its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    pub exit: Exit,
    pub message: String,
}

impl Failed {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Everything was said already.
    pub fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new() }
    }
}

/// Says on stderr what went wrong, with every cause, and picks the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(organism::Error::Keys(missing)) = error.downcast_ref::<organism::Error>() {
        return problems::report(missing);
    }
    let text = told(error);
    if !text.is_empty() {
        note!("organism: {text}");
    }
    code(error).into()
}

/// An error and its causes, each once: many say their cause themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| {
        let cause = cause.to_string();
        match told.as_str() {
            "" => cause,
            said if said.ends_with(&cause) => told,
            _ => format!("{told}: {cause}"),
        }
    })
}

fn code(error: &anyhow::Error) -> Exit {
    if let Some(failed) = error.downcast_ref::<Failed>() {
        return failed.exit;
    }
    let journal = error.downcast_ref::<journal::Error>().or_else(|| {
        match error.downcast_ref::<organism::Error>() {
            Some(organism::Error::Journal(error)) => Some(error),
            _ => None,
        }
    });
    match (journal, error.downcast_ref::<organism::Error>()) {
        (Some(error), _) => of_journal(error),
        (None, Some(organism::Error::Keys(_) | organism::Error::Project(_))) => Exit::Config,
        (None, Some(organism::Error::Io { source, .. }))
            if source.kind() == std::io::ErrorKind::StorageFull =>
        {
            Exit::TryAgain
        }
        (
            None,
            Some(
                organism::Error::Lost
                | organism::Error::Nobody { .. }
                | organism::Error::NotUp { .. }
                | organism::Error::ConfigChanged { .. },
            ),
        ) => Exit::TryAgain,
        (
            None,
            Some(
                organism::Error::Preview { .. }
                | organism::Error::Divided { .. }
                | organism::Error::NoThread { .. }
                | organism::Error::NotEmbedded
                | organism::Error::OneHost
                | organism::Error::NotOnJetStream,
            ),
        ) => Exit::Usage,
        // As the control socket refuses it.
        (None, Some(organism::Error::HostedProcess { .. })) => Exit::InvalidData,
        (None, Some(organism::Error::Builtin { .. }) | None) => Exit::Bug,
        (None, Some(_)) => Exit::Unavailable,
    }
}

/// How a command ends that a journal let down.
pub fn of_journal(error: &journal::Error) -> Exit {
    use journal::Error;
    match error {
        Error::Broken { .. }
        | Error::Damaged { .. }
        | Error::Uncovered { .. }
        | Error::StreamShorter { .. }
        | Error::StreamForked { .. } => Exit::ChainBroken,
        Error::OtherKey { .. } => Exit::NotProved,
        Error::WithoutMac { .. } => Exit::Config,
        Error::Format { .. } | Error::Unreadable { .. } | Error::Strange { .. } => {
            Exit::InvalidData
        }
        Error::Held { .. } | Error::Full { .. } | Error::Away { .. } => Exit::TryAgain,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Exit::TryAgain
        }
        Error::Sqlite { source, .. }
            if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) =>
        {
            Exit::TryAgain
        }
        Error::Partitions { .. } | Error::OtherJournal { .. } => Exit::Config,
        Error::Misplaced { .. } => Exit::Bug,
        _ => Exit::Unavailable,
    }
}
