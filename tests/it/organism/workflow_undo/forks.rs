//! Runs in forks. The history of a fork consists of the records of its source. An undo or a retry
//! in the fork also covers the calls in this history.

use super::super::bookings::BANK;
use super::super::try_threads::trial;
use super::super::until;
use super::{CONFIG, house, ledger, send};

#[test]
fn a_run_in_a_fork_undoes_and_retries_what_its_history_has_done() {
    let house = house(CONFIG);
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal><code>charge-failed</code>"), "{sent:?}");
    let done = ledger(&house);
    let running = house.run();

    // The agent has booked before this turn, and so has the run itself.
    let mut turns = house.messages_of("sess-travel00").into_iter();
    let (turn, _) = turns.rfind(|(_, name)| name == "model-turn").unwrap();
    let forked = house.organism(&["fork", &turn.to_string()]);
    assert_eq!(forked.out, sent.out, "{forked:?}");
    let cancelled = house.messages("cancel").into_iter();
    let of_fork = cancelled.filter(|(_, thread)| thread.root().as_str() != "sess-travel00");
    assert_eq!(of_fork.count(), 3, "two of three bookings are in the history: {forked:?}");

    // All calls of the run are in the history of this fork.
    let (result, _) = house.messages("trip-failed").remove(0);
    let forked = house.organism(&["fork", &result.to_string(), "--json"]);
    let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();
    let shown = house.organism(&["workflow", "show", &fork]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.err.contains("covers no call"), "its calls are undone: {shown:?}");
    let retried = house.organism(&["workflow", "retry", &fork, "--no-wait"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let listed = until("the retry books again", || {
        let listed = house.organism(&["approvals"]);
        (listed.out.contains(&fork) || house.log().contains("crashed")).then_some(listed.out)
    });
    assert!(listed.contains("hotel"), "{listed} {}", house.log());

    assert_eq!(ledger(&house), done, "no effect happened again");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A call that failed after its hand-over may have had an effect. In a fork, in a fork of the fork
/// and in a trial, the result of the run lists this call as it does in the source.
#[test]
fn the_list_of_a_failed_run_has_a_call_that_failed_after_its_hand_over_in_every_fork() {
    let house = house(&CONFIG.replace(BANK, &format!("{BANK}attempts = 1\n")));
    // The bank answers with a payload that it must not send.
    house.write("refuse-charge", "");
    let sent = send(&house, &[]);
    let listed = "<not-undone><listener>bank</listener>";
    assert!(sent.out.contains(listed), "{sent:?}");

    let (request, _) = house.messages("trip").remove(0);
    let forked = house.organism(&["fork", &request.to_string()]);
    assert!(forked.out.contains(listed), "{forked:?}");
    let (before, _) = forked.err.split_once(", a fork of sess-travel00").unwrap();
    let fork = before.rsplit(' ').next().unwrap();
    let mut turns = house.messages_of(fork).into_iter();
    let (turn, _) = turns.rfind(|(_, name)| name == "model-turn").unwrap();
    let of_fork = house.organism(&["fork", &turn.to_string()]);
    assert!(of_fork.out.contains(listed), "{of_fork:?}");
    let tried = trial(&house, &["organism.toml", "--threads", "sess-travel00"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    house.verified();
}

/// A fork at a turn and a fork after the result list the same calls as their source.
#[test]
fn the_list_of_an_undo_has_the_calls_in_the_history_of_a_fork() {
    let house = house(&CONFIG.replace("on_failure = \"undo\"\n", ""));
    let sent = send(&house, &[]);
    assert!(sent.out.contains("<goal>pay</goal>"), "{sent:?}");
    let mut turns = house.messages_of("sess-travel00").into_iter();
    let (turn, _) = turns.rfind(|(_, name)| name == "model-turn").unwrap();
    let (result, _) = house.messages("trip-failed").remove(0);

    let listed = |thread: &str| {
        let shown = house.organism(&["workflow", "show", thread]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.out.replace(thread, "RUN")
    };
    let expected = listed("sess-travel00");
    assert_eq!(expected.matches("<cancel ").count(), 3, "{expected}");
    for place in [turn, result] {
        let forked = house.organism(&["fork", &place.to_string(), "--json"]);
        let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();
        assert_eq!(listed(&fork), expected, "{place}");
        let written = house.organism(&["workflow", "test", "--from", &fork]);
        assert_eq!(written.code, Some(2), "the source has its answers: {written:?}");
    }
    house.verified();
}

/// A cancelled run undoes nothing. Its fork continues from the cancellation. A call that was open
/// then has no recorded result, so it waits for an approval in the fork.
#[test]
fn the_fork_of_a_cancelled_run_goes_on_from_the_cancellation() {
    let house = house(CONFIG);
    house.write("hold-charge-1", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    let charged = || ledger(&house).contains(&"charge 1".to_owned()).then_some(());
    until("the payment is under way", charged);
    let cancelled = house.organism(&["cancel", "sess-travel00"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-charge-1")).unwrap();
    let done = ledger(&house);

    let mut turns = house.messages_of("sess-travel00").into_iter();
    let (turn, _) = turns.rfind(|(_, name)| name == "model-turn").unwrap();
    let forked = house.organism(&["fork", &turn.to_string(), "--no-wait"]);
    let held = until("a call waits", || {
        house.organism(&["approvals", "--json"]).json().into_iter().next()
    });
    assert_eq!(held["to"], "bank", "{held} {forked:?}");
    assert_eq!(house.messages("trip-failed").len(), 0);
    assert_eq!(ledger(&house), done, "no effect happened again");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// If an operator cancels only a part of a run, the workflow above this part handles its end. A
/// fork takes over what was recorded, and no call in the fork waits for a decision.
#[test]
fn the_fork_of_a_run_of_which_a_part_was_cancelled_ends_as_the_run() {
    let house = house(CONFIG);
    house.write("hold-book-3", "");
    let running = house.run();
    send(&house, &["--no-wait"]);
    let booked = || ledger(&house).contains(&"book 3".to_owned()).then_some(());
    until("the booking of the workflow beneath is under way", booked);
    let (_, thread) = house.messages("book").pop().unwrap();
    let thread = thread.parent().unwrap();
    assert!(!thread.is_root(), "{thread}");
    let cancelled = house.organism(&["cancel", thread.as_str()]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    std::fs::remove_file(house.path("hold-book-3")).unwrap();
    let ended = until("the run ends", || house.messages("trip-failed").pop());
    let done = ledger(&house);

    let mut turns = house.messages_of("sess-travel00").into_iter();
    let (turn, _) = turns.rfind(|(_, name)| name == "model-turn").unwrap();
    let forked = house.organism(&["fork", &turn.to_string(), "--no-wait"]);
    assert_eq!(forked.code, Some(0), "{forked:?} {ended:?}");
    until("the fork ends", || {
        let held = house.organism(&["approvals"]).out;
        assert!(!held.contains("hotel"), "a call of the fork waits: {held}");
        (house.messages("trip-failed").len() == 2).then_some(())
    });
    assert_eq!(ledger(&house), done, "no effect happened again");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
