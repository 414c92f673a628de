//! Runs the SQL statements that write one commit to a journal's file.

use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode};
use rustix::fs::Access;

use crate::failpoint::failpoint;
use crate::ids::Digest;
use crate::journal::log::{LogGroup, LogMark};
use crate::journal::{Checkpoint, Error, FORMAT, HeadMac, TreeHead, TreeHeads};
use crate::mutant::mutant;

use super::connect::is_disk_full;
use super::reader::JournalMetadata;
use super::{STREAM, row};

/// Runs `fill` in one transaction. Returns an error if the epoch of the journal is not `epoch`.
/// Returns after the write-ahead log is on disk. Any error rolls back the whole transaction.
pub fn transaction(
    db: &Connection,
    epoch: u32,
    fill: impl FnOnce(&Connection) -> Result<(), Error>,
) -> Result<(), Error> {
    let result = attempt(db, epoch, fill);
    // SQLite rolls back by itself after some errors.
    if result.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK").map_err(Error::sqlite("undoing a commit"))?;
    }
    result
}

fn attempt(
    db: &Connection,
    ours: u32,
    fill: impl FnOnce(&Connection) -> Result<(), Error>,
) -> Result<(), Error> {
    begin(db)?;
    let theirs = epoch(db).map_err(failed)?;
    if theirs != ours && !mutant("no-fence") {
        return Err(Error::Fenced { ours, theirs });
    }

    fill(db)?;
    commit(db)
}

/// Begins a transaction and takes the write lock. Readers see no further record until [`commit`].
pub fn begin(db: &Connection) -> Result<(), Error> {
    let file = Path::new(db.path().unwrap_or_default());
    run(db, "BEGIN IMMEDIATE").map_err(failed_on(file, "writing to the journal"))
}

pub fn commit(db: &Connection) -> Result<(), Error> {
    failpoint("before-commit");
    run(db, "COMMIT").map_err(failed)
}

fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}

pub fn failed(error: rusqlite::Error) -> Error {
    failed_while("writing to the journal")(error)
}

/// Returns a function that converts an error of SQLite into an [`Error`]. A full disk becomes
/// [`Error::Full`]. To every other error, the function adds `context`, which names the work that
/// failed.
pub fn failed_while(context: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    move |error| {
        if is_disk_full(&error) {
            return Error::Full { detail: error.to_string() };
        }
        Error::sqlite(context)(error)
    }
}

/// Returns a function that converts an error of SQLite as [`failed_while`] does. If this user may
/// not write `file`, a file of SQLite beside it, or their directory, the converted error names the
/// first of these files that this user may not write, or `file`.
pub fn failed_on(file: &Path, context: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    let file = file.to_owned();
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => {
            let beside = ["", "-wal", "-shm"].map(|end| {
                let mut name = file.clone().into_os_string();
                name.push(end);
                PathBuf::from(name)
            });
            let denied = beside.iter().find(|file| is_denied(file)).unwrap_or(&file);
            let file = denied.display();
            let denied = std::io::Error::new(
                std::io::ErrorKind::PermissionDenied,
                "this user may not write this file, or may not write in its directory",
            );
            Error::io(format!("{context}: {file}"))(denied)
        }
        _ => failed_while(context)(error),
    }
}

/// Whether this user may not write an existing file.
fn is_denied(file: &Path) -> bool {
    use rustix::io::Errno;

    let accessed = rustix::fs::access(file, Access::WRITE_OK);
    matches!(accessed, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

pub fn epoch(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'")?
        .query_row([], |row| row.get(0))
}

/// Whether the table `step`, which has one row for each record, has a column for MACs.
pub fn has_mac(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info('step') WHERE name = 'mac'";
    db.query_row(sql, [], |row| row.get(0))
}

pub fn set_meta(db: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta(key, value) VALUES (?1, ?2) \
               ON CONFLICT(key) DO UPDATE SET value = ?2";
    db.prepare_cached(sql)?.execute((key, value)).map(drop)
}

/// Writes the metadata of the journal, with a checksum against damage.
pub fn about(db: &Connection, about: &JournalMetadata) -> rusqlite::Result<()> {
    set_meta(db, "format", &about.format.to_string())?;
    set_meta(db, "journal", &about.journal.to_string())?;
    set_meta(db, "epoch", &about.epoch.to_string())?;
    set_meta(db, "key", &about.key)?;
    set_meta(db, "check", &about.check())
}

/// Changes a journal of an older program to [`FORMAT`]: replaces the views, and writes the new
/// format to the metadata. Does nothing if the journal already has this format.
pub fn raise_format(db: &Connection, about: &mut JournalMetadata) -> rusqlite::Result<()> {
    if about.format == FORMAT {
        return Ok(());
    }

    db.execute_batch(super::DROP_VIEWS)?;
    db.execute_batch(super::VIEWS)?;
    about.format = FORMAT;
    self::about(db, about)
}

/// Writes a group: records, checkpoints and blobs that become durable together. If the journal's
/// file is a projection of a stream, also writes `mark`, the position of the group in the stream.
pub fn group(db: &Connection, group: &LogGroup<'_>, mark: Option<LogMark>) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(row::INSERT)?;
    for (place, row) in &group.steps {
        let body = ToSqlOutput::Borrowed(ValueRef::Text(row.body));
        insert.execute((
            place.position.0,
            place.tree,
            place.previous.0,
            place.previous_hash.0,
            place.time.0,
            row.hash.0,
            body,
            row.payloads,
            row.mac.as_ref().map(HeadMac::as_bytes),
        ))?;
    }

    for line in &group.checkpoints {
        checkpoint(db, line)?;
    }

    for (digest, bytes) in &group.blobs {
        blob(db, *digest, bytes)?;
    }

    mark.map_or(Ok(()), |mark| set_meta(db, STREAM, &mark.to_string()))
}

fn blob(db: &Connection, digest: Digest, bytes: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO blob(digest, bytes) VALUES (?1, ?2)";
    db.prepare_cached(sql)?.execute((digest.to_string(), bytes)).map(drop)
}

pub fn checkpoint(db: &Connection, checkpoint: &Checkpoint) -> rusqlite::Result<()> {
    let line = serde_json::to_string(checkpoint)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let sql = "INSERT INTO checkpoint(position, line) VALUES (?1, ?2)";
    db.prepare_cached(sql)?.execute((checkpoint.position.0, line)).map(drop)
}

/// Updates the table of trees to `heads`. If `anew` is true, writes the whole table again.
pub fn trees(db: &Connection, heads: &TreeHeads, anew: bool) -> Result<(), Error> {
    let sql = "INSERT INTO tree(root, first, head, records, opened, updated) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
               ON CONFLICT(root) DO UPDATE \
               SET first = ?2, head = ?3, records = ?4, opened = ?5, updated = ?6";
    let mut upsert = db.prepare_cached(sql).map_err(failed)?;
    let mut write = |head: &TreeHead| {
        let first = head.first.0;
        let last = head.position.0;
        let times = (head.opened.0, head.updated.0);
        let root = head.root.as_str();
        let written = upsert.execute((root, first, last, head.records, times.0, times.1));
        written.map(drop).map_err(failed)
    };

    if anew {
        db.execute("DELETE FROM tree", []).map_err(failed)?;
        heads.each(&mut write)?;
    } else {
        heads.each_unsaved(&mut write)?;
    }

    set_meta(db, "refreshed", &heads.last().to_string()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn every_form_of_a_full_disk_is_reported_as_full() {
        let error = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            let full = failed_while("making the journal")(error(code));
            assert!(full.is_passing(), "{code}: {full}");
            let full = failed(error(code));
            assert!(matches!(full, Error::Full { .. }), "{code}: {full}");
        }

        let denied = failed_on(Path::new("/data/journal.db"), "opening the journal");
        let denied = denied(error(ffi::SQLITE_READONLY_DIRECTORY)).to_string();
        assert!(denied.contains("/data/journal.db: this user may not write"), "{denied}");

        let other = failed_while("making the journal")(error(ffi::SQLITE_IOERR));
        assert!(!other.is_passing(), "{other}");
        assert!(other.to_string().starts_with("making the journal: "), "{other}");
    }
}
