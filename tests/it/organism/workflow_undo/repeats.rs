//! Retries that would make completed calls to listeners with `attempts = 1` a second time, and
//! several retries of one run.

use organism::ids::Position;
use organism::thread::Fact;
use serde_json::Value as Json;

use super::super::proof::sql;
use super::{CONFIG, CommandOutput, House, house, ledger, send, until};

/// A house whose workflow has these goals, and undoes nothing.
fn house_with(goals: &str) -> House {
    let (config, _) = CONFIG.split_once("[workflows.trip.goals]\n").unwrap();
    let config = config.replace("on_failure = \"undo\"\n", "");
    house(&format!("{config}[workflows.trip.goals]\n{goals}"))
}

/// A house whose run has booked a room and failed at the payment, and has undone nothing.
fn failed_with(goals: &str) -> House {
    failed(house_with(goals))
}

fn failed(house: House) -> House {
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "charge 1"]);
    house.write("accept-charge", "");
    house
}

pub(super) const ROOM: &str =
    "room = { listener = \"hotel\", payload = \"book\", with = { n = \"input/n\" } }\n";
pub(super) const PAY: &str =
    "pay = { listener = \"bank\", payload = \"charge\", with = { n = \"input/n\" } }\n";
pub(super) const RETRY: &[&str] = &["workflow", "retry", "sess-travel00", "--quiet"];

/// Asserts that the command names one booking of `owner`, and sends nothing.
#[track_caller]
fn assert_refused(house: &House, retry: &[&str], owner: &str) {
    let before = ledger(house);
    let refused = house.organism(retry);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let named = format!("not undone: {owner} (1 call to hotel);");
    assert!(refused.err.contains(&named), "{refused:?}");
    assert!(refused.err.contains("--again"), "{refused:?}");
    assert_eq!(ledger(house), before, "nothing is sent");
}

#[track_caller]
fn assert_needs_confirmation(house: &House, options: &[&str], owner: &str) {
    let before = ledger(house);
    let retry = [RETRY, options].concat();
    assert_refused(house, &retry, owner);

    let confirmed = house.organism(&[&retry, &["--again"][..]].concat());
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    assert_eq!(ledger(house)[before.len()..], ["book 1", "charge 1"]);
    house.verified();
}

#[test]
fn a_choice_that_has_not_ended_makes_its_completed_calls_again_only_after_a_confirmation() {
    let choice = "way = { choose = [{ run = [\"room\", \"pay\"] }] }\n";
    assert_needs_confirmation(&failed_with(&format!("{choice}{ROOM}{PAY}")), &[], "room");
}

#[test]
fn only_a_goal_that_runs_again_needs_a_confirmation() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let retried = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(ledger(&house)[2..], ["charge 1"], "its booking is kept");
    assert_needs_confirmation(&house, &["--from", "room"], "room");
}

/// Returns a house with two ended runs, and the id of the first one. The first has booked a room.
/// The second has booked nothing, and an operator has begun it with the request of the first.
/// Between the runs, `change` changes the config.
fn sent_again(change: impl FnOnce(&str) -> String) -> (House, String) {
    let house = House { settled: true, ..house_with(&format!("{ROOM}{PAY}")) };
    house.write("hold-charge-1", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    until("it pays", || (ledger(&house).len() == 2).then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    assert_eq!(running.stop(), Some(0));

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    house.write("organism.toml", change(&config));
    house.write("refuse-book", "");
    let running = house.run();
    let run = requests(&house, "trip").remove(0);
    let sent = house.organism(&["retry", &run, "--again"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it fails", || house.messages("trip-failed").pop());
    assert_eq!(running.stop(), Some(0));
    std::fs::remove_file(house.path("refuse-book")).unwrap();
    house.write("accept-charge", "");
    (house, run)
}

/// Takes the payload of this message out of the journal.
fn redact(house: &House, message: &str) {
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let is_message = |fact: &Fact| match fact {
        Fact::Accepted { message: own, .. } => own.id.to_string() == message,
        _ => false,
    };
    let found = records.iter().find(|sealed| sealed.record.facts.iter().any(is_message));
    let position = found.unwrap().record.position.0;
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position =";
    sql(house, &format!("{blank} {position}"));
    let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
}

#[test]
fn calls_of_a_run_whose_request_an_operator_sent_again_need_a_confirmation() {
    let (house, first) = sent_again(str::to_owned);
    assert_refused(&house, RETRY, "room");

    // The goals of the first run are not known without its request.
    redact(&house, &first);
    assert_needs_confirmation(&house, &[], "an earlier run");
}

#[test]
fn calls_of_a_run_whose_definition_has_changed_since_need_a_confirmation() {
    let (house, _) = sent_again(|config| config.replace("\nroom = ", "\nstay = "));
    assert_needs_confirmation(&house, &[], "an earlier run");
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

/// Ids of the requests with this local name, in the order of the record.
pub(super) fn requests(house: &House, name: &str) -> Vec<String> {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_request = |line: &&Json| {
        let named = line["name"].as_str().and_then(|name| name.rsplit('}').next());
        line["type"] == "message" && line["kind"] == "call" && named == Some(name)
    };
    let requests = exported.iter().filter(is_request);
    requests.map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

/// Sends a request for a retry of `run`, as a command does that has read the record before another
/// retry stands in it.
pub(super) fn request_retry(
    house: &House,
    run: &str,
    more: &str,
    options: &[&str],
) -> CommandOutput {
    let request = format!(
        "<trip-retry xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\" run=\"{run}\"{more}/>"
    );
    house.send_text(&request, &[&["--thread", "sess-travel00"], options].concat())
}

#[track_caller]
fn assert_already_retried(refused: &CommandOutput, by: &str) {
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.out.contains("<code>already-retried</code>"), "{refused:?}");
    assert!(refused.out.contains(&format!("the request {by} retries this run")), "{refused:?}");
}

#[test]
fn of_several_retries_of_one_run_only_the_first_runs_without_a_confirmation() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let run = requests(&house, "trip").remove(0);
    house.write("hold-charge-1", "");
    let running = house.run();
    let first = request_retry(&house, &run, "", &["--key", "first", "--no-wait"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let first = requests(&house, "trip-retry").remove(0);

    // The first retry is still open, and has run a goal.
    until("it pays", || (ledger(&house).len() == 3).then_some(()));
    assert_already_retried(&request_retry(&house, &run, "", &[]), &first);
    let refused = requests(&house, "trip-retry").pop().unwrap();
    let beneath = request_retry(&house, &refused, "", &[]);
    assert_already_retried(&beneath, &first);
    // It may yet undo calls whose results another retry would take over.
    let open = request_retry(&house, &run, " again=\"true\"", &[]);
    assert_eq!(open.code, Some(1), "{open:?}");
    assert!(open.out.contains("<code>run-not-ended</code>"), "{open:?}");
    assert!(open.out.contains(&format!("the request {first} goes on")), "{open:?}");

    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let ended = request_retry(&house, &run, "", &["--key", "first"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_already_retried(&request_retry(&house, &run, "", &[]), &first);
    assert_eq!(ledger(&house)[2..], ["charge 1"], "it was paid once");

    let confirmed = request_retry(&house, &run, " again=\"true\"", &[]);
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    assert_eq!(ledger(&house)[2..], ["charge 1", "charge 1"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_retry_that_was_refused_before_it_began_stands_in_no_way() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let run = requests(&house, "trip").remove(0);
    let unknown = request_retry(&house, &run, " from=\"nothing\"", &[]);
    assert!(unknown.out.contains("<code>unknown-goal</code>"), "{unknown:?}");
    let retried = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(ledger(&house)[2..], ["charge 1"]);
    house.verified();
}

#[test]
fn an_operator_sends_a_cancelled_retry_again() {
    let house = failed_with(&format!("{ROOM}{PAY}"));
    let run = requests(&house, "trip").remove(0);
    house.write("hold-charge-1", "");
    let running = house.run();
    let begun = request_retry(&house, &run, "", &["--no-wait"]);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let first = requests(&house, "trip-retry").remove(0);
    until("it pays", || (ledger(&house).len() == 3).then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    assert_already_retried(&request_retry(&house, &run, "", &[]), &first);

    let retried = house.organism(&["retry", &first, "--again"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until("it pays again", || (ledger(&house).len() == 4).then_some(()));
    let second = requests(&house, "trip-retry").pop().unwrap();
    assert_already_retried(&request_retry(&house, &first, "", &[]), &second);
    assert_eq!(ledger(&house)[2..], ["charge 1", "charge 1"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Without the results of the earlier run, the retry would make its completed calls again.
#[test]
fn a_run_with_a_redacted_message_is_not_retried() {
    let house = House { settled: true, ..house_with(&format!("{ROOM}{PAY}")) };
    let house = failed(house);
    let run = requests(&house, "trip").remove(0);
    let before = ledger(&house);
    for name in ["thread-result", "run-definition"] {
        let (message, _) = house.messages(name).remove(0);
        redact(&house, &message.to_string());
        let refused = house.organism(&[RETRY, &["--again"][..]].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(&format!("message {message}")), "{refused:?}");
        assert!(refused.err.contains("was redacted"), "{refused:?}");

        let sent = request_retry(&house, &run, " again=\"true\"", &[]);
        assert_eq!(sent.code, Some(1), "{sent:?}");
        assert!(sent.out.contains("<code>redacted</code>"), "{sent:?}");
    }
    assert_eq!(ledger(&house), before, "no call is made again");
    house.verified();
}

/// Without its request, or the note of the operator who sent it, it is not known which run an
/// earlier retry has retried.
#[test]
fn a_run_that_a_redacted_request_may_have_retried_is_retried_only_after_a_confirmation() {
    let house = House { settled: true, ..house_with(&format!("{ROOM}{PAY}")) };
    let house = failed(house);
    let run = requests(&house, "trip").remove(0);
    let retried = house.organism(RETRY);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let retry = requests(&house, "trip-retry").remove(0);
    let (by_operator, first) = sent_again(str::to_owned);
    let second = requests(&by_operator, "trip").remove(1);

    for (house, run, other) in [(&house, run, retry), (&by_operator, first, second)] {
        let before = ledger(house);
        redact(house, &other);
        let refused = request_retry(house, &run, "", &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.out.contains("<code>redacted</code>"), "{refused:?}");
        assert!(refused.out.contains(&format!("the request {other} may have")), "{refused:?}");
        assert_eq!(ledger(house), before, "no call is made again");

        let confirmed = request_retry(house, &run, " again=\"true\"", &[]);
        assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
        house.verified();
    }
}
