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

/// Folds the records up to `last` into `db`. Passes the number of records that are done, and of all
/// records, to `progress`.
pub fn catch_up(
    path: &Path,
    db: &Connection,
    journal: &JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let first = Position(position(db).map_err(failed(path))?.0 + 1);
    if first > last {
        return Ok(());
    }

    let mut batch = CatchUp::begin(path, db, journal)?;
    let mut take = |records: Vec<HashedRecord>| -> Result<(), Error> {
        for sealed in &records {
            batch.take(sealed)?;
        }
        if let Some(sealed) = records.last() {
            progress(sealed.record.position.0, last.0);
        }
        Ok(())
    };
    in_order::<Error>(journal.data(), first, last, &mut take)?;
    batch.commit()
}

/// A batch of records that is folded and not committed yet.
struct CatchUp<'d> {
    path: &'d Path,
    db: &'d Connection,
    journal: &'d JournalReader,
    fold: IndexFold<'d>,
    end: Option<(Position, Digest)>,
    records: u64,
}

impl<'d> CatchUp<'d> {
    fn begin(
        path: &'d Path,
        db: &'d Connection,
        journal: &'d JournalReader,
    ) -> Result<Self, Error> {
        let sqlite = failed(path);
        db.execute_batch("BEGIN IMMEDIATE").map_err(&sqlite)?;
        let fold = IndexFold::new(db).map_err(&sqlite)?;
        Ok(Self { path, db, journal, fold, end: None, records: 0 })
    }

    fn take(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        self.refuse_redacted(sealed)?;
        self.fold.take(&sealed.record).map_err(failed(self.path))?;
        self.end = Some((sealed.record.position, sealed.hash));
        self.records += 1;
        if self.records.is_multiple_of(limits::INDEX_COMMIT_RECORDS) {
            self.commit()?;
            self.db.execute_batch("BEGIN IMMEDIATE").map_err(failed(self.path))?;
        }
        Ok(())
    }

    /// Writes the batch together with its position.
    fn commit(&mut self) -> Result<(), Error> {
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
        Ok(())
    }

    /// Refuses to go on where an operator redacted payloads that the index has read before, because
    /// their words must not stay anywhere in its file.
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

/// Makes the index at `path` complete up to `last`. One that is damaged is made anew.
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
