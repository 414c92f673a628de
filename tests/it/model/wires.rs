//! Writes answers of models in the wire formats of Anthropic and OpenAI, as real servers send them.

use serde_json::{Value as Json, json};

/// The answer of a model.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    pub reasoning: Vec<&'static str>,
    pub text: Vec<&'static str>,
    /// Native calls: id, name and the pieces of the arguments.
    pub calls: Vec<(&'static str, &'static str, Vec<&'static str>)>,
    pub stop: Stop,
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stop {
    #[default]
    Normal,
    Calls,
    Length,
    Refused,
    /// Another reason for the end of the answer, with its exact text on the wire.
    Word(&'static str),
}

#[derive(Debug, Clone, Default)]
pub enum Usage {
    #[default]
    Good,
    Missing,
    Absurd(Json),
}

pub const TOKENS_IN: u64 = 21;
pub const TOKENS_OUT: u64 = 13;

/// A wire format under test.
pub struct Wire {
    pub preset: &'static str,
    pub events: fn(&Scene) -> Vec<String>,
    pub ping: &'static str,
    pub unknown: &'static str,
    /// Writes an error in the middle of a stream, from its kind and its message.
    pub error: fn(&str, &str) -> String,
    /// Writes an error as the body of a response with an error status, from its kind and its
    /// message.
    pub complaint: fn(&str, &str) -> String,
    pub terminator: &'static str,
    pub stop: fn(Stop) -> &'static str,
}

pub const OPENAI: Wire = Wire {
    preset: "openai",
    events: openai,
    ping: ": ping\n\n",
    unknown: "event: news\ndata: {\"object\":\"something.new\",\"choices\":[],\"extra\":[1]}\n\n",
    error: |kind, message| {
        let error =
            json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
        format!("data: {error}\n\n")
    },
    complaint: |kind, message| {
        json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            .to_string()
    },
    terminator: "data: [DONE]\n\n",
    stop: |stop| match stop {
        Stop::Normal => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
        Stop::Refused => "content_filter",
        Stop::Word(word) => word,
    },
};

pub const ANTHROPIC: Wire = Wire {
    preset: "anthropic",
    events: anthropic,
    ping: "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    unknown: "event: news\ndata: {\"type\": \"something_new\", \"delta\": {\"type\": \"x\"}}\n\n",
    error: |kind, message| {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        format!("event: error\ndata: {error}\n\n")
    },
    complaint: |kind, message| {
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
            .to_string()
    },
    terminator: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    stop: |stop| match stop {
        Stop::Normal => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refused => "refusal",
        Stop::Word(word) => word,
    },
};

fn chunk(delta: &Json, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "chatcmpl-CdZqP5bUYWMWRxgmH3hZvZkW0Pm1w",
        "object": "chat.completion.chunk",
        "created": 1_763_646_533,
        "model": "m-1",
        "service_tier": "default",
        "system_fingerprint": "fp_560af6e559",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        "usage": null,
        "obfuscation": "x4Gd",
    });
    format!("data: {chunk}\n\n")
}

fn openai(scene: &Scene) -> Vec<String> {
    let mut events =
        vec![chunk(&json!({"role": "assistant", "content": "", "refusal": null}), None)];
    events.extend(scene.reasoning.iter().map(|t| chunk(&json!({"reasoning_content": t}), None)));
    events.extend(scene.text.iter().map(|text| chunk(&json!({"content": text}), None)));
    for (index, (id, name, _)) in scene.calls.iter().enumerate() {
        let call = json!({"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}});
        events.push(chunk(&json!({"tool_calls": [call]}), None));
    }
    // The pieces of parallel calls are interleaved.
    let most = scene.calls.iter().map(|(_, _, pieces)| pieces.len()).max().unwrap_or(0);
    for piece in 0..most {
        for (index, (_, _, pieces)) in scene.calls.iter().enumerate() {
            if let Some(arguments) = pieces.get(piece) {
                let call = json!({"index": index, "function": {"arguments": arguments}});
                events.push(chunk(&json!({"tool_calls": [call]}), None));
            }
        }
    }
    events.push(chunk(&json!({}), Some((OPENAI.stop)(scene.stop))));
    let usage = match &scene.usage {
        Usage::Good => Some(json!({"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT,
            "total_tokens": TOKENS_IN + TOKENS_OUT,
            "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0}})),
        Usage::Missing => None,
        Usage::Absurd(number) => Some(json!({"prompt_tokens": number, "completion_tokens": number,
            "prompt_tokens_details": {"cached_tokens": number}})),
    };
    if let Some(usage) = usage {
        let last = json!({"id": "chatcmpl-CdZqP5bUYWMWRxgmH3hZvZkW0Pm1w",
            "object": "chat.completion.chunk", "created": 1_763_646_533, "model": "m-1",
            "choices": [], "usage": usage});
        events.push(format!("data: {last}\n\n"));
    }
    events.push(OPENAI.terminator.to_owned());
    events
}

fn named(data: &Json) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn block(events: &mut Vec<String>, index: &mut usize, begin: &Json, deltas: Vec<Json>) {
    events.push(named(
        &json!({"type": "content_block_start", "index": *index, "content_block": begin}),
    ));
    events.extend(deltas.into_iter().map(|delta| {
        named(&json!({"type": "content_block_delta", "index": *index, "delta": delta}))
    }));
    events.push(named(&json!({"type": "content_block_stop", "index": *index})));
    *index += 1;
}

pub const SIGNATURE: &str = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds=";

fn anthropic(scene: &Scene) -> Vec<String> {
    let numbers = |tokens_in: Json, tokens_out: Json| {
        json!({"input_tokens": tokens_in, "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 16, "output_tokens": tokens_out,
            "service_tier": "standard"})
    };
    let (begin, end) = match &scene.usage {
        Usage::Good => {
            (numbers(json!(TOKENS_IN - 18), json!(1)), json!({"output_tokens": TOKENS_OUT}))
        }
        Usage::Missing => (Json::Null, Json::Null),
        Usage::Absurd(number) => {
            (numbers(number.clone(), number.clone()), json!({"output_tokens": number}))
        }
    };
    let mut events = vec![named(&json!({"type": "message_start", "message": {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
        "model": "m-1", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": begin}}))];
    let mut index = 0;
    if !scene.reasoning.is_empty() {
        let mut deltas: Vec<_> = scene
            .reasoning
            .iter()
            .map(|text| json!({"type": "thinking_delta", "thinking": text}))
            .collect();
        deltas.extend([json!({"type": "signature_delta", "signature": SIGNATURE})]);
        let begin = json!({"type": "thinking", "thinking": "", "signature": ""});
        block(&mut events, &mut index, &begin, deltas);
    }
    if !scene.text.is_empty() {
        let deltas = scene.text.iter().map(|text| json!({"type": "text_delta", "text": text}));
        block(&mut events, &mut index, &json!({"type": "text", "text": ""}), deltas.collect());
    }
    for (id, name, pieces) in &scene.calls {
        let begin = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        let deltas = std::iter::once(&"")
            .chain(pieces)
            .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(&mut events, &mut index, &begin, deltas.collect());
    }
    let delta = json!({"stop_reason": (ANTHROPIC.stop)(scene.stop), "stop_sequence": null});
    events.push(named(&json!({"type": "message_delta", "delta": delta, "usage": end})));
    events.push(ANTHROPIC.terminator.to_owned());
    events
}
