//! Problems of a schema itself. Such a problem is a defect of the config, and is found before the
//! organism starts. In contrast, problems of a payload are findings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A problem of a schema, with its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaProblem {
    /// Path of the file: as written in the config, or derived from that path for an included file.
    #[serde(rename = "file")]
    pub file: String,
    /// Line from 1; 0 if the problem concerns the whole file.
    #[serde(rename = "line")]
    pub line: u32,
    /// Column from 1; 0 if the problem concerns the whole line.
    #[serde(rename = "column")]
    pub column: u32,
    #[serde(rename = "code")]
    pub code: String,
    /// The defect and the remedy, as a sentence in lower case without a full stop.
    #[serde(rename = "message")]
    pub message: String,
}

impl SchemaProblem {
    pub fn new(file: &str, line: u32, code: &str, message: impl Into<String>) -> Self {
        let file = file.to_owned();
        let code = code.to_owned();
        let message = message.into();
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
