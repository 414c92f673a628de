//! The file of an index: its creation, removal, and the checks before its use.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use dashmap::DashMap;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::durable_file;
use crate::file_lock::lock_within;
use crate::ids::{Digest, Position};
use crate::journal::sqlite::{
    DATABASE as JOURNAL_DATABASE, JournalReader, keep_plans, require_room,
};
use crate::limits;

use super::{Error, FORMAT_VERSION, SCHEMA, SCHEMA_VERSION, WORDS_SCHEMA, hours, views};

/// Name of the index's file in the directory of its journal.
pub const INDEX_DATABASE: &str = "index.db";
/// Name of the file that the writer of the index locks.
pub const INDEX_LOCK: &str = "index.lock";
/// Suffix of the file by which a reader requests the rebuild of a damaged index. The file's name is
/// the name of the index file with this suffix. When the writer of the index finds the file, it
/// rebuilds the index.
const REBUILD_REQUEST: &str = "-rebuild";

/// The lock that gives this process the right to write the index. The operating system releases the
/// lock when the process ends.
#[derive(Debug)]
pub struct IndexLock {
    _file: File,
}

/// Result of an attempt to become the writer of an index.
pub enum LockResult {
    Locked(IndexLock),
    /// Another process writes the index.
    Busy,
    /// This process has no permission to create the lock's file, or to write to it.
    ReadOnly,
}

impl IndexLock {
    /// Tries to take the lock of the index in the directory `data`. If another writer has the lock,
    /// tries again until `wait` has passed or `is_enough` returns true.
    pub fn take(
        data: &Path,
        wait: Duration,
        is_enough: &mut dyn FnMut() -> bool,
    ) -> Result<LockResult, Error> {
        let path = data.join(INDEX_LOCK);
        let file = match open_or_create(&path) {
            Ok(file) => file,
            Err(error) if may_not_write(&error) => return Ok(LockResult::ReadOnly),
            Err(error) => return Err(io(&path)(error)),
        };

        let is_locked = lock_within(&file, wait, is_enough).map_err(io(&path))?;
        Ok(if is_locked { LockResult::Locked(Self { _file: file }) } else { LockResult::Busy })
    }
}

/// Opens a file for appending, and creates it if it is missing.
fn open_or_create(path: &Path) -> std::io::Result<File> {
    let open = || OpenOptions::new().append(true).open(path);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => match create_new(path) {
            // Another process has created the file meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => open(),
            created => created,
        },
        opened => opened,
    }
}

/// Creates an empty file that only its owner may read and write. A file that root creates gets the
/// owner of the journal in the same directory, because the user of the organism could not write the
/// index otherwise.
fn create_new(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    let journal = path.with_file_name(JOURNAL_DATABASE).metadata();
    if let Ok(journal) = journal
        && rustix::process::geteuid().is_root()
        // Changed through the handle, because a path could be replaced by a link meanwhile.
        && let Err(error) = fchown(&file, Some(journal.uid()), Some(journal.gid()))
    {
        let path = path.display();
        tracing::debug!("{path} does not get the owner of the journal: {error}");
    }
    Ok(file)
}

/// Whether `error` states that this process may not write a file or its directory.
pub fn may_not_write(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

/// Returns a function that converts an error of SQLite to an error of the index at `path`.
pub fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Sqlite { path: path.clone(), source }
}

/// Opens the index of `journal` for writing. Returns `None` if the index is missing or unusable.
/// Deletes an unusable index.
pub fn open_usable(path: &Path, journal: &JournalReader) -> Result<Option<Connection>, Error> {
    // A process that ended during the removal of an index may have left a file with redacted words.
    remove_renamed(path)?;
    if is_rebuild_requested(path) {
        remove(path)?;
    }
    if !path.exists() {
        // Otherwise SQLite would take the pages of a deleted index for pages of its successor.
        remove_logs(path)?;
    } else if is_empty(path) || is_denied(path) {
        // Opening an empty file for writing sets its journal mode. A process that still has the
        // former content open would block this.
        remove(path)?;
    } else {
        match connect(path).and_then(|db| check(path, &db, journal).map(|is_ours| (db, is_ours))) {
            Ok((db, true)) => {
                remove_building(path)?;
                return Ok(Some(db));
            }
            Ok((_, false)) => {}
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
        remove(path)?;
    }
    Ok(None)
}

/// Whether the file at `path` has no bytes, for example because an operator has truncated it.
fn is_empty(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.len() == 0)
}

/// Whether this process may not read and write the file at `path`, for example because another user
/// has created it. Opens no file, because closing it would release the locks of all connections
/// that this process has to the database.
fn is_denied(path: &Path) -> bool {
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(path, access) == Err(rustix::io::Errno::ACCESS)
}

/// Creates an empty index of `journal`.
pub fn create_at(path: &Path, journal: &JournalReader) -> Result<Connection, Error> {
    create_private(path)?;
    let db = connect(path)?;
    create(path, &db, journal)?;
    Ok(db)
}

/// Creates an empty file that only its owner may read, because an index contains words of payloads.
/// Leaves an existing file as it is.
pub fn create_private(path: &Path) -> Result<(), Error> {
    match create_new(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io(path)(error)),
        _ => Ok(()),
    }
}

/// Creates an index in a temporary file. SQLite deletes the file when the connection is closed.
pub fn open_temporary(journal: &JournalReader) -> Result<Connection, Error> {
    let path = PathBuf::from("(temporary)");
    let db = Connection::open("").map_err(failed(&path))?;
    keep_plans(&db).map_err(failed(&path))?;
    create(&path, &db, journal)?;
    Ok(db)
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        require_room(path)?;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT)?;
        keep_plans(&db)?;
        db.pragma_update(None, "page_size", limits::JOURNAL_PAGE_BYTES as i64)?;
        // With a write-ahead log, readers can continue while a batch is committed.
        db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        // After a power cut, the file may lack its last batches, but it is consistent.
        db.pragma_update(None, "synchronous", "normal")?;
        db.pragma_update(None, "cache_size", -i64::from(limits::INDEX_CACHE_KIB))?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    };
    open().map_err(failed(path))
}

/// Creates the tables of an index in `db`, the empty database at `path`.
pub fn create(path: &Path, db: &Connection, journal: &JournalReader) -> Result<(), Error> {
    let about = journal.about()?;
    let make = || -> rusqlite::Result<()> {
        db.execute_batch("BEGIN IMMEDIATE")?;
        db.execute_batch(SCHEMA)?;
        db.execute_batch(WORDS_SCHEMA)?;
        db.execute_batch(&views::definitions())?;
        configure_words(db)?;
        hours::create_buckets(db)?;
        let values = [
            ("format", FORMAT_VERSION.to_string()),
            ("schema", SCHEMA_VERSION.to_string()),
            ("journal", about.journal.to_string()),
            ("position", "0".to_owned()),
            ("hash", String::new()),
        ];
        for (key, value) in values {
            db.execute("INSERT INTO meta(key, value) VALUES (?1, ?2)", (key, value))?;
        }
        db.execute_batch("COMMIT")
    };
    make().map_err(failed(path))
}

/// Sets the configuration of a new full-text table.
pub fn configure_words(db: &Connection) -> rusqlite::Result<()> {
    // A few large segments of words need fewer merges than many small ones.
    let sql = "INSERT INTO word(word, rank) VALUES ('hashsize', ?1)";
    db.execute(sql, [limits::INDEX_WORDS_BYTES])?;
    Ok(())
}

/// Whether `db` has any table. An index that is being created has none for a moment.
pub fn has_tables(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

pub fn meta(db: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let mut find = db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    find.query_row([key], |row| row.get(0)).optional()
}

/// Returns the position up to which the index is complete.
pub fn position(db: &Connection) -> rusqlite::Result<Position> {
    let text = meta(db, "position")?;
    Ok(Position(text.and_then(|text| text.parse().ok()).unwrap_or_default()))
}

/// Whether `db` is an index of `journal`, as [`is_of`] checks, and has all tables, indexes and
/// views of the present format.
pub fn check(path: &Path, db: &Connection, journal: &JournalReader) -> Result<bool, Error> {
    if !is_of(path, db, journal)? {
        return Ok(false);
    }
    let catalogue = catalogue(db).map_err(failed(path))?;
    Ok(catalogue_digest(&catalogue).to_string() == CATALOGUE_DIGEST)
}

/// Whether `db` has the present format, contains only records of `journal`, and has a sound
/// structure.
pub fn is_of(path: &Path, db: &Connection, journal: &JournalReader) -> Result<bool, Error> {
    let read = |key: &str| meta(db, key).map_err(failed(path));
    let is_format = read("format")?.as_deref() == Some(FORMAT_VERSION.to_string().as_str())
        && read("schema")?.as_deref() == Some(SCHEMA_VERSION.to_string().as_str());
    let is_journal = read("journal")? == Some(journal.about()?.journal.to_string());
    if !is_format || !is_journal {
        return Ok(false);
    }

    let end = end(db).map_err(failed(path))?;
    Ok(is_end_of(&end, journal)? && is_sound(path, db).map_err(failed(path))?)
}

/// Returns the version of the index `db` if it differs from the version that this program makes.
/// Returns `None` if the versions are equal, or if the version cannot be read.
pub fn other_version(db: &Connection) -> Option<String> {
    let read = |key: &str| meta(db, key).ok().flatten();
    let found = version(read("format")?, read("schema")?);
    (found != own_version()).then_some(found)
}

/// Whether `found`, the version of an index, is higher than the version that this program makes.
pub fn is_higher_version(found: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        version.split('.').map(|number| number.parse().unwrap_or_default()).collect()
    };
    numbers(found) > numbers(&own_version())
}

/// Returns the version of the indexes that this program makes.
pub fn own_version() -> String {
    version(FORMAT_VERSION, SCHEMA_VERSION)
}

fn version(format: impl Display, schema: impl Display) -> String {
    format!("{format}.{schema}")
}

/// The last record in an index.
pub struct IndexEnd {
    pub position: Position,
    hash: String,
}

/// Reads the position and the hash of the last record in an index. Reads both in one SQL statement,
/// because the writer may commit between two statements.
pub fn end(db: &Connection) -> rusqlite::Result<IndexEnd> {
    let sql = "SELECT max(iif(key = 'position', value, NULL)), max(iif(key = 'hash', value, NULL))
               FROM meta WHERE key IN ('position', 'hash')";
    db.prepare_cached(sql)?.query_row([], |row| {
        let position = row.get::<_, Option<String>>(0)?.and_then(|text| text.parse().ok());
        let hash = row.get::<_, Option<String>>(1)?.unwrap_or_default();
        Ok(IndexEnd { position: Position(position.unwrap_or_default()), hash })
    })
}

/// Whether the last record of an index is a record of `journal`.
pub fn is_end_of(end: &IndexEnd, journal: &JournalReader) -> Result<bool, Error> {
    if end.position == Position(0) {
        return Ok(true);
    }
    let record = journal.record(end.position)?;
    Ok(record.is_some_and(|record| record.hash.to_string() == end.hash))
}

/// Metadata of a file at one moment. Each write to the file changes its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: u64,
    bytes: u64,
    /// Time of the file's last change, in seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let file = path.metadata().ok()?;
        let changed = (file.mtime(), file.mtime_nsec());
        Some(Self { inode: file.ino(), bytes: file.len(), changed })
    }
}

/// Metadata of each small index file, such as its size, from the last check that found the
/// structure of the file sound. A page of the web view checks a file again only after its metadata
/// has changed.
static SOUND_FILES: LazyLock<DashMap<PathBuf, FileState>> = LazyLock::new(DashMap::new);

/// Whether the structure of an index is sound. Returns true without a check if the index is large,
/// or if its file has not changed since it was last found sound.
fn is_sound(path: &Path, db: &Connection) -> rusqlite::Result<bool> {
    let state = FileState::of(path);
    let is_small = state.is_none_or(|state| state.bytes <= limits::INDEX_CHECKED_BYTES_MAX);
    let known = SOUND_FILES.get(path).map(|known| *known);
    if !is_small || (state.is_some() && state == known) {
        return Ok(true);
    }

    let check = db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?;
    let is_sound = check == "ok";
    // The state is from before the check, so a write during the check leads to another check.
    if let Some(state) = state.filter(|_| is_sound) {
        SOUND_FILES.insert(path.to_owned(), state);
    }
    Ok(is_sound)
}

/// The names of tables, SQL indexes and views of a database, each with its definition.
type IndexCatalogue = Vec<(String, Option<String>)>;

/// Digest of [`CATALOGUE`]. The function [`check`] compares the digest of an index's own catalogue
/// with this digest. The digest is a constant, because computing [`CATALOGUE`] needs a temporary
/// database.
const CATALOGUE_DIGEST: &str = "47bb3c6476de3ffdefc4bad3b216fc271152a4524245d9749798647331f347c2";

/// Names and definitions of the tables, SQL indexes and views that this program creates in an
/// index.
static CATALOGUE: LazyLock<IndexCatalogue> = LazyLock::new(|| {
    let made = || -> rusqlite::Result<IndexCatalogue> {
        let db = Connection::open_in_memory()?;
        db.execute_batch(SCHEMA)?;
        db.execute_batch(WORDS_SCHEMA)?;
        db.execute_batch(&views::definitions())?;
        catalogue(&db)
    };
    made().expect("the schema of an index is valid SQL")
});

fn catalogue(db: &Connection) -> rusqlite::Result<IndexCatalogue> {
    let mut query = db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY type, name")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn catalogue_digest(catalogue: &IndexCatalogue) -> Digest {
    let texts = catalogue.iter().flat_map(|(name, sql)| [Some(name), sql.as_ref()]);
    // No name and no definition contains a NUL character.
    let parts: Vec<_> = texts.flat_map(|text| [text.map_or("", String::as_str), "\0"]).collect();
    Digest::of_parts(&parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>())
}

/// Returns the statements that create the tables, indexes and views that `db` lacks.
pub fn missing_definitions(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let present = catalogue(db)?;
    let missing = CATALOGUE.iter().filter(|entry| !present.contains(entry));
    Ok(missing.filter_map(|(_, definition)| definition.clone()).collect())
}

/// Returns the path of the temporary database to which a first build writes all rows except words.
pub fn building(path: &Path) -> PathBuf {
    with_suffix(path, "-building")
}

/// Returns the path of the temporary database to which a first build writes the words of messages.
pub fn building_words(path: &Path) -> PathBuf {
    with_suffix(path, "-building-words")
}

/// Renames the complete database of a first build to `path`, so that it becomes the index.
pub fn publish_building(path: &Path) -> Result<(), Error> {
    remove_logs(path)?;
    // Ordering rule: before the new index can be found. A request from before concerns an earlier
    // index.
    durable_file::remove(&with_suffix(path, REBUILD_REQUEST)).map_err(io(path))?;
    let publish = std::fs::rename(building(path), path);
    publish.map_err(io(path))?;
    remove_building(path)
}

/// Deletes the write-ahead log that a former index left beside `path`.
fn remove_logs(path: &Path) -> Result<(), Error> {
    for suffix in ["-wal", "-shm"] {
        durable_file::remove(&with_suffix(path, suffix)).map_err(io(path))?;
    }
    Ok(())
}

/// Writes the progress of a first build of the index at `path` into the lock file: the last record
/// that was read, and the last record to read. If `progress` is `None`, removes the noted progress.
/// Ignores errors, because processes that wait for the index only show the progress.
pub fn note_progress(path: &Path, progress: Option<[Position; 2]>) {
    let text = progress.map_or_else(String::new, |[reached, last]| format!("{reached} {last}"));
    if let Err(error) = std::fs::write(path.with_file_name(INDEX_LOCK), text) {
        tracing::debug!("the progress of the index cannot be noted: {error}");
    }
}

/// Reads the progress of a first build of the index at `path`, as [`note_progress`] wrote it.
/// Returns `None` if no progress is noted.
pub fn noted_progress(path: &Path) -> Option<[Position; 2]> {
    let text = std::fs::read_to_string(path.with_file_name(INDEX_LOCK)).ok()?;
    let (reached, last) = text.split_once(' ')?;
    Some([Position(reached.parse().ok()?), Position(last.parse().ok()?)])
}

/// Deletes the files of a first build. The caller must hold the lock of the index.
pub fn remove_building(path: &Path) -> Result<(), Error> {
    for database in [building(path), building_words(path)] {
        durable_file::remove(&database).map_err(io(&database))?;
        for suffix in ["-journal", "-wal", "-shm"] {
            durable_file::remove(&with_suffix(&database, suffix)).map_err(io(&database))?;
        }
    }
    Ok(())
}

/// Suffix that the name of an index file gets before the file is deleted.
const RENAMED: &str = "-deleted";

fn remove_renamed(path: &Path) -> Result<(), Error> {
    durable_file::remove(&with_suffix(path, RENAMED)).map_err(io(path))
}

/// Requests a rebuild of a damaged index from the process that holds the lock of the index. Does
/// nothing if the calling process may not write in the directory.
pub fn request_rebuild(path: &Path) -> Result<(), Error> {
    let path = with_suffix(path, REBUILD_REQUEST);
    match File::create(&path) {
        Err(error) if !may_not_write(&error) => Err(io(&path)(error)),
        _ => Ok(()),
    }
}

pub fn is_rebuild_requested(path: &Path) -> bool {
    with_suffix(path, REBUILD_REQUEST).exists()
}

/// Deletes the index of the journal in `data`, and the files of an unfinished build. An operator who
/// has taken payloads out of the journal calls this function, because these files contain the words
/// of the payloads.
///
/// # Errors
///
/// Returns [`Error::Building`] if another process writes the index.
pub fn remove_index(data: &Path) -> Result<(), Error> {
    match IndexLock::take(data, limits::INDEX_WAIT, &mut || false)? {
        LockResult::Locked(_lock) => remove(&data.join(INDEX_DATABASE)),
        LockResult::Busy => Err(Error::building(data)),
        LockResult::ReadOnly => Err(Error::lock_denied(data)),
    }
}

/// Deletes an index. The caller must hold the lock of the index.
pub fn remove(path: &Path) -> Result<(), Error> {
    // Ordering rule: the database file is removed first, because a reader must never find it
    // without its write-ahead log.
    durable_file::rename(path, &with_suffix(path, RENAMED)).map_err(io(path))?;
    remove_logs(path)?;
    durable_file::remove(&with_suffix(path, REBUILD_REQUEST)).map_err(io(path))?;
    remove_building(path)?;
    remove_renamed(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index is rebuilt if the digest of its definitions differs from [`CATALOGUE_DIGEST`]. This
    /// test fails if a definition is changed and the digest is not.
    #[test]
    fn the_digest_of_the_catalogue_is_that_of_the_schema() {
        assert_eq!(catalogue_digest(&CATALOGUE).to_string(), CATALOGUE_DIGEST);
    }

    #[test]
    fn the_advice_about_an_index_of_another_version_depends_on_which_version_is_higher() {
        let text = |found: String| {
            let path = PathBuf::from(INDEX_DATABASE);
            Error::OtherVersion { path, found }.to_string()
        };
        let lower = text(version(9, SCHEMA_VERSION));
        assert!(lower.contains("restart it with the version of this program"), "{lower}");
        let higher = text(version(FORMAT_VERSION + 1, 0));
        assert!(higher.contains("run the command with the version of that process"), "{higher}");
    }
}
