//! Format of a recording file, for both reading and writing. `docs/AGENTS.md` describes the format.

use serde::{Deserialize, Serialize};

use crate::ids::ListenerName;
use crate::model::answer::{OwnBlock, StopReason, ToolCall};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordingFile {
    /// Description of the recording: which run the turns come from, and who recorded them.
    #[serde(rename = "recorded")]
    pub recorded: String,
    /// Name that playback reports as the model of its answers. If the file names no model, playback
    /// reports the name `recorded`.
    #[serde(rename = "model", default = "unnamed")]
    pub model: String,
    #[serde(default, rename = "turn")]
    pub turns: Vec<RecordedTurn>,
}

fn unnamed() -> String {
    "recorded".to_owned()
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedTurn {
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    /// The part of the thread's id after the id of its root thread, such as `research`; empty for a
    /// root thread.
    #[serde(rename = "thread", default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    #[serde(rename = "turn")]
    pub turn: u32,
    #[serde(rename = "reasoning", default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(rename = "text")]
    pub text: String,
    /// The provider's message if the provider rejected the request, so that the turn has no answer;
    /// `None` for a turn with an answer.
    #[serde(rename = "rejected", default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// Whether `{{nonce}}` is the only placeholder in the text. If so, playback leaves every other
    /// `{{` unchanged, and also `{{nonce}}` if the turn has no nonce. The recorder sets this field
    /// for an answer that itself contains `{{`.
    #[serde(rename = "verbatim", default, skip_serializing_if = "std::ops::Not::not")]
    pub verbatim: bool,
    #[serde(rename = "stop", default)]
    pub stop: RecordedStop,
    #[serde(rename = "tokens_in", skip_serializing_if = "Option::is_none")]
    pub tokens_in: Option<u64>,
    #[serde(rename = "tokens_out", skip_serializing_if = "Option::is_none")]
    pub tokens_out: Option<u64>,
    #[serde(rename = "cached", skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    #[serde(rename = "cache_written", skip_serializing_if = "Option::is_none")]
    pub cache_written: Option<u64>,
    #[serde(rename = "calls", default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RecordedCall>,
    #[serde(rename = "own", default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<RecordedBlock>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedCall {
    #[serde(rename = "id")]
    id: String,
    #[serde(rename = "name")]
    name: String,
    #[serde(rename = "arguments")]
    arguments: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedBlock {
    #[serde(rename = "provider")]
    provider: String,
    #[serde(rename = "json")]
    json: String,
}

/// How a recorded stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum RecordedStop {
    #[default]
    #[serde(rename = "normal")]
    Normal,
    #[serde(rename = "calls")]
    Calls,
    #[serde(rename = "length")]
    Length,
    #[serde(rename = "refused")]
    Refused,
    #[serde(rename = "unknown")]
    Unknown,
    /// The stream ended without its terminator.
    #[serde(rename = "cut")]
    Cut,
}

impl RecordedStop {
    /// Returns the stop reason, or `None` if the stream ended without its terminator.
    pub fn reason(self) -> Option<StopReason> {
        Some(match self {
            Self::Normal => StopReason::Normal,
            Self::Calls => StopReason::Calls,
            Self::Length => StopReason::Length,
            Self::Refused => StopReason::Refused,
            Self::Unknown => StopReason::Unknown,
            Self::Cut => return None,
        })
    }
}

impl From<StopReason> for RecordedStop {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Normal => Self::Normal,
            StopReason::Calls => Self::Calls,
            StopReason::Length => Self::Length,
            StopReason::Refused => Self::Refused,
            StopReason::Unknown => Self::Unknown,
        }
    }
}

impl From<&ToolCall> for RecordedCall {
    fn from(call: &ToolCall) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() }
    }
}

impl From<&RecordedCall> for ToolCall {
    fn from(call: &RecordedCall) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() }
    }
}

impl From<&OwnBlock> for RecordedBlock {
    fn from(own: &OwnBlock) -> Self {
        Self { provider: own.provider.clone(), json: own.json.clone() }
    }
}

impl From<&RecordedBlock> for OwnBlock {
    fn from(own: &RecordedBlock) -> Self {
        Self { provider: own.provider.clone(), json: own.json.clone() }
    }
}
