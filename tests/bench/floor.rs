//! The floor of the figures: the speed of a bare SQLite loop with the journal's settings, and of a
//! loop in which libxml2 also parses and validates every row.

use std::time::{Duration, Instant};

use organism::ids::PayloadName;
use organism::schema::Schemas;
use rusqlite::Connection;

use super::figures::{Figures, median};

pub const TASK: &str = include_str!("../data/bench/task.xml");
pub const TASK_SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/bench/task.xsd");

/// Idle time before a commit, as long as the delay of a model in the figures of agents. A disk that
/// was idle syncs more slowly.
const IDLE_TIME: Duration = Duration::from_millis(50);

/// The speed of a bare SQLite loop on this machine at this moment.
#[derive(Debug)]
pub struct Floors {
    /// Rows of 1 KB per second, in commits of 64.
    pub rows: f64,
    /// Duration of a commit with one row, in microseconds.
    pub commit: f64,
}

impl Floors {
    pub fn measured(figures: &mut Figures, runs: usize, span: Duration) -> Self {
        let batched = median(runs, || rows_per_second(64, span));
        let checked = median(runs, || checked_rows_per_second(64, span));
        let commit = median(runs, || micros_per_commit(span, Duration::ZERO));
        let after_idle = median(runs, || micros_per_commit(span, IDLE_TIME));
        figures.add("floor_rows_64", batched, "rows/s", None);
        figures.add("floor_checked_rows_64", checked, "rows/s", Some(batched));
        figures.add("floor_commit_1", commit, "us", None);
        figures.add("floor_commit_1_idle", after_idle, "us", Some(commit));
        Self { rows: batched, commit }
    }
}

/// An empty directory on the measured disk.
pub fn directory(name: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench").join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn database() -> Connection {
    let db = Connection::open(directory("floor").join("rows.db")).unwrap();
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = 10000; CREATE TABLE row(id INTEGER PRIMARY KEY, body TEXT);";
    db.execute_batch(settings).unwrap();
    db
}

fn rows(batch: usize, span: Duration, mut check: impl FnMut()) -> f64 {
    let mut db = database();
    let (began, mut rows) = (Instant::now(), 0_usize);
    while began.elapsed() < span {
        let commit = db.transaction().unwrap();
        for _ in 0..batch {
            check();
            let mut insert = commit.prepare_cached("INSERT INTO row(body) VALUES (?1)").unwrap();
            insert.execute([TASK]).unwrap();
        }
        commit.commit().unwrap();
        rows += batch;
    }
    rows as f64 / began.elapsed().as_secs_f64()
}

fn rows_per_second(batch: usize, span: Duration) -> f64 {
    rows(batch, span, || {})
}

fn checked_rows_per_second(batch: usize, span: Duration) -> f64 {
    let mut schemas = Schemas::default();
    schemas.add_file(TASK_SCHEMA.as_ref()).unwrap();
    let name = PayloadName::new("urn:bench:relay:1", "task");
    rows(batch, span, || schemas.validate(&name, TASK.as_bytes()).unwrap())
}

/// Median duration in microseconds of a commit with one row, each after an idle time.
fn micros_per_commit(span: Duration, idle: Duration) -> f64 {
    let db = database();
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        std::thread::sleep(idle);
        let start = Instant::now();
        db.execute("INSERT INTO row(body) VALUES (?1)", [TASK]).unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
