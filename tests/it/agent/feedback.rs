//! Feedback to a model about its mistakes. The feedback names the location in the model's own text
//! and a valid form. The model gets each feedback once, and the feedback on a mistake has the same
//! class on each transport.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use organism::agent::{ActionTransport, ModelAgent};
use organism::contract::{Contract, Contracts};
use organism::model::{ModelRequest, StopReason};
use organism::pump::gate::Gate;
use organism::system;

use super::scripted::{Reply, Says, Scripted, nonce, reply};
use super::setup::{delivery, options, question_thread, schemas};
use super::stage::{Stage, researcher};
use super::story::listener;

/// Plays a turn. Returns the feedback that the model gets, and a transcript of the record.
fn told(transport: ActionTransport, turn: Reply) -> (String, String) {
    let (mut stage, model) =
        Stage::new(transport, vec![Says::Exactly(turn), Says::Ends("it is done")]);
    stage.ask();
    let heard = model.requests();
    let last = heard[1].messages.last().unwrap();
    (last.texts().collect::<Vec<_>>().join("\n"), stage.transcript())
}

/// Returns the codes of the refusals in a transcript, and the number of `huh` messages in it.
fn refusals(transcript: &str) -> (Vec<String>, usize) {
    let codes = transcript.lines().filter_map(|line| line.strip_prefix("- refused "));
    let texts = transcript.lines().filter(|line| line.contains("<huh")).count();
    (codes.map(str::to_owned).collect(), texts)
}

// T14
#[test]
fn a_refusal_by_the_schema_names_its_place_in_the_models_own_text() {
    let turn =
        "First\n<search>\n  <query>a < b</query>\n    <allow_tests>maybe</allow_tests>\n</search>";
    let (text, _) = told(ActionTransport::Xml, reply(turn));
    assert!(text.contains("(line 4, column 5)"), "{text}");

    let turn = "<thinking>so</thinking>\n  <search><path>src</path></search>";
    let (text, _) = told(ActionTransport::Xml, reply(turn));
    assert!(text.contains("(line 2, column 3)"), "{text}");

    let turn = "\n<search>\n<allow_tests>maybe</allow_tests>\n<query/></search>";
    let (text, _) = told(ActionTransport::Xml, reply(turn));
    assert!(text.contains("(line 3, column 1)") && !text.contains("at line"), "{text}");

    let turn = reply("").call("extract", r#"{"file_path":"a","line":0}"#);
    let (text, _) = told(ActionTransport::Native, turn);
    assert!(text.contains("schema-invalid") && !text.contains("(line"), "{text}");
}

#[test]
fn a_misspelled_name_of_an_action_is_stated_once() {
    let (text, _) = told(ActionTransport::Xml, reply("<serch> for it"));
    assert!(text.contains("`serch` is not known; did you mean"), "{text}");
    assert!(text.contains("did not contain a valid XML action: call one tool"), "{text}");
}

// T14
#[test]
fn a_missing_parameter_is_named_as_the_required_one() {
    let (text, _) = told(ActionTransport::Xml, reply("<search><path>src</path></search>"));
    assert!(text.contains("`query` is required"), "{text}");
    assert!(!text.contains("`allow_tests` is required"), "{text}");
}

// T6
#[test]
fn the_refusal_of_an_excess_action_states_the_maximum() {
    for (allowed, said) in [(1, "exactly one action"), (2, "at most 2 actions")] {
        let mut options = researcher(ActionTransport::Xml);
        options.contract.actions_per_turn = allowed;
        let turn = reply("<query>1</query><query>2</query><query>3</query>");
        let model =
            Scripted::new(ActionTransport::Xml, vec![Says::Exactly(turn), Says::Ends("done")]);
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        let heard = model.requests();
        let text: String = heard[1].messages.last().unwrap().texts().collect();
        assert!(text.contains(&format!("one turn may hold {said}")), "{text}");
    }
}

// T6
#[test]
fn a_refused_unknown_element_is_none_of_the_allowed_actions() {
    for unknown in
        ["<write_file><query>2</query></write_file>", "<example><query>2</query></example>"]
    {
        let mut options = researcher(ActionTransport::Xml);
        options.contract.actions_per_turn = 1;
        let turn = reply(&format!("{unknown}\n<query>1</query>"));
        let model =
            Scripted::new(ActionTransport::Xml, vec![Says::Exactly(turn), Says::Ends("done")]);
        let mut stage = Stage::with(options, model.clone());
        stage.ask();
        let requests = model.requests();
        let text: String = requests[1].messages.last().unwrap().texts().collect();
        assert!(text.contains("unknown-action"), "{text}");
        assert!(!text.contains("excess-action"), "{text}");
    }
}

// T9
#[test]
fn the_form_that_a_refusal_shows_is_accepted() {
    let options = researcher(ActionTransport::Xml);
    let contracts: Arc<Contracts> = options.contracts.clone();
    let gate = Gate::new(contracts.clone(), schemas());
    let agent = listener("researcher");
    let mut expected = 0;
    for (name, _) in contracts.vocabulary(&agent).unwrap().iter() {
        let wrong = format!("<{} xmlns=\"{}\" bogus=\"1\"/>", name.local, name.namespace);
        let refusal = gate.check(&agent, wrong.as_bytes()).unwrap_err();
        let Some(example) = refusal.expected else { panic!("nothing is expected of {name}") };
        gate.check(&agent, example.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}: {example}"));
        expected += 1;
    }
    assert!(expected >= 4 + system::Primitive::WORDS.len() + system::NOTES.len(), "{expected}");
    let both = format!(
        "<set-timer xmlns=\"{}\" after=\"PT1S\" at=\"2030-01-01T00:00:00Z\"/>",
        system::NAMESPACE
    );
    let refusal = gate.check(&agent, both.as_bytes()).unwrap_err();
    assert!(refusal.expected.is_some_and(|e| gate.check(&agent, e.as_bytes()).is_ok()));
}

// T9
#[test]
fn a_native_call_is_expected_as_a_native_call() {
    let turn = reply("").call("extract", r#"{"file_path":"a","line":0}"#);
    let (text, _) = told(ActionTransport::Native, turn);
    let (_, expected) = text.split_once("Expected: extract(").expect("an example of the call");
    let arguments = expected.split_once("})").unwrap().0.to_owned() + "}";
    let (_, transcript) = told(ActionTransport::Native, reply("").call("extract", &arguments));
    assert_eq!(refusals(&transcript), (Vec::new(), 0), "{arguments}");
}

// F10
#[test]
fn a_hint_of_a_slot_does_not_name_the_nonce_of_the_past_turn() {
    let turn = reply("<NONCE-FINALE format=\"text\">x</NONCE-FINALE>");
    let (mut stage, model) =
        Stage::new(ActionTransport::XmlFinal, vec![Says::Exactly(turn), Says::Ends("done")]);
    stage.ask();
    let heard = model.requests();
    let past = nonce(&heard[0]).unwrap();
    let last = heard[1].messages.last().unwrap();
    let text: String = last.texts().collect();
    assert!(!text.contains(&format!("<{past}-FINAL>")), "{text}");
    assert!(!text.contains(&format!("&lt;{past}-FINAL&gt;")), "{text}");
    assert!(text.contains("NONCE-FINAL"), "{text}");
}

// T15
#[test]
fn the_same_mistake_has_the_same_class_on_each_transport() {
    let mistakes = [
        ("<search><path>src</path></search>", r#"{"path":"src"}"#),
        (
            "<search><query>x</query><allow_tests>maybe</allow_tests></search>",
            r#"{"query":"x","allow_tests":"maybe"}"#,
        ),
        (
            "<search><query>x</query><colour>red</colour></search>",
            r#"{"query":"x","colour":"red"}"#,
        ),
    ];
    for (xml, json) in mistakes {
        let (_, in_text) = told(ActionTransport::Xml, reply(xml));
        let expected = (vec!["schema-invalid".to_owned()], 1);
        assert_eq!(refusals(&in_text), expected, "{xml}");
        for transport in [ActionTransport::Native, ActionTransport::XmlFinal] {
            let (_, called) = told(transport, reply("").call("search", json));
            assert_eq!(refusals(&called), expected, "{json}");
        }
    }
    let (_, in_text) = told(ActionTransport::Xml, reply("<search><query>x</search>"));
    let (_, called) = told(ActionTransport::Native, reply("").call("search", r#"{"query":"x""#));
    assert_eq!(refusals(&in_text).0, refusals(&called).0);
}

// F15
#[test]
fn one_mistake_leaves_one_permanent_text() {
    let cut = reply("<search><query>x").stop(StopReason::Length);
    let (text, transcript) = told(ActionTransport::Xml, cut);
    assert_eq!(refusals(&transcript).1, 1, "{transcript}");
    assert!(text.contains("reached its maximum length"), "{text}");

    let cut = reply("<NONCE-FINAL format=\"text\">").stop(StopReason::Length);
    let (_, transcript) = told(ActionTransport::XmlFinal, cut);
    assert_eq!(refusals(&transcript).1, 1, "{transcript}");

    // The action stands before the text, so the model must not write less before it.
    let cut = reply("<query>1 & 2</query>\nNow more text").stop(StopReason::Length);
    let (text, transcript) = told(ActionTransport::Xml, cut);
    assert_eq!(refusals(&transcript).1, 1, "{transcript}");
    assert!(text.contains("cut off before it is clear where `query` ends"), "{text}");
    assert!(!text.contains("reached its maximum length"), "{text}");
}

/// The prompt of an agent that has no peers.
fn alone(transport: ActionTransport) -> ModelRequest {
    let (story, call) = question_thread();
    let mut options = options();
    let contract = Contract { peers: Vec::new(), ..options.contract.clone() };
    options.contracts = Arc::new(Contracts::new(vec![contract.clone()]).unwrap());
    options.contract = contract;
    options.transport = transport;
    let model = Scripted::new(transport, Vec::new());
    let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
    agent.rendered(&delivery(&story, call)).unwrap()
}

// F7
#[test]
fn a_prompt_never_denies_tools_that_exist() {
    for transport in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let system = alone(transport).system;
        assert!(!system.contains("no tools"), "{system}");
    }
    for transport in [ActionTransport::Native, ActionTransport::XmlFinal] {
        let request = alone(transport);
        let system = &request.system;
        assert!(system.contains("Your tools are native tools of this conversation."), "{system}");
        let notice = request.messages.last().unwrap().texts().last().unwrap().to_owned();
        assert!(notice.contains("- spawn-thread("), "the tools are listed: {notice}");
        assert!(notice.contains("- question(part: string[])"), "{notice}");
    }
}

// T2 T6 T9
#[test]
fn obligations_are_as_strong_as_they_are_meant() {
    for transport in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let (story, call) = question_thread();
        let mut options = options();
        options.transport = transport;
        let model = Scripted::new(transport, Vec::new());
        let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
        let system = agent.rendered(&delivery(&story, call)).unwrap().system;
        for obligation in
            ["You MUST think before every action", "EXACTLY ONE", "DO NOT respond with plain text"]
        {
            assert!(system.contains(obligation), "{transport:?}, {obligation}: {system}");
        }
        assert!(system.contains("ONLY"), "{system}");
    }
}

const CONFIG: &str = r#"
[organism]
name = "unclosed"
data = "journal"
state = "state"
[clients.desk]
peers = ["writer"]
[agents.writer]
schema = "write.xsd"
accepts = ["write"]
model = "recorded"
transport = "xml-final"
[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t:write"><xs:element name="write" type="xs:string"/></xs:schema>"#;

const TURNS: &str = r#"
recorded = "for a test"
[[turn]]
agent = "writer"
turn = 1
text = '<{{nonce}}-FINAL format="text">all of it'
"#;

fn organism(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", directory)
        .envs(crate::nats::substrate(directory))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

// F12
#[test]
fn a_final_that_was_taken_unclosed_shows_in_the_thread() {
    let home = tempfile::tempdir().unwrap();
    let files = [
        ("unclosed.toml", CONFIG),
        ("write.xsd", SCHEMA),
        ("turns.toml", TURNS),
        ("ask.xml", "<write xmlns=\"urn:t:write\">now</write>"),
    ];
    for (file, text) in files {
        std::fs::write(home.path().join(file), text).unwrap();
    }
    let sent = ["send", "--config", "unclosed.toml", "--new", "sess-unclosed1", "ask.xml"];
    assert!(organism(home.path(), &sent).contains("all of it"));
    let shown = ["thread", "sess-unclosed1", "--config", "unclosed.toml"];
    let shown = organism(home.path(), &shown);
    assert!(shown.contains("warning: final-unclosed: the final report is not closed"), "{shown}");
}
