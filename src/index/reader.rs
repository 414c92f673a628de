//! Reads an index after bringing it up to date.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::ids::Position;
use crate::journal::sqlite::{
    DATABASE as JOURNAL_DATABASE, JournalReader, keep_plans, require_room,
};
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
    files: [Option<FileId>; 2],
    position: Position,
    last: Position,
}

impl IndexReader {
    /// Returns the position up to which the index is complete.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the position of the journal's last record, as it was when the present query of this
    /// reader began.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Whether the index lacks records. This happens while another process is still writing the
    /// index.
    pub fn is_behind(&self) -> bool {
        self.position < self.last
    }

    /// Returns the journal of the index.
    pub fn journal(&self) -> &JournalReader {
        &self.journal
    }

    /// Whether the paths of the journal and the index still lead to the files that this reader has
    /// open. False after an operator has restored the journal, or after a damaged index was rebuilt
    /// in a new file.
    pub(super) fn has_present_files(&self) -> bool {
        self.files.iter().all(Option::is_some) && self.files == files(&self.path, &self.journal)
    }

    /// Whether the index is complete up to `last`.
    pub(super) fn has_reached(&self, last: Position) -> bool {
        has_reached(&self.db, last)
    }

    /// Prepares this reader for the next query, for which the journal ends at `last`. Returns false
    /// if the last record in the index is not a record of the journal.
    pub(super) fn move_to(&mut self, last: Position) -> Result<bool, Error> {
        let end = file::end(&self.db).map_err(failed(&self.path))?;
        self.position = end.position;
        self.last = last;
        file::is_end_of(&end, &self.journal)
    }

    /// Returns the connection, which permits only reading.
    pub fn connection(&self) -> &Connection {
        &self.db
    }

    /// Returns the files with which another OS thread can open a reader of the same
    /// index. Returns `None` if the index is temporary, because only this reader can read a
    /// temporary index.
    pub(super) fn source(&self) -> Option<ReaderSource> {
        (!self.is_temporary()).then(|| ReaderSource {
            path: self.path.clone(),
            data: self.journal.data().to_owned(),
            files: self.files,
            last: self.last,
        })
    }

    /// Whether the index is temporary: only this reader can read it, and only this reader brings it
    /// up to date.
    pub(super) fn is_temporary(&self) -> bool {
        self.db.path().is_none_or(str::is_empty)
    }

    /// Brings a temporary index up to date, and prepares this reader for the next query. Returns
    /// false if the index lacks more than `records_max` records, or is not of the present journal.
    /// After an error, the index must not be used again.
    pub(super) fn update_temporary(&mut self, records_max: u64) -> Result<bool, Error> {
        let [_, own_journal] = self.files;
        let [_, present_journal] = files(&self.path, &self.journal);
        let last = self.journal.last()?;
        let known = file::position(&self.db).map_err(failed(&self.path))?;
        let is_far = last.0.saturating_sub(known.0) > records_max;
        if own_journal.is_none() || own_journal != present_journal || is_far {
            return Ok(false);
        }

        self.set_read_only(false)?;
        catch_up(&self.path, &self.db, &self.journal, last, &mut |_, _| {})?;
        self.set_read_only(true)?;
        self.move_to(last)
    }

    fn set_read_only(&self, is_read_only: bool) -> Result<(), Error> {
        self.db.pragma_update(None, "query_only", is_read_only).map_err(failed(&self.path))
    }

    /// Converts an error that SQLite reported for a query. If a value in the query is wrong,
    /// returns [`Error::Query`], because the index is not damaged. Otherwise, returns an error of
    /// this index.
    pub fn failed(&self, error: rusqlite::Error) -> Error {
        match value_problem(&error) {
            Some(detail) => Error::Query { detail },
            None => failed(&self.path)(error),
        }
    }
}

/// The files of an index and of its journal.
pub(super) struct ReaderSource {
    path: PathBuf,
    data: PathBuf,
    files: [Option<FileId>; 2],
    last: Position,
}

impl ReaderSource {
    /// Opens a reader of the index without bringing the index up to date. This source was made from
    /// an earlier reader. Returns `None` if a file cannot be opened, or if it was replaced after
    /// the earlier reader had opened it.
    pub(super) fn open(&self) -> Option<IndexReader> {
        let journal = JournalReader::open(&self.data).ok()?;
        let db = connect(&self.path).ok()?;
        let reader = finish(db, journal, self.last, self.path.clone()).ok()?;
        (reader.has_present_files() && reader.files == self.files).then_some(reader)
    }
}

/// Answers a query from the index of the journal in `data`. First brings the index up to date, or
/// rebuilds it if it is damaged.
///
/// If another process writes the index, waits until the index is complete. The wait is at most
/// [`limits::INDEX_NEAR_WAIT`] if the index lacks few records, and otherwise at most
/// [`limits::INDEX_WAIT`]. After that, answers from the records that the index has.
///
/// # Errors
///
/// Returns errors of the journal, of the index's file, and of `query`.
pub fn read<T>(
    data: &Path,
    progress: &mut dyn FnMut(u64, u64),
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
) -> Result<T, Error> {
    with_reader(data, progress, &mut |mut reader| query(&mut reader))
}

/// Opens the index as [`read`] does.
pub(super) fn open_updated(data: &Path) -> Result<IndexReader, Error> {
    with_reader(data, &mut |_, _| {}, &mut Ok)
}

fn with_reader<T>(
    data: &Path,
    progress: &mut dyn FnMut(u64, u64),
    query: &mut dyn FnMut(IndexReader) -> Result<T, Error>,
) -> Result<T, Error> {
    let present = index_file(data);
    match open(data, limits::INDEX_NEAR_WAIT, progress).and_then(&mut *query) {
        Err(error) if error.is_damage() => {
            discard(data, present)?;
            open(data, limits::INDEX_NEAR_WAIT, progress).and_then(query)
        }
        other => other,
    }
}

/// Answers a query as [`read`] does, but only if the index is usable and lacks at most a few
/// records. Otherwise, returns `None`. The caller must then read the journal, which is faster than
/// adding many records to the index.
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

/// Answers a query about the records up to `last` from the index as it is: neither updates the
/// index nor waits for another process. Returns `None` if the index is missing or unusable, or
/// lacks one of these records.
///
/// # Errors
///
/// Returns errors of the journal, of the index's file, and of `query`.
pub fn read_as_is<T>(
    data: &Path,
    last: Position,
    query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let journal = JournalReader::open(data)?;
    let path = data.join(INDEX_DATABASE);
    let Some(db) = current(&path, &journal, last)? else { return Ok(None) };
    let mut reader = finish(db, journal, last, path)?;
    query(&mut reader).map(Some)
}

/// Opens the index in each of these cases:
///
/// - The index is complete or lacks few records.
/// - Another process writes the index.
///
/// Returns `None` in any other case. The caller must then make or update the index. If this process
/// may not write in the directory of the index, the caller makes a temporary index.
pub(super) fn open_unless_far(data: &Path) -> Result<Option<IndexReader>, Error> {
    match open_if_near(data) {
        Ok(None) => open_if_another_writes(data),
        other => other,
    }
}

/// If `answer` is an error that shows a damaged index, discards the index as [`discard`] does, and
/// returns `Ok(None)`. The caller must then rebuild the index. Returns any other `answer` unchanged.
pub(super) fn discard_if_damaged<T>(
    data: &Path,
    queried: Option<FileId>,
    answer: Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is_damage() => {
            discard(data, queried)?;
            Ok(None)
        }
        other => other,
    }
}

/// Opens the index if another process holds the lock of the index. Otherwise, returns `None`.
fn open_if_another_writes(data: &Path) -> Result<Option<IndexReader>, Error> {
    match IndexLock::take(data, Duration::ZERO, &mut || false)? {
        LockResult::Locked(_) | LockResult::ReadOnly => Ok(None),
        LockResult::Busy => open(data, limits::INDEX_WAIT, &mut |_, _| {}).map(Some),
    }
}

/// Opens the index if it is complete, or lacks so few records that a short update can complete it.
/// Otherwise, returns `None`.
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

    let Some(db) = near(&path, &journal, last)? else { return Ok(None) };
    let lock = IndexLock::take(data, limits::INDEX_WAIT, &mut || has_reached(&db, last))?;
    drop(db);
    match lock {
        LockResult::Locked(_lock) => match update(&path, &journal, last, &mut |_, _| {}) {
            Err(error) if error.is_denied() => return Ok(None),
            updated => updated?,
        },
        LockResult::Busy | LockResult::ReadOnly => {}
    }
    match current(&path, &journal, last)? {
        Some(db) => finish(db, journal, last, path).map(Some),
        None => Ok(None),
    }
}

/// Returns a connection to a usable index that lacks only few records; `None` if there is no such
/// index, if this process cannot open it, or if another process is just creating it.
fn near(path: &Path, journal: &JournalReader, last: Position) -> Result<Option<Connection>, Error> {
    let checked = connect(path).and_then(|db| {
        if !file::has_tables(&db).map_err(failed(path))? {
            return Ok(None);
        }
        let known = file::position(&db).map_err(failed(path))?;
        Ok((lacks_few(known, last) && file::check(path, &db, journal)?).then_some(db))
    });
    match checked {
        // A reader that may not open the index makes a temporary one.
        Err(error) if error.is_denied() => Ok(None),
        other => other,
    }
}

/// Opens the index after bringing it up to date. If another process writes the index, waits for
/// that process. If the index lacks only few records, this wait is at most `near_wait`. An index
/// that is not there yet lacks all records.
fn open(
    data: &Path,
    near_wait: Duration,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<IndexReader, Error> {
    let journal = JournalReader::open(data)?;
    let last = journal.last()?;
    let path = data.join(INDEX_DATABASE);
    if let Some(reader) = current(&path, &journal, last)? {
        return finish(reader, journal, last, path);
    }

    let mut waiting = connect(&path).ok();
    let position = waiting.as_ref().and_then(|db| file::position(db).ok());
    // Another process may be making the index.
    let is_near = lacks_few(position.unwrap_or_default(), last);
    let wait = if is_near { near_wait } else { limits::INDEX_WAIT };
    let mut is_enough = || {
        if waiting.is_none() && path.exists() {
            waiting = connect(&path).ok();
        }
        waiting.as_ref().is_some_and(|db| has_reached(db, last))
    };
    match IndexLock::take(data, wait, &mut is_enough)? {
        LockResult::Locked(lock) => match update(&path, &journal, last, progress) {
            Ok(()) => {
                drop(lock);
                let db = connect(&path)?;
                finish(db, journal, last, path)
            }
            // This process may write the lock's file, but not the directory of the index.
            Err(error) if error.is_denied() => open_temporary(path, journal, last, progress),
            Err(error) => Err(error),
        },
        LockResult::Busy => {
            // The file may have been replaced while this reader waited.
            let db = connect(&path).ok();
            let is_usable =
                db.as_ref().is_some_and(|db| file::check(&path, db, &journal).unwrap_or(false));
            match db {
                Some(db) if is_usable => finish(db, journal, last, path),
                db => match db.as_ref().and_then(file::other_version) {
                    Some(found) => Err(Error::OtherVersion { path, found }),
                    None => Err(Error::building(data)),
                },
            }
        }
        LockResult::ReadOnly => open_temporary(path, journal, last, progress),
    }
}

/// Makes a temporary index, for a process that may not write the index at `path`.
fn open_temporary(
    path: PathBuf,
    journal: JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<IndexReader, Error> {
    let db = file::open_temporary(&journal)?;
    catch_up(&path, &db, &journal, last, progress)?;
    finish(db, journal, last, path)
}

/// Returns a connection to the index; `None` if the index is missing or unusable, or is not
/// complete up to `last`.
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
        // Only the writer decides about an unusable file.
        Err(Error::Sqlite { .. }) => Ok(None),
        other => other,
    }
}

/// Whether an index that is complete up to `known` lacks only a few records of a journal that ends
/// at `last`.
fn lacks_few(known: Position, last: Position) -> bool {
    last.0.saturating_sub(known.0) <= limits::INDEX_NEAR_RECORDS
}

/// Whether an index is complete up to `last`. Opens no file, because a waiting reader calls this
/// function every few milliseconds. If the writer replaces the index file meanwhile, `db` still
/// refers to the old file. The reader then waits until its time limit.
fn has_reached(db: &Connection, last: Position) -> bool {
    file::position(db).is_ok_and(|position| position >= last)
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    require_room(path).map_err(failed(path))?;
    let db = Connection::open_with_flags(path, flags).map_err(failed(path))?;
    db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT).map_err(failed(path))?;
    keep_plans(&db).map_err(failed(path))?;
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
    let files = files(&path, &journal);
    Ok(IndexReader { db, path, journal, files, position, last })
}

/// Describes an error that only a value of the query causes: a number outside the range of SQLite,
/// or words that the full-text search cannot parse. Returns `None` for any other error.
fn value_problem(error: &rusqlite::Error) -> Option<String> {
    match error {
        rusqlite::Error::ToSqlConversionFailure(source) => {
            let highest = i64::MAX;
            Some(format!("a value of the query: {source}; the highest number is {highest}"))
        }
        // FTS5 reports a damaged table with the code `DatabaseCorrupt`.
        rusqlite::Error::SqliteFailure(failure, Some(text))
            if failure.code == ErrorCode::Unknown
                && (text.starts_with("fts5") || text == "unterminated string") =>
        {
            Some(format!("the words to search for: {text}; try other or fewer words"))
        }
        _ => None,
    }
}

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

/// Returns the identity of the file that is now the index of the journal in `data`; `None` if there
/// is no index.
pub(super) fn index_file(data: &Path) -> Option<FileId> {
    file_id(&data.join(INDEX_DATABASE))
}

fn file_id(path: &Path) -> Option<FileId> {
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the device and inode of the index's file and of the journal's file. `None` stands for a
/// file without readable metadata.
fn files(index: &Path, journal: &JournalReader) -> [Option<FileId>; 2] {
    let journal = journal.data().join(JOURNAL_DATABASE);
    [index, &journal].map(file_id)
}

/// Deletes a damaged index. `queried` is the file that was the index before the query that found the
/// damage. If another file is the index by now, leaves that file as it is. If another process has
/// the lock of the index, requests a rebuild of the index from that process, and returns an error.
/// If this process may not write in the directory of the index, does nothing.
fn discard(data: &Path, queried: Option<FileId>) -> Result<(), Error> {
    let path = data.join(INDEX_DATABASE);
    let lock = IndexLock::take(data, limits::INDEX_WAIT, &mut || false)?;
    let is_present = queried.is_some() && index_file(data) == queried;
    match lock {
        LockResult::Locked(_lock) if is_present => file::remove(&path),
        LockResult::Locked(_) | LockResult::ReadOnly => Ok(()),
        LockResult::Busy => {
            if is_present {
                file::request_rebuild(&path)?;
            }
            Err(Error::building(data))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_of_a_query_is_no_damage_and_a_missing_table_is() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE VIRTUAL TABLE word USING fts5(text)").unwrap();
        let failed = |sql: &str, value: &dyn rusqlite::ToSql| {
            db.query_row(sql, [value], |_| Ok(())).unwrap_err()
        };
        let matching = "SELECT 1 FROM word WHERE word MATCH ?1";
        let wrong_values = [
            failed(matching, &"\"a\0b\""),
            failed(matching, &"a AND"),
            failed("SELECT ?1", &u64::MAX),
        ];
        for error in &wrong_values {
            assert!(value_problem(error).is_some(), "{error:?}");
        }
        let missing_table = failed("SELECT ?1 FROM nothing", &1);
        assert_eq!(value_problem(&missing_table), None);
    }
}
