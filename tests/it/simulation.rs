//! Simulation of everything that can fail around a pump, from a seed. It runs the pure core with a
//! simulated journal, clock, model, person, clients, operators and six listeners. Each boundary has
//! faults: an action is omitted, is done in part, or is done and its answer is lost.
//!
//! Three faults need real files, servers or processes, and have seeded campaigns of their own: a
//! forged tail (`organism::forged_tails`), a shortened stream (`organism::pumps::shorter`), and
//! processes that forge at the control socket (`organism::forgers`).
//!
//! `SIMULATION_SEEDS` sets the number of seeds, `SIMULATION_SEED` the first one. Each seed gives
//! one run, which is always the same.

mod bill;
mod faults;
mod judge;
mod listeners;
mod machine;
mod neighbour;
pub mod run;

use std::panic::catch_unwind;
use std::sync::{Arc, OnceLock};

use crate::campaign::Campaign;
use faults::{Fault, Tally};
use run::{Run, Totals, is_resting, run_with};

/// Number of seeds of a short run, in which each fault must happen. `make torture` runs more.
const SEEDS: u64 = 125;
/// Number of seeds that run twice in a short run: once with trees that leave memory, and once with
/// trees that stay in memory.
const COMPARED_SEEDS: u64 = 30;

/// The run of a seed. The tests share the runs of the first seeds.
fn run(seed: u64) -> Arc<Run> {
    static FIRST_RUNS: [OnceLock<Arc<Run>>; COMPARED_SEEDS as usize] =
        [const { OnceLock::new() }; COMPARED_SEEDS as usize];

    let new_run = || Arc::new(run::run(seed));
    let first = usize::try_from(seed).ok().and_then(|seed| FIRST_RUNS.get(seed));
    first.map_or_else(new_run, |shared| Arc::clone(shared.get_or_init(new_run)))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn whatever_fails_nothing_is_lost_or_doubled_and_every_call_has_its_result() {
    let first = variable("SIMULATION_SEED").unwrap_or(1);
    let seeds = variable("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let mut campaign = Campaign::new("simulation");
    let (mut tally, mut totals) = (Tally::default(), Totals::default());
    for seed in first..first + seeds {
        match catch_unwind(|| run(seed)) {
            Ok(run) => {
                tally.add(&run.tally);
                totals.add(&run.totals);
            }
            Err(panic) => {
                campaign.note(format!("SIMULATION_SEED={seed} SIMULATION_SEEDS=1"));
                std::panic::resume_unwind(panic);
            }
        }
    }
    campaign.note(format!("{seeds} seeds, {totals}; {tally}"));
    let never = tally.never();
    assert!(never.is_empty() || seeds < SEEDS, "these faults never happened: {never:?}");
    assert!(totals.turned_away > 0 || seeds < SEEDS, "nobody met a full disk");
    assert!(totals.charged_after > 0 || seeds < SEEDS, "no cancelled stream cost anything");
}

#[test]
fn a_seed_runs_exactly_as_it_did_before() {
    for seed in [7, 8, 9] {
        let (one, two) = (run(seed), run::run(seed));
        assert!(one.records == two.records, "two runs of seed {seed} differ");
        assert_eq!(one.tally, two.tally);
    }
}

/// A seed gives the same records in both cases: when trees at rest leave memory and come back, and
/// when all trees stay in memory.
#[test]
fn the_records_are_the_same_whether_trees_at_rest_leave_memory_or_not() {
    let seeds = variable("SIMULATION_SEEDS").unwrap_or(COMPARED_SEEDS).min(100);
    for seed in 0..seeds {
        // In one of these two ways, the seed has run already.
        let (one, other) = (run(seed), run_with(seed, !is_resting(seed)));
        assert!(one.records == other.records, "two runs of seed {seed} differ");
        assert_eq!(one.tally, other.tally);
    }
}

#[test]
fn a_run_without_faults_has_none() {
    assert_eq!(run(0).tally.never().len(), Fault::ALL.len(), "seed 0 is the quiet one");
}
