//! `organism prompt`: shows the model request of an agent for an example task, for a recorded turn
//! or for the next turn, and the sections of a prompt.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use organism::agent::{ActionTransport, AgentEnvironment, ModelAgent};
use organism::ids::Digest;
use serde_json::Value as Json;

use super::scripted::{Says, Scripted};
use super::setup::{delivery, options, question_thread};
use super::stage::{Stage, researcher};

const CONFIG: &str = r#"
[organism]
name = "talk"
data = "journal"
state = "state"
[clients.desk]
peers = ["researcher"]
[agents.researcher]
schema = "talk.xsd"
accepts = ["research"]
model = "recorded"
transport = "xml"
[agents.researcher.prompt]
behavioral_rules = "Be brief."
[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t:talk"><xs:element name="research" type="xs:string"/></xs:schema>"#;

const TURNS: &str = r#"
recorded = "for a test"
[[turn]]
agent = "researcher"
turn = 1
text = "<research>and why?</research>"
[[turn]]
agent = "researcher"
turn = 2
text = "<attempt_completion><result>because</result></attempt_completion>"
"#;

fn organism(directory: &Path, arguments: &[&str]) -> Output {
    organism_with(directory, arguments, std::env::var("ORGANISM_MUTANT").ok().as_deref())
}

fn organism_with(directory: &Path, arguments: &[&str], mutant: Option<&str>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", directory)
        .envs(crate::nats::substrate(directory))
        .envs(mutant.map(|mutant| ("ORGANISM_MUTANT", mutant)))
        .output()
        .unwrap()
}

fn shown(directory: &Path, more: &[&str]) -> Json {
    let arguments = [&["prompt", "researcher", "--config", "talk.toml", "--json"], more].concat();
    let output = organism(directory, &arguments);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notes}");
    // The task of each thread in these tests has ended.
    let is_next = more.contains(&"--thread") && !more.contains(&"--turn");
    assert_eq!(notes.contains("researcher has no open task in the thread"), is_next, "{notes}");
    assert_eq!(notes.is_empty(), !is_next, "{notes}");
    serde_json::from_slice(&output.stdout).unwrap()
}

// O1
#[test]
fn the_prompt_of_a_turn_on_record_is_shown_as_it_was_sent() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path();
    for (file, text) in [("talk.toml", CONFIG), ("talk.xsd", SCHEMA), ("turns.toml", TURNS)] {
        std::fs::write(directory.join(file), text).unwrap();
    }
    let example = shown(directory, &[]);
    assert_eq!((&example["turn"], &example["recorded"]), (&Json::from(1), &Json::Null));
    assert!(example["messages"][0]["blocks"][0]["text"].as_str().unwrap().contains("<research"));
    assert!(!directory.join("journal").exists(), "nothing was started");
    std::fs::write(directory.join("ask.xml"), "<research xmlns=\"urn:t:talk\">where?</research>")
        .unwrap();
    let sent = organism(
        directory,
        &["send", "--config", "talk.toml", "--new", "sess-preview01", "ask.xml"],
    );
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let id = "sess-preview01";
    for turn in ["1", "2"] {
        let then = shown(directory, &["--thread", id, "--turn", turn]);
        assert_eq!(then["recorded"], then["prompt"], "turn {turn}");
        assert_eq!(then["turn"].to_string(), turn);
    }
    let next = shown(directory, &["--thread", id]);
    assert_eq!((&next["turn"], &next["recorded"]), (&Json::from(3), &Json::Null));
    let said = next["messages"].to_string();
    assert!(said.contains("and why?") && said.contains("because"), "{said}");
    let changed = CONFIG.replace("Be brief.", "Be long.");
    std::fs::write(directory.join("talk.toml"), changed).unwrap();
    // The recorded request is shown, regardless of the present config.
    let then = shown(directory, &["--thread", id, "--turn", "1"]);
    assert_eq!(then["recorded"], then["prompt"]);
    let system = then["system"].as_str().unwrap();
    assert!(system.contains("Be brief.") && !system.contains("Be long."), "{system}");
    assert!(shown(directory, &["--thread", id])["system"].as_str().unwrap().contains("Be long."));
    let wire = ["prompt", "researcher", "--config", "talk.toml", "--thread", id, "--turn", "2"];
    let wire = organism(directory, &[&wire[..], &["--wire"]].concat()).stdout;
    let then = shown(directory, &["--thread", id, "--turn", "2"]);
    assert_eq!(Digest::of(&wire).to_string(), then["recorded"].as_str().unwrap());
    let body: Json = serde_json::from_slice(&wire).unwrap();
    assert_eq!(body["model"], "recorded");
    for (wrong, code) in [
        (vec!["prompt", "nobody", "--config", "talk.toml"], 2),
        (vec!["prompt", "researcher", "--config", "talk.toml", "--thread", "sess-nothere1"], 2),
        (vec!["prompt", "researcher", "--config", "talk.toml", "--thread", id, "--turn", "9"], 2),
    ] {
        assert_eq!(organism(directory, &wrong).status.code(), Some(code), "{wrong:?}");
    }
}

/// A turn whose record lacks its request is shown only if the present config renders the same
/// request again. Otherwise, the command fails. It then names the digest of the recorded request,
/// and the digest of the request that it rendered.
#[test]
fn an_older_turn_is_never_shown_with_a_config_that_it_was_not_sent_with() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path();
    for (file, text) in [("talk.toml", CONFIG), ("talk.xsd", SCHEMA), ("turns.toml", TURNS)] {
        std::fs::write(directory.join(file), text).unwrap();
    }
    std::fs::write(directory.join("ask.xml"), "<research xmlns=\"urn:t:talk\">where?</research>")
        .unwrap();
    let id = "sess-preview02";
    let send = ["send", "--config", "talk.toml", "--new", id, "ask.xml"];
    let sent = organism_with(directory, &send, Some("forget-the-inputs,forget-the-config"));
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let then = shown(directory, &["--thread", id, "--turn", "1"]);
    let recorded = then["recorded"].as_str().unwrap().to_owned();
    assert_eq!(then["prompt"], recorded.as_str());

    let changed = CONFIG.replace("Be brief.", "Be long.");
    std::fs::write(directory.join("talk.toml"), changed).unwrap();
    let arguments =
        ["prompt", "researcher", "--config", "talk.toml", "--thread", id, "--turn", "1"];
    let output = organism(directory, &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&recorded), "{said}");
    let digests = said.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 64);
    assert!(digests.collect::<std::collections::BTreeSet<_>>().len() >= 2, "{said}");
}

// A10 A11
#[test]
fn sections_are_tags_in_their_order_with_the_environment_filled_in() {
    let free = [
        ("behavioral_rules", "Never guess."),
        ("communication", "Be brief."),
        ("making_code_changes", "One change at a time."),
        ("linter_errors", "Mend what you broke."),
    ];
    for way in [ActionTransport::Xml, ActionTransport::Native, ActionTransport::XmlFinal] {
        let (story, call) = question_thread();
        let mut options = options();
        options.transport = way;
        options.environment = AgentEnvironment::detect();
        options.sections = free.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        options.sections.push(("capabilities".to_owned(), "You can look.".to_owned()));
        let model = Scripted::new(way, Vec::new());
        let agent = ModelAgent::new(options, model, Arc::new(story.clone()));
        let system = agent.rendered(&delivery(&story, call)).unwrap().system;
        let order = [
            "identity",
            "capabilities",
            "rules",
            "tool_calling",
            "response_protocol",
            "environment",
            "behavioral_rules",
            "communication",
            "making_code_changes",
            "linter_errors",
        ];
        let places: Vec<_> = order
            .iter()
            .map(|name| {
                let open = system
                    .find(&format!("<{name}>\n"))
                    .unwrap_or_else(|| panic!("{name}: {system}"));
                let close = system.find(&format!("\n</{name}>")).unwrap();
                assert!(open < close, "{name}");
                open
            })
            .collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(system.contains("<capabilities>\nYou can look.\n</capabilities>"));
        let os = format!("OS: {} ({})", std::env::consts::OS, std::env::consts::ARCH);
        assert!(system.contains(&os) && system.contains("Runtime: organism "), "{system}");
    }
}

// T9
#[test]
fn native_calls_are_parsed_as_the_prompt_describes_them() {
    for way in [ActionTransport::Native, ActionTransport::XmlFinal] {
        let (mut stage, model) = Stage::new(way, vec![Says::Ends("x")]);
        stage.ask();
        let request = &model.requests()[0];
        let schemas = researcher(way).schemas;
        for tool in &request.tools {
            let word = schemas.names().find(|name| *name.local == *tool.name);
            let taught = ["search", "extract", "query", "question"];
            let Some(word) = word.filter(|word| taught.contains(&&*word.local)) else { continue };
            let example = schemas.example(word).unwrap();
            let arguments = schemas.to_json(word, &example).unwrap().to_string();
            let xml = schemas.to_xml(word, &arguments).unwrap();
            assert_eq!(schemas.validate(word, xml.as_bytes()), Ok(()), "{xml}");
            assert!(jsonschema_says(&tool.parameters, &arguments), "{arguments}");
            // The definition is sent beside the prompt, so the prompt does not repeat it.
            assert!(!request.system.contains(&tool.description), "{}", request.system);
        }
        let spawn = request.tools.iter().find(|tool| tool.name == "spawn-thread").unwrap();
        let arguments = r#"{"initial-payload":{"query":{"content":"x"}}}"#;
        assert!(jsonschema_says(&spawn.parameters, arguments));
        let two = r#"{"initial-payload":{"query":{"content":"x"},"search":{"query":"x"}}}"#;
        assert!(!jsonschema_says(&spawn.parameters, two));
        let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert!(names.len() >= 10, "{names:?}");
        for tool in &request.tools {
            assert_eq!(tool.parameters["type"], "object", "{}", tool.name);
        }
    }
}

/// Tokens of the prompt and the tools of the shipped coder with this transport, as
/// `organism prompt` counts them.
fn tokens_of_coder(transport: &str) -> (u32, String) {
    let home = tempfile::tempdir().unwrap();
    let shown = Command::new(env!("CARGO_BIN_EXE_organism"))
        .args(["prompt", "coder", "--config", "config/coder.toml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("ORGANISM_AGENTS__CODER__TRANSPORT", transport)
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{text}{}", String::from_utf8_lossy(&shown.stderr));
    let (_, size) = text.rsplit_once("size\n").unwrap();
    let tokens = size.split_whitespace().next().unwrap().parse().unwrap();
    (tokens, text)
}

#[test]
fn the_shipped_coder_has_a_small_prompt_on_each_transport() {
    let (xml, _) = tokens_of_coder("xml");
    assert!(xml <= 3_925, "{xml}");
    for transport in ["native", "xml-final"] {
        let (tokens, text) = tokens_of_coder(transport);
        assert!(tokens <= 4_500, "{transport}: {tokens}");
        let described = text.matches("Replace one piece of a file.").count();
        // Once for the tool, and once where a set of proposals contains it.
        assert_eq!(described, 2, "{text}");

        let taught = "An example of arguments of proposed_actions: ";
        let example = text.lines().find_map(|line| line.strip_prefix(taught)).unwrap();
        let (_, tool) = text.split_once("tool proposed_actions\n").unwrap();
        let schema: Json = serde_json::from_str(tool.lines().nth(1).unwrap()).unwrap();
        assert!(jsonschema_says(&schema, example), "{example}");
    }
}

/// Whether another implementation of JSON Schema accepts these arguments.
fn jsonschema_says(schema: &Json, arguments: &str) -> bool {
    let schema = organism::agent::ReportSchema::parse(&schema.to_string()).unwrap();
    schema.mistakes(&serde_json::from_str(arguments).unwrap()).is_empty()
}
