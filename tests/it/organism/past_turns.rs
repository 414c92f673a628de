//! `organism prompt --turn` after changes of the config, its files and the program.

use serde_json::Value as Json;

use super::{CommandOutput, House, TALK};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["echo"]

[agents.writer.prompt]
rules_file = "rules.md"

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<say xmlns="urn:example:talk">hello</say>'

[[turn]]
agent = "writer"
turn = 2
text = '<done xmlns="urn:example:talk"><n>1</n></done>'
"#;

const THREAD: &str = "sess-first000";

fn send(house: &House, thread: &str, mutants: &str) {
    let mut command = house.command(&["send", "order.xml", "--as", "desk", "--new", thread]);
    if !mutants.is_empty() {
        let others = std::env::var("ORGANISM_MUTANT").unwrap_or_default();
        command.env("ORGANISM_MUTANT", format!("{mutants},{others}"));
    }
    let sent: CommandOutput = command.output().unwrap().into();
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// A house whose writer took two turns.
fn house(mutants: &str) -> House {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    house.write("rules.md", "Be brief.\n");
    house.write("order.xml", format!("<order xmlns=\"{TALK}\"><n>1</n></order>"));
    send(&house, THREAD, mutants);
    house
}

fn turn(house: &House, number: &str, more: &[&str]) -> CommandOutput {
    let arguments = ["prompt", "writer", "--thread", THREAD, "--turn", number];
    house.organism(&[&arguments, more].concat())
}

fn shown(house: &House, number: &str) -> Json {
    let shown = turn(house, number, &["--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.json()[0].clone()
}

/// A named change of a project.
type Change = (&'static str, fn(&House));

fn rewrite(house: &House, file: &str, old: &str, new: &str) {
    let text = std::fs::read_to_string(house.path(file)).unwrap();
    assert!(text.contains(old), "{file}: {old}");
    house.write(file, text.replace(old, new));
}

/// Changes that a test makes one after the other.
const CHANGES: &[Change] = &[
    ("prompt", |house| house.write("rules.md", "Be long.\n")),
    ("limits", |house| {
        rewrite(house, "organism.toml", "final =", "max_iterations = 3\nfinal =");
        rewrite(house, "organism.toml", "[models", "[limits]\nmessages = 30\n\n[models");
    }),
    ("schema", |house| {
        rewrite(house, "talk.xsd", "</xs:schema>", "<!-- more -->\n</xs:schema>");
    }),
    ("name of the agent", |house| {
        for file in ["organism.toml", "turns.toml"] {
            rewrite(house, file, "writer", "author");
        }
    }),
    ("peers", |house| rewrite(house, "organism.toml", "peers = [\"echo\"]", "peers = []")),
    ("transport", |house| {
        rewrite(house, "organism.toml", "final =", "transport = \"native\"\nfinal =")
    }),
    ("model", |house| {
        rewrite(house, "organism.toml", "playback", "openai-compatible");
        let old = "recording = \"turns.toml\"";
        let new = "base_url = \"http://127.0.0.1:9/v1\"\nmodel = \"other\"";
        rewrite(house, "organism.toml", old, new);
    }),
    ("no agent", |house| {
        let without = CONFIG.split("[agents.writer]").next().unwrap();
        house.write("organism.toml", without.replace("[\"writer\"]", "[\"echo\"]"));
    }),
    ("no config", |house| house.write("organism.toml", "[organism\n")),
];

/// Names of changes after which the test sends no request, because the agent's recorded turns do
/// not fit the changed project.
const NOT_SENT: &[&str] = &["transport", "peers", "model", "no agent", "no config"];

#[test]
fn a_turn_is_shown_as_it_was_sent_whatever_the_config_is_now() {
    let house = house("");
    let turns = ["1", "2"];
    let sent = turns.map(|number| shown(&house, number));
    for sent in &sent {
        assert_eq!(sent["prompt"], sent["recorded"], "{sent}");
        assert_eq!(sent["config_renders_it"], true, "{sent}");
    }
    assert_ne!(sent[0]["prompt"], sent[1]["prompt"]);

    for (number, (change, carry_out)) in CHANGES.iter().enumerate() {
        carry_out(&house);
        if !NOT_SENT.contains(change) {
            send(&house, &format!("sess-later{number:03}"), "");
            let now = &house.organism(&["config", "--json"]).json()[0];
            assert_ne!(now["config"], sent[0]["config"], "{change}");
        }
        for (number, sent) in turns.iter().zip(&sent) {
            assert_eq!(shown(&house, number), *sent, "{change}");
        }
    }

    let data = house.data();
    let data = data.to_str().unwrap();
    let by_data = turn(&house, "2", &["--data", data, "--json"]);
    assert_eq!(by_data.json()[0], sent[1], "{by_data:?}");
    let text = turn(&house, "2", &[]);
    let config = sent[0]["config"].as_str().unwrap();
    let proof = format!("config\n{config}, which renders the same request again\n\nsystem\n");
    assert!(text.out.starts_with(&proof), "{text:?}");
}

/// If a turn has stored nothing of its request, the request is rendered with the config that was in
/// force when the turn was handed over. If that config is not stored, the present config is used.
/// If the present config does not render the same request, the command fails with the reason.
#[test]
fn a_turn_without_inputs_needs_the_config_of_its_time() {
    let with_config = house("forget-the-inputs");
    let without = house("forget-the-inputs,forget-the-config");
    for house in [&with_config, &without] {
        let sent = shown(house, "2");
        assert_eq!(sent["prompt"], sent["recorded"], "{sent}");
        house.write("rules.md", "Be long.\n");
    }

    let sent = shown(&with_config, "2");
    assert_eq!(sent["prompt"], sent["recorded"], "{sent}");
    assert!(sent["system"].to_string().contains("Be brief."), "{sent}");

    let refused = turn(&without, "2", &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("it is from before turns stored what they send"), "{refused:?}");
    without.write("rules.md", "Be brief.\n");
    assert_eq!(shown(&without, "2")["config_renders_it"], Json::Null);
}

#[test]
fn a_turn_from_before_configs_were_stored_is_shown_without_a_comparison() {
    let house = house("forget-the-config");
    let sent = shown(&house, "1");
    assert_eq!(sent["prompt"], sent["recorded"], "{sent}");
    assert_eq!(sent["config_renders_it"], Json::Null);
    house.write("organism.toml", "[organism\n");
    assert_eq!(shown(&house, "1")["prompt"], sent["prompt"]);
    let text = turn(&house, "1", &[]);
    assert!(!text.out.contains("renders the same request"), "{text:?}");
}

#[test]
fn a_turn_that_was_not_taken_is_named() {
    let house = house("");
    for (arguments, text) in [
        (["--thread", THREAD, "--turn", "3"].as_slice(), "writer took no turn 3 in sess-first000"),
        (&["--thread", "sess-nowhere0", "--turn", "1"], "sess-nowhere0"),
        (&["--data", "journal"], "--data names a journal"),
    ] {
        let refused = house.organism(&[&["prompt", "writer"], arguments].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(text), "{refused:?}");
    }
}
