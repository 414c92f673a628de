//! Records can be read and explained later, even if the files around them have changed.

use organism::ids::Digest;
use serde_json::Value as Json;

use super::{CONFIG, House, say, talk_reply};

#[test]
fn a_record_is_read_although_its_organism_cannot_be_started() {
    let house = House::new();
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    house.write("organism.toml", CONFIG.replace("talk.xsd", "gone.xsd"));
    assert_eq!(house.organism(&["check"]).code, Some(78));
    house.verified();
    for verb in [&["threads"][..], &["thread"], &["search", "hello"], &["tail", "--no-follow"]] {
        let read = house.organism(verb);
        assert_eq!(read.code, Some(0), "{read:?}");
        assert!(!read.out.is_empty(), "{verb:?}");
    }
    // If the config names no journal, the project's own journal is read, and its path is printed.
    house.write("organism.toml", CONFIG.replace("name = \"talk\"", "name = \"talk\"\ndata = 3"));
    let found = house.organism(&["threads"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    assert!(found.err.contains("`organism check` shows the reason"), "{}", found.err);
    assert!(found.err.contains(&house.data().display().to_string()), "{}", found.err);
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    assert!(checked.err.contains("wrong-type"), "{}", checked.err);
}

// Law 8: config, prompts and schemas are on record by digest.
#[test]
fn the_schemas_an_organism_ran_on_are_in_its_journal() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    let checked: Json = serde_json::from_str(&house.organism(&["check", "--json"]).out).unwrap();
    let digest = |text: &Json| Digest::parse(text.as_str().unwrap()).unwrap();
    let reader = house.reader();
    let config = reader.blob(digest(&checked["digest"])).unwrap().unwrap();
    let config: Json = serde_json::from_slice(&config).unwrap();
    let schemas = config["schemas"].as_object().unwrap();
    assert_eq!(schemas.keys().collect::<Vec<_>>(), ["talk.xsd"]);
    let kept = reader.blob(digest(&schemas["talk.xsd"])).unwrap().unwrap();
    let written = std::fs::read_to_string(house.path("talk.xsd")).unwrap();
    assert!(written.ends_with(std::str::from_utf8(&kept).unwrap().trim_start()), "{written}");
}
