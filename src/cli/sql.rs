//! `organism sql`: queries the index of the journal with SQL.

mod row_writer;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Map, Number, Value};

use crate::index::{self, SqlValue, run_sql};
use crate::limits;

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget};
use super::output::{self, recorded};
use super::render::{RenderOutput, one_line, put, table, visible_json_line};
use row_writer::RowWriter;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "docs/AUDIT.md describes the views: tree, thread, message, call, delivery, turn, \
                  refusal, busy, alert, hour, hour_duration, hold, pause, action, error, config, \
                  config_file, about."
)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Statement that reads the views of the index.
    #[arg(value_name = "QUERY")]
    query: String,
    /// Query the journal of this partition; required if there are several partitions.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Stop the query after this time.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
    /// Write one line of JSON for each row.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Write CSV (RFC 4180), with the names of the columns in the first line.
    #[arg(long)]
    csv: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = journal_target::data_dir(&args.place)?;
    let data = indexed::one_journal(&data, args.partition)?;
    let mut rows = SqlRows::new(args.json, args.csv, args.timeout)?;
    let time = Duration::from_secs(args.timeout);

    let answer = indexed::read(&args.place, &data, &mut |reader| {
        rows.begin();
        run_sql(reader, &args.query, time, &mut |columns, row| rows.take(columns, row))
    });
    if let Err(error) = answer {
        // Rows from before the error are written whole, unless the reader of the output is blocked.
        rows.writer.finish(Instant::now().checked_add(limits::SQL_OUTPUT_GRACE));
        return Err(error);
    }
    rows.finish()?;
    Ok(CommandExit::Done.into())
}

/// Writer of the rows of a result. Writes rows of JSON and CSV as they arrive, and a table only at
/// the end, because the widths of its columns depend on all rows.
struct SqlRows {
    json: bool,
    csv: bool,
    columns: Vec<String>,
    table: Vec<Vec<String>>,
    writer: RowWriter,
    /// Time limit of the query, in seconds.
    seconds: u64,
    /// End of the time limit; `None` for a time limit beyond the range of the clock.
    until: Option<Instant>,
    failure: Option<anyhow::Error>,
}

impl SqlRows {
    fn new(json: bool, csv: bool, seconds: u64) -> anyhow::Result<Self> {
        let columns = Vec::new();
        let table = Vec::new();
        let writer = RowWriter::start()?;
        Ok(Self { json, csv, columns, table, writer, seconds, until: None, failure: None })
    }

    /// Prepares for the rows of a query. If an earlier query has failed because its index was
    /// damaged, discards the rows that are not written yet. If some rows are already written, makes
    /// the command fail with the advice to discard its output.
    fn begin(&mut self) {
        self.until = Instant::now().checked_add(Duration::from_secs(self.seconds));
        self.table.clear();
        self.writer.clear();
        if self.writer.has_begun() {
            let text = "the index proved damaged and was made anew; discard this output, and run \
                        the command again";
            self.failure = Some(CommandFailure::new(CommandExit::TryAgain, text).into());
        }
    }

    /// Takes the names of the columns, or a row. Returns false if the query can end.
    fn take(&mut self, columns: &[String], row: Option<Vec<SqlValue>>) -> bool {
        if self.failure.is_some() || output::is_closed() {
            return false;
        }

        self.failure = self.put(columns, row).err();
        self.failure.is_none()
    }

    fn put(&mut self, columns: &[String], row: Option<Vec<SqlValue>>) -> anyhow::Result<()> {
        match row {
            None => {
                self.columns = columns.to_vec();
                if self.json {
                    only_once(columns)?;
                }
                let header = columns.iter().map(|name| csv_field(name));
                if self.csv { self.write(&csv_line(header)) } else { Ok(()) }
            }
            Some(row) if self.json => {
                let line = visible_json_line(&json_row(columns, &row))?;
                self.write(&line)
            }
            Some(row) if self.csv => {
                self.write(&csv_line(row.iter().map(|value| csv_field(&text(value)))))
            }
            Some(_) if self.table.len() == TABLE_ROWS_MAX => {
                let text = format!(
                    "a table has at most {TABLE_ROWS_MAX} rows; add LIMIT, or pass --csv or --json"
                );
                Err(CommandFailure::usage(text).into())
            }
            Some(row) => {
                self.table.push(row.iter().map(cell).collect());
                Ok(())
            }
        }
    }

    /// Adds a row to the output. Fails at the end of the time limit if the reader of the output takes
    /// no more rows. The query then ends, because an open query keeps SQLite from reusing the index's
    /// write-ahead log.
    fn write(&mut self, row: &str) -> anyhow::Result<()> {
        if self.writer.add(row, self.until) { Ok(()) } else { Err(too_slow(self.seconds)) }
    }

    fn finish(self) -> anyhow::Result<()> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.json || self.csv {
            // The query may have ended just before its time limit.
            let grace = Instant::now().checked_add(limits::SQL_OUTPUT_GRACE);
            let until = self.until.and_then(|until| grace.map(|grace| until.max(grace)));
            let is_written = self.writer.finish(until);
            return if is_written { Ok(()) } else { Err(too_slow(self.seconds)) };
        }

        let is_number = |at: usize| {
            let mut cells = self.table.iter().filter_map(|row| row.get(at));
            cells.all(|cell| cell == NULL || cell.parse::<f64>().is_ok()) && !self.table.is_empty()
        };
        let headers: Vec<String> = (self.columns.iter().enumerate())
            .map(|(at, name)| (if is_number(at) { ">" } else { "" }).to_owned() + &one_line(name))
            .collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        put(&table(&RenderOutput::stdout(false), &headers, &self.table))
    }
}

/// Returns the error for a reader of the output that has not taken all rows within the time limit.
fn too_slow(seconds: u64) -> anyhow::Error {
    let text = index::Error::TimedOut { seconds }.to_string();
    let text = format!("the output is incomplete, because its reader is too slow: {text}");
    CommandFailure::new(CommandExit::TryAgain, text).into()
}

/// Maximum rows of a table. A table is kept in memory, because the widths of its columns are known
/// only after the last row.
const TABLE_ROWS_MAX: usize = 100_000;
/// Text of a missing value in a table.
const NULL: &str = "-";

fn text(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => String::new(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) => number.to_string(),
        SqlValue::Text(text) => text.clone(),
        SqlValue::Blob(bytes) => hex(bytes),
    }
}

/// Writes a value for a table, without characters that a terminal would interpret.
fn cell(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => NULL.to_owned(),
        other => one_line(&text(other)),
    }
}

/// Fails if two columns of a result have the same name, because a JSON object would keep only one
/// of them.
fn only_once(columns: &[String]) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    match columns.iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => {
            let text = format!("two columns are named `{name}`; name them with AS");
            Err(CommandFailure::usage(text).into())
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json_row(columns: &[String], row: &[SqlValue]) -> Map<String, Value> {
    let values = row.iter().map(|value| match value {
        SqlValue::Null => Value::Null,
        SqlValue::Integer(number) => Value::from(*number),
        SqlValue::Real(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        SqlValue::Text(text) => Value::from(text.as_str()),
        SqlValue::Blob(bytes) => Value::from(hex(bytes)),
    });
    columns.iter().cloned().zip(values).collect()
}

fn csv_line(fields: impl Iterator<Item = String>) -> String {
    format!("{}\r\n", fields.collect::<Vec<_>>().join(","))
}

fn csv_field(text: &str) -> String {
    let text = recorded(text);
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}
