//! `organism message`: shows everything on record about one message.

use std::process::ExitCode;

use crate::audit::MessageReport;

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::JournalTarget;
use super::message_lookup;
use super::output::recorded;
use super::render::{RenderOutput, draw_report, put, put_visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Id of the message, or its first 8 digits at least. `organism search` and `organism thread
    /// --ids` show ids.
    #[arg(value_name = "ID")]
    id: String,
    /// Write the bytes of the payload alone, exactly as they were recorded. On a terminal,
    /// characters that it would hide or interpret are replaced by their code points.
    #[arg(long, conflicts_with_all = ["json", "full"])]
    raw: bool,
    /// Maximum length of the list of messages that this message caused. If this message caused more
    /// messages, the list contains the first and the last of them.
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
    let report = message_lookup::find(&args.place, &args.id, args.limit)?;
    if args.raw {
        let payload = report.message.payload.as_deref();
        put(&recorded(payload.ok_or_else(|| redacted(&report))?))?;
    } else if args.json {
        put_visible_json(&report)?;
    } else {
        put(&draw_report(&RenderOutput::stdout(args.full), &report))?;
    }
    Ok(CommandExit::Done.into())
}

fn redacted(report: &MessageReport) -> anyhow::Error {
    let text = format!(
        "the payload of message {} was redacted; the record has its digest {} alone",
        report.message.id, report.message.digest
    );
    CommandFailure::new(CommandExit::Unavailable, text).into()
}
