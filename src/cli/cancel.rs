//! `organism cancel`: cancels all open calls in a thread and its subthreads.

use std::process::ExitCode;

use crate::audit;
use crate::ids::{ListenerName, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{self, partitions_in};
use crate::service::{Error, ServiceRequest};

use super::action_text::ActionText;
use super::command_organism::remaining_work;
use super::decision::{self, DecisionArgs, DecisionOutput};
use super::exit::CommandExit;
use super::journal_target;
use super::missing_partitions::copies_in;
use super::organism_reach::OrganismReach;
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// The thread to cancel, with its subthreads.
    thread: String,
    /// Reason for the cancellation, which the waiting callers receive.
    #[arg(long, default_value = "")]
    reason: ActionText,
    /// Write the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.config.reach(&args.decision)?;
    let thread = journal_target::known(&args.thread)?;
    if reach.starts_organism() {
        refuse_unknown(&reach, &thread)?;
    }

    let signer = args.decision.signer()?;
    let cancel = ServiceRequest::Cancel {
        thread: thread.clone(),
        by: ListenerName::operator(),
        reason: args.reason.into_string(),
        origin: Some(args.decision.origin()),
    };

    let (cancelled, closed) = startup::runtime()?.block_on(async {
        let organism = reach.client_for_cancellation().await?;
        let cancelling = organism.cancel(cancel, signer.as_ref());
        let cancelled = organism.until_stopped(cancelling).await;
        let remains = match &cancelled {
            Ok(Ok(None)) => "the cancellation is on record".to_owned(),
            _ => remaining_work(Some(&thread)),
        };
        let closed = organism.close(&remains).await;
        anyhow::Ok((cancelled, closed))
    })?;
    let cancelled = match cancelled {
        Ok(cancelled) => cancelled,
        Err(signal) => {
            // The error about the stop names the work that remains.
            closed?;
            return Err(signal.into());
        }
    };
    let refusal = match cancelled {
        Err(Error::NoThread { thread }) => {
            let data = args.decision.data.as_deref();
            return Err(journal_target::not_on_record(data, &thread).into());
        }
        other => other?,
    };
    if args.json {
        DecisionOutput::of_thread(&thread, refusal.as_ref()).print();
    }
    decision::ruled(refusal)?;

    note!("{thread}: all open calls in it and its subthreads are cancelled");
    // A signal that came after the cancellation.
    closed?;
    Ok(CommandExit::Done.into())
}

/// Fails if the journal does not contain the thread, so that the command does not start an organism
/// in vain. Checks nothing if the pump must check the thread: if the organism has several partitions,
/// or if the journal is in a stream, and this host has no copy of it or nothing here keeps the copy
/// up to date.
fn refuse_unknown(reach: &OrganismReach, thread: &ThreadId) -> anyhow::Result<()> {
    let data = reach.data();
    let [(None, journal)] = &partitions_in(data)[..] else { return Ok(()) };
    let recorded =
        JournalReader::open(journal).and_then(|reader| audit::is_recorded(&reader, thread));
    match recorded {
        Ok(true) => Ok(()),
        Ok(false) if !copies_in(data).is_complete() => Ok(()),
        Err(journal::Error::Missing { .. }) if reach.is_streamed() => Ok(()),
        Ok(false) | Err(journal::Error::Missing { .. }) => {
            Err(journal_target::not_on_record(None, thread).into())
        }
        Err(error) => Err(journal_target::failed(error)),
    }
}
