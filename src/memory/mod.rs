//! The memory of listeners: the records of a thread, read from the journal.
//!
//! The records of a tree form a hash chain. A read follows this chain back from the newest record
//! until it comes to a record that an earlier read has indexed. So the time to read a thread for a
//! turn depends on the number of records since the previous turn, not on the size of the thread or
//! its tree. Payloads are read only for the requested thread.
//!
//! A fork refers to the history of its source. [`ThreadHistory`] reads one thread together with
//! this history, and [`tree_with_history`] reads a whole tree. Both return the history as records
//! of the fork, so that a reader need not know that the tree is a fork.
//!
//! Do not read threads on an async worker, because every read may wait for the disk.

mod joined_history;
mod journal_memory;
mod shared_records;
mod tree_history;
mod tree_index;

use crate::ids::{Position, ThreadId};
use crate::journal;
use crate::thread::Record;

pub use joined_history::JoinedHistory;
pub use journal_memory::JournalMemory;
pub use tree_history::{tree_with_history, with_history};

/// Source of a thread's records.
pub trait ThreadHistory: Send + Sync {
    /// Returns at least every record that concerns `thread` after the position `after`, up to and
    /// including `up_to`, oldest first. An implementation may also return records that concern only
    /// other threads of the tree.
    fn records(
        &self,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, journal::Error>;

    /// Returns every record that concerns `thread` after the position `after`, oldest first. The
    /// default implementation returns no records, which suffices for a source that is read only
    /// with [`ThreadHistory::records`].
    fn records_since(
        &self,
        thread: &ThreadId,
        after: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        let _ = (thread, after);
        Ok(Vec::new())
    }
}
