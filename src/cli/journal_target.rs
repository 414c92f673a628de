//! Which journal, and which thread, a command is about.

use std::path::{Path, PathBuf};

use crate::ids::ThreadId;
use crate::journal::sqlite::{Reader, unreadable};
use crate::journal::{Error, partitions_in};

use super::exit::{self, CommandExit, CommandFailure};
use super::startup;

#[derive(Debug, clap::Args)]
pub struct JournalTarget {
    /// The organism's config, which says where its journal is.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The journal's directory.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// The directory of what is kept outside the journal.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub state: Option<PathBuf>,
}

/// Where the journal of these arguments is.
pub fn data_dir(place: &JournalTarget) -> anyhow::Result<PathBuf> {
    match &place.data {
        Some(data) => Ok(data.clone()),
        None => Ok(startup::directories(place.config.as_deref())?.data),
    }
}

/// Where the checkpoints of these arguments are kept outside the journal.
pub fn state_dir(place: &JournalTarget) -> anyhow::Result<Option<PathBuf>> {
    match (&place.state, &place.data) {
        (Some(state), _) => Ok(Some(state.clone())),
        (None, Some(_)) => Ok(None),
        (None, None) => Ok(Some(startup::directories(place.config.as_deref())?.state)),
    }
}

/// Every journal of these arguments: one, or one for each partition that is here.
pub fn readers(place: &JournalTarget) -> anyhow::Result<Vec<Reader>> {
    let data = data_dir(place)?;
    let open = |journal: &Path| {
        let opened = Reader::open(journal);
        opened.map_err(|error| lost(place, journal, error))
    };
    partitions_in(&data).iter().map(|(_, journal)| open(journal)).collect()
}

/// Why the journal in `data` cannot be opened. One that is gone and that the state directory knows
/// of is lost.
fn lost(place: &JournalTarget, data: &Path, error: Error) -> anyhow::Error {
    let state = state_dir(place).ok().flatten();
    let error = match state {
        Some(state) => unreadable(data, &state, error),
        None => error,
    };
    failed(error.in_journal(data.display()))
}

/// Those of them that a thread is in, or could be: each partition has what belongs to no tree.
pub fn readers_of(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<Vec<Reader>> {
    let mut readers = readers(place)?;
    if readers.len() > 1 {
        let mut with = Vec::new();
        for reader in readers {
            let head = reader.head(&thread.root());
            if head.map_err(|error| failed_in(&reader, error))?.is_some() {
                with.push(reader);
            }
        }
        readers = with;
    }
    Ok(readers)
}

/// A thread id as it was typed.
pub fn known(text: &str) -> anyhow::Result<ThreadId> {
    ThreadId::parse(text)
        .map_err(|error| CommandFailure::new(CommandExit::Usage, error.to_string()).into())
}

/// A well-formed id that names nothing.
pub fn unknown(thread: &ThreadId) -> CommandFailure {
    let message = format!("no thread {thread} is on record; `organism threads` lists them");
    CommandFailure::new(CommandExit::Usage, message)
}

/// As [`failed`], where a journal is read.
pub fn failed_in(reader: &Reader, error: Error) -> anyhow::Error {
    failed(error.in_journal(reader.data().display()))
}

/// A journal's error, with its exit code and what to do about it.
pub fn failed(error: Error) -> anyhow::Error {
    let advice = match &error {
        Error::Missing { .. } => "; say --data DIR, or start an organism first",
        Error::Away { .. } => "; start it, or read the journal without it",
        Error::Held { .. } => "; stop that process, or read the journal without it",
        _ => "",
    };
    CommandFailure::new(exit::of_journal(&error), format!("{error}{advice}")).into()
}
