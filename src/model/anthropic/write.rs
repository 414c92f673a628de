//! Writes a request for Anthropic's messages API.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::opaque_blocks::OpaqueBlock;
use crate::limits;
use crate::model::WireSettings;
use crate::model::answer::ToolCall;
use crate::model::remote::sanitize_calls;
use crate::model::request::{ChatBlock, ChatMessage, ChatRole, ModelRequest, ToolChoice};

#[derive(Serialize)]
struct AnthropicRequest<'a> {
    #[serde(rename = "model")]
    model: &'a str,
    #[serde(rename = "max_tokens")]
    max_tokens: u32,
    #[serde(rename = "stream")]
    stream: bool,
    #[serde(rename = "system", skip_serializing_if = "Vec::is_empty")]
    system: Vec<AnthropicPart<'a>>,
    #[serde(rename = "messages")]
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(rename = "temperature", skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(rename = "top_p", skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(rename = "thinking", skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingParameter>,
    #[serde(rename = "output_config", skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(rename = "tools", skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    #[serde(rename = "tool_choice", skip_serializing_if = "Option::is_none")]
    tool_choice: Option<AnthropicToolChoice>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum ThinkingParameter {
    /// Thinking up to a number of tokens, for models before Claude 4.7.
    #[serde(rename = "enabled")]
    Bounded {
        #[serde(rename = "budget_tokens")]
        budget_tokens: u32,
    },
    /// Thinking whose length the model chooses, for models from Claude 4.6 on.
    #[serde(rename = "adaptive")]
    Adaptive,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(rename = "effort")]
    effort: &'a str,
}

#[derive(Serialize)]
struct AnthropicToolChoice {
    #[serde(rename = "type")]
    r#type: &'static str,
    #[serde(rename = "disable_parallel_tool_use", skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    #[serde(rename = "name")]
    name: &'a str,
    #[serde(rename = "description")]
    description: &'a str,
    #[serde(rename = "input_schema")]
    input_schema: &'a Json,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    #[serde(rename = "role")]
    role: &'static str,
    #[serde(rename = "content")]
    content: Vec<AnthropicPart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnthropicPart<'a> {
    Own(&'a RawValue),
    Plain {
        #[serde(flatten)]
        plain: PlainPart<'a>,
        #[serde(rename = "cache_control", skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum PlainPart<'a> {
    #[serde(rename = "text")]
    Text {
        #[serde(rename = "text")]
        text: &'a str,
    },
    #[serde(rename = "tool_use")]
    ToolUse {
        #[serde(rename = "id")]
        id: &'a str,
        #[serde(rename = "name")]
        name: Cow<'a, str>,
        #[serde(rename = "input")]
        input: Json,
    },
    #[serde(rename = "tool_result")]
    ToolResult {
        #[serde(rename = "tool_use_id")]
        tool_use_id: &'a str,
        #[serde(rename = "content")]
        content: &'a str,
        #[serde(rename = "is_error", skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    r#type: &'static str,
}

impl<'a> From<PlainPart<'a>> for AnthropicPart<'a> {
    fn from(plain: PlainPart<'a>) -> Self {
        Self::Plain { plain, cache_control: None }
    }
}

pub(in crate::model) fn body(request: &ModelRequest, settings: &WireSettings) -> String {
    let mut system = Vec::new();
    if !request.system.is_empty() {
        system.push(AnthropicPart::from(PlainPart::Text { text: &request.system }));
        mark(&mut system);
    }

    let provider = &settings.provider;
    let mut messages: Vec<_> =
        request.messages.iter().map(|sent| message(sent, provider)).collect();
    // The last message may end with a text of this turn only, so the unchanging part may end in the
    // message before.
    for message in messages.iter_mut().rev().take(2) {
        mark(&mut message.content);
    }

    let effort = settings.answer.reasoning_effort.as_deref();
    let thinking = match settings.answer.thinking_tokens {
        Some(budget_tokens) => Some(ThinkingParameter::Bounded { budget_tokens }),
        None => effort.map(|_| ThinkingParameter::Adaptive),
    };

    let tools = request.tools.iter().map(|tool| AnthropicTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.parameters,
    });
    let body = AnthropicRequest {
        model: &settings.model,
        max_tokens: max_tokens(request, settings),
        stream: true,
        system,
        messages,
        temperature: settings.answer.temperature,
        top_p: settings.answer.top_p,
        thinking,
        output_config: effort.map(|effort| OutputConfig { effort }),
        tools: tools.collect(),
        tool_choice: choice(request),
    };

    serde_json::to_string(&body).expect("texts and numbers are JSON")
}

/// Returns the maximum tokens of the answer to `request`, including thinking. The format requires a
/// maximum in every request.
pub(in crate::model) fn max_tokens(request: &ModelRequest, settings: &WireSettings) -> u32 {
    let most = request.most(settings.answer.max_tokens);
    let most = most.unwrap_or(limits::ANSWER_TOKENS_DEFAULT);
    // Thinking counts towards the maximum, so its bound is added.
    most.saturating_add(settings.answer.thinking_tokens.unwrap_or_default())
}

/// Returns the tool choice to send with a request; `None` if none is needed. If the request limits
/// an answer to one tool call but has no tool choice, returns `auto`, because the API accepts this
/// limit only as a field of a tool choice.
fn choice(request: &ModelRequest) -> Option<AnthropicToolChoice> {
    let one_call = request.asks_one_call();
    let choice = request.sent_tool_choice().or(one_call.then_some(ToolChoice::Auto))?;
    let (r#type, disable_parallel_tool_use) = match choice {
        ToolChoice::Auto => ("auto", one_call),
        ToolChoice::Required => ("any", one_call),
        ToolChoice::None => ("none", false),
    };

    Some(AnthropicToolChoice { r#type, disable_parallel_tool_use })
}

/// Sets a mark at the end of `parts` for the provider's prompt cache. Later requests probably begin
/// with the same content as this request up to the mark.
fn mark(parts: &mut [AnthropicPart<'_>]) {
    if let Some(AnthropicPart::Plain { cache_control, .. }) = parts.last_mut() {
        *cache_control = Some(CacheControl { r#type: "ephemeral" });
    }
}

fn message<'a>(message: &'a ChatMessage, provider: &str) -> AnthropicMessage<'a> {
    let mut content = match message.role {
        ChatRole::User => user_parts(message),
        ChatRole::Assistant => model_parts(message, provider),
    };

    if content.is_empty() {
        // The provider refuses an empty message, and omitting it would break the alternation of
        // roles.
        content.push(PlainPart::Text { text: "(nothing)" }.into());
    }

    AnthropicMessage { role: message.role.as_str(), content }
}

/// Returns the content of a message with the role `user`: the tool results, then the texts.
fn user_parts(message: &ChatMessage) -> Vec<AnthropicPart<'_>> {
    let results = message.blocks.iter().filter_map(|block| match block {
        ChatBlock::Result { id, text, failed } => {
            Some(PlainPart::ToolResult { tool_use_id: id, content: text, is_error: *failed }.into())
        }
        _ => None,
    });
    let texts = message.blocks.iter().filter_map(|block| match block {
        ChatBlock::Text(text) if !text.trim().is_empty() => Some(PlainPart::Text { text }.into()),
        _ => None,
    });
    results.chain(texts).collect()
}

/// Writes a message of the model: text, calls and opaque blocks in their original order.
fn model_parts<'a>(message: &'a ChatMessage, provider: &str) -> Vec<AnthropicPart<'a>> {
    let mut rest = UnwrittenParts {
        texts: message.blocks.iter().filter_map(text_of).collect(),
        calls: message.blocks.iter().filter_map(call_of).collect(),
        texts_taken: 0,
        calls_taken: 0,
        parts: Vec::new(),
    };

    let own = message.blocks.iter().filter_map(|block| match block {
        ChatBlock::Own(own) if own.provider == provider => OpaqueBlock::read(&own.json),
        _ => None,
    });
    for placed in own {
        rest.take(placed.text, placed.calls);
        rest.parts.push(AnthropicPart::Own(placed.block));
    }

    rest.take(usize::MAX, usize::MAX);
    rest.parts
}

fn text_of(block: &ChatBlock) -> Option<&str> {
    match block {
        ChatBlock::Text(text) => Some(text),
        _ => None,
    }
}

fn call_of(block: &ChatBlock) -> Option<&ToolCall> {
    match block {
        ChatBlock::Call(call) => Some(call),
        _ => None,
    }
}

/// The text and the calls of an answer, which are written to `parts` piece by piece. `texts_taken`
/// is the number of bytes of text that are already written, and `calls_taken` is the number of
/// calls that are already written.
struct UnwrittenParts<'a> {
    texts: Vec<&'a str>,
    calls: Vec<&'a ToolCall>,
    /// Number of bytes of text already written, over all text blocks.
    texts_taken: usize,
    calls_taken: usize,
    parts: Vec<AnthropicPart<'a>>,
}

impl UnwrittenParts<'_> {
    /// Writes more text and calls to `parts`, until `parts` contains the first `text` bytes of the
    /// answer's text, and the first `calls` calls of the answer.
    fn take(&mut self, text: usize, calls: usize) {
        let mut at = 0;
        for whole in &self.texts {
            let from = self.texts_taken.saturating_sub(at);
            let to = text.saturating_sub(at).min(whole.len());
            at += whole.len();
            // The offset is not at a character boundary, so the text was changed after the block
            // was kept. Write no text.
            let Some(piece) = whole.get(from.min(whole.len())..to) else { continue };
            self.texts_taken += piece.len();
            if !piece.trim().is_empty() {
                self.parts.push(PlainPart::Text { text: piece }.into());
            }
        }

        let more = self.calls.iter().take(calls).skip(self.calls_taken);
        self.parts.extend(more.map(|call| AnthropicPart::from(tool_use(call))));
        self.calls_taken = self.calls_taken.max(calls.min(self.calls.len()));
    }
}

fn tool_use(call: &ToolCall) -> PlainPart<'_> {
    PlainPart::ToolUse {
        id: &call.id,
        name: sanitize_calls::name(call),
        input: sanitize_calls::arguments(call),
    }
}
