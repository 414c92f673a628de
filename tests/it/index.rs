//! The index beside a journal: its rows, damage to it, and queries on it.

mod access;
mod damage;
pub mod first_build;
mod follower;
mod hours;
mod json_outputs;
mod message;
mod open_alerts;
mod queries;
mod reader_pool;
mod retries;
mod rows;
mod search;
mod sums;
mod timelines;
mod trees;
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use organism::index::{self, IndexReader, SqlValue, run_sql};

use crate::journal::Place;
use crate::json_schemas::assert_described;

const VIEWS: [&str; 18] = [
    "tree",
    "thread",
    "message",
    "call",
    "delivery",
    "turn",
    "refusal",
    "busy",
    "alert",
    "hour",
    "hour_duration",
    "hold",
    "pause",
    "action",
    "error",
    "config",
    "config_file",
    "about",
];

/// Brings the index up to date, and answers a query from it.
fn with_index<T>(
    data: &Path,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, index::Error>,
) -> Result<T, index::Error> {
    index::read(data, &mut |_, _| {}, query)
}

fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "-".to_owned(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) => number.to_string(),
        SqlValue::Text(text) => text.clone(),
        SqlValue::Blob(bytes) => format!("{bytes:?}"),
    }
}

fn try_rows(data: &Path, sql: &str) -> Result<Vec<String>, index::Error> {
    with_index(data, &mut |reader| read_rows(reader, sql))
}

fn read_rows(reader: &mut IndexReader, sql: &str) -> Result<Vec<String>, index::Error> {
    let mut rows = Vec::new();
    run_sql(reader, sql, Duration::from_secs(60), &mut |_, row| {
        let row = row.map(|row| row.iter().map(shown).collect::<Vec<_>>().join(" | "));
        rows.extend(row);
        true
    })?;
    Ok(rows)
}

fn rows(data: &Path, sql: &str) -> Vec<String> {
    try_rows(data, sql).unwrap()
}

/// All rows of all views.
fn contents(data: &Path) -> BTreeMap<&'static str, Vec<String>> {
    let of_all = with_index(data, &mut |reader| {
        let mut of_view = |view| {
            let mut all = read_rows(reader, &format!("SELECT * FROM {view}"))?;
            all.sort();
            Ok((view, all))
        };
        VIEWS.into_iter().map(&mut of_view).collect()
    });
    of_all.unwrap()
}

fn organism(place: &Place, args: &[&str]) -> Output {
    let output = command(place, args).output().unwrap();
    assert_described(args, &text(&output.stdout));
    output
}

fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command
        .args(args)
        .arg("--data")
        .arg(place.data())
        .arg("--state")
        .arg(place.state())
        .env_remove("COLUMNS");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
