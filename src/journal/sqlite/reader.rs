//! Reads a journal from any process, while a pump may write. Every record is checked against its
//! own hash and the digests of its payloads.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension as _, Params, Row};
use uuid::Uuid;

use crate::durable_file;
use crate::ids::{Digest, Position};
use crate::journal::record_codec::StoredRow;
use crate::journal::{Checkpoint, Error, FORMAT, HashedRecord, OLDEST_FORMAT};
use crate::limits;
use crate::metrics::Counter;
use crate::thread::text::InternedNames;

use super::connect::{connect, connect_unchanging, foreign_log_advice, unusable};
use super::directory::DATABASE;
use super::{row, write};

/// Offset of the write version in the header of a SQLite database file.
const WRITE_VERSION_OFFSET: usize = 18;
/// The highest write version of a file to which this program can write. SQLite sets this version in
/// files with a write-ahead log.
const WRITE_VERSION_MAX: u8 = 2;

/// Metadata of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalMetadata {
    pub format: u32,
    pub journal: Uuid,
    /// Number of times that a pump has started on this journal so far.
    pub epoch: u32,
    /// Public half of the key that signs the journal's checkpoints, in hexadecimal.
    pub key: String,
}

impl JournalMetadata {
    /// Returns the checksum of the metadata. The checksum reveals damage, but not forgery.
    pub(super) fn check(&self) -> String {
        let Self { format, journal, epoch, key } = self;
        Digest::of(format!("{format} {journal} {epoch} {key}").as_bytes()).to_string()
    }
}

/// A read-only view of a journal. It is cheap to open and meant to be short-lived.
#[derive(Debug)]
pub struct JournalReader {
    pub(super) db: Connection,
    data: PathBuf,
    /// Whether the table `step`, which has one row for each record, has a column for MACs.
    has_mac: bool,
}

/// Number of times that this process has read records. Scans do not count.
static READS: Counter = Counter::new();

impl JournalReader {
    /// Returns the number of times that this process has read records, with any reader. Scans do
    /// not count.
    pub fn reads() -> &'static Counter {
        &READS
    }

    pub fn open(data: &Path) -> Result<Self, Error> {
        let path = data.join(DATABASE);
        let unreadable = Error::io(format!("{} cannot be read", path.display()));
        if !durable_file::exists(&path).map_err(unreadable)? {
            return Err(Error::Missing { path: data.display().to_string() });
        }

        Self::over(connect(&path).map_err(|error| unusable(&path, error))?, data)
    }

    /// Opens the copy of a journal that is in the file `copy` and that no process changes. Creates
    /// no files beside it. The returned reader must not be used for scans: they read the journal in
    /// the same directory.
    pub(super) fn open_copy(copy: &Path) -> Result<Self, Error> {
        let db = connect_unchanging(copy).map_err(|error| unusable(copy, error))?;
        Self::over(db, copy.parent().unwrap_or(copy))
    }

    fn over(db: Connection, data: &Path) -> Result<Self, Error> {
        let mut reader = Self { db, data: data.to_owned(), has_mac: false };
        reader.check_format()?;
        reader.has_mac =
            write::has_mac(&reader.db).map_err(|error| reader.read_error("a table", error))?;
        Ok(reader)
    }

    /// Sets the maximum size of the reader's page cache to `kib` KiB. Callers set it for readers
    /// that stay open for long.
    pub fn with_page_cache(self, kib: u32) -> Result<Self, Error> {
        let set = self.db.pragma_update(None, "cache_size", -i64::from(kib));
        set.map_err(|error| self.read_error("the size of its cache", error))?;
        Ok(self)
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    fn check_format(&self) -> Result<(), Error> {
        let found = self.meta("format").map_err(|error| match error {
            Error::Sqlite { source, .. } => unusable(&self.data.join(DATABASE), source),
            other => other,
        })?;
        let format = found.as_deref().and_then(|found| found.parse().ok());
        if format.is_some_and(|format| (OLDEST_FORMAT..=FORMAT).contains(&format)) {
            return Ok(());
        }

        let found = found.unwrap_or_else(|| "unknown".to_owned());
        Err(Error::Format { path: self.data.display().to_string(), found, ours: FORMAT })
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.query_cached("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .map_err(|error| self.read_error("its description", error))
    }

    /// Runs a query for one row. Keeps the parsed statement for later runs, because parsing takes
    /// longer than most queries for one row.
    pub(super) fn query_cached<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.db.prepare_cached(sql)?.query_row(params, read)
    }

    pub fn about(&self) -> Result<JournalMetadata, Error> {
        // One statement: a pump that starts meanwhile writes a new epoch with its checksum.
        let sql = "SELECT key, value FROM meta \
                   WHERE key IN ('format', 'journal', 'epoch', 'key', 'check')";
        let read = || -> rusqlite::Result<HashMap<String, String>> {
            let mut statement = self.db.prepare_cached(sql)?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let values = read().map_err(|error| self.read_error("its description", error))?;

        let value = |key: &str| {
            let value = values.get(key).map(String::as_str);
            value.ok_or_else(|| Error::broken(0, format!("it has no `{key}`")))
        };
        let damaged = |key: &str| Error::broken(0, format!("its `{key}` is damaged"));
        let about = JournalMetadata {
            format: value("format")?.parse().map_err(|_| damaged("format"))?,
            journal: value("journal")?.parse().map_err(|_| damaged("journal"))?,
            epoch: value("epoch")?.parse().map_err(|_| damaged("epoch"))?,
            key: value("key")?.to_owned(),
        };

        if about.check() == value("check")? { Ok(about) } else { Err(damaged("check")) }
    }

    /// Whether any record carries a MAC.
    pub(super) fn has_any_mac(&self) -> Result<bool, Error> {
        if !self.has_mac {
            return Ok(false);
        }
        let found = self.db.prepare("SELECT 1 FROM step WHERE mac IS NOT NULL LIMIT 1");
        let found = found.and_then(|mut query| query.exists([]));
        found.map_err(|error| self.read_error("its MACs", error))
    }

    /// Copies the journal in its present state into `file`, which is new or empty.
    pub(super) fn copy_to(&self, file: &Path) -> Result<(), Error> {
        let name = file.to_str().ok_or_else(|| {
            let invalid = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
            Error::io(file.display().to_string())(invalid)
        })?;
        let copied = self.db.execute("VACUUM INTO ?1", [name]);
        copied.map(drop).map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                let data = self.data.display();
                let context = format!("copying the journal in {data} to {}", file.display());
                Error::sqlite(context)(error)
            }
            _ => self.read_error("the journal", error),
        })
    }

    /// Whether the journal is a projection of a stream.
    pub fn is_projection(&self) -> Result<bool, Error> {
        Ok(self.meta(super::STREAM)?.is_some())
    }

    /// Returns the position of the last record; 0 if there are no records.
    pub fn last(&self) -> Result<Position, Error> {
        let sql = "SELECT coalesce(max(position), 0) FROM step";
        let last = self.query_cached(sql, [], |row| row.get(0));
        last.map(Position).map_err(|error| self.read_error("its last position", error))
    }

    pub fn record(&self, position: Position) -> Result<Option<HashedRecord>, Error> {
        self.query_record(&mut self.by_position()?, position, &mut InternedNames::default())
    }

    /// Returns the record at `position`, or an error if no record is there.
    pub fn existing_record(&self, position: Position) -> Result<HashedRecord, Error> {
        let missing = || Error::broken(position.0, "its record is missing");
        self.record(position)?.ok_or_else(missing)
    }

    pub(super) fn by_position(&self) -> Result<CachedStatement<'_>, Error> {
        let sql = format!("SELECT {} FROM step WHERE position = ?1", row::columns(self.has_mac));
        self.db.prepare_cached(&sql).map_err(|error| self.read_error("a record", error))
    }

    fn query_record(
        &self,
        query: &mut CachedStatement<'_>,
        position: Position,
        names: &mut InternedNames,
    ) -> Result<Option<HashedRecord>, Error> {
        let mut rows =
            query.query([position.0]).map_err(|error| self.read_error("a record", error))?;
        let row = rows.next().map_err(|error| self.failed_at(position, error))?;
        row.map(|row| row::decode(position, row, names)).transpose()
    }

    /// Returns the records from `from` to `to`, both included, or an error if a record is missing.
    pub fn records(&self, from: Position, to: Position) -> Result<Vec<HashedRecord>, Error> {
        READS.increment();
        self.scan_records(from, to)
    }

    /// Reads records as [`JournalReader::records`] does, for a scan. The read is not counted in
    /// [`JournalReader::reads`].
    pub(super) fn scan_records(
        &self,
        from: Position,
        to: Position,
    ) -> Result<Vec<HashedRecord>, Error> {
        let sql = format!(
            "SELECT {} FROM step WHERE position BETWEEN ?1 AND ?2 ORDER BY position",
            row::columns(self.has_mac)
        );
        let failed = |error| self.failed_at(from, error);
        let mut query = self.db.prepare_cached(&sql).map_err(failed)?;
        let mut rows = query.query([from.0, to.0]).map_err(failed)?;
        // Callers read at most one chunk. The cap keeps a range from an unsound journal from
        // reserving memory.
        let expected = (to.0 + 1).saturating_sub(from.0).min(limits::SCAN_CHUNK_RECORDS);
        let mut sealed = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
        let mut names = InternedNames::default();

        for position in (from.0..=to.0).map(Position) {
            let row = rows.next().map_err(|error| self.failed_at(position, error))?;
            let row = row.ok_or_else(|| Error::broken(position.0, "its record is missing"))?;
            sealed.push(row::decode(position, row, &mut names)?);
        }

        Ok(sealed)
    }

    /// Calls `visit` for each stored row from position `from` up to and including `to`. Returns an
    /// error if a row is missing.
    pub(in crate::journal) fn rows(
        &self,
        from: Position,
        to: Position,
        visit: &mut dyn FnMut(&StoredRow<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!(
            "SELECT {} FROM step WHERE position BETWEEN ?1 AND ?2 ORDER BY position",
            row::columns(self.has_mac)
        );
        let failed = |error| self.failed_at(from, error);
        let mut query = self.db.prepare_cached(&sql).map_err(failed)?;
        let mut rows = query.query([from.0, to.0]).map_err(failed)?;

        for position in (from.0..=to.0).map(Position) {
            let row = rows.next().map_err(|error| self.failed_at(position, error))?;
            let missing = || Error::broken(position.0, "its record is missing");
            visit(&row::read_at(position, row.ok_or_else(missing)?)?)?;
        }

        Ok(())
    }

    /// Passes the stored row at `position` to `is_meant`, and returns the result of this call.
    /// Returns an error if there is no such row.
    pub(in crate::journal) fn row_is(
        &self,
        position: Position,
        is_meant: &mut dyn FnMut(&StoredRow<'_>) -> bool,
    ) -> Result<bool, Error> {
        let mut is_it = false;
        self.rows(position, position, &mut |row| {
            is_it = is_meant(row);
            Ok(())
        })?;
        Ok(is_it)
    }

    /// Returns all checkpoints of the journal, in order of position. A journal that is in use gets
    /// some thousands of them each day, so only readers of all records may call this method.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        self.checkpoints_after(Position(0))
    }

    /// Returns the checkpoints after `position`, in order of position.
    pub fn checkpoints_after(&self, position: Position) -> Result<Vec<Checkpoint>, Error> {
        let sql = "SELECT position, line FROM checkpoint WHERE position > ?1 ORDER BY position";
        self.select_checkpoints(sql, [position.0])
    }

    /// Returns the first checkpoints after the position `after`, up to the position `to`, in order
    /// of position. At most `count` of them.
    pub fn checkpoints_between(
        &self,
        after: Position,
        to: Position,
        count: usize,
    ) -> Result<Vec<Checkpoint>, Error> {
        let sql = "SELECT position, line FROM checkpoint WHERE position > ?1 AND position <= ?2 \
                   ORDER BY position LIMIT ?3";
        self.select_checkpoints(sql, (after.0, to.0, count as u64))
    }

    /// Returns the last `count` checkpoints, in order of position.
    pub fn last_checkpoints(&self, count: usize) -> Result<Vec<Checkpoint>, Error> {
        let sql = "SELECT position, line FROM checkpoint ORDER BY position DESC LIMIT ?1";
        let mut last = self.select_checkpoints(sql, [count as u64])?;
        last.reverse();
        Ok(last)
    }

    /// Returns the checkpoint at `position`; `None` if the journal has none there.
    pub fn checkpoint_at(&self, position: Position) -> Result<Option<Checkpoint>, Error> {
        let sql = "SELECT position, line FROM checkpoint WHERE position = ?1";
        Ok(self.select_checkpoints(sql, [position.0])?.pop())
    }

    fn select_checkpoints(
        &self,
        sql: &str,
        bounds: impl rusqlite::Params,
    ) -> Result<Vec<Checkpoint>, Error> {
        let failed = |error| self.read_error("its checkpoints", error);
        let mut query = self.db.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query(bounds).map_err(failed)?;
        let mut checkpoints = Vec::new();

        while let Some(row) = rows.next().map_err(failed)? {
            let position: u64 = row.get(0).map_err(failed)?;
            let line: String = row.get(1).map_err(failed)?;
            let damaged = || Error::broken(position, "the checkpoint after it is damaged");
            let checkpoint: Checkpoint = serde_json::from_str(&line).map_err(|_| damaged())?;
            let text = serde_json::to_string(&checkpoint).unwrap_or_default();
            if checkpoint.position.0 != position || text != line {
                return Err(damaged());
            }
            checkpoints.push(checkpoint);
        }

        Ok(checkpoints)
    }

    /// Whether the journal contains `checkpoint`, and has a record with the hash `hash` at the
    /// position of `checkpoint`.
    pub fn has_checkpoint(&self, checkpoint: &Checkpoint, hash: Digest) -> Result<bool, Error> {
        let failed = |error| self.read_error("its checkpoints", error);
        let sql = "SELECT 1 FROM checkpoint WHERE position = ?1 AND line = ?2";
        let line = serde_json::to_string(checkpoint).unwrap_or_default();
        let query = self.db.prepare(sql);
        let found = query.and_then(|mut query| query.exists((checkpoint.position.0, line)));
        if !found.map_err(failed)? {
            return Ok(false);
        }

        let record = self.record(checkpoint.position)?;
        Ok(record.is_some_and(|sealed| sealed.hash == hash))
    }

    /// Returns the bytes of the config, prompt file or schema with this digest; `None` if the
    /// journal does not contain it.
    pub fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT bytes FROM blob WHERE digest = ?1";
        let bytes = self.db.query_row(sql, [digest.to_string()], |row| row.get::<_, Vec<u8>>(0));
        let bytes = bytes.optional().map_err(|error| self.read_error("a blob", error))?;

        match bytes {
            Some(bytes) if Digest::of(&bytes) != digest => {
                Err(Error::broken(0, format!("blob {digest} is damaged")))
            }
            other => Ok(other),
        }
    }

    /// Returns the digests of all files, such as configs, that [`JournalReader::blob`] can return.
    pub fn blobs(&self) -> Result<Vec<Digest>, Error> {
        let failed = |error| self.read_error("its blobs", error);
        let mut query = self.db.prepare("SELECT digest FROM blob ORDER BY 1").map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        let mut digests = Vec::new();

        while let Some(row) = rows.next().map_err(failed)? {
            let text: String = row.get(0).map_err(failed)?;
            let damaged = |_| Error::broken(0, format!("the name of blob `{text}` is damaged"));
            digests.push(Digest::parse(&text).map_err(damaged)?);
        }

        Ok(digests)
    }

    /// Verifies that the tables and views have the schema that this program expects, that no row is
    /// before the first record, and that the file's structure is sound. Also verifies that the SQL
    /// index of the blobs agrees with the table of the blobs. Blobs are read through this SQL index
    /// alone, so damage in the table would otherwise stay unknown.
    pub fn check_structure(&self) -> Result<(), Error> {
        let failed = |error| self.read_error("its structure", error);
        let (ours, found) = self.catalogues(views_of).map_err(failed)?;
        if found != ours {
            return Err(Error::broken(0, "its tables or views were changed"));
        }
        self.check_write_version()?;
        self.check_first_position()?;
        self.check_sound("PRAGMA integrity_check(1)")
    }

    /// Verifies that no row is before the first record, which has the position 1. Such a row is no
    /// record and no checkpoint of one, but the views show it.
    pub fn check_first_position(&self) -> Result<(), Error> {
        let sql = "SELECT position FROM step WHERE position < 1 UNION ALL \
                   SELECT position FROM checkpoint WHERE position < 1 ORDER BY position LIMIT 1";
        let found = self.query_cached(sql, [], |row| row.get::<_, i64>(0)).optional();
        match found.map_err(|error| self.read_error("its first position", error))? {
            Some(found) => {
                let detail = format!("a row before the first record has the position {found}");
                Err(Error::broken(1, detail))
            }
            None => Ok(()),
        }
    }

    /// Verifies that SQLite can write the file: the write version in the file's header must not be
    /// above `WRITE_VERSION_MAX`. SQLite reads a file with a higher write version, but refuses
    /// every write to it.
    pub(super) fn check_write_version(&self) -> Result<(), Error> {
        let path = self.data().join(DATABASE);
        let mut header = [0; WRITE_VERSION_OFFSET + 1];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
        // A file without a whole header is found by other checks.
        if read.is_ok() && header[WRITE_VERSION_OFFSET] > WRITE_VERSION_MAX {
            return Err(Error::broken(
                0,
                "its header has a write version that SQLite does not have",
            ));
        }
        Ok(())
    }

    /// Runs `check`, one of SQLite's own checks, on the file. Returns an error if the check finds
    /// damage.
    pub(super) fn check_sound(&self, check: &str) -> Result<(), Error> {
        let result = self.db.query_row(check, [], |row| row.get(0));
        let result: String = result.map_err(|error| self.read_error("its structure", error))?;
        if result == "ok" { Ok(()) } else { Err(Error::broken(0, result.replace('\n', ": "))) }
    }

    /// Verifies that the tables that a pump writes have the expected schema. Ignores other tables,
    /// which a person may have added.
    pub(super) fn check_tables(&self) -> Result<(), Error> {
        // Every start runs this check, and the views take most of the time of `catalogues`.
        let catalogues = self.catalogues(|_| "");
        let (ours, found) = catalogues.map_err(|error| self.read_error("its structure", error))?;
        let mut tables = ours.iter().filter(|(kind, ..)| kind == "table");
        if tables.all(|table| found.contains(table)) {
            Ok(())
        } else {
            Err(Error::broken(0, "its tables were changed"))
        }
    }

    /// Returns two SQLite schemas: the one that this program expects, and the one of this file.
    /// `views` returns the statements that create the expected views of a format.
    fn catalogues(
        &self,
        views: impl Fn(u32) -> &'static str,
    ) -> rusqlite::Result<(Vec<SchemaObject>, Vec<SchemaObject>)> {
        // One transaction: a start may raise the format meanwhile.
        let db = self.db.unchecked_transaction()?;
        let format = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'format'";
        let format: u32 = db.query_row(format, [], |row| row.get(0))?;
        let has_mac = write::has_mac(&db)?;
        let found = catalogue(&db)?;
        drop(db);

        let ours = Connection::open_in_memory()?;
        ours.execute_batch(super::SCHEMA)?;
        ours.execute_batch(views(format))?;
        if has_mac {
            ours.execute_batch(super::MAC_COLUMN)?;
        }
        Ok((catalogue(&ours)?, found))
    }

    pub(super) fn failed_at(&self, position: Position, error: rusqlite::Error) -> Error {
        match self.read_error("a record", error) {
            Error::Broken { detail, .. } => Error::broken(position.0, detail),
            other => other,
        }
    }

    pub(super) fn read_error(&self, what: &str, error: rusqlite::Error) -> Error {
        let is_damaged = match error.sqlite_error_code() {
            Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
            // Not an error of SQLite: a value had the wrong type.
            None => true,
        };

        if is_damaged {
            let advice = foreign_log_advice(&self.data.join(DATABASE));
            Error::broken(0, format!("{what} cannot be read: {error}{advice}"))
        } else {
            Error::sqlite(format!("reading {what} from {}", self.data.display()))(error)
        }
    }
}

/// Kind, name and definition of a table or a view.
type SchemaObject = (String, String, Option<String>);

/// Returns the statements that create the views of a journal of `format`.
fn views_of(format: u32) -> &'static str {
    match format {
        2 => super::VIEWS_OF_FORMAT_2,
        3 => super::VIEWS_OF_FORMAT_3,
        _ => super::VIEWS,
    }
}

fn catalogue(db: &Connection) -> rusqlite::Result<Vec<SchemaObject>> {
    let mut query = db.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a journal whose file is a symbolic link to itself. The lookup fails as it does for a
    /// file that this user may not look up. The error must not be `Missing`.
    #[test]
    fn a_journal_that_cannot_be_looked_up_is_not_reported_as_missing() {
        let data = tempfile::tempdir().unwrap();
        let missing = JournalReader::open(data.path()).unwrap_err();
        assert!(matches!(missing, Error::Missing { .. }), "{missing}");

        let file = data.path().join(DATABASE);
        std::os::unix::fs::symlink(&file, &file).unwrap();
        let denied = JournalReader::open(data.path()).unwrap_err();
        assert!(matches!(denied, Error::Io { .. }), "{denied}");
        assert!(denied.to_string().contains("journal.db cannot be read: "), "{denied}");

        let beneath_a_file = tempfile::NamedTempFile::new().unwrap();
        let missing = JournalReader::open(beneath_a_file.path()).unwrap_err();
        assert!(matches!(missing, Error::Missing { .. }), "{missing}");
    }
}
