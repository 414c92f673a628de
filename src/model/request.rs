//! Requests to models.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::answer::{OwnBlock, ToolCall};
use crate::ids::{ListenerName, ThreadId};
use crate::trace::TraceParent;

/// Author of a message in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChatRole {
    User,
    Assistant,
}

impl ChatRole {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// Agent, thread and turn of a request. Playback finds its recording by it; other providers ignore
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    pub agent: ListenerName,
    pub thread: ThreadId,
    /// Number of the turn, from 1, over all turns of this agent in this thread.
    pub turn: u32,
    /// Trace context, sent to providers. It never changes an answer.
    pub trace: Option<TraceParent>,
}

impl RequestOrigin {
    /// The labels beneath the root, such as `research.sources`; empty for a root.
    pub fn labels(&self) -> &str {
        self.thread.as_str().split_once('.').map_or("", |(_, labels)| labels)
    }
}

/// One model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub origin: RequestOrigin,
    pub system: String,
    /// The conversation, oldest first. Roles alternate; the first and the last message are the
    /// user's.
    pub messages: Vec<ChatMessage>,
    /// Tools offered as native calls. Empty if actions are written in the text.
    pub tools: Vec<ModelTool>,
    /// Whether the model may or must call a tool. Sent only with tools; `None` leaves the
    /// provider's default.
    pub tool_choice: Option<ToolChoice>,
    /// Asks for at most one call in the answer. Sent only with tools, and only to providers that
    /// are known to accept it. For others, only the prompt states it.
    pub one_call: bool,
    /// Maximum length of the answer, in tokens.
    pub max_tokens: Option<u32>,
}

impl ModelRequest {
    /// Maximum tokens of the answer: the smaller bound of request and config.
    pub fn most(&self, configured: Option<u32>) -> Option<u32> {
        self.max_tokens.into_iter().chain(configured).min()
    }
}

/// Consecutive blocks of one author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: ChatRole,
    pub blocks: Vec<ChatBlock>,
}

impl ChatMessage {
    pub fn text(role: ChatRole, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![ChatBlock::Text(text.into())] }
    }

    /// Texts and results of the message, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            ChatBlock::Text(text) | ChatBlock::Result { text, .. } => Some(text.as_str()),
            ChatBlock::Call(_) | ChatBlock::Own(_) => None,
        })
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatBlock {
    Text(String),
    /// A native call that the model made.
    Call(ToolCall),
    /// Result of the native call with this id.
    Result {
        id: String,
        text: String,
        failed: bool,
    },
    /// A block that only its provider can read, such as signed reasoning. Sent back only to that
    /// provider.
    Own(OwnBlock),
}

/// A tool that the model can call natively.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTool {
    /// At most 64 letters, digits, `-` and `_`.
    #[serde(rename = "name")]
    pub name: String,
    #[serde(rename = "description")]
    pub description: String,
    /// A JSON Schema of type object.
    #[serde(rename = "parameters")]
    pub parameters: Json,
}

/// Whether the model may, must or must not call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToolChoice {
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "required")]
    Required,
    #[serde(rename = "none")]
    None,
}
