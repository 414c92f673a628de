//! `organism stats`: shows counts, costs and times, grouped by agent, model, listener, rule or day.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::audit::{self, Stats, StatsKey, StatsQuery, stats_columns};
use crate::clock::Time;
use crate::index::EventTotals;

use super::exit::CommandExit;
use super::indexed;
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::noted_partitions_in;
use super::render::{RenderOutput, put, put_visible_json, table};
use crate::audit::past_time;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Properties to group by, separated by commas: agent, model, listener, rule, day.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', required = true, value_parser = key)]
    by: Vec<StatsKey>,
    /// Count only what was recorded from this time on, such as 2026-11-20, 2026-11-20T10:00, or 2h
    /// for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse)]
    since: Option<Time>,
    /// Count only what was recorded before this time.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse)]
    until: Option<Time>,
    /// Write a line of JSON for each group.
    #[arg(long)]
    json: bool,
}

fn key(text: &str) -> Result<StatsKey, String> {
    StatsKey::parse(text).ok_or_else(|| {
        format!("statistics are by {}", StatsKey::ALL.map(StatsKey::as_str).join(", "))
    })
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let query = StatsQuery { by: args.by, since: args.since, until: args.until };
    let mut stats = Stats::default();
    for (_, journal) in noted_partitions_in(&journal_target::data_dir(&args.place)?) {
        let read = &mut |reader: &mut _| audit::stats(reader, &query);
        stats.add(indexed::read(&args.place, &journal, read)?);
    }

    if args.json {
        let mut groups = stats.0.iter();
        groups
            .try_for_each(|(keys, group)| put_visible_json(&json_line(&query.by, keys, group)))?;
    } else if stats.0.is_empty() {
        note!("nothing of this kind is on record");
    } else {
        put(&draw(&query.by, &stats))?;
    }
    Ok(CommandExit::Done.into())
}

fn json_line(by: &[StatsKey], keys: &[String], group: &EventTotals) -> Map<String, Value> {
    let mut line = Map::new();
    for (key, text) in by.iter().zip(keys) {
        line.insert(key.as_str().to_owned(), json!(text));
    }

    let mut number = |name: &str, value: u64| line.insert(name.to_owned(), json!(value));
    number("turns", group.turns);
    number("failovers", group.failovers);
    number("tokens_in", group.tokens_in);
    number("tokens_out", group.tokens_out);
    number("refusals", group.refusals);
    number("attempts", group.attempts);
    number("failed", group.failed);
    line.insert("cost_nano".to_owned(), json!(group.costs.sum()));
    line.insert("costs".to_owned(), json!(group.costs));

    for (name, times) in
        [("latency_us", &group.latency), ("queued_us", &group.queued), ("worked_us", &group.worked)]
    {
        let percentiles = json!({
            "p50": times.percentile(0.5),
            "p95": times.percentile(0.95),
            "p99": times.percentile(0.99),
        });
        line.insert(name.to_owned(), percentiles);
    }
    line
}

/// Draws a table with one row for each group. Omits a column if no group has events of the kind
/// that the column is about.
fn draw(by: &[StatsKey], stats: &Stats) -> String {
    let columns = stats_columns(stats);
    let headers: Vec<String> = columns.iter().map(|(header, _)| format!(">{header}")).collect();
    let keys = by.iter().map(|key| key.as_str());
    let headers: Vec<&str> = keys.chain(headers.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<String>> = (stats.0.iter())
        .map(|(keys, group)| {
            let cells = columns.iter().map(|(_, cell)| cell(group));
            keys.iter().cloned().chain(cells).collect()
        })
        .collect();
    table(&RenderOutput::stdout(false), &headers, &rows)
}
