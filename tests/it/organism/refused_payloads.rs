//! Refused payloads of listeners in the log. The caller does not learn why a payload was refused, so
//! the author of the listener needs the log.

use super::{CONFIG, House, TALK, numbered, order_config, say, until};

/// A listener that answers every frame with `answer`.
fn answering(answer: &str) -> String {
    let program = format!("STDOUT->autoflush(1); print qq|{answer}\\0|");
    serde_json::json!(["perl", "-MIO::Handle", "-0ne", program]).to_string()
}

/// Returns the line of the log that contains `text`.
fn line_with(house: &House, text: &str) -> String {
    let found = |log: String| log.lines().find(|line| line.contains(text)).map(str::to_owned);
    until(text, || found(house.log()))
}

#[test]
fn the_log_names_a_refused_payload_and_the_payloads_that_are_permitted() {
    let config =
        order_config(1).replacen(r#"["./player.pl", "echo"]"#, &answering("<said>x</said>"), 1);
    let other = answering("<gone xmlns='urn:other'/>");
    let config = config.replacen(r#"["./player.pl", "front"]"#, &other, 1);
    let house = House::with(&config);
    let running = house.run();

    let sent = house.send_text(&say("x"), &[]);
    assert!(sent.out.contains("listener-failed"), "{sent:?}");
    let line = line_with(&house, "refused `said` (no namespace) in the answer");
    assert!(line.contains("listener=echo"), "{line}");
    assert!(line.contains("attempt=1.1"), "{line}");
    assert!(line.contains(&format!("did you mean `{{{TALK}}}said`?")), "{line}");

    let sent = house.send_text(&numbered("order", "1"), &[]);
    assert!(sent.out.contains("listener-failed"), "{sent:?}");
    let line = line_with(&house, "refused `{urn:other}gone` in the answer");
    assert!(line.contains("listener=front"), "{line}");
    let permitted = format!("may answer with `{{{TALK}}}done`, `{{{TALK}}}work`");
    assert!(line.contains(&permitted), "{line}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_log_names_the_refused_payload_inside_a_core_word() {
    let core = "https://xml-pipeline.org/ns/core/v1";
    let spawn = format!(
        "<spawn-thread xmlns='{core}'><initial-payload><nowork xmlns='urn:other'/>\
         </initial-payload></spawn-thread>"
    );
    let command = format!("{}\ncore = [\"spawn-thread\"]", answering(&spawn));
    let house = House::with(&order_config(1).replacen(r#"["./player.pl", "front"]"#, &command, 1));
    let running = house.run();

    let sent = house.send_text(&numbered("order", "1"), &[]);
    assert!(sent.out.contains("listener-failed"), "{sent:?}");
    let line = line_with(&house, "spawn-thread` in the answer: the payload");
    assert!(line.contains("the payload `{urn:other}nowork` inside is not in `replies`"), "{line}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_log_has_one_line_for_each_of_eight_refused_payloads_and_a_count_of_the_others() {
    let forged = answering(&"<gone xmlns='urn:x&#10;FORGED'/>".repeat(10));
    let house = House::with(&CONFIG.replacen(r#"["./player.pl", "echo"]"#, &forged, 1));
    let running = house.run();

    let sent = house.send_text(&say("x"), &[]);
    assert!(sent.out.contains("listener-failed"), "{sent:?}");
    line_with(&house, "refused 2 more payloads in the answer");
    assert_eq!(running.stop(), Some(0));
    let log = house.log();
    assert_eq!(log.matches("refused `{urn:x\\u{a}FORGED}gone` in the answer").count(), 8, "{log}");
    assert!(!log.lines().any(|line| line.starts_with("FORGED")), "{log}");
}

#[test]
fn the_log_names_a_call_that_was_refused_beside_a_reply() {
    let both = format!("<work xmlns='{TALK}'><n>1</n></work><done xmlns='{TALK}'><n>1</n></done>");
    let house =
        House::with(&order_config(1).replacen(r#"["./player.pl", "front"]"#, &answering(&both), 1));
    let running = house.run();

    let sent = house.send_text(&numbered("order", "1"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let line = line_with(&house, &format!("refused `{{{TALK}}}work` in the answer"));
    assert!(line.contains("listener=front"), "{line}");
    assert!(line.contains("call-beside-reply"), "{line}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.log().matches("in the answer").count(), 1, "{}", house.log());
}

#[test]
fn the_log_names_a_refused_preview() {
    let answer = answering(&format!("<said xmlns='{TALK}'>x</said>"));
    let keys = "approval = \"always\"\npreviews = true\npreview_timeout = \"1h\"";
    let command = format!("{answer}\n{keys}");
    let house = House::with(&CONFIG.replacen(r#"["./player.pl", "echo"]"#, &command, 1));
    let running = house.run();
    let sent = house.send_text(&say("x"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let line = line_with(&house, &format!("refused `{{{TALK}}}said` in the answer"));
    assert!(line.contains("attempt=1.0"), "{line}");
    assert!(line.contains("is one `preview` of at most 262144 bytes"), "{line}");
    assert_eq!(running.stop(), Some(0));
}

/// The process is killed after the caller got the result, so no other message explains why the next
/// call waits.
#[test]
fn the_log_states_that_a_process_was_killed_after_a_time_out() {
    let cases = [
        (r#"["sh", "-c", "cat >/dev/null"]"#, "it wrote nothing: did it flush?; it was killed"),
        (r#"["sleep", "600"]"#, "has read nothing since: its start counts towards `timeout`"),
    ];
    for (silent, reason) in cases {
        let silent = format!("{silent}\ntimeout = \"1s\"");
        let house = House::with(&CONFIG.replacen(r#"["./player.pl", "solo"]"#, &silent, 1));
        let running = house.run();
        let sent = house.send_text(&numbered("ping", "1"), &[]);
        assert!(sent.out.contains("code=\"timeout\""), "{sent:?}");
        let line = line_with(&house, reason);
        for field in ["listener=solo", "instance=0", "call=", "attempt=1.1", "it was killed"] {
            assert!(line.contains(field), "{field}: {line}");
        }
        assert_eq!(running.stop(), Some(0));
    }
}
