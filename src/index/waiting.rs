//! Finds the calls that wait for a person, and their trees.

use rusqlite::Row;

use crate::clock::Time;
use crate::ids::{MessageId, Position, ThreadId};
use crate::thread::Hold;

use super::lookup::id;
use super::{Error, IndexReader};

/// A thread tree in which calls wait for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTree {
    pub root: ThreadId,
    /// Position of the record that opened the first of the waiting calls.
    pub first: Position,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    pub message: MessageId,
    /// Time at which the call began to wait.
    pub since: Time,
    pub root: ThreadId,
    /// Position of the record that opened the call.
    pub position: Position,
    /// The thread of the call.
    pub thread: ThreadId,
    /// The kind of decision that the call waits for; `None` if the index stores a kind that this
    /// program does not know.
    pub hold: Option<Hold>,
}

/// Summary of the calls of a thread, or of a tree, that wait for a person: their number, and the
/// kind of decision for which they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HoldCount {
    pub calls: u64,
    /// The kind of decision for which the counted calls wait. `None` if no call waits, or if the
    /// first 100 calls wait for different kinds. Later calls are not examined.
    pub hold: Option<Hold>,
}

impl HoldCount {
    /// Returns one summary of the calls that `self` and `other` summarise.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let hold = match (self.calls, other.calls) {
            (0, _) => other.hold,
            (_, 0) => self.hold,
            _ => self.hold.filter(|_| self.hold == other.hold),
        };
        Self { calls: self.calls.saturating_add(other.calls), hold }
    }
}

impl IndexReader {
    /// Returns the calls that wait for an approval or an answer, at most `most`. The call that
    /// has waited longest comes first. The second value is the number of all waiting calls, without
    /// this limit.
    pub fn waiting_messages(&self, most: usize) -> Result<(Vec<WaitingMessage>, u64), Error> {
        let count = "SELECT count(*) FROM hold_row INDEXED BY hold_open WHERE ended IS NULL";
        let all = self.rows(count, &[], |row| row.get(0))?;
        let sql = "SELECT m.id, h.since, r.id, m.position, t.id, h.hold \
                   FROM hold_row h INDEXED BY hold_open \
                   CROSS JOIN message_row m ON m.n = h.call \
                   CROSS JOIN thread_row t ON t.n = m.thread \
                   CROSS JOIN thread_row r ON r.n = t.tree \
                   WHERE h.ended IS NULL ORDER BY h.since, m.id LIMIT ?1";
        Ok((self.rows(sql, &[&most], waiting)?, all.first().copied().unwrap_or_default()))
    }

    /// Counts the calls that wait for an approval or an answer, up to `most`.
    pub fn count_waiting(&self, most: u64) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM hold_row INDEXED BY hold_open \
                   WHERE ended IS NULL LIMIT ?1)";
        let count = self.rows(sql, &[&most], |row| row.get(0))?;
        Ok(count.first().copied().unwrap_or_default())
    }

    /// Returns the call with this id if it waits for an approval or an answer, and otherwise
    /// `None`.
    pub fn waiting_message(&self, call: MessageId) -> Result<Option<WaitingMessage>, Error> {
        let sql = "SELECT m.id, h.since, r.id, m.position, t.id, h.hold FROM message_row m \
                   CROSS JOIN hold_row h INDEXED BY hold_open ON h.call = m.n AND h.ended IS NULL \
                   CROSS JOIN thread_row t ON t.n = m.thread \
                   CROSS JOIN thread_row r ON r.n = t.tree WHERE m.id = ?1";
        Ok(self.rows(sql, &[&call.0.as_bytes().as_slice()], waiting)?.pop())
    }

    /// Returns the kind of decision that a call waits for. Returns `None` if the call does not wait
    /// for a person, or if the index stores a kind that this program does not know.
    pub fn open_hold(&self, call: MessageId) -> Result<Option<Hold>, Error> {
        let sql = "SELECT h.hold FROM message_row m CROSS JOIN hold_row h INDEXED BY hold_open \
                   ON h.call = m.n AND h.ended IS NULL WHERE m.id = ?1";
        let found =
            self.rows(sql, &[&call.0.as_bytes().as_slice()], |row| row.get::<_, String>(0))?;
        Ok(found.first().and_then(|word| Hold::parse(word)))
    }

    /// Returns the first `most` calls that wait for a person in a thread and in the threads beneath
    /// it. Takes hardly any time for a tree without waiting calls, even if many calls wait in other
    /// trees.
    pub fn waiting_beneath(
        &self,
        thread: &ThreadId,
        most: usize,
    ) -> Result<Vec<WaitingMessage>, Error> {
        let sql = "SELECT m.id, h.since, r.id, m.position, t.id, h.hold FROM thread_row own \
                   CROSS JOIN tree_row sums ON sums.n = own.tree AND sums.held > 0 \
                   CROSS JOIN thread_row r ON r.n = own.tree \
                   CROSS JOIN thread_row t ON t.tree = own.tree AND t.held > 0 \
                   AND (t.n = own.n OR t.id GLOB ?2 || '.*') \
                   CROSS JOIN call_row c ON c.thread = t.n AND c.closed IS NULL \
                   CROSS JOIN hold_row h INDEXED BY hold_open ON h.call = c.n AND h.ended IS NULL \
                   CROSS JOIN message_row m ON m.n = c.n \
                   WHERE own.id = ?2 ORDER BY h.since, m.id LIMIT ?1";
        self.rows(sql, &[&most, &thread.as_str()], waiting)
    }

    /// Returns the numbers of the first `most` calls that wait for a decision of the kind `hold`,
    /// in the order in which they began to wait. If the next calls began to wait at the same
    /// time as the last of these, the list contains them, too. The second value is the number of
    /// all calls that wait for a decision of this kind.
    pub fn waiting_calls(&self, hold: Hold, most: usize) -> Result<(Vec<i64>, u64), Error> {
        let sql = "SELECT call, since FROM hold_row INDEXED BY hold_open \
                   WHERE ended IS NULL AND hold = ?1 ORDER BY call";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, u64>(1)?));
        let mut calls: Vec<(i64, u64)> = self.rows(sql, &[&hold.as_str()], read)?;
        calls.sort_by_key(|(call, since)| (*since, *call));
        let all = calls.len() as u64;
        let last = most.checked_sub(1).and_then(|last| calls.get(last)).map(|(_, since)| *since);
        let first = calls
            .iter()
            .enumerate()
            .take_while(|(number, (_, since))| *number < most || Some(*since) == last);
        Ok((first.map(|(_, (call, _))| *call).collect(), all))
    }

    /// Returns the tree of each call, with the position of the record that opened the call. `calls`
    /// contains the numbers of the calls in the index.
    ///
    /// # Errors
    ///
    /// Returns an error of SQLite if the index does not have one of the calls.
    pub fn trees_of(&self, calls: &[i64]) -> Result<Vec<WaitingTree>, Error> {
        let sql = "SELECT r.id, m.position FROM message_row m \
                   CROSS JOIN thread_row t ON t.n = m.thread \
                   CROSS JOIN thread_row r ON r.n = t.tree WHERE m.n = ?1";
        let read = |row: &Row<'_>| {
            let root = ThreadId::parse(&row.get::<_, String>(0)?).map_err(|_| wrong_thread())?;
            Ok(WaitingTree { root, first: Position(row.get(1)?) })
        };
        let tree = |call: &i64| {
            let missing = || self.failed(rusqlite::Error::QueryReturnedNoRows);
            self.rows(sql, &[call], read)?.pop().ok_or_else(missing)
        };
        calls.iter().map(tree).collect()
    }
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<WaitingMessage> {
    let root: String = row.get(2)?;
    Ok(WaitingMessage {
        message: id(&row.get::<_, Vec<u8>>(0)?),
        since: Time(row.get(1)?),
        root: ThreadId::parse(&root).map_err(|_| wrong_thread())?,
        position: Position(row.get(3)?),
        thread: ThreadId::parse(&row.get::<_, String>(4)?).map_err(|_| wrong_thread())?,
        hold: Hold::parse(&row.get::<_, String>(5)?),
    })
}

/// Creates the error for a row whose thread has no valid id.
fn wrong_thread() -> rusqlite::Error {
    rusqlite::Error::InvalidColumnName("thread_row.id".to_owned())
}
