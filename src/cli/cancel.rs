//! `organism cancel`: ends everything open in a thread and beneath it.

use std::path::Path;
use std::process::ExitCode;

use crate::audit;
use crate::config::Config;
use crate::ids::{ListenerName, ThreadId};
use crate::journal::sqlite::Reader;
use crate::journal::{self, partitions_in};
use crate::organism::control::{Ask, Client, Said};
use crate::organism::handshake::Handshake;
use crate::organism::{Door, Error};

use super::exit::{Exit, Failed};
use super::opened::{self, ConfigArg, NoteArg, Reach};
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
    let reach = args.config.reach()?;
    let usage = |e: crate::ids::IdError| Failed::new(Exit::Usage, e.to_string());
    let thread = ThreadId::parse(&args.thread).map_err(usage)?;
    let by = ListenerName::parse("operator").map_err(usage)?;
    let cancel = Ask::Cancel {
        thread: thread.clone(),
        by: by.clone(),
        reason: args.reason.clone(),
        origin: Some(args.note.origin()),
    };
    match reach {
        Reach::Config(config) if config.partitions() > 1 => {
            return routed(*config, &thread, &by, &args);
        }
        Reach::Config(config) => {
            refuse_unknown(&config.data, &thread)?;
            opened::runtime()?.block_on(cancel_through_door(*config, cancel))?;
        }
        Reach::Running(directories) => {
            refuse_unknown(&directories.data, &thread)?;
            let handshake = Handshake::of_project(&directories);
            opened::runtime()?.block_on(async {
                let client = Client::find(&directories.data, handshake).await;
                ask(&client.ok_or(Error::Lost)?, &cancel).await
            })?;
        }
    }
    note!("{thread}: whatever was open in it and beneath it is cancelled");
    Ok(Exit::Done.into())
}

async fn ask(client: &Client, cancel: &Ask) -> anyhow::Result<()> {
    let mut answer = Ok(());
    let on_line = |said| match said {
        Said::Failed(detail) => answer = Err(Failed::new(Exit::Unavailable, detail).into()),
        Said::Unknown => {
            let text = "there is no such thread; `organism threads` lists them";
            answer = Err(Failed::new(Exit::Usage, text).into());
        }
        _ => {}
    };
    client.ask(cancel, on_line).await?;
    answer
}

async fn cancel_through_door(config: Config, cancel: Ask) -> anyhow::Result<()> {
    let organism = match Door::open(config).await? {
        Door::Running(client) => return ask(&client, &cancel).await,
        Door::Own(organism) => organism,
        Door::Routed(_) => return Ok(()),
    };
    let Ask::Cancel { thread, by, reason, origin } = cancel else { return Ok(()) };
    organism.handle().cancel(thread, by, reason, origin)?;
    organism.stop("the command is done").await?;
    Ok(())
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
            note!("{thread}: whatever was open in it and beneath it is cancelled");
            Ok(Exit::Done.into())
        }
    }
}

/// Where the threads have one journal, it knows all of them. An organism that never ran has none.
fn refuse_unknown(data: &Path, thread: &ThreadId) -> anyhow::Result<()> {
    let [(None, journal)] = &partitions_in(data)[..] else { return Ok(()) };
    let recorded = Reader::open(journal).and_then(|reader| audit::is_recorded(&reader, thread));
    match recorded {
        Ok(true) => Ok(()),
        Ok(false) | Err(journal::Error::Missing { .. }) => Err(place::unknown(thread).into()),
        Err(error) => Err(place::failed(error)),
    }
}
