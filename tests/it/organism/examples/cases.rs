//! Cases that are written from runs. The tests of the examples write one from each example's run;
//! the tests of `init` run the shipped cases.

use std::sync::Arc;

use organism::config::{ConfigEnvironment, load};
use organism::ids::ThreadId;
use organism::organism::{CaseWriteError, write_case};
use organism::thread::Fact;

use super::super::bookings::{booking_listeners, copy_booker, ledger};
use super::super::{House, until};
use super::{Example, THREAD};

impl Example {
    /// Writes a case from the run of the example, and runs the case. Returns the case.
    pub(super) fn becomes_a_case(&self, answers: &[&str]) -> String {
        let written = self.organism(&["workflow", "test", "--from", THREAD, "cases.toml"]);
        assert_eq!(written.code, Some(0), "{written:?}");
        let case = self.read("cases.toml");
        for answer in answers {
            assert!(case.contains(&format!("\n{answer} = ")), "{answer} in {case}");
        }

        let mut command = self.prepared(env!("CARGO_BIN_EXE_organism"));
        // The case holds everything that is used, beside the journal of the run.
        command.env("WORKSPACE", "/nowhere");
        let tested = command.args(["workflow", "test", "cases.toml"]).output().unwrap();
        let tested = super::CommandOutput::from(tested);
        assert_eq!(tested.code, Some(0), "{tested:?}\n{case}");
        assert!(tested.out.ends_with("1 passed, 0 failed\n"), "{tested:?}");
        case
    }

    /// Asserts that a case is added to a file only once, and only to a file with the same config.
    /// `case` is the case that was written from the run of the example.
    pub(super) fn case_is_added_once(&self, case: &str) {
        let again = self.organism(&["workflow", "test", "--from", THREAD, "cases.toml"]);
        assert_eq!(again.code, Some(2), "the file has the case already: {again:?}");
        assert_eq!(self.read("cases.toml"), case);

        // Under another name, the case could be added; but it would run on another config.
        let other = case
            .replace("name = \"", "name = \"other ")
            .replace("config = \"", "config = \"other-");
        std::fs::write(self.place.path().join("other.toml"), &other).unwrap();
        let refused = self.organism(&["workflow", "test", "--from", THREAD, "other.toml"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("write its case to another file"), "{refused:?}");
        assert_eq!(self.read("other.toml"), other);

        // Without --config, the config is that of the file. There are several in `config/`.
        let third = case.replace("name = \"", "name = \"third ");
        std::fs::write(self.place.path().join("third.toml"), &third).unwrap();
        let mut command = self.prepared(env!("CARGO_BIN_EXE_organism"));
        let added = command.args(["workflow", "test", "--from", THREAD, "third.toml"]).output();
        let added = super::CommandOutput::from(added.unwrap());
        assert_eq!(added.code, Some(0), "{added:?}");
        assert_eq!(self.read("third.toml").matches("[[case]]").count(), 2);

        // A file may have a config before it has a case.
        let (head, _) = case.split_once('\n').unwrap();
        for begun in [format!("{head}\n"), "\n".to_owned()] {
            std::fs::write(self.place.path().join("begun.toml"), &begun).unwrap();
            let added = self.organism(&["workflow", "test", "--from", THREAD, "begun.toml"]);
            assert_eq!(added.code, Some(0), "{added:?}");
            assert_eq!(self.read("begun.toml").trim_start(), case);
        }

        // An array is no place for a table, and the file stays as it is.
        let closed = format!("{head}\ncase = []\n");
        std::fs::write(self.place.path().join("closed.toml"), &closed).unwrap();
        let refused = self.organism(&["workflow", "test", "--from", THREAD, "closed.toml"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("remove an empty `case = []`"), "{refused:?}");
        assert_eq!(self.read("closed.toml"), closed);
    }
}

const PARALLEL: &str = concat!(
    r#"
organism.name = "talk"
clients.desk.peers = ["trip"]
"#,
    booking_listeners!(),
    r#"
[workflows.trip]
input = { n = "text" }
[workflows.trip.goals]
pay = { needs = [], listener = "bank", payload = "charge", with = { n = "input/n" } }
room = { needs = [], listener = "hotel", payload = "book", with = { n = "input/n" } }
"#
);

#[test]
fn a_run_that_cancels_a_call_under_way_becomes_a_case_that_passes() {
    let house = House::with(PARALLEL);
    assert_cancelled_room_becomes_a_case(&house, || ledger(&house).len() == 2);
}

#[test]
fn a_run_that_cancels_a_call_before_its_approval_becomes_a_case_that_passes() {
    let approved = PARALLEL.replace("attempts = 1", "attempts = 1\napproval = \"always\"");
    let house = House::with(&approved);
    assert_cancelled_room_becomes_a_case(&house, || {
        let held = house.organism(&["approvals", "--json"]).json();
        held.len() == 1 && ledger(&house).len() == 1
    });
}

/// Begins a run, and lets its payment fail as soon as `is_under_way` returns true, so that the run
/// cancels the booking of the room. Then writes a case from the run, and runs the case.
fn assert_cancelled_room_becomes_a_case(house: &House, is_under_way: impl Fn() -> bool) {
    copy_booker(house);
    house.write("hold-charge-1", "");
    house.write("hold-book-1", "");
    let running = house.run();
    let request = "<trip xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\"><n>1</n></trip>";
    let to_run = ["--new", THREAD, "--key", "once"];
    house.send_text(request, &[&to_run[..], &["--no-wait"]].concat());
    until("both calls are under way", || is_under_way().then_some(()));
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let sent = house.send_text(request, &to_run);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    std::fs::remove_file(house.path("hold-book-1")).unwrap();
    assert_eq!(running.stop(), Some(0));

    let written = house.organism(&["workflow", "test", "--from", THREAD, "cases.toml"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let case = std::fs::read_to_string(house.path("cases.toml")).unwrap();
    assert!(case.contains("\nroom = { fail = \"timeout\" }\n"), "{case}");
    let tested = house.organism(&["workflow", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{tested:?}\n{case}");
    assert!(tested.out.ends_with("1 passed, 0 failed\n"), "{tested:?}");
}

/// A run with answers that have no effect: the gate refuses the reply of `back`, the person answers
/// with a mistake first, and one of the two agents answers in vain.
const WITHOUT_EFFECT: &str = r#"
organism.name = "talk"
clients.desk.peers = ["trip"]
humans.owner.description = "Owns the trip."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer.model = "voice"
agents.critic.model = "voice"

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["pong"]

[workflows.trip]
input = { n = "text" }
[workflows.trip.goals]
work = { listener = "back", payload = "work", with = { n = "input/n" }, on_failure = "skip" }
ask = { ask = "owner", prompt = "Go on?" }
race = { first = ["writer", "critic"], prompt = "Write." }
"#;

const RACE_RECORDING: &str = r#"
recorded = "written by hand; no model is called"
model = "recorded"

[[turn]]
agent = "writer"
thread = "race_writer"
turn = 1
text = "The writer wins."

[[turn]]
agent = "critic"
thread = "race_critic"
turn = 1
text = "The critic wins."
"#;

#[test]
fn a_run_with_answers_without_effect_becomes_a_case_that_passes() {
    let house = House::with(WITHOUT_EFFECT);
    house.write("recording.toml", RACE_RECORDING);
    let running = house.run();
    let request = "<trip xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\"><n>1</n></trip>";
    let to_run = ["--new", THREAD, "--key", "once"];
    house.send_text(request, &[&to_run[..], &["--no-wait"]].concat());
    let question = until("the question waits", || {
        let listed = house.organism(&["answer", "--json"]).json();
        listed.first().map(|question| question["message"].as_str().unwrap().to_owned())
    });
    for (decision, code) in [("yes", 65), ("continue", 0)] {
        let namespace = "https://xml-pipeline.org/ns/workflow/v1/trip/goals";
        let answer = format!("<ask xmlns=\"{namespace}\"><decision>{decision}</decision></ask>");
        house.write("answer.xml", &answer);
        let answered = house.organism(&["answer", &question, "answer.xml"]);
        assert_eq!(answered.code, Some(code), "{answered:?}");
    }
    let sent = house.send_text(request, &to_run);
    assert!(sent.out.contains(" wins."), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let written = house.organism(&["workflow", "test", "--from", THREAD, "cases.toml"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let case = std::fs::read_to_string(house.path("cases.toml")).unwrap();
    assert!(case.contains("\nwork = { fail = \"listener-failed\" }\n"), "{case}");
    assert!(case.contains("\nask = \"<ask><decision>continue</decision></ask>\"\n"), "{case}");
    assert_eq!(case.matches(" = { fail = \"timeout\" }\n").count(), 1, "{case}");
    assert_only_the_thread_of_the_run_becomes_a_case(&house, &case);
    assert_no_case_quotes_a_redacted_payload(&house, &case);
    let tested = house.organism(&["workflow", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{tested:?}\n{case}");
}

/// Asserts that the names of other threads of the tree write no case.
fn assert_only_the_thread_of_the_run_becomes_a_case(house: &House, case: &str) {
    for (label, reason) in
        [("work", "the thread holds no run of a workflow"), ("nothing", "is on record")]
    {
        let thread = format!("{THREAD}.{label}");
        let refused = house.organism(&["workflow", "test", "--from", &thread, "cases.toml"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(&thread) && refused.err.contains(reason), "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(house.path("cases.toml")).unwrap(), case);
}

/// Redacts each message of the tree in turn. Asserts that no case is written then.
fn assert_no_case_quotes_a_redacted_payload(house: &House, case: &str) {
    let loaded = load(&house.path("organism.toml"), &ConfigEnvironment::of_process());
    let config = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let thread = ThreadId::parse(THREAD).unwrap();
    let tree = house.reader().tree(&thread, None).unwrap();
    let mut records: Vec<_> = tree.into_iter().map(|sealed| sealed.record).collect();
    let written = write_case(&config, &thread, &records).unwrap();
    assert!(case.ends_with(&written), "{written}");

    let mut redacted = 0;
    for record in 0..records.len() {
        for fact in 0..records[record].facts.len() {
            let known = records[record].facts[fact].clone();
            let Fact::Accepted { message, .. } = &mut records[record].facts[fact] else { continue };
            let id = message.id;
            let payload = &mut Arc::make_mut(message).payload;
            assert!(payload.restore(&"\0".repeat(payload.len())));
            let refused = write_case(&config, &thread, &records);
            let is_named = matches!(&refused, Err(CaseWriteError::Redacted(named)) if *named == id);
            assert!(is_named, "{id}: {refused:?}");
            records[record].facts[fact] = known;
            redacted += 1;
        }
    }
    assert!(redacted > 9, "only {redacted} messages");
}

/// A run whose question is open while its agent works.
const BESIDE: &str = r#"
organism.name = "talk"
clients.desk.peers = ["trip"]
humans.owner.description = "Owns the trip."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer.model = "voice"

[workflows.trip]
input = { n = "text" }
output = "text"
[workflows.trip.goals]
text = { agent = "writer", prompt = "Write about {{input/n}}." }
ask = { ask = "owner", needs = [], prompt = "Go on?" }
"#;

const TEXT_RECORDING: &str = r#"
recorded = "written by hand; no model is called"
model = "recorded"

[[turn]]
agent = "writer"
thread = "text"
turn = 1
text = "It is written."
"#;

#[test]
fn a_question_that_is_declined_after_other_work_becomes_a_case_that_passes() {
    let house = House::with(BESIDE);
    house.write("recording.toml", TEXT_RECORDING);
    let running = house.run();
    let request = "<trip xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\"><n>1</n></trip>";
    let to_run = ["--new", THREAD, "--key", "once"];
    house.send_text(request, &[&to_run[..], &["--no-wait"]].concat());
    until("the text is written", || house.messages("thread-result").pop());
    let listed = house.organism(&["answer", "--json"]).json();
    let question = listed[0]["message"].as_str().unwrap();
    assert_eq!(house.organism(&["refuse", question]).code, Some(0));
    let sent = house.send_text(request, &to_run);
    assert!(sent.out.contains("<goal>ask</goal><code>denied</code>"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let written = house.organism(&["workflow", "test", "--from", THREAD, "cases.toml"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let case = std::fs::read_to_string(house.path("cases.toml")).unwrap();
    assert!(case.contains("goals = { text = \"done\", ask = \"failed\" }"), "{case}");
    let tested = house.organism(&["workflow", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{tested:?}\n{case}");
}
