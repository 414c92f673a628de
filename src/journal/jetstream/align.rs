//! Finding the place of a projection in a stream that no longer has the message it heard last.
//!
//! A repaired stream holds the same records in other messages. So records are compared, each by
//! what was hashed, until the first group that has more than the projection.

use std::collections::HashSet;
use std::path::Path;

use crate::ids::{Digest, Position};
use crate::journal::Error;
use crate::journal::log::LogMark;
use crate::journal::row::Row;
use crate::journal::sqlite::{Reader, Taken};

use super::Options;
use super::api::Api;
use super::stream_reader::StreamReader;

/// How the records of a projection stand in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Alignment {
    /// The stream holds all of them, and this is the last message that has nothing newer.
    Whole { mark: LogMark, last: Position },
    /// The stream ends at this record; the projection has more records, or files.
    Shorter(Position),
    /// The stream holds another record at this position.
    Forked(Position),
}

/// What of a projection stands in a stream.
#[derive(Debug)]
pub(super) struct Compared {
    pub alignment: Alignment,
    /// Digests of the files that the stream has.
    pub blobs: HashSet<Digest>,
    /// Records that the stream has.
    pub records: Position,
    /// Whether a pump ever led it.
    pub has_epoch: bool,
}

/// Compares the projection in `data` with the stream up to message `last_seq`.
pub(super) fn compare(
    api: &Api,
    options: &Options,
    data: &Path,
    last_seq: u64,
) -> Result<Compared, Error> {
    let reader = Reader::open(data)?;
    let last = reader.last()?;
    let mut walk = Walk { reader: &reader, last, mark: LogMark::default(), records: Position(0) };
    let (mut is_newer, mut has_epoch) = (false, false);
    let (mut blobs, mut forked) = (HashSet::new(), None);
    StreamReader::new(api, options).each_group(last_seq, &mut |mark, contents| {
        for taken in &contents.taken {
            match taken {
                Taken::Step(row) if forked.is_none() => forked = walk.follow(row)?,
                Taken::Blob(digest, _) => drop(blobs.insert(*digest)),
                _ => {}
            }
        }
        has_epoch |= contents.epoch.is_some();
        is_newer |= walk.records > last;
        if !is_newer {
            walk.mark = mark;
        }
        Ok(())
    })?;
    let has_files = reader.blobs()?.iter().all(|digest| blobs.contains(digest));
    let Walk { mark, records, .. } = walk;
    let alignment = match forked {
        Some(position) => Alignment::Forked(position),
        None if records < last || !has_files => Alignment::Shorter(records),
        None => Alignment::Whole { mark, last },
    };
    Ok(Compared { alignment, blobs, records, has_epoch })
}

struct Walk<'w> {
    reader: &'w Reader,
    /// Of the projection.
    last: Position,
    mark: LogMark,
    /// Of the stream, so far.
    records: Position,
}

impl Walk<'_> {
    /// The position of `row`, where the projection holds another record.
    fn follow(&mut self, row: &Row<'_>) -> Result<Option<Position>, Error> {
        let position = Position(self.records.0 + 1);
        if row.place.position != position {
            let detail = format!("the stream has record {} here", row.place.position);
            return Err(Error::broken(position.0, detail));
        }
        self.records = position;
        if position > self.last {
            return Ok(None);
        }
        let is_same = self.reader.row_is(position, &|ours| ours.is_same_record(row))?;
        Ok((!is_same).then_some(position))
    }
}

/// What of `taken` a projection that has all records up to `known` does not have.
pub(super) fn newer(taken: Vec<Taken<'_>>, known: Position) -> Vec<Taken<'_>> {
    let mut is_known = false;
    let is_newer = |one: &Taken<'_>| match one {
        Taken::Step(row) => {
            is_known = row.place.position <= known;
            !is_known
        }
        // It belongs to the step before it.
        Taken::Mac(_) => !is_known,
        Taken::Checkpoint(checkpoint) => checkpoint.position > known,
        Taken::Blob(..) => true,
    };
    taken.into_iter().filter(is_newer).collect()
}
