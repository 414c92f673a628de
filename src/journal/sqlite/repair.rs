//! Removes records that no MAC covers, for an operator who accepts their loss.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use uuid::Uuid;

use crate::durable_file;
use crate::ids::Position;
use crate::journal::checkpoint::CheckpointKey;
use crate::journal::mac::MacCoverage;
use crate::journal::{Checkpoint, Error, TreeHeads};

use super::directory::DATABASE;
use super::{JournalReader, scan, write};

/// Changes that an operator's action requires in the tables of the journal. The commit that records
/// the action makes the changes.
#[derive(Debug, Default)]
pub struct TableRepair {
    /// Position of the first record to remove. The repair removes this record and all later
    /// records. `None` if the repair removes no record.
    pub cut: Option<Position>,
    /// Checkpoints that the journal's file lacks, and that the repair writes to this file. They
    /// come from the state directory or from the copied checkpoints.
    pub put_back: Vec<Checkpoint>,
}

impl TableRepair {
    /// Makes the changes in the tables of the journal `db`. Must run within a transaction.
    pub fn apply(&self, db: &Connection) -> rusqlite::Result<()> {
        if let Some(first) = self.cut {
            db.execute("DELETE FROM step WHERE position >= ?1", [first.0])?;
            db.execute("DELETE FROM checkpoint WHERE position >= ?1", [first.0])?;
            db.execute("DELETE FROM tree", [])?;
            write::set_meta(db, "refreshed", "0")?;
        }

        self.put_back.iter().try_for_each(|checkpoint| write::checkpoint(db, checkpoint))
    }
}

/// Removes the checkpoints after position `last` from the file of a projection. The stream still
/// contains these checkpoints. Must run within a transaction.
pub fn drop_checkpoints_after(db: &Connection, last: Position) -> rusqlite::Result<()> {
    db.execute("DELETE FROM checkpoint WHERE position > ?1", [last.0]).map(drop)
}

/// Endings of the names of a journal's files: its write-ahead log, the index of this log, and the
/// database.
pub const FILE_ENDS: [&str; 3] = ["-wal", "-shm", ""];

/// Moves the file at the journal's path in `data` to an unused path, and returns the new path.
/// Called for a file that is no journal. Also moves the file's write-ahead log.
pub fn set_file_aside(data: &Path) -> Result<PathBuf, Error> {
    let named = |number: u32, end: &str| data.join(format!("{DATABASE}.lost-{number}{end}"));
    let mut number = 1;
    while FILE_ENDS.iter().any(|end| named(number, end).exists()) {
        number += 1;
    }

    // Ordering rule: the database is moved last, so that a crash leaves no log without its
    // database.
    for end in FILE_ENDS {
        let from = data.join(format!("{DATABASE}{end}"));
        let renamed = durable_file::rename(&from, &named(number, end));
        renamed.map_err(Error::io(from.display().to_string()))?;
    }

    Ok(named(number, ""))
}

/// If a lost journal left its write-ahead log in `data`, moves this log to an unused path, as
/// [`set_file_aside`] does. The log is kept because it may contain the only copy of records.
/// Returns the log's new path; `None` if the log is missing or empty. Must be called only if the
/// journal's file does not exist.
pub fn set_logs_aside(data: &Path) -> Result<Option<PathBuf>, Error> {
    let log = data.join(format!("{DATABASE}-wal"));
    let has_index = data.join(format!("{DATABASE}-shm")).exists();
    if !log.exists() && !has_index {
        return Ok(None);
    }

    let has_pages = log.metadata().is_ok_and(|log| log.len() > 0);
    let mut renamed = set_file_aside(data)?.into_os_string();
    renamed.push("-wal");
    Ok(has_pages.then(|| PathBuf::from(renamed)))
}

/// Records that are removed from the end of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOut {
    pub first: Position,
    pub last: Position,
    /// File with the removed rows, one JSON value on each line. It was written before the rows were
    /// removed.
    pub file: PathBuf,
}

/// Copies into a separate file the records that follow the last record covered by a MAC of this
/// host. Returns `None` if there are no such records, or if no MAC of this host covers any record.
/// [`TableRepair::apply`] later removes the copied records from the journal.
pub fn keep_uncovered_aside(
    data: &Path,
    state: &Path,
    key: &CheckpointKey,
) -> Result<Option<TakenOut>, Error> {
    let reader = JournalReader::open(data)?;
    let about = reader.about()?;
    let last = reader.last()?;
    let covered = covered(&reader, key, about.journal, last)?;
    if covered == Position(0) || covered >= last {
        return Ok(None);
    }

    let first = Position(covered.0 + 1);
    let name = format!("{}.taken-out-{first}-{last}", about.journal);
    let file = keep_aside(&reader, first, last, &state.join(name))?;
    Ok(Some(TakenOut { first, last, file }))
}

/// Returns the last record that a MAC of this host covers. Ignores all records after a break in the
/// hash chain.
fn covered(
    reader: &JournalReader,
    key: &CheckpointKey,
    journal: Uuid,
    last: Position,
) -> Result<Position, Error> {
    let mut coverage = MacCoverage::new(journal, Some(key.mac()));
    let scanned = scan(reader, last, &mut TreeHeads::default(), &mut |sealed, heads| {
        coverage.take(sealed.hash, sealed.mac, heads);
        Ok(())
    });
    match scanned {
        Ok(()) | Err(Error::Broken { .. }) => Ok(coverage.covered()),
        Err(error) => Err(error),
    }
}

/// Writes the rows from `first` to `last` into a new file, and returns its path. Never overwrites
/// an earlier file.
fn keep_aside(
    reader: &JournalReader,
    first: Position,
    last: Position,
    stem: &Path,
) -> Result<PathBuf, Error> {
    let (path, mut out) = create_beside_earlier(stem)?;
    let failed = |error| Error::io(path.display().to_string())(error);
    reader.rows(first, last, &mut |row| {
        let line = serde_json::json!({
            "position": row.place.position,
            "tree": row.place.tree,
            "previous": row.place.previous,
            "previous_hash": row.place.previous_hash,
            "time": row.place.time.0,
            "hash": row.hash,
            "body": row.body,
            "payloads": row.payloads,
        });
        writeln!(out, "{line}").map_err(failed)
    })?;
    out.sync_all().map_err(failed)?;
    durable_file::sync_parent(&path).map_err(failed)?;
    Ok(path)
}

/// Creates a new file that only its owner may read. The name of the new file is `stem.jsonl` or, if
/// this name is used, the first unused one of `stem-2.jsonl`, `stem-3.jsonl` and so on.
fn create_beside_earlier(stem: &Path) -> Result<(PathBuf, File), Error> {
    let name = |number: u32| match number {
        1 => format!("{}.jsonl", stem.display()),
        _ => format!("{}-{number}.jsonl", stem.display()),
    };

    let mut number = 1;
    loop {
        let path = PathBuf::from(name(number));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(Error::io(path.display().to_string())(error)),
        }
    }
}
