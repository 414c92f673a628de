//! Kills at each failpoint that the run passes.

use organism::failpoint::{JETSTREAM, JOURNAL, PUMP};

use super::super::kill::{Choices, choices, start};
use super::super::{House, until};
use super::judge::RunHistory;
use super::{assert_resumed, dies_at, house, outlives_run};
use crate::campaign::Campaign;

/// Maximum number of runs until every failpoint has been hit.
const RUNS_MAX: usize = 20;

/// Failpoints that one run passes only once: when the organism starts, or when a client gets its
/// receipt.
const ONCE: [&str; 5] =
    ["before-boot", "epoch-raised", "during-recovery", "before-receipt", "after-receipt"];
/// Failpoints at the result, which ends the run.
const LAST: [&str; 2] = ["before-result", "after-result"];
/// Failpoints that a pump passes when it stops, and when it has rested for some time.
const AT_STOP: [&str; 3] = ["before-checkpoint", "after-checkpoint", "after-outside-line"];

/// All failpoints, in the order in which one run can pass them.
fn places() -> Vec<&'static str> {
    let is_streamed = std::env::var_os("ORGANISM_TEST_NATS").is_some();
    let streamed = JETSTREAM.into_iter().filter(|_| is_streamed);
    let mut places: Vec<_> = JOURNAL.into_iter().chain(streamed).chain(PUMP).collect();
    places.sort_by_key(|place| (AT_STOP.contains(place), LAST.contains(place)));
    places
}

/// Kills the organism at a failpoint. Returns whether the run passed the failpoint.
fn dies_at_place(house: &House, place: &str, choices: &mut Choices) -> bool {
    if AT_STOP.contains(&place) {
        house.write("log", "");
        let running = start(house, Some(place));
        until("it is ready", || house.log().contains("is ready").then_some(()));
        assert_eq!(running.stop(), None, "it dies before it has stopped");
        return true;
    }

    let is_passed_once = ONCE.contains(&place) || LAST.contains(&place);
    let nth = if is_passed_once { 1 } else { 2 + choices.below(6) };
    let Some(running) = outlives_run(house, &format!("{place}:{nth}")) else {
        return true;
    };

    // The result is on record before these places are passed.
    LAST.contains(&place) && running.stop().is_none()
}

#[test]
fn a_run_that_is_killed_at_each_place_in_the_code_resumes_and_does_nothing_twice() {
    let mut report = Campaign::new("kills of a workflow at each place");
    let mut choices = choices();
    let mut left = places();
    let all = left.len();
    let (mut runs, mut repeated, mut charged) = (0, 0, 0);
    while (!left.is_empty() || charged == 0) && runs < RUNS_MAX {
        let house = house();
        // An empty journal has nothing to recover. The first answers are those of models.
        assert!(dies_at(&house, "answered:3"));
        while let Some(place) = left.first().copied() {
            let is_near_failure = RunHistory::of(&house).has_workflow_at_last_attempt();
            if is_near_failure || !dies_at_place(&house, place, &mut choices) {
                break;
            }
            left.remove(0);
        }

        let history = assert_resumed(&house);
        repeated += history.repeated_turns();
        charged += history.charged_turns();
        runs += 1;
    }

    report.note(format!("{} of {all} places, {runs} runs", all - left.len()));
    report.note(format!("{repeated} turns of models repeated, {charged} charged"));
    assert_eq!(left, Vec::<&str>::new());
    assert!(charged > 0, "no model call was lost");
}
