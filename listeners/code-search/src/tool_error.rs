//! Errors that state why a request could not be carried out. The caller gets such an error as an
//! ordinary result of the call.

use serde::{Deserialize, Serialize};

/// Code of an error, from the closed list in `schema/code-search.xsd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolErrorCode {
    /// The path is absolute, contains `..`, or leads through a link out of the searched root
    /// directory.
    #[serde(rename = "outside-root")]
    OutsideRoot,
    /// The file or directory does not exist, is hidden, or is ignored.
    #[serde(rename = "not-found")]
    NotFound,
    #[serde(rename = "not-a-file")]
    NotAFile,
    /// The file has binary content.
    #[serde(rename = "not-text")]
    NotText,
    #[serde(rename = "too-large")]
    TooLarge,
    #[serde(rename = "bad-query")]
    BadQuery,
    #[serde(rename = "bad-range")]
    BadRange,
    #[serde(rename = "symbol-not-found")]
    SymbolNotFound,
    #[serde(rename = "unreadable")]
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub code: ToolErrorCode,
    /// Text that states the defect, the affected file or argument, and what to do next.
    pub message: String,
}

impl ToolError {
    pub fn new(code: ToolErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
