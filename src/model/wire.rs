//! Writes the body of a request in the wire format of its provider.
//!
//! The record of a turn contains the settings of its request, so that the body can be rebuilt
//! later, byte for byte, even if the config has changed.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::remote::{AnswerSettings, WireFormat};
use super::request::{ChatBlock, ModelRequest};
use super::{anthropic, openai};

/// Settings that a route adds to a request: wire format, model, and settings of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireSettings {
    /// Name of the provider. A block that only one provider can read is stored with the name of
    /// this provider.
    #[serde(rename = "provider")]
    pub provider: String,
    /// Name of the model at its provider.
    #[serde(rename = "model")]
    pub model: String,
    #[serde(rename = "wire")]
    pub wire: WireFormat,
    #[serde(flatten)]
    pub answer: AnswerSettings,
}

impl WireSettings {
    /// Returns the maximum that the body for `request` states for the tokens of the answer and its
    /// reasoning together. Returns `None` if the body states no maximum.
    pub fn max_tokens(&self, request: &ModelRequest) -> Option<u32> {
        match self.wire {
            WireFormat::OpenAi(_) => request.most(self.answer.max_tokens),
            WireFormat::Anthropic => Some(anthropic::max_tokens(request, self)),
        }
    }

    /// Returns the complete body of the HTTP request.
    pub fn body(&self, request: &ModelRequest) -> String {
        match self.wire {
            WireFormat::OpenAi(quirks) => openai::body(request, self, quirks),
            WireFormat::Anthropic => anthropic::body(request, self),
        }
    }
}

/// Writes `request` as one JSON text. Needed for a model without a network, because a request to
/// such a model has no HTTP body.
pub fn plain_body(request: &ModelRequest, model: &str) -> String {
    let ModelRequest { system, messages, tools, tool_choice, one_call, .. } = request;
    let messages = messages.iter().map(|message| {
        let blocks: Vec<Json> = message.blocks.iter().map(block_json).collect();
        json!({ "role": message.role.as_str(), "content": blocks })
    });

    let tools = tools.iter().map(|tool| {
        json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        })
    });

    let body = json!({
        "model": model,
        "system": system,
        "messages": messages.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "tool_choice": tool_choice,
        "one_call": one_call,
        "max_tokens": request.answer_bound(),
    });
    body.to_string()
}

/// Returns a block of a message as JSON, in a form that does not depend on the wire format of a
/// provider.
pub fn block_json(block: &ChatBlock) -> Json {
    match block {
        ChatBlock::Text(text) => json!({ "text": text }),
        ChatBlock::Call(call) => {
            json!({ "call": call.name, "id": call.id, "arguments": call.arguments })
        }
        ChatBlock::Result { id, text, failed } => {
            json!({ "result": text, "id": id, "failed": failed })
        }
        ChatBlock::Own(own) => json!({ "own": own.json, "provider": own.provider }),
    }
}
