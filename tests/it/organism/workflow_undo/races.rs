//! Undoing while other events happen to a run: open calls, other runs, time-outs, edited configs,
//! and retries of the run.

use serde_json::Value as Json;

use super::super::try_threads::trial;
use super::super::workflow::messages;
use super::super::{House, Running, until};
use super::{CONFIG, CommandOutput, RECORDING, cancellations, house, ledger, send};

/// The config with these goals of `trip`.
fn with_goals(goals: &str) -> String {
    let (config, _) = CONFIG.split_once("[workflows.trip.goals]\n").unwrap();
    let config = config.replace("accepts = [\"charge\", \"notify\"]", "accepts = [\"charge\"]");
    let till = "\n[listeners.till]\ncommand = [\"./booker.pl\", \"ledger\"]\nschema = \"booking.xsd\"\n\
                accepts = [\"notify\"]\nreplies = [\"notified\", \"booking-failed\"]\n";
    format!("{config}[workflows.trip.goals]\n{goals}{till}")
}

const FIRST: &str =
    "first = { listener = \"hotel\", payload = \"book\", with = { n = \"input/n\" } }\n";
const PAY: &str =
    "pay = { listener = \"bank\", payload = \"charge\", with = { n = \"input/n\" } }\n";

fn is_recorded(house: &House, name: &str) -> bool {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_named = |line: &Json| {
        let named = line["name"].as_str().and_then(|name| name.rsplit('}').next());
        line["type"] == "message" && named == Some(name)
    };
    exported.iter().any(is_named)
}

/// Asserts that this many bookings were made, and that each was cancelled once.
fn assert_each_cancelled_once(house: &House, bookings: usize) {
    let undone = cancellations(house);
    assert_eq!(undone.len(), bookings, "{:?}", ledger(house));
    assert!(undone.values().all(|times| *times == 1), "{:?}", ledger(house));
}

#[test]
fn an_undo_waits_for_a_booking_under_way_and_cancels_what_else_is_open() {
    let second = "second = { needs = [\"first\"], listener = \"hotel\", payload = \"book\", with = { \
                  n = \"'2'\" } }\n";
    let tell = "tell = { needs = [\"first\"], listener = \"till\", payload = \"notify\", with = { n = \
                \"'7'\" } }\n";
    let pay = PAY.replace("pay = {", "pay = { needs = [\"first\"],");
    let house = house(&with_goals(&format!("{FIRST}{second}{tell}{pay}")));
    house.write("hold-book-2", "");
    house.write("hold-notify-7", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    until("the run has failed", || is_recorded(&house, "thread-cancelled").then_some(()));
    assert!(!ledger(&house).iter().any(|line| line.starts_with("cancel")), "{:?}", ledger(&house));
    std::fs::remove_file(house.path("hold-book-2")).unwrap();
    let sent = send(&house, &[]);
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 2);
    let cancelled = ledger(&house).into_iter().filter(|line| line.starts_with("cancel"));
    let cancelled: Vec<_> = cancelled.collect();
    assert!(cancelled[0].starts_with("cancel 2-"), "the newest first: {cancelled:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A pause delays the delivery of the failure to the run. Meanwhile, a person approves the booking.
#[test]
fn a_booking_that_is_approved_before_its_run_learns_of_the_failure_is_not_cancelled() {
    let pay = PAY.replace("pay = {", "pay = { needs = [],");
    let config = with_goals(&format!("{FIRST}{pay}"));
    let house = house(&config.replace("attempts = 1", "attempts = 1\napproval = \"always\""));
    house.write("hold-charge-1", "");
    house.write("hold-book-1", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    let approve = |name: &str| {
        let held = until(&format!("{name} waits for its approval"), || {
            let listed = house.organism(&["approvals", "--json"]).json();
            let is_it = |call: &Json| call["name"].as_str().is_some_and(|it| it.ends_with(name));
            listed.into_iter().find(is_it)
        });
        let (id, hash) = (held["message"].as_str().unwrap(), held["sha256"].as_str().unwrap());
        let approved = house.organism(&["approve", id, "--hash", hash]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
    };
    let has = |line: &str| ledger(&house).iter().any(|written| written == line);

    until("the bank is charged", || has("charge 1").then_some(()));
    assert_eq!(house.organism(&["pause", "trip"]).code, Some(0));
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    until("the charge has failed", || is_recorded(&house, "charge-failed").then_some(()));
    approve("book");
    until("the hotel has the booking", || has("book 1").then_some(()));

    let waits = messages(&house, "waiting").len();
    assert_eq!(house.organism(&["resume", "trip"]).code, Some(0));
    until("the run waits again", || (messages(&house, "waiting").len() > waits).then_some(()));
    assert!(!is_recorded(&house, "thread-cancelled"), "{:?}", ledger(&house));
    std::fs::remove_file(house.path("hold-book-1")).unwrap();
    approve("cancel");
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_that_fails_starts_no_goal_that_became_ready_in_the_same_delivery() {
    let pay = PAY.replace("pay = {", "pay = { needs = [\"first\"],");
    let lines = "lines = { needs = [\"first\"], each = \"input/n | first/number\", max_items = 1, \
                 agent = \"writer\", prompt = \"{{item}}\" }\n";
    let house = house(&with_goals(&format!("{FIRST}{pay}{lines}")));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>lines</goal><code>too-many-items</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "cancel 1-1"]);
    house.verified();
}

#[test]
fn a_run_that_fails_starts_no_goal_after_a_pause_that_kept_both_results_back() {
    let second = "second = { needs = [], listener = \"till\", payload = \"notify\", with = { n = \
                  \"'7'\" } }\n";
    let pay = PAY.replace("pay = {", "pay = { needs = [\"first\"],");
    let house = house(&with_goals(&format!("{FIRST}{second}{pay}")));
    house.write("hold-book-1", "");
    house.write("hold-notify-7", "");
    house.write("refuse-notify", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    until("both are under way", || (ledger(&house).len() == 2).then_some(()));
    let paused = house.organism(&["pause", "trip"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    std::fs::remove_file(house.path("hold-book-1")).unwrap();
    until("it is booked", || (messages(&house, "thread-result").len() == 1).then_some(()));
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    until("both have ended", || (messages(&house, "thread-result").len() == 2).then_some(()));

    let resumed = house.organism(&["resume", "trip"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>second</goal><code>booking-failed</code>"), "{sent:?}");
    assert!(!ledger(&house).contains(&"charge 1".to_owned()), "{:?}", ledger(&house));
    assert_each_cancelled_once(&house, 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The config with these goals of `trip`, and with a workflow `leg` that undoes its booking if the
/// payment fails.
fn with_undoing_leg(goals: &str) -> String {
    let leg = "[workflows.leg]\non_failure = \"undo\"\npeers = [\"hotel\"]";
    with_goals(goals).replace("[workflows.leg]", leg).replace(
        "{ n = \"input/n\" } }\n\n[workflows.trip]",
        &format!("{{ n = \"input/n\" }} }}\n{PAY}\n[workflows.trip]"),
    )
}

fn leg(name: &str) -> String {
    format!(
        "{name} = {{ needs = [\"first\"], workflow = \"leg\", with = {{ n = \"'{name}'\" }} }}\n"
    )
}

#[test]
fn an_undo_of_a_workflow_beneath_ends_before_the_run_undoes() {
    let pay = PAY.replace("pay = {", "pay = { needs = [\"first\"],");
    let config = with_undoing_leg(&format!("{FIRST}{}{pay}", leg("left")));
    let replies = "replies = [\"charge-failed\", \"notified\"]";
    let house = house(&config.replace(replies, &format!("{replies}\ninstances = 2")));
    house.write("hold-charge-left", "");
    house.write("hold-charge-1", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    let line = until("it has booked", || ledger(&house).iter().position(|one| one == "book left"));
    let hold = format!("hold-cancel-left-{}", line + 1);
    house.write(&hold, "");
    std::fs::remove_file(house.path("hold-charge-left")).unwrap();
    let is_cancelled = || ledger(&house).iter().any(|one| one.starts_with("cancel left"));
    until("it undoes", || is_cancelled().then_some(()));
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    // For its first goal, for the others, and for the undo beneath it.
    until("the run has failed", || (waits(&house) == 3).then_some(()));
    std::fs::remove_file(house.path(&hold)).unwrap();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 2);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The bookings of two goals are under way when the run fails. The workflow of one goal asks a
/// person after its booking, and the booking of the other goal ends later.
#[test]
fn an_undo_waits_for_no_question_that_a_goal_asks_after_its_booking() {
    let second = "second = { needs = [\"first\"], listener = \"hotel\", payload = \"book\", with = { \
                  n = \"'2'\" } }\n";
    let pay = PAY.replace("pay = {", "pay = { needs = [\"first\"],");
    let room = "room = { listener = \"hotel\", payload = \"book\", with = { n = \"input/n\" } }\n";
    let ask = "ask = { needs = [\"room\"], ask = \"owner\", prompt = \"May it?\", form = { text = \
               \"text\" } }\n";
    let config = with_goals(&format!("{FIRST}{}{second}{pay}", leg("left")));
    let config = config.replace(room, &format!("{room}{ask}"));
    let house = house(&config.replace("attempts = 1\n", "attempts = 1\ninstances = 2\n"));
    for name in ["hold-book-2", "hold-book-left", "hold-charge-1"] {
        house.write(name, "");
    }
    let running = house.run();
    send(&house, &["--no-wait"]);
    let is_booked = |line: &str| ledger(&house).iter().any(|one| one == line);
    until("both are booked", || (is_booked("book 2") && is_booked("book left")).then_some(()));

    // For its first goal, for the others, and for both bookings after the failure.
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    until("the run has failed", || (waits(&house) == 3).then_some(()));
    std::fs::remove_file(house.path("hold-book-left")).unwrap();
    let questions = || house.organism(&["answer", "--json"]).json().len();
    until("a person has the question", || (questions() == 1).then_some(()));
    std::fs::remove_file(house.path("hold-book-2")).unwrap();

    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 3);
    assert_eq!(questions(), 0, "the question has ended with its goal");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Number of times that the run has waited.
fn waits(house: &House) -> usize {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_wait = |line: &&Json| {
        let name = line["name"].as_str().unwrap_or_default();
        name.ends_with("}waiting") && line["thread"] == "sess-travel00"
    };
    exported.iter().filter(is_wait).count()
}

#[test]
fn workflows_that_fail_at_once_beneath_one_run_undo_no_booking_twice() {
    let house = house(&with_undoing_leg(&format!("{FIRST}{}{}", leg("left"), leg("right"))));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<code>charge-failed</code>"), "{sent:?}");
    // An undo that begins while the run above fails may be cancelled. It is listed then.
    let listed = sent.out.matches("<not-undone>").count();
    let undone = cancellations(&house);
    assert!(undone.values().all(|times| *times <= 1), "{:?}", ledger(&house));
    assert!(undone.values().filter(|times| **times == 0).count() <= listed, "{sent:?}");
    house.verified();
}

#[test]
fn a_run_whose_time_is_over_is_undone() {
    let tell = "tell = { listener = \"till\", payload = \"notify\", with = { n = \"'7'\" } }\n";
    let config = with_goals(&format!("{FIRST}{tell}"));
    let config = config.replace("on_failure = \"undo\"", "on_failure = \"undo\"\ntimeout = \"4s\"");
    let house = house(&config);
    house.write("hold-notify-7", "");
    let sent = send(&house, &[]);
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();
    assert!(sent.out.contains("<goal>tell</goal><code>timeout</code>"), "{sent:?}");
    assert_each_cancelled_once(&house, 1);
    house.verified();
}

#[test]
fn a_run_whose_output_is_larger_than_a_payload_may_be_is_undone() {
    let output = "output = { a = \"input/n\", b = \"input/n\", c = \"input/n\" }";
    let config = with_goals(FIRST);
    let config =
        config.replace("on_failure = \"undo\"", &format!("on_failure = \"undo\"\n{output}"));
    let house = house(&format!("limits.payload_bytes = 4096\n{config}"));
    let long = "1".repeat(1_500);
    let request = super::REQUEST.replace("<n>1</n>", &format!("<n>{long}</n>"));
    let sent = house.send_text(&request, &["--new", "sess-travel00"]);
    assert!(sent.out.contains("<goal>first</goal><code>too-large</code>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_eq!(ledger(&house), [format!("book {long}"), format!("cancel {long}-1")]);
    house.verified();
}

#[test]
fn an_undo_that_the_gate_refuses_is_listed_and_stops_no_other() {
    let undo = "number = \"reply/number\", remark = \"request/n\" }";
    let second = "second = { listener = \"hotel\", payload = \"book\", with = { n = \"'longer than a \
                  remark'\" } }\n";
    let config = with_goals(&format!("{FIRST}{second}{PAY}"));
    let house = house(&config.replace("number = \"reply/number\" }", undo));
    let sent = send(&house, &[]);
    assert_eq!(sent.out.matches("<why>undo-failed</why>").count(), 1, "{sent:?}");
    assert!(sent.out.contains("<thread>sess-travel00.second</thread>"), "{sent:?}");
    let lines = ["book 1", "book longer than a remark", "charge 1", "cancel 1-1"];
    assert_eq!(ledger(&house), lines);
    house.verified();
}

#[test]
fn a_booking_that_its_agent_has_cancelled_is_not_cancelled_again() {
    let cancel = "turn = 2\ntext = \"<cancel xmlns=\\\"urn:example:booking\\\"><number>2-2</number></cancel>\"\n\
                  \n[[turn]]\nagent = \"writer\"\nthread = \"second\"\nturn = 3";
    let house = house(CONFIG);
    house.write("recording.toml", RECORDING.replace("turn = 2", cancel));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 3);
    house.verified();
}

#[test]
fn a_cancelled_booking_that_another_run_made_room_for_is_listed() {
    let house = house(&with_goals(&format!("{FIRST}{PAY}")));
    house.write("hold-book-9", "");
    house.write("hold-book-1", "");
    let running = house.run();
    let other = super::REQUEST.replace("<n>1</n>", "<n>9</n>");
    house.send_text(&other, &["--new", "sess-travel01", "--key", "other", "--no-wait"]);
    let is_booked = |number: &str| ledger(&house).contains(&format!("book {number}"));
    until("the other run books", || is_booked("9").then_some(()));
    send(&house, &["--no-wait"]);
    until("both have asked for a room", || (messages(&house, "book").len() == 2).then_some(()));

    // The end of the other booking hands this one over, in a record of the other run.
    std::fs::remove_file(house.path("hold-book-9")).unwrap();
    until("it books", || is_booked("1").then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00.first"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let sent = send(&house, &[]);
    std::fs::remove_file(house.path("hold-book-1")).unwrap();
    assert!(sent.out.contains("<goal>first</goal><code>cancelled</code>"), "{sent:?}");
    assert!(sent.out.contains("<thread>sess-travel00.first</thread>"), "{sent:?}");
    assert!(sent.out.contains("<why>cancelled</why>"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn the_calls_that_an_undo_of_a_cancelled_run_would_cover_are_listed() {
    let tell = "tell = { listener = \"till\", payload = \"notify\", with = { n = \"'7'\" } }\n";
    let house = house(&with_goals(&format!("{FIRST}{tell}")));
    house.write("hold-notify-7", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    until("it is booked", || ledger(&house).contains(&"notify 7".to_owned()).then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-notify-7")).unwrap();

    let listed = house.organism(&["workflow", "show", "sess-travel00", "--json"]).json();
    let [call] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(call["payload"], "book", "{call}");
    assert_eq!(call["why"], Json::Null, "{call}");
    assert!(call["undo"].as_str().unwrap().contains("<number>1-1</number>"), "{call}");
    let shown = house.organism(&["workflow", "show", "sess-travel00"]);
    assert!(shown.out.contains("sess-travel00.first"), "{shown:?}");
    assert_eq!(ledger(&house), ["book 1", "notify 7"]);
    assert_eq!(running.stop(), Some(0));
}

/// Returns the states of a goal in the JSON lines that a command wrote, in order.
fn states_of(goal: &str, lines: &str) -> Vec<String> {
    let lines = lines.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let rows = lines.filter(|line| line["goal"] == goal);
    rows.map(|row| row["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_retry_of_a_run_that_was_undone_books_again() {
    let tell = "tell = { listener = \"till\", payload = \"notify\", with = { n = \"'7'\" } }\n";
    let house = house(&with_goals(&format!("{tell}{FIRST}{PAY}")));
    let running = house.run();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");

    // It fails again, and the booking of the first run is not undone again.
    let again = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert_each_cancelled_once(&house, 2);

    house.write("accept-charge", "");
    let last = house.organism(&["workflow", "retry", "sess-travel00", "--json"]);
    assert_eq!(last.code, Some(0), "{last:?}");
    // The goal that was undone runs again, and is shown so.
    assert_eq!(states_of("tell", &last.out).last(), Some(&"done".to_owned()), "{last:?}");
    for goal in ["first", "pay"] {
        let states = states_of(goal, &last.out);
        assert!(states.contains(&"running".to_owned()), "{goal}: {last:?}");
        assert_eq!(states.last(), Some(&"done".to_owned()), "{goal}: {last:?}");
    }
    assert_eq!(cancellations(&house).values().filter(|times| **times == 0).count(), 1);
    let told = ledger(&house).iter().filter(|line| line.starts_with("notify")).count();
    assert_eq!(told, 1, "its result was taken over: {:?}", ledger(&house));

    // The retry names a run by its id, and the run of a trial has another id.
    let tried = trial(&house, &["organism.toml", "--threads", "sess-travel00"]);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    assert!(tried.err.contains("retries a run of a workflow"), "{tried:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_retry_that_fails_undoes_the_calls_of_the_run_that_it_goes_on_from() {
    let pay = PAY.replace("pay = {", "pay = { on_failure = \"stop\",");
    let tell = "tell = { listener = \"till\", payload = \"notify\", with = { n = \"'7'\" } }\n";
    let house = house(&with_goals(&format!("{FIRST}{pay}{tell}")));
    let running = house.run();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert_eq!(ledger(&house), ["book 1", "charge 1"]);

    house.write("accept-charge", "");
    house.write("refuse-notify", "");
    let again = house.organism(&["workflow", "retry", "sess-travel00", "--quiet"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert_eq!(ledger(&house), ["book 1", "charge 1", "charge 1", "notify 7", "cancel 1-1"]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Kills the organism while a run waits for its payment, and replaces the config by `after`.
fn edited_while_it_waits(house: &House, after: &str) {
    house.write("hold-charge-1", "");
    let running = house.run();
    send(house, &["--no-wait"]);
    until("it pays", || ledger(house).contains(&"charge 1".to_owned()).then_some(()));
    drop(running);
    house.write("organism.toml", after);
}

#[test]
fn a_run_on_its_recorded_definition_undoes_what_a_deleted_workflow_left() {
    let third = "third = { workflow = \"leg\", with = { n = \"'3'\" }, on_failure = \"skip\" }\n";
    let before = with_undoing_leg(&format!("{FIRST}{third}{PAY}"));
    let after = with_goals(&format!("{FIRST}{PAY}"));
    let (head, rest) = after.split_once("[workflows.leg]").unwrap();
    let after = format!("{head}[workflows.trip]{}", rest.split_once("[workflows.trip]").unwrap().1);
    let house = house(&before);
    edited_while_it_waits(&house, &after);
    let running = house.run();
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    assert!(!sent.out.contains("not-undone"), "{sent:?}");
    assert_each_cancelled_once(&house, 2);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A house with a failed run. The definition of the run names the owner in `report_to`, and the
/// config has lost that setting since the run began.
fn reported_to_owner(peers: &str) -> (House, Running, CommandOutput) {
    let after = with_goals(&format!("{FIRST}{PAY}")).replace(
        "number = \"reply/number\" }",
        "number = \"reply/number\", remark = \"reply/remark\" }",
    );
    let policy = "on_failure = \"undo\"";
    let before = after.replace(policy, &format!("{policy}\nreport_to = \"owner\""));
    let house = house(&before);
    edited_while_it_waits(&house, &after.replace(policy, &format!("{policy}\npeers = [{peers}]")));
    let running = house.run();
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let sent = send(&house, &[]);
    (house, running, sent)
}

#[test]
fn the_list_stands_in_the_result_where_its_person_is_no_peer_any_more() {
    let (house, running, sent) = reported_to_owner("");
    assert_eq!(sent.out.matches("<why>nothing-selected</why>").count(), 1, "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_on_its_recorded_definition_sends_its_list_to_a_person() {
    let (house, running, sent) = reported_to_owner("\"owner\"");
    assert!(sent.out.contains("not-undone"), "{sent:?}");
    let listed = house.organism(&["answer", "--json"]).json();
    let [report] = listed.as_slice() else { panic!("{listed:?}") };
    assert!(report["payload"].as_str().unwrap().contains("<why>nothing-selected</why>"));
    let id = report["message"].as_str().unwrap();
    let answer = "<undo xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip/goals\"/>";
    house.write("answer.xml", answer);
    let answered = house.organism(&["answer", id, "answer.xml"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_whose_listener_is_no_peer_any_more_is_undone() {
    let tell = "tell = { listener = \"till\", payload = \"notify\", with = { n = \"'7'\" } }\n";
    let house = house(&with_goals(&format!("{FIRST}{PAY}{tell}")));
    edited_while_it_waits(&house, &with_goals(&format!("{FIRST}{PAY}")));
    house.write("accept-charge", "");
    let running = house.run();
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>tell</goal><code>not-in-vocabulary</code>"), "{sent:?}");
    assert_each_cancelled_once(&house, 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_list_is_declined_where_its_question_has_left_the_config() {
    let (house, running, _) = reported_to_owner("\"owner\"");
    assert_eq!(running.stop(), Some(0));
    let running = house.run();
    let listed = house.organism(&["answer", "--json"]).json();
    let [report] = listed.as_slice() else { panic!("{listed:?}") };
    let id = report["message"].as_str().unwrap();
    let declined = house.organism(&["refuse", id, "--reason", "it is settled"]);
    assert_eq!(declined.code, Some(0), "{declined:?}");
    let listed = house.organism(&["answer", "--json"]).json();
    assert!(listed.is_empty(), "{listed:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
