//! `organism search`: messages that mention a text.

use std::process::ExitCode;

use crate::audit;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget, known};
use super::render::{self, RenderOutput, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Looked for in payloads, names and threads, upper and lower case alike.
    #[arg(value_name = "TEXT")]
    text: String,
    /// Only in this thread and what is beneath it.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// How many of the newest to show.
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Whole payloads.
    #[arg(long)]
    full: bool,
    /// A line of JSON per message.
    #[arg(long)]
    json: bool,
}

/// Like `grep`: 1 where nothing was found.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let within = args.thread.as_deref().map(known).transpose()?;
    let readers = journal_target::readers(&args.place)?;
    let mut found = Vec::new();
    for reader in &readers {
        let here = audit::search(reader, &args.text, within.as_ref(), args.limit);
        found.extend(here.map_err(|error| journal_target::failed_in(reader, error))?);
    }
    if readers.len() > 1 {
        found.sort_by_key(|said| said.at);
        found.drain(..found.len().saturating_sub(args.limit));
    }
    let paper = RenderOutput::stdout(args.full);
    for said in &found {
        if args.json { put_json(said)? } else { put(&render::said(&paper, said))? }
    }
    if found.is_empty() {
        note!("no message mentions `{}`", args.text);
        return Ok(CommandExit::WorkflowFailed.into());
    }
    Ok(CommandExit::Done.into())
}
