//! Brings an index up to a position of its journal, in large commits.

use std::path::Path;

use rusqlite::Connection;

use crate::envelope::Payload;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::HashedRecord;
use crate::journal::sqlite::{JournalReader, in_order};
use crate::limits;
use crate::thread::Input;

use super::file::{failed, position};
use super::fold::IndexFold;
use super::{Error, file};

/// Writes the rows of records into the index database `db`. The caller holds the lock of the index.
pub struct IndexWriter<'d> {
    path: &'d Path,
    db: &'d Connection,
    journal: &'d JournalReader,
    fold: IndexFold<'d>,
    /// Position and hash of the last record whose rows were added.
    end: Option<(Position, Digest)>,
    /// Number of records whose rows were added but not committed.
    uncommitted: u64,
}

impl<'d> IndexWriter<'d> {
    pub fn new(
        path: &'d Path,
        db: &'d Connection,
        journal: &'d JournalReader,
    ) -> Result<Self, Error> {
        let fold = IndexFold::new(db).map_err(failed(path))?;
        Ok(Self { path, db, journal, fold, end: None, uncommitted: 0 })
    }

    /// Limits the memory of the writer: the size of its SQLite page cache, and the number of rows
    /// of each kind that it keeps in memory between commits.
    pub fn set_memory(&mut self, cache_kib: u32, rows_kept: usize) -> Result<(), Error> {
        self.fold.rows_kept = rows_kept;
        let sqlite = failed(self.path);
        self.db.pragma_update(None, "cache_size", -i64::from(cache_kib)).map_err(sqlite)
    }

    /// Adds the rows of all records up to `last`, and commits them. Reports to `progress` the
    /// number of finished records and the total number of records.
    pub fn catch_up(
        &mut self,
        last: Position,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let first = Position(position(self.db).map_err(failed(self.path))?.0 + 1);
        if first > last {
            return Ok(());
        }

        let journal = self.journal;
        let mut take = |records: Vec<HashedRecord>| -> Result<(), Error> {
            for sealed in &records {
                self.take(sealed)?;
            }
            if let Some(sealed) = records.last() {
                progress(sealed.record.position.0, last.0);
            }
            Ok(())
        };
        in_order::<Error>(journal.data(), first, last, &mut take)?;
        self.commit()
    }

    fn take(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        if self.uncommitted == 0 {
            self.db.execute_batch("BEGIN IMMEDIATE").map_err(failed(self.path))?;
        }
        self.uncommitted += 1;
        self.refuse_redacted(sealed)?;
        self.fold.take(&sealed.record).map_err(failed(self.path))?;
        self.end = Some((sealed.record.position, sealed.hash));
        if self.uncommitted >= limits::INDEX_COMMIT_RECORDS {
            self.commit()?;
        }
        Ok(())
    }

    /// Commits the added rows, together with the position of their last record.
    fn commit(&mut self) -> Result<(), Error> {
        if self.uncommitted == 0 {
            return Ok(());
        }

        let sqlite = failed(self.path);
        self.fold.flush().map_err(&sqlite)?;
        if let Some((position, hash)) = self.end {
            for (key, value) in [("position", position.to_string()), ("hash", hash.to_string())] {
                let sql = "UPDATE meta SET value = ?2 WHERE key = ?1";
                self.db.execute(sql, (key, value)).map_err(&sqlite)?;
            }
        }
        failpoint("index-before-commit");
        self.db.execute_batch("COMMIT").map_err(&sqlite)?;
        failpoint("index-after-commit");
        self.uncommitted = 0;
        Ok(())
    }

    /// Returns an error if the index still contains words of payloads that an operator redacted
    /// later. The words of redacted payloads must not remain in the file of the index.
    fn refuse_redacted(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        let Input::Operator(action) = &sealed.record.input else { return Ok(()) };
        let redacted: Vec<Position> =
            action.redacted().filter(|position| *position < sealed.record.position).collect();
        if redacted.is_empty() {
            return Ok(());
        }

        let sqlite = failed(self.path);
        self.fold.flush().map_err(&sqlite)?;
        for position in redacted {
            let record = self.journal.existing_record(position)?.record;
            let blank = record.payloads().filter(|payload| Payload::is_redacted(payload)).count();
            let sql = "SELECT count(*) FROM message_row WHERE position = ?1 AND redacted";
            let known: u64 =
                self.db.query_row(sql, [position.0], |row| row.get(0)).map_err(&sqlite)?;
            if known != blank as u64 {
                return Err(Error::Redacted { position });
            }
        }
        Ok(())
    }
}

/// Adds the rows of all records up to `last` to `db`. Reports to `progress` the number of finished
/// records and the total number of records.
pub fn catch_up(
    path: &Path,
    db: &Connection,
    journal: &JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    IndexWriter::new(path, db, journal)?.catch_up(last, progress)
}

/// Brings the index at `path` up to the record at `last`. Rebuilds a damaged index.
pub fn update(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let db = file::open_writable(path, journal)?;
    match catch_up(path, &db, journal, last, progress) {
        Err(error) if error.is_damage() => {
            drop(db);
            file::remove(path)?;
            let db = file::open_writable(path, journal)?;
            catch_up(path, &db, journal, last, progress)
        }
        other => other,
    }
}
