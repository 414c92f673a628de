//! A hosted listener that answers every failure with another try.

use super::{House, numbered};

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
rounds_failed = 5

[clients.desk]
peers = ["looper"]

[listeners.looper]
command = ["./looper.py", '<work xmlns="urn:example:talk"><n>1</n></work>']
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["back"]

[listeners.back]
command = ["./looper.py", "<no-answer/>"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
"#;

#[test]
fn a_hosted_listener_that_loops_on_failures_is_stopped_and_its_caller_gets_the_reason() {
    let house = House::with(CONFIG);
    house.copy("looper.py");
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-looped00"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    let reason = "looper went on through 5 rounds in a row in which every result was a failure";
    assert!(sent.out.contains(reason), "{sent:?}");
    assert!(sent.out.contains("code=\"limit-reached\""), "{sent:?}");
    assert!(sent.out.contains("retry_allowed=\"false\""), "{sent:?}");

    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let names = exported.iter().filter_map(|line| line["name"].as_str());
    assert_eq!(names.filter(|name| name.ends_with("}work")).count(), 5);
    house.verified();
}
