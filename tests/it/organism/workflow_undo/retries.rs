//! Several retries of one run, of which an earlier one has undone calls of the run.

use super::repeats::{PAY, RETRY, ROOM, request_retry, requests};
use super::{CONFIG, CommandOutput, House, house, ledger, send, until};

/// Returns a house whose run has booked rooms and was cancelled at the payment, and the id of the
/// run. The cancelled run has undone nothing.
fn cancelled_at_payment(goals: &str) -> (House, String) {
    let (config, _) = CONFIG.split_once("[workflows.trip.goals]\n").unwrap();
    let house = house(&format!("{config}[workflows.trip.goals]\n{goals}"));
    cancel_at_payment(&house, |house| send(house, &["--no-wait"]));
    let run = requests(&house, "trip").remove(0);
    (house, run)
}

/// Cancels the run that `begin` requests, as soon as it has requested the payment.
fn cancel_at_payment(house: &House, begin: impl FnOnce(&House) -> CommandOutput) {
    house.write("hold-charge-1", "");
    let running = house.run();
    let earlier = ledger(house).len();
    let begun = begin(house);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let pays = || ledger(house).iter().skip(earlier).any(|entry| entry == "charge 1");
    until("it pays", || pays().then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_call_that_another_retry_of_the_run_has_undone_is_made_again_and_not_undone_twice() {
    let (house, run) = cancelled_at_payment(&format!("{ROOM}{PAY}"));
    house.organism(RETRY);
    assert_eq!(ledger(&house), ["book 1", "charge 1", "charge 1", "cancel 1-1"]);

    let again = " again=\"true\"";
    let failed = request_retry(&house, &run, again, &[]);
    assert!(failed.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{failed:?}");
    assert!(!failed.out.contains("not-undone"), "{failed:?}");
    assert_eq!(ledger(&house)[4..], ["book 1", "charge 1", "cancel 1-5"]);
    let shown = house.organism(&["workflow", "show", "sess-travel00"]);
    assert!(shown.err.contains("covers no call"), "{shown:?}");

    house.write("accept-charge", "");
    let completed = request_retry(&house, &run, again, &[]);
    assert_eq!(completed.code, Some(0), "{completed:?}");
    assert_eq!(ledger(&house)[7..], ["book 1", "charge 1"], "it has a room that is booked");
    house.verified();
}

/// The operator's retry goes on from the same run as the retry that was cancelled.
#[test]
fn a_retry_that_was_cancelled_in_its_undo_and_is_sent_again_undoes_nothing_twice() {
    let second = "second = { listener = \"hotel\", payload = \"book\", with = { n = \"'2'\" } }\n";
    let (house, run) = cancelled_at_payment(&format!("{ROOM}{second}{PAY}"));
    house.write("hold-cancel-1-1", "");
    let running = house.run();
    let begun = request_retry(&house, &run, "", &["--no-wait"]);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    until("it cancels the first room", || (ledger(&house).len() == 6).then_some(()));
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-cancel-1-1")).unwrap();
    assert_eq!(ledger(&house)[3..], ["charge 1", "cancel 2-2", "cancel 1-1"]);

    let retry = requests(&house, "trip-retry").remove(0);
    let retried = house.organism(&["retry", &retry, "--again"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until("it fails", || house.messages("trip-failed").pop());
    let undone = ["book 1", "book 2", "charge 1", "cancel 2-8", "cancel 1-7"];
    assert_eq!(ledger(&house)[6..], undone);
    let shown = house.organism(&["thread", "sess-travel00", "--full"]);
    assert_eq!(shown.out.matches("undo-failed").count(), 1, "its outcome is unknown: {shown:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The undone call belongs to the first run. The second run has made a call of its own for the same
/// goal, and the last retry goes on from that one.
#[test]
fn a_retry_keeps_a_call_that_its_run_has_made_anew_when_another_retry_undoes_the_earlier_one() {
    let (house, run) = cancelled_at_payment(&format!("{ROOM}{PAY}"));
    let from_room = " from=\"room\"";
    cancel_at_payment(&house, |house| request_retry(house, &run, from_room, &["--no-wait"]));
    let second = requests(&house, "trip-retry").remove(0);

    let failed = request_retry(&house, &run, " again=\"true\"", &[]);
    assert!(failed.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{failed:?}");
    let lines = ["book 1", "charge 1", "book 1", "charge 1", "charge 1", "cancel 1-1"];
    assert_eq!(ledger(&house), lines);

    house.write("accept-charge", "");
    let completed = request_retry(&house, &second, "", &[]);
    assert_eq!(completed.code, Some(0), "{completed:?}");
    assert_eq!(ledger(&house)[6..], ["charge 1"], "the second room is still booked");
    house.verified();
}
