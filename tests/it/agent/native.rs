//! Native calls: the offered tools, the action of each call, and the result under the call's id.

use std::collections::BTreeSet;
use std::sync::Arc;

use expect_test::{Expect, expect};
use organism::agent::{
    ActionTransport, AgentOptions, FinalFormat, ModelAgent, ReportSchema, TurnInputs,
};
use organism::envelope::AttemptFailure;
use organism::ids::Digest;
use organism::limits;
use organism::model::router::{RateLimits, RoutedModel, RoutingStrategy};
use organism::model::{
    ChatBlock, ChatMessage, ChatRole, ModelRequest, ModelRoute, ModelRouter, ModelTerms, OwnBlock,
    RequestOrigin, RouteTerms, SharedModel, StopReason, TokenPrice, ToolCall, ToolChoice,
};
use organism::thread::Closing;
use organism::xml::element::Element;
use organism::xml::scan::scan_within;
use serde_json::json;

use super::scripted::{Reply, Says, Scripted, reply};
use super::setup::{delivery, options, question_thread, take};
use super::stage::{Stage, researcher};
use super::story::{ROOT, listener, thread};

fn shown(request: &ModelRequest) -> String {
    let mut out = String::new();
    for said in &request.messages {
        for block in &said.blocks {
            let role = said.role.as_str();
            out += &match block {
                ChatBlock::Text(text) if text.starts_with("<notice>") => continue,
                ChatBlock::Text(text) => format!("{role}: {text}\n"),
                ChatBlock::Call(call) => {
                    format!("{role} calls {} {} {}\n", call.id, call.name, call.arguments)
                }
                ChatBlock::Result { id, text, failed } => {
                    let failed = if *failed { " failed" } else { "" };
                    format!("{role} result{failed} {id}: {text}\n")
                }
                ChatBlock::Own(own) => format!("{role} own {}: {}\n", own.provider, own.json),
            };
        }
    }
    out
}

fn check(request: &ModelRequest, expect: Expect) {
    expect.assert_eq(&shown(request));
}

fn search() -> Says {
    Says::Acts(vec![("extract", json!({"line": 3, "file_path": "src/a.rs"}))])
}

// F1 T1
#[test]
fn the_record_is_the_same_whichever_transport_is_used() {
    let turns = || {
        vec![
            Says::Acts(vec![
                ("extract", json!({"file_path": "a & b", "line": 3})),
                ("search", json!({"query": "<x>"})),
            ]),
            Says::Acts(vec![("question", json!({"part": ["and why?"]}))]),
            Says::Acts(vec![("set-timer", json!({"after": "PT1S", "label": "l"}))]),
            Says::Ends("it is <there> & nowhere else"),
        ]
    };
    let mut transcripts =
        [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal].map(|way| {
            let (mut stage, model) = Stage::new(way, turns());
            stage.ask();
            assert_eq!(stage.results.len(), 1, "{}", stage.transcript());
            assert_eq!(stage.results[0].0, Closing::Completed);
            let offered = model
                .requests()
                .iter()
                .all(|r| r.tools.is_empty() == (way == ActionTransport::Xml));
            assert!(
                offered,
                "native tools are sent where there are native calls, and nowhere else"
            );
            stage.transcript()
        });
    // The id of a timer is derived from the step, so the id does not differ either.
    let first = transcripts[0].clone();
    for other in &mut transcripts[1..] {
        assert_eq!(*other, first);
    }
    expect![[r#"
        call desk>researcher <question><part>where?</part></question>
        note researcher>researcher <thinking>Look.</thinking>
        call researcher>code <extract><file_path>a &amp; b</file_path><line>3</line></extract>
        call researcher>code <search><query>&lt;x&gt;</query></search>
        call researcher>web <search><query>&lt;x&gt;</query></search>
        reply code>researcher <found>code on extract</found>
        reply code>researcher <found>code on search</found>
        reply web>researcher <found>web on search</found>
        note researcher>researcher <thinking>Look.</thinking>
        self researcher>researcher <question><part>and why?</part></question>
        note researcher>researcher <thinking>Look.</thinking>
        call researcher>core <set-timer after="PT1S" label="l"/>
        system core>researcher <timer-set timer_id="71e2ca07-1b75-5017-9e5c-59fbcf2486b9" fires_at="2023-11-14T22:13:21.008000Z" label="l"/>
        note researcher>researcher <thinking>Done.</thinking>
        reply researcher>desk <attempt_completion><result>it is &lt;there&gt; &amp; nowhere else</result></attempt_completion>
        system core>researcher <timer-cancelled timer_id="71e2ca07-1b75-5017-9e5c-59fbcf2486b9" label="l"/>
    "#]].assert_eq(&first);
}

#[test]
fn results_come_back_under_the_ids_of_their_calls_in_the_order_of_the_calls() {
    let turn = reply("<thinking>Look.</thinking>")
        .call("search", r#"{"query":"x"}"#)
        .call("search", r#"{"query":"x"}"#)
        .call("extract", r#"{"file_path":"a","lin":1}"#)
        .call("todo-until", r#"{"condition":"all read"}"#)
        .own("fake", r#"{"signature":"s"}"#)
        .own("other", "{}");
    let (mut stage, model) =
        Stage::new(ActionTransport::Native, vec![Says::Exactly(turn), search(), Says::Ends("x")]);
    stage.ask();
    let heard = model.requests();
    check(
        &heard[1],
        expect![[r#"
            user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
            assistant own fake: {"signature":"s"}
            assistant own other: {}
            assistant: <thinking>Look.</thinking>
            assistant calls call-1-search search {"query":"x"}
            assistant calls call-2-search search {"query":"x"}
            assistant calls call-3-extract extract {"file_path":"a","lin":1}
            assistant calls call-4-todo-until todo-until {"condition":"all read"}
            user result call-1-search: <tool_result tool_name="search" from="code"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">code on search</found></tool_result>

            <tool_result tool_name="search" from="web"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">web on search</found></tool_result>
            user result call-2-search: <tool_result tool_name="search" from="code"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">code on search</found></tool_result>

            <tool_result tool_name="search" from="web"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">web on search</found></tool_result>
            user result failed call-3-extract: Error: schema-invalid: `$.lin` is no parameter; did you mean `line`? (line 1, column 24)
            user result call-4-todo-until: recorded
        "#]],
    );
    assert_eq!(
        heard[2].messages[..heard[1].messages.len() - 1],
        heard[1].messages[..heard[1].messages.len() - 1]
    );
}

// F2 F9
#[test]
fn a_missing_or_nameless_call_beside_a_valid_one_gets_feedback() {
    // The provider returns no call that was cut off; only the stop reason shows it.
    let cut = reply("").call("query", r#"{"content":"x"}"#).stop(StopReason::Length);
    let nameless = reply("").call("", r#"{"content":"y"}"#).call("query", r#"{"content":"x"}"#);
    for transport in [ActionTransport::Native, ActionTransport::XmlFinal] {
        for (turn, told) in [
            (&cut, "truncated: the response reached its maximum length and was cut"),
            (&nameless, "unknown-action: `` is no tool; you have search"),
        ] {
            let turns = vec![Says::Exactly(turn.clone()), Says::Ends("x")];
            let (mut stage, model) = Stage::new(transport, turns);
            stage.ask();
            let shown = shown(&model.requests()[1]);
            assert!(shown.contains(&format!("Error: {told}")), "{transport:?}: {shown}");
            assert!(shown.contains("code on query"), "the good one ran: {shown}");
        }
    }
}

// F16
#[test]
fn a_turn_is_recorded_with_its_calls_each_to_be_found_again_by_its_digest() {
    let turn = reply("")
        .call("query", r#"{ "content" : "login" }"#)
        .call("search", "not json")
        .own("fake", "{\"thinking\":\"signed\"}");
    let (mut stage, _) =
        Stage::new(ActionTransport::Native, vec![Says::Exactly(turn), Says::Ends("x")]);
    stage.ask();
    let past = &stage.past()[0];
    let (accepted, refused) = stage.digests();
    let calls: Vec<_> = past
        .calls
        .iter()
        .map(|made| {
            (
                made.call.id.as_str(),
                made.call.arguments.as_str(),
                accepted.contains(&made.digest),
                refused.contains(&made.digest),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("call-1-query", "{ \"content\" : \"login\" }", true, false),
            ("call-2-search", "not json", false, true),
        ]
    );
    assert_eq!(past.own[0].json, "{\"thinking\":\"signed\"}");
    assert_eq!(past.provider, "fake");
    assert_ne!(past.calls[0].digest, Digest::ZERO);
}

#[test]
fn another_provider_s_calls_are_shown_as_xml() {
    let turn =
        reply("Look.").call("search", r#"{"query":"x"}"#).call("grep", "{}").own("fake", "{}");
    let (mut stage, _) =
        Stage::new(ActionTransport::Native, vec![Says::Exactly(turn), Says::Ends("x")]);
    stage.ask();
    let other = Scripted::by("other", ActionTransport::Native, vec![Says::Ends("y")]);
    stage.recast(researcher(ActionTransport::Native), other.clone());
    stage.ask_again();
    check(
        &other.requests()[0],
        expect![[r#"
            user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
            assistant: Look.
            <search><query>x</query></search>
            <grep>{}</grep>
            user: <tool_result tool_name="search" from="code"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">code on search</found></tool_result>

            <tool_result tool_name="search" from="web"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">web on search</found></tool_result>

            <tool_result tool_name="grep">Error: unknown-action: `grep` is no tool; you have search, extract, query, question, attempt_completion, spawn-thread, send-to-thread, cancel-thread, wait, clear-context, set-timer, cancel-timer, progress, todo-until</tool_result>
            assistant: <thinking>Done.</thinking>
            <attempt_completion><result>x</result></attempt_completion>
            user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
        "#]],
    );
    let xml = Scripted::by("fake", ActionTransport::Xml, vec![Says::Ends("z")]);
    stage.recast(researcher(ActionTransport::Xml), xml.clone());
    stage.ask_again();
    let before: Vec<_> = other.requests()[0].messages.iter().map(|said| said.role).collect();
    let after = xml.requests()[0].messages.iter().map(|said| said.role).collect::<Vec<_>>();
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.last(), Some(&ChatRole::User));
}

/// Section 10.6: a router may ask another provider than the one that made the calls of the last
/// turn. The other provider gets these calls as XML.
#[test]
fn each_route_of_a_router_gets_the_calls_of_other_providers_as_xml() {
    let way = ActionTransport::Native;
    let first = Scripted::by("fake", way, vec![search(), Says::Ends("y")]);
    let other = Scripted::by("other", way, vec![Says::Ends("x")]);
    let models: [SharedModel; 2] = [first.clone(), other.clone()];
    let routes = models.map(|model| RoutedModel::new(model, RateLimits::default()));
    let router = ModelRouter::new(routes.into(), RoutingStrategy::RoundRobin, 1);
    let mut stage = Stage::with(researcher(way), Arc::new(router));
    stage.ask();
    let request = &other.requests()[0];
    check(
        request,
        expect![[r#"
            user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
            assistant: <thinking>Look.</thinking>
            <extract><line>3</line><file_path>src/a.rs</file_path></extract>
            user: <tool_result tool_name="extract"><found xmlns="https://xml-pipeline.org/ns/test-tools/v1">code on extract</found></tool_result>
        "#]],
    );

    let inputs = stage.turns[1].inputs.clone().unwrap();
    let inputs = TurnInputs::read(inputs.as_bytes()).unwrap();
    assert_eq!(inputs.native.as_deref(), Some("other"));
    let sent = Digest::of(inputs.wire(request).as_bytes());
    assert_eq!(stage.past()[1].prompt, Some(sent));

    // The first provider gets its own call as a block, and the final of the other one as XML.
    stage.ask_again();
    let again = shown(&first.requests()[1]);
    assert!(again.contains("assistant calls call-1-extract extract"), "{again}");
    assert!(again.contains("<attempt_completion><result>x</result>"), "{again}");
}

#[test]
fn a_report_that_is_a_json_string_ends_the_call() {
    for (schema, arguments, report) in [
        (r#"{"type":"string"}"#, r#"{"result":"done"}"#, r#""done""#),
        (r#"{"type":"string"}"#, r#"{"result":"5"}"#, r#""5""#),
        (r#"{"type":"object"}"#, r#"{"result":{"a":1}}"#, r#"{"a":1}"#),
        (r#"{"type":"object"}"#, r#"{"result":"{\"a\":1}"}"#, r#"{"a":1}"#),
    ] {
        let turn = Says::Exactly(reply("").call("attempt_completion", arguments));
        let mut options = researcher(ActionTransport::Native);
        options.final_format = FinalFormat::Json(Arc::new(ReportSchema::parse(schema).unwrap()));
        options.max_iterations = 1;
        let model = Scripted::new(ActionTransport::Native, vec![turn]);
        let mut stage = Stage::with(options, model);
        stage.ask();
        let (how, texts) = &stage.results[0];
        assert_eq!(*how, Closing::Completed, "{schema} {arguments}: {texts:?}");
        let payload = Element::read(&texts[0]).unwrap();
        assert_eq!(payload.child("result").unwrap().text(), report, "{schema} {arguments}");
    }
}

#[test]
fn a_report_in_json_that_gives_a_name_twice_is_refused() {
    let schema = r#"{"properties":{"a":{"type":"integer","maximum":5}}}"#;
    for (way, turn, finding) in [
        (
            ActionTransport::Native,
            reply("").call("attempt_completion", r#"{"result":{"a":9,"a":1}}"#),
            "`$.result.a` is given twice",
        ),
        (
            ActionTransport::Native,
            reply("").call("attempt_completion", r#"{"result":"{\"a\":9,\"a\":1}"}"#),
            "the final report gives `$.a` twice",
        ),
        (
            ActionTransport::Xml,
            reply(r#"<attempt_completion><result>{"a":9,"a":1}</result></attempt_completion>"#),
            "the final report gives `$.a` twice",
        ),
    ] {
        let mut options = researcher(way);
        options.final_format = FinalFormat::Json(Arc::new(ReportSchema::parse(schema).unwrap()));
        let model = Scripted::new(way, vec![Says::Exactly(turn), Says::Ends("{}")]);
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        assert_eq!(stage.results[0].0, Closing::Completed);
        let feedback = shown(&model.requests()[1]);
        assert!(feedback.contains(finding), "{finding}: {feedback}");
    }
}

/// Section 10.6: if the core refuses a call, the refusal is its result.
#[test]
fn a_request_that_the_core_refuses_has_the_refusal_as_its_result() {
    let turn = reply("").call("spawn-thread", r#"{"suggested_sub_id":"a b"}"#);
    let (mut stage, model) =
        Stage::new(ActionTransport::Native, vec![Says::Exactly(turn), Says::Ends("x")]);
    stage.ask();
    let text = shown(&model.requests()[1]);
    let result = "user result failed call-1-spawn-thread: Error: bad-label: suggested_sub_id must";
    assert!(text.contains(result), "{text}");
    assert_eq!(text.matches("bad-label").count(), 1, "{text}");
}

// T14 F8 F2 T15
#[test]
fn wrong_calls_are_refused_before_any_tool_runs_each_by_what_was_wrong() {
    for (way, name) in
        [(ActionTransport::Native, "native"), (ActionTransport::XmlFinal, "xml-final")]
    {
        let mut turn = reply("");
        for (tool, arguments) in [
            ("grep", "{}"),
            ("serch", "{}"),
            ("search", "{\"query\": "),
            ("search", "{\"path\":\"x\"}"),
            ("extract", "{\"file_path\":\"x\",\"line\":\"many\"}"),
            ("extract", "{\"file_path\":\"x\",\"line\":0}"),
            ("spawn-thread", "{\"initial-payload\":{\"grep\":{}}}"),
            ("spawn-thread", "{\"initial-payload\":{\"search\":{\"qurey\":\"x\"}}}"),
            (
                "spawn-thread",
                "{\"initial-payload\":{\"query\":{\"content\":\"<&>\"}},\"timeuot\":1}",
            ),
        ] {
            turn = turn.call(tool, arguments);
        }
        let (mut stage, model) = Stage::new(way, vec![Says::Exactly(turn), Says::Ends("x")]);
        stage.ask();
        let told = shown(&model.requests()[1]);
        let told: String = told
            .lines()
            .filter(|line| !line.contains(" calls "))
            .map(|l| format!("{l}\n"))
            .collect();
        assert!(!stage.transcript().contains(">code"), "{name}");
        if way == ActionTransport::Native {
            expect![[r#"
                user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
                user result failed call-1-grep: Error: unknown-action: `grep` is no tool; you have search, extract, query, question, attempt_completion, spawn-thread, send-to-thread, cancel-thread, wait, clear-context, set-timer, cancel-timer, progress, todo-until
                user result failed call-2-serch: Error: unknown-action: `serch` is no tool; did you mean `search`?
                user result failed call-3-search: Error: malformed-action: the arguments are no JSON: EOF while parsing a value (line 1, column 9)
                user result failed call-4-search: Error: schema-invalid: `$.query` is required and not there (line 1, column 1)
                user result failed call-5-extract: Error: schema-invalid: `$.line` is a string; a whole number is expected (line 1, column 25)
                user result failed call-6-extract: Error: schema-invalid: element 'line': '0' is not a valid value of the atomic type 'xs:positiveInteger'
                Expected: extract({"file_path":"file_path","line":1,"end_line":1})
                user result failed call-7-spawn-thread: Error: schema-invalid: `$.initial-payload.grep` is no payload; there are search, extract, query, question
                user result failed call-8-spawn-thread: Error: schema-invalid: `$.initial-payload.search.qurey` is no parameter; did you mean `query`?; `$.initial-payload.search.query` is required and not there (line 1, column 39)
                user result failed call-9-spawn-thread: Error: schema-invalid: `$.timeuot` is no parameter; did you mean `timeout`? (line 1, column 58)
            "#]].assert_eq(&told);
        }
        assert_eq!(told.matches("user result failed").count(), 9, "{name}: {told}");
    }
}

// F2
#[test]
fn xml_of_a_tool_beside_native_calls_gets_feedback_and_the_calls_still_run() {
    let turn = reply("<search><query>x</query></search>").call("query", r#"{"content":"login"}"#);
    let (mut stage, model) =
        Stage::new(ActionTransport::Native, vec![Says::Exactly(turn), Says::Ends("x")]);
    stage.ask();
    check(
        &model.requests()[1],
        expect![[r#"
        user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
        assistant: <search><query>x</query></search>
        assistant calls call-1-query query {"content":"login"}
        user result call-1-query: <found xmlns="https://xml-pipeline.org/ns/test-tools/v1">code on query</found>
        user: <tool_result tool_name="search">Error: malformed-action: &lt;search&gt; was written as XML and is not acted on: call the native tool `search` (line 1, column 1)</tool_result>
    "#]],
    );
}

#[test]
fn payloads_inside_the_core_s_words_are_given_as_json_too() {
    let spawn =
        json!({"suggested_sub_id": "sub", "initial-payload": {"query": {"content": "<login>"}}});
    let (mut stage, model) = Stage::new(
        ActionTransport::Native,
        vec![Says::Acts(vec![("spawn-thread", spawn)]), Says::Ends("x")],
    );
    stage.ask();
    expect![[r#"
        call desk>researcher <question><part>where?</part></question>
        note researcher>researcher <thinking>Look.</thinking>
        call researcher>core <spawn-thread suggested_sub_id="sub"><initial-payload><query>&lt;login&gt;</query></initial-payload></spawn-thread>
        system core>researcher <thread-spawned assigned_id="sess-stage0001.sub" parent_id="sess-stage0001" message="Thread spawned successfully."/>
        call researcher>code <query>&lt;login&gt;</query>
        note researcher>researcher <thinking>Done.</thinking>
        reply researcher>desk <attempt_completion><result>x</result></attempt_completion>
        reply code>researcher <found>code on query</found>
        system core>researcher <c:thread-result xmlns:c="https://xml-pipeline.org/ns/core/v1" thread_id="sess-stage0001.sub" status="completed"><found>code on query</found></c:thread-result>
    "#]].assert_eq(&stage.transcript());
    let heard = model.requests();
    let tool = heard[0].tools.iter().find(|tool| tool.name == "spawn-thread").unwrap();
    let place = &tool.parameters["properties"]["initial-payload"];
    let description = place["description"].as_str().unwrap();
    assert!(description.contains("search, extract, query, question"), "{description}");
    assert_eq!(place.get("properties"), None, "each payload's schema is in its own tool alone");
}

// F6 T1
#[test]
fn a_choice_of_tools_is_sent_as_configured_and_never_without_tools() {
    for (way, choice, sent) in [
        (ActionTransport::Native, None, None),
        (ActionTransport::Native, Some(ToolChoice::Required), Some(ToolChoice::Required)),
        (ActionTransport::XmlFinal, Some(ToolChoice::Auto), Some(ToolChoice::Auto)),
        (ActionTransport::Xml, Some(ToolChoice::Auto), None),
    ] {
        let model = Scripted::new(way, vec![Says::Ends("x")]);
        let mut options = researcher(way);
        options.tool_choice = choice;
        Stage::with(options, model.clone()).ask();
        let request = &model.requests()[0];
        assert_eq!(request.tool_choice, sent);
        assert_eq!(request.tools.is_empty(), way == ActionTransport::Xml);
    }
}

// T11 F11
#[test]
fn a_turn_without_a_native_call_gets_feedback_with_its_form() {
    let turns =
        vec![Says::Exactly(reply("It is there.")), Says::Exactly(reply("")), Says::Ends("x")];
    let (mut stage, model) = Stage::new(ActionTransport::Native, turns);
    stage.ask();
    check(
        model.requests().last().unwrap(),
        expect![[r#"
        user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
        assistant: It is there.
        user: <tool_result>Error: no-action: the response did not contain a valid tool call or final report: call one of the native tools (search, extract, query), or end the task with attempt_completion (line 1, column 1)</tool_result>
        assistant: (nothing)
        user: <tool_result>Error: no-action: the response did not contain a valid tool call or final report: it was empty; call one of the native tools (search, extract, query), or end the task with attempt_completion (line 1, column 1)</tool_result>
    "#]],
    );
}

#[test]
fn an_empty_answer_is_never_sent_back_as_a_message_without_text() {
    for way in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let turns = vec![Says::Exactly(reply("")), Says::Exactly(reply(" \n")), Says::Ends("x")];
        let (mut stage, model) = Stage::new(way, turns);
        stage.ask();
        let requests = model.requests();
        let messages = requests.last().unwrap().messages.iter();
        let answers = messages.filter(|message| message.role == ChatRole::Assistant);
        let texts: Vec<String> = answers.map(|message| message.texts().collect()).collect();
        assert_eq!(texts, ["(nothing)", "(nothing)"], "{way:?}");
    }
}

// T2
#[test]
fn reasoning_that_a_provider_shows_apart_is_kept_as_a_note_and_ends_no_turn() {
    let mut turn = reply("").call("query", r#"{"content":"x"}"#);
    turn.reasoning = "First <search>, then think.".to_owned();
    let mut silent = reply("");
    silent.reasoning = "Hm.".to_owned();
    for way in [ActionTransport::Native, ActionTransport::XmlFinal] {
        let turns =
            vec![Says::Exactly(turn.clone()), Says::Exactly(silent.clone()), Says::Ends("x")];
        let (mut stage, model) = Stage::new(way, turns);
        stage.ask();
        assert!(
            stage.transcript().contains("<thinking>First &lt;search&gt;, then think.</thinking>")
        );
        assert!(shown(model.requests().last().unwrap()).contains("it was empty"));
    }
}

#[test]
fn a_native_call_without_offered_tools_gets_feedback() {
    let turn = reply("").call("search", r#"{"query":"x"}"#).stop(StopReason::Calls);
    let (mut stage, model) =
        Stage::new(ActionTransport::Xml, vec![Says::Exactly(turn), Says::Ends("x")]);
    stage.ask();
    check(
        &model.requests()[1],
        expect![[r#"
        user: <message from="desk" to="researcher"><question xmlns="https://xml-pipeline.org/ns/research-desk/v1"><part>where?</part></question></message>
        assistant: <search>{"query":"x"}</search>
        user: <tool_result tool_name="search">Error: malformed-action: `search` was called natively, and there are no native tools: write the action as XML</tool_result>
    "#]],
    );
}

// F6
#[test]
fn a_rejected_request_is_feedback_where_the_next_one_can_differ() {
    for way in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let turns = vec![search(), Says::Rejects("tools: too many"), Says::Ends("x")];
        let (mut stage, model) = Stage::new(way, turns);
        stage.ask();
        assert_eq!(stage.results[0].0, Closing::Completed);
        let told = shown(&model.requests()[2]);
        assert!(
            told.contains("Error: request-rejected: the provider rejected the request"),
            "{told}"
        );
        assert!(told.contains("tools: too many"), "{told}");

        // The feedback is given once, and nothing else was sent in between.
        let turns = vec![search(), Says::Rejects("no"), Says::Rejects("no"), Says::Ends("x")];
        let (mut stage, model) = Stage::new(way, turns);
        stage.ask();
        assert_eq!(model.requests().len(), 3);
        let (how, texts) = &stage.results[0];
        assert_eq!(*how, Closing::Failed);
        assert!(texts[0].contains("listener-failed"), "{texts:?}");

        // The first request of a call contains no text of the agent.
        let turns = vec![Says::Rejects("no"), Says::Ends("x")];
        let (mut stage, model) = Stage::new(way, turns);
        stage.ask();
        assert_eq!(model.requests().len(), 1);
        let (how, texts) = &stage.results[0];
        assert_eq!(*how, Closing::Failed);
        assert!(texts[0].contains("listener-failed"), "{texts:?}");
    }
}

// F6
#[test]
fn an_answer_that_the_provider_could_not_parse_is_feedback_from_the_first_turn_on() {
    let way = ActionTransport::Native;
    let turns = vec![Says::Garbles("no such tool"), Says::Garbles("no such tool"), Says::Ends("x")];
    let (mut stage, model) = Stage::new(way, turns);
    stage.ask();
    assert_eq!(stage.results[0].0, Closing::Completed);
    let shown = shown(&model.requests()[2]);
    assert_eq!(shown.matches("no such tool").count(), 2, "{shown}");
}

// F6
#[test]
fn a_rejected_turn_names_the_route_that_rejected_it() {
    let way = ActionTransport::Native;
    let first = Scripted::by("fake", way, vec![search(), Says::Rejects("a"), Says::Ends("x")]);
    let other = Scripted::by("other", way, vec![Says::Rejects("b")]);
    let models: [SharedModel; 2] = [first, other.clone()];
    let routes = models.map(|model| RoutedModel::new(model, RateLimits::default()));
    let router = ModelRouter::new(routes.into(), RoutingStrategy::Failover, 1);
    let mut stage = Stage::with(researcher(way), Arc::new(router));
    stage.ask();
    let rejected = &stage.past()[1];
    assert_eq!(rejected.provider, "other");
    let inputs = stage.turns[1].inputs.clone().unwrap();
    let inputs = TurnInputs::read(inputs.as_bytes()).unwrap();
    let sent = Digest::of(inputs.wire(&other.requests()[0]).as_bytes());
    assert_eq!(rejected.prompt, Some(sent));
}

/// Two routes may have the same provider and model at two addresses, with two prices. The route
/// that answered sets the price of the answer.
#[test]
fn of_routes_with_the_same_name_the_one_that_answered_is_paid() {
    let way = ActionTransport::Native;
    let priced = |output: f64| RouteTerms {
        route: ModelRoute { provider: "fake".to_owned(), model: "scripted".to_owned() },
        context_window: None,
        max_tokens: Some(100),
        price: Some(TokenPrice {
            input: 0.0,
            output,
            cached: None,
            cache_written: None,
            currency: "USD".to_owned(),
        }),
    };
    let spent = |says: [Says; 2]| {
        let models: [SharedModel; 2] =
            says.map(|says| Scripted::new(way, vec![says]) as SharedModel);
        let routes = models.map(|model| RoutedModel::new(model, RateLimits::default()));
        let router = ModelRouter::new(routes.into(), RoutingStrategy::Failover, 1);
        let terms = ModelTerms::new(vec![priced(1_000.0), priced(9_000.0)]);
        let options = AgentOptions { transport: way, terms, ..options() };
        let (story, call) = question_thread();
        let agent = ModelAgent::new(options, Arc::new(router), Arc::new(story.clone()));
        let turn = take(&agent, &delivery(&story, call)).unwrap().turn.unwrap();
        turn.money.to_string()
    };
    // Each answer has five tokens.
    assert_eq!(spent([search(), Says::Rejects("unused")]), "0.005");
    assert_eq!(spent([Says::Rejects("a"), search()]), "0.045");
}

// T10 T12
#[test]
fn the_last_turn_spent_fails_the_task_on_every_transport() {
    for way in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        for (turn, says) in [
            (Says::Exactly(reply("Hm.")), "set final_by = \"text\" for the agent"),
            (Says::Exactly(reply("<search/>")), "no turn held a valid action"),
            (search(), "after a call, without a final answer"),
        ] {
            let mut options = researcher(way);
            options.max_iterations = 3;
            let model = Scripted::new(way, vec![turn.clone(), turn.clone(), turn]);
            let mut stage = Stage::with(options, model.clone());
            stage.ask();
            let (how, texts) = &stage.results[0];
            assert_eq!(*how, Closing::Failed);
            assert!(texts[0].contains(says), "{texts:?}");
            assert!(shown_notice(&model.requests()[2]).contains("It is the last"));
        }
    }
}

fn shown_notice(request: &ModelRequest) -> String {
    request.messages.last().unwrap().texts().last().unwrap().to_owned()
}

// T6
#[test]
fn excess_actions_are_refused_one_by_one_on_every_transport() {
    for way in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let twice = vec![("query", json!({"content": "a"})), ("query", json!({"content": "b"}))];
        let mut options = researcher(way);
        options.contract.actions_per_turn = 1;
        let model = Scripted::new(way, vec![Says::Acts(twice), Says::Ends("x")]);
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        let transcript = stage.transcript();
        assert_eq!(transcript.matches("call researcher>code").count(), 1, "{transcript}");
        assert_eq!(transcript.matches("- refused excess-action").count(), 1, "{transcript}");
        assert!(shown(&model.requests()[1]).contains("Error: excess-action"));
        assert_eq!(model.requests()[0].one_call, way.is_native());
    }
}

#[test]
fn calls_with_the_same_id_get_each_its_own_result() {
    let same = |turn: Reply| {
        let calls = turn.calls.into_iter().map(|call| ToolCall { id: "0".to_owned(), ..call });
        Reply { calls: calls.collect(), ..turn }
    };
    let first =
        same(reply("").call("query", r#"{"content":"a"}"#).call("extract", r#"{"file_path":"b"}"#));
    let second = same(reply("").call("extract", r#"{"file_path":"c"}"#));
    let turns = vec![Says::Exactly(first), Says::Exactly(second), Says::Ends("x")];
    let (mut stage, model) = Stage::new(ActionTransport::Native, turns);
    stage.ask();
    let told = shown(model.requests().last().unwrap());
    let results: Vec<_> = told
        .lines()
        .filter_map(|line| line.strip_prefix("user result 0: "))
        .map(|line| line.split_once("\">").unwrap().1.trim_end_matches("</found>"))
        .collect();
    assert_eq!(results, ["code on query", "code on extract", "code on extract"]);
}

/// Escapes make the record of an answer longer than the answer. An answer whose record would exceed
/// the maximum is charged by its own usage, and not by the whole reservation.
#[test]
fn an_answer_that_is_too_long_to_record_is_charged_by_its_usage() {
    let arguments = json!({ "query": "&".repeat(limits::CORE_PAYLOAD_BYTES_MAX / 5) });
    let turn = Says::Exactly(reply("").call("search", &arguments.to_string()));
    let model = Scripted::new(ActionTransport::Native, vec![turn]);
    let options = AgentOptions { transport: ActionTransport::Native, ..options() };
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
    let failure = take(&agent, &delivery(&story, call)).unwrap_err();
    let AttemptFailure::Model { reason, detail, spent, passing: false, .. } = &failure else {
        panic!("{failure:?}")
    };
    assert_eq!(reason, "too-long");
    assert!(detail.contains("the record of its answer would have"), "{detail}");
    assert_eq!(spent.tokens, 15);
}

/// The note of a turn holds the id and the name of a native call in one tag. A name that no tool
/// has is refused, so that the agent can correct it.
#[test]
fn the_longest_id_and_name_of_a_native_call_fit_into_the_note_of_a_turn() {
    let longest = ToolCall {
        id: "x".repeat(limits::NATIVE_ID_BYTES_MAX),
        name: "\"".repeat(limits::NATIVE_NAME_BYTES_MAX),
        arguments: "\u{1}".to_owned(),
    };
    let turn = Says::Exactly(Reply { calls: vec![longest], ..reply("") });
    let model = Scripted::new(ActionTransport::Native, vec![turn]);
    let options = AgentOptions { transport: ActionTransport::Native, ..options() };
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
    let turn = take(&agent, &delivery(&story, call)).unwrap().turn.unwrap();
    scan_within(turn.note.as_bytes(), limits::CORE_PAYLOAD_BYTES_MAX).unwrap();
    let message = &turn.broken[0].finding.message;
    assert!(message.contains("is no tool; you have search"), "{message}");
}

/// The digest of a prompt changes with every difference that a model can see.
#[test]
fn two_prompts_that_differ_have_two_digests() {
    let with = |block: ChatBlock| ModelRequest {
        origin: RequestOrigin {
            agent: listener("researcher"),
            thread: thread(ROOT),
            turn: 1,
            trace: None,
        },
        system: String::new(),
        messages: vec![ChatMessage { role: ChatRole::User, blocks: vec![block] }.into()],
        tools: Vec::new(),
        tool_choice: None,
        one_call: false,
        max_tokens: None,
        default_max_tokens: None,
    };
    let text = |text: &str| text.to_owned();
    let call = ToolCall { id: text("a"), name: text("b"), arguments: text("c") };
    let blocks = [
        ChatBlock::Text(text("b")),
        ChatBlock::Call(call),
        ChatBlock::Result { id: text("a"), text: text("b"), failed: false },
        ChatBlock::Result { id: text("a"), text: text("b"), failed: true },
        ChatBlock::Own(OwnBlock { provider: text("a"), json: text("b") }),
    ];
    let digests: BTreeSet<String> =
        blocks.into_iter().map(|block| ModelAgent::digest(&with(block)).to_string()).collect();
    assert_eq!(digests.len(), 5);
    let many = with(ChatBlock::Text(text("b")));
    let one = ModelRequest { one_call: true, ..many.clone() };
    assert_ne!(ModelAgent::digest(&many), ModelAgent::digest(&one));
}
