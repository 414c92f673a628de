//! `organism search`: finds messages that contain a text.

use std::process::ExitCode;

use crate::audit;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget, known};
use super::render::{self, RenderOutput, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Text to find in payloads, names and threads, ignoring case.
    #[arg(value_name = "TEXT")]
    text: String,
    /// Search only this thread and its subthreads.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Maximum number of messages; the newest are shown.
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one line of JSON for each message.
    #[arg(long)]
    json: bool,
}

/// Runs the search. Like `grep`, the command exits with 1 if nothing was found.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let within = args.thread.as_deref().map(known).transpose()?;
    let readers = journal_target::readers(&args.place)?;
    let mut found = Vec::new();
    for reader in &readers {
        let here = audit::search(reader, &args.text, within.as_ref(), args.limit);
        found.extend(here.map_err(|error| journal_target::failed_in(reader, error))?);
    }

    if readers.len() > 1 {
        found.sort_by_key(|message| message.at);
        found.drain(..found.len().saturating_sub(args.limit));
    }

    let output = RenderOutput::stdout(args.full);
    for message in &found {
        if args.json { put_json(message)? } else { put(&render::draw_message(&output, message))? }
    }

    if found.is_empty() {
        note!("no message mentions `{}`", args.text);
        return Ok(CommandExit::WorkflowFailed.into());
    }

    Ok(CommandExit::Done.into())
}
