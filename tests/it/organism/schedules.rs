//! Schedules of a running organism: kills, missed times, commands, and changes of the config.

use std::process::Command;
use std::sync::Arc;

use organism::envelope::Message;
use organism::ids::Position;
use organism::thread::Fact;

use super::{ECHO_CONFIG, House, Running, say, until};
use crate::web::page::Page;
use crate::web::{address, ask, listening};

const HOUR_MICROS: i64 = 3_600_000_000;

/// A house with a schedule that sends `tick` to the echo. `lines` are added to the section of the
/// schedule.
fn house(lines: &str) -> House {
    let schedule = format!("[schedules.tick]\nsend = \"tick.xml\"\nas = \"desk\"\n{lines}\n");
    let house = House::with(&format!("{ECHO_CONFIG}\n{schedule}"));
    house.write("tick.xml", say("tick"));
    house.write("skew", "0");
    house
}

fn skewed(house: &House, arguments: &[&str]) -> Command {
    let mut command = house.command(arguments);
    command.env("ORGANISM_CLOCK_SKEW", house.path("skew"));
    command
}

/// Starts the organism, and waits until its schedules are planned.
fn run(house: &House) -> Running {
    let running = house.run_with(skewed(house, &["run"]));
    until("the schedule is planned", || (!events(house).is_empty()).then_some(()));
    running
}

fn kill(mut running: Running) {
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

fn set_clock(house: &House, micros: i64) {
    // Written atomically, so that no reader sees a part.
    house.write("skew.new", micros.to_string());
    std::fs::rename(house.path("skew.new"), house.path("skew")).unwrap();
}

fn messages(house: &House, local: &str) -> Vec<Arc<Message>> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = if last.0 == 0 { Vec::new() } else { reader.records(Position(1), last).unwrap() };
    let facts = records.into_iter().flat_map(|sealed| sealed.record.facts);
    let accepted = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == local => Some(message),
        _ => None,
    });
    accepted.collect()
}

fn attribute(message: &Message, name: &str) -> Option<String> {
    let (_, rest) = message.payload.as_str().split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// Recorded events of schedules, each with its count and policy if it has them.
fn events(house: &House) -> Vec<String> {
    let events = messages(house, "schedule-event");
    let shown = events.iter().map(|event| {
        let parts = ["event", "count", "policy"].map(|name| attribute(event, name));
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    shown.collect()
}

/// Waits until the echo has answered `times` times.
fn answered(house: &House, times: usize) {
    until("the runs are answered", || (house.recorded("said") >= times).then_some(()));
}

#[test]
fn a_schedule_goes_on_after_its_organism_was_killed_and_sends_each_run_once() {
    let house = house("every = \"1s\"");
    let mut answers = 0;
    for _ in 0..3 {
        let running = run(&house);
        answers += 2;
        answered(&house, answers);
        answers = house.recorded("said");
        kill(running);
    }
    let running = run(&house);
    answered(&house, answers + 2);
    assert_eq!(running.stop(), Some(0));

    let events = messages(&house, "schedule-event");
    let of_event = |word: &str| -> Vec<String> {
        let fitting = events.iter().filter(|event| attribute(event, "event").unwrap() == word);
        fitting.map(|event| attribute(event, "thread_id").unwrap_or_default()).collect()
    };
    assert_eq!(of_event("planned").len(), 1);
    let sent: Vec<_> =
        messages(&house, "say").iter().map(|message| message.thread.to_string()).collect();
    // The pump may have stopped between a run's event and its request.
    let started = of_event("started");
    assert!(started.len() - sent.len() <= 1, "{started:?} {sent:?}");
    assert_eq!(started[..sent.len()], sent, "each run is sent once, in its own thread");
    house.verified();
}

#[test]
fn times_without_an_organism_are_missed_on_record_and_made_up_once() {
    let house = house("every = \"1h\"");
    kill(run(&house));
    set_clock(&house, 7 * HOUR_MICROS / 2);
    let running = run(&house);
    answered(&house, 1);
    kill(running);
    assert_eq!(run(&house).stop(), Some(0));
    assert_eq!(events(&house), ["planned", "missed 3 once", "started"]);
    assert_eq!(house.recorded("say"), 1);

    let shown = house.organism(&["thread", "sess-organism"]);
    assert!(shown.out.contains("schedule-event  tick missed"), "{}", shown.out);
    house.verified();
}

#[test]
fn times_without_an_organism_are_skipped_where_the_schedule_says_so() {
    let house = house(&listening("every = \"1h\"\nmissed = \"skip\""));
    kill(run(&house));
    set_clock(&house, 7 * HOUR_MICROS / 2);
    let running = run(&house);
    let at = address(&house);
    let counted = |event: &str| {
        Page::read(&ask(at, "/metrics").body)
            .get("organism_schedule_events_total", &[("event", event)])
    };
    until("the event is counted", || (counted("missed") > 0.0).then_some(()));
    assert_eq!([counted("missed"), counted("started")], [1.0, 0.0]);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(events(&house), ["planned", "missed 3 skip"]);
    assert_eq!(house.recorded("say"), 0);
    house.verified();
}

#[test]
fn times_over_which_a_clock_is_set_are_missed_and_a_clock_set_back_repeats_none() {
    let house = house("every = \"1h\"");
    let running = run(&house);
    set_clock(&house, 7 * HOUR_MICROS / 2);
    // Any request wakes the pump, which reads its clock.
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    answered(&house, 2);
    set_clock(&house, 0);
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(run(&house).stop(), Some(0));
    assert_eq!(events(&house), ["planned", "missed 3 once", "started"]);
    house.verified();
}

#[test]
fn a_command_that_starts_its_own_organism_leaves_schedules_alone() {
    let house = house("every = \"1h\"");
    assert_eq!(run(&house).stop(), Some(0));
    set_clock(&house, 7 * HOUR_MICROS / 2);
    let mut send = skewed(&house, &["send", "tick.xml", "--as", "desk"]);
    assert!(send.output().unwrap().status.success());
    assert_eq!(events(&house), ["planned"]);
    assert_eq!(house.recorded("say"), 1);
    let running = run(&house);
    answered(&house, 2);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_schedule_starts_a_run_of_a_workflow() {
    const TOUR: &str = include_str!("../../data/organism/tour.toml");
    let schedule = "[schedules.tick]\nevery = \"1h\"\nsend = \"tour.xml\"\nas = \"desk\"\n";
    let house = House::with(&format!("{TOUR}\n{schedule}"));
    house.copy("tour-recording.toml");
    let namespace = "https://xml-pipeline.org/ns/workflow/v1/tour";
    let request = format!("<tour xmlns=\"{namespace}\"><topic>light</topic><unit>3</unit></tour>");
    house.write("tour.xml", request);
    house.write("skew", "0");

    kill(run(&house));
    set_clock(&house, 3 * HOUR_MICROS / 2);
    let running = run(&house);
    until("the run has ended", || (!messages(&house, "tour-output").is_empty()).then_some(()));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(events(&house), ["planned", "missed 1 once", "started"]);
    assert_eq!(messages(&house, "tour").len(), 1);
    house.verified();
}

#[test]
fn a_schedule_that_is_taken_out_of_the_config_is_cancelled_on_record() {
    let house = house("at = \"03:00\"\non = [\"mon\"]\nzone = \"Europe/Berlin\"");
    assert_eq!(run(&house).stop(), Some(0));
    let planned = &messages(&house, "schedule-event")[0];
    let times = attribute(planned, "times").unwrap();
    assert_eq!(times, "at 03:00:00 on mon in Europe/Berlin");

    house.write("organism.toml", ECHO_CONFIG);
    // A command runs no schedules, so it does not cancel this one.
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    assert_eq!(events(&house), ["planned"]);
    assert_eq!(run(&house).stop(), Some(0));
    assert_eq!(events(&house), ["planned", "cancelled"]);
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    let due = attribute(planned, "next");
    assert_eq!(attribute(&messages(&house, "schedule-event")[1], "due"), due);
    house.verified();
}
