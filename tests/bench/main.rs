//! What the message path costs beside the floor under it: `make bench`.
//!
//! Every figure is the median of several runs and stands beside a floor measured in the same
//! run, as the disk of a shared machine is never the same twice.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench that panics has failed, and its table goes to the terminal"
)]

mod fair;
mod figures;
mod floor;
mod memory;
mod relay;
mod start;

use std::time::Duration;

use figures::Figures;

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs per figure; the median counts.
const RUNS: usize = 5;

fn main() {
    // A process listener of the relay is this program again.
    if std::env::args().nth(1).as_deref() == Some("listener") {
        relay::listen();
    }
    if std::env::args().nth(1).as_deref() == Some("rest") {
        return memory::rest();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    let quick = std::env::var_os("BENCH_QUICK").is_some();
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let (runs, span) = if quick { (1, seconds.unwrap_or(1)) } else { (RUNS, seconds.unwrap_or(3)) };
    let span = Duration::from_secs(span);
    let mut figures = Figures::new();

    let batched = figures::median(runs, || floor::rows_per_second(64, span));
    let checked = figures::median(runs, || floor::checked_rows_per_second(64, span));
    let single = figures::median(runs, || floor::micros_per_commit(span));
    figures.add("floor_rows_64", batched, "rows/s", None);
    figures.add("floor_checked_rows_64", checked, "rows/s", Some(batched));
    figures.add("floor_commit_1", single, "us", None);

    type Run = (&'static str, &'static str, f64, fn(Duration) -> f64);
    let relays: [Run; 3] = [
        ("relay_native_t64", "messages/s", batched, |s| relay::native(64, s).hops_per_second()),
        ("relay_native_t1", "us", single, |s| relay::native(1, s).micros_per_hop()),
        ("relay_process_t64", "messages/s", batched, |s| relay::process(64, s).hops_per_second()),
    ];
    for (name, unit, floor, run) in relays.into_iter().filter(|(name, ..)| is_wanted(name)) {
        figures.add(name, figures::median(runs, || run(span)), unit, Some(floor));
    }
    if is_wanted("fair_p99") {
        let ran: Vec<_> = (0..runs).map(|_| fair::p99(span)).collect();
        let idle = figures::median_of(ran.iter().map(|(_, idle)| *idle));
        let busy = figures::median_of(ran.iter().map(|(busy, _)| *busy));
        figures.add("fair_p99", busy, "us", Some(idle));
    }
    for (name, records) in [("start_100k", 100_000), ("start_1m", 1_000_000)] {
        if is_wanted(name) && !(quick && records > 100_000) {
            figures.add(name, 1e3 * start::on_journal(records, runs), "ms", None);
        }
    }
    let starts: [(&str, fn() -> f64); 2] =
        [("cold_start_check", start::check), ("cold_start_run", start::run)];
    for (name, run) in starts.into_iter().filter(|(name, _)| is_wanted(name)) {
        figures.add(name, figures::median(runs, run), "ms", None);
    }
    let sizes: [(&str, fn() -> Option<f64>); 2] =
        [("rss_idle", memory::idle), ("rss_10k_threads", memory::at_rest)];
    for (name, size) in sizes.into_iter().filter(|(name, _)| is_wanted(name)) {
        match size() {
            Some(megabytes) => figures.add(name, megabytes, "MB", None),
            None => println!("{name:<24} not measured: there is no /proc"),
        }
    }
    figures.write();
}
