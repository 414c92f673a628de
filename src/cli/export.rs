//! `organism export`: the record as XML or as JSON lines.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::audit;
use crate::journal::Error;
use crate::journal::sqlite::Reader;

use super::exit::{Exit, Failed};
use super::output::Stdout;
use super::place::{self, Place, known, unknown};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Only the tree of this thread.
    #[arg(value_name = "ID")]
    thread: Option<String>,
    #[arg(long, value_enum, default_value_t = Format::Xml)]
    format: Format,
    /// Where to write; stdout without it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Every record with its envelopes, dispositions and refusals.
    Xml,
    /// A line per message or refusal.
    Jsonl,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let tree = args.thread.as_deref().map(known).transpose()?.map(|thread| thread.root());
    let readers = match &tree {
        Some(root) => place::readers_of(&args.place, root)?,
        None => place::readers(&args.place)?,
    };
    if let Some(root) = &tree {
        let head_in =
            |reader: &Reader| reader.head(root).map_err(|error| place::failed_in(reader, error));
        let heads = readers.iter().map(head_in).collect::<Result<Vec<_>, _>>()?;
        if heads.iter().all(Option::is_none) {
            return Err(unknown(root).into());
        }
    }
    let out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Failed::new(Exit::Unavailable, format!("cannot write {}: {error}", path.display()))
        })?),
        None => Box::new(Stdout),
    };
    let mut out = BufWriter::new(out);
    let format = match args.format {
        Format::Xml => audit::ExportFormat::Xml,
        Format::Jsonl => audit::ExportFormat::Jsonl,
    };
    // The output is all there is to do: it ends where its reader does.
    match audit::export(&readers, tree.as_ref(), format, &mut out) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {}
        exported => exported.map_err(|error| match readers.as_slice() {
            [reader] => place::failed_in(reader, error),
            _ => place::failed(error),
        })?,
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(error).context("writing the export");
        }
        _ => {}
    }
    Ok(Exit::Done.into())
}
