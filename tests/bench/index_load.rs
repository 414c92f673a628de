//! The follower of the index beside a relay: its lag at half load, and its speed after a burst.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use organism::clock::Time;
use organism::index::INDEX_DATABASE;
use rusqlite::{Connection, OpenFlags};

use super::figures::{Bench, median_of};
use super::floor::directory;
use super::relay;

const THREADS: usize = 64;
/// Time between two samples of the lag.
const SAMPLE: Duration = Duration::from_millis(20);

/// Adds two figures:
/// - the speed of the relay at half load with the index follower, compared with the speed without
///   the follower;
/// - the greatest lag of the index.
///
/// Runs with and without the follower alternate.
pub fn half_load(bench: &mut Bench) {
    let full = relay::native_without_index(&directory("relay"), THREADS, bench.span, None);
    let calls_per_second = full.hops_per_second() / 2.0 / relay::HOPS as f64;
    let interval = Some(Duration::from_secs_f64(THREADS as f64 / calls_per_second));

    let runs: Vec<[f64; 3]> = (0..bench.runs)
        .map(|_| {
            let place = directory("relay");
            let without = relay::native_without_index(&place, THREADS, bench.span, interval);
            let place = directory("relay");
            let (is_running, has_ended) = channel();
            let lag = sample_lag(&place, has_ended);
            let with = relay::native_paced(&place, THREADS, bench.span, interval);
            drop(is_running);
            [with.hops_per_second(), without.hops_per_second(), lag.join().unwrap()]
        })
        .collect();

    let of = |which: usize| median_of(runs.iter().map(|run| run[which]));
    bench.figures.add("relay_indexed_half", of(0), "messages/s", Some(of(1)));
    bench.figures.add_small("index_lag_half", of(2), "s");
}

/// Starts a thread that samples the lag of the index: the age of the first record that the index
/// lacks. The thread ends when the sender of `has_ended` is dropped, and returns the greatest lag
/// in seconds.
fn sample_lag(place: &Path, has_ended: Receiver<()>) -> JoinHandle<f64> {
    let data = place.join("data");
    std::thread::spawn(move || {
        let mut greatest: f64 = 0.0;
        while has_ended.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
            greatest = greatest.max(lag(&data).unwrap_or(0.0));
        }
        greatest
    })
}

/// Returns the lag of the index in seconds; `None` if the index has all records, or does not exist
/// yet.
fn lag(data: &Path) -> Option<f64> {
    let position = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'position'";
    let position: i64 = number(&data.join(INDEX_DATABASE), position)?;
    let time = format!("SELECT time FROM step WHERE position = {}", position + 1);
    let time = number(&data.join("journal.db"), &time)?;
    Some((Time::now().0 - time) as f64 / 1e6)
}

fn number(file: &Path, sql: &str) -> Option<i64> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    db.query_row(sql, [], |row| row.get(0)).ok()
}

/// Speed at which the index catches up with the messages of a burst.
pub fn burst(bench: &mut Bench) {
    let rates = (0..bench.runs).map(|_| {
        let place = directory("relay");
        relay::native_in(&place, THREADS, Duration::from_secs(1));
        catch_up(&place);
        let before = messages(&place);
        relay::native_without_index(&place, THREADS, bench.span, None);

        let began = Instant::now();
        catch_up(&place);
        let took = began.elapsed().as_secs_f64();
        (messages(&place) - before) / took
    });
    let rates: Vec<f64> = rates.collect();
    bench.figures.add("index_burst", median_of(rates.into_iter()), "messages/s", None);
}

/// Lets another process bring the index up to date.
fn catch_up(place: &Path) {
    let program = std::env::current_exe().unwrap();
    let made = Command::new(program).arg("index").arg(place.join("data")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Number of messages in the index.
fn messages(place: &Path) -> f64 {
    let file = place.join("data").join(INDEX_DATABASE);
    number(&file, "SELECT count(*) FROM message_row").unwrap() as f64
}
