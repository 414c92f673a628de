//! `organism cancel`: ends everything open in a thread and beneath it.

use std::path::Path;
use std::process::ExitCode;

use crate::audit;
use crate::config::Config;
use crate::ids::{ListenerName, ThreadId};
use crate::journal;
use crate::journal::sqlite::Reader;
use crate::organism::control::{Ask, Client, Said};
use crate::organism::{Door, Error, Organism};

use super::exit::{Exit, Failed};
use super::opened::{self, ConfigArg, NoteArg};
use super::place;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    note: NoteArg,
    /// The thread; its subthreads are cancelled with it.
    thread: String,
    /// Told to whoever waits for it.
    #[arg(long, default_value = "")]
    reason: String,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_without_keys()?;
    let usage = |e: crate::ids::IdError| Failed::new(Exit::Usage, e.to_string());
    let thread = ThreadId::parse(&args.thread).map_err(usage)?;
    let by = ListenerName::parse("operator").map_err(usage)?;
    if config.partitions() > 1 {
        return routed(config, &thread, &by, &args);
    }
    if !is_recorded(&config.data, &thread)? {
        return Err(place::unknown(&thread).into());
    }
    opened::runtime()?.block_on(async {
        let origin = Some(args.note.origin());
        let Some(client) = Client::find(&config.data).await else {
            let organism = Organism::start(config).await?;
            organism.handle().cancel(thread.clone(), by, args.reason, origin)?;
            organism.stop("the command is done").await?;
            eprintln!("{thread}: whatever was open in it and beneath it is cancelled");
            return Ok(Exit::Done.into());
        };
        let mut failed = None;
        let ask = Ask::Cancel { thread: thread.clone(), by, reason: args.reason, origin };
        let on_line = |said| {
            if let Said::Failed(detail) = said {
                failed = Some(detail);
            }
        };
        client.ask(&ask, on_line).await?;
        match failed {
            Some(detail) => Err(Failed::new(Exit::Unavailable, detail).into()),
            None => {
                eprintln!("{thread}: whatever was open in it and beneath it is cancelled");
                Ok(Exit::Done.into())
            }
        }
    })
}

/// Whoever has the thread's partition also knows whether there is such a thread.
fn routed(
    config: Config,
    thread: &ThreadId,
    by: &ListenerName,
    args: &Args,
) -> anyhow::Result<ExitCode> {
    let cancelled = opened::runtime()?.block_on(async {
        let Door::Routed(route) = Door::open(config).await? else { return Ok(()) };
        route.cancel(thread, by, &args.reason, args.note.origin()).await
    });
    match cancelled {
        Err(Error::NoThread { thread }) => Err(place::unknown(&thread).into()),
        other => {
            other?;
            eprintln!("{thread}: whatever was open in it and beneath it is cancelled");
            Ok(Exit::Done.into())
        }
    }
}

/// An organism that never ran has no threads either.
fn is_recorded(data: &Path, thread: &ThreadId) -> anyhow::Result<bool> {
    let recorded = Reader::open(data).and_then(|reader| audit::is_recorded(&reader, thread));
    match recorded {
        Err(journal::Error::Missing { .. }) => Ok(false),
        other => other.map_err(place::failed),
    }
}
