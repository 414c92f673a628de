//! Compares the copied checkpoints before the last lines of their file with the journal. A program
//! that can only append to the file cannot hide a copy behind further lines, because all lines are
//! compared, in whatever order they are.

use std::collections::BTreeMap;

use crate::ids::{Digest, Position};
use crate::limits;
use crate::thread::AcceptedLoss;

use super::{Checkpoint, Error};

/// The journal with which earlier copies are compared.
pub(super) struct ComparedRecords<'j> {
    /// Returns the checkpoint that the journal itself has at a position; `None` if it has none
    /// there.
    pub inside: &'j dyn Fn(Position) -> Result<Option<Checkpoint>, Error>,
    /// The last record of the journal.
    pub last: Position,
    /// Whether the journal may get records after `last` from a stream. Copies for later positions
    /// do not contradict the journal then.
    pub is_behind: bool,
}

/// Result of the comparison of earlier copies with a journal.
#[derive(Debug, Default)]
pub(super) struct EarlierFindings {
    /// Highest position after the journal's last record that a copy names; 0 if there is none.
    pub beyond: Position,
    /// The first copy that contradicts the records.
    pub differing: Option<Checkpoint>,
    /// The first copy of a checkpoint that the journal lacks, although it has its records.
    pub missing: Option<Position>,
    /// Copies that contradict the records, but cover records of an accepted loss.
    pub lost: Vec<Checkpoint>,
    /// Copies after the last record of a journal that is behind its stream.
    pub ahead: Vec<Checkpoint>,
    /// Error of reading a checkpoint of the journal. The copies after it are not compared.
    pub unread: Option<Error>,
}

impl EarlierFindings {
    /// Compares the next copy with the journal. `roots` are Merkle roots of the records up to some
    /// positions. A checkpoint of the journal at any other position agrees with the records.
    /// `losses` are the losses of records that operators accepted. Returns false if the copy must
    /// be compared again after the journal has caught up with its stream.
    pub fn compare(
        &mut self,
        line: Checkpoint,
        journal: &ComparedRecords<'_>,
        roots: &BTreeMap<Position, Digest>,
        losses: &[AcceptedLoss],
        keeps_lost: bool,
    ) -> bool {
        if self.unread.is_some() {
            return true;
        }

        let position = line.position;
        let is_lost = losses.iter().any(|loss| loss.covers(position));
        let root = match Self::root_at(position, journal, roots) {
            Ok(root) => root,
            Err(error) => {
                self.unread = Some(error);
                return true;
            }
        };
        // The checkpoint at the last record may be the next item of the stream.
        let is_next = journal.is_behind && position == journal.last && root.is_none();
        if position > journal.last || is_next {
            if !is_lost {
                self.beyond = self.beyond.max(position);
            }
            return is_lost || !journal.is_behind || self.keep_ahead(line);
        }

        if root == Some(line.merkle_root) {
            return true;
        }

        if is_lost {
            self.lost.extend(keeps_lost.then_some(line));
        } else if root.is_some() {
            self.differing.get_or_insert(line);
        } else {
            self.missing.get_or_insert(position);
        }

        true
    }

    /// Returns the Merkle root of the records up to `position`; `None` if it is not known.
    fn root_at(
        position: Position,
        journal: &ComparedRecords<'_>,
        roots: &BTreeMap<Position, Digest>,
    ) -> Result<Option<Digest>, Error> {
        match roots.get(&position) {
            Some(root) => Ok(Some(*root)),
            None if position > journal.last => Ok(None),
            None => Ok((journal.inside)(position)?.map(|inside| inside.merkle_root)),
        }
    }

    /// Keeps a copy after the last record. Returns false if there is no room for it.
    fn keep_ahead(&mut self, line: Checkpoint) -> bool {
        let has_room = self.ahead.len() < limits::COPIES_AHEAD_MAX;
        if has_room {
            self.ahead.push(line);
        }
        has_room
    }
}
