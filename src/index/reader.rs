//! Reads an index, after it was brought up to date.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::ids::Position;
use crate::journal::sqlite::JournalReader;
use crate::limits;

use super::Error;
use super::catch_up::{catch_up, update};
use super::file::{self, INDEX_DATABASE, IndexLock, LockResult, failed};

/// An index that is open for reading.
#[derive(Debug)]
pub struct IndexReader {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    journal: JournalReader,
    position: Position,
    last: Position,
}

impl IndexReader {
    /// Position up to which the index is complete.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Last position of the journal when the index was opened.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Whether the index lacks records, because another process still writes it.
    pub fn is_behind(&self) -> bool {
        self.position < self.last
    }

    /// The journal of the index.
    pub fn journal(&self) -> &JournalReader {
        &self.journal
    }

    /// The connection, which permits reading only.
    pub fn connection(&self) -> &Connection {
        &self.db
    }

    /// Maps an error of a query.
    pub fn failed(&self, error: rusqlite::Error) -> Error {
        failed(&self.path)(error)
    }
}

/// Answers a query from the index of the journal in `data`. Brings the index up to date before, and
/// makes it anew if it proves damaged. Waits at most a second for another process that writes the
/// index; after that, the answer is what the index holds so far.
///
/// # Errors
///
/// Those of the journal, of the index's file, and of `query`.
pub fn read<T>(
    data: &Path,
    progress: &mut dyn FnMut(u64, u64),
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
) -> Result<T, Error> {
    let first = open(data, progress).and_then(|mut reader| query(&mut reader));
    match first {
        Err(error) if error.is_damage() => {
            discard(data)?;
            open(data, progress).and_then(|mut reader| query(&mut reader))
        }
        other => other,
    }
}

/// Answers a query from the index, like [`read`], if the index lacks so few records that bringing it
/// up to date takes less time than reading the journal. Otherwise, and if the index cannot be used,
/// returns `None`: the caller reads the journal instead.
pub fn read_if_current<T>(
    data: &Path,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
) -> Option<T> {
    let answer = open_if_near(data).transpose()?.and_then(|mut reader| query(&mut reader));
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            tracing::debug!("the journal is read instead of its index: {error}");
            None
        }
    }
}

/// Answers a query from the index, like [`read`], unless the index must be made first, or lacks so
/// many records that bringing it up to date takes as long. Then the result is `None`, and the caller
/// has [`read`] make the index.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_unless_far<T>(
    data: &Path,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let reader = match open_if_near(data) {
        Ok(None) => open_if_another_writes(data),
        other => other,
    };
    let answer = reader.and_then(|reader| reader.map(|mut reader| query(&mut reader)).transpose());
    match answer {
        Err(error) if error.is_damage() => {
            discard(data)?;
            Ok(None)
        }
        other => other,
    }
}

/// The index as far as it is complete, if another process writes it, or if no process can.
fn open_if_another_writes(data: &Path) -> Result<Option<IndexReader>, Error> {
    match IndexLock::take(data, Duration::ZERO, &mut || false)? {
        LockResult::Locked(_) => Ok(None),
        LockResult::Busy | LockResult::ReadOnly => open(data, &mut |_, _| {}).map(Some),
    }
}

/// The index if it is complete, or complete after a short time.
fn open_if_near(data: &Path) -> Result<Option<IndexReader>, Error> {
    let journal = JournalReader::open(data)?;
    let last = journal.last()?;
    let path = data.join(INDEX_DATABASE);
    if !path.exists() {
        return Ok(None);
    }
    if let Some(db) = current(&path, &journal, last)? {
        return finish(db, journal, last, path).map(Some);
    }

    let db = connect(&path)?;
    let known = file::position(&db).map_err(failed(&path))?;
    let is_near = last.0.saturating_sub(known.0) <= limits::INDEX_NEAR_RECORDS
        && file::check(&path, &db, &journal)?;
    if !is_near {
        return Ok(None);
    }

    let lock = IndexLock::take(data, limits::INDEX_WAIT, &mut || has_reached(&db, last))?;
    drop(db);
    match lock {
        LockResult::Locked(_lock) => update(&path, &journal, last, &mut |_, _| {})?,
        LockResult::Busy | LockResult::ReadOnly => {}
    }
    match current(&path, &journal, last)? {
        Some(db) => finish(db, journal, last, path).map(Some),
        None => Ok(None),
    }
}

fn open(data: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<IndexReader, Error> {
    let journal = JournalReader::open(data)?;
    let last = journal.last()?;
    let path = data.join(INDEX_DATABASE);
    if let Some(reader) = current(&path, &journal, last)? {
        return finish(reader, journal, last, path);
    }

    let waiting = connect(&path).ok();
    let mut is_enough = || waiting.as_ref().is_some_and(|db| has_reached(db, last));
    match IndexLock::take(data, limits::INDEX_WAIT, &mut is_enough)? {
        LockResult::Locked(lock) => {
            update(&path, &journal, last, progress)?;
            drop(lock);
            let db = connect(&path)?;
            finish(db, journal, last, path)
        }
        LockResult::Busy => {
            // The file may have been replaced while this reader waited.
            let db = connect(&path).ok();
            let db = db.filter(|db| file::check(&path, db, &journal).unwrap_or(false));
            match db {
                Some(db) => finish(db, journal, last, path),
                None => Err(Error::Building { path }),
            }
        }
        LockResult::ReadOnly => {
            let db = file::open_temporary(&journal)?;
            catch_up(&path, &db, &journal, last, progress)?;
            finish(db, journal, last, path)
        }
    }
}

/// A connection to the index if it is complete up to `last` and usable.
fn current(
    path: &Path,
    journal: &JournalReader,
    last: Position,
) -> Result<Option<Connection>, Error> {
    if !path.exists() {
        return Ok(None);
    }

    let checked = connect(path).and_then(|db| {
        let is_complete = file::position(&db).map_err(failed(path))? >= last;
        Ok((is_complete && file::check(path, &db, journal)?).then_some(db))
    });
    match checked {
        // The writer decides what becomes of a file that cannot be used.
        Err(Error::Sqlite { .. }) => Ok(None),
        other => other,
    }
}

/// Whether an index is complete up to `last`. A reader that waits for the writer evaluates this every
/// few milliseconds, so it opens nothing. In the place of an index that the writer makes anew meanwhile,
/// the old one stays open, and the reader waits until its time is over.
fn has_reached(db: &Connection, last: Position) -> bool {
    file::position(db).is_ok_and(|position| position >= last)
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(failed(path))?;
    db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT).map_err(failed(path))?;
    Ok(db)
}

fn finish(
    db: Connection,
    journal: JournalReader,
    last: Position,
    path: PathBuf,
) -> Result<IndexReader, Error> {
    let position = file::position(&db).map_err(failed(&path))?;
    db.pragma_update(None, "query_only", true).map_err(failed(&path))?;
    Ok(IndexReader { db, path, journal, position, last })
}

/// Deletes an index that proved damaged. If another process writes it, leaves a request for that
/// process to make the index again.
fn discard(data: &Path) -> Result<(), Error> {
    let path = data.join(INDEX_DATABASE);
    match IndexLock::take(data, limits::INDEX_WAIT, &mut || false)? {
        LockResult::Locked(_lock) => file::remove(&path),
        LockResult::Busy => {
            file::request_rebuild(&path)?;
            Err(Error::Building { path })
        }
        LockResult::ReadOnly => Ok(()),
    }
}
