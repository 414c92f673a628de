//! The request in each wire format: body and head.

use expect_test::{Expect, expect};
use organism::limits;
use organism::model::remote::{AnswerSettings, PRESETS, ProviderPreset};
use organism::model::{
    ChatBlock, ChatMessage, ChatRole, ModelProvider, ModelRequest, ModelTool, OwnBlock, ToolCall,
    ToolChoice, WireSettings,
};
use serde_json::{Value as Json, json};

use super::server::{KEY, Script, Server, ask, call, options, remote};
use super::wires::{ANTHROPIC, OPENAI, SIGNATURE, Scene, Stop};

fn tool() -> ModelTool {
    let parameters = json!({"type": "object", "properties": {"query": {"type": "string"}}});
    ModelTool { name: "search".into(), description: "Searches.".into(), parameters }
}

fn result(id: &str, text: &str, failed: bool) -> ChatBlock {
    ChatBlock::Result { id: id.into(), text: text.into(), failed }
}

fn called(id: &str, arguments: &str) -> ChatBlock {
    let (id, arguments) = (id.to_owned(), arguments.to_owned());
    ChatBlock::Call(ToolCall { id, name: "search".into(), arguments })
}

/// A conversation with every kind of block.
fn long(own: Vec<OwnBlock>) -> ModelRequest {
    let mut blocks: Vec<_> = own.into_iter().map(ChatBlock::Own).collect();
    blocks.extend([
        ChatBlock::Text("I look.".into()),
        called("call_1", "{ \"query\" : \"a\" }"),
        called("call_2", "no JSON"),
    ]);
    let messages = vec![
        ChatMessage::text(ChatRole::User, "Find <a>."),
        ChatMessage { role: ChatRole::Assistant, blocks },
        ChatMessage {
            role: ChatRole::User,
            blocks: vec![
                ChatBlock::Text("Turn 2 of 10.".into()),
                result("call_1", "found \"it\"", false),
                result("call_2", "Error: no JSON", true),
            ],
        },
    ];
    let (tools, tool_choice) = (vec![tool()], Some(ToolChoice::Auto));
    let messages = messages.into_iter().map(Into::into).collect();
    ModelRequest { messages, tools, tool_choice, max_tokens: Some(99), ..ask("") }
}

async fn check(preset: &str, settings: AnswerSettings, request: &ModelRequest, expected: Expect) {
    let server = Server::answering(Script::whole("400 Bad", "", "{}")).await;
    let mut options = options(preset, &server.url());
    options.answer = settings;
    let settings = serde_json::to_string(&options.settings()).unwrap();
    assert!(call(&remote(options), request).await.0.is_err());
    let sent = server.body(0).to_string();
    expected.assert_eq(&sent);
    // The stored settings are enough to write the same body again.
    let settings: WireSettings = serde_json::from_str(&settings).unwrap();
    assert_eq!(settings.body(request), sent);
}

#[tokio::test]
async fn a_request_is_written_as_chat_completions_take_it() {
    let none = AnswerSettings::default();
    check("openai", none.clone(), &ask("Hello."), expect![[r#"{"model":"m-1","messages":[{"role":"system","content":"You write."},{"role":"user","content":"Hello."}],"stream":true,"stream_options":{"include_usage":true}}"#]]).await;
    let settings = AnswerSettings {
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasoning_effort: Some("low".into()),
        ..none.clone()
    };
    check("openai", settings, &long(Vec::new()), expect![[r#"{"model":"m-1","messages":[{"role":"system","content":"You write."},{"role":"user","content":"Find <a>."},{"role":"assistant","content":"I look.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"search","arguments":"{ \"query\" : \"a\" }"}},{"id":"call_2","type":"function","function":{"name":"search","arguments":"{\"not_json\":\"no JSON\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"found \"it\""},{"role":"tool","tool_call_id":"call_2","content":"Error: no JSON"},{"role":"user","content":"Turn 2 of 10."}],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":99,"temperature":0.5,"top_p":0.9,"reasoning_effort":"low","tools":[{"type":"function","function":{"name":"search","description":"Searches.","parameters":{"type":"object","properties":{"query":{"type":"string"}}}}}],"tool_choice":"auto"}"#]]).await;
    check("mistral", none, &ask("Hello."), expect![[r#"{"model":"m-1","messages":[{"role":"system","content":"You write."},{"role":"user","content":"Hello."}],"stream":true}"#]]).await;
}

#[tokio::test]
async fn a_request_is_written_as_messages_take_it() {
    let none = AnswerSettings::default();
    check("anthropic", none.clone(), &ask("Hello."), expect![[r#"{"model":"m-1","max_tokens":8192,"stream":true,"system":[{"type":"text","text":"You write.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Hello.","cache_control":{"type":"ephemeral"}}]}]}"#]]).await;
    let settings = AnswerSettings { reasoning_effort: Some("high".into()), ..none.clone() };
    check("anthropic", settings, &ask("Hello."), expect![[r#"{"model":"m-1","max_tokens":8192,"stream":true,"system":[{"type":"text","text":"You write.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Hello.","cache_control":{"type":"ephemeral"}}]}],"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}"#]]).await;
    let settings = AnswerSettings { thinking_tokens: Some(1024), ..none };
    let own = json!({"text": 0, "calls": 0, "block":
        {"type": "thinking", "thinking": "Hmm.", "signature": "EqQB=="}});
    let foreign =
        OwnBlock { provider: "deepseek".into(), json: "{\"reasoning_content\":\"x\"}".into() };
    let own = OwnBlock { provider: "anthropic".into(), json: own.to_string() };
    check("anthropic", settings, &long(vec![own, foreign]), expect![[r#"{"model":"m-1","max_tokens":1123,"stream":true,"system":[{"type":"text","text":"You write.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Find <a>."}]},{"role":"assistant","content":[{"type":"thinking","thinking":"Hmm.","signature":"EqQB=="},{"type":"text","text":"I look."},{"type":"tool_use","id":"call_1","name":"search","input":{"query":"a"}},{"type":"tool_use","id":"call_2","name":"search","input":{"not_json":"no JSON"},"cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"found \"it\""},{"type":"tool_result","tool_use_id":"call_2","content":"Error: no JSON","is_error":true},{"type":"text","text":"Turn 2 of 10.","cache_control":{"type":"ephemeral"}}]}],"thinking":{"type":"enabled","budget_tokens":1024},"tools":[{"name":"search","description":"Searches.","input_schema":{"type":"object","properties":{"query":{"type":"string"}}}}],"tool_choice":{"type":"auto"}}"#]]).await;
}

/// F6: a tool choice is sent only with tools, because providers refuse a tool choice without tools.
#[tokio::test]
async fn a_tool_choice_is_sent_only_beside_tools() {
    for preset in ["openai", "anthropic"] {
        for choice in [ToolChoice::Auto, ToolChoice::Required, ToolChoice::None] {
            let server = Server::answering(Script::whole("400 Bad", "", "{}")).await;
            let model = remote(options(preset, &server.url()));
            let without = ModelRequest { tool_choice: Some(choice), ..ask("Hello.") };
            assert!(call(&model, &without).await.0.is_err());
            let with = ModelRequest { tools: vec![tool()], ..without };
            assert!(call(&model, &with).await.0.is_err());
            let sent = [0, 1].map(|n| server.body(n).get("tool_choice").is_some());
            assert_eq!(sent, [false, true], "{preset} {choice:?}");
            assert_eq!(server.body(0).get("tools"), None);
        }
    }
}

/// The JSON key that permits only one call in an answer is sent only with tools, and only to
/// servers that are known to accept it.
#[tokio::test]
async fn a_request_limits_calls_to_one_only_with_tools_and_a_provider_that_accepts_it() {
    let mut told = String::new();
    let choices =
        [None, Some(ToolChoice::Auto), Some(ToolChoice::Required), Some(ToolChoice::None)];
    for preset in PRESETS.iter().map(|preset| preset.name) {
        for (model, tool_choice) in choices.map(|choice| ("m-1", choice)).into_iter().chain(
            ["o1", "o3-mini", "o4-mini-2025-04-16", "o10", "gpt-o3"].map(|model| (model, None)),
        ) {
            let server = Server::answering(Script::whole("400 Bad", "", "{}")).await;
            let mut options = options(preset, &server.url());
            options.model = model.to_owned();
            let route = remote(options);
            let without = ModelRequest { one_call: true, tool_choice, ..ask("Hello.") };
            let with = ModelRequest { tools: vec![tool()], ..without.clone() };
            let many = ModelRequest { one_call: false, ..with.clone() };
            for request in [&with, &without, &many] {
                assert!(call(&route, request).await.0.is_err());
            }
            let [with, without, many] = [0, 1, 2].map(|number| {
                let body = server.body(number);
                let choice = &body["tool_choice"]["disable_parallel_tool_use"];
                format!("{} {choice}", body["parallel_tool_calls"])
            });
            assert_eq!((&*without, &*many), ("null null", "null null"), "{preset}");
            assert_eq!(server.body(1).get("tool_choice"), None);
            let choice = tool_choice.map(|choice| format!("{choice:?}")).unwrap_or_default();
            if model == "m-1" || preset == "openai" {
                told += &format!("{preset} {model} {choice}: {with}\n");
            }
        }
    }
    expect![[r#"
        openai m-1 : false null
        openai m-1 Auto: false null
        openai m-1 Required: false null
        openai m-1 None: false null
        openai o1 : null null
        openai o3-mini : null null
        openai o4-mini-2025-04-16 : null null
        openai o10 : false null
        openai gpt-o3 : false null
        anthropic m-1 : null true
        anthropic m-1 Auto: null true
        anthropic m-1 Required: null true
        anthropic m-1 None: null null
        ollama m-1 : null null
        ollama m-1 Auto: null null
        ollama m-1 Required: null null
        ollama m-1 None: null null
        vllm m-1 : false null
        vllm m-1 Auto: false null
        vllm m-1 Required: false null
        vllm m-1 None: false null
        lm-studio m-1 : null null
        lm-studio m-1 Auto: null null
        lm-studio m-1 Required: null null
        lm-studio m-1 None: null null
        openrouter m-1 : false null
        openrouter m-1 Auto: false null
        openrouter m-1 Required: false null
        openrouter m-1 None: false null
        xai m-1 : false null
        xai m-1 Auto: false null
        xai m-1 Required: false null
        xai m-1 None: false null
        groq m-1 : false null
        groq m-1 Auto: false null
        groq m-1 Required: false null
        groq m-1 None: false null
        mistral m-1 : false null
        mistral m-1 Auto: false null
        mistral m-1 Required: false null
        mistral m-1 None: false null
        deepseek m-1 : null null
        deepseek m-1 Auto: null null
        deepseek m-1 Required: null null
        deepseek m-1 None: null null
        gemini m-1 : null null
        gemini m-1 Auto: null null
        gemini m-1 Required: null null
        gemini m-1 None: null null
        openai-compatible m-1 : null null
        openai-compatible m-1 Auto: null null
        openai-compatible m-1 Required: null null
        openai-compatible m-1 None: null null
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn the_key_is_in_its_header_and_nowhere_else() {
    for (preset, header) in [
        ("openai", format!("authorization: Bearer {KEY}")),
        ("anthropic", format!("x-api-key: {KEY}")),
    ] {
        let server = Server::answering(Script::whole("400 Bad", "", "{}")).await;
        assert!(call(&remote(options(preset, &server.url())), &ask("Hello.")).await.0.is_err());
        let request = &server.requests()[0];
        assert!(request.contains(&header), "{request}");
        assert_eq!(request.matches(KEY).count(), 1, "{request}");
        assert_eq!(request.contains("anthropic-version: 2023-06-01"), preset == "anthropic");
        assert!(request.contains("user-agent: organism/"), "{request}");
        assert!(request.contains("\r\naccept-encoding: identity\r\n"), "{request}");
    }
}

/// Signed reasoning is sent back byte for byte, in its original position.
#[tokio::test]
async fn opaque_provider_blocks_are_sent_back_unchanged() {
    let scene = Scene {
        reasoning: vec!["Let me ", "think: \"ü\"."],
        text: vec!["I look."],
        calls: vec![("call_1", "search", vec!["{}"])],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let mut events = (ANTHROPIC.events)(&scene);
    let redacted = [
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":7,\
         \"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"EmwKAhgB\"}}\n\n",
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":7}\n\n",
    ];
    // Between the text and the call.
    let at = events.iter().position(|event| event.contains("tool_use")).unwrap();
    for event in redacted.into_iter().rev() {
        events.insert(at, event.to_owned());
    }
    let server = Server::answering(Script::stream(&events)).await;
    let model = remote(options("anthropic", &server.url()));
    let (end, heard) = call(&model, &ask("Hello.")).await;
    let end = end.unwrap();
    assert_eq!(end.own.len(), 2);
    let mut blocks: Vec<_> = end.own.into_iter().map(ChatBlock::Own).collect();
    blocks.push(ChatBlock::Text(heard.text));
    blocks.extend(end.calls.into_iter().map(ChatBlock::Call));
    let mut request = ask("Hello.");
    request.messages.push(ChatMessage { role: ChatRole::Assistant, blocks }.into());
    request.messages.push(
        ChatMessage { role: ChatRole::User, blocks: vec![result("call_1", "x", false)] }.into(),
    );
    call(&model, &request).await.0.unwrap();
    let sent = server.body(1)["messages"][1]["content"].clone();
    let expected = json!([
        {"type": "thinking", "thinking": "Let me think: \"ü\".", "signature": SIGNATURE},
        {"type": "text", "text": "I look."},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "tool_use", "id": "call_1", "name": "search", "input": {},
            "cache_control": {"type": "ephemeral"}},
    ]);
    assert_eq!(sent.to_string(), expected.to_string());
}

#[tokio::test]
async fn reasoning_goes_back_to_those_who_want_it() {
    let scene = Scene {
        reasoning: vec!["Hm", "m."],
        calls: vec![("call_1", "search", vec!["{}"])],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let details = "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_details\":\
        [{\"type\":\"reasoning.encrypted\",\"data\":\"x\",\"n\":1.50}]}}]}\n\n";
    // A signed block in pieces, as OpenRouter streams it.
    let claude = [
        json!({"type": "reasoning.text", "text": "Let", "index": 0, "format": "a"}),
        json!({"type": "reasoning.text", "text": " me count.", "index": 0, "format": "a"}),
        json!({"type": "reasoning.text", "signature": SIGNATURE, "index": 0, "format": "a"}),
    ];
    let claude = claude.map(|detail| {
        let delta = json!({"reasoning_details": [detail]});
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
    });
    let claude = claude.concat();
    let signed = json!({"reasoning_details": [{"format": "a", "index": 0, "signature": SIGNATURE,
        "text": "Let me count.", "type": "reasoning.text"}]});
    let signed = signed.to_string();
    for (preset, extra, expected) in [
        ("openrouter", claude.as_str(), Some(signed.as_str())),
        ("deepseek", "", Some("{\"reasoning_content\":\"Hmm.\"}")),
        ("openai", "", None),
        (
            "openrouter",
            details,
            Some(
                "{\"reasoning_details\":[{\"type\":\"reasoning.encrypted\",\"data\":\"x\",\"n\":1.50}]}",
            ),
        ),
    ] {
        let mut events = (OPENAI.events)(&scene);
        events.insert(1, format!("{extra}: keep-alive\n\n"));
        let server = Server::answering(Script::stream(&events)).await;
        let model = remote(options(preset, &server.url()));
        let end = call(&model, &ask("Hello.")).await.0.unwrap();
        let own = end.own.first().map(|own| own.json.as_str());
        assert_eq!(own, expected, "{preset}");
        let Some(own) = own else { continue };
        let mut request = long(end.own.clone());
        request.tool_choice = None;
        call(&model, &request).await.0.unwrap();
        let sent = server.requests()[1].clone();
        let fields = own.trim_start_matches('{').trim_end_matches('}');
        assert!(sent.contains(fields), "{preset}: {sent}");
    }
}

/// The signature of a native call is sent back with this call, and with no other. Gemini 3 refuses
/// a request in which the call lacks its signature.
#[tokio::test]
async fn a_signature_beside_a_native_call_goes_back_with_this_call_alone() {
    let signature = json!({"google": {"thought_signature": "c2ln"}});
    let calls = json!([
        {"index": 0, "id": "a", "extra_content": signature,
            "function": {"name": "search", "arguments": "{}"}},
        {"index": 1, "id": "b", "extra_content": null,
            "function": {"name": "search", "arguments": "{\"n\":2}"}},
    ]);
    let delta = json!({"role": "assistant", "tool_calls": calls});
    let choice = json!({"index": 0, "delta": delta, "finish_reason": "tool_calls"});
    let chunk = json!({"choices": [choice]});
    let events = [format!("data: {chunk}\n\n"), "data: [DONE]\n\n".to_owned()];

    let server = Server::answering(Script::stream(&events)).await;
    let model = remote(options("gemini", &server.url()));
    let end = call(&model, &ask("Hello.")).await.0.unwrap();
    let mut blocks: Vec<_> = end.own.into_iter().map(ChatBlock::Own).collect();
    blocks.extend(end.calls.into_iter().map(ChatBlock::Call));
    let mut request = ask("Hello.");
    request.messages.push(ChatMessage { role: ChatRole::Assistant, blocks }.into());
    let results = vec![result("a", "x", false), result("b", "y", false)];
    request.messages.push(ChatMessage { role: ChatRole::User, blocks: results }.into());
    call(&model, &request).await.0.unwrap();

    let sent = server.body(1)["messages"].clone();
    let answer = sent.as_array().unwrap().iter().find(|message| message["role"] == "assistant");
    let sent = answer.unwrap()["tool_calls"].clone();
    assert_eq!(sent[0]["extra_content"], signature);
    assert_eq!(sent[1].get("extra_content"), None);
}

/// Writes the messages after the first question that `preset` sends for `request`.
async fn sent_messages(preset: &str, model: &str, request: &ModelRequest) -> String {
    let server = Server::answering(Script::whole("400 Bad", "", "{}")).await;
    let mut options = options(preset, &server.url());
    options.model = model.to_owned();
    assert!(call(&remote(options), request).await.0.is_err());
    let messages = server.body(0)["messages"].as_array().unwrap().clone();
    let lines = messages.iter().skip(2).map(|message| {
        let text = |value: &Json| value.as_str().map_or_else(|| "-".to_owned(), str::to_owned);
        let mut words = vec![text(&message["role"])];
        if let Some(id) = message.get("tool_call_id") {
            words.push(format!("{}={}", text(id), text(&message["name"])));
        }
        words.extend(message.get("content").map(text));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            words.push(format!("{}={}", text(&call["id"]), text(&call["function"]["name"])));
        }
        words.join(" ") + "\n"
    });
    lines.collect()
}

/// Gemini rejects a result without the name of the tool. Mistral's models reject ids of another
/// form than their own, and text of the user after a result.
#[tokio::test]
async fn results_of_native_calls_follow_the_rules_of_their_server() {
    let other = |id: &str, name: &str| {
        let (id, name) = (id.to_owned(), name.to_owned());
        ChatBlock::Call(ToolCall { id, name, arguments: "{}".into() })
    };
    let results = |notice: &str, ids: &[&str]| {
        let mut blocks: Vec<_> = ids.iter().map(|id| result(id, "r", false)).collect();
        blocks.extend((!notice.is_empty()).then(|| ChatBlock::Text(notice.to_owned())));
        ChatMessage { role: ChatRole::User, blocks }
    };
    let answer = |blocks| ChatMessage { role: ChatRole::Assistant, blocks };
    let messages = [
        ChatMessage::text(ChatRole::User, "Find <a>."),
        // Servers that state no ids or the same ids: the program numbers the calls of each answer.
        answer(vec![other("call-1", "look"), other("call-1", "../find it")]),
        results("", &["call-1", "call-1"]),
        answer(vec![other("call-1", "look"), other("dnEN4JsJy", "find")]),
        results("Turn 3.", &["call-1", "dnEN4JsJy"]),
    ];
    let messages = messages.into_iter().map(Into::into).collect();
    let request = ModelRequest { messages, tools: vec![tool()], ..ask("") };

    let mut sent = String::new();
    for (preset, model) in
        [("gemini", "m"), ("mistral", "m"), ("openrouter", "mistralai/Devstral-2"), ("vllm", "m")]
    {
        sent += &format!("# {preset} {model}\n{}", sent_messages(preset, model, &request).await);
    }
    expect![[r#"
        # gemini m
        assistant call-1=look call-1=___find_it
        tool call-1=look r
        tool call-1=___find_it r
        assistant call-1=look dnEN4JsJy=find
        tool call-1=look r
        tool dnEN4JsJy=find r
        user Turn 3.
        # mistral m
        assistant 14314c5e1=look b83e02209=___find_it
        tool 14314c5e1=- r
        tool b83e02209=- r
        assistant 22e99214d=look dnEN4JsJy=find
        tool 22e99214d=- r
        tool dnEN4JsJy=- r
        assistant (results received)
        user Turn 3.
        # openrouter mistralai/Devstral-2
        assistant 14314c5e1=look b83e02209=___find_it
        tool 14314c5e1=- r
        tool b83e02209=- r
        assistant 22e99214d=look dnEN4JsJy=find
        tool 22e99214d=- r
        tool dnEN4JsJy=- r
        assistant (results received)
        user Turn 3.
        # vllm m
        assistant call-1=look call-1=___find_it
        tool call-1=- r
        tool call-1=- r
        assistant call-1=look dnEN4JsJy=find
        tool call-1=- r
        tool dnEN4JsJy=- r
        user Turn 3.
    "#]]
    .assert_eq(&sent);
}

/// Requests on record have the form that the program gave them at the time, and forks compare their
/// own requests with them.
#[test]
fn settings_on_record_write_the_requests_of_their_time() {
    for preset in ["gemini", "mistral"] {
        let asks_for_usage = preset == "gemini";
        let recorded = json!({
            "provider": preset, "model": "m-1",
            "wire": {"openai": {"max_tokens": "max_tokens", "asks_for_usage": asks_for_usage,
                "takes_one_call": !asks_for_usage, "wants_reasoning_back": false}},
            "max_tokens": null, "temperature": null, "top_p": null, "reasoning_effort": null,
            "thinking_tokens": null,
        });
        let recorded: WireSettings = serde_json::from_value(recorded).unwrap();
        let body: Json = serde_json::from_str(&recorded.body(&long(Vec::new()))).unwrap();
        let last = body["messages"].as_array().unwrap()[3..].to_vec();
        let expected = json!([
            {"role": "tool", "tool_call_id": "call_1", "content": "found \"it\""},
            {"role": "tool", "tool_call_id": "call_2", "content": "Error: no JSON"},
            {"role": "user", "content": "Turn 2 of 10."},
        ]);
        assert_eq!(Json::from(last), expected, "{preset}");

        let model = remote(options(preset, "http://127.0.0.1:9/v1"));
        let settings = model.settings(&model.route());
        assert_eq!(settings.len(), 2, "{preset}");
        assert_eq!(settings[1], recorded, "{preset}");
    }

    let model = remote(options("openai", "http://127.0.0.1:9/v1"));
    assert_eq!(model.settings(&model.route()).len(), 1);
}

/// A client understands forms of answers that only some servers write.
#[tokio::test]
async fn known_oddities_of_servers_are_understood() {
    let chunk = |delta: serde_json::Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let done = "data: [DONE]".to_owned();
    let calls = json!([
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{\"x\":1}"}},
        {"index": 0, "id": "b", "function": {"name": "two", "arguments": {"y": 2}}},
        {"id": "c", "function": {"name": "three", "arguments": null}},
        {"function": {"arguments": "{}"}},
    ]);
    let parts = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]},
        {"type": "text", "text": "Yes."},
    ]);
    let events = vec![
        chunk(json!({"content": null, "tool_calls": null}), None),
        chunk(json!({"reasoning_content": "", "reasoning": "First. "}), None),
        chunk(json!({"content": parts}), None),
        chunk(json!({"tool_calls": calls}), None),
        "data: {\"choices\":null,\"usage\":null}\n\n".to_owned(),
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"another\"}}]}\n\n".to_owned(),
        chunk(json!({}), Some("stop")),
        // Without the final empty line.
        done,
    ];
    let (end, heard) = super::server::answered("ollama", Script::stream(&events)).await;
    let end = end.unwrap();
    assert_eq!((heard.reasoning.as_str(), heard.text.as_str()), ("First. Hmm.", "Yes."));
    let calls: Vec<_> = end.calls.iter().map(|c| (&*c.id, &*c.name, &*c.arguments)).collect();
    assert_eq!(calls, [("a", "one", "{\"x\":1}"), ("b", "two", "{\"y\":2}"), ("c", "three", "{}")]);
    assert_eq!(end.stop, organism::model::StopReason::Calls);

    let refusal = vec![
        chunk(json!({"refusal": "I can't "}), None),
        chunk(json!({"refusal": "do that."}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (end, heard) = super::server::answered("openai", Script::stream(&refusal)).await;
    assert_eq!(end.unwrap().stop, organism::model::StopReason::Refused);
    assert_eq!(heard.text, "I can't do that.");
}

/// An answer is an error if its server states an end reason that means an incomplete answer.
/// DeepSeek, vLLM, OpenRouter and Z.ai use the reasons of this test.
#[tokio::test]
async fn an_answer_that_its_server_broke_off_is_an_error() {
    for reason in ["insufficient_system_resource", "aborted", "abort", "error", "network_error"] {
        let scene = Scene {
            text: vec!["Stop the pump. Do NOT"],
            calls: vec![("call_1", "clock", vec![])],
            stop: Stop::Word(reason),
            ..Scene::default()
        };
        let events = (OPENAI.events)(&scene);
        let (end, _) = super::server::answered("deepseek", Script::stream(&events)).await;
        let error = end.unwrap_err();
        assert!(error.is_retried(), "{reason}: {error}");
        assert!(error.is_for_another_route(), "{reason}: {error}");
        let stated = format!("reported an error: {reason}: stated as finish_reason");
        assert!(error.to_string().contains(&stated), "{error}");
    }
}

/// The note of a turn holds each native call and each block of the provider, so both are bounded.
#[tokio::test]
async fn parts_of_an_answer_that_no_record_can_hold_are_errors() {
    let long = |bytes: usize| -> &'static str { Box::leak("x".repeat(bytes).into_boxed_str()) };
    let id = long(limits::NATIVE_ID_BYTES_MAX);
    let name = long(limits::NATIVE_NAME_BYTES_MAX);
    for wire in [OPENAI, ANTHROPIC] {
        let calling = |id, name| {
            let calls = vec![(id, name, vec!["{}"])];
            let events = (wire.events)(&Scene { calls, stop: Stop::Calls, ..Scene::default() });
            super::server::answered(wire.preset, Script::stream(&events))
        };
        let calls = calling(id, name).await.0.unwrap().calls;
        assert_eq!((calls[0].id.as_str(), calls[0].name.as_str()), (id, name));

        let escaped: &'static str = Box::leak("\"".repeat(id.len() / 5).into_boxed_str());
        for id in [long(id.len() + 1), escaped] {
            let error = calling(id, name).await.0.unwrap_err();
            assert!(error.to_string().contains("the id of a call takes"), "{error}");
            assert_eq!(error.word(), "invalid-event");
        }

        // A name that is too long for a tool is cut, and the agent gets the refusal of its call.
        let longer = format!("x{}", "\u{e9}".repeat(1 << 16));
        let longer: &'static str = Box::leak(longer.into_boxed_str());
        let calls = calling(id, longer).await.0.unwrap().calls;
        assert_eq!(calls[0].name, longer[..limits::NATIVE_NAME_BYTES_MAX - 1]);
    }

    let data = "x".repeat(limits::ANSWER_BYTES_MAX / 4);
    let mut events = (ANTHROPIC.events)(&Scene { text: vec!["I look."], ..Scene::default() });
    for index in 10..14 {
        let block = json!({"type": "redacted_thinking", "data": data});
        let begin = json!({"type": "content_block_start", "index": index, "content_block": block});
        let end = json!({"type": "content_block_stop", "index": index});
        events.insert(1, format!("data: {end}\n\n"));
        events.insert(1, format!("data: {begin}\n\n"));
    }
    let (end, _) = super::server::answered("anthropic", Script::stream(&events)).await;
    assert_eq!(end.unwrap_err().word(), "too-long");
}

/// If a server states no reason for the end, its answer counts as complete. So a call without
/// arguments is taken.
#[tokio::test]
async fn a_call_without_arguments_is_taken_from_a_server_that_states_no_reason() {
    let scene = Scene { calls: vec![("call_1", "clock", vec![])], ..Scene::default() };
    for stated in ["null", "\"\""] {
        let events = (OPENAI.events)(&scene);
        let events: Vec<_> = events
            .iter()
            .map(|event| {
                let written = "\"finish_reason\":\"stop\"";
                event.replace(written, &format!("\"finish_reason\":{stated}"))
            })
            .collect();
        let (end, _) = super::server::answered("openai", Script::stream(&events)).await;
        let end = end.unwrap();
        assert_eq!(end.stop, organism::model::StopReason::Calls, "{stated}");
        assert_eq!(end.calls.len(), 1, "{stated}");
    }
}

/// Some servers of this API state the whole input in the first event of a call's block. Such a call
/// is complete, whatever the reason for the end is.
#[tokio::test]
async fn a_call_whose_first_event_has_the_whole_input_is_taken_with_any_reason() {
    for stop in [Stop::Calls, Stop::Length, Stop::Word("something_new")] {
        let scene = Scene { calls: vec![("call_1", "clock", vec![])], stop, ..Scene::default() };
        let events = (ANTHROPIC.events)(&scene);
        let events: Vec<_> = events
            .iter()
            .map(|event| event.replace("\"input\":{}", "\"input\":{\"zone\":\"UTC\"}"))
            .collect();
        let (end, _) = super::server::answered("anthropic", Script::stream(&events)).await;
        let calls = end.unwrap().calls;
        let arguments: Vec<_> = calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["{\"zone\":\"UTC\"}"], "{stop:?}");
    }
}

/// A stream of this API whose blocks do not fit together is an error, so that no call and no text
/// of the model is lost without notice.
#[tokio::test]
async fn an_answer_whose_blocks_are_incomplete_is_an_error() {
    let look = ("call_1", "clock", vec!["{}"]);
    let without = |stop, is_dropped: fn(&str) -> bool| {
        let scene =
            Scene { text: vec!["I look."], calls: vec![look.clone()], stop, ..Scene::default() };
        let mut events = (ANTHROPIC.events)(&scene);
        let before = events.len();
        events.retain(|event| !is_dropped(event));
        assert_eq!(events.len() + 1, before);
        events
    };
    let is_call_start = |event: &str| event.contains("\"type\":\"tool_use\"");
    let is_call_end =
        |event: &str| event.contains("content_block_stop") && event.contains("\"index\":1");

    let calls = vec![look.clone(), ("call_2", "clock", vec!["{}"])];
    let mut begun_again =
        (ANTHROPIC.events)(&Scene { calls, stop: Stop::Calls, ..Scene::default() });
    begun_again
        .retain(|event| !(event.contains("content_block_stop") && event.contains("\"index\":0")));
    let begun_again = begun_again.iter().map(|event| event.replace("\"index\":1", "\"index\":0"));
    let begun_again: Vec<_> = begun_again.collect();

    // The answer may be cut short, but its last block is whole.
    let calls = vec![look.clone(), ("call_2", "clock", vec!["{}"])];
    let mut earlier = (ANTHROPIC.events)(&Scene { calls, stop: Stop::Length, ..Scene::default() });
    earlier
        .retain(|event| !(event.contains("content_block_stop") && event.contains("\"index\":0")));

    let cases = [
        (without(Stop::Calls, is_call_end), "ends before the end of content block 1"),
        (without(Stop::Word("something_new"), is_call_end), "before the end of content block 1"),
        (earlier, "ends before the end of content block 0"),
        (without(Stop::Calls, is_call_start), "arguments for content block 1"),
        (begun_again, "content block 0 begins again before its end"),
    ];
    for (events, words) in cases {
        let (end, _) = super::server::answered("anthropic", Script::stream(&events)).await;
        let error = end.unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(error.is_retried(), "{error}");
    }

    let in_arguments = without(Stop::Word("something_new"), is_call_end);
    let in_arguments = in_arguments.iter().map(|event| event.replace("\"{}\"", "\"{\""));
    for cut in [without(Stop::Length, is_call_end), in_arguments.collect()] {
        let (end, _) = super::server::answered("anthropic", Script::stream(&cut)).await;
        assert_eq!(end.unwrap().calls, [], "a call that may be cut short");
    }
}

/// Servers of this API other than Anthropic's send empty or blank pieces in blocks of another kind.
#[tokio::test]
async fn text_in_any_block_and_empty_pieces_are_accepted() {
    let scene = Scene {
        reasoning: vec!["Hm."],
        text: vec!["I look."],
        calls: vec![("call_1", "clock", vec!["{}"])],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let piece = |index: usize, delta: &Json| {
        let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
        format!("data: {event}\n\n")
    };
    let text = |text: &str| json!({"type": "text_delta", "text": text});
    let stray = [
        (0, vec![text("<rm/>"), json!({"type": "input_json_delta", "partial_json": "\n"})]),
        (1, vec![json!({"type": "thinking_delta", "thinking": " So."})]),
        (2, vec![text("\n"), json!({"type": "thinking_delta", "thinking": ""})]),
    ];

    let mut events = (ANTHROPIC.events)(&scene);
    for (index, deltas) in stray {
        let end = format!("\"type\":\"content_block_stop\",\"index\":{index}");
        let at = events.iter().position(|event| event.contains(&end)).unwrap();
        for delta in deltas {
            events.insert(at, piece(index, &delta));
        }
    }

    let (end, received) = super::server::answered("anthropic", Script::stream(&events)).await;
    let end = end.unwrap();
    assert_eq!(received.reasoning, "Hm.<rm/> So.", "text in a block of reasoning is reasoning");
    assert_eq!(received.text, "I look.\n");
    let calls: Vec<_> = end.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("clock", "{}")]);

    let is_text_start = |event: &String| event.contains("\"type\":\"text\"");
    events.retain(|event| !is_text_start(event));
    let (end, received) = super::server::answered("anthropic", Script::stream(&events)).await;
    assert_eq!(end.unwrap().calls.len(), 1);
    assert_eq!(received.text, "I look.\n", "text without a block");
}

#[test]
fn every_preset_is_found_by_its_name_and_hosted_ones_use_https() {
    assert!(PRESETS.len() >= 11);
    for preset in PRESETS {
        assert_eq!(ProviderPreset::named(preset.name).map(|p| p.name), Some(preset.name));
        if preset.needs_key {
            assert!(preset.base_url.unwrap().starts_with("https://"), "{}", preset.name);
            assert!(preset.key_variable.unwrap().ends_with("_API_KEY"), "{}", preset.name);
        }
    }
}
