//! `organism export`: writes the journal's records as XML or as JSON lines.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::audit;
use crate::clock::Time;
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget, known, unknown};
use super::output::{StdoutWriter, VisibleWriter};
use crate::audit::past_time;
use crate::xml::invisible_characters::{VisibleXml, visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Export only the tree of this thread.
    #[arg(value_name = "ID")]
    thread: Option<String>,
    /// Export only what was recorded from this time on, such as 2026-11-20, 2026-11-20T10:00, or 2h
    /// for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse)]
    since: Option<Time>,
    /// Export only what was recorded before this time.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse)]
    until: Option<Time>,
    #[arg(long, value_enum, default_value_t = OutputFormat::Xml)]
    format: OutputFormat,
    /// Output file. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum OutputFormat {
    /// Every record with its envelopes, dispositions and refusals.
    Xml,
    /// One line for each message or refusal.
    Jsonl,
}

impl OutputFormat {
    /// Returns the function that makes hidden characters visible in output to a terminal. The
    /// function depends on the format: after the replacement, a parser of the format must still
    /// read the same data.
    fn visible(self) -> Box<dyn FnMut(&str) -> String> {
        match self {
            Self::Xml => {
                let mut document = VisibleXml::default();
                Box::new(move |lines| document.visible(lines))
            }
            Self::Jsonl => Box::new(visible_json),
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let tree = args.thread.as_deref().map(known).transpose()?.map(|thread| thread.root());
    let readers = match &tree {
        Some(root) => journal_target::readers_of(&args.place, root)?,
        None => journal_target::readers(&args.place)?,
    };

    if let Some(root) = &tree {
        let head_in = |reader: &JournalReader| {
            reader.head(root).map_err(|error| journal_target::failed_in(reader, error))
        };
        let heads = readers.iter().map(head_in).collect::<Result<Vec<_>, _>>()?;
        if heads.iter().all(Option::is_none) {
            return Err(unknown(&args.place, root).into());
        }
    }

    let out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            CommandFailure::new(
                CommandExit::Unavailable,
                format!("cannot write {}: {error}", path.display()),
            )
        })?),
        None if std::io::stdout().is_terminal() => {
            Box::new(VisibleWriter::new(args.format.visible()))
        }
        None => Box::new(StdoutWriter),
    };

    let mut out = BufWriter::new(out);
    let format = match args.format {
        OutputFormat::Xml => audit::ExportFormat::Xml,
        OutputFormat::Jsonl => audit::ExportFormat::Jsonl,
    };

    // The command only produces output, so it ends when the reader closes the output.
    let filter = audit::ExportFilter { tree, since: args.since, until: args.until };
    match audit::export(&readers, &filter, format, &mut out) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {}
        Err(Error::Io { source, .. })
            if args.output.is_none() && source.kind() == ErrorKind::StorageFull =>
        {
            return Err(incomplete_output(&source));
        }
        exported => exported.map_err(|error| match readers.as_slice() {
            [reader] => journal_target::failed_in(reader, error),
            _ => journal_target::failed(error),
        })?,
    }

    match out.flush() {
        Err(error) if args.output.is_none() && error.kind() == ErrorKind::StorageFull => {
            return Err(incomplete_output(&error));
        }
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(error).context("writing the export");
        }
        _ => {}
    }

    Ok(CommandExit::Done.into())
}

/// Makes the error of an export that could not write all its output to standard output.
fn incomplete_output(error: &std::io::Error) -> anyhow::Error {
    let text = format!("standard output is incomplete: {error}");
    CommandFailure::new(CommandExit::Unavailable, text).into()
}
