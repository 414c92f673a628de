//! Partitions whose journals this host lacks, so that a command can neither read nor verify them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use uuid::Uuid;

use crate::config::{BootConfig, StoredConfig};
use crate::durable_file;
use crate::ids::{Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, may_have_journal, partition_in, partitions_in, replaced};
use crate::limits;
use crate::locks::locked;

use super::journal_target;
use super::organism_reach::config_of;

/// A partition without a journal on this host.
pub(super) struct MissingPartition {
    pub partition: u32,
    /// The journal of this partition that this host once had: its id, and the position of its last
    /// acknowledged record. `None` if the state directory notes no such journal.
    pub lost: Option<(Uuid, Position)>,
}

impl MissingPartition {
    /// Explains to an operator what is missing, and what to do.
    pub fn explanation(&self) -> String {
        let partition = self.partition;
        match self.lost {
            Some((journal, records)) => format!(
                "partition {partition}: this host had its journal {journal} with at least \
                 {records} acknowledged records, and the journal is gone; `organism run` copies it \
                 again from its stream"
            ),
            None => format!(
                "partition {partition}: this host has no copy of its journal; a host that pumps \
                 the partition, or stands by for it, has one"
            ),
        }
    }
}

/// Returns the partitions without a journal in `data`. If `state` is given, the result states for
/// each of these partitions whether this host once had its journal.
pub(super) fn missing_in(
    data: &Path,
    state: Option<&Path>,
) -> anyhow::Result<Vec<MissingPartition>> {
    let missing = missing_numbers(data).into_iter().map(|partition| {
        // No journal has the nil id, so any noted journal counts as replaced.
        let noted = |state| replaced(&partition_in(data, partition), state, Uuid::nil());
        let lost = state.map(noted).transpose().map_err(journal_target::failed)?.flatten();
        Ok(MissingPartition { partition, lost })
    });
    missing.collect()
}

/// Returns the partition of `thread` if its journal is missing in `data`. Returns `None` if the
/// number of partitions is not known, and for the thread `sess-organism`, which each partition has.
pub(super) fn missing_partition_of(
    thread: &ThreadId,
    data: &Path,
    state: Option<&Path>,
) -> anyhow::Result<Option<MissingPartition>> {
    let root = thread.root();
    let Some(count) = known_partition_count(data).filter(|_| root != ThreadId::organism()) else {
        return Ok(None);
    };
    let own = root.partition(count);
    Ok(missing_in(data, state)?.into_iter().find(|missing| missing.partition == own))
}

/// File in a copy's data directory that contains the number of partitions of the copied journal.
const COUNT_FILE: &str = "partitions";

/// Writes the number of partitions of the journal in `data`, if it is known, into the data
/// directory `copy`, so that a partition that is missing there is noticed without a config.
pub(super) fn note_partition_count(data: &Path, copy: &Path) -> anyhow::Result<()> {
    let Some(count) = known_partition_count(data) else { return Ok(()) };
    let path = copy.join(COUNT_FILE);
    let line = format!("{count}\n");
    let unfinished = copy.join(format!("{COUNT_FILE}.new"));
    let noted = durable_file::replace(&path, &unfinished, line.as_bytes());
    noted.map_err(|source| {
        let context = path.display().to_string();
        journal_target::failed(Error::Io { context, source })
    })
}

/// Returns the number of partitions of the journal in `data`. The record of a partition decides,
/// because the config may be wrong. If `data` has no such record, the number comes from the
/// organism's config or, in a copy, from the note of the backup. Returns `None` without any of
/// these.
fn known_partition_count(data: &Path) -> Option<u32> {
    // Lock: held during the search, so that each number is searched only once, and a wrong number
    // in the config is noted only once.
    static KNOWN: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());
    let mut known = locked(&KNOWN);
    if let Some(count) = known.get(data) {
        return Some(*count);
    }

    let count = find_partition_count(data)?;
    known.insert(data.to_owned(), count);
    Some(count)
}

/// Finds the number of partitions for [`known_partition_count`].
fn find_partition_count(data: &Path) -> Option<u32> {
    let configured = config_of(data).map(|config| config.partitions());
    let mut journals = partitions_in(data).into_iter().filter(|(partition, _)| partition.is_some());
    if let Some(theirs) = journals.find_map(|(_, journal)| recorded_count(&journal)) {
        if let Some(ours) = configured.filter(|ours| *ours != theirs) {
            let journal = data.display().to_string();
            note!("note: {}", Error::Partitions { journal, ours, theirs });
        }
        return Some(theirs);
    }

    if let Some(count) = configured.filter(|count| *count > 1) {
        return Some(count);
    }

    let noted = std::fs::read_to_string(data.join(COUNT_FILE)).ok()?;
    noted.trim().parse().ok().filter(|count| *count <= limits::PARTITIONS_MAX)
}

/// Returns the number of partitions in the last config of the journal in the directory `journal`. A
/// pump has verified this number. Returns `None` if the journal has no such config, or if the
/// config cannot be read.
fn recorded_count(journal: &Path) -> Option<u32> {
    let reader = JournalReader::open(journal).ok()?;
    let boot = BootConfig::read_last(&reader).ok()??;
    let stored = StoredConfig::read(&reader, &boot).ok()?;
    let config: toml::Table = stored.toml.parse().ok()?;
    let count = config.get("journal")?.get("partitions")?.as_integer()?;
    count.try_into().ok().filter(|count| *count <= limits::PARTITIONS_MAX)
}

/// Returns the numbers of the partitions without a journal in `data`. If the number of partitions
/// is not known, the list ends before the highest partition with a journal. Returns an empty list
/// if the journal in `data` is not divided into partitions.
fn missing_numbers(data: &Path) -> Vec<u32> {
    if may_have_journal(data) {
        return Vec::new();
    }

    let journals = partitions_in(data).into_iter();
    let present: BTreeSet<u32> = journals.filter_map(|(partition, _)| partition).collect();
    let end = known_partition_count(data).or(present.last().copied()).unwrap_or(0);
    (0..end).filter(|partition| !present.contains(partition)).collect()
}

/// Returns the partition and the directory of each journal in `data`, as [`partitions_in`] does.
/// The first call for `data` also prints a note about the partitions without a journal there.
pub(super) fn noted_partitions_in(data: &Path) -> Vec<(Option<u32>, PathBuf)> {
    // Locked briefly: a command reads its journals one after another.
    static NOTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_new = locked(&NOTED).insert(data.to_owned());
    let journals = partitions_in(data);
    // Without a journal of any partition, the command fails to open one, and its error says so.
    let is_divided = journals.iter().any(|(partition, _)| partition.is_some());
    let missing = if is_new && is_divided { missing_numbers(data) } else { Vec::new() };
    if !missing.is_empty() {
        let numbers: Vec<_> = missing.iter().map(u32::to_string).collect();
        note!(
            "note: this host has no copy of the journals of these partitions, so their records \
             are missing from this answer: {}; a host that pumps them, or stands by for them, has \
             a copy",
            numbers.join(", ")
        );
    }
    journals
}
