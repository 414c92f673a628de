//! `organism thread`: one thread with its subthreads, as a person wants to read it.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::audit;
use crate::ids::ThreadId;
use crate::journal::sqlite::Reader;

use super::exit::Exit;
use super::place::{self, Place, known, unknown};
use super::render::{Paper, put, put_json, story};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Which one; the newest without it.
    #[arg(value_name = "ID")]
    thread: Option<String>,
    /// Whole payloads.
    #[arg(long)]
    full: bool,
    /// One JSON value.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reader = place::reader(&args.place)?;
    let thread = match &args.thread {
        Some(text) => known(text)?,
        None => newest(&reader)?.context("no threads yet; `organism send` starts one")?,
    };
    let told = audit::story(&reader, &thread, None).map_err(place::failed)?;
    let Some(told) = told else { return Err(unknown(&thread).into()) };
    if args.json {
        put_json(&told)?;
    } else {
        put(&story(&Paper::stdout(args.full), &told))?;
    }
    Ok(Exit::Done.into())
}

fn newest(reader: &Reader) -> anyhow::Result<Option<ThreadId>> {
    let trees = reader.trees().map_err(place::failed)?;
    let trees = trees.into_iter().filter(|tree| tree.root != ThreadId::organism());
    Ok(trees.max_by_key(|tree| tree.first).map(|tree| tree.root))
}
