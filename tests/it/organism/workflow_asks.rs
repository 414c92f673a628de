//! Workflows that ask people, in a whole organism.

use std::fs::File;
use std::process::Stdio;

use organism::clock::Time;
use serde_json::Value as Json;

use super::{CommandOutput, House, Running, until};

const CONFIG: &str = r#"
organism.name = "talk"
clients.desk.peers = ["decide"]
humans.owner.description = "Decides."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer.model = "voice"

[workflows.decide]
input = { topic = "text" }
output = { text = "draft", name = "who/name", why = "release/text" }

[workflows.decide.goals]
draft = { agent = "writer", prompt = "Write about {{input/topic}}." }
who = { ask = "owner", prompt = "Who signs it?", form = { name = "text", copies = "integer?" } }
release = { ask = "owner", about = "draft", context = ["draft"], prompt = "Shall it go to {{who/name}}?" }
"#;

const RECORDING: &str = r#"
recorded = "written by hand; no model is called"
model = "recorded"

[[turn]]
agent = "writer"
thread = "draft"
turn = 1
text = "A long text."

[[turn]]
agent = "writer"
thread = "draft-1"
turn = 1
text = "A text."
"#;

const REQUEST: &str = "<decide xmlns=\"https://xml-pipeline.org/ns/workflow/v1/decide\">\
                       <topic>light</topic></decide>";

/// A house whose `writer` drafts a text twice, in the threads `draft` and `draft-1`.
pub fn house(config: &str) -> House {
    let house = House::with(config);
    house.write("recording.toml", RECORDING);
    house
}

fn send(house: &House, more: &[&str]) -> CommandOutput {
    house.send_text(REQUEST, &[&["--new", "sess-asked000", "--key", "once"], more].concat())
}

fn open(house: &House, goal: &str) -> String {
    let question = until(&format!("`{goal}` is asked"), || {
        let listed = house.organism(&["answer", "--json"]).json();
        let is_it = |one: &Json| one["name"].as_str().is_some_and(|name| name.ends_with(goal));
        listed.into_iter().find(is_it)
    });
    question["message"].as_str().unwrap().to_owned()
}

fn answer(house: &House, goal: &str, content: &str) -> CommandOutput {
    let question = open(house, goal);
    let namespace = "https://xml-pipeline.org/ns/workflow/v1/decide/goals";
    house.write("answer.xml", format!("<{goal} xmlns=\"{namespace}\">{content}</{goal}>"));
    house.organism(&["answer", &question, "answer.xml"])
}

#[test]
fn a_run_whose_command_is_stopped_stays_open_and_the_command_names_its_thread() {
    let house = house(CONFIG);
    let mut command = house.command(&["workflow", "run", "decide", "--input", "topic=light"]);
    let log = File::create(house.path("log")).unwrap();
    let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut running = Running { child };
    let question = open(&house, "who");

    running.signal("-TERM");
    let ended = until("the command ends", || running.child.try_wait().unwrap());
    let log = house.log();
    assert_eq!(ended.code(), Some(143), "{log}");
    let run = log.lines().find_map(|line| line.strip_prefix("run ")).unwrap();
    assert!(log.contains(&format!("goes on at the next start; `organism thread {run}`")), "{log}");
    assert_eq!(open(&house, "who"), question);
}

#[test]
fn a_reload_beside_a_run_on_an_earlier_definition_states_that_it_needs_a_restart() {
    let house = house(CONFIG);
    let running = house.run();
    assert_eq!(send(&house, &["--no-wait"]).code, Some(0));
    open(&house, "who");
    assert_eq!(running.stop(), Some(0));

    let other_goal = CONFIG.replace("Who signs it?", "Who signs?");
    house.write("organism.toml", &other_goal);
    let running = house.run();
    house.write("organism.toml", other_goal.replace("\"Decides.\"", "\"Decides all.\""));
    let refused = house.organism(&["reload"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    let reason =
        "a workflow run that was open at the start is on a definition of an earlier config";
    let expected = format!("take effect at a restart alone ({reason}):\n");
    assert!(refused.err.contains(&expected), "{refused:?}");

    let refused = house.organism(&["reload", "--json"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    let report: Json = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((&report["result"], &report["reason"]), (&"needs-restart".into(), &reason.into()));
    assert!(report["keys"].to_string().contains("owner"), "{report}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn people_fill_forms_and_correct_and_a_question_outlives_a_kill() {
    let house = house(CONFIG);
    let running = house.run();
    assert_eq!(send(&house, &["--no-wait"]).code, Some(0));
    let id = open(&house, "who");
    let listed = house.organism(&["answer"]).out;
    for part in ["Who signs it?", "<output goal=\"draft\">A long text.</output>", &id] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    // It dies while the question is open.
    drop(running);

    let running = house.run();
    let wrong = answer(&house, "who", "<name>Ann</name><copies>many</copies>");
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    assert!(wrong.err.contains("schema-invalid"), "{wrong:?}");
    assert_eq!(answer(&house, "who", "<name>Ann</name>").code, Some(0));
    let again = answer(&house, "release", "<decision>correct</decision><text>shorter</text>");
    assert_eq!(again.code, Some(0), "{again:?}");
    // The goal runs again, and so does the question between.
    assert_eq!(answer(&house, "who", "<name>Eve</name>").code, Some(0));
    let released = answer(&house, "release", "<decision>continue</decision><text>fine</text>");
    assert_eq!(released.code, Some(0), "{released:?}");

    let sent = send(&house, &[]);
    let expected = "<decide-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/decide\">\
                    <text>A text.</text><name>Eve</name><why>fine</why></decide-output>\n";
    assert_eq!(sent.out, expected, "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_person_who_stops_or_declines_fails_the_run() {
    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    answer(&house, "who", "<name>Ann</name>");
    let stopped = answer(&house, "release", "<decision>stop</decision><text>too late</text>");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let sent = send(&house, &[]);
    let expected = "<decide-failed xmlns=\"https://xml-pipeline.org/ns/workflow/v1/decide\">\
                    <goal>release</goal><code>stopped</code><reason>too late</reason>\
                    </decide-failed>\n";
    assert_eq!(sent.out, expected, "{sent:?}");

    let other = house.send_text(REQUEST, &["--no-wait", "--key", "other"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    let question = open(&house, "who");
    let declined = house.organism(&["refuse", &question, "--reason", "not me"]);
    assert_eq!(declined.code, Some(0), "{declined:?}");
    let other = house.send_text(REQUEST, &["--key", "other"]);
    assert!(other.out.contains("<goal>who</goal><code>denied</code>"), "{other:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_form_on_the_terminal_asks_for_the_fields_of_its_question() {
    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let question = open(&house, "who");
    let mut command = house.command(&["answer", &question, "--form"]);
    command.stdin(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"Ann\n\nyes\n").unwrap();
    drop(input);
    let filled: CommandOutput = child.wait_with_output().unwrap().into();
    assert_eq!(filled.code, Some(0), "{filled:?}");
    assert!(filled.err.contains("who / name"), "{filled:?}");
    assert!(!filled.err.contains("answer with"), "{filled:?}");
    open(&house, "release");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn an_answer_whose_goal_has_the_name_of_a_failure_is_no_failure() {
    let config = CONFIG.replace("who = {", "who-failed = {").replace("who/name", "who-failed/name");
    let house = house(&config);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let answered = answer(&house, "who-failed", "<name>Ann</name>");
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let released = answer(&house, "release", "<decision>continue</decision>");
    assert_eq!(released.code, Some(0), "{released:?}");
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<name>Ann</name>"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_question_of_a_deleted_workflow_has_no_form_and_takes_a_file() {
    let house = house(CONFIG);
    let running = house.run();
    send(&house, &["--no-wait"]);
    let question = open(&house, "who");
    assert_eq!(running.stop(), Some(0));

    house.write("organism.toml", CONFIG.replace("decide", "other"));
    let running = house.run();
    let form = house.organism(&["answer", &question, "--form"]);
    assert_eq!(form.code, Some(65), "{form:?}");
    assert!(form.err.contains("name a file with the answer"), "{form:?}");
    assert_eq!(answer(&house, "who", "<name>Ann</name>").code, Some(0));
    open(&house, "release");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn the_time_of_a_question_runs_while_a_person_decides() {
    let house = house(
        &CONFIG
            .replace("prompt = \"Who signs it?\"", "timeout = \"1s\", prompt = \"Who signs it?\""),
    );
    let running = house.run();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>who</goal><code>timeout</code>"), "{sent:?}");
    assert_eq!(house.organism(&["answer", "--json"]).json().len(), 0);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_open_question_shows_the_time_of_its_goal_if_this_ends_before_that_of_the_person() {
    let timed = CONFIG
        .replace("prompt = \"Who signs it?\"", "prompt = \"Who signs it?\", timeout = \"1h\"")
        .replace(
            "humans.owner.description",
            "humans.owner.timeout = \"9h\"\nhumans.owner.description",
        );
    let house = house(&timed);
    let running = house.run();
    assert_eq!(send(&house, &["--no-wait"]).code, Some(0));
    open(&house, "who");
    let seconds = || {
        let listed = house.organism(&["answer", "--json"]).json();
        let time = |key: &str| Time::parse(listed[0][key].as_str().unwrap()).unwrap();
        time("until").since(time("since")).as_secs()
    };
    assert_eq!(seconds(), 3600);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(seconds(), 3600, "as the journal states it");
}
