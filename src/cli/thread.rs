//! `organism thread`: shows one thread and its subthreads for people.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::audit;
use crate::ids::ThreadId;
use crate::journal::sqlite::JournalReader;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget, known, unknown};
use super::render::{RenderOutput, draw_timeline, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// The thread. Default: the newest.
    #[arg(value_name = "ID")]
    thread: Option<String>,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let thread = match &args.thread {
        Some(text) => known(text)?,
        None => newest(&journal_target::readers(&args.place)?)?
            .context("no threads yet; `organism send` starts one")?,
    };

    let mut found = false;
    for reader in journal_target::readers_of(&args.place, &thread)? {
        let timeline = audit::thread_timeline(&reader, &thread, None);
        let timeline = timeline.map_err(|error| journal_target::failed_in(&reader, error))?;
        let Some(timeline) = timeline else { continue };
        found = true;
        if args.json {
            put_json(&timeline)?;
        } else {
            put(&draw_timeline(&RenderOutput::stdout(args.full), &timeline))?;
        }
    }

    if found { Ok(CommandExit::Done.into()) } else { Err(unknown(&thread).into()) }
}

fn newest(readers: &[JournalReader]) -> anyhow::Result<Option<ThreadId>> {
    let mut trees = Vec::new();
    for reader in readers {
        let here = reader.trees().map_err(|error| journal_target::failed_in(reader, error))?;
        trees.extend(here);
    }

    trees.retain(|tree| tree.root != ThreadId::organism());
    let newest = match readers {
        [_] => trees.into_iter().max_by_key(|tree| tree.first),
        _ => trees.into_iter().max_by_key(|tree| tree.opened),
    };

    Ok(newest.map(|tree| tree.root))
}
