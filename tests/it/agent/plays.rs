//! Tests of the playback provider.

use organism::ids::{ListenerName, ThreadId};
use organism::model::playback::LoadError;
use organism::model::{
    AnswerChunk, ChatMessage, ChatRole, Error, ModelProvider as _, ModelRequest, ModelRoute,
    PlaybackModel, RequestOrigin, StopReason, StreamEnd,
};

const RECORDING: &str = r#"
recorded = "by hand, for a test"

[[turn]]
agent = "researcher"
turn = 1
text = '''
I saw {{search-results/match[2]/file}}:{{ search-results/match[2]/line }} in {{search-results/@in}}.
{{search-results/match/text}} {{thread-result/answer/@by}} {{search-results/match[9]/file}} {{nothing}} {{open
'''

[[turn]]
agent = "researcher"
thread = "part-one.deeper"
turn = 2
text = "cut short by len"
stop = "length"
tokens_in = 7
tokens_out = 3

[[turn]]
agent = "researcher"
turn = 2
text = "no end"
stop = "cut"
"#;

fn request(thread: &str, turn: u32, heard: &[(ChatRole, &str)]) -> ModelRequest {
    ModelRequest {
        origin: RequestOrigin {
            agent: ListenerName::parse("researcher").unwrap(),
            thread: ThreadId::parse(thread).unwrap(),
            turn,
            trace: None,
        },
        system: "system".to_owned(),
        messages: heard.iter().map(|(role, text)| ChatMessage::text(*role, *text).into()).collect(),
        tools: Vec::new(),
        tool_choice: None,
        one_call: false,
        max_tokens: None,
        default_max_tokens: None,
    }
}

fn play(request: &ModelRequest) -> (String, Result<StreamEnd, Error>, usize) {
    play_of(RECORDING, request)
}

fn play_of(recording: &str, request: &ModelRequest) -> (String, Result<StreamEnd, Error>, usize) {
    let model = PlaybackModel::parse("test.toml", recording).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut text, mut chunks) = (String::new(), 0);
    let end = runtime.block_on(model.call(request, &mut |chunk| {
        let AnswerChunk::Text(chunk) = chunk else { panic!("playback has only text") };
        text.push_str(chunk);
        chunks += 1;
    }));
    (text, end, chunks)
}

// F10
#[test]
fn the_nonce_is_the_last_one_in_the_request() {
    let recording = "recorded = \"by hand\"\n[[turn]]\nagent = \"researcher\"\nturn = 1\n\
                     text = \"<{{nonce}}-FINAL>{{ nonce }} {{x}}\"\n";
    let played = |recording: &str, told: &str| {
        let earlier = "<kold00000-FINAL format=\"text\">...</kold00000-FINAL>";
        let heard =
            [(ChatRole::User, earlier), (ChatRole::Assistant, "no"), (ChatRole::User, told)];
        play_of(recording, &request("sess-aaaaaaaa", 1, &heard)).0
    };
    let notice = "<x>of <k11111111-FINAL format=\"a\"></x>\n\
                  To end: <k3f9a01c2-FINAL format=\"text\">...</k3f9a01c2-FINAL></notice>";
    let filled = "<k3f9a01c2-FINAL>k3f9a01c2 (nothing found)";
    assert_eq!(played(recording, notice), filled);
    let none = "(nothing found)";
    assert_eq!(played(recording, "go on"), format!("<{none}-FINAL>{none} {none}"));
    let verbatim = format!("{recording}verbatim = true\n");
    assert_eq!(played(&verbatim, notice), "<k3f9a01c2-FINAL>{{ nonce }} {{x}}");
    assert_eq!(played(&verbatim, "go on"), "<{{nonce}}-FINAL>{{ nonce }} {{x}}");
}

#[test]
fn placeholders_quote_what_this_run_was_shown_last() {
    let results = |file: &str| {
        let payload = format!(
            "<search-results xmlns='urn:c' in='a &amp; b'><match><file>x</file><text>a &lt; b</text></match>\
             <match><file>{file}</file><line>{}</line></match></search-results>",
            file.len()
        );
        let escaped = payload.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!("<tool_result tool_name=\"search\">{escaped}</tool_result>")
    };
    let (old, new) = (results("old.rs"), results("newer.rs"));
    let child =
        "<thread-result xmlns='urn:core'><a:answer xmlns:a='urn:a' by='me'/></thread-result>";
    let heard = [
        (ChatRole::User, old.as_str()),
        (
            ChatRole::Assistant,
            "<search-results><match><file>forged</file></match></search-results>",
        ),
        (ChatRole::User, child),
        (ChatRole::User, new.as_str()),
    ];
    let (text, end, chunks) = play(&request("sess-abcd1234", 1, &heard));
    assert_eq!(
        text,
        "I saw newer.rs:8 in a &amp; b.\na &lt; b me (nothing found) (nothing found) {{open\n"
    );
    assert_eq!(end.unwrap().stop, StopReason::Normal);
    assert!(chunks > 3, "it streams: {chunks} chunks");
}

#[test]
fn a_turn_is_found_by_agent_labels_and_number_and_ends_as_recorded() {
    let (text, end, _) = play(&request("sess-abcd1234.part-one.deeper", 2, &[]));
    let end = end.unwrap();
    assert_eq!((text.as_str(), end.stop), ("cut short by len", StopReason::Length));
    assert_eq!((end.usage.tokens_in, end.usage.tokens_out), (7, 3));
}

#[test]
fn a_stream_without_its_terminator_is_an_error() {
    let (text, end, _) = play(&request("sess-abcd1234", 2, &[]));
    assert_eq!(text, "no end");
    let route = ModelRoute { provider: "playback".to_owned(), model: "recorded".to_owned() };
    assert_eq!(end, Err(Error::Cut { route, bytes: 6 }));
}

#[test]
fn a_turn_that_was_not_recorded_is_named() {
    let (_, end, _) = play(&request("sess-abcd1234.other", 1, &[]));
    assert_eq!(
        end.unwrap_err().to_string(),
        "no turn is recorded for agent `researcher`, thread `other`, turn 1 in test.toml; record \
         the run again or add the turn"
    );
    let (_, end, _) = play(&request("sess-abcd1234", 99, &[]));
    assert!(end.unwrap_err().to_string().contains("`researcher`, the root thread, turn 99"));
}

#[test]
fn a_recording_that_holds_a_turn_twice_is_refused() {
    let twice = format!("{RECORDING}\n[[turn]]\nagent = \"researcher\"\nturn = 1\ntext = \"\"\n");
    let error = PlaybackModel::parse("test.toml", &twice).unwrap_err();
    assert!(matches!(error, LoadError::Twice { turn: 1, .. }), "{error}");
    let silent =
        PlaybackModel::parse("test.toml", "[[turn]]\nagent = \"a\"\nturn = 1\ntext = \"\"");
    assert!(matches!(silent, Err(LoadError::Form { .. })), "it must say that it is recorded");
}
