//! Workflows whose outputs a person judges before they count, in a whole organism.

use serde_json::Value as Json;

use super::workflow::messages;
use super::workflow_asks::house;
use super::{CommandOutput, House, until};

const CONFIG: &str = r#"
organism.name = "talk"
clients.desk.peers = ["letter"]
humans.owner.description = "Signs what leaves the house."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer.model = "voice"

[workflows.letter]
input = { topic = "text" }

[workflows.letter.goals]
draft = { agent = "writer", prompt = "Write about {{input/topic}}.", supervisor = "owner", supervise = "May it leave the house?", corrections = 1 }
"#;

const REQUEST: &str = "<letter xmlns=\"https://xml-pipeline.org/ns/workflow/v1/letter\">\
                       <topic>light</topic></letter>";

const THREAD: &str = "sess-letter000";

fn send(house: &House, more: &[&str]) -> CommandOutput {
    house.send_text(REQUEST, &[&["--new", THREAD, "--key", "once"], more].concat())
}

fn questions(house: &House) -> Vec<Json> {
    house.organism(&["answer", "--json"]).json()
}

/// Waits for the supervisor's question in this thread. Returns the id of the question.
fn question_in(house: &House, label: &str) -> String {
    let thread = format!("{THREAD}.{label}");
    let question = until(&format!("the owner is asked in {thread}"), || {
        questions(house).into_iter().find(|one| one["thread"] == thread.as_str())
    });
    question["message"].as_str().unwrap().to_owned()
}

fn give(house: &House, label: &str, verdict: &str) -> CommandOutput {
    let question = question_in(house, label);
    let namespace = "https://xml-pipeline.org/ns/workflow/v1";
    house.write("verdict.xml", format!("<verdict xmlns=\"{namespace}\">{verdict}</verdict>"));
    house.organism(&["answer", &question, "verdict.xml"])
}

fn failed(code: &str, reason: &str) -> String {
    format!(
        "<letter-failed xmlns=\"https://xml-pipeline.org/ns/workflow/v1/letter\"><goal>draft</goal>\
         <code>{code}</code><reason>{reason}</reason></letter-failed>\n"
    )
}

#[test]
fn a_person_corrects_and_accepts_and_the_question_outlives_a_kill() {
    let house = house(CONFIG);
    let running = house.run();
    assert_eq!(send(&house, &["--no-wait"]).code, Some(0));
    let id = question_in(&house, "draft_supervisor");
    let listed = house.organism(&["answer"]).out;
    for part in ["May it leave the house?", "<output goal=\"draft\">A long text.</output>", &id] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    // It dies while the question is open.
    drop(running);

    let running = house.run();
    let wrong = give(&house, "draft_supervisor", "<decision>perhaps</decision>");
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    let text = "<decision>correct</decision><text>Shorter &amp; warmer.</text>";
    let corrected = give(&house, "draft_supervisor", text);
    assert_eq!(corrected.code, Some(0), "{corrected:?}");
    question_in(&house, "draft_supervisor-1");
    // It dies after a correction, too.
    drop(running);

    let running = house.run();
    let listed = house.organism(&["answer"]).out;
    assert!(listed.contains("<correction>Shorter &amp; warmer.</correction>"), "{listed}");
    let accepted = give(&house, "draft_supervisor-1", "<decision>continue</decision>");
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let sent = send(&house, &[]);
    let expected = "<letter-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/letter\">A \
                    text.</letter-output>\n";
    assert_eq!(sent.out, expected, "{sent:?}");

    let goals = messages(&house, "goal");
    assert_eq!(goals.len(), 2, "{goals:?}");
    let document = organism::xml::element::Element::read(goals[1]["payload"].as_str().unwrap());
    expect_test::expect![[r#"
        <workflow name="letter">

        <current-goal id="draft">
        Write about light.
        </current-goal>

        <correction source="supervisor">
        Shorter &amp; warmer.
        </correction>

        </workflow>"#]]
    .assert_eq(&document.unwrap().text());
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_person_who_stops_declines_or_corrects_too_often_fails_the_goal() {
    let correct = "<decision>correct</decision><text>Warmer.</text>";
    let stop = "<decision>stop</decision><text>Not now.</text>";
    let stopped = failed("stopped", "`owner` stopped it: Not now.");
    let spent = failed("corrections-spent", "`owner` corrected it more than 1 times: Warmer.");
    for (verdicts, expected) in [(vec![stop], stopped), (vec![correct, correct], spent)] {
        let house = house(CONFIG);
        let running = house.run();
        send(&house, &["--no-wait"]);
        for (label, verdict) in ["draft_supervisor", "draft_supervisor-1"].iter().zip(verdicts) {
            let given = give(&house, label, verdict);
            assert_eq!(given.code, Some(0), "{given:?}");
        }
        let sent = send(&house, &[]);
        assert_eq!(sent.out, expected, "{sent:?}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }

    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let question = question_in(&house, "draft_supervisor");
    let declined = house.organism(&["refuse", &question, "--reason", "not me"]);
    assert_eq!(declined.code, Some(0), "{declined:?}");
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>draft</goal><code>denied</code>"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn the_time_of_a_goal_runs_while_its_supervisor_decides() {
    let house = house(&CONFIG.replace("corrections = 1", "corrections = 1, timeout = \"5s\""));
    let running = house.run();
    let sent = send(&house, &[]);
    let record = house.organism(&["export", "--format", "jsonl"]).out;
    assert!(record.contains("draft_supervisor"), "the person was not asked in time");
    assert!(sent.out.contains("<goal>draft</goal><code>timeout</code>"), "{sent:?}");
    assert_eq!(questions(&house).len(), 0);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_that_is_cancelled_withdraws_the_question() {
    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let question = question_in(&house, "draft_supervisor");
    let cancelled = house.organism(&["cancel", THREAD]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    until("the question is withdrawn", || questions(&house).is_empty().then_some(()));
    house.write("verdict.xml", "<verdict/>");
    let late = house.organism(&["answer", &question, "verdict.xml"]);
    assert_eq!(late.code, Some(65), "{late:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_keeps_its_supervisor_when_the_config_names_another() {
    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    question_in(&house, "draft_supervisor");
    assert_eq!(running.stop(), Some(0));

    let by_agent = CONFIG.replace("supervisor = \"owner\"", "supervisor = \"writer\"");
    house.write("organism.toml", by_agent);
    let running = house.run();
    let given = give(&house, "draft_supervisor", "<decision>continue</decision>");
    assert_eq!(given.code, Some(0), "{given:?}");
    let sent = send(&house, &[]);
    assert!(sent.out.contains("A long text."), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
