//! Runs WAL checkpoints of SQLite, which move the write-ahead log into the journal file. Another OS
//! thread moves most of the log while the pump continues. The journal's writer then moves the short
//! rest itself, or the whole log if no OS thread can be created.
//!
//! SQLite's automatic checkpoints are off, because SQLite does not report if such a checkpoint
//! fails to sync. This module must not know records.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::journal::Error;

use super::connect::{connect_writer, is_disk_full};

/// Result of the last WAL checkpoint.
pub enum WalCheckpointResult {
    /// The checkpoint copied all frames that were in the log when the checkpoint began, but no
    /// later frames.
    Nearly,
    /// The checkpoint did not begin, because no connection to the database could be opened for it.
    NotBegun,
    /// The disk is too full. The checkpoint will be retried later.
    NoRoom,
    Failed(Error),
}

/// Runs at most one WAL checkpoint at a time. Dropping this value waits until the checkpoint has
/// ended.
#[derive(Debug)]
pub struct WalCheckpointer {
    data: PathBuf,
    moving: Option<JoinHandle<WalCheckpointResult>>,
}

impl WalCheckpointer {
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), moving: None }
    }

    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Starts a WAL checkpoint on a new OS thread. Does nothing if this OS thread cannot be
    /// created.
    pub fn begin(&mut self) {
        // Ordering rule: the thread has its own connection. On the writer's connection, each commit
        // would wait for the checkpoint.
        let data = self.data.clone();
        let mover = std::thread::Builder::new().name("journal-log".to_owned());
        let moving = mover.spawn(move || match connect_writer(&data) {
            Ok(db) => move_now(&db),
            Err(_) => WalCheckpointResult::NotBegun,
        });
        self.moving = moving.ok();
    }

    /// Returns the result of the last checkpoint, once. If `wait` is true, first waits until the
    /// checkpoint has ended. If `wait` is false, returns `None` while the checkpoint runs. Also
    /// returns `None` if no checkpoint was begun.
    pub fn ended(&mut self, wait: bool) -> Option<WalCheckpointResult> {
        let moving = self.moving.take_if(|moving| wait || moving.is_finished())?;
        Some(match moving.join() {
            Ok(moved) => moved,
            Err(_) => WalCheckpointResult::Failed(Error::Stopped {
                cause: "the thread that moves the write-ahead log panicked".to_owned(),
            }),
        })
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        // The result no longer matters: the next start reports a failure.
        let _ = self.ended(true);
    }
}

/// Runs a passive WAL checkpoint on the caller's OS thread: copies frames of the write-ahead log
/// into the database file, as far as this is possible without waiting for readers. Returns the
/// result.
pub fn move_now(db: &Connection) -> WalCheckpointResult {
    checkpoint(db, "PASSIVE")
}

/// Moves the whole write-ahead log into the database file on the caller's OS thread, and truncates
/// the log. Waits for readers. Returns the result.
pub fn move_all(db: &Connection) -> WalCheckpointResult {
    checkpoint(db, "TRUNCATE")
}

fn checkpoint(db: &Connection, mode: &str) -> WalCheckpointResult {
    match db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())) {
        Ok(()) => WalCheckpointResult::Nearly,
        Err(error) if is_disk_full(&error) => WalCheckpointResult::NoRoom,
        Err(error) => WalCheckpointResult::Failed(Error::sqlite(
            "moving the write-ahead log into the journal",
        )(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_that_cannot_begin_is_no_fault_of_the_journal() {
        let nowhere = tempfile::tempdir().unwrap();
        let mut mover = WalCheckpointer::new(&nowhere.path().join("gone"));
        mover.begin();
        assert!(mover.is_moving());
        let ended = mover.ended(true);
        assert!(matches!(ended, Some(WalCheckpointResult::NotBegun)));
        assert!(!mover.is_moving());
    }
}
