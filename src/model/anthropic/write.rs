//! A request as the messages API takes it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::own::Placed;
use crate::limits;
use crate::model::WireSettings;
use crate::model::answer::ToolCall;
use crate::model::remote::back;
use crate::model::request::{Block, Request, Role, Said, ToolChoice};

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "model")]
    model: &'a str,
    #[serde(rename = "max_tokens")]
    max_tokens: u32,
    #[serde(rename = "stream")]
    stream: bool,
    #[serde(rename = "system", skip_serializing_if = "Vec::is_empty")]
    system: Vec<Part<'a>>,
    #[serde(rename = "messages")]
    messages: Vec<Message<'a>>,
    #[serde(rename = "temperature", skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(rename = "top_p", skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(rename = "thinking", skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(rename = "tools", skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(rename = "tool_choice", skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice>,
}

#[derive(Serialize)]
struct Thinking {
    #[serde(rename = "type")]
    r#type: &'static str,
    #[serde(rename = "budget_tokens")]
    budget_tokens: u32,
}

#[derive(Serialize)]
struct Choice {
    #[serde(rename = "type")]
    r#type: &'static str,
    #[serde(rename = "disable_parallel_tool_use", skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "name")]
    name: &'a str,
    #[serde(rename = "description")]
    description: &'a str,
    #[serde(rename = "input_schema")]
    input_schema: &'a Json,
}

#[derive(Serialize)]
struct Message<'a> {
    #[serde(rename = "role")]
    role: &'static str,
    #[serde(rename = "content")]
    content: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Own(&'a RawValue),
    Plain {
        #[serde(flatten)]
        plain: Plain<'a>,
        #[serde(rename = "cache_control", skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Plain<'a> {
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
struct Cache {
    #[serde(rename = "type")]
    r#type: &'static str,
}

impl<'a> From<Plain<'a>> for Part<'a> {
    fn from(plain: Plain<'a>) -> Self {
        Self::Plain { plain, cache_control: None }
    }
}

pub(in crate::model) fn body(request: &Request, settings: &WireSettings) -> String {
    let mut system = Vec::new();
    if !request.system.is_empty() {
        system.push(Part::from(Plain::Text { text: &request.system }));
        mark(&mut system);
    }
    let provider = &settings.provider;
    let mut messages: Vec<_> =
        request.messages.iter().map(|said| message(said, provider)).collect();
    // The last message may end with words for this turn only; what stands before it stays.
    for message in messages.iter_mut().rev().take(2) {
        mark(&mut message.content);
    }
    let most = request.most(settings.asked.max_tokens);
    let most = most.unwrap_or(limits::ANSWER_TOKENS_DEFAULT);
    let thinking = settings.asked.thinking_tokens;
    let tools = request.tools.iter().map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.parameters,
    });
    let body = Body {
        model: &settings.model,
        // Thinking counts against it.
        max_tokens: most.saturating_add(thinking.unwrap_or_default()),
        stream: true,
        system,
        messages,
        temperature: settings.asked.temperature,
        top_p: settings.asked.top_p,
        thinking: thinking.map(|budget_tokens| Thinking { r#type: "enabled", budget_tokens }),
        tools: tools.collect(),
        tool_choice: choice(request),
    };
    serde_json::to_string(&body).expect("texts and numbers are JSON")
}

/// A single call is asked for as a part of the choice, which is then spelled out even where it is
/// the provider's own; who may not call at all cannot be asked for one call.
fn choice(request: &Request) -> Option<Choice> {
    if request.tools.is_empty() {
        return None;
    }
    let one_call = request.one_call;
    let choice = request.tool_choice.or(one_call.then_some(ToolChoice::Auto))?;
    let (r#type, disable_parallel_tool_use) = match choice {
        ToolChoice::Auto => ("auto", one_call),
        ToolChoice::Required => ("any", one_call),
        ToolChoice::None => ("none", false),
    };
    Some(Choice { r#type, disable_parallel_tool_use })
}

/// Marks the end of what stays the same, for the provider's cache.
fn mark(parts: &mut [Part<'_>]) {
    if let Some(Part::Plain { cache_control, .. }) = parts.last_mut() {
        *cache_control = Some(Cache { r#type: "ephemeral" });
    }
}

fn message<'a>(said: &'a Said, provider: &str) -> Message<'a> {
    let mut content = match said.role {
        Role::User => heard(said),
        Role::Assistant => spoken(said, provider),
    };
    if content.is_empty() {
        // An empty message is refused, and leaving it out would change who speaks after whom.
        content.push(Plain::Text { text: "(nothing)" }.into());
    }
    Message { role: said.role.as_str(), content }
}

/// Results stand before everything else.
fn heard(said: &Said) -> Vec<Part<'_>> {
    let results = said.blocks.iter().filter_map(|block| match block {
        Block::Result { id, text, failed } => {
            Some(Plain::ToolResult { tool_use_id: id, content: text, is_error: *failed }.into())
        }
        _ => None,
    });
    let texts = said.blocks.iter().filter_map(|block| match block {
        Block::Text(text) if !text.trim().is_empty() => Some(Plain::Text { text }.into()),
        _ => None,
    });
    results.chain(texts).collect()
}

/// The blocks in the order in which the model wrote them.
fn spoken<'a>(said: &'a Said, provider: &str) -> Vec<Part<'a>> {
    let mut rest = Rest {
        texts: said.blocks.iter().filter_map(text_of).collect(),
        calls: said.blocks.iter().filter_map(call_of).collect(),
        texts_taken: 0,
        calls_taken: 0,
        parts: Vec::new(),
    };
    let own = said.blocks.iter().filter_map(|block| match block {
        Block::Own(own) if own.provider == provider => Placed::read(&own.json),
        _ => None,
    });
    for placed in own {
        rest.take(placed.text, placed.calls);
        rest.parts.push(Part::Own(placed.block));
    }
    rest.take(usize::MAX, usize::MAX);
    rest.parts
}

fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text(text) => Some(text),
        _ => None,
    }
}

fn call_of(block: &Block) -> Option<&ToolCall> {
    match block {
        Block::Call(call) => Some(call),
        _ => None,
    }
}

/// Text and calls that are not written yet.
struct Rest<'a> {
    texts: Vec<&'a str>,
    calls: Vec<&'a ToolCall>,
    /// In bytes of all texts.
    texts_taken: usize,
    calls_taken: usize,
    parts: Vec<Part<'a>>,
}

impl Rest<'_> {
    /// Writes text and calls up to a place.
    fn take(&mut self, text: usize, calls: usize) {
        let mut at = 0;
        for whole in &self.texts {
            let from = self.texts_taken.saturating_sub(at);
            let to = text.saturating_sub(at).min(whole.len());
            at += whole.len();
            // A place inside a character is none: the text was changed since.
            let Some(piece) = whole.get(from.min(whole.len())..to) else { continue };
            self.texts_taken += piece.len();
            if !piece.trim().is_empty() {
                self.parts.push(Plain::Text { text: piece }.into());
            }
        }
        let more = self.calls.iter().take(calls).skip(self.calls_taken);
        self.parts.extend(more.map(|call| Part::from(tool_use(call))));
        self.calls_taken = self.calls_taken.max(calls.min(self.calls.len()));
    }
}

fn tool_use(call: &ToolCall) -> Plain<'_> {
    Plain::ToolUse { id: &call.id, name: back::name(call), input: back::arguments(call) }
}
