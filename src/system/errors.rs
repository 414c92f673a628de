//! What can go wrong in the world, as the core tells it: a closed list.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The `code` of a `system-error`. Each has a page under `docs/errors/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    Timeout,
    ListenerFailed,
    Undeliverable,
    Denied,
    BudgetSpent,
    TooLarge,
    Busy,
    Cycle,
    NothingToWaitFor,
    StorageFull,
    IterationsSpent,
    Cancelled,
    LimitReached,
    UnknownTimer,
    UnknownOutcome,
}

impl ErrorCode {
    pub const ALL: [Self; 15] = [
        Self::Timeout,
        Self::ListenerFailed,
        Self::Undeliverable,
        Self::Denied,
        Self::BudgetSpent,
        Self::TooLarge,
        Self::Busy,
        Self::Cycle,
        Self::NothingToWaitFor,
        Self::StorageFull,
        Self::IterationsSpent,
        Self::Cancelled,
        Self::LimitReached,
        Self::UnknownTimer,
        Self::UnknownOutcome,
    ];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ListenerFailed => "listener-failed",
            Self::Undeliverable => "undeliverable",
            Self::Denied => "denied",
            Self::BudgetSpent => "budget-spent",
            Self::TooLarge => "too-large",
            Self::Busy => "busy",
            Self::Cycle => "cycle",
            Self::NothingToWaitFor => "nothing-to-wait-for",
            Self::StorageFull => "storage-full",
            Self::IterationsSpent => "iterations-spent",
            Self::Cancelled => "cancelled",
            Self::LimitReached => "limit-reached",
            Self::UnknownTimer => "unknown-timer",
            Self::UnknownOutcome => "unknown-outcome",
        }
    }

    /// Whether sending the same thing again may succeed.
    pub const fn retry_allowed(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::ListenerFailed
                | Self::Undeliverable
                | Self::Busy
                | Self::StorageFull
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
