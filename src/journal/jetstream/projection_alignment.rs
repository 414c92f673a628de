//! Finds the message after which a projection continues to read its stream. This is needed if the
//! stream no longer has the last message that the projection read. A projection is a copy of the
//! journal that a process makes from the stream.
//!
//! A repaired stream has the same records in other messages. So this module compares the content of
//! records, not message numbers. The projection continues before the first record that it lacks.

use std::collections::HashSet;
use std::path::Path;

use crate::ids::{Digest, Position};
use crate::journal::log::{LogMark, StreamItem};
use crate::journal::record_codec::StoredRow;
use crate::journal::sqlite::JournalReader;
use crate::journal::{Checkpoint, Error};

use super::Options;
use super::api::JetStreamApi;
use super::commit_codec::CommitContents;
use super::stream_reader::StreamReader;

/// How the records of a projection align with a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProjectionAlignment {
    /// The stream has all records of the projection, and `last` is the last record of the
    /// projection. The projection continues to read the stream after the message `mark`, because
    /// the projection has all records up to this message.
    Whole { mark: LogMark, last: Position },
    /// The stream lacks records of the projection, or files, such as configs, that the projection
    /// has. The stream's last record is at this position.
    Shorter(Position),
    /// At this position, the stream and the projection have different records.
    Forked(Position),
}

/// A projection that is compared with a stream, or an embedded journal that is being moved into a
/// stream.
pub(super) struct ComparedProjection {
    pub reader: JournalReader,
    pub last: Position,
    pub checkpoints: HashSet<Checkpoint>,
    pub blobs: Vec<Digest>,
    /// Whether two rows at one position, of the projection and of the stream, hold the same record.
    pub is_same: fn(&StoredRow<'_>, &StoredRow<'_>) -> bool,
}

/// Result of comparing a projection with its stream.
#[derive(Debug)]
pub(super) struct ProjectionComparison {
    pub alignment: ProjectionAlignment,
    /// Digests of the organism's files that the stream has, such as configs and schemas.
    pub blobs: HashSet<Digest>,
    /// Position of the last record of the stream, also if the stream is forked.
    pub records: Position,
    /// Whether the stream contains a message that begins an epoch. Each start of a pump and the end
    /// of each move write such a message.
    pub has_epoch: bool,
    /// First record whose MAC in the stream differs from its MAC in the projection; `None` if there
    /// is no such record.
    pub other_mac: Option<Position>,
    /// Description of the first entry that the stream has and the projection lacks; `None` if there
    /// is no such entry.
    pub foreign: Option<String>,
    /// Checkpoints that the projection has and the stream lacks; empty if the projection was opened
    /// without its checkpoints.
    pub missing_checkpoints: HashSet<Checkpoint>,
    /// Digests of the organism's files that the projection has and the stream lacks.
    pub missing_blobs: Vec<Digest>,
    /// First damaged file in the stream: the number of the message that contains the file, and the
    /// file's digest. The bytes of a damaged file do not match its digest. `None` if no file is
    /// damaged. No host can read the stream beyond this message, even if a later message contains
    /// an intact copy of the file.
    pub damaged_blob: Option<(u64, Digest)>,
}

impl ComparedProjection {
    /// Opens a projection without its checkpoints, for the start of a pump or for a repair. The
    /// start and the repair compare only records and files.
    pub fn open(data: &Path) -> Result<Self, Error> {
        let reader = JournalReader::open(data)?;
        let last = reader.last()?;
        let blobs = reader.blobs()?;
        Ok(Self {
            reader,
            last,
            checkpoints: HashSet::new(),
            blobs,
            is_same: |ours, theirs| ours.is_same_record(theirs),
        })
    }

    pub fn open_with_checkpoints(data: &Path) -> Result<Self, Error> {
        let mut projection = Self::open(data)?;
        projection.checkpoints = projection.reader.checkpoints()?.into_iter().collect();
        Ok(projection)
    }

    /// Compares the projection with the stream up to message `last_seq`, and returns the result.
    pub fn compare(
        &self,
        api: &JetStreamApi,
        options: &Options,
        last_seq: u64,
    ) -> Result<ProjectionComparison, Error> {
        self.compare_groups(&StreamReader::new(api, options), last_seq, &mut |_, _, _| Ok(()))
    }

    /// Compares the projection with the stream, as [`ComparedProjection::compare`] does. After each
    /// commit in the stream, calls `visit` with the number of the commit's last message, the
    /// content of the commit, and the comparison so far.
    pub fn compare_groups(
        &self,
        reader: &StreamReader<'_>,
        last_seq: u64,
        visit: &mut dyn FnMut(u64, &CommitContents<'_>, &ProjectionComparison) -> Result<(), Error>,
    ) -> Result<ProjectionComparison, Error> {
        let last = self.last;
        let mut compared = ProjectionComparison {
            alignment: ProjectionAlignment::Shorter(Position(0)),
            blobs: HashSet::new(),
            records: Position(0),
            has_epoch: false,
            other_mac: None,
            foreign: None,
            missing_checkpoints: self.checkpoints.clone(),
            missing_blobs: self.blobs.clone(),
            damaged_blob: None,
        };

        let mut mark = LogMark::default();
        let mut forked = None;
        reader.each_group(last_seq, &mut |found, contents| {
            for taken in &contents.taken {
                match taken {
                    StreamItem::Step(row) if forked.is_none() => {
                        let next = Position(compared.records.0 + 1);
                        if row.place.position != next {
                            let detail = format!("record {}, not {next}", row.place.position);
                            return Err(reader.damage(found.seq, &detail));
                        }
                        forked = self.follow(row, &mut compared)?;
                    }
                    StreamItem::Step(row) => compared.records = row.place.position,
                    StreamItem::Blob(digest, bytes) => {
                        compared.blobs.insert(*digest);
                        let is_damaged = Digest::of(bytes) != *digest;
                        if is_damaged {
                            compared.damaged_blob.get_or_insert((found.seq, *digest));
                        }
                        if is_damaged || self.blobs.binary_search(digest).is_err() {
                            compared.add_foreign(|| format!("another blob {digest}"));
                        }
                    }
                    StreamItem::Checkpoint(line) => {
                        let at = line.position;
                        if !compared.missing_checkpoints.remove(line) || at != compared.records {
                            compared.add_foreign(|| format!("another checkpoint over {at}"));
                        }
                    }
                }
            }
            compared.has_epoch |= contents.epoch.is_some();
            if compared.records <= last {
                mark = found;
            }
            visit(found.seq, &contents, &compared)
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

    /// Compares the next record of the stream with the projection. If the projection has a
    /// different record at the same position, returns this position. Otherwise, returns `None`.
    fn follow(
        &self,
        row: &StoredRow<'_>,
        compared: &mut ProjectionComparison,
    ) -> Result<Option<Position>, Error> {
        let position = row.place.position;
        compared.records = position;
        if position > self.last {
            compared
                .foreign
                .get_or_insert_with(|| format!("record {position}, after the last one"));
            return Ok(None);
        }

        let mut has_same_mac = false;
        let is_same = self.reader.row_is(position, &mut |ours| {
            has_same_mac = ours.mac == row.mac;
            (self.is_same)(ours, row)
        })?;
        if !is_same {
            compared.add_foreign(|| format!("another record {position}"));
        }

        if !has_same_mac {
            compared.other_mac.get_or_insert(position);
            compared.add_foreign(|| format!("another MAC over {position}"));
        }

        Ok((!is_same).then_some(position))
    }
}

impl ProjectionComparison {
    fn add_foreign(&mut self, describe: impl FnOnce() -> String) {
        self.foreign.get_or_insert_with(describe);
    }
}
