//! Texts that come from elsewhere cannot control the terminal on which a command reports an error.

use super::{House, say};

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
    let house = House::new();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    std::fs::write(house.data().join("project"), format!("/{HOSTILE}/organism.toml")).unwrap();
    let shown = house.organism(&["threads"]);
    assert_eq!(shown.code, Some(78), "{shown:?}");
    assert!(!shown.err.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
    assert!(shown.err.contains("\\u{1b}[31m"), "{shown:?}");
}
