//! Exit codes: what a script may rely on.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    WorkflowFailed = 1,
    Usage = 2,
    ApprovalPending = 3,
    ChainBroken = 4,
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
}

/// Says on stderr what went wrong, with every cause, and picks the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("organism: {error:#}");
    error.downcast_ref::<Failed>().map_or(Exit::Bug, |failed| failed.exit).into()
}
