//! `organism threads`: lists the threads and their phases.

use std::process::ExitCode;

use crate::audit::{self, TreeSummary};
use crate::ids::ThreadId;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget};
use super::render::{RenderOutput, duration, put, put_json, table};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Maximum number of threads; the newest are listed.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// List all threads, including the organism's own.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Write one line of JSON for each thread.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let readers = journal_target::readers(&args.place)?;
    // One more than the limit, because the organism's own thread is left out below.
    let newest = (!args.all).then_some(args.limit.saturating_add(1));
    let mut threads = Vec::new();
    for reader in &readers {
        let here = audit::summaries(reader, newest);
        threads.extend(here.map_err(|error| journal_target::failed_in(reader, error))?);
    }

    if readers.len() > 1 {
        threads.sort_by_key(|summary| summary.updated);
    }

    if !args.all {
        threads.retain(|summary| summary.thread != ThreadId::organism());
        threads.drain(..threads.len().saturating_sub(args.limit));
    }

    if args.json {
        threads.iter().try_for_each(put_json)?;
        return Ok(CommandExit::Done.into());
    }

    if threads.is_empty() {
        note!("no threads yet; `organism send` starts one");
        return Ok(CommandExit::Done.into());
    }

    let headers = ["thread", "status", "opened", ">took", ">messages", "asked"];
    let rows: Vec<_> = threads.iter().map(row).collect();
    put(&table(&RenderOutput::stdout(false), &headers, &rows))?;
    Ok(CommandExit::Done.into())
}

fn row(summary: &TreeSummary) -> Vec<String> {
    let opened = summary.opened.to_string();
    let opened = opened.get(5..16).unwrap_or(&opened).replace('T', " ");
    let open = match summary.in_flight {
        0 => summary.messages.accepted.to_string(),
        open => format!("{} ({open} open)", summary.messages.accepted),
    };

    let request = summary.request.as_ref().map_or("", |name| &*name.local).to_owned();
    vec![
        summary.thread.to_string(),
        summary.status.as_str().to_owned(),
        opened,
        duration(summary.updated.since(summary.opened)),
        open,
        request,
    ]
}
