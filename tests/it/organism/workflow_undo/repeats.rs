//! Retries that would make completed calls to listeners with `attempts = 1` a second time.

use super::{CONFIG, House, house, ledger, send};

/// A house whose run has booked a room and failed at the payment, and has undone nothing.
fn failed_with(goals: &str) -> House {
    let (config, _) = CONFIG.split_once("[workflows.trip.goals]\n").unwrap();
    let config = config.replace("on_failure = \"undo\"\n", "");
    let house = house(&format!("{config}[workflows.trip.goals]\n{goals}"));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "charge 1"]);
    house.write("accept-charge", "");
    house
}

const ROOM: &str =
    "room = { listener = \"hotel\", payload = \"book\", with = { n = \"input/n\" } }\n";
const PAY: &str =
    "pay = { listener = \"bank\", payload = \"charge\", with = { n = \"input/n\" } }\n";

#[track_caller]
fn assert_needs_confirmation(house: &House, options: &[&str]) {
    let before = ledger(house);
    let retry = [&["workflow", "retry", "sess-travel00", "--quiet"], options].concat();
    let refused = house.organism(&retry);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("not undone: room (1 call to hotel)"), "{refused:?}");
    assert!(refused.err.contains("--again"), "{refused:?}");
    assert_eq!(ledger(house), before, "nothing is sent");

    let confirmed = house.organism(&[&retry, &["--again"][..]].concat());
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    assert_eq!(ledger(house)[before.len()..], ["book 1", "charge 1"]);
    house.verified();
}

#[test]
fn a_choice_that_has_not_ended_makes_its_completed_calls_again_only_after_a_confirmation() {
    let choice = "way = { choose = [{ run = [\"room\", \"pay\"] }] }\n";
    assert_needs_confirmation(&failed_with(&format!("{choice}{ROOM}{PAY}")), &[]);
}

#[test]
fn only_a_goal_that_runs_again_needs_a_confirmation() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let retried = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(ledger(&house)[2..], ["charge 1"], "its booking is kept");
    assert_needs_confirmation(&house, &["--from", "room"]);
}

#[test]
fn a_retry_that_is_repeated_with_its_key_needs_no_confirmation() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let retry = |key: &str, options: &[&str]| {
        let retry = ["workflow", "retry", "sess-travel00", "--quiet", "--from", "room", "--key"];
        house.organism(&[&retry[..], &[key], options].concat())
    };
    let retried = retry("once-more", &["--again"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let booked = ledger(&house);
    let repeated = retry("once-more", &[]);
    assert_eq!((repeated.code, &repeated.out), (Some(0), &retried.out), "{repeated:?}");
    let refused = retry("another", &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(ledger(&house), booked, "nothing is booked again");
    house.verified();
}
