//! Opens a journal's file for reading or writing, and explains why a file cannot be used.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;

use super::directory::DATABASE;
use super::shared_memory::require_room;

/// Maps an error of SQLite to an error of the journal. Distinguishes a broken journal from a file
/// that is no journal: a file that is no database, or a database of another program.
pub fn unusable(path: &Path, error: rusqlite::Error) -> Error {
    let text = error.to_string();
    if is_disk_full(&error) {
        return Error::Full { detail: format!("no room to read {}", path.display()) };
    }

    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            Error::Unreadable { path: path.display().to_string(), detail: text }
        }
        Some(ErrorCode::DatabaseCorrupt) => Error::broken(0, text + foreign_log_advice(path)),
        // The file is not opened for this check: closing it would release locks of SQLite on it.
        Some(ErrorCode::CannotOpen) => match rustix::fs::access(path, Access::READ_OK) {
            Err(denied @ Errno::ACCESS) => {
                Error::io(format!("{} cannot be read", path.display()))(denied.into())
            }
            _ => Error::sqlite(path.display().to_string())(error),
        },
        Some(ErrorCode::Unknown) if text.contains("no such table") => {
            Error::Unreadable { path: path.display().to_string(), detail: text }
        }
        _ => Error::sqlite(path.display().to_string())(error),
    }
}

/// Returns advice to add to a report of damage in the database `path`. SQLite reads the write-ahead
/// log that is beside a database also if it belongs to an earlier database of this path. Empty if
/// there is no log.
pub fn foreign_log_advice(path: &Path) -> &'static str {
    if has_log(path) {
        "; if `journal.db` was put there from a copy without a log of its own, stop the organism and \
         move `journal.db-wal` and `journal.db-shm` away: they may belong to the file before it"
    } else {
        ""
    }
}

/// Whether the disk has no room for a database's file, its write-ahead log, or the index of this
/// log in shared memory.
pub fn is_disk_full(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Makes SQLite prepare a statement once, with one plan for all values of its parameters. By
/// default, SQLite may prepare a statement again for other values, to choose a better plan. This
/// takes longer than most queries.
pub fn keep_plans(db: &Connection) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

pub fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        require_room(path)?;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT)?;
        keep_plans(&db)?;
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(db)
    };

    match open() {
        Err(error) if may_not_write(&error) => connect_immutable(path).unwrap_or(Err(error)),
        other => other,
    }
}

/// Opens the journal in directory `data` for writing. A write-ahead log is required.
pub(super) fn connect_writer(data: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = data.join(DATABASE);
    require_room(&file)?;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(limits::JOURNAL_BUSY_TIMEOUT)?;
    keep_plans(&db)?;
    // A connection that is dropped after an error leaves the write-ahead log unchanged. Only a pump
    // that stops as planned moves the log into the file.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let unusable = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let detail = format!("the file system allows no write-ahead log (`{mode}`)");
        return Err(rusqlite::Error::SqliteFailure(unusable, Some(detail)));
    }

    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
    if mutant("skip-the-fsync") {
        db.execute_batch("PRAGMA synchronous = OFF")?;
    }

    Ok(db)
}

/// Whether the error shows that SQLite could not create or write its shared-memory file.
fn may_not_write(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Opens a journal in a directory without write permission. Returns `None` if the journal has a
/// write-ahead log, because reading it requires a shared-memory file, which SQLite cannot create in
/// such a directory.
fn connect_immutable(path: &Path) -> Option<rusqlite::Result<Connection>> {
    if has_log(path) { None } else { Some(connect_unchanging(path)) }
}

/// Whether a write-ahead log with content is beside the database `path`.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    Path::new(&log).metadata().is_ok_and(|log| log.len() > 0)
}

/// Opens a journal's file that no process changes. SQLite then creates no files beside it, and
/// reads no write-ahead log.
pub fn connect_unchanging(path: &Path) -> rusqlite::Result<Connection> {
    let text = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.to_owned()))?;
    let escaped: String = text.chars().map(escape).collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?;
    keep_plans(&db)?;
    Ok(db)
}

fn escape(char: char) -> String {
    match char {
        '%' | '?' | '#' => format!("%{:02X}", u32::from(char)),
        other => other.to_string(),
    }
}
