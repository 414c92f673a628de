//! Formats of an agent's final report. The config names exactly one format, so that the program
//! never has to guess.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::limits;

/// How an agent ends its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum FinalMode {
    /// The agent ends a call only with an action, usually a final payload. A turn without an action
    /// does not end the call.
    #[default]
    #[serde(rename = "action")]
    Action,
    /// An action ends a call, as in the mode `Action`. In addition, a turn without an action ends
    /// the call, and the text of the turn is the answer.
    #[serde(rename = "text")]
    Text,
}

impl FinalMode {
    pub const fn is_action(&self) -> bool {
        matches!(self, Self::Action)
    }
}

/// Format of an agent's final report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub enum FinalFormat {
    #[default]
    #[serde(rename = "text")]
    Text,
    #[serde(rename = "markdown")]
    Markdown,
    /// JSON that is valid according to this JSON Schema.
    #[serde(rename = "json")]
    Json(Arc<ReportSchema>),
    /// A whole final payload as XML. Used only with the transport `xml-final`, in two cases: the
    /// goal of the call has a typed answer, or no final payload of the agent can contain a report
    /// as text.
    #[serde(rename = "xml")]
    Xml,
}

impl FinalFormat {
    /// Returns the name of the format as a slot states it in the attribute `format`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markdown => "markdown",
            Self::Json(_) => "json",
            Self::Xml => "xml",
        }
    }

    /// Returns the name of the format for use in sentences.
    pub const fn words(&self) -> &'static str {
        match self {
            Self::Text => "plain text",
            Self::Markdown => "markdown",
            Self::Json(_) => "JSON",
            Self::Xml => "XML",
        }
    }

    pub fn schema(&self) -> Option<&ReportSchema> {
        match self {
            Self::Json(schema) => Some(schema),
            Self::Text | Self::Markdown | Self::Xml => None,
        }
    }
}

/// A JSON Schema that final reports must match.
pub struct ReportSchema {
    json: Json,
    validator: jsonschema::Validator,
}

/// Reason why a text cannot be used as a JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportSchemaError {
    #[error("it is no JSON: {0}")]
    Json(String),
    #[error("it is no JSON Schema: {0}")]
    Schema(String),
}

impl ReportSchema {
    /// Parses a schema. All references in the schema must point to parts of the same schema.
    pub fn parse(text: &str) -> Result<Self, ReportSchemaError> {
        let json: Json =
            serde_json::from_str(text).map_err(|e| ReportSchemaError::Json(e.to_string()))?;
        let validator = jsonschema::validator_for(&json)
            .map_err(|error| ReportSchemaError::Schema(error.to_string()))?;
        Ok(Self { json, validator })
    }

    pub fn json(&self) -> &Json {
        &self.json
    }

    /// Returns the violations of this JSON Schema in `report`. Each violation is a text with the
    /// JSON pointer of the wrong value and the error. Returns at most [`limits::FINDINGS_MAX`]
    /// violations.
    pub fn mistakes(&self, report: &Json) -> Vec<String> {
        let errors = self.validator.iter_errors(report).take(limits::FINDINGS_MAX);
        let messages = errors.map(|error| {
            let path = error.instance_path().to_string();
            let place = if path.is_empty() { "the report".to_owned() } else { format!("`{path}`") };
            format!("{place}: {error}")
        });
        messages.collect()
    }
}

impl std::fmt::Debug for ReportSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.json)
    }
}

impl PartialEq for ReportSchema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for ReportSchema {}

impl Serialize for ReportSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
