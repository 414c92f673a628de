//! The output of each version of the renderer, byte for byte. Recorded prompts are rebuilt by the
//! version that rendered them, so none of these files may ever change.

use std::path::PathBuf;
use std::sync::Arc;

use organism::agent::history::{self, Viewpoint, transfer};
use organism::agent::{
    ActionTransport, AgentOptions, FinalMode, MemoryScope, ModelAgent, RendererVersion,
};
use organism::bus::Delivery;
use organism::contract::{Contract, Contracts, Gather};
use organism::envelope::{Disposition, MessageKind, RefusalRule};
use organism::ids::{CallId, Digest, MessageId, PayloadName, Position};
use organism::model::{ChatBlock, ModelRequest};
use organism::system;
use organism::thread::{Closing, Fact, Opener};

use super::setup::{
    RESEARCH_NAMESPACE, TOOLS, delivery, options, options_with_finals, question_thread, says,
};
use super::story::{ROOT, Story, listener, story_message, thread};

/// Adds a search of the agent and the result of its peer, with characters that XML escapes.
fn search_result(story: &mut Story, call: MessageId) {
    let search = format!("<search xmlns=\"{TOOLS}\"><query>a &amp;&amp; b</query></search>");
    let raw = "<search><query>a &amp;&amp; b</query></search>";
    let asks = [story_message("researcher", "code", MessageKind::Call, &search)];
    let sent = story.turn("researcher", call, story.position(), raw, &asks);
    let found = format!("<found xmlns=\"{TOOLS}\">if a &lt; b &amp;&amp; c {{ \"d\" }}</found>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[0]));
}

/// Adds a turn with three actions: the second is refused, and the third is answered first.
fn several_actions(story: &mut Story, call: MessageId) {
    let extract = format!("<extract xmlns=\"{TOOLS}\"><file_path>a.rs</file_path></extract>");
    let query = format!("<query xmlns=\"{TOOLS}\">q</query>");
    let huh = format!(
        "<huh xmlns=\"{}\" code=\"schema-invalid\"><reason code=\"schema-invalid\" line=\"2\" \
         column=\"9\">'qurey' is not expected</reason><attempt>&lt;search>&lt;qurey></attempt></huh>",
        system::NAMESPACE
    );
    let note = story.turn_note("researcher", call, "<extract/><search><qurey/></search><query/>");
    let start = story.step_with(|step| {
        step.accept(&story_message("researcher", "researcher", MessageKind::Note, &note));
        step.accept(&story_message("researcher", "code", MessageKind::Call, &extract));
        step.refuse("researcher", RefusalRule::SchemaInvalid, "<search><qurey>");
        step.accept(&story_message("core", "researcher", MessageKind::System, &huh));
        step.accept(&story_message("researcher", "code", MessageKind::Call, &query));
    });
    let second = format!("<found xmlns=\"{TOOLS}\">second</found>");
    let first = format!("<found xmlns=\"{TOOLS}\">first</found>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &second).because(start[3]));
    story.say(story_message("code", "researcher", MessageKind::Reply, &first).because(start[1]));
}

/// Adds a native call, recorded with the provider that the agent still uses.
fn native_call(story: &mut Story, call: MessageId) {
    let query = format!("<query xmlns=\"{TOOLS}\">native</query>");
    let digest = Digest::of(query.as_bytes());
    let position = story.position();
    let note = format!(
        "<model-turn xmlns=\"{}\" agent=\"researcher\" call=\"{call}\" position=\"{position}\" \
         provider=\"playback\"><raw>&lt;thinking>so&lt;/thinking></raw><call id=\"c1\" \
         name=\"query\" payload=\"{digest}\">{{\"content\":\"native\"}}</call></model-turn>",
        system::NAMESPACE
    );
    let sent = story.step(&[
        story_message("researcher", "researcher", MessageKind::Note, &note),
        story_message("researcher", "code", MessageKind::Call, &query),
    ]);
    let failed = format!("<search-error xmlns=\"{TOOLS}\">no &lt;index&gt;</search-error>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &failed).because(sent[1]));
}

fn own_word(story: &mut Story, call: MessageId) {
    let own = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>and why?</part></question>");
    let asks = [story_message("researcher", "researcher", MessageKind::Own, &own)];
    story.turn("researcher", call, story.position(), "<question>…</question>", &asks);
}

fn spawned_thread(story: &mut Story, call: MessageId) {
    let word = |rest: &str| format!("<{rest} xmlns=\"{}\"", system::NAMESPACE);
    let spawn = word("spawn-thread") + "/>";
    let spawned = word("thread-spawned") + " assigned_id=\"sess-abcd1234.a\"/>";
    let asks = [story_message("researcher", "core", MessageKind::Call, &spawn)];
    let sent = story.turn("researcher", call, story.position(), "<spawn-thread/>", &asks);
    story.say(story_message("core", "researcher", MessageKind::System, &spawned).because(sent[0]));
    let fired = word("timer-fired") + " timer_id=\"t\"/>";
    story.say(story_message("core", "researcher", MessageKind::System, &fired));
}

fn group(story: &mut Story, call: MessageId) {
    let query = format!("<query xmlns=\"{TOOLS}\">both</query>");
    let asks = ["code", "web"]
        .map(|to| story_message("researcher", to, MessageKind::Call, &query).of_a_group());
    let sent = story.turn("researcher", call, story.position(), "<query>both</query>", &asks);
    let found = format!("<found xmlns=\"{TOOLS}\"><![CDATA[</tool_result>]]></found>");
    story.say(story_message("web", "researcher", MessageKind::Reply, &found).because(sent[1]));
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[0]));
}

/// Adds a late result after a `clear-context`: the agent makes a call, clears its context so that
/// the task is outside the window, and then gets the result of the call.
fn cleared(story: &mut Story, call: MessageId) {
    let query = format!("<query xmlns=\"{TOOLS}\">late</query>");
    let asks = [story_message("researcher", "code", MessageKind::Call, &query)];
    let sent = story.turn("researcher", call, story.position(), "<query>late</query>", &asks);
    let clear = format!("<clear-context xmlns=\"{}\" keep=\"1\"/>", system::NAMESPACE);
    let done = format!("<context-cleared xmlns=\"{}\" kept_messages=\"1\"/>", system::NAMESPACE);
    own_word(story, call);
    let asks = [story_message("researcher", "core", MessageKind::Call, &clear)];
    let raw = "<clear-context keep=\"1\"/>";
    let cleared = story.turn("researcher", call, story.position(), raw, &asks);
    story.window("researcher", 1);
    story.say(story_message("core", "researcher", MessageKind::System, &done).because(cleared[0]));
    let found = format!("<found xmlns=\"{TOOLS}\">a &amp; b</found>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[0]));
}

type Part = fn(&mut Story, MessageId);

const PARTS: [(&str, Part); 7] = [
    ("search result", search_result),
    ("several actions", several_actions),
    ("native call", native_call),
    ("own word", own_word),
    ("spawned thread", spawned_thread),
    ("group", group),
    ("cleared context", cleared),
];

fn text_of(block: &ChatBlock) -> String {
    match block {
        ChatBlock::Text(text) => text.clone(),
        ChatBlock::Call(call) => format!("[call {}] {}({})", call.id, call.name, call.arguments),
        ChatBlock::Result { id, text, failed } => format!("[result {id} {failed}] {text}"),
        ChatBlock::Own(own) => format!("[own {}] {}", own.provider, own.json),
    }
}

fn messages_of(request: &ModelRequest) -> String {
    let messages = request.messages.iter().map(|message| {
        let blocks: Vec<_> = message.blocks.iter().map(text_of).collect();
        format!("--- {}\n{}\n", message.role.as_str(), blocks.join("\n[block]\n"))
    });
    messages.collect()
}

fn head_of(request: &ModelRequest) -> String {
    let ModelRequest { system, tools, tool_choice, one_call, .. } = request;
    let max_tokens = request.answer_bound();
    let tools = tools
        .iter()
        .map(|tool| format!("--- tool {}\n{}\n{}\n", tool.name, tool.description, tool.parameters));
    let tools: String = tools.collect();
    format!("{system}\n{tools}--- {tool_choice:?} {one_call} {max_tokens:?}\n")
}

/// Returns the first request to the model of an agent with these options.
fn beginning(options: &AgentOptions) -> String {
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options.clone(), says(1, "", "normal"), Arc::new(story.clone()));
    let request = agent.rendered(&delivery(&story, call)).unwrap();
    head_of(&request) + &messages_of(&request)
}

/// Returns the beginnings of prompts with the texts about the end of a task. The fifth version
/// introduced these texts. One prompt is for an agent that answers with text, and one is for an
/// agent with a structured final.
fn ends_of_tasks(version: RendererVersion) -> String {
    let mut out = String::new();
    for transport in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let mut by_text = options();
        by_text.transport = transport;
        by_text.version = version;
        let mut structured = options_with_finals(&[PayloadName::new(TOOLS, "judgement")]);
        structured.transport = transport;
        structured.version = version;
        by_text.contract.replies = vec![organism::agent::attempt_completion()];
        by_text.final_by = FinalMode::Text;

        let name = transport.as_str();
        out.push_str(&format!("=== {name}, by text\n{}", beginning(&by_text)));
        out.push_str(&format!("=== {name}, structured\n{}", beginning(&structured)));
    }
    out
}

/// Compares a text with its fixture. With `WRITE_RENDERER`, writes the fixture instead.
fn check_pinned(name: &str, written: &str) {
    let path = format!("tests/data/agent/renderer-{name}.txt");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("WRITE_RENDERER").is_some_and(|wanted| wanted == name) {
        std::fs::write(&file, written).unwrap();
    }
    let pinned = std::fs::read_to_string(&file).unwrap();
    for (line, (now, then)) in written.lines().zip(pinned.lines()).enumerate() {
        assert_eq!(now, then, "line {} of {}", line + 1, file.display());
    }
    assert_eq!(written.len(), pinned.len(), "{}", file.display());
}

#[test]
fn each_version_since_the_fifth_writes_pinned_texts_on_the_ends_of_tasks() {
    for version in RendererVersion::ALL.into_iter().filter(|one| *one >= RendererVersion::V5) {
        check_pinned(&format!("{}-ends", version.as_str()), &ends_of_tasks(version));
    }
}

/// Returns all texts that a version of the renderer writes, for all transports.
fn written(version: RendererVersion) -> String {
    let mut out = String::new();
    for transport in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let mut options = options();
        options.transport = transport;
        options.version = version;
        let name = transport.as_str();
        let render = |story: &Story, call| {
            let model = says(1, "", "normal");
            let agent = ModelAgent::new(options.clone(), model, Arc::new(story.clone()));
            agent.rendered(&delivery(story, call)).unwrap()
        };
        let (story, call) = question_thread();
        let first = render(&story, call);
        out.push_str(&format!("=== {name}\n{}{}", head_of(&first), messages_of(&first)));
        for (part, happens) in PARTS {
            let (mut story, call) = question_thread();
            happens(&mut story, call);
            let request = render(&story, call);
            out.push_str(&format!("=== {name}: {part}\n{}", messages_of(&request)));
        }
    }
    out
}

// T8
#[test]
fn each_version_of_the_renderer_writes_what_it_always_wrote() {
    for version in RendererVersion::ALL {
        check_pinned(version.as_str(), &written(version));
    }
}

/// Adds a native call to two peers. The peer that is second in the config answers first.
fn native_group(story: &mut Story, call: MessageId) {
    let query = format!("<query xmlns=\"{TOOLS}\">both</query>");
    let digest = Digest::of(query.as_bytes());
    let position = story.position();
    let note = format!(
        "<model-turn xmlns=\"{}\" agent=\"researcher\" call=\"{call}\" position=\"{position}\" \
         provider=\"playback\"><raw/><call id=\"c1\" name=\"query\" \
         payload=\"{digest}\">{{\"content\":\"both\"}}</call></model-turn>",
        system::NAMESPACE
    );
    let sent = story.step(&[
        story_message("researcher", "researcher", MessageKind::Note, &note),
        story_message("researcher", "code", MessageKind::Call, &query),
        story_message("researcher", "web", MessageKind::Call, &query),
    ]);
    for fact in &mut story.records.last_mut().unwrap().facts {
        if let Fact::Accepted { opening: Some(opening), .. } = fact {
            opening.group = Some((CallId(sent[1]), Gather::All));
        }
    }

    let found = format!("<found xmlns=\"{TOOLS}\">it</found>");
    story.say(story_message("web", "researcher", MessageKind::Reply, &found).because(sent[2]));
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[1]));
}

/// Section 10.6: the answers of a group are one result, and rule 4.15 gives their order.
#[test]
fn native_results_of_a_group_are_in_config_order_since_the_ninth_version() {
    for version in RendererVersion::ALL {
        let transport = ActionTransport::Native;
        let options = AgentOptions { version, transport, ..options() };
        let (mut story, call) = question_thread();
        native_group(&mut story, call);
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let (before, result) = text.split_once("[result c1 false]").unwrap();
        assert!(!before.contains("from=\"code\""), "{text}");
        let code = result.find("from=\"code\"").unwrap();
        let web = result.find("from=\"web\"").unwrap();
        assert_eq!(code < web, version >= RendererVersion::V9, "{version:?}: {text}");
    }
}

/// Adds a call of `caller` to two peers. The first peer fails, and the second one replies. The
/// first reply is the result of the group, so the fault does not count.
fn first_of_a_group(story: &mut Story, caller: &str, call: MessageId) {
    let query = format!("<query xmlns=\"{TOOLS}\">both</query>");
    let asks = ["code", "web"].map(|to| story_message(caller, to, MessageKind::Call, &query));
    let sent = story.turn(caller, call, story.position(), "<query>both</query>", &asks);
    for fact in &mut story.records.last_mut().unwrap().facts {
        if let Fact::Accepted { opening: Some(opening), .. } = fact {
            opening.group = Some((CallId(sent[0]), Gather::First));
        }
    }

    let core = system::NAMESPACE;
    let error = format!("<system-error xmlns=\"{core}\" code=\"timeout\">late</system-error>");
    let fault = story_message("core", caller, MessageKind::System, &error);
    let fault = story.say(fault.because(sent[0]));
    let found = format!("<found xmlns=\"{TOOLS}\">it</found>");
    story.say(story_message("web", caller, MessageKind::Reply, &found).because(sent[1]));
    let dropped = Fact::Disposed { message: fault, how: Disposition::Cancelled };
    story.records.last_mut().unwrap().facts.push(dropped);
}

/// Rule 4.15: a `first` group gives the first reply, and faults only if every peer failed.
#[test]
fn a_fault_beside_the_reply_of_a_first_group_is_not_shown_since_the_tenth_version() {
    let (mut story, call) = question_thread();
    first_of_a_group(&mut story, "researcher", call);
    for version in RendererVersion::ALL {
        let options = AgentOptions { version, ..options() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        assert!(text.contains("found"), "{version:?}: {text}");
        let has_fault = text.contains("Error: timeout");
        assert_eq!(has_fault, version < RendererVersion::V10, "{version:?}: {text}");
    }
}

/// All members of a thread get the same history of a `first` group. So if the group has a reply,
/// its faults are not shown, even if another agent called the group.
#[test]
fn a_fault_of_another_agent_s_first_group_is_not_shown_since_the_eleventh_version() {
    let (mut story, call) = question_thread();
    first_of_a_group(&mut story, "critic", call);
    for version in RendererVersion::ALL {
        let options = AgentOptions { version, ..options() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        assert!(text.contains("found"), "{version:?}: {text}");
        let has_fault = text.contains("timeout");
        assert_eq!(has_fault, version < RendererVersion::V11, "{version:?}: {text}");
    }
}

/// Returns the texts of the next request to the model in the call `call`, in the renderer version
/// `version`.
fn texts_in(
    story: &Story,
    call: MessageId,
    version: RendererVersion,
    transport: ActionTransport,
) -> String {
    let options = AgentOptions { version, transport, ..options() };
    let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
    messages_of(&agent.rendered(&delivery(story, call)).unwrap())
}

/// Adds an end of a call to the last record.
fn close(story: &mut Story, call: MessageId, how: Closing) {
    let end = Fact::CallClosed { call: CallId(call), how };
    story.records.last_mut().unwrap().facts.push(end);
}

/// Checks that an agent on another machine has the same memory.
#[track_caller]
fn check_transferred(story: &Story, call: MessageId) {
    let agent = listener("researcher");
    let thread = thread(ROOT);
    let view = Viewpoint {
        agent: &agent,
        thread: &thread,
        call: CallId(call),
        position: story.position(),
        memory: MemoryScope::Thread,
        version: RendererVersion::CURRENT,
    };
    let sent = transfer::encode_thread(&story.records, &agent, &thread);
    let received = transfer::decode_thread(&sent, &thread).unwrap();
    assert_eq!(history::of(&received, &view), history::of(&story.records, &view));
}

/// Rule 4.15: a `first` group gives only its first reply, so a later reply is not shown beside it.
#[test]
fn a_late_reply_beside_the_reply_of_a_first_group_is_not_shown_since_the_twelfth_version() {
    for caller in ["researcher", "critic"] {
        let (mut story, call) = question_thread();
        let query = format!("<query xmlns=\"{TOOLS}\">both</query>");
        let asks = ["code", "web"].map(|to| story_message(caller, to, MessageKind::Call, &query));
        let sent = story.turn(caller, call, story.position(), "<query>both</query>", &asks);
        for fact in &mut story.records.last_mut().unwrap().facts {
            if let Fact::Accepted { opening: Some(opening), .. } = fact {
                opening.group = Some((CallId(sent[0]), Gather::First));
            }
        }

        let [won, lost] =
            ["won", "lost"].map(|text| format!("<found xmlns=\"{TOOLS}\">{text}</found>"));
        story.say(story_message("web", caller, MessageKind::Reply, &won).because(sent[1]));
        close(&mut story, sent[0], Closing::Cancelled);
        story.say(story_message("code", caller, MessageKind::Reply, &lost).because(sent[0]));
        for version in RendererVersion::ALL {
            let text = texts_in(&story, call, version, ActionTransport::Xml);
            assert!(text.contains("won"), "{version:?}: {text}");
            let has_lost = text.contains("lost");
            assert_eq!(has_lost, version < RendererVersion::V12, "{version:?}: {text}");
        }
        check_transferred(&story, call);
    }
}

/// Rule 5.21: a conversation continues with its full history, even after a failed call.
#[test]
fn a_request_whose_call_ended_without_a_turn_is_shown_since_the_twelfth_version() {
    let (mut story, first) = question_thread();
    let core = system::NAMESPACE;
    let error = format!("<system-error xmlns=\"{core}\" code=\"listener-failed\">x</system-error>");
    story.say(story_message("core", "desk", MessageKind::System, &error).because(first));
    close(&mut story, first, Closing::Failed);
    let again = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>again?</part></question>");
    let second = story.say(story_message("desk", "researcher", MessageKind::Call, &again));
    for version in RendererVersion::ALL {
        let text = texts_in(&story, second, version, ActionTransport::Xml);
        let places = ["where?", "listener-failed", "again?"].map(|part| text.find(part));
        assert!(places[1] < places[2] && places[1].is_some(), "{version:?}: {text}");
        assert_eq!(places[0].is_some(), version >= RendererVersion::V12, "{version:?}: {text}");
        assert!(places[0] < places[1], "{version:?}: {text}");
    }
    check_transferred(&story, second);

    // A late turn of the ended call shows the request at its delivery.
    story.turn("researcher", first, story.position(), "late", &[]);
    let text = texts_in(&story, second, RendererVersion::CURRENT, ActionTransport::Xml);
    assert!(text.find("where?") < text.find("late"), "{text}");
}

/// A request waits while the agent clears its context. The messages that the clearing keeps must
/// remain visible in the call of this request.
#[test]
fn a_request_that_waited_is_not_kept_by_a_clearing_since_the_twelfth_version() {
    let (mut story, call) = question_thread();
    let next = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>next?</part></question>");
    let waited = story.say(story_message("desk", "researcher", MessageKind::Call, &next));
    for fact in &mut story.records.last_mut().unwrap().facts {
        let Fact::Accepted { message, .. } = fact else { continue };
        Arc::make_mut(message).call = Some(CallId(waited));
    }

    story.turn("researcher", call, story.position(), "kept turn", &[]);
    let core = system::NAMESPACE;
    let clear = format!("<clear-context xmlns=\"{core}\" keep=\"1\"/>");
    let asks = [story_message("researcher", "core", MessageKind::Call, &clear)];
    story.turn("researcher", call, story.position(), "clears", &asks);
    story.window("researcher", 1);
    for version in RendererVersion::ALL {
        let text = texts_in(&story, call, version, ActionTransport::Xml);
        assert!(text.contains("kept turn"), "{version:?}: {text}");
        let text = texts_in(&story, waited, version, ActionTransport::Xml);
        assert!(text.contains("next?"), "{version:?}: {text}");
        let has_kept = text.contains("kept turn");
        assert_eq!(has_kept, version >= RendererVersion::V12, "{version:?}: {text}");
    }
}

/// A turn sends the same payload into a child thread and, as a native call, to a peer. The result
/// of the native call must be found although both messages have the same digest.
#[test]
fn a_native_call_has_its_own_result_beside_a_spawned_twin_since_the_twelfth_version() {
    let (mut story, call) = question_thread();
    let query = format!("<query xmlns=\"{TOOLS}\">twin</query>");
    let spawn = format!("<spawn-thread xmlns=\"{}\"/>", system::NAMESPACE);
    let [first, second] = [&spawn, &query].map(|payload| Digest::of(payload.as_bytes()));
    let position = story.position();
    let note = format!(
        "<model-turn xmlns=\"{}\" agent=\"researcher\" call=\"{call}\" position=\"{position}\" \
         provider=\"playback\"><raw/><call id=\"k1\" name=\"spawn-thread\" payload=\"{first}\">{{}}\
         </call><call id=\"k2\" name=\"query\" payload=\"{second}\">{{\"content\":\"twin\"}}</call>\
         </model-turn>",
        system::NAMESPACE
    );
    let inner = story_message("researcher", "code", MessageKind::Call, &query);
    let sent = story.step(&[
        story_message("researcher", "researcher", MessageKind::Note, &note),
        story_message("researcher", "core", MessageKind::Call, &spawn),
        inner.within("sess-abcd1234.x"),
        story_message("researcher", "code", MessageKind::Call, &query),
    ]);
    let found = format!("<found xmlns=\"{TOOLS}\">it</found>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[3]));
    for version in RendererVersion::ALL {
        let text = texts_in(&story, call, version, ActionTransport::Native);
        let is_result = text.contains("[result k2 false] <found");
        assert_eq!(is_result, version >= RendererVersion::V12, "{version:?}: {text}");
    }
    check_transferred(&story, call);
}

/// Section 10.5: a `tool_result` is the result of an action that the agent wrote in this thread.
/// The fault of a call from another thread is shown as a message instead.
#[test]
fn a_fault_of_a_call_from_another_thread_is_a_message_since_the_twelfth_version() {
    let (mut story, call) = question_thread();
    let query = format!("<query xmlns=\"{TOOLS}\">x</query>");
    let sent = story.say(story_message("researcher", "code", MessageKind::Call, &query));
    for fact in &mut story.records.last_mut().unwrap().facts {
        if let Fact::Accepted { opening: Some(opening), .. } = fact {
            opening.opener = Opener::Call {
                name: listener("researcher"),
                call: CallId(call),
                thread: thread("sess-efgh5678"),
            };
        }
    }

    let core = system::NAMESPACE;
    let error = format!("<system-error xmlns=\"{core}\" code=\"timeout\">late</system-error>");
    story.say(story_message("core", "researcher", MessageKind::System, &error).because(sent));
    for version in RendererVersion::ALL {
        let text = texts_in(&story, call, version, ActionTransport::Xml);
        let is_message = text.contains("<message from=\"core\" to=\"researcher\"><system-error");
        assert_eq!(is_message, version >= RendererVersion::V12, "{version:?}: {text}");
        let is_result = text.contains("<tool_result>Error: timeout");
        assert_eq!(is_result, version < RendererVersion::V12, "{version:?}: {text}");
    }
}

/// A request that arrives ends a `wait` of the agent, but is delivered later, in a call of its own.
/// The notice states how many such requests wait.
#[test]
fn the_notice_counts_the_requests_that_wait_since_the_twelfth_version() {
    let (mut story, call) = question_thread();
    for line in ["1 further request waits in", "2 further requests wait in"] {
        let next =
            format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>next?</part></question>");
        story.say(story_message("desk", "researcher", MessageKind::Call, &next));
        for version in RendererVersion::ALL {
            let text = texts_in(&story, call, version, ActionTransport::Xml);
            assert_eq!(text.contains(line), version >= RendererVersion::V12, "{version:?}: {text}");
        }
    }
}

/// Adds a turn of the agent with a native call to `code`. Returns the message of this call.
fn native_query(story: &mut Story, call: MessageId) -> MessageId {
    let query = format!("<query xmlns=\"{TOOLS}\">it</query>");
    let digest = Digest::of(query.as_bytes());
    let position = story.position();
    let note = format!(
        "<model-turn xmlns=\"{}\" agent=\"researcher\" call=\"{call}\" position=\"{position}\" \
         provider=\"playback\"><raw/><call id=\"c1\" name=\"query\" \
         payload=\"{digest}\">{{\"content\":\"it\"}}</call></model-turn>",
        system::NAMESPACE
    );
    let sent = story.step(&[
        story_message("researcher", "researcher", MessageKind::Note, &note),
        story_message("researcher", "code", MessageKind::Call, &query),
    ]);
    sent[1]
}

/// Adds the failure of the agent's call `query`.
fn fail_query(story: &mut Story, query: MessageId) -> MessageId {
    let core = system::NAMESPACE;
    let error = format!("<system-error xmlns=\"{core}\" code=\"timeout\">late</system-error>");
    let fault = story_message("core", "researcher", MessageKind::System, &error);
    story.say(fault.because(query))
}

/// Sections 10.5 and 10.6: a result contains only the answer to its call. The messages that a peer
/// sends while it handles the call are shown separately, although the call is their cause, too.
#[test]
fn a_result_contains_no_messages_between_others_since_the_thirteenth_version() {
    let (mut story, call) = question_thread();
    let query = native_query(&mut story, call);
    let inner = format!("<query xmlns=\"{TOOLS}\">inner</query>");
    let found = format!("<found xmlns=\"{TOOLS}\">inner</found>");
    let sent = story.say(story_message("code", "web", MessageKind::Call, &inner).because(query));
    story.say(story_message("code", "code", MessageKind::Own, &inner).because(query));
    story.say(story_message("web", "code", MessageKind::Reply, &found).because(sent));
    let unanswered = story.clone();
    fail_query(&mut story, query);

    let message = "<message from=\"code\" to=\"web\">";
    let native = [
        (&unanswered, "[result c1 true] Error: no answer came; the call ended before\n[block]\n"),
        (&story, "[result c1 true] Error: timeout: late\n[block]\n"),
    ];
    for version in RendererVersion::ALL {
        let is_alone = version >= RendererVersion::V13;
        for transport in [ActionTransport::Native, ActionTransport::XmlFinal] {
            for (story, expected) in native {
                let text = texts_in(story, call, version, transport);
                assert_eq!(text.contains(expected), is_alone, "{version:?}: {text}");
                assert_eq!(text.matches(message).count(), 1, "{version:?}: {text}");
            }
        }

        let text = texts_in(&story, call, version, ActionTransport::Xml);
        let result = text.find("<tool_result tool_name=\"query\">Error: timeout: late<");
        assert!(result.is_some(), "{version:?}: {text}");
        assert_eq!(result < text.find(message), is_alone, "{version:?}: {text}");
    }
    check_transferred(&story, call);
}

/// A peer may send a request to the agent that called the peer. If this request ends before the
/// agent takes a turn for it, the request must not be shown inside the result of the agent's call.
#[test]
fn a_result_contains_no_requests_of_the_peer_since_the_thirteenth_version() {
    let (mut story, call) = question_thread();
    let query = native_query(&mut story, call);
    let back = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>which?</part></question>");
    let back = story_message("code", "researcher", MessageKind::Call, &back);
    let request = story.say(back.because(query));
    fail_query(&mut story, query);
    close(&mut story, request, Closing::Cancelled);

    for version in RendererVersion::ALL {
        for memory in [MemoryScope::Thread, MemoryScope::Own] {
            let transport = ActionTransport::Native;
            let options = AgentOptions { version, transport, memory, ..options() };
            let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
            let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
            // The twelfth version was the first one to show the request.
            let is_shown = version >= RendererVersion::V12;
            assert_eq!(text.contains("which?"), is_shown, "{version:?}: {text}");
            let is_alone = text.contains("[result c1 true] Error: timeout: late\n");
            assert_eq!(is_alone, version != RendererVersion::V12, "{version:?}: {text}");
        }
    }
    check_transferred(&story, call);
}

/// A payload with names in other scripts, and with a child that has only one value.
const WEIGHT: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
    targetNamespace="urn:example:weight" elementFormDefault="qualified">
  <xs:element name="Größe"><xs:complexType><xs:sequence>
    <xs:element name="名前" type="xs:string"><xs:annotation>
      <xs:documentation>The name.</xs:documentation></xs:annotation></xs:element>
    <xs:element name="unit" type="xs:string" fixed="kg"/>
  </xs:sequence><xs:attribute name="ключ" type="xs:string" use="required"/></xs:complexType>
  </xs:element></xs:schema>"#;

/// Adds the payload `Größe` to the tools of the agent.
fn options_with_weight() -> AgentOptions {
    options_with("weight.xsd", WEIGHT)
}

/// Adds the payloads of a schema to the tools of the agent.
fn options_with(label: &str, schema: &'static str) -> AgentOptions {
    let mut options = options();
    let names = options.schemas.add_builtin(label, schema).unwrap();
    let mut all: Vec<Contract> = options.contracts.iter().cloned().collect();
    for contract in all.iter_mut().filter(|contract| contract.name == listener("code")) {
        contract.accepts.extend(names.iter().cloned());
    }
    options.contracts = Arc::new(Contracts::new(all).unwrap());
    options
}

/// Section 7.6: a tool can be used only if its parameters can be distinguished. So names in other
/// scripts are in the descriptions.
#[test]
fn names_in_other_scripts_are_in_the_descriptions_of_tools_since_the_fourteenth_version() {
    let (story, call) = question_thread();
    for version in RendererVersion::ALL {
        let transport = ActionTransport::Native;
        let options = AgentOptions { version, transport, ..options_with_weight() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let tools = agent.rendered(&delivery(&story, call)).unwrap().tools;
        let tool = tools.iter().find(|tool| tool.name == "Gr__e").unwrap();

        let names = version >= RendererVersion::V14;
        assert_eq!(tool.description.starts_with("Größe: "), names, "{}", tool.description);
        let properties = &tool.parameters["properties"];
        let name = if names { "名前: The name." } else { "The name." };
        assert_eq!(properties["__"]["description"], name, "{version:?}: {properties}");
        let key = properties["____"].get("description").and_then(|about| about.as_str());
        assert_eq!(key, names.then_some("ключ"), "{version:?}: {properties}");
        assert_eq!(properties["unit"].get("description"), None, "{version:?}: {properties}");
    }
}

#[test]
fn the_only_value_of_a_parameter_is_no_default_since_the_fourteenth_version() {
    let (story, call) = question_thread();
    for version in RendererVersion::ALL {
        let options = AgentOptions { version, ..options_with_weight() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let prompt = agent.rendered(&delivery(&story, call)).unwrap().system;
        let word = if version >= RendererVersion::V14 { "exactly" } else { "default" };
        let line = format!("- unit (text, required, {word} kg)\n");
        assert!(prompt.contains(&line), "{version:?}: {prompt}");
    }
}

/// Payloads with a named group, with an order that needs a list, and with values that JSON writes
/// in another way.
const FORMS: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
    xmlns="urn:example:forms" targetNamespace="urn:example:forms" elementFormDefault="qualified">
  <xs:group name="part"><xs:sequence><xs:element name="part"><xs:complexType><xs:sequence>
    <xs:element name="size" type="xs:int"/></xs:sequence></xs:complexType></xs:element>
  </xs:sequence></xs:group>
  <xs:element name="prose"><xs:complexType mixed="true"><xs:group ref="part"/></xs:complexType>
  </xs:element>
  <xs:element name="walk"><xs:complexType><xs:sequence><xs:element name="a" type="xs:int"/>
    <xs:sequence minOccurs="0" maxOccurs="unbounded"><xs:element name="a" type="xs:int"/>
      <xs:element name="b" type="xs:int"/></xs:sequence></xs:sequence></xs:complexType></xs:element>
  <xs:element name="switch" type="xs:boolean" fixed="1"/>
  <xs:element name="gauge"><xs:complexType><xs:attribute name="on" type="xs:boolean" default="1"/>
    <xs:attribute name="n" type="xs:int" fixed="+5"/></xs:complexType></xs:element>
  </xs:schema>"#;

/// Section 7.6: a tool can be used only if its definition describes each valid payload.
#[test]
fn tools_describe_groups_orders_and_values_of_schemas_since_the_fifteenth_version() {
    let (story, call) = question_thread();
    for version in RendererVersion::ALL {
        let is_new = version >= RendererVersion::V15;
        let transport = ActionTransport::Native;
        let options = AgentOptions { version, transport, ..options_with("forms.xsd", FORMS) };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let request = agent.rendered(&delivery(&story, call)).unwrap();
        let properties = |name: &str| {
            let tool = request.tools.iter().find(|tool| tool.name == name).unwrap();
            tool.parameters["properties"].clone()
        };

        let prose = properties("prose")["content"]["description"].as_str().unwrap().to_owned();
        assert_eq!(prose.contains("- size: whole number"), is_new, "{version:?}: {prose}");
        if version >= RendererVersion::V8 && !is_new {
            let outline = "by this outline:\n  - part: elements, required\n";
            assert_eq!(prose, format!("well-formed XML inside <prose>, {outline}"), "{version:?}");
        }
        let walk = properties("walk");
        let keys: Vec<_> = walk.as_object().unwrap().keys().map(String::as_str).collect();
        let expected: &[&str] = if is_new { &["content"] } else { &["a", "b"] };
        assert_eq!(keys, expected, "{version:?}");
        let has_example = request.system.contains(r#"{"content":[{"a":"#);
        assert_eq!(has_example, is_new, "{version:?}: {}", request.system);
        let gauge = properties("gauge");
        let (on, kind) = if is_new { ("true", "string") } else { ("1", "integer") };
        assert_eq!(gauge["on"]["default"].to_string(), on, "{version:?}: {gauge}");
        assert_eq!(gauge["n"]["type"], kind, "{version:?}: {gauge}");
        assert_eq!(gauge["n"]["const"], "+5", "{version:?}: {gauge}");
        let text = properties("switch")["content"].to_string();
        let is_fixed = text == r#"{"type":"string","const":"1"}"#;
        assert_eq!(is_fixed, is_new, "{version:?}: {text}");
        assert_eq!(text == r#"{"type":"boolean"}"#, !is_new, "{version:?}: {text}");

        let options = AgentOptions { version, ..options_with("forms.xsd", FORMS) };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let prompt = agent.rendered(&delivery(&story, call)).unwrap().system;
        assert_eq!(prompt.contains("- size (whole number"), is_new, "{version:?}: {prompt}");
    }
}

/// Redacts the last record of a story, which contains a turn in `call`.
fn redact_turn(story: &mut Story, call: MessageId) {
    let record = story.records.last_mut().unwrap();
    for fact in &mut record.facts {
        let Fact::Accepted { message, .. } = fact else { continue };
        if &*message.name.local == system::MODEL_TURN {
            Arc::make_mut(message).call = Some(CallId(call));
        }
    }
    for payload in record.payloads_mut() {
        let blank = "\0".repeat(payload.len());
        assert!(payload.restore(&blank));
    }
}

/// Rule 5.21: a conversation continues with its history in order. A request is shown before the
/// results of its turns, even if the texts of all these turns were redacted.
#[test]
fn a_request_is_before_the_messages_of_its_redacted_turn_since_the_fifteenth_version() {
    let (mut story, first) = question_thread();
    let query = format!("<query xmlns=\"{TOOLS}\">it</query>");
    let asks = [story_message("researcher", "code", MessageKind::Call, &query)];
    let sent = story.turn("researcher", first, story.position(), "<query>it</query>", &asks);
    redact_turn(&mut story, first);
    let found = format!("<found xmlns=\"{TOOLS}\">it</found>");
    story.say(story_message("code", "researcher", MessageKind::Reply, &found).because(sent[0]));
    let fired = format!("<timer-fired xmlns=\"{}\" timer_id=\"t\"/>", system::NAMESPACE);
    story.say(story_message("core", "researcher", MessageKind::System, &fired));
    let open = story.clone();

    let error = format!("<system-error xmlns=\"{}\" code=\"x\"/>", system::NAMESPACE);
    story.say(story_message("core", "desk", MessageKind::System, &error).because(first));
    close(&mut story, first, Closing::Failed);
    let again = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>again?</part></question>");
    let second = story.say(story_message("desk", "researcher", MessageKind::Call, &again));

    for version in RendererVersion::ALL {
        for (story, call) in [(&open, first), (&story, second)] {
            let text = texts_in(story, call, version, ActionTransport::Xml);
            let [request, action, result] =
                ["where?", "[redacted]", "<found"].map(|part| text.find(part));
            assert!(action.is_some() && action < result, "{version:?}: {text}");
            let is_before = request.is_some() && request < action;
            assert_eq!(is_before, version >= RendererVersion::V15, "{version:?}: {text}");
        }
    }
    check_transferred(&open, first);
    check_transferred(&story, second);

    let last = story.position();
    check_kept(&story, |position| if position == last { second } else { first });
}

/// Checks that a kept memory shows the same as one that reads the thread from its beginning.
#[track_caller]
fn check_kept(story: &Story, call_at: impl Fn(Position) -> MessageId) {
    for transport in [ActionTransport::Xml, ActionTransport::Native] {
        let agent = || {
            let options = AgentOptions { transport, ..options() };
            ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()))
        };
        let kept = agent();
        for position in (1..=story.position().0).map(Position) {
            let delivery = Delivery { position, ..delivery(story, call_at(position)) };
            let [kept, fresh] = [&kept, &agent()].map(|agent| agent.rendered(&delivery).unwrap());
            assert_eq!(messages_of(&kept), messages_of(&fresh), "{transport:?} {position}");
        }
    }
}

/// Adds results of four actions that a `clear-context` has cleared, one of them a native call, and
/// a refusal of another action. Returns the ids of the fault of the first action and of the reply
/// of the last one, which went to a group.
fn cleared_results(story: &mut Story, call: MessageId) -> [MessageId; 2] {
    let native = native_query(story, call);
    let query = format!("<query xmlns=\"{TOOLS}\">it</query>");
    let asks = [(); 2].map(|()| story_message("researcher", "code", MessageKind::Call, &query));
    let sent = story.turn("researcher", call, story.position(), "<query>it</query>", &asks);
    let asks = ["code", "web"]
        .map(|to| story_message("researcher", to, MessageKind::Call, &query).of_a_group());
    let group = story.turn("researcher", call, story.position(), "<query>it</query>", &asks);

    let note = story.turn_note("researcher", call, "<search><qurey/></search>");
    let huh = format!(
        "<huh xmlns=\"{}\" code=\"schema-invalid\"><reason code=\"schema-invalid\">no qurey</reason>\
         <attempt>&lt;search>&lt;qurey></attempt></huh>",
        system::NAMESPACE
    );
    story.step_with(|step| {
        step.accept(&story_message("researcher", "researcher", MessageKind::Note, &note));
        step.refuse("researcher", RefusalRule::SchemaInvalid, "<search><qurey>");
        step.accept(&story_message("core", "researcher", MessageKind::System, &huh));
    });
    // Only messages of a call count as kept.
    for fact in &mut story.records.last_mut().unwrap().facts {
        let Fact::Accepted { message, .. } = fact else { continue };
        Arc::make_mut(message).call = Some(CallId(call));
    }

    let clear = format!("<clear-context xmlns=\"{}\" keep=\"1\"/>", system::NAMESPACE);
    let asks = [story_message("researcher", "core", MessageKind::Call, &clear)];
    story.turn("researcher", call, story.position(), "<clear-context keep=\"1\"/>", &asks);
    story.window("researcher", 1);
    let fault = fail_query(story, sent[0]);
    let ack = format!("<ack xmlns=\"{}\"/>", system::NAMESPACE);
    story.say(story_message("core", "researcher", MessageKind::System, &ack).because(sent[1]));
    fail_query(story, native);
    let found = format!("<found xmlns=\"{TOOLS}\">it</found>");
    let reply = story_message("web", "researcher", MessageKind::Reply, &found);
    [fault, story.say(reply.because(group[1]))]
}

/// Section 10.5: a `tool_result` is the result of an action that the prompt shows.
#[test]
fn results_of_actions_outside_of_the_window_are_plain_since_the_fifteenth_version() {
    let (mut story, call) = question_thread();
    cleared_results(&mut story, call);
    let results = [
        ("search", "Error: schema-invalid: no qurey", 1),
        ("query", "Error: timeout: late", 2),
        ("query", "acknowledged", 1),
    ];
    for version in RendererVersion::ALL {
        let is_plain = version >= RendererVersion::V15;
        for transport in [ActionTransport::Xml, ActionTransport::Native] {
            let text = texts_in(&story, call, version, transport);
            for (name, result, count) in results {
                let plain =
                    format!("Result of an earlier {name} that is no longer shown:\n{result}");
                let element = format!("<tool_result tool_name=\"{name}\">{result}</tool_result>");
                let [expected, other] = if is_plain { [plain, element] } else { [element, plain] };
                assert_eq!(text.matches(&expected).count(), count, "{version:?}: {text}");
                assert!(!text.contains(&other), "{version:?}: {text}");
            }

            let peer = if is_plain { " from web" } else { "" };
            let reply = format!("Result of an earlier query{peer} that is no longer shown:\n");
            assert_eq!(text.matches(&reply).count(), 1, "{version:?}: {text}");
        }
    }
    check_transferred(&story, call);
    check_kept(&story, |_| call);
}

/// A placeholder states of which action it is the result, and whether the action failed.
#[test]
fn placeholders_of_results_outside_of_the_window_are_plain_since_the_fifteenth_version() {
    let (mut story, call) = question_thread();
    let [fault, reply] = cleared_results(&mut story, call);
    let note = story.turn_note("researcher", call, "so").replace(
        "</model-turn>",
        &format!("<left-out message=\"{fault}\"/><left-out message=\"{reply}\"/></model-turn>"),
    );
    story.say(story_message("researcher", "researcher", MessageKind::Note, &note));

    for version in RendererVersion::ALL {
        let expected = if version >= RendererVersion::V15 {
            [
                "Result of an earlier query that is no longer shown:\nError: [left out: 20 char",
                "Result of an earlier query from web that is no longer shown:\n[left out: ",
            ]
        } else {
            [
                "<tool_result tool_name=\"query\">Error: [left out: 20 char",
                "<message from=\"web\" to=\"researcher\">[left out: ",
            ]
        };
        for transport in [ActionTransport::Xml, ActionTransport::Native] {
            let text = texts_in(&story, call, version, transport);
            for part in expected {
                assert_eq!(text.matches(part).count(), 1, "{version:?}: {part} in {text}");
            }
        }
    }
    check_kept(&story, |_| call);
}

/// An agent on another machine has the same history of a group. If the group has a reply, the
/// history lacks the faults of the group. If the group has no reply, the history has the faults,
/// even if their messages were cancelled.
#[test]
fn an_agent_on_another_machine_drops_the_same_faults() {
    let cases = ["researcher", "critic"].map(|caller| [(caller, true), (caller, false)]);
    for (caller, has_reply) in cases.into_iter().flatten() {
        let (mut story, call) = question_thread();
        first_of_a_group(&mut story, caller, call);
        if !has_reply {
            let facts = &mut story.records.last_mut().unwrap().facts;
            facts.retain(|fact| matches!(fact, Fact::Disposed { .. }));
        }

        let agent = listener("researcher");
        let thread = thread(ROOT);
        let view = Viewpoint {
            agent: &agent,
            thread: &thread,
            call: CallId(call),
            position: story.position(),
            memory: MemoryScope::Thread,
            version: RendererVersion::CURRENT,
        };
        let sent = transfer::encode_thread(&story.records, &agent, &thread);
        let received = transfer::decode_thread(&sent, &thread).unwrap();
        let here = history::of(&story.records, &view);
        assert_eq!(history::of(&received, &view), here, "{caller}, with a reply: {has_reply}");
    }
}

#[test]
fn a_native_call_without_arguments_has_an_empty_object_since_the_eleventh_version() {
    let transport = ActionTransport::Native;
    let (mut story, call) = question_thread();
    let position = story.position();
    let note = format!(
        "<model-turn xmlns=\"{}\" agent=\"researcher\" call=\"{call}\" position=\"{position}\" \
         provider=\"playback\"><raw/><call id=\"c1\" name=\"wait\" payload=\"{}\"/></model-turn>",
        system::NAMESPACE,
        Digest::of(b"wait()")
    );
    story.say(story_message("researcher", "researcher", MessageKind::Note, &note));
    for version in RendererVersion::ALL {
        let options = AgentOptions { version, transport, ..options() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let arguments = if version < RendererVersion::V11 { "" } else { "{}" };
        assert!(text.contains(&format!("[call c1] wait({arguments})")), "{version:?}: {text}");
    }
}

#[test]
fn a_native_call_without_an_answer_is_an_error_since_the_tenth_version() {
    for version in RendererVersion::ALL {
        let transport = ActionTransport::Native;
        let options = AgentOptions { version, transport, ..options() };
        let (mut story, call) = question_thread();
        native_group(&mut story, call);
        story.records.truncate(story.records.len() - 2);
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let expected = if version < RendererVersion::V10 {
            "[result c1 false] recorded"
        } else {
            "[result c1 true] Error: no answer came; the call ended before"
        };
        assert!(text.contains(expected), "{version:?}: {text}");
    }
}

#[test]
fn the_core_s_messages_to_others_are_messages_between_others_since_the_tenth_version() {
    for version in RendererVersion::ALL {
        let (mut story, call) = question_thread();
        let error = format!("<system-error xmlns=\"{}\" code=\"x\"/>", system::NAMESPACE);
        story.say(story_message("core", "desk", MessageKind::System, &error));
        let options = AgentOptions { version, ..options() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let between = text.contains("<message from=\"core\" to=\"desk\"><system-error");
        assert_eq!(between, version >= RendererVersion::V10, "{version:?}: {text}");
    }
}

#[test]
fn error_replies_are_shown_whole_since_the_tenth_version() {
    for version in RendererVersion::ALL {
        let (mut story, call) = question_thread();
        let query = format!("<query xmlns=\"{TOOLS}\">x</query>");
        let asks = [story_message("researcher", "code", MessageKind::Call, &query)];
        let sent = story.turn("researcher", call, story.position(), "<query>x</query>", &asks);
        let error = format!("<search-error xmlns=\"{TOOLS}\" code=\"gone\">no</search-error>");
        story.say(story_message("code", "researcher", MessageKind::Reply, &error).because(sent[0]));
        let options = AgentOptions { version, ..options() };
        let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
        let text = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let expected = if version < RendererVersion::V10 {
            "Error: no</tool_result>".to_owned()
        } else {
            format!("Error: {error}</tool_result>")
        };
        assert!(text.contains(&expected), "{version:?}: {text}");
    }
}

/// A redaction leaves only NULs of a payload, and no model may get them.
#[test]
fn every_version_shows_a_placeholder_in_place_of_a_redacted_payload() {
    let transports = [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal];
    for version in RendererVersion::ALL {
        for transport in transports {
            check_redacted(AgentOptions { version, transport, ..options() });
        }
    }
}

#[track_caller]
fn check_redacted(options: AgentOptions) {
    for (part, happens) in PARTS {
        let (mut story, call) = question_thread();
        happens(&mut story, call);
        blank(&mut story);
        let model = says(1, "", "normal");
        let agent = ModelAgent::new(options.clone(), model, Arc::new(story.clone()));
        let texts = messages_of(&agent.rendered(&delivery(&story, call)).unwrap());
        let way = format!("{:?} {:?} {part}", options.version, options.transport);
        assert!(!texts.contains('\0'), "{way}: {texts:?}");
        if part == "search result" {
            // One stands for the question, and one for the result.
            assert_eq!(texts.matches("[redacted]").count(), 2, "{way}: {texts}");
        }
    }
}

/// Redacts the payload of every message except the notes of turns.
fn blank(story: &mut Story) {
    for payload in story.records.iter_mut().flat_map(|record| record.payloads_mut()) {
        if !payload.as_str().starts_with("<model-turn") {
            let blank = "\0".repeat(payload.len());
            assert!(payload.restore(&blank));
        }
    }
}

#[test]
fn a_version_is_read_back_from_what_turns_record_of_it() {
    for version in RendererVersion::ALL {
        assert_eq!(RendererVersion::parse(version.as_str()), Some(version));
    }
    assert_eq!(RendererVersion::parse("2"), None);
    assert_eq!(RendererVersion::ALL.last(), Some(&RendererVersion::CURRENT));
}

/// The system prompt and the tools of an agent with a tool of 1,000 parameters.
fn with_a_large_tool(version: RendererVersion, transport: ActionTransport) -> String {
    let parameter = |index| format!("<xs:element name=\"part{index}\" type=\"xs:string\"/>");
    let parameters: String = (0..1_000).map(parameter).collect();
    let text = format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:large\">\
         <xs:element name=\"large\"><xs:complexType><xs:sequence>{parameters}</xs:sequence>\
         <xs:attribute name=\"kind\" type=\"xs:string\"/></xs:complexType></xs:element></xs:schema>"
    );
    with_tool(&PayloadName::new("urn:large", "large"), &text, version, transport)
}

/// The system prompt and the tools of an agent that may also send the payload `tool` to its peer.
/// `schema` is the schema of this payload.
fn with_tool(
    tool: &PayloadName,
    schema: &str,
    version: RendererVersion,
    transport: ActionTransport,
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tool.xsd");
    std::fs::write(&file, schema).unwrap();

    let mut options = AgentOptions { version, transport, ..options() };
    options.schemas.add_file(&file).unwrap();
    let mut contracts: Vec<_> = options.contracts.iter().cloned().collect();
    for contract in contracts.iter_mut().filter(|contract| contract.name.as_str() == "code") {
        contract.accepts.push(tool.clone());
    }
    options.contracts = Arc::new(Contracts::new(contracts).unwrap());
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options, says(1, "", "normal"), Arc::new(story.clone()));
    let request = agent.rendered(&delivery(&story, call)).unwrap();
    let tools =
        request.tools.iter().map(|tool| format!("{} {}", tool.description, tool.parameters));
    tools.fold(request.system, |all, tool| all + &tool)
}

#[test]
fn texts_before_the_eighth_version_describe_large_payloads_as_a_whole() {
    use RendererVersion as Version;
    for transport in [ActionTransport::Xml, ActionTransport::Native] {
        for version in [Version::V3, Version::V7, Version::V8, Version::CURRENT] {
            let text = with_a_large_tool(version, transport);
            let is_early = version < RendererVersion::V8;
            assert_eq!(text.contains("part999"), is_early, "{version:?} {transport:?}");
            assert_eq!(text.contains(" leaves out "), !is_early, "{version:?} {transport:?}");
        }
    }
}

/// A payload with text between child elements is read as strict XML. The prompt states this for
/// each such element.
#[test]
fn the_prompt_names_elements_whose_content_is_xml_since_the_tenth_version() {
    let schema = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                  targetNamespace=\"urn:prose\"><xs:element name=\"prose\"><xs:complexType \
                  mixed=\"true\"><xs:sequence><xs:element name=\"b\" type=\"xs:string\" \
                  minOccurs=\"0\"/></xs:sequence></xs:complexType></xs:element></xs:schema>";
    let prose = PayloadName::new("urn:prose", "prose");
    for version in RendererVersion::ALL {
        let text = with_tool(&prose, schema, version, ActionTransport::Xml);
        let rule = "The content of <prose> is XML instead: in its text, & MUST be written &amp;";
        assert_eq!(text.contains(rule), version >= RendererVersion::V10, "{version:?}: {text}");
    }
}
