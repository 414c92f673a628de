//! Speed of the relay benchmark on a long journal, and with many threads.

use super::figures::{Bench, median_of};
use super::floor::directory;
use super::relay::{self, ROUNDS};
use super::start;

const THREADS: usize = 64;

/// Speed of the relay on a journal with 1,000,000 messages, compared with a journal with 10,000
/// messages.
pub fn messages(bench: &mut Bench) {
    grown(bench, "relay_growth", [10_000, 1_000_000], ROUNDS);
}

/// Speed of the relay on a journal with 100,000 threads of one exchange each, compared with a
/// journal with 1,000 threads.
pub fn threads(bench: &mut Bench) {
    // An exchange is a call and its result: two records.
    grown(bench, "relay_growth_threads", [2_000, 200_000], 0);
}

/// Adds the speed of the relay on a long journal as a figure, with the speed on a short journal as
/// its floor. The runs on the two journals alternate, so that changes in the disk's speed affect
/// both alike.
fn grown(bench: &mut Bench, name: &str, records: [usize; 2], rounds: usize) {
    if bench.quick {
        return;
    }
    let places = ["short", "long"].map(directory);
    for (place, records) in places.iter().zip(records) {
        start::fill(place, records, rounds);
    }
    let run =
        |place: &std::path::PathBuf| relay::native_in(place, THREADS, bench.span).hops_per_second();
    let ran: Vec<[f64; 2]> = (0..bench.runs).map(|_| [run(&places[0]), run(&places[1])]).collect();
    let of = |which: usize| median_of(ran.iter().map(|pair| pair[which]));
    let (short, long) = (of(0), of(1));
    bench.figures.add(name, long, "messages/s", Some(short));
}
