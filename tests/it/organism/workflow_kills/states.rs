//! Kills in each named state of the run, in the order in which the run reaches these states.

use std::collections::BTreeSet;

use super::super::kill::torture;
use super::judge::{DeathState, RunHistory};
use super::{assert_resumed, dies_at, house};
use crate::campaign::Campaign;

/// Maximum number of runs until every state has been hit.
const RUNS_MAX: usize = 16;

/// A named state of the run: the call `in_flight` is in flight, and the call `completed`, if there
/// is one, has ended.
struct NamedState {
    name: &'static str,
    /// Label of a call in flight. A label that ends with `_` stands for every label that begins
    /// with it.
    in_flight: &'static str,
    completed: Option<&'static str>,
}

const fn state(name: &'static str, in_flight: &'static str) -> NamedState {
    NamedState { name, in_flight, completed: None }
}

const fn state_after(
    name: &'static str,
    in_flight: &'static str,
    completed: &'static str,
) -> NamedState {
    NamedState { name, in_flight, completed: Some(completed) }
}

const STATES: [NamedState; 16] = [
    state("the first goal is open", "outline"),
    state("a workflow beneath has called a listener", "trip.room"),
    state("an item of a listener is open", "units_"),
    state("agents work at once", "views_critic"),
    state("an item of an agent is open", "study_1"),
    state_after("one item has its answer and another has none", "study_2", "study_1"),
    state("an item is verified", "check_1"),
    state_after("one has voted and another has not", "pick_reader-2", "pick_reader"),
    state_after("a rejected item runs again", "study_2-1", "check_2"),
    state("a goal runs in the first pass", "draft_1"),
    state_after("a goal runs in the second pass", "critique_2", "draft_2"),
    state_after("the supervisor is asked", "polish_supervisor", "polish"),
    state_after("a corrected goal runs again", "polish-1", "polish_supervisor"),
    state("a role works", "report.reader_1"),
    state_after("the call before the undo is open", "trip.pay", "trip.room"),
    state_after("an undo is in flight", "trip.undo_", "trip.pay"),
];

impl NamedState {
    fn is_in(&self, death: &DeathState) -> bool {
        let is_meant = |label: &String| match self.in_flight.ends_with('_') {
            true => label.starts_with(self.in_flight),
            false => label == self.in_flight,
        };
        let has_ended = |label: &str| death.completed.contains(label);
        death.in_flight.iter().any(is_meant) && self.completed.is_none_or(has_ended)
    }
}

/// Kills one run in each of the states `aims` that the run reaches, and checks the run's record.
/// Returns the states in which the run was killed, and the history of the run.
fn killed_in(aims: &[&NamedState]) -> (BTreeSet<&'static str>, RunHistory) {
    let house = house();
    for aim in aims {
        if !dies_at(&house, &format!("after-deliver@sess-grandrun.{}", aim.in_flight)) {
            break;
        }
        // A workflow whose attempts are used up ends as failed, and undoes nothing.
        if RunHistory::of(&house).has_workflow_at_last_attempt() {
            break;
        }
    }
    let history = assert_resumed(&house);
    let is_hit = |state: &&NamedState| history.deaths.iter().any(|death| state.is_in(death));
    let hit = STATES.iter().filter(is_hit).map(|state| state.name).collect();
    (hit, history)
}

#[test]
fn a_run_that_is_killed_in_each_of_its_states_resumes_and_does_nothing_twice() {
    let mut report = Campaign::new("kills in each state of a workflow");
    let mut hit = BTreeSet::new();
    let (mut kills, mut repeated, mut runs) = (0, 0, 0);
    // Goals that run at once pass some states while another one is waited for.
    while hit.len() < STATES.len() && runs < RUNS_MAX {
        let left: Vec<_> = STATES.iter().filter(|state| !hit.contains(state.name)).collect();
        let (states, history) = killed_in(&left);
        hit.extend(states);
        kills += history.deaths.len();
        repeated += history.repeated_turns();
        runs += 1;
    }

    if torture() {
        // Each state alone, so that everything before it ran undisturbed.
        for state in &STATES {
            let (states, history) = killed_in(&[state]);
            assert!(states.contains(state.name), "{}", state.name);
            kills += history.deaths.len();
            runs += 1;
        }
    }
    report.note(format!("{} of {} states, {kills} starts", hit.len(), STATES.len()));
    report.note(format!("{runs} runs, {repeated} turns of models repeated"));
    let missed = STATES.iter().map(|state| state.name).filter(|name| !hit.contains(name));
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<&str>::new());
}
