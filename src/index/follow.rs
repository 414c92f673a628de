//! Keeps an index up to date while its journal grows.
//!
//! The index is written in sessions. A session holds the lock of the index, so that no other
//! process writes the index. Between commits, the session keeps the rows of open calls and of
//! recent threads in memory. A session ends when the journal is quiet, so that commands find the
//! lock free and can rebuild a deleted or damaged index themselves.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::ids::Position;
use crate::journal::sqlite::JournalReader;
use crate::limits;

use super::Error;
use super::catch_up::{IndexWriter, open_or_build};
use super::file::{self, INDEX_DATABASE, IndexLock, LockResult, failed};
use super::word_thread::WordTable;

/// Function that returns the next position that the writer of the index must reach; `None` ends the
/// writer's session. The function's argument is the position up to which the index is complete.
pub type NextPosition<'n> = dyn FnMut(Position) -> Option<Position> + 'n;

/// Result of an attempt to keep an index up to date with its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowResult {
    Ended,
    /// Another process writes the index.
    Busy,
}

/// Reason why a session stops writing to the index file that it has open.
enum RoundsEnd {
    Ended,
    /// The file was deleted or replaced, or a reader found it damaged.
    Unusable,
}

/// Brings the index of the journal in `data` up to each position that `next` returns. If the index
/// is deleted or damaged meanwhile, rebuilds it.
///
/// If another process writes the index, waits for that process first. The wait ends after a short
/// time, or when `is_stopped` returns true. If that process still writes the index then, returns
/// `FollowResult::Busy`.
///
/// # Errors
///
/// Returns errors of the journal and of the index's file. The caller may try again.
pub fn follow(
    data: &Path,
    is_stopped: &mut dyn FnMut() -> bool,
    next: &mut NextPosition<'_>,
) -> Result<FollowResult, Error> {
    let journal = JournalReader::open(data)?;
    let path = data.join(INDEX_DATABASE);
    let _lock = match IndexLock::take(data, limits::INDEX_WAIT, is_stopped)? {
        LockResult::Locked(lock) => lock,
        LockResult::Busy => return Ok(FollowResult::Busy),
        LockResult::ReadOnly => return Err(Error::lock_denied(data)),
    };

    let mut was_damaged = false;
    loop {
        match write_session(&path, &journal, is_stopped, next) {
            Ok(RoundsEnd::Ended) => return Ok(FollowResult::Ended),
            Ok(RoundsEnd::Unusable) => {}
            // Damage that occurs again after the index was made again is returned to the caller.
            Err(error) if error.is_damage() && !was_damaged => was_damaged = true,
            Err(error) => return Err(error),
        }
        file::remove(&path)?;
    }
}

/// Opens or builds the index at `path`, and brings it up to each position that `next` returns. Ends
/// when `next` returns `None`, or when `is_stopped` stops the building of an index. Also ends when
/// the index file is unusable, for example because it was deleted.
fn write_session(
    path: &Path,
    journal: &JournalReader,
    is_stopped: &mut dyn FnMut() -> bool,
    next: &mut NextPosition<'_>,
) -> Result<RoundsEnd, Error> {
    let last = journal.last()?;
    let Some(db) = open_or_build(path, journal, last, is_stopped, next)? else {
        return Ok(RoundsEnd::Ended);
    };
    let result = write_rounds(path, &db, journal, next);
    match &result {
        Ok(RoundsEnd::Ended) => {}
        Ok(RoundsEnd::Unusable) => abandon(path, db)?,
        Err(error) if error.is_damage() => abandon(path, db)?,
        Err(_) => {}
    }
    result
}

fn write_rounds(
    path: &Path,
    db: &Connection,
    journal: &JournalReader,
    next: &mut NextPosition<'_>,
) -> Result<RoundsEnd, Error> {
    let inode = inode(path);
    let mut writer = IndexWriter::new(path, db, journal, WordTable::Beside)?;
    let mut pace = None;
    loop {
        let reached = file::position(db).map_err(failed(path))?;
        let wanted = next(reached);
        if inode.is_none() || self::inode(path) != inode || file::is_rebuild_requested(path) {
            return Ok(RoundsEnd::Unusable);
        }
        let Some(wanted) = wanted else { return Ok(RoundsEnd::Ended) };

        let next_pace = Pace::of(wanted.0.saturating_sub(reached.0));
        if pace.replace(next_pace) != Some(next_pace) {
            let rows_kept = next_pace.rows_kept();
            writer.set_memory(next_pace.cache_kib(), rows_kept, next_pace.reads_ahead())?;
        }

        // The number of records in a round is limited, because a stop takes effect only between
        // rounds.
        let last = Position(wanted.0.min(reached.0 + next_pace.round_records()));
        writer.catch_up(last, &mut |_, _| {})?;
        // Done only here: a command that brings the index up to date should not wait for merges.
        writer.merge_some()?;
    }
}

/// The distance of an index from the end of its journal. With a large distance, the writer of the
/// index may use more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The index lacks only the newest records. Small caches suffice, and leave memory for the
    /// other work of the pump's process.
    Live,
    /// The index lacks many records. Large commits and large caches save time.
    Backlog,
}

impl Pace {
    fn of(missing: u64) -> Self {
        if missing < limits::INDEX_COMMIT_RECORDS { Self::Live } else { Self::Backlog }
    }

    fn cache_kib(self) -> u32 {
        match self {
            Self::Live => limits::INDEX_LIVE_CACHE_KIB,
            Self::Backlog => limits::INDEX_CACHE_KIB,
        }
    }

    fn rows_kept(self) -> usize {
        match self {
            Self::Live => limits::INDEX_LIVE_ROWS_KEPT,
            Self::Backlog => limits::INDEX_ROWS_KEPT,
        }
    }

    /// Whether the writer reads records into a queue in advance. False for [`Pace::Live`]: few
    /// records are missing then, and reading them takes less time than writing their rows, so a
    /// queue would only take memory.
    fn reads_ahead(self) -> bool {
        self == Self::Backlog
    }

    /// Returns the maximum number of records in one round of the writer. Each round ends with a
    /// commit.
    fn round_records(self) -> u64 {
        match self {
            Self::Live => limits::INDEX_LIVE_COMMIT_RECORDS,
            Self::Backlog => limits::INDEX_COMMIT_RECORDS,
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|file| file.ino())
}

/// Closes the connection `db` and changes no file, because another database may now be at `path`.
fn abandon(path: &Path, db: Connection) -> Result<(), Error> {
    let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    db.set_db_config(config, true).map_err(failed(path))?;
    drop(db);
    Ok(())
}
