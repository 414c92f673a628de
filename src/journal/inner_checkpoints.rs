//! The checkpoints inside a journal. A reader of the journal compares each checkpoint with the
//! records up to the checkpoint's position.

use std::collections::VecDeque;

use crate::ids::Position;
use crate::limits;

use super::external_marks::agree;
use super::sqlite::JournalReader;
use super::{Checkpoint, Error, TreeHeads};

/// Checkpoints inside a journal that are still to be compared with the journal's records.
///
/// Reads the checkpoints in portions, because their table grows as long as the journal does.
#[derive(Debug)]
pub struct InnerCheckpoints {
    journal: JournalReader,
    /// The next checkpoints, in order of position.
    lines: VecDeque<Checkpoint>,
    /// Checkpoints up to this position have been read from the journal.
    read_to: Position,
    /// Last position whose checkpoint is compared.
    last: Position,
    /// Maximum checkpoints that are in memory at once.
    portion: usize,
}

impl InnerCheckpoints {
    /// Creates the list of the checkpoints after the position `after`, up to the position `last`,
    /// in `journal`.
    pub fn between(journal: JournalReader, after: Position, last: Position) -> Self {
        let portion = limits::INNER_CHECKPOINTS_READ;
        Self { journal, lines: VecDeque::new(), read_to: after, last, portion }
    }

    /// Removes and returns the checkpoint at `position`; `None` if the next checkpoint is at another
    /// position.
    fn take_at(&mut self, position: Position) -> Result<Option<Checkpoint>, Error> {
        let is_it = self.next()?.is_some_and(|line| line.position == position);
        Ok(if is_it { self.lines.pop_front() } else { None })
    }

    /// Returns the next checkpoint; `None` if there is none.
    fn next(&mut self) -> Result<Option<&Checkpoint>, Error> {
        if self.lines.is_empty() && self.read_to < self.last {
            let read = self.journal.checkpoints_between(self.read_to, self.last, self.portion)?;
            self.read_to = read.last().map_or(self.last, |line| line.position);
            self.lines.extend(read);
        }

        Ok(self.lines.front())
    }

    /// Returns the checkpoint at `position`; `None` if the journal has none there. `heads` are the
    /// last records of all trees at that position. Returns an error if the signature of the
    /// checkpoint is invalid, or if its Merkle root differs from that of `heads`.
    pub fn agreed(
        &mut self,
        position: Position,
        heads: &mut TreeHeads,
    ) -> Result<Option<Checkpoint>, Error> {
        let Some(line) = self.take_at(position)? else { return Ok(None) };
        agree(&line, heads)?;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::journal::sqlite::{DATABASE, SqliteJournal};

    #[test]
    fn checkpoints_are_read_in_portions_up_to_the_last_position() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let state = directory.path().join("state");
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        let mut signed = journal.signer.sign(&mut journal.heads, Time(1));
        let db = rusqlite::Connection::open(data.join(DATABASE)).unwrap();
        for position in [2, 3, 5, 8, 9] {
            signed.position = Position(position);
            let line = serde_json::to_string(&signed).unwrap();
            db.execute("INSERT INTO checkpoint VALUES (?1, ?2)", (position, line)).unwrap();
        }

        let reader = JournalReader::open(&data).unwrap();
        let due = InnerCheckpoints::between(reader, Position(2), Position(8));
        let mut due = InnerCheckpoints { portion: 2, ..due };
        let is_due = |at: &u64| due.take_at(Position(*at)).unwrap().is_some();
        let found: Vec<_> = (1..=9).filter(is_due).collect();
        assert_eq!(found, [3, 5, 8]);
    }
}
