//! Reads the index of a journal for commands. Shows the progress of indexing, maps errors to
//! command failures, and prints a note if the index lacks records.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::clock::Time;
use crate::ids::Position;
use crate::index::{self, IndexReader, IndexedPause};
use crate::journal::partitions_in;
use crate::locks::locked;
use crate::thread::PauseTarget;

use super::exit::{self, CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::{copies_in, missing_in, noted_partitions_in};
use super::render::{clean, progress_bar};
use crate::audit::past_time;

/// Minimum number of records that an index must lack before a command shows the progress of
/// indexing.
const PROGRESS_RECORDS: u64 = 20_000;

/// Returns the directory of the journal for a query that reads only one journal: the journal of
/// `partition` if it is given, and otherwise the only journal in `data`. Fails if the partition has
/// no journal, or if no partition is given and `data` does not contain exactly one journal.
pub fn one_journal(data: &Path, partition: Option<u32>) -> anyhow::Result<PathBuf> {
    let journals = match partition {
        None => noted_partitions_in(data),
        Some(_) => partitions_in(data),
    };
    let found = match partition {
        None => match journals.as_slice() {
            [(_, directory)] => Some(directory.clone()),
            _ => None,
        },
        Some(_) => journals
            .iter()
            .find(|(found, _)| *found == partition)
            .map(|(_, directory)| directory.clone()),
    };

    found.ok_or_else(|| {
        if let Some(failure) = partition.and_then(|partition| no_copy(data, partition)) {
            return failure.into();
        }
        let partitions = journals.iter().filter_map(|(partition, _)| *partition);
        let listed: Vec<String> = partitions.map(|partition| partition.to_string()).collect();
        let text = match (listed.is_empty(), partition) {
            (true, _) => "this journal has no partitions; leave out --partition".to_owned(),
            (false, None) => {
                format!("pass --partition N: the partitions here are {}", listed.join(", "))
            }
            (false, Some(partition)) => format!(
                "there is no partition {partition} here; the partitions are {}",
                listed.join(", ")
            ),
        };
        CommandFailure::usage(text).into()
    })
}

/// Makes the error for a partition whose journal is missing in `data`. Returns `None` if it is not
/// missing, or if there is no such partition.
fn no_copy(data: &Path, partition: u32) -> Option<CommandFailure> {
    let missing = missing_in(data, None).ok()?;
    let missing = missing.into_iter().find(|missing| missing.partition == partition)?;
    Some(CommandFailure::new(CommandExit::Unavailable, missing.explanation()))
}

/// Answers a query from the index of the journal in `data`. Prints a note for each pause in force,
/// and a note if the index lacks records of the journal.
pub fn read<T>(
    place: &JournalTarget,
    data: &Path,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, index::Error>,
) -> anyhow::Result<T> {
    let bar = progress_bar("indexing ", false);
    let mut begun = None;
    let mut progress = |done: u64, all: u64| {
        let first = *begun.get_or_insert(done);
        if all.saturating_sub(first) >= PROGRESS_RECORDS {
            bar.set_length(all);
            bar.set_position(done);
        }
    };

    let mut behind = None;
    let mut pauses = Vec::new();
    let answer = index::read(data, &mut progress, &mut |reader| {
        behind = reader.is_behind().then(|| (reader.position(), reader.last()));
        pauses = reader.pauses()?;
        query(reader)
    });
    bar.finish_and_clear();
    let answer = answer.map_err(|error| failed(place, data, error))?;
    if let Some((position, last)) = behind {
        note_behind(data, position, last);
    }
    note_pauses(data, &pauses);
    Ok(answer)
}

/// Prints a note that the index of the journal in `data` lacks records. Prints the note only once
/// for each journal, even if the command reads the index page by page.
fn note_behind(data: &Path, position: Position, last: Position) {
    // Locked briefly: the pages of one command are read one after another.
    static NOTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut noted = locked(&NOTED);
    if noted.insert(data.to_owned()) {
        note!(
            "the index is at record {position} of {last}, because its writer has not caught up; \
             later records are missing from this answer"
        );
    }
}

/// Prints a note about each pause in force in `journal`. Prints each note only once, even if the
/// command reads several journals.
fn note_pauses(journal: &Path, pauses: &[IndexedPause]) {
    // Locked briefly: the journals of one command are read one after another.
    static NOTED: Mutex<BTreeSet<PauseTarget>> = Mutex::new(BTreeSet::new());
    for pause in pauses {
        if locked(&NOTED).insert(pause.target.clone()) {
            let text = clean(&pause.to_string());
            match partitions_with(journal, &pause.target) {
                Some((paused, all)) if paused < all => {
                    note!("{text}, in {paused} of {all} partitions");
                }
                _ => note!("{text}"),
            }
        }
    }
}

/// Returns the number of partitions in which a pause of `target` is in force, and the number of all
/// partitions. `journal` is the directory of one of their journals. Returns `None` if the target
/// concerns only one partition, if there is only one, or if an index cannot be read.
fn partitions_with(journal: &Path, target: &PauseTarget) -> Option<(usize, usize)> {
    if matches!(target, PauseTarget::Thread(_)) {
        return None;
    }

    let data = journal.parent()?;
    let journals = partitions_in(data);
    journals.iter().find(|(partition, found)| partition.is_some() && found == journal)?;
    let mut paused = 0;
    for (_, directory) in &journals {
        let pauses = index::read(directory, &mut |_, _| {}, &mut |reader| reader.pauses()).ok()?;
        paused += usize::from(pauses.iter().any(|pause| pause.target == *target));
    }
    Some((paused, journals.len() + copies_in(data).missing.len()))
}

/// Prints a note about each pause that is in force, according to the index of the journal in
/// `data`. Prints nothing if this index lacks records.
pub fn note_pauses_in(data: &Path) {
    if let Some(pauses) = index::read_if_current(data, &mut |reader| reader.pauses()) {
        note_pauses(data, &pauses);
    }
}

/// Answers a query as [`read`] does, from the index of each journal that `place` selects.
pub fn read_all<T>(
    place: &JournalTarget,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, index::Error>,
) -> anyhow::Result<Vec<T>> {
    let data = journal_target::data_dir(place)?;
    let journals = noted_partitions_in(&data);
    journals.iter().map(|(_, directory)| read(place, directory, query)).collect()
}

/// Answers a query as [`read_all`] does. The query gets the partition of each journal, and each
/// answer is returned with its partition. The partition is 0 if the organism has no partitions.
pub fn read_partitions<T>(
    place: &JournalTarget,
    query: &mut dyn FnMut(u32, &mut IndexReader) -> Result<T, index::Error>,
) -> anyhow::Result<Vec<(u32, T)>> {
    let data = journal_target::data_dir(place)?;
    let answers = noted_partitions_in(&data).into_iter().map(|(partition, directory)| {
        let partition = partition.unwrap_or_default();
        Ok((partition, read(place, &directory, &mut |reader| query(partition, reader))?))
    });
    answers.collect()
}

/// Returns the partitions whose journals `place` selects; `[0]` if the organism has no partitions.
pub fn partitions(place: &JournalTarget) -> anyhow::Result<Vec<u32>> {
    let data = journal_target::data_dir(place)?;
    let journals = noted_partitions_in(&data);
    Ok(journals.into_iter().map(|(partition, _)| partition.unwrap_or_default()).collect())
}

/// Parses a time from the command line.
pub fn moment(text: &str) -> anyhow::Result<Time> {
    past_time::parse(text).map_err(|text| CommandFailure::usage(text).into())
}

fn failed(place: &JournalTarget, data: &Path, error: index::Error) -> anyhow::Error {
    match error {
        index::Error::Journal(error) => journal_target::lost(place, data, error),
        other => CommandFailure::new(exit::of_index(&other), other.to_string()).into(),
    }
}
