//! Processor time and journal bytes of one hop: `bench hop native|process SECONDS`.
//!
//! To compare two builds, alternate runs of the first and the second build, so that changes in the
//! machine's speed affect both alike. The index follower is stopped, because its work is no part of
//! the message path. Processor time is user and system time of this program and of the listener
//! processes.

use std::path::Path;
use std::time::Duration;

use super::relay;

/// Duration of a tick of `/proc/PID/stat` in microseconds.
const TICK_MICROS: f64 = 10_000.0;

/// Default duration of a run in seconds.
const SECONDS: u64 = 5;

/// Prints the number of hops of one run, and for each hop the processor time in microseconds and
/// the bytes of the journal.
pub fn measure() {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let host = arguments.first().map_or("native", String::as_str);
    let seconds = arguments.get(1).map_or(SECONDS, |text| text.parse().unwrap());

    let before = spent_micros();
    let hops = relay::hops(host, Duration::from_secs(seconds));
    let spent = (spent_micros() - before) / hops as f64;

    let journal = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/relay/data/journal.db");
    let bytes = Path::new(journal).metadata().unwrap().len();
    println!("{hops} hops, {spent:.2} us, {:.1} bytes", bytes as f64 / hops as f64);
}

/// User and system time of this process and of its children that have ended, in microseconds.
pub fn spent_micros() -> f64 {
    spent_micros_of(std::process::id())
}

/// User and system time of a process and of its children that have ended, in microseconds.
pub fn spent_micros_of(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name of the program is in parentheses and may contain spaces.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(4).map(|field| field.parse::<f64>().unwrap()).sum();
    ticks * TICK_MICROS
}
