//! The payloads of `schema/code-search.xsd`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::tool_error::{Code, ToolError};

pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/code-search/v1";

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Search {
    pub query: String,
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "boolean")]
    pub allow_tests: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Extract {
    pub file_path: String,
    #[serde(default, deserialize_with = "number")]
    pub line: Option<usize>,
    #[serde(default, deserialize_with = "number")]
    pub end_line: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchResults {
    pub query: String,
    #[serde(rename = "@truncated")]
    pub truncated: bool,
    /// Matching lines in all, shown or not.
    #[serde(rename = "@total")]
    pub total: usize,
    #[serde(rename = "note")]
    pub notes: Vec<String>,
    #[serde(rename = "match")]
    pub matches: Vec<Match>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    #[serde(rename = "@file")]
    pub file: String,
    /// From 1.
    #[serde(rename = "@line")]
    pub line: u64,
    /// From 1, in characters.
    #[serde(rename = "@column")]
    pub column: usize,
    #[serde(rename = "$text")]
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtractResult {
    pub file_path: String,
    pub line: usize,
    /// Included.
    pub end_line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(rename = "note")]
    pub notes: Vec<String>,
    pub text: String,
}
