//! Moving the write-ahead log into the journal file, beside the writer: the pump goes on
//! meanwhile.
//!
//! Done here rather than by SQLite, which would keep a failed sync to itself. Nothing is known
//! here of records.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode};

use crate::journal::Error;

use super::open;

/// What the last move came to.
pub enum WalCheckpointResult {
    /// All but what was written since it began.
    Nearly,
    /// Nothing: there was no way to begin beside the writer.
    NotBegun,
    /// The disk is too full for it: it comes later.
    NoRoom,
    Failed(Error),
}

/// At most one move at a time, waited for when this is dropped.
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

    /// Begins to move, on a thread of its own, where one can be had.
    pub fn begin(&mut self) {
        let data = self.data.clone();
        let mover = std::thread::Builder::new().name("journal-log".to_owned());
        let moving = mover.spawn(move || match open::connect(&data) {
            Ok(db) => move_now(&db),
            Err(_) => WalCheckpointResult::NotBegun,
        });
        self.moving = moving.ok();
    }

    /// What the move came to, once it has ended. `wait`: do not return before.
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
        // Whoever lets go of a journal has nothing more to promise: what this came to is told by
        // the next start.
        let _ = self.ended(true);
    }
}

/// Moves what no reader needs where it is, on this thread.
pub fn move_now(db: &Connection) -> WalCheckpointResult {
    match db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        Ok(()) => WalCheckpointResult::Nearly,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            WalCheckpointResult::NoRoom
        }
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
