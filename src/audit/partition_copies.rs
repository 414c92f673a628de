//! The journals of an organism's partitions as this host has them: the partitions without a journal
//! here, and the copies of streams that no process on this host keeps up to date. What such a
//! journal lacks may still be on record elsewhere.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::clock::Time;
use crate::config::{BootConfig, StoredConfig};
use crate::ids::{Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{has_followed_note, is_followed, may_have_journal, partitions_in};
use crate::limits;

/// File in the data directory of a backup that contains the number of partitions of the copied
/// organism.
pub const PARTITION_COUNT_FILE: &str = "partitions";

/// The gaps in the records of this host. The record of an organism without streams has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionCopies {
    /// Number of all partitions; `None` if it is not known, or if the journal is not divided.
    count: Option<u32>,
    /// Partitions without a journal on this host.
    pub missing: Vec<u32>,
    /// Ends of the copies of streams that no process on this host keeps up to date.
    pub unfollowed: Vec<CopyEnd>,
    /// Whether any journal on this host is a copy of a stream.
    pub is_streamed: bool,
}

/// The last record of a journal that is a copy of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyEnd {
    /// Partition of the journal; `None` if the organism has no partitions.
    pub partition: Option<u32>,
    /// Position and time of the last record; `None` if the copy has no records.
    pub last: Option<(Position, Time)>,
}

/// The reason why the records of a thread may be missing on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteCopy<'c> {
    /// This host has no journal of this partition.
    Missing(u32),
    /// No process on this host keeps the copy with this end up to date.
    Unfollowed(&'c CopyEnd),
}

impl PartitionCopies {
    /// Reads which journals are in `data`, and which of them a process on this host keeps up to
    /// date: it pumps the partition or stands by for it, and reaches the stream.
    ///
    /// `count` is the number of partitions. If it is `None`, the list of missing partitions ends
    /// before the highest partition with a journal. An undivided journal has no missing partitions.
    pub fn read(data: &Path, count: Option<u32>) -> Self {
        let journals = partitions_in(data);
        let count = count.filter(|_| !may_have_journal(data));
        let present: BTreeSet<u32> =
            journals.iter().filter_map(|(partition, _)| *partition).collect();
        let end = count.or(present.last().copied()).unwrap_or(0);
        let missing = (0..end).filter(|partition| !present.contains(partition)).collect();

        let is_copy = |journal: &Path| {
            let reader = JournalReader::open(journal);
            reader.and_then(|reader| reader.is_projection()).unwrap_or_default()
        };
        let is_streamed = journals.iter().any(|(_, journal)| is_copy(journal));
        let unfollowed =
            journals.iter().filter(|(_, journal)| is_streamed && !is_followed(journal));
        let unfollowed =
            unfollowed.filter_map(|(partition, journal)| CopyEnd::read(*partition, journal));
        Self { count, missing, unfollowed: unfollowed.collect(), is_streamed }
    }

    /// Whether this host has the newest records of all partitions, as far as it can know.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unfollowed.is_empty()
    }

    /// Returns the reason why this host may lack records of `thread`. Returns `None` if this host
    /// follows the partition of the thread, and for the thread `sess-organism`, which each partition
    /// has. Also returns `None` if the partition is not known.
    pub fn gap_of(&self, thread: &ThreadId) -> Option<IncompleteCopy<'_>> {
        let root = thread.root();
        if root == ThreadId::organism() {
            return None;
        }

        let partition = self.count.filter(|count| *count > 1).map(|count| root.partition(count));
        if let Some(missing) = partition.filter(|partition| self.missing.contains(partition)) {
            return Some(IncompleteCopy::Missing(missing));
        }
        let unfollowed = self.unfollowed.iter().find(|end| end.partition == partition);
        unfollowed.map(IncompleteCopy::Unfollowed)
    }

    /// Returns the time of the newest record in the copies that no process keeps up to date.
    pub fn newest_unfollowed(&self) -> Option<Time> {
        self.unfollowed.iter().filter_map(|end| end.last).map(|(_, time)| time).max()
    }
}

impl CopyEnd {
    /// Returns the end of the journal in the directory `journal`. Returns `None` if the journal is
    /// not a copy of a stream, or if it cannot be read.
    pub fn read(partition: Option<u32>, journal: &Path) -> Option<Self> {
        let reader = JournalReader::open(journal).ok()?;
        if !reader.is_projection().ok()? {
            return None;
        }

        let last = reader.record(reader.last().ok()?).ok()?;
        let last = last.map(|last| (last.record.position, last.record.time));
        Some(Self { partition, last })
    }
}

/// Formats the end of the copy, such as `record 698 of 2026-12-01T15:46:44.065092Z in partition 3`.
impl fmt::Display for CopyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some((position, time)) => write!(f, "record {position} of {time}")?,
            None => f.write_str("no record")?,
        }
        match self.partition {
            Some(partition) => write!(f, " in partition {partition}"),
            None => Ok(()),
        }
    }
}

/// Returns the partitions whose copy in `data` a process has followed, and none on this host
/// follows now; 0 for the copy of an undivided journal. Reads no journal, in contrast to
/// [`PartitionCopies::read`], and so lists no copy of an earlier version, which noted nothing.
pub fn unfollowed_partitions(data: &Path) -> BTreeSet<u32> {
    let journals = partitions_in(data).into_iter();
    let unfollowed =
        journals.filter(|(_, journal)| has_followed_note(journal) && !is_followed(journal));
    unfollowed.map(|(partition, _)| partition.unwrap_or_default()).collect()
}

/// Returns the number of partitions in the last config of any partition's journal in `data`. A pump
/// has verified this number. Returns `None` if no journal has such a config.
pub fn recorded_partition_count(data: &Path) -> Option<u32> {
    let mut journals = partitions_in(data).into_iter().filter(|(partition, _)| partition.is_some());
    journals.find_map(|(_, journal)| recorded_count(&journal))
}

/// Returns the number of partitions that a backup has noted in `data`; `None` if there is no note.
pub fn noted_partition_count(data: &Path) -> Option<u32> {
    let noted = std::fs::read_to_string(data.join(PARTITION_COUNT_FILE)).ok()?;
    noted.trim().parse().ok().filter(|count| *count <= limits::PARTITIONS_MAX)
}

fn recorded_count(journal: &Path) -> Option<u32> {
    let reader = JournalReader::open(journal).ok()?;
    let boot = BootConfig::read_last(&reader).ok()??;
    let stored = StoredConfig::read(&reader, &boot).ok()?;
    let config: toml::Table = stored.toml.parse().ok()?;
    let count = config.get("journal")?.get("partitions")?.as_integer()?;
    count.try_into().ok().filter(|count| *count <= limits::PARTITIONS_MAX)
}
