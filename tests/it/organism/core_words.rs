//! A hosted listener that uses core payloads: it distributes work over subthreads.

use super::{House, numbered};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["fanning"]

[listeners.fanning]
command = ["python3", "KIT/../../tests/data/listeners/fanning.py"]
env = { PYTHONPATH = "KIT" }
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["worker"]
core = ["spawn-thread", "wait"]

[listeners.worker]
command = ["./player.pl", "worker"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
instances = 2
"#;

fn configured(core: &str) -> String {
    let kit = concat!(env!("CARGO_MANIFEST_DIR"), "/listeners/python");
    let config = CONFIG.replace("KIT", kit);
    config.replace(r#"core = ["spawn-thread", "wait"]"#, core)
}

fn house(core: &str) -> House {
    House::with(&configured(core))
}

/// Number of recorded messages with this core payload.
fn recorded(house: &House, word: &str) -> usize {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let name = format!("{{{}}}{word}", organism::system::NAMESPACE);
    exported.iter().filter(|line| line["type"] == "message" && line["name"] == *name).count()
}

#[test]
fn a_hosted_listener_fans_out_over_threads_and_answers_with_all_results() {
    let house = house(r#"core = ["spawn-thread", "wait"]"#);
    let sent = house.send_text(&numbered("order", "5"), &["--new", "sess-fanned00"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, numbered("done", "5") + "\n");
    assert_eq!(recorded(&house, "thread-result"), 5);
    assert_eq!(recorded(&house, "thread-spawned"), 5);
    house.verified();
}

#[test]
fn threads_of_a_hosted_listener_end_when_their_time_is_over() {
    let timed = r#"core = ["spawn-thread", "wait"]"#;
    let config = configured(timed)
        .replace(r#"PYTHONPATH = "#, r#"WORK = "hold", TIMEOUT = "PT1S", PYTHONPATH = "#)
        .replace(r#""./player.pl", "worker""#, r#""./player.pl", "worker", "never-{n}""#)
        .replace(r#"accepts = ["work"]"#, r#"accepts = ["hold"]"#)
        .replace(r#"replies = ["worked"]"#, r#"replies = ["held"]"#);
    let house = House::with(&config);
    let sent = house.send_text(&numbered("order", "2"), &["--new", "sess-fanned00"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, numbered("done", "0") + "\n", "none was completed");
    assert_eq!(recorded(&house, "thread-result"), 2);
    house.verified();
}

#[test]
fn a_hosted_listener_without_core_words_fails_where_it_writes_one() {
    let house = house("");
    let sent = house.send_text(&numbered("order", "5"), &["--new", "sess-fanned00"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("code=\"listener-failed\""), "{sent:?}");
    assert_eq!(recorded(&house, "thread-spawned"), 0);
    house.verified();
}
