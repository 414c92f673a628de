//! Tests the list of messages that the prompt of an agent leaves out, with the reason for each
//! message.

use expect_test::{Expect, expect};
use organism::agent::history::{self, UnseenReason, Viewpoint};
use organism::agent::protocol::render;
use organism::agent::{MemoryScope, RendererVersion};
use organism::contract::Gather;
use organism::envelope::MessageKind;
use organism::ids::{CallId, Digest, MessageId, Position};
use organism::thread::{Closing, Fact, ForkSource};

use super::story::{ROOT, Story, StoryMessage, listener, story_message, thread};

const QUESTION: &str = r#"<question xmlns="urn:desk">where?</question>"#;
const SEARCH: &str = r#"<search xmlns="urn:code"><query>x</query></search>"#;

fn ask(story: &mut Story) -> MessageId {
    story.say(story_message("desk", "researcher", MessageKind::Call, QUESTION))
}

/// Compares with `expect` the list of messages that the next prompt of `call` leaves out, one line
/// for each message.
fn check(story: &Story, call: MessageId, memory: MemoryScope, stubs: &[MessageId], expect: Expect) {
    let agent = listener("researcher");
    let thread = thread(ROOT);
    let view = Viewpoint {
        agent: &agent,
        thread: &thread,
        call: CallId(call),
        position: story.position(),
        memory,
        version: RendererVersion::CURRENT,
    };
    let unseen = history::unseen(&story.records, &view, stubs);
    let lines = unseen.iter().map(|unseen| {
        let message = &unseen.message;
        let name = &message.name.local;
        format!("{} {} -> {}: {name}: {:?}\n", message.seq, message.from, message.to, unseen.reason)
    });
    expect.assert_eq(&lines.collect::<String>());

    // A text that the prompt shows is not counted as unseen.
    let items = history::of(&story.records, &view).items;
    let prompt = render::conversation(&items, &agent, None, view.version);
    let prompt: String = prompt.iter().flat_map(|said| said.texts()).collect();
    let hidden = unseen.iter().filter(|unseen| unseen.reason != UnseenReason::DidNotFit);
    for hidden in hidden.filter(|hidden| hidden.message.kind == MessageKind::Reply) {
        assert!(!prompt.contains(hidden.message.payload.as_str()), "{prompt}");
    }
}

#[test]
fn a_prompt_that_shows_the_whole_thread_leaves_nothing_unseen() {
    let mut story = Story::default();
    let call = ask(&mut story);
    let search = [story_message("researcher", "search", MessageKind::Call, SEARCH)];
    let sent = story.turn("researcher", call, story.position(), "first", &search);
    let found = story_message("search", "researcher", MessageKind::Reply, "<r>one</r>");
    story.say(found.because(sent[0]));
    check(&story, call, MemoryScope::Thread, &[], expect![""]);
    check(&story, call, MemoryScope::Own, &[], expect![""]);
}

#[test]
fn what_a_cleared_window_hides_is_named_with_the_turns() {
    let mut story = Story::default();
    let call = ask(&mut story);
    let search = [story_message("researcher", "search", MessageKind::Call, SEARCH)];
    let sent = story.turn("researcher", call, story.position(), "first", &search);
    let found = story_message("search", "researcher", MessageKind::Reply, "<r>old</r>");
    story.say(found.because(sent[0]));
    story.turn("researcher", call, story.position(), "second", &search);
    let clear = r#"<clear-context xmlns="https://xml-pipeline.org/ns/core/v1" keep="1"/>"#;
    let asked = [story_message("researcher", "core", MessageKind::Call, clear)];
    story.turn("researcher", call, story.position(), "<clear-context keep=\"1\"/>", &asked);
    story.window("researcher", 1);
    let late = story_message("search", "researcher", MessageKind::Reply, "<r>late</r>");
    story.say(late.because(sent[0]));
    check(
        &story,
        call,
        MemoryScope::Thread,
        &[],
        expect![[r#"
            2 researcher -> researcher: model-turn: Cleared
            3 researcher -> search: search: Cleared
            4 search -> researcher: r: Cleared
        "#]],
    );
}

#[test]
fn a_stub_the_talk_of_others_and_a_request_that_waits_have_their_own_reasons() {
    let mut story = Story::default();
    let draft = story_message("desk", "critic", MessageKind::Call, "<draft>x</draft>");
    let other = story.say(StoryMessage { ..draft });
    story.turn_in(ROOT, "critic", other, story.position(), "hm");
    story.say(story_message("critic", "desk", MessageKind::Reply, "<verdict>no</verdict>"));
    let call = ask(&mut story);
    let search = [story_message("researcher", "search", MessageKind::Call, SEARCH)];
    let sent = story.turn("researcher", call, story.position(), "first", &search);
    let long = story_message("search", "researcher", MessageKind::Reply, "<r>long</r>");
    let stub = story.say(long.because(sent[0]));
    ask(&mut story);
    check(
        &story,
        call,
        MemoryScope::Thread,
        &[stub],
        expect![[r#"
            2 critic -> critic: model-turn: TextOfAnother
            7 search -> researcher: r: DidNotFit
            8 desk -> researcher: question: Waiting
        "#]],
    );
    check(
        &story,
        call,
        MemoryScope::Own,
        &[stub],
        expect![[r#"
            1 desk -> critic: draft: AmongOthers
            2 critic -> critic: model-turn: TextOfAnother
            3 critic -> desk: verdict: AmongOthers
            7 search -> researcher: r: DidNotFit
            8 desk -> researcher: question: Waiting
        "#]],
    );
}

#[test]
fn a_late_reply_does_not_count_and_a_request_that_failed_is_shown() {
    let mut story = Story::default();
    let failed = ask(&mut story);
    let error = "<system-error xmlns=\"https://xml-pipeline.org/ns/core/v1\" code=\"x\"/>";
    story.say(story_message("core", "desk", MessageKind::System, error).because(failed));
    let end = Fact::CallClosed { call: CallId(failed), how: Closing::Failed };
    story.records.last_mut().unwrap().facts.push(end);

    let call = ask(&mut story);
    let asks = ["a", "b"].map(|to| story_message("researcher", to, MessageKind::Call, SEARCH));
    let sent = story.turn("researcher", call, story.position(), "both", &asks);
    for fact in &mut story.records.last_mut().unwrap().facts {
        if let Fact::Accepted { opening: Some(opening), .. } = fact {
            opening.group = Some((CallId(sent[0]), Gather::First));
        }
    }
    let reply = |from, xml| story_message(from, "researcher", MessageKind::Reply, xml);
    story.say(reply("b", "<r>won</r>").because(sent[1]));
    let lost = Fact::CallClosed { call: CallId(sent[0]), how: Closing::Cancelled };
    story.records.last_mut().unwrap().facts.push(lost);
    story.say(reply("a", "<r>lost</r>").because(sent[0]));
    let late = expect![[r#"
        8 a -> researcher: r: Cancelled
    "#]];
    check(&story, call, MemoryScope::Thread, &[], late);
}

/// A redacted turn has lost its text. The list names the turn with the reason `Redacted`, because
/// it is a turn of the agent itself.
#[test]
fn a_redacted_turn_of_the_agent_has_its_own_reason() {
    let mut story = Story::default();
    let call = ask(&mut story);
    story.turn_in(ROOT, "researcher", call, story.position(), "hm");
    for payload in story.records.last_mut().unwrap().payloads_mut() {
        let blank = "\0".repeat(payload.len());
        assert!(payload.restore(&blank));
    }
    let turn = expect![[r#"
        2 researcher -> researcher: model-turn: Redacted
    "#]];
    check(&story, call, MemoryScope::Own, &[], turn);
}

#[test]
fn messages_of_other_threads_are_no_messages_of_this_one() {
    let mut story = Story::default();
    let call = ask(&mut story);
    let child = "sess-abcd1234.a";
    story.say(story_message("researcher", "search", MessageKind::Call, SEARCH).within(child));
    check(&story, call, MemoryScope::Thread, &[], expect![""]);
}

/// A prompt shows the core's messages in the first record of a fork, except for the message which
/// states that the thread is a fork.
#[test]
fn the_first_record_of_a_fork_hides_only_that_it_is_one() {
    const CORE: &str = "https://xml-pipeline.org/ns/core/v1";
    let mut story = Story::default();
    let call = ask(&mut story);
    let sent = format!("<system-error xmlns=\"{CORE}\" code=\"forked\">it ended</system-error>");
    story.say(story_message("core", "researcher", MessageKind::System, &sent).because(call));
    let stated = format!("<fork xmlns=\"{CORE}\" thread=\"sess-source01\" seq=\"3\" by=\"ana\"/>");
    story.say(story_message("core", "core", MessageKind::System, &stated));
    let source = ForkSource {
        thread: thread("sess-source01"),
        message: call,
        seq: 3,
        record: Position(1),
        hash: Digest::ZERO,
        history: Position(1),
        unpinned: false,
        journal: None,
    };
    for record in story.records.iter_mut().rev().take(2) {
        record.facts.push(Fact::Forked {
            thread: thread(ROOT),
            by: listener("desk"),
            source: source.clone(),
            live: Vec::new(),
            allotment: None,
            threads: Vec::new(),
        });
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
    let items = history::of(&story.records, &view).items;
    let prompt = render::conversation(&items, &agent, None, view.version);
    let prompt: String = prompt.iter().flat_map(|said| said.texts()).collect();
    assert!(prompt.contains("it ended") && !prompt.contains("sess-source01"), "{prompt}");
}
