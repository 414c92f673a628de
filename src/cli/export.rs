//! `organism export`: writes the journal's records as XML or as JSON lines.

use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::audit;
use crate::clock::Time;
use crate::io_reason::io_reason;
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;

use super::exit::{self, CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget, known, unknown};
use super::output::{StdoutWriter, VisibleWriter};
use super::output_file::OutputFile;
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
    /// Output file. An existing file is replaced as soon as the export is complete; if the export
    /// fails, the file stays as it was. Default: stdout.
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

    let format = match args.format {
        OutputFormat::Xml => audit::ExportFormat::Xml,
        OutputFormat::Jsonl => audit::ExportFormat::Jsonl,
    };
    let filter = audit::ExportFilter { tree, since: args.since, until: args.until };
    let write = |out: &mut dyn Write| {
        let mut out = BufWriter::new(out);
        audit::export(&readers, &filter, format, &mut out)?;
        out.flush().map_err(failed_write)
    };
    let exported = match &args.output {
        Some(path) => to_file(path, write),
        None if std::io::stdout().is_terminal() => {
            write(&mut VisibleWriter::new(args.format.visible()))
        }
        None => write(&mut StdoutWriter),
    };

    let Err(error) = exported else { return Ok(CommandExit::Done.into()) };
    Err(match (error, &args.output, readers.as_slice()) {
        // The command only produces output, so it ends when the reader closes the output.
        (Error::Io { source, .. }, ..) if source.kind() == ErrorKind::BrokenPipe => {
            return Ok(CommandExit::Done.into());
        }
        (Error::Io { source, .. }, Some(path), _) => {
            let text = format!("cannot write {}: {}", path.display(), io_reason(&source));
            CommandFailure::new(exit::of_written_file(&source), text).into()
        }
        (Error::Io { source, .. }, None, _) => {
            let text = format!("standard output is incomplete: {}", io_reason(&source));
            CommandFailure::new(CommandExit::Unavailable, text).into()
        }
        (error, _, [reader]) => journal_target::failed_in(reader, error),
        (error, ..) => journal_target::failed(error),
    })
}

/// Writes the file `path` with `write`. If this fails, leaves an earlier file as it was.
fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut file = OutputFile::create(path).map_err(failed_write)?;
    write(&mut file)?;
    file.finish().map_err(failed_write)
}

fn failed_write(source: std::io::Error) -> Error {
    Error::Io { context: "writing the export".to_owned(), source }
}
