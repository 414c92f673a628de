//! The memory of listeners: the records of a thread, read from the journal.
//!
//! The journal is read back along a tree's hash chain, and only to what is already known: where the
//! records of each thread of the tree stand. So a turn costs what is new since the last turn,
//! however long the thread is and however many other threads the tree has. Payloads are read only
//! for the thread in question.
//!
//! Must not run on an async worker: every read may wait for the disk.

mod joined_history;
mod journal_memory;
mod tree_index;

use crate::ids::{Position, ThreadId};
use crate::journal;
use crate::thread::Record;

pub use joined_history::JoinedHistory;
pub use journal_memory::JournalMemory;

/// Source of a thread's records.
pub trait ThreadHistory: Send + Sync {
    /// Returns every record that concerns `thread` after the position `after`, up to and including
    /// `up_to`, oldest first. Records of other threads of the tree may be among them.
    fn records(
        &self,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, journal::Error>;

    /// Returns every record that concerns `thread` after the position `after`, oldest first. A
    /// history that has only the thread of the present delivery returns none.
    fn records_since(
        &self,
        thread: &ThreadId,
        after: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        let _ = (thread, after);
        Ok(Vec::new())
    }
}
