//! The memory of listeners: the records of a thread, read from the journal.
//!
//! A read goes back along a tree's hash chain, until it reaches a record whose threads are already
//! indexed. So the time to read a thread for a turn depends on the number of records since the last
//! turn, not on the length of the thread or the number of other threads in the tree. Payloads are
//! read only for the requested thread.
//!
//! Must not run on an async worker, because every read may wait for the disk.

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
    /// `up_to`, oldest first. The result may include records of other threads of the tree.
    fn records(
        &self,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, journal::Error>;

    /// Returns every record that concerns `thread` after the position `after`, oldest first. The
    /// default implementation returns no records. It is for a history that is only read up to the
    /// delivery at hand.
    fn records_since(
        &self,
        thread: &ThreadId,
        after: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        let _ = (thread, after);
        Ok(Vec::new())
    }
}
