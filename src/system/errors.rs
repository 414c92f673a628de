//! The closed list of error codes that the core reports.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::word_enum::word_enum;

word_enum! {
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
}

impl ErrorCode {
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
        f.write_str(self.as_str())
    }
}
