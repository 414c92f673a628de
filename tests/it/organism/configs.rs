//! `organism config`: writes out the config that was in force at a given moment, and compares
//! configs.

use organism::clock::Time;
use organism::config::ConfigHistory;
use organism::journal::Journal as _;
use rusqlite::Connection;

use super::{CommandOutput, House, say};
use crate::journal::Place;
use crate::journal::script::Script;
use crate::nats::is_streamed;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
max_iterations = 4

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
text = '<said xmlns="urn:example:talk">done</said>'
"#;

const RULES: &str = "Be brief.\nBe kind.\nBe right.\n";

fn house() -> House {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    house.write("rules.md", RULES);
    house
}

fn send(house: &House, thread: &str) {
    let sent = house.send_text(&say("write"), &["--new", thread]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// A house that took one turn with each of two configs.
fn changed() -> House {
    let house = house();
    send(&house, "sess-first000");
    house.write("organism.toml", CONFIG.replace("max_iterations = 4", "max_iterations = 5"));
    house.write("rules.md", RULES.replace("kind", "quick"));
    let xsd = std::fs::read_to_string(house.path("talk.xsd")).unwrap();
    house.write("talk.xsd", xsd.replacen("</xs:schema>", "<!-- more -->\n</xs:schema>", 1));
    send(&house, "sess-second00");
    house
}

fn good(house: &House, arguments: &[&str]) -> CommandOutput {
    let output = house.organism(arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

fn digest_of_file(house: &House, config: &str) -> String {
    let checked = good(house, &["check", "--json", "--config", config]);
    let checked: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
    checked["digest"].as_str().unwrap().to_owned()
}

#[test]
fn the_config_of_a_thread_is_written_out_and_loads_with_its_digest() {
    let house = changed();
    for (thread, iterations) in [("sess-first000", "4"), ("sess-second00", "5")] {
        let shown = &good(&house, &["config", "--at", thread, "--json"]).json()[0];
        assert_eq!(shown["effective"]["agents"][0]["max_iterations"].to_string(), iterations);

        let out = format!("out-{thread}");
        let written = good(&house, &["config", "--at", thread, "--out", &out]);
        assert_eq!(written.out, format!("{out}/organism.toml\n"));
        let digest = digest_of_file(&house, &format!("{out}/organism.toml"));
        assert_eq!(shown["config"], *digest);

        let position = shown["position"].to_string();
        let same = good(&house, &["config", "--at", &position]);
        assert_eq!(
            same.out,
            std::fs::read_to_string(house.path(&out).join("organism.toml")).unwrap()
        );
        let same = good(&house, &["config", "--at", &digest[..8], "--json"]);
        assert_eq!(same.json()[0]["toml"], shown["toml"]);
        // In force from the time of the start on, until the next start.
        let time = shown["time"].as_str().unwrap();
        let same = good(&house, &["config", "--at", time, "--json"]);
        assert_eq!(same.json()[0]["toml"], shown["toml"]);
    }

    let last = &good(&house, &["config", "--at", "last", "--json"]).json()[0];
    let now = &good(&house, &["config", "--json"]).json()[0];
    assert_eq!(last["config"], now["config"]);
    assert_eq!(last["files"], now["files"]);

    let begun = Time::parse(last["time"].as_str().unwrap()).unwrap();
    let before = Time(begun.0 - 1).to_string();
    let first = &good(&house, &["config", "--at", "sess-first000", "--json"]).json()[0];
    let shown = &good(&house, &["config", "--at", &before, "--json"]).json()[0];
    assert_eq!(shown["config"], first["config"]);
    let diff = good(&house, &["config", "diff", &before, "0s"]);
    assert!(diff.err.contains("3 differences between "), "{diff:?}");
}

#[test]
fn nothing_is_written_over_a_file() {
    let house = house();
    send(&house, "sess-first000");
    std::fs::create_dir(house.path("out")).unwrap();
    house.write("out/rules.md", "mine");
    let written = house.organism(&["config", "--at", "last", "--out", "out"]);
    assert_eq!(written.code, Some(2), "{written:?}");
    assert_eq!(std::fs::read_to_string(house.path("out/rules.md")).unwrap(), "mine");
    assert!(!house.path("out/organism.toml").exists());
}

#[test]
fn a_diff_names_keys_with_both_values_and_the_lines_of_texts() {
    let house = changed();
    let diff = good(&house, &["config", "diff", "sess-first000", "now"]);
    for part in [
        "~ agents.writer.max_iterations\n    - 4\n    + 5\n",
        "~ agents.writer.prompt.rules\n",
        "    -Be kind.\n    +Be quick.\n",
        "~ schemas.talk.xsd\n",
        "    +<!-- more -->\n",
    ] {
        assert!(diff.out.contains(part), "{part}: {diff:?}");
    }
    assert!(diff.err.contains("3 differences between "), "{diff:?}");

    let diff = &good(&house, &["config", "diff", "now", "sess-first000", "--json"]).json()[0];
    assert_eq!(diff["equal"], false);
    assert_eq!(diff["changes"][0]["path"], "agents.writer.max_iterations");
    assert_eq!(
        (&diff["changes"][0]["before"], &diff["changes"][0]["after"]),
        (&"5".into(), &"4".into())
    );

    let equal = good(&house, &["config", "diff", "last", "now"]);
    assert_eq!(equal.out, "");
    assert!(equal.err.contains("the configs are equal"), "{equal:?}");
}

#[test]
fn a_moment_that_is_not_on_record_is_named() {
    let house = house();
    send(&house, "sess-first000");
    for (moment, text) in [
        ("0", "position 0 is not on record"),
        ("9999", "position 9999 is not on record"),
        ("sess-nowhere0", "sess-nowhere0"),
        ("abcdefabcdef", "no start with the config `abcdefabcdef`"),
        ("yesterday", "`yesterday` is no moment"),
        ("2026-02-30T10:00", "`2026-02-30T10:00` is no time"),
        ("2020-01-01", "no start up to `2020-01-01`"),
    ] {
        // Another host could have recorded the thread since, if the journal is on JetStream.
        let code = if moment.starts_with("sess-") && is_streamed() { 69 } else { 2 };
        let shown = house.organism(&["config", "--at", moment]);
        assert_eq!(shown.code, Some(code), "{shown:?}");
        assert!(shown.err.contains(text), "{shown:?}");
        assert_eq!(house.organism(&["config", "diff", moment, "now"]).code, Some(code));
    }
}

#[test]
fn a_manifest_that_the_journal_lost_is_damage() {
    let house = House::settled(CONFIG);
    house.write("turns.toml", TURNS);
    house.write("rules.md", RULES);
    send(&house, "sess-first000");
    let boots = ConfigHistory::read(&house.reader()).unwrap();
    let manifest = boots.last().unwrap().blobs[1];

    let change = |sql: &str| {
        let db = Connection::open(house.data().join("journal.db")).unwrap();
        assert_eq!(db.execute(sql, [manifest.to_string()]).unwrap(), 1);
    };
    change("UPDATE blob SET bytes = x'00' WHERE digest = ?1");
    let shown = house.organism(&["config", "--at", "last"]);
    assert_eq!(shown.code, Some(4), "{shown:?}");
    for part in ["the journal is broken: blob ", " is damaged; `organism verify` shows"] {
        assert!(shown.err.contains(part), "{shown:?}");
    }

    change("DELETE FROM blob WHERE digest = ?1");
    let shown = house.organism(&["config", "--at", "last"]);
    assert_eq!(shown.code, Some(4), "{shown:?}");
    assert!(shown.err.contains("the stored config is damaged"), "{shown:?}");

    change("UPDATE meta SET value = ?1 WHERE key = 'check'");
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(4), "{replayed:?}");
    assert!(replayed.out.contains("BROKEN: its `check` is damaged"), "{replayed:?}");
}

#[test]
fn a_config_from_before_configs_were_stored_is_shown_as_its_effective_config() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.put_blob(b"config").unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    journal.close(Time(0)).unwrap();

    let house = house();
    let data = place.data();
    let data = data.to_str().unwrap();
    let shown = house.organism(&["config", "--at", "1", "--data", data]);
    assert_eq!(shown.code, Some(69), "{shown:?}");
    for part in ["is not stored in a form that can be loaded", "`organism config --at 1 --json`"] {
        assert!(shown.err.contains(part), "{shown:?}");
    }
    let shown = &good(&house, &["config", "--at", "1", "--data", data, "--json"]).json()[0];
    assert!(shown["config"].is_string() && shown.get("toml").is_none(), "{shown}");
    good(&house, &["config", "diff", "1", "1", "--data", data]);

    // The early start stored no section that the effective config leaves out, so no such section is
    // a difference.
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    house.write("other.toml", format!("{config}\n[http]\nlisten = \"127.0.0.1:0\"\n"));
    let diff = good(&house, &["config", "diff", "1", "other.toml", "--data", data]);
    assert!(diff.out.contains("+ agents."), "{diff:?}");
    assert!(diff.out.contains("+ organism.name"), "{diff:?}");
    assert!(!diff.out.contains("http"), "{diff:?}");
    assert!(diff.err.contains("only the settings on which decisions depend"), "{diff:?}");
    let diff = &good(&house, &["config", "diff", "1", "other.toml", "--data", data, "--json"]);
    assert_eq!(diff.json()[0]["effective_only"], true, "{diff:?}");
}
