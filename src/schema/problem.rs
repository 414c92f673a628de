//! What is wrong with a schema itself: a matter of the config, found before anything starts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing wrong with a schema, in the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaProblem {
    /// As the file was named, or found from there.
    #[serde(rename = "file")]
    pub file: String,
    /// From 1; 0 when the whole file is meant.
    #[serde(rename = "line")]
    pub line: u32,
    /// From 1; 0 when the whole line is meant.
    #[serde(rename = "column")]
    pub column: u32,
    #[serde(rename = "code")]
    pub code: String,
    /// What was found and what to do: lower case, no full stop.
    #[serde(rename = "message")]
    pub message: String,
}

impl SchemaProblem {
    pub fn new(file: &str, line: u32, code: &str, message: impl Into<String>) -> Self {
        let (file, code, message) = (file.to_owned(), code.to_owned(), message.into());
        Self { file, line, column: 0, code, message }
    }
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }

        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }

        write!(f, ": {}: {}", self.code, self.message)
    }
}
