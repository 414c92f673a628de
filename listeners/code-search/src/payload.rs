//! The payloads of `schema/code-search.xsd`.

use std::num::IntErrorKind;

use organism::listener::TypedPayload;
use serde::{Deserialize, Deserializer, Serialize};

use crate::tool_error::{ToolError, ToolErrorCode};

pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/code-search/v1";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    #[serde(rename = "query")]
    pub query: String,
    #[serde(rename = "path", default)]
    pub path: Option<String>,
    #[serde(rename = "allow_tests", default, deserialize_with = "boolean")]
    pub allow_tests: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    #[serde(rename = "pattern")]
    pub pattern: String,
    #[serde(rename = "path", default)]
    pub path: Option<String>,
    #[serde(rename = "allow_tests", default, deserialize_with = "boolean")]
    pub allow_tests: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryResults {
    /// Number of all matches, including matches that are not shown.
    #[serde(rename = "@total")]
    pub total: usize,
    /// Whether some matches are not shown.
    #[serde(rename = "@truncated")]
    pub truncated: bool,
    #[serde(rename = "pattern")]
    pub pattern: String,
    #[serde(rename = "note", default)]
    pub notes: Vec<String>,
    #[serde(rename = "match", default)]
    pub matches: Vec<QueryMatch>,
}

/// A piece of code that matches the pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryMatch {
    #[serde(rename = "@file")]
    pub file: String,
    /// First line of the match in the file, counted from 1.
    #[serde(rename = "@line")]
    pub line: usize,
    /// Last line of the match in the file, counted from 1.
    #[serde(rename = "@end_line")]
    pub end_line: usize,
    #[serde(rename = "$text", default)]
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extract {
    #[serde(rename = "file_path")]
    pub file_path: String,
    #[serde(rename = "line", default, deserialize_with = "number")]
    pub line: Option<usize>,
    /// Last line to extract, counted from 1.
    #[serde(rename = "end_line", default, deserialize_with = "number")]
    pub end_line: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchResults {
    /// Number of all matching lines, including lines that are not shown.
    #[serde(rename = "@total")]
    pub total: usize,
    /// Whether some matching lines are not shown.
    #[serde(rename = "@truncated")]
    pub truncated: bool,
    #[serde(rename = "query")]
    pub query: String,
    #[serde(rename = "note", default)]
    pub notes: Vec<String>,
    #[serde(rename = "match", default)]
    pub matches: Vec<LineMatch>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineMatch {
    #[serde(rename = "@file")]
    pub file: String,
    /// Number of the matching line, counted from 1.
    #[serde(rename = "@line")]
    pub line: u64,
    /// Column at which the match begins, in characters, counted from 1.
    #[serde(rename = "@column")]
    pub column: usize,
    #[serde(rename = "$text", default)]
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractResult {
    #[serde(rename = "file_path")]
    pub file_path: String,
    #[serde(rename = "line")]
    pub line: usize,
    /// Last extracted line, counted from 1.
    #[serde(rename = "end_line")]
    pub end_line: usize,
    #[serde(rename = "symbol", skip_serializing_if = "Option::is_none", default)]
    pub symbol: Option<String>,
    #[serde(rename = "note", default)]
    pub notes: Vec<String>,
    #[serde(rename = "text")]
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFailure {
    #[serde(rename = "code")]
    pub code: ToolErrorCode,
    #[serde(rename = "message")]
    pub message: String,
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        Self { code: error.code, message: crate::text::legible(&error.message) }
    }
}

macro_rules! payloads {
    ($($type:ty = $name:literal),*) => {
        $(impl TypedPayload for $type {
            const NAMESPACE: &'static str = NAMESPACE;
            const NAME: &'static str = $name;
        })*
    };
}
payloads!(
    Search = "search",
    SearchResults = "search-results",
    Query = "query",
    QueryResults = "query-results",
    Extract = "extract",
    ExtractResult = "extract-result",
    ToolFailure = "tool-error"
);

/// Parses an `xs:boolean` in any of its four spellings. White space around the value is permitted,
/// as the schema permits it. An empty element has the default of the schema, which is false.
fn boolean<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let read = |text: String| match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        other => Err(serde::de::Error::custom(format!("`{other}` is not a boolean"))),
    };

    text.map(read).transpose()
}

/// Parses an `xs:positiveInteger`, which may have a sign and white space. A number that is too
/// large for the type becomes its largest value, because no file has as many lines.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let read = |text: String| match text.trim().parse::<usize>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(usize::MAX),
        number => number.map_err(serde::de::Error::custom),
    };

    text.map(read).transpose()
}
