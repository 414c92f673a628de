//! The closed list of error codes that the core reports.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The `code` of a `system-error`. Each code has a page under `docs/errors/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorCode {
    #[serde(rename = "timeout")]
    Timeout,
    #[serde(rename = "listener-failed")]
    ListenerFailed,
    #[serde(rename = "undeliverable")]
    Undeliverable,
    #[serde(rename = "denied")]
    Denied,
    #[serde(rename = "budget-spent")]
    BudgetSpent,
    #[serde(rename = "too-large")]
    TooLarge,
    #[serde(rename = "busy")]
    Busy,
    #[serde(rename = "cycle")]
    Cycle,
    #[serde(rename = "nothing-to-wait-for")]
    NothingToWaitFor,
    #[serde(rename = "storage-full")]
    StorageFull,
    #[serde(rename = "iterations-spent")]
    IterationsSpent,
    #[serde(rename = "cancelled")]
    Cancelled,
    #[serde(rename = "limit-reached")]
    LimitReached,
    #[serde(rename = "unknown-timer")]
    UnknownTimer,
    #[serde(rename = "unknown-outcome")]
    UnknownOutcome,
    #[serde(rename = "stale-preview")]
    StalePreview,
    #[serde(rename = "forked")]
    Forked,
    #[serde(rename = "not-recorded")]
    NotRecorded,
}

impl ErrorCode {
    pub const ALL: [Self; 18] = [
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
        Self::StalePreview,
        Self::Forked,
        Self::NotRecorded,
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
            Self::StalePreview => "stale-preview",
            Self::Forked => "forked",
            Self::NotRecorded => "not-recorded",
        }
    }

    /// Whether a retry of the same payload may succeed.
    pub const fn retry_allowed(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::ListenerFailed
                | Self::Undeliverable
                | Self::Busy
                | Self::StorageFull
                | Self::StalePreview
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
