//! The columns of the table in which statistics are shown.

use super::Stats;
use super::amounts::micros;
use crate::index::{DurationHistogram, EventTotals};

/// A column of the table: its header, and a function that writes its value for one group.
pub type StatsColumn = (&'static str, fn(&EventTotals) -> String);

const TURN_COLUMNS: [StatsColumn; 8] = [
    ("turns", |group| group.turns.to_string()),
    ("failovers", |group| group.failovers.to_string()),
    ("tokens in", |group| group.tokens_in.to_string()),
    ("tokens out", |group| group.tokens_out.to_string()),
    ("cost", |group| group.costs.to_string()),
    ("model p50", |group| time(&group.latency, 0.5)),
    ("p95", |group| time(&group.latency, 0.95)),
    ("p99", |group| time(&group.latency, 0.99)),
];

const ATTEMPT_COLUMNS: [StatsColumn; 6] = [
    ("attempts", |group| group.attempts.to_string()),
    ("failed", |group| group.failed.to_string()),
    ("queue p95", |group| time(&group.queued, 0.95)),
    ("work p50", |group| time(&group.worked, 0.5)),
    ("p95", |group| time(&group.worked, 0.95)),
    ("p99", |group| time(&group.worked, 0.99)),
];

/// Returns the columns in which at least one group has a value.
pub fn stats_columns(stats: &Stats) -> Vec<StatsColumn> {
    let any = |count: fn(&EventTotals) -> u64| stats.0.values().any(|group| count(group) > 0);
    let mut columns: Vec<StatsColumn> = Vec::new();
    if any(|group| group.turns) {
        columns.extend(TURN_COLUMNS);
    }
    if any(|group| group.attempts) {
        columns.extend(ATTEMPT_COLUMNS);
    }
    if any(|group| group.refusals) || columns.is_empty() {
        columns.push(("refusals", |group| group.refusals.to_string()));
    }
    columns
}

/// Writes a percentile of the durations, such as `1.2 ms`. A `share` of 0.95 means the 95th
/// percentile.
fn time(times: &DurationHistogram, share: f64) -> String {
    times.percentile(share).map_or_else(|| "-".to_owned(), micros)
}
