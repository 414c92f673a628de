//! A listener that writes each answer twice. The second answer reaches no other caller.

use super::{ECHO_CONFIG, House, say, talk_reply};

/// Sends requests of several threads at once to a listener that repeats each answer. Each caller
/// must get only its own answer. Returns the export of the journal.
fn export_after_repeated_answers(command: &str) -> String {
    let config = ECHO_CONFIG.replacen("[\"./player.pl\", \"echo\"]", command, 1);
    assert_ne!(config, ECHO_CONFIG);
    let house = House::with(&config);
    house.copy("repeater.py");
    let running = house.run();

    let texts: Vec<_> = (0..5).map(|number| format!("request {number}")).collect();
    std::thread::scope(|scope| {
        for text in &texts {
            let house = &house;
            scope.spawn(move || {
                let sent = house.send_text(&say(text), &[]);
                assert_eq!((sent.code, &sent.out), (Some(0), &talk_reply(text)), "{sent:?}");
            });
        }
    });

    assert_eq!(running.stop(), Some(0));
    house.verified();
    let exported = house.organism(&["export", "--format", "jsonl"]);
    for text in &texts {
        assert_eq!(replies_with(&exported.json(), text), 1, "{text}");
    }
    exported.out
}

/// Number of recorded replies with this text.
fn replies_with(exported: &[serde_json::Value], text: &str) -> usize {
    let is_reply = |line: &&serde_json::Value| {
        line["kind"] == "reply" && line["payload"].as_str().is_some_and(|one| one.contains(text))
    };
    exported.iter().filter(is_reply).count()
}

// A7
#[test]
fn an_answer_that_is_repeated_with_its_name_is_recorded_as_stray() {
    let exported = export_after_repeated_answers(r#"["./repeater.py", "named"]"#);
    assert!(exported.contains("stray-answer"), "{exported}");
    let reason = " (already answered), which its instance did not have at hand";
    assert!(exported.contains(reason), "{exported}");
}

#[test]
fn an_answer_that_is_repeated_without_a_name_reaches_no_other_thread() {
    export_after_repeated_answers(r#"["./repeater.py"]"#);
}
