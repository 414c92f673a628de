//! Partitions whose journals this host lacks, and copies of journals that nothing on this host keeps
//! up to date. A command can neither read nor verify what they lack, and states so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use uuid::Uuid;

use crate::audit::{self, IncompleteCopy, PARTITION_COUNT_FILE, PartitionCopies};
use crate::durable_file;
use crate::ids::{Position, ThreadId};
use crate::journal::{Error, may_have_journal, partition_in, partitions_in, replaced};
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
    let missing = copies_in(data).missing.into_iter();
    missing.map(|partition| missing_partition(data, state, partition)).collect()
}

fn missing_partition(
    data: &Path,
    state: Option<&Path>,
    partition: u32,
) -> anyhow::Result<MissingPartition> {
    // No journal has the nil id, so any noted journal counts as replaced.
    let noted = |state| replaced(&partition_in(data, partition), state, Uuid::nil());
    let lost = state.map(noted).transpose().map_err(journal_target::failed)?.flatten();
    Ok(MissingPartition { partition, lost })
}

/// Returns which journals of partitions `data` lacks, and which copies there are not kept up to
/// date.
pub(super) fn copies_in(data: &Path) -> PartitionCopies {
    // The number of partitions may cost a load of the config, and an undivided journal has one.
    let count = if may_have_journal(data) { None } else { known_partition_count(data) };
    PartitionCopies::read(data, count)
}

/// Explains to an operator why records of `thread` may be missing in `data`, and what to do. Returns
/// `None` if none can be missing, if the number of partitions is not known, and for the thread
/// `sess-organism`, which each partition has.
pub(super) fn explain_gap_of(
    thread: &ThreadId,
    data: &Path,
    state: Option<&Path>,
) -> anyhow::Result<Option<String>> {
    Ok(match copies_in(data).gap_of(thread) {
        Some(IncompleteCopy::Missing(partition)) => {
            Some(missing_partition(data, state, partition)?.explanation())
        }
        Some(IncompleteCopy::Unfollowed(end)) => Some(format!(
            "no organism on this host follows its stream, and the copy here ends with {end}; a \
             host that pumps it, or stands by for it, may have later records"
        )),
        None => None,
    })
}

/// Whether the records of `thread` belong into a partition without a journal in `data`.
pub(super) fn is_missing(thread: &ThreadId, data: &Path) -> bool {
    matches!(copies_in(data).gap_of(thread), Some(IncompleteCopy::Missing(_)))
}

/// Writes the number of partitions of the journal in `data`, if it is known, into the data
/// directory `copy`, so that a partition that is missing there is noticed without a config.
pub(super) fn note_partition_count(data: &Path, copy: &Path) -> anyhow::Result<()> {
    let Some(count) = known_partition_count(data) else { return Ok(()) };
    let path = copy.join(PARTITION_COUNT_FILE);
    let line = format!("{count}\n");
    let unfinished = copy.join(format!("{PARTITION_COUNT_FILE}.new"));
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
    if let Some(theirs) = audit::recorded_partition_count(data) {
        if let Some(ours) = configured.filter(|ours| *ours != theirs) {
            let journal = data.display().to_string();
            note!("note: {}", Error::Partitions { journal, ours, theirs });
        }
        return Some(theirs);
    }
    configured.filter(|count| *count > 1).or_else(|| audit::noted_partition_count(data))
}

/// Returns the partition and the directory of each journal in `data`, as [`partitions_in`] does.
/// The first call for `data` also prints notes about the records that these journals lack.
pub(super) fn noted_partitions_in(data: &Path) -> Vec<(Option<u32>, PathBuf)> {
    // Locked briefly: a command reads its journals one after another.
    static NOTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if locked(&NOTED).insert(data.to_owned()) {
        note_gaps(data);
    }
    partitions_in(data)
}

/// Prints notes about the partitions without a journal in `data`, and about the copies there that
/// are not kept up to date.
fn note_gaps(data: &Path) {
    let copies = copies_in(data);
    // Without a journal of any partition, the command fails to open one, and its error says so.
    let is_divided = partitions_in(data).iter().any(|(partition, _)| partition.is_some());
    if is_divided && !copies.missing.is_empty() {
        let numbers: Vec<_> = copies.missing.iter().map(u32::to_string).collect();
        note!(
            "note: this host has no copy of the journals of these partitions, so their records \
             are missing from this answer: {}; a host that pumps them, or stands by for them, has \
             a copy",
            numbers.join(", ")
        );
    }
    if !copies.unfollowed.is_empty() {
        let ends: Vec<_> = copies.unfollowed.iter().map(ToString::to_string).collect();
        note!(
            "note: no organism on this host follows these copies of streams, so later records may \
             be missing from this answer: they end with {}",
            ends.join(", ")
        );
    }
}
