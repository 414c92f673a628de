//! Finds the position of a projection in a stream that no longer has the projection's last message.
//!
//! A repaired stream holds the same records in other messages. So records are compared by their
//! hashed content, up to the first group that has more than the projection.

use std::collections::HashSet;
use std::path::Path;

use crate::ids::{Digest, Position};
use crate::journal::log::LogMark;
use crate::journal::record_codec::StoredRow;
use crate::journal::sqlite::{JournalReader, StreamItem, mac_of};
use crate::journal::{Checkpoint, Error, HeadMac};

use super::Options;
use super::api::JetStreamApi;
use super::stream_reader::StreamReader;

/// How the records of a projection align with a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProjectionAlignment {
    /// The stream has all of them; `mark` is the last message without a newer record.
    Whole { mark: LogMark, last: Position },
    /// The stream ends at this record; the projection has more records, or more files.
    Shorter(Position),
    /// The stream has another record at this position.
    Forked(Position),
}

/// A projection, or an embedded journal that is moved, which is compared with a stream.
pub(super) struct ComparedProjection {
    pub reader: JournalReader,
    pub last: Position,
    checkpoints: HashSet<Checkpoint>,
    blobs: Vec<Digest>,
}

/// Comparison of a projection with its stream.
#[derive(Debug)]
pub(super) struct ProjectionComparison {
    pub alignment: ProjectionAlignment,
    /// Digests of the files that the stream has.
    pub blobs: HashSet<Digest>,
    /// Last record of the stream.
    pub records: Position,
    /// Whether a pump ever led the stream.
    pub has_epoch: bool,
    /// First record whose MAC in the stream differs.
    pub other_mac: Option<Position>,
    /// Checkpoints of the projection that the stream lacks; empty if the projection was opened
    /// without its checkpoints.
    pub missing_checkpoints: HashSet<Checkpoint>,
    /// Files of the projection that the stream lacks.
    pub missing_blobs: Vec<Digest>,
    /// First file whose bytes in the stream do not match its digest, with its message. No host can
    /// read the stream past it, so a later copy does not repair it.
    pub damaged_blob: Option<(u64, Digest)>,
}

impl ComparedProjection {
    /// Opens a projection without its checkpoints: repairs and starts compare only records and
    /// files.
    pub fn open(data: &Path) -> Result<Self, Error> {
        let reader = JournalReader::open(data)?;
        let last = reader.last()?;
        let blobs = reader.blobs()?;
        Ok(Self { reader, last, checkpoints: HashSet::new(), blobs })
    }

    pub fn open_with_checkpoints(data: &Path) -> Result<Self, Error> {
        let mut projection = Self::open(data)?;
        projection.checkpoints = projection.reader.checkpoints()?.into_iter().collect();
        Ok(projection)
    }

    /// Compares the projection with the stream up to message `last_seq`.
    pub fn compare(
        &self,
        api: &JetStreamApi,
        options: &Options,
        last_seq: u64,
    ) -> Result<ProjectionComparison, Error> {
        let last = self.last;
        let mut compared = ProjectionComparison {
            alignment: ProjectionAlignment::Shorter(Position(0)),
            blobs: HashSet::new(),
            records: Position(0),
            has_epoch: false,
            other_mac: None,
            missing_checkpoints: self.checkpoints.clone(),
            missing_blobs: self.blobs.clone(),
            damaged_blob: None,
        };

        let mut mark = LogMark::default();
        let mut forked = None;
        StreamReader::new(api, options).each_group(last_seq, &mut |found, contents| {
            for (at, taken) in contents.taken.iter().enumerate() {
                match taken {
                    StreamItem::Step(row) if forked.is_none() => {
                        let mac = mac_of(&contents.taken, at);
                        forked = self.follow(row, mac, &mut compared)?;
                    }
                    StreamItem::Blob(digest, bytes) => {
                        compared.blobs.insert(*digest);
                        if Digest::of(bytes) != *digest {
                            compared.damaged_blob.get_or_insert((found.seq, *digest));
                        }
                    }
                    StreamItem::Checkpoint(line) => _ = compared.missing_checkpoints.remove(line),
                    _ => {}
                }
            }
            compared.has_epoch |= contents.epoch.is_some();
            if compared.records <= last {
                mark = found;
            }
            Ok(())
        })?;

        let ProjectionComparison { blobs, records, missing_blobs, .. } = &mut compared;
        missing_blobs.retain(|digest| !blobs.contains(digest));
        compared.alignment = match forked {
            Some(position) => ProjectionAlignment::Forked(position),
            None if *records < last || !missing_blobs.is_empty() => {
                ProjectionAlignment::Shorter(*records)
            }
            None => ProjectionAlignment::Whole { mark, last },
        };
        Ok(compared)
    }

    /// Compares the next record of the stream. Returns its position if the projection holds another
    /// record there.
    fn follow(
        &self,
        row: &StoredRow<'_>,
        mac: Option<HeadMac>,
        compared: &mut ProjectionComparison,
    ) -> Result<Option<Position>, Error> {
        let position = Position(compared.records.0 + 1);
        if row.place.position != position {
            let detail = format!("the stream has record {} here", row.place.position);
            return Err(Error::broken(position.0, detail));
        }

        compared.records = position;
        if position > self.last {
            return Ok(None);
        }

        let mut has_same_mac = false;
        let is_same = self.reader.row_is(position, &mut |ours| {
            has_same_mac = ours.mac == mac;
            ours.is_same_record(row)
        })?;
        if !has_same_mac {
            compared.other_mac.get_or_insert(position);
        }

        Ok((!is_same).then_some(position))
    }
}

/// The items of `taken` that a projection with all records up to `known` lacks.
pub(super) fn newer(taken: Vec<StreamItem<'_>>, known: Position) -> Vec<StreamItem<'_>> {
    let mut is_known = false;
    let is_newer = |one: &StreamItem<'_>| match one {
        StreamItem::Step(row) => {
            is_known = row.place.position <= known;
            !is_known
        }
        // A MAC belongs to the step before it.
        StreamItem::Mac(_) => !is_known,
        StreamItem::Checkpoint(checkpoint) => checkpoint.position > known,
        StreamItem::Blob(..) => true,
    };

    taken.into_iter().filter(is_newer).collect()
}
