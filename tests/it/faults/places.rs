//! A crash at every failpoint of the product, under load.

use std::time::Duration;

use organism::audit;
use organism::failpoint::{JOURNAL, PUMP};

use crate::campaign::Campaign;
use crate::organism::House;
use crate::organism::kill::clients::Clients;
use crate::organism::kill::{end_within, house, settle, start, torture};

/// Failpoints that each start of an organism passes exactly once.
const ONCE_A_START: [&str; 3] = ["before-boot", "epoch-raised", "during-recovery"];
const LATER_PASS: u64 = 7;
/// Time-out of the wait for a checkpoint. A checkpoint is due every ten seconds, or sooner under a
/// higher load than in this test.
const CHECKPOINTS: Duration = Duration::from_secs(30);

/// Runs an organism under the load of waiting clients until it crashes at `failpoint`, and then
/// verifies its journal.
fn die(house: &House, failpoint: &str, patience: Duration) {
    let mut running = start(house, Some(failpoint));
    let signal = end_within(&mut running.child, patience);
    assert_eq!(signal, Some(6), "{failpoint}: {}", house.log());
    proved(house, failpoint);
}

/// Checks that `organism verify` accepts the journal, or that the journal is missing because the
/// first commit did not happen.
fn proved(house: &House, failpoint: &str) {
    match audit::verify(&house.data(), None, &mut |_, _| {}) {
        Ok(report) => assert_eq!(report.broken, None, "{failpoint}"),
        Err(organism::journal::Error::Missing { .. }) => {}
        Err(error) => panic!("{failpoint}: {error}"),
    }
}

#[test]
fn a_death_at_any_place_loses_nothing_and_does_nothing_twice() {
    let mut campaign = Campaign::new("death at every place");
    let house = house();
    let clients = Clients::start_few(&house);
    let places = PUMP.iter().chain(&JOURNAL);
    for place in places.clone() {
        die(&house, place, CHECKPOINTS);
    }
    campaign.note(format!("each of {} places", places.clone().count()));
    if torture() {
        for place in places {
            if ONCE_A_START.contains(place) {
                (0..LATER_PASS).for_each(|_| die(&house, place, CHECKPOINTS));
            } else {
                let patience = CHECKPOINTS * u32::try_from(LATER_PASS).unwrap();
                die(&house, &format!("{place}:{LATER_PASS}"), patience);
            }
        }
        campaign.note(format!("and each at its pass {LATER_PASS}"));
    }
    campaign.note(settle(&house, clients));
}

#[test]
fn deaths_in_a_row_while_recovering_lose_nothing_and_do_nothing_twice() {
    let deaths = if torture() { 5 } else { 3 };
    let house = house();
    let mut campaign = Campaign::new("death while recovering");
    let clients = Clients::start_few(&house);
    die(&house, "after-deliver:100", CHECKPOINTS);
    for place in ["during-recovery", "epoch-raised", "before-boot", "stepped", "before-commit:2"] {
        (0..deaths).for_each(|_| die(&house, place, CHECKPOINTS));
        campaign.note(format!("{place} {deaths} times in a row"));
    }
    campaign.note(settle(&house, clients));
}
