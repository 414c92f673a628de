//! The system clock is changed while an organism has work.

use std::process::Command;

use organism::ids::Position;
use organism::thread::{Input, Record};

use super::{CONFIG, House, Running, numbered, until};
use crate::web::page::Page;
use crate::web::{address, ask, listening};

const HOUR_MICROS: i64 = 3_600_000_000;

fn house() -> House {
    let house = House::with(CONFIG);
    house.write("skew", "0");
    house
}

fn skewed(house: &House, mut command: Command) -> Command {
    command.env("ORGANISM_CLOCK_SKEW", house.path("skew"));
    command
}

fn run(house: &House) -> Running {
    house.run_with(skewed(house, house.command(&["run"])))
}

fn set_clock(house: &House, micros: i64) {
    // Written atomically, so that no reader sees a part.
    house.write("skew.new", micros.to_string());
    std::fs::rename(house.path("skew.new"), house.path("skew")).unwrap();
}

fn hold(house: &House) {
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-hold0000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is on record", || (house.recorded("hold") == 1).then_some(()));
}

fn records(house: &House) -> Vec<Record> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap();
    records.into_iter().map(|sealed| sealed.record).collect()
}

fn inputs(house: &House) -> Vec<Input> {
    records(house).into_iter().map(|record| record.input).collect()
}

#[test]
fn a_clock_that_is_set_forward_ends_no_attempt_and_is_on_record() {
    let house = house();
    let running = run(&house);
    hold(&house);
    set_clock(&house, HOUR_MICROS);
    let other = house.send_text(&super::say("hello"), &[]);
    assert_eq!(other.code, Some(0), "{other:?}");
    house.write("let-go", "");
    until("it is answered", || (house.recorded("held") == 1).then_some(()));
    let stepped = inputs(&house).into_iter().filter_map(|input| match input {
        Input::Standstill { stepped_micros, .. } => Some(stepped_micros),
        _ => None,
    });
    assert_eq!(stepped.map(|micros| micros / 1_000_000_000).max(), Some(3), "an hour");
    assert!(house.log().contains("clock was set forward by 3"), "{}", house.log());

    set_clock(&house, 0);
    let ahead = "s ahead of this machine's clock";
    until("the log states that the records are ahead", || {
        house.log().contains(ahead).then_some(())
    });
    let shown = house.organism(&["thread", "sess-hold0000"]);
    assert!(shown.out.starts_with("sess-hold0000  completed"), "{}", shown.out);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_clock_before_1970_is_refused_before_anything_is_made() {
    let house = house();
    house.write("say.xml", super::say("early"));
    set_clock(&house, -100 * 365 * 24 * HOUR_MICROS);
    let send = skewed(&house, house.command(&["send", "say.xml"])).output().unwrap();
    let refused = super::CommandOutput::from(send);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains("is before 1970, at 19"), "{refused:?}");
    assert!(!house.data().exists());
}

#[test]
fn the_age_of_a_checkpoint_grows_while_the_records_are_ahead_of_the_clock() {
    let house = House::with(&listening(CONFIG));
    set_clock(&house, 2 * HOUR_MICROS);
    let running = run(&house);
    assert_eq!(house.send_text(&super::say("ahead"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    set_clock(&house, 0);
    let running = run(&house);
    let warning = "s ahead of this machine's clock";
    until("it warns", || house.log().contains(warning).then_some(()));
    assert_eq!(house.send_text(&super::say("now"), &[]).code, Some(0));
    let metrics = || Page::read(&ask(address(&house), "/metrics").body);
    let age = || metrics().get("organism_checkpoint_age_seconds", &[]);
    until("the age grows", || (age() > 0.0).then_some(()));
    assert!(age() < 3600.0, "{}", age());
    assert_eq!(house.log().matches(warning).count(), 1, "{}", house.log());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn record_time_never_decreases_when_the_clock_was_set_back() {
    let house = house();
    let running = run(&house);
    assert_eq!(house.send_text(&super::say("before"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    set_clock(&house, -HOUR_MICROS);
    let running = run(&house);
    assert_eq!(house.send_text(&super::say("after"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let times: Vec<_> = records(&house).iter().map(|record| record.time).collect();
    assert!(times.is_sorted(), "{times:?}");
    house.verified();
}
