//! `organism message`: shows everything on record about one message.

use std::process::ExitCode;

use crate::audit::{self, FoundMessage, MessageReport};
use crate::index::{IndexedMessage, MessageSelector};

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::JournalTarget;
use super::render::{RenderOutput, draw_report, message_rows, put, put_visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Id of the message, or its first 8 digits at least. `organism search` and `organism thread
    /// --ids` show ids.
    #[arg(value_name = "ID")]
    id: String,
    /// Write the bytes of the payload alone, exactly as they were recorded.
    #[arg(long, conflicts_with_all = ["json", "full"])]
    raw: bool,
    /// Maximum messages that this one caused; the first and the last are shown.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report = find(&args)?;
    if args.raw {
        let payload = report.message.payload.as_deref();
        put(payload.ok_or_else(|| redacted(&report))?)?;
    } else if args.json {
        put_visible_json(&report)?;
    } else {
        put(&draw_report(&RenderOutput::stdout(args.full), &report))?;
    }
    Ok(CommandExit::Done.into())
}

/// Finds the one message that the id names, in the journals of all partitions.
fn find(args: &Args) -> anyhow::Result<MessageReport> {
    let prefix = MessageSelector::parse(&args.id).ok_or_else(|| malformed(&args.id))?;
    let found = indexed::read_all(&args.place, &mut |reader| {
        audit::message_report(reader, &prefix, args.limit)
    })?;

    let mut reports = Vec::new();
    let mut candidates = Vec::new();
    for found in found {
        match found {
            FoundMessage::None => {}
            FoundMessage::One(report) => reports.push(report),
            FoundMessage::Several(several) => candidates.extend(several),
        }
    }

    if candidates.is_empty() && reports.len() == 1 {
        return reports.pop().map(|report| *report).ok_or_else(|| unknown(&args.id));
    }
    candidates.extend(reports.into_iter().map(|report| report.row));
    if candidates.is_empty() { Err(unknown(&args.id)) } else { Err(ambiguous(args, &candidates)) }
}

fn usage(text: String) -> anyhow::Error {
    CommandFailure::new(CommandExit::Usage, text).into()
}

fn malformed(id: &str) -> anyhow::Error {
    usage(format!(
        "`{id}` is no id of a message: write at least its first {} hexadecimal digits; `organism \
         search` and `organism thread --ids` show ids",
        MessageSelector::DIGITS_MIN
    ))
}

fn unknown(id: &str) -> anyhow::Error {
    usage(format!(
        "no message {id} is on record; `organism search` and `organism thread --ids` show ids, and \
         `organism search --kind refusal` what was refused"
    ))
}

fn ambiguous(args: &Args, candidates: &[IndexedMessage]) -> anyhow::Error {
    let rows = message_rows(&RenderOutput::stderr(false), candidates);
    usage(format!("several messages begin with {}; write more digits of one:\n{rows}", args.id))
}

fn redacted(report: &MessageReport) -> anyhow::Error {
    let text = format!(
        "the payload of message {} was redacted; the record has its digest {} alone",
        report.message.id, report.message.digest
    );
    CommandFailure::new(CommandExit::Unavailable, text).into()
}
