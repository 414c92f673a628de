//! Requests to models, in one form for all providers.

use std::sync::Arc;

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

/// The agent, the thread and the turn to which a request belongs. Playback finds the recorded turn
/// by these values. Other providers ignore them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    pub agent: ListenerName,
    pub thread: ThreadId,
    /// Number of the turn among all turns of the agent in the thread, counted from 1.
    pub turn: u32,
    /// Trace context, which is sent to providers; `None` if the request belongs to no trace. The
    /// trace context has no influence on the answer.
    pub trace: Option<TraceParent>,
}

impl RequestOrigin {
    /// Returns the labels of the thread beneath its root, such as `research.sources`; empty for a
    /// root thread.
    pub fn labels(&self) -> &str {
        self.thread.as_str().split_once('.').map_or("", |(_, labels)| labels)
    }
}

/// A request for one model call, in a form that is the same for all providers.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub origin: RequestOrigin,
    pub system: String,
    /// The conversation, oldest message first. Roles alternate; the first and the last message
    /// belong to the user.
    pub messages: Vec<Arc<ChatMessage>>,
    /// Tools that the model may call natively. Empty if the model writes actions in its text.
    pub tools: Vec<ModelTool>,
    /// Whether the model may, must or must not call a tool; `None` leaves the provider's default.
    /// Sent only if the request has tools.
    pub tool_choice: Option<ToolChoice>,
    /// Whether the answer may contain only one call. The prompt states this limit. The request also
    /// states it as a parameter if the request has tools and the provider is known to accept the
    /// limit.
    pub one_call: bool,
    /// Maximum length of the answer, in tokens; `None` if the request sets no maximum.
    pub max_tokens: Option<u32>,
    /// Default for the maximum length of the answer, in tokens. This default applies if neither
    /// `max_tokens` nor the config sets a maximum. If this field is `None` too, the answer is
    /// unbounded.
    pub default_max_tokens: Option<u32>,
}

impl ModelRequest {
    /// Returns the tool choice to send. Returns `None` if the request has no tools, because
    /// providers refuse a tool choice without tools.
    pub fn sent_tool_choice(&self) -> Option<ToolChoice> {
        self.tool_choice.filter(|_| !self.tools.is_empty())
    }

    /// Whether the request limits the answer to one call. False if the request has no tools.
    pub fn asks_one_call(&self) -> bool {
        self.one_call && !self.tools.is_empty()
    }

    /// Returns the maximum tokens of the answer. If the request and `configured` both set a
    /// maximum, returns the smaller one. If only one of them sets a maximum, returns this maximum.
    /// If neither does, returns the request's default, which may be `None`.
    pub fn most(&self, configured: Option<u32>) -> Option<u32> {
        let bound = self.max_tokens.into_iter().chain(configured).min();
        bound.or(self.default_max_tokens)
    }

    /// Returns the maximum tokens of the answer as the request alone sets it: `max_tokens`, or
    /// `default_max_tokens` if `max_tokens` is `None`. Ignores any maximum that the config sets for
    /// the model.
    pub fn answer_bound(&self) -> Option<u32> {
        self.most(None)
    }
}

/// A message of a conversation: consecutive blocks of one author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: ChatRole,
    pub blocks: Vec<ChatBlock>,
}

impl ChatMessage {
    pub fn text(role: ChatRole, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![ChatBlock::Text(text.into())] }
    }

    /// Returns the texts of the message's text blocks and tool results, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            ChatBlock::Text(text) | ChatBlock::Result { text, .. } => Some(text.as_str()),
            ChatBlock::Call(_) | ChatBlock::Own(_) => None,
        })
    }
}

/// A part of a message: text, a native call, the result of a native call, or an opaque block of a
/// provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatBlock {
    Text(String),
    /// A native call that the model made.
    Call(ToolCall),
    /// Result of the native call with the id `id`.
    Result {
        id: String,
        text: String,
        failed: bool,
    },
    /// An opaque block, such as signed reasoning. Only the provider that wrote the block can read
    /// the block, so the block is sent back only to this provider.
    Own(OwnBlock),
}

/// A tool that the model can call natively.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTool {
    /// Name of the tool: at most 64 letters, digits, `-` and `_`.
    #[serde(rename = "name")]
    pub name: String,
    #[serde(rename = "description")]
    pub description: String,
    /// Parameters of the tool, as a JSON Schema of type object.
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
