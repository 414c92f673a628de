//! `organism backup`: copies the journal while the organism runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::journal::jetstream::identity;
use crate::journal::sqlite::{BackedUp, DirectoryLock, back_up, make_directory};
use crate::journal::{Error, may_have_journal, partition_in, partitions_in};
use crate::organism::{self, project};

use super::exit::{self, CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::{missing_in, note_partition_count};
use super::render::{count, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the copy. It gets the subdirectories `data` and `state`.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    place: JournalTarget,
    /// Write one JSON value for each partition, one on each line.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let from_data = journal_target::data_dir(&args.place)?;
    let Some(from_state) = journal_target::state_dir(&args.place)? else {
        let text = "--data does not name the directory of the checkpoints: add --state DIR";
        return Err(CommandFailure::usage(text).into());
    };

    let data = args.directory.join("data");
    let state = args.directory.join("state");
    let copies = partitions_in(&from_data).into_iter().map(|(partition, journal)| {
        let to = partition.map_or_else(|| data.clone(), |number| partition_in(&data, number));
        (partition, journal, to)
    });
    let copies: Vec<_> = copies.collect();
    refuse_taken(&args.directory, copies.iter().map(|(_, _, to)| to))?;
    note_missing(&from_data, &from_state)?;
    let _lock = lock(&args.directory, &state).map_err(journal_target::failed)?;
    // Another backup may have ended while this one waited for the lock.
    refuse_taken(&args.directory, copies.iter().map(|(_, _, to)| to))?;
    let mut unnamed = Vec::new();
    for (partition, journal, to) in copies {
        let copy = back_up(&journal, &from_state, &to, &state);
        unnamed.push((partition, copy.map_err(journal_target::failed)?));
    }

    project::copy_stored(&from_data, &data).map_err(organism::Error::from)?;
    identity::copy_notes(&from_state, &state).map_err(journal_target::failed)?;
    if unnamed.iter().any(|(partition, _)| partition.is_some()) {
        note_partition_count(&from_data, &data)?;
    }

    // Ordering rule: the journals get their names last, so that an attempt that ends before can be
    // repeated, and a directory with journals has all files beside them.
    let mut finished = Vec::new();
    for (partition, copy) in unnamed {
        let copied = copy.finish();
        let copied = copied.map_err(|error| incomplete(error, finished.len(), &args.directory))?;
        finished.push((partition, copied));
    }

    for (partition, copied) in &finished {
        print_backup(*partition, copied, args.json)?;
    }

    Ok(CommandExit::Done.into())
}

/// Takes a lock for the whole backup into `directory`, so that no other backup writes there.
/// `state` is the state directory of the copy. Creates this directory if it is missing.
fn lock(directory: &Path, state: &Path) -> Result<DirectoryLock, Error> {
    make_directory(state)?;
    DirectoryLock::take_state(state).map_err(|error| match error {
        Error::StateInUse { holder, .. } => {
            Error::InUse { path: directory.display().to_string(), holder }
        }
        error => error,
    })
}

/// Makes the error of a backup that failed while the copied journals got their names. `error` is
/// the cause, and `named` the number of partitions whose journals have their names. If `named` is
/// not 0, the message advises the user to remove the incomplete copy in `directory` before the next
/// backup.
fn incomplete(error: Error, named: usize, directory: &Path) -> anyhow::Error {
    let failed = journal_target::failed(error);
    if named == 0 {
        return failed;
    }

    let exit = exit::code(&failed);
    let text = format!(
        "{failed}; {} holds the journals of {} only: remove it before the next attempt",
        directory.display(),
        count(named as u64, "partition")
    );
    CommandFailure::new(exit, text).into()
}

/// Fails if this host has lost the journal of any partition. Otherwise, prints a note for each
/// partition that the backup leaves out because this host never had the partition's journal.
fn note_missing(data: &Path, state: &Path) -> anyhow::Result<()> {
    let missing = missing_in(data, Some(state))?;
    if let Some(lost) = missing.iter().find(|missing| missing.lost.is_some()) {
        let text = format!("{}; nothing was copied", lost.explanation());
        return Err(CommandFailure::new(CommandExit::ChainBroken, text).into());
    }
    // Without any journal there is no copy, and the error of the backup states it.
    let is_divided = partitions_in(data).iter().any(|(partition, _)| partition.is_some());
    for missing in missing.into_iter().filter(|_| is_divided) {
        note!("note: not in the copy: {}", missing.explanation());
    }
    Ok(())
}

/// Fails if the backup would overwrite something: `directory` is a file, or a directory in `copies`
/// already contains a journal. `copies` are the directories for the copied journals.
fn refuse_taken<'a>(
    directory: &Path,
    mut copies: impl Iterator<Item = &'a PathBuf>,
) -> anyhow::Result<()> {
    let shown = directory.display();
    let taken = match (directory.is_file(), copies.find(|to| may_have_journal(to))) {
        (true, _) => format!("{shown} is a file"),
        (false, Some(to)) => format!("{} holds a journal already", to.display()),
        (false, None) => return Ok(()),
    };

    let text = format!(
        "{taken}, and a backup overwrites nothing; nothing was copied. Name a directory that is new \
         or empty, such as one named after the day"
    );
    Err(CommandFailure::usage(text).into())
}

fn print_backup(partition: Option<u32>, copy: &BackedUp, json: bool) -> anyhow::Result<()> {
    let BackedUp { journal, last, blobs, checkpoints } = copy;
    if json {
        return put_json(&json!({
            "partition": partition,
            "journal": journal,
            "last": last,
            "blobs": blobs,
            "checkpoints": checkpoints,
        }));
    }

    let suffix = partition.map_or_else(String::new, |number| format!(" of partition {number}"));
    put(&format!(
        "journal      {journal}{suffix}\nrecords      up to {last}, with {} and {} outside\n\
         the signing key is not in the copy; verify the copy with `organism verify DIR`\n",
        count(*blobs as u64, "blob"),
        count(*checkpoints as u64, "checkpoint"),
    ))
}
