//! Options that select the journal of a command. This module also opens the selected journals, and
//! parses thread ids.

use std::path::{Path, PathBuf};

use crate::audit::{self, VerifyOptions};
use crate::config::{self, ConfigEnvironment, ProofSettings, StoredConfigError};
use crate::ids::ThreadId;
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, unreadable};

use super::config_error_carets;
use super::exit::{self, CommandExit, CommandFailure};
use super::missing_partitions::{explain_gap_of, noted_partitions_in};
use super::{named_config, startup};

#[derive(Debug, Default, clap::Args)]
pub struct JournalTarget {
    /// The organism's config, which names its journal.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the journal.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// State directory, which contains the files that are kept outside the journal, such as keys.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub state: Option<PathBuf>,
}

/// Returns the data directory that `place` selects.
pub fn data_dir(place: &JournalTarget) -> anyhow::Result<PathBuf> {
    match &place.data {
        Some(data) => Ok(data.clone()),
        None => Ok(startup::directories(place.config.as_deref())?.data),
    }
}

/// Returns the state directory that `place` selects. This directory contains the copies of
/// checkpoints outside the journal. Returns `None` if `place` names only a data directory.
pub fn state_dir(place: &JournalTarget) -> anyhow::Result<Option<PathBuf>> {
    match (&place.state, &place.data) {
        (Some(state), _) => Ok(Some(state.clone())),
        (None, Some(_)) => Ok(None),
        (None, None) => Ok(Some(startup::directories(place.config.as_deref())?.state)),
    }
}

/// Returns the options for the verification of the journals that `place` selects: the directories
/// of the checkpoints and of the keys, and the known keys of other hosts.
pub fn proof_options(place: &JournalTarget) -> anyhow::Result<VerifyOptions> {
    let state = state_dir(place)?;
    let settings = proof_settings(place)?;
    Ok(VerifyOptions {
        key_state: state.clone(),
        state,
        known_keys: settings.known_keys,
        checkpoints: settings.checkpoints,
        ..VerifyOptions::default()
    })
}

/// Returns the config's settings for the verification of the journal. Returns the default settings
/// in these cases:
///
/// - `place` selects directories instead of a config.
/// - No config is found.
/// - The config cannot be loaded, but a project was started with this config file earlier. The
///   function then also prints a note.
pub fn proof_settings(place: &JournalTarget) -> anyhow::Result<ProofSettings> {
    let around = ConfigEnvironment::of_process();
    if place.data.is_some() || place.state.is_some() {
        return Ok(ProofSettings::default());
    }

    let Ok(path) = config::locate(place.config.as_deref(), &around) else {
        return Ok(ProofSettings::default());
    };

    config::proof_settings(&path, &around).or_else(|problems| {
        if startup::directory_by_path(place.config.as_deref()).is_some() {
            note!(
                "note: `known_keys` and `checkpoints` of the config are unknown here, and prove \
                 nothing; `organism verify` takes such keys with --key HEX and such copies with \
                 --checkpoint FILE"
            );
            return Ok(ProofSettings::default());
        }

        config_error_carets::report(&problems);
        Err(CommandFailure::silent(CommandExit::Config).into())
    })
}

/// Opens readers of all journals that `place` selects: one journal, or one for each local
/// partition.
pub fn readers(place: &JournalTarget) -> anyhow::Result<Vec<JournalReader>> {
    let readers = readers_in(place, &data_dir(place)?)?;
    Ok(readers.into_iter().map(|(_, reader)| reader).collect())
}

/// Opens a reader of every journal in `data`, and returns each with the journal's partition.
pub fn readers_in(place: &JournalTarget, data: &Path) -> anyhow::Result<Vec<(u32, JournalReader)>> {
    let open = |(partition, journal): (Option<u32>, PathBuf)| {
        let opened = JournalReader::open(&journal).map_err(|error| lost(place, &journal, error));
        Ok((partition.unwrap_or_default(), opened?))
    };
    noted_partitions_in(data).into_iter().map(open).collect()
}

/// Makes the error of a command that could not open the journal in `data`. The error reports lost
/// records if the state directory shows that the journal once had records.
pub fn lost(place: &JournalTarget, data: &Path, error: Error) -> anyhow::Error {
    let state = state_dir(place).ok().flatten();
    let error = match state {
        Some(state) => unreadable(data, &state, error),
        None => error,
    };
    failed(error.in_journal(data.display()))
}

/// Returns readers of the journals that may contain records of a thread. For most threads, this is
/// the journal of the thread's partition. For the thread `sess-organism`, these are the journals of
/// all partitions, because each partition records events of the organism itself in this thread.
pub fn readers_of(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<Vec<JournalReader>> {
    let readers = partition_readers_of(place, thread)?;
    Ok(readers.into_iter().map(|(_, reader)| reader).collect())
}

/// Returns the readers of [`readers_of`], each with the partition of its journal.
pub fn partition_readers_of(
    place: &JournalTarget,
    thread: &ThreadId,
) -> anyhow::Result<Vec<(u32, JournalReader)>> {
    let mut readers = readers_in(place, &data_dir(place)?)?;
    if readers.len() > 1 {
        let mut with = Vec::new();
        for (partition, reader) in readers {
            let head = reader.head(&thread.root());
            if head.map_err(|error| failed_in(&reader, error))?.is_some() {
                with.push((partition, reader));
            }
        }
        readers = with;
    }

    Ok(readers)
}

/// Parses a thread id from the command line.
pub fn known(text: &str) -> anyhow::Result<ThreadId> {
    ThreadId::parse(text).map_err(|error| CommandFailure::usage(error.to_string()).into())
}

/// Makes the error for a thread without a record in the journals that `place` selects. If the
/// records of the thread belong into a partition that is missing here, or whose copy here is not
/// kept up to date, the error states that.
pub fn unknown(place: &JournalTarget, thread: &ThreadId) -> CommandFailure {
    unavailable(place, thread).unwrap_or_else(|| not_on_record(place.data.as_deref(), thread))
}

/// Makes the error for a thread whose records belong into a partition that is missing here, or whose
/// copy here is not kept up to date. Returns `None` for any other thread.
fn unavailable(place: &JournalTarget, thread: &ThreadId) -> Option<CommandFailure> {
    let explanation = explain_gap(place, thread)?;
    let message = format!("no thread {thread} is in the journals here; {explanation}");
    Some(CommandFailure::new(CommandExit::Unavailable, message))
}

/// Explains why the journals that `place` selects may lack records of a thread. Returns `None` if
/// they cannot lack any.
pub fn explain_gap(place: &JournalTarget, thread: &ThreadId) -> Option<String> {
    let data = data_dir(place).ok()?;
    let state = state_dir(place).ok()?;
    explain_gap_of(thread, &data, state.as_deref()).ok()?
}

/// Makes the error for a thread that is not on record. `data` is the data directory if the command
/// line names it in place of a config.
pub fn not_on_record(data: Option<&Path>, thread: &ThreadId) -> CommandFailure {
    let option = named_config::option_or_data(data);
    let message = format!("no thread {thread} is on record; `organism threads{option}` lists them");
    CommandFailure::usage(message)
}

/// Fails if none of the journals that `place` selects has a record of the thread.
pub fn require_thread(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<()> {
    if has_thread(place, thread)? {
        return Ok(());
    }
    Err(unknown(place, thread).into())
}

/// Whether any journal that `place` selects has a record of the thread.
pub fn has_thread(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<bool> {
    for reader in readers_of(place, thread)? {
        let head = reader.head(&thread.root()).map_err(|error| failed_in(&reader, error))?;
        if head.is_none() {
            continue;
        }
        // The head belongs to the whole tree, so a subthread is looked for among the records.
        let is_known = thread.is_root()
            || audit::thread_timeline(&reader, thread, None)
                .map_err(|error| failed_in(&reader, error))?
                .is_some();
        if is_known {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the same error as [`failed`], and adds the directory of the journal that could not be
/// read.
pub fn failed_in(reader: &JournalReader, error: Error) -> anyhow::Error {
    failed(error.in_journal(reader.data().display()))
}

/// Maps a journal's error to a failure with an exit code and advice.
pub fn failed(error: Error) -> anyhow::Error {
    let advice = match &error {
        Error::Missing { .. } if named_config::gives_data() => {
            "; --data takes the directory of a journal, which `organism check` shows"
        }
        Error::Missing { .. } if named_config::takes_data() => {
            "; pass --data DIR, or start an organism first"
        }
        Error::Missing { .. } => "; start an organism first",
        Error::Unavailable { .. } => "; start it, or read the journal without it",
        Error::InUse { .. } => "; stop that process, or read the journal without it",
        _ => "",
    };

    CommandFailure::new(exit::of_journal(&error), format!("{error}{advice}")).into()
}

/// Maps an error of a stored config to a failure with an exit code and advice.
pub fn failed_stored(error: StoredConfigError) -> anyhow::Error {
    let exit = match &error {
        StoredConfigError::Journal(error) => exit::of_journal(error),
        StoredConfigError::NotStored { .. } | StoredConfigError::Io { .. } => {
            CommandExit::Unavailable
        }
        StoredConfigError::Damaged { .. } => CommandExit::ChainBroken,
        StoredConfigError::Version { .. }
        | StoredConfigError::Invalid { .. }
        | StoredConfigError::Differs { .. } => CommandExit::InvalidData,
    };
    let advice = match &error {
        StoredConfigError::NotStored { position, .. } => {
            format!("; `organism config --at {} --json` shows it", position.0)
        }
        StoredConfigError::Journal(Error::Broken { .. }) => {
            "; `organism verify` shows how far the journal holds".to_owned()
        }
        _ => String::new(),
    };
    CommandFailure::new(exit, format!("{error}{advice}")).into()
}
