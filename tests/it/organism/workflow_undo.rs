//! Workflows that undo their calls after a failure, in a whole organism. A listener keeps a ledger
//! of bookings and cancellations.

mod forks;
mod races;
mod repeats;
mod retries;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::bookings::{booking_listeners, copy_booker, ledger};
use super::kill::{start, torture};
use super::{CommandOutput, House, until};

const CONFIG: &str = concat!(
    r#"
organism.name = "talk"
clients.desk.peers = ["trip"]
humans.owner.description = "Owns the trip."
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer = { model = "voice", peers = ["hotel"] }
"#,
    booking_listeners!(),
    r#"
[workflows.leg]
input = { n = "text" }
[workflows.leg.goals]
room = { listener = "hotel", payload = "book", with = { n = "input/n" } }

[workflows.trip]
input = { n = "text" }
on_failure = "undo"
[workflows.trip.goals]
first = { listener = "hotel", payload = "book", with = { n = "input/n" } }
second = { agent = "writer", prompt = "Book number 2." }
third = { workflow = "leg", with = { n = "'3'" } }
pay = { listener = "bank", payload = "charge", with = { n = "input/n" } }
"#
);

const RECORDING: &str = r#"
recorded = "written by hand; no model is called"
model = "recorded"

[[turn]]
agent = "writer"
thread = "second"
turn = 1
text = "<book xmlns=\"urn:example:booking\"><n>2</n></book>"

[[turn]]
agent = "writer"
thread = "second"
turn = 2
text = "It is booked."
"#;

const REQUEST: &str =
    "<trip xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\"><n>1</n></trip>";

fn house(config: &str) -> House {
    let house = House::with(config);
    house.write("recording.toml", RECORDING);
    copy_booker(&house);
    house
}

fn send(house: &House, more: &[&str]) -> CommandOutput {
    house.send_text(REQUEST, &[&["--new", "sess-travel00", "--key", "once"], more].concat())
}

/// Number of cancellations of each booking, by the booking's number.
fn cancellations(house: &House) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (line, entry) in (1..).zip(ledger(house)) {
        let (name, value) = entry.split_once(' ').unwrap();
        match name {
            "book" => {
                found.entry(format!("{value}-{line}")).or_default();
            }
            "cancel" => *found.entry(value.to_owned()).or_default() += 1,
            _ => {}
        }
    }
    found
}

#[test]
fn completed_calls_anywhere_beneath_the_run_are_undone_newest_first() {
    let house = house(CONFIG);
    let sent = send(&house, &[]);
    let expected = "<trip-failed xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\">\
                    <goal>pay</goal><code>charge-failed</code><reason>1</reason></trip-failed>\n";
    assert_eq!(sent.out, expected, "{sent:?}");
    let lines =
        ["book 1", "book 2", "book 3", "charge 1", "cancel 3-3", "cancel 2-2", "cancel 1-1"];
    assert_eq!(ledger(&house), lines);
    house.verified();
}

#[test]
fn a_call_that_a_workflow_beneath_has_undone_is_not_undone_again() {
    let leg = "[workflows.leg]\non_failure = \"undo\"\npeers = [\"hotel\"]";
    let config = CONFIG.replace("[workflows.leg]", leg);
    let config = config.replace(
        "{ n = \"input/n\" } }\n\n[workflows.trip]",
        "{ n = \"input/n\" } }\npay = { listener = \"bank\", payload = \"charge\", with = { n = \
         \"input/n\" } }\n\n[workflows.trip]",
    );
    let config = config.replace("third = { workflow", "third = { retry = 1, workflow");
    let house = house(&config);
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>third</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    let undone = cancellations(&house);
    assert_eq!(undone.len(), 4, "{undone:?}");
    assert!(undone.values().all(|times| *times == 1), "{undone:?}");
    house.verified();
}

#[test]
fn a_person_gets_the_list_of_calls_that_were_not_undone() {
    let config = CONFIG
        .replace(
            "number = \"reply/number\" }",
            "number = \"reply/number\", remark = \"reply/remark\" }",
        )
        .replace("on_failure = \"undo\"", "on_failure = \"undo\"\nreport_to = \"owner\"");
    let house = house(&config);
    let running = house.run();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert!(sent.out.contains("not-undone"), "{sent:?}");
    let listed = house.organism(&["answer", "--json"]).json();
    let [report] = listed.as_slice() else { panic!("{listed:?}") };
    let payload = report["payload"].as_str().unwrap();
    assert_eq!(payload.matches("<why>nothing-selected</why>").count(), 3, "{payload}");
    let id = report["message"].as_str().unwrap();
    let answer = "<undo xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip/goals\"/>";
    house.write("answer.xml", answer);
    let answered = house.organism(&["answer", id, "answer.xml"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_call_with_several_values_for_one_value_of_its_undo_is_listed() {
    let several = "number = \"reply/number | request/n\"";
    let house = house(&CONFIG.replace("number = \"reply/number\"", several));
    let sent = send(&house, &[]);
    assert_eq!(sent.out.matches("<why>several-selected</why>").count(), 3, "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "book 2", "book 3", "charge 1"]);
    house.verified();
}

#[test]
fn without_such_a_person_the_list_stands_in_the_failed_result() {
    // The bank may not be asked twice, and what it was told cannot be taken back.
    let config = CONFIG
        .replace("replies = [\"charge-failed\"", "attempts = 1\nreplies = [\"charge-failed\"")
        .replace(
            "pay = {",
            "tell = { listener = \"bank\", payload = \"notify\", with = { n = \"input/n\" } }\npay = {",
        );
    let house = house(&config);
    house.write("refuse-cancel", "");
    let sent = send(&house, &[]);
    for part in [
        "<listener>bank</listener><payload>notify</payload><thread>sess-travel00.tell</thread>",
        "<why>no-undo</why>",
        "<listener>hotel</listener><payload>book</payload><thread>sess-travel00.second</thread>",
    ] {
        assert!(sent.out.contains(part), "{part} in {sent:?}");
    }
    assert_eq!(sent.out.matches("<why>undo-failed</why>").count(), 3, "{sent:?}");
    let undone = cancellations(&house);
    assert!(undone.values().all(|times| *times == 1), "a failed undo stops no other: {undone:?}");
    house.verified();
}

#[test]
fn an_undo_waits_for_its_approval() {
    let config = CONFIG.replace("second = {", "pay = {").replace(
        "pay = { listener = \"bank\", payload = \"charge\", with = { n = \"input/n\" } }\n",
        "",
    );
    let config = config.replace("attempts = 1", "attempts = 1\napproval = \"always\"");
    // The agent has no recorded turn in this thread, so the run fails after its first booking.
    let house = house(&config);
    let running = house.run();
    send(&house, &["--no-wait"]);
    for name in ["book", "cancel"] {
        let held = until(&format!("{name} waits"), || {
            let listed = house.organism(&["approvals", "--json"]).json();
            let is_it = |one: &Json| one["name"].as_str().is_some_and(|it| it.ends_with(name));
            listed.into_iter().find(is_it)
        });
        let (id, hash) = (held["message"].as_str().unwrap(), held["sha256"].as_str().unwrap());
        let approved = house.organism(&["approve", id, "--hash", hash]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
    }
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "cancel 1-1"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_that_fails_cancels_a_call_that_still_waits_for_its_approval() {
    let (config, _) = CONFIG.split_once("[workflows.trip.goals]\n").unwrap();
    let config = config.replace("attempts = 1", "attempts = 1\napproval = \"always\"");
    let goals = "room = { listener = \"hotel\", payload = \"book\", with = { n = \"input/n\" } }\n\
                 pay = { needs = [], listener = \"bank\", payload = \"charge\", with = { n = \
                 \"input/n\" } }\n";
    let house = house(&format!("{config}[workflows.trip.goals]\n{goals}"));
    house.write("hold-charge-1", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    let approvals = || house.organism(&["approvals", "--json"]).json();
    let held = until("the booking is held", || approvals().into_iter().next());
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();

    until("the run has failed", || is_over(&house).then_some(()));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert!(approvals().is_empty(), "the approval is void");
    let (id, hash) = (held["message"].as_str().unwrap(), held["sha256"].as_str().unwrap());
    let approved = house.organism(&["approve", id, "--hash", hash]);
    assert_eq!(approved.code, Some(65), "{approved:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(ledger(&house), ["charge 1"]);
    house.verified();
}

#[test]
fn a_run_with_an_undo_of_a_listener_that_is_no_peer_is_reported() {
    let without = CONFIG.replace("first = { listener = \"hotel\"", "first = { listener = \"bank\"");
    let house = house(&without.replace(
        "payload = \"book\", with = { n = \"input/n\" } }\nsecond",
        "payload = \"notify\", with = { n = \"input/n\" } }\nsecond",
    ));
    let checked = house.organism(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    assert!(checked.err.contains("`hotel` can be called beneath `trip`"), "{checked:?}");
    assert!(checked.err.contains("add \"hotel\" to `peers`"), "{checked:?}");

    for (from, to, problem) in [
        ("payload = \"cancel\", with", "payload = \"cancle\", with", "does not accept `cancle`"),
        ("undo.book =", "undo.boook =", "does not accept `boook`"),
        ("reply/number", "reply/numbr", "`reply` never holds `numbr`"),
        ("reply/number", "result/number", "`result` is neither `request` nor `reply`"),
        ("reply/number", "reply/(", "is not an XPath 1.0"),
        ("payload = \"cancel\", with", "payload = \"book\", with", "`book` undoes `book`"),
    ] {
        house.write("organism.toml", CONFIG.replace(from, to));
        let checked = house.organism(&["check"]);
        assert_eq!(checked.code, Some(78), "{checked:?}");
        assert!(checked.err.contains(problem), "{problem} in {checked:?}");
    }
}

/// Whether the run has its result on record.
fn is_over(house: &House) -> bool {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_result = |line: &Json| {
        let name = line["name"].as_str().unwrap_or_default();
        line["type"] == "message" && name.ends_with("}trip-failed")
    };
    exported.iter().any(is_result)
}

/// Kills the organism at the `nth` pass of a failpoint, and starts it again. Asserts that no
/// booking is cancelled twice, and that each booking is either cancelled or reported as not undone.
/// Returns whether the organism died before the run was over.
fn dies_and_undoes_once(place: &str, nth: u32) -> bool {
    let house = house(CONFIG);
    let mut running = start(&house, Some(&format!("{place}:{nth}")));
    until("the organism is ready or gone", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        (is_gone || house.log().contains("is ready")).then_some(())
    });
    let first = send(&house, &["--no-wait"]);
    let died = first.code != Some(0)
        || until("it dies, or the run ends", || {
            let is_gone = running.child.try_wait().unwrap().is_some();
            if is_gone { Some(true) } else { is_over(&house).then_some(false) }
        });
    drop(running);
    let again = house.run();
    let sent = send(&house, &[]);
    assert_eq!(again.stop(), Some(0));
    let listed = sent.out.matches("<not-undone>").count();
    let undone = cancellations(&house);
    assert!(undone.values().all(|times| *times <= 1), "{place}:{nth}: {undone:?}");
    let left = undone.values().filter(|times| **times == 0).count();
    assert!(left <= listed, "{place}:{nth}: {undone:?} {sent:?}");
    assert!(sent.out.contains("<trip-failed"), "{place}:{nth}: {sent:?}");
    house.verified();
    died
}

#[test]
fn a_run_that_is_killed_while_it_undoes_undoes_nothing_twice() {
    let stepped = [16, 19, 21, 22, 23, 24, 25, 26, 27, 28].map(|nth| ("stepped", nth));
    let delivered = [8, 10, 11, 12, 13].map(|nth| ("after-deliver", nth));
    let places = stepped.into_iter().chain(delivered);
    // A short run leaves out every second place.
    let step = if torture() { 1 } else { 2 };
    let deaths = places.step_by(step).filter(|(place, nth)| dies_and_undoes_once(place, *nth));
    let deaths = deaths.count();
    assert!(deaths >= 3, "it died {deaths} times before the run was over");
}
