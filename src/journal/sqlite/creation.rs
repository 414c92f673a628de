//! Creates the file of a new journal.

use std::path::Path;

use rusqlite::Connection;

use crate::durable_file;
use crate::journal::Error;
use crate::journal::log::LogMark;
use crate::limits;

use super::directory::DATABASE;
use super::repair::set_logs_aside;
use super::{JournalMetadata, MAC_COLUMN, SCHEMA, STREAM, VIEWS, write};

/// Creates the file of a journal. Writes the file under another name and renames it once it is
/// complete, so that a crash leaves no incomplete journal. If a lost journal left its write-ahead
/// log, first moves this log to another name.
pub fn create(data: &Path, about: &JournalMetadata, mark: Option<LogMark>) -> Result<(), Error> {
    let unfinished = data.join("journal.new");
    for name in ["journal.new", "journal.new-journal"] {
        let removed = durable_file::remove(&data.join(name));
        removed.map_err(Error::io(unfinished.display().to_string()))?;
    }

    // The data directory may be one that every user can read.
    let created = durable_file::create_private(&unfinished);
    created.map_err(Error::io(unfinished.display().to_string()))?;
    let fill = || -> rusqlite::Result<()> {
        let db = Connection::open(&unfinished)?;
        db.pragma_update(None, "page_size", limits::JOURNAL_PAGE_BYTES as i64)?;
        db.execute_batch(&format!("BEGIN; {SCHEMA} {MAC_COLUMN}; {VIEWS}"))?;
        write::about(&db, about)?;
        mark.map_or(Ok(()), |mark| write::set_meta(&db, STREAM, &mark.to_string()))?;
        write::set_meta(&db, "refreshed", "0")?;
        db.execute_batch("COMMIT")
    };

    fill().map_err(write::failed_while("making the journal"))?;
    // Ordering rule: the log is renamed before the new file gets its name. Otherwise SQLite would
    // take the pages of the lost journal in this log for pages of the new one.
    if let Some(log) = set_logs_aside(data)? {
        let log = log.display();
        tracing::warn!("set aside the write-ahead log of a journal whose file is gone, as {log}");
    }

    let file = data.join(DATABASE);
    let renamed =
        std::fs::rename(&unfinished, &file).and_then(|()| durable_file::sync_parent(&file));
    renamed.map_err(Error::io(file.display().to_string()))
}
