//! A config that cannot be parsed. Records can still be read, and decisions reach the running
//! organism.

use super::{CONFIG, House, numbered, say};

/// Sends a ping, which opens a call that is held for an approval. Returns the message, the hash and
/// the thread of the call.
fn hold(house: &House, number: &str) -> [String; 3] {
    let sent = house.send_text(&numbered("ping", number), &["--no-wait", "--json"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    let held = house.organism(&["approvals", "--json"]).json();
    let call = held.iter().find(|call| call["thread"] == thread.as_str()).unwrap();
    let of = |key: &str| call[key].as_str().unwrap().to_owned();
    [of("message"), of("sha256"), thread.clone()]
}

fn held_config() -> String {
    CONFIG.replace("[listeners.solo]", "[listeners.solo]\napproval = \"always\"")
}

const NO_TOML: &str = "[organism\nname =";

#[test]
fn beside_a_config_that_is_no_toml_records_are_read_and_decisions_are_taken() {
    let house = House::with(&held_config());
    let running = house.run();
    let [one, two, three] = ["1", "2", "3"].map(|number| hold(&house, number));
    house.write("organism.toml", NO_TOML);

    let works = |arguments: &[&str]| {
        let worked = house.organism(arguments);
        assert_eq!(worked.code, Some(0), "{arguments:?}: {worked:?}");
        let noted = worked.err.matches("organism.toml cannot be loaded").count();
        assert_eq!(noted, 1, "{arguments:?}: {worked:?}");
    };
    works(&["threads"]);
    works(&["thread", &one[2]]);
    works(&["approvals"]);
    works(&["answer"]);
    works(&["export"]);
    works(&["backup", "copy"]);
    works(&["approve", &one[0], "--hash", &one[1]]);
    works(&["refuse", &two[0]]);
    works(&["cancel", &three[2]]);
    assert_eq!(house.send_text(&say("new"), &[]).code, Some(78));
    assert_eq!(running.stop(), Some(0));
    works(&["threads"]);

    for arguments in [&["verify"][..], &["verify", "copy"]] {
        let verified = house.organism(arguments);
        assert_eq!(verified.code, Some(5), "{verified:?}");
        let note = "`known_keys` and `checkpoints` of the config are unknown here";
        assert!(verified.err.contains(note), "{verified:?}");
    }

    assert_eq!(
        house.organism(&["cancel", &one[2]]).code,
        Some(78),
        "nothing is there to cancel it"
    );
    house.write("organism.toml", held_config());
    house.verified();
}

#[test]
fn decisions_reach_the_journal_of_a_directory_whatever_its_config_is() {
    let config = held_config().replace("name = \"talk\"", "name = \"talk\"\ndata = \"journal\"");
    let house = House::with(&config);
    let running = house.run();
    let [one, two, three] = ["1", "2", "3"].map(|number| hold(&house, number));
    house.write("organism.toml", NO_TOML);

    let lost = house.organism(&["threads"]);
    assert_eq!(lost.code, Some(78), "{lost:?}");
    assert!(lost.err.contains("--data DIR"), "{lost:?}");
    let decided = [
        &["approve", &one[0], "--hash", &one[1]][..],
        &["refuse", &two[0]],
        &["cancel", &three[2]],
        &["answer"],
        &["threads"],
        &["approvals"],
    ];
    for command in decided {
        let done = house.organism(&[command, &["--data", "journal"]].concat());
        assert_eq!(done.code, Some(0), "{command:?}: {done:?}");
    }
    let state = house.state().display().to_string();
    let place = ["backup", "copy", "--data", "journal"];
    assert_eq!(house.organism(&place).code, Some(2), "the checkpoints outside belong to it");
    let copied = house.organism(&[&place[..], &["--state", &state]].concat());
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert_eq!(running.stop(), Some(0));

    let none = house.organism(&["cancel", &one[2], "--data", "journal"]);
    assert_eq!(none.code, Some(69), "{none:?}");
    assert!(none.err.contains("no organism runs on journal"), "{none:?}");
}
