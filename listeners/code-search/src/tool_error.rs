//! Why the tool could not do what was asked: a result like any other, told in plain words.

use serde::{Deserialize, Serialize};

/// The closed list of `schema/code-search.xsd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Code {
    /// Absolute, climbing with `..`, or leading out of the directory through a link.
    #[serde(rename = "outside-root")]
    OutsideRoot,
    /// No such file or directory, or one that is hidden or ignored.
    #[serde(rename = "not-found")]
    NotFound,
    #[serde(rename = "not-a-file")]
    NotAFile,
    /// Binary content.
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
    pub code: Code,
    /// What is wrong with what, and what to do next.
    pub message: String,
}

impl ToolError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
