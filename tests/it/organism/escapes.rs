//! Texts that come from elsewhere cannot control the terminal on which a command reports an error.

use super::terminal::at_terminal;
use super::{House, say, talk_reply};

const HOSTILE: &str = "a\u{1b}[31m\u{9b}2Jb";

#[test]
fn a_config_from_elsewhere_cannot_control_the_terminal() {
    let house = House::new();
    let escaped = "organism.name = \"a\\u001b[31mb\"\nagents.a = { model = \"m\\u009b2J\" }\n";
    let raw = format!("organism.name = \"talk\"\nnonsense = \"{HOSTILE}\"\n");
    for (config, expected) in [(escaped, "\\u{1b}"), (&*raw, "a?[31m·2Jb")] {
        house.write("organism.toml", config);
        let checked = house.organism(&["check"]);
        assert_eq!(checked.code, Some(78), "{checked:?}");
        let shown = [checked.out, checked.err].concat();
        assert!(!shown.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
        assert!(shown.contains(expected), "{shown:?}");
    }
}

#[test]
fn a_data_directory_from_elsewhere_cannot_control_the_terminal() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    std::fs::write(house.data().join("project"), format!("/{HOSTILE}/organism.toml")).unwrap();
    let shown = house.organism(&["threads"]);
    assert_eq!(shown.code, Some(78), "{shown:?}");
    assert!(!shown.err.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
    assert!(shown.err.contains("\\u{1b}[31m"), "{shown:?}");
}

/// On a terminal, the control characters of a payload are escaped. A program that reads the output
/// gets the payload unchanged.
#[test]
fn a_payload_cannot_control_the_terminal_of_send_thread_and_message() {
    let text = "a\u{9b}2J\u{202e}b\u{e0041}";
    let house = House::with_echo();
    house.write("say.xml", say(text));
    let send = ["send", "say.xml", "--as", "desk"];
    let piped = house.organism(&send);
    assert_eq!(piped.out, talk_reply(text), "{piped:?}");

    let (shown, code) = at_terminal(&house, &send, &[]);
    assert_eq!(code, 0, "{shown:?}");
    assert!(shown.contains(">a\\u{9b}2J\\u{202e}b\\u{e0041}</said>"), "{shown:?}");

    let thread = piped.err.lines().find_map(|line| line.strip_prefix("thread ")).unwrap();
    let arguments = ["thread", thread, "--json"];
    let piped = house.organism(&arguments);
    assert!(piped.out.contains(text), "{piped:?}");
    let (shown, code) = at_terminal(&house, &arguments, &[]);
    assert_eq!(code, 0, "{shown:?}");
    assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{e0041}']), "{shown:?}");
    let line = shown.lines().find(|line| line.starts_with('{')).unwrap();
    let timeline: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(timeline.to_string().contains(text), "{timeline}");

    let found = house.organism(&["search", "--payload", "said", "--json"]).json();
    let message = found.first().and_then(|said| said["id"].as_str()).unwrap();
    let raw = ["message", message, "--raw"];
    assert_eq!(house.organism(&raw).out.trim_end(), talk_reply(text).trim_end());
    let (shown, code) = at_terminal(&house, &raw, &[]);
    assert_eq!(code, 0, "{shown:?}");
    assert!(shown.contains(">a\\u{9b}2J\\u{202e}b\\u{e0041}</said>"), "{shown:?}");
}
