//! Writes a request for OpenAI's chat completions API.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::sent_calls::CallIdWriter;
use crate::model::WireSettings;
use crate::model::remote::{BoundKey, OpenAiQuirks, sanitize_calls};
use crate::model::request::{ChatBlock, ChatMessage, ChatRole, ModelRequest, ToolChoice};

/// Text that stands in for an answer between tool results and text of the user.
const RESULTS_RECEIVED: &str = "(results received)";

#[derive(Serialize)]
struct OpenAiRequest<'a> {
    #[serde(rename = "model")]
    model: &'a str,
    #[serde(rename = "messages")]
    messages: Vec<OpenAiMessage<'a>>,
    #[serde(rename = "stream")]
    stream: bool,
    #[serde(rename = "stream_options", skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(rename = "max_tokens", skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(rename = "max_completion_tokens", skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(rename = "temperature", skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(rename = "top_p", skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(rename = "reasoning_effort", skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(rename = "tools", skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiTool<'a>>,
    #[serde(rename = "tool_choice", skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(rename = "parallel_tool_calls", skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
}

#[derive(Serialize)]
struct StreamOptions {
    #[serde(rename = "include_usage")]
    include_usage: bool,
}

#[derive(Serialize)]
struct OpenAiMessage<'a> {
    #[serde(rename = "role")]
    role: &'static str,
    #[serde(rename = "tool_call_id", skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(rename = "name", skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(rename = "content", skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(rename = "reasoning_content", skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a RawValue>,
    #[serde(rename = "reasoning_details", skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawValue>,
    #[serde(rename = "tool_calls", skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<OpenAiCall<'a>>,
}

/// Parts of an earlier answer, for a provider that requires them in later requests.
#[derive(Deserialize, Default)]
struct KeptContent<'a> {
    #[serde(rename = "reasoning_content", borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(rename = "reasoning_details", borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    /// The `extra_content` of native calls, by the id of the call.
    #[serde(rename = "extra_content", borrow, default)]
    extra_content: BTreeMap<String, &'a RawValue>,
}

#[derive(Serialize)]
struct OpenAiCall<'a> {
    #[serde(rename = "id")]
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    r#type: &'static str,
    #[serde(rename = "function")]
    function: OpenAiFunction<'a>,
    #[serde(rename = "extra_content", skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct OpenAiFunction<'a> {
    #[serde(rename = "name")]
    name: Cow<'a, str>,
    #[serde(rename = "arguments")]
    arguments: Cow<'a, str>,
}

#[derive(Serialize)]
struct OpenAiTool<'a> {
    #[serde(rename = "type")]
    r#type: &'static str,
    #[serde(rename = "function")]
    function: ToolFunction<'a>,
}

#[derive(Serialize)]
struct ToolFunction<'a> {
    #[serde(rename = "name")]
    name: &'a str,
    #[serde(rename = "description")]
    description: &'a str,
    #[serde(rename = "parameters")]
    parameters: &'a Json,
}

pub(in crate::model) fn body(
    request: &ModelRequest,
    settings: &WireSettings,
    quirks: OpenAiQuirks,
) -> String {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(OpenAiMessage::plain("system", request.system.clone()));
    }

    let mut ids = CallIdWriter::new(quirks.has_mistral_rules);
    for message in &request.messages {
        match message.role {
            ChatRole::User => write_user_message(message, quirks, &mut ids, &mut messages),
            ChatRole::Assistant => {
                messages.push(model_message(message, &settings.provider, &mut ids));
            }
        }
    }

    let most = settings.max_tokens(request);
    let (max_tokens, max_completion_tokens) = match quirks.max_tokens {
        BoundKey::MaxTokens => (most, None),
        BoundKey::MaxCompletionTokens => (None, most),
    };

    let tools = request.tools.iter().map(|tool| OpenAiTool {
        r#type: "function",
        function: ToolFunction {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.parameters,
        },
    });
    let body = OpenAiRequest {
        model: &settings.model,
        messages,
        stream: true,
        stream_options: quirks.asks_for_usage.then_some(StreamOptions { include_usage: true }),
        max_tokens,
        max_completion_tokens,
        temperature: settings.answer.temperature,
        top_p: settings.answer.top_p,
        reasoning_effort: settings.answer.reasoning_effort.as_deref(),
        tools: tools.collect(),
        tool_choice: request.sent_tool_choice().map(|choice| match choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
        }),
        parallel_tool_calls: (request.asks_one_call() && takes_one_call(settings, quirks))
            .then_some(false),
    };

    serde_json::to_string(&body).expect("texts and numbers are JSON")
}

/// Whether the request may contain the parameter that limits the answer to one call. Models of
/// OpenAI's `o` series reject this parameter, because they always make one call at a time.
fn takes_one_call(settings: &WireSettings, quirks: OpenAiQuirks) -> bool {
    let is_of_series = |series: &str| {
        let rest = settings.model.strip_prefix(series);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    quirks.takes_one_call && !["o1", "o3", "o4"].into_iter().any(is_of_series)
}

impl OpenAiMessage<'_> {
    fn plain(role: &'static str, content: String) -> Self {
        Self {
            role,
            tool_call_id: None,
            name: None,
            content: Some(content),
            reasoning_content: None,
            reasoning_details: None,
            tool_calls: Vec::new(),
        }
    }
}

/// Writes a message of the user as several messages of the API: first one message for each tool
/// result, then one message with the texts. The tool results come first because they must directly
/// follow the calls that they answer. Mistral's models accept only an answer after tool results, so
/// they get one before the texts. The texts are not added to a result: they are not part of it, and
/// models are trained not to follow instructions in results.
fn write_user_message<'a>(
    message: &'a ChatMessage,
    quirks: OpenAiQuirks,
    ids: &mut CallIdWriter<'a>,
    messages: &mut Vec<OpenAiMessage<'a>>,
) {
    for block in &message.blocks {
        if let ChatBlock::Result { id, text, .. } = block {
            let (id, call) = ids.result_id(id);
            let name = call.map_or(Cow::Borrowed(sanitize_calls::UNNAMED), sanitize_calls::name);
            messages.push(OpenAiMessage {
                tool_call_id: Some(id),
                name: quirks.names_results.then_some(name),
                ..OpenAiMessage::plain("tool", text.clone())
            });
        }
    }

    let text = texts(message);
    let has_results = message.blocks.iter().any(|block| matches!(block, ChatBlock::Result { .. }));
    if has_results && !text.is_empty() && quirks.has_mistral_rules {
        messages.push(OpenAiMessage::plain("assistant", RESULTS_RECEIVED.to_owned()));
    }

    if !text.is_empty() || !has_results {
        messages.push(OpenAiMessage::plain("user", text));
    }
}

fn model_message<'a>(
    message: &'a ChatMessage,
    provider: &str,
    ids: &mut CallIdWriter<'a>,
) -> OpenAiMessage<'a> {
    let kept = message.blocks.iter().find_map(|block| match block {
        ChatBlock::Own(own) if own.provider == provider => {
            serde_json::from_str::<KeptContent<'a>>(&own.json).ok()
        }
        _ => None,
    });
    let kept = kept.unwrap_or_default();

    ids.begin_answer();
    let calls = message.blocks.iter().filter_map(|block| match block {
        ChatBlock::Call(call) => Some(OpenAiCall {
            id: ids.call_id(call),
            r#type: "function",
            function: OpenAiFunction {
                name: sanitize_calls::name(call),
                arguments: sanitize_calls::arguments_text(call),
            },
            extra_content: kept.extra_content.get(&call.id).copied(),
        }),
        _ => None,
    });
    let tool_calls: Vec<_> = calls.collect();

    let text = texts(message);
    OpenAiMessage {
        role: "assistant",
        tool_call_id: None,
        name: None,
        content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
        reasoning_content: kept.reasoning_content,
        reasoning_details: kept.reasoning_details,
        tool_calls,
    }
}

fn texts(message: &ChatMessage) -> String {
    let texts = message.blocks.iter().filter_map(|block| match block {
        ChatBlock::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let separator = match message.role {
        ChatRole::User => "\n",
        ChatRole::Assistant => "",
    };

    texts.collect::<Vec<_>>().join(separator)
}
