//! The log of a journal. Groups of records are appended to the log, and readers get the groups that
//! follow a given position. Module `writer` sets the positions, hashes and MACs of the records, in
//! the same way for every log.
//!
//! A log is either a file, or a stream that has a file as its projection. `sqlite::scan` reads the
//! file, and `jetstream::stream_reader` the stream.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::thread::Record;

use super::record_codec::{EncodedRow, RecordBatch, StoredRow};
use super::sqlite::JournalFile;
use super::{Checkpoint, Error, HeadMac, RecordHeader, TreeHeads};

/// The encoded records of one commit, with their MAC and, if a checkpoint is due, the checkpoint.
#[derive(Debug)]
pub struct StampedGroup {
    pub rows: RecordBatch,
    pub mac: HeadMac,
    pub checkpoint: Option<Checkpoint>,
}

/// Entries that become durable together: all of them or none.
#[derive(Default)]
pub struct LogGroup<'g> {
    /// Each record with its header.
    pub steps: Vec<(RecordHeader<'g>, EncodedRow<'g>)>,
    pub checkpoints: Vec<&'g Checkpoint>,
    pub blobs: Vec<(Digest, &'g [u8])>,
}

impl<'g> LogGroup<'g> {
    /// Returns the group of `records`; the last record carries the MAC.
    pub fn of_records(records: &'g [Record], stamped: &'g StampedGroup) -> Self {
        let headers = records.iter().map(RecordHeader::from);
        let mut steps: Vec<_> = headers.zip(stamped.rows.iter()).collect();
        if let Some((_, row)) = steps.last_mut() {
            row.mac = Some(stamped.mac);
        }

        Self { steps, checkpoints: stamped.checkpoint.iter().collect(), blobs: Vec::new() }
    }

    /// Returns the approximate size of the group in the write-ahead log, in bytes.
    pub fn size(&self) -> usize {
        let steps = self.steps.iter().map(|(_, row)| row.body.len() + row.payloads.len() + 160);
        let blobs = self.blobs.iter().map(|(_, bytes)| bytes.len());
        steps.chain(blobs).sum::<usize>() + 512 * self.checkpoints.len()
    }
}

/// An entry of a group, as read from a stream.
pub enum StreamItem<'r> {
    Step(StoredRow<'r>),
    Blob(Digest, &'r [u8]),
    /// Checkpoint over all records before this entry.
    Checkpoint(Checkpoint),
}

/// Position of a group in its log: the number and the digest of the group's last message. A
/// projection stores the mark of the last group that it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMark {
    pub seq: u64,
    pub digest: Digest,
}

impl Default for LogMark {
    fn default() -> Self {
        Self { seq: 0, digest: Digest::ZERO }
    }
}

impl fmt::Display for LogMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.seq, self.digest)
    }
}

impl FromStr for LogMark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (seq, digest) = text.split_once(' ').ok_or(())?;
        let seq = seq.parse().map_err(drop)?;
        Ok(Self { seq, digest: Digest::parse(digest).map_err(drop)? })
    }
}

/// A log, to which a journal appends its records in groups. All entries of a group become durable
/// together, or none of them.
pub trait Log: fmt::Debug + Send {
    /// Whether the log has a projection. If so, readers read the projection instead of the log. If
    /// an append has written a group to the log but failed to write the group to the projection,
    /// readers do not see the group yet.
    const HAS_PROJECTION: bool;

    /// Interval between calls of [`super::Journal::checkpoint_if_due`].
    const REST: Duration;

    /// Returns an error if this pump knows that another pump took over the log, or that the log
    /// lost records.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Verifies that no other pump leads, as [`super::Journal::verify_lead`] does.
    fn verify_lead(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Appends a group durably after all earlier groups, but only if no other pump leads. Returns
    /// the position of the group in the log. `heads` are the last records of all trees before the
    /// group. After a failure, the caller may append the same group again until it calls
    /// [`Log::confirm`]. The log stores the group only once.
    fn append(
        &mut self,
        group: &LogGroup<'_>,
        file: &mut JournalFile,
        heads: &mut TreeHeads,
    ) -> Result<LogMark, Error>;

    /// Marks the group at `mark` as appended: the journal now ends at the record `last`.
    fn confirm(&mut self, _mark: LogMark, _journal: Uuid, _last: Position, _hash: Digest) {}
}
