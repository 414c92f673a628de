//! Finds the trees in which calls wait for a person.

use crate::ids::{Position, ThreadId};

use super::{Error, IndexReader};

/// A tree in which calls wait for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTree {
    pub root: ThreadId,
    /// Record that opened the first of these calls.
    pub first: Position,
}

impl IndexReader {
    /// The trees in which calls wait for an approval or an answer.
    pub fn waiting_trees(&self) -> Result<Vec<WaitingTree>, Error> {
        let sql = "SELECT r.id, min(m.position) FROM hold_row h INDEXED BY hold_open \
                   CROSS JOIN message_row m ON m.n = h.call \
                   CROSS JOIN thread_row t ON t.n = m.thread \
                   CROSS JOIN thread_row r ON r.n = t.tree \
                   WHERE h.ended IS NULL GROUP BY r.n";
        let found = || -> rusqlite::Result<Vec<(String, u64)>> {
            let mut query = self.connection().prepare(sql)?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        let found = found().map_err(|error| self.failed(error))?;

        let tree = |(root, first): (String, u64)| {
            let root = ThreadId::parse(&root).map_err(|_| self.failed(wrong_thread()))?;
            Ok(WaitingTree { root, first: Position(first) })
        };
        found.into_iter().map(tree).collect()
    }
}

/// The error for a row whose thread has no valid id.
fn wrong_thread() -> rusqlite::Error {
    rusqlite::Error::InvalidColumnName("thread_row.id".to_owned())
}
