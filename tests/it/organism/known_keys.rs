//! Keys of hosts. They are created before the first start, and known to the other hosts of the
//! organism.

use super::{ECHO_CONFIG, House, say};

#[test]
fn the_key_of_a_host_is_made_and_shown_before_its_first_start_and_signs_after_it() {
    let house = House::settled(ECHO_CONFIG);
    let shown = house.organism(&["key", "show"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let key = shown.out.trim();
    assert_eq!(key.len(), 64, "{shown:?}");
    let json = house.organism(&["key", "show", "--json"]).json();
    assert_eq!(json[0]["key"], key);
    let file = house.state().join("key");
    assert_eq!(json[0]["file"], file.display().to_string());
    assert!(file.exists());

    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    let verified = house.organism(&["verify", "--json", "--key", key]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert_eq!(verified.json()[0]["keys"][0], key);
}

/// A config with `line` under `[journal]`.
fn with_known_keys(line: &str) -> String {
    format!("{ECHO_CONFIG}\n[journal]\n{line}\n")
}

#[test]
fn a_known_key_is_at_hand_for_a_proof_and_an_unknown_one_is_named() {
    let house = House::settled(ECHO_CONFIG);
    let before = house.organism(&["key", "show"]).out.trim().to_owned();
    let shown = house.organism(&["key", "show", "--json"]).json();
    let id = shown[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    // The state of another host: the journal was written with a key that is missing here.
    let key = house.state().join("key");
    std::fs::rename(&key, house.path("key-before")).unwrap();
    house.organism(&["key", "show"]);
    let unknown = house.organism(&["verify"]);
    assert_eq!(unknown.code, Some(5), "{unknown:?}");
    assert!(unknown.out.contains(&format!("unknown key  id {id}")), "{unknown:?}");

    house.write("organism.toml", with_known_keys(&format!("known_keys = [\"{before}\"]")));
    let known = house.organism(&["verify"]);
    assert_eq!(known.code, Some(0), "{known:?}");
    assert!(!known.out.contains("unknown key"), "{known:?}");
}

#[test]
fn a_known_key_that_is_none_is_a_problem_of_the_config() {
    let house = House::settled(&with_known_keys("known_keys = [\"7f3a\"]"));
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    assert!(checked.err.contains("organism key show"), "{checked:?}");
}
