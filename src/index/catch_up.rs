//! Brings an index up to a position of its journal, in large commits.

use std::path::Path;

use rusqlite::Connection;

use crate::envelope::Payload;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::HashedRecord;
use crate::journal::sqlite::{JournalReader, in_order, in_order_alone};
use crate::limits;
use crate::thread::Input;

use super::file::{failed, position};
use super::first_build::{self, BuildEnd};
use super::fold::IndexFold;
use super::follow::NextPosition;
use super::record_words::WordedRecord;
use super::word_merges::{self, WordMerges};
use super::word_thread::{WordTable, WordThread};
use super::{Error, file};

/// Writes the rows of records into the index database `db`. The caller holds the lock of the index.
pub struct IndexWriter<'d> {
    path: &'d Path,
    db: &'d Connection,
    journal: &'d JournalReader,
    fold: IndexFold<'d>,
    /// Position and hash of the newest record whose rows this writer has added to the index; `None`
    /// before the first record.
    end: Option<(Position, Digest)>,
    /// Number of records whose rows are not written to the database yet.
    unflushed: u64,
    /// Number of records whose rows were added but not committed.
    uncommitted: u64,
    /// Number of records after which the added rows are committed.
    commit_records: u64,
    /// Whether other OS threads read the next records from the journal while this writer adds the
    /// rows of a record.
    reads_ahead: bool,
    /// The present rule by which the full-text table merges its segments; `None` before the first
    /// record.
    merges: Option<WordMerges>,
    /// Whether segments of the full-text table may still have to be merged. No segments are merged
    /// while the index is far behind its journal.
    owes_merges: bool,
}

impl<'d> IndexWriter<'d> {
    pub fn new(
        path: &'d Path,
        db: &'d Connection,
        journal: &'d JournalReader,
        words: WordTable,
    ) -> Result<Self, Error> {
        let fold = IndexFold::new(db, words).map_err(failed(path))?;
        Ok(Self {
            path,
            db,
            journal,
            fold,
            end: None,
            unflushed: 0,
            uncommitted: 0,
            commit_records: limits::INDEX_COMMIT_RECORDS,
            reads_ahead: true,
            merges: None,
            owes_merges: false,
        })
    }

    /// Limits the memory of the writer: `cache_kib` is the size of SQLite's page cache in KiB, and
    /// `rows_kept` is the maximum number of rows of each kind that stay in memory between commits.
    /// `reads_ahead` states whether other OS threads read records in advance.
    pub fn set_memory(
        &mut self,
        cache_kib: u32,
        rows_kept: usize,
        reads_ahead: bool,
    ) -> Result<(), Error> {
        self.fold.rows_kept = rows_kept;
        self.fold.calls_kept = rows_kept;
        self.reads_ahead = reads_ahead;
        let sqlite = failed(self.path);
        self.db.pragma_update(None, "cache_size", -i64::from(cache_kib)).map_err(sqlite)
    }

    /// Returns the OS thread that writes the words of messages to a separate database; `None` if
    /// the words are in the database of the index.
    pub fn into_words(self) -> Option<WordThread> {
        match self.fold.words {
            WordTable::Beside => None,
            WordTable::Thread(thread) => Some(thread),
        }
    }

    /// Sets the size of caches and commits for a first build. During this build, no reader uses the
    /// index.
    pub fn set_up_first_build(&mut self) {
        self.fold.rows_kept = limits::INDEX_ROWS_KEPT;
        self.fold.calls_kept = limits::INDEX_BUILD_CALLS_KEPT;
        self.commit_records = limits::INDEX_BUILD_COMMIT_RECORDS;
    }

    /// Adds the rows of all records up to `last`, and commits them. Reports to `progress` the
    /// number of finished records and the total number of records.
    pub fn catch_up(
        &mut self,
        last: Position,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        self.add(last, progress)?;
        self.commit()
    }

    /// Adds the rows of all records up to `last` as [`Self::catch_up`] does, but may leave the last
    /// rows uncommitted.
    pub fn add(&mut self, last: Position, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        let first = Position(position(self.db).map_err(failed(self.path))?.0 + 1);
        if first > last {
            return Ok(());
        }

        let is_backlog = last.0 - first.0 >= limits::INDEX_COMMIT_RECORDS - 1;
        self.set_merges(if is_backlog { WordMerges::Backlog } else { WordMerges::Live })?;
        let journal = self.journal;
        let reads_ahead = self.reads_ahead;
        let mut take = |records: Vec<WordedRecord>| -> Result<(), Error> {
            let end = records.last().map(|record| record.sealed.record.position);
            records.into_iter().try_for_each(|record| self.take(record))?;
            if let Some(end) = end {
                progress(end.0, last.0);
            }
            Ok(())
        };
        if reads_ahead {
            in_order(journal, first, last, WordedRecord::new, &mut take)?;
        } else {
            in_order_alone(journal, first, last, WordedRecord::new, &mut take)?;
        }
        self.flush()
    }

    /// Sets the rule by which the full-text table merges its segments while rows are added. While
    /// the index is far behind its journal, the rule is to merge nothing, because merging is a
    /// tenth of the work of catching up. Does nothing if the full-text table is in a separate
    /// database.
    fn set_merges(&mut self, merges: WordMerges) -> Result<(), Error> {
        let is_beside = matches!(self.fold.words, WordTable::Beside);
        if is_beside && self.merges.replace(merges) != Some(merges) {
            merges.set(self.db).map_err(failed(self.path))?;
            self.owes_merges = true;
        }
        Ok(())
    }

    /// Does a part of the merges of the full-text table that were left out while the index was far
    /// behind its journal. Each part has a transaction of its own, so that no later commit has to
    /// do all merges at once.
    pub fn merge_some(&mut self) -> Result<(), Error> {
        if self.owes_merges && self.merges == Some(WordMerges::Live) {
            self.owes_merges = word_merges::merge_some(self.db).map_err(failed(self.path))?;
        }
        Ok(())
    }

    fn take(&mut self, record: WordedRecord) -> Result<(), Error> {
        let WordedRecord { sealed, texts } = record;
        if self.uncommitted == 0 {
            self.db.execute_batch("BEGIN IMMEDIATE").map_err(failed(self.path))?;
        }
        self.unflushed += 1;
        self.uncommitted += 1;
        self.refuse_redacted(&sealed)?;
        self.fold.take(&sealed.record, texts).map_err(failed(self.path))?;
        self.end = Some((sealed.record.position, sealed.hash));
        if self.unflushed >= limits::INDEX_COMMIT_RECORDS {
            self.flush()?;
        }
        if self.uncommitted >= self.commit_records {
            self.commit()?;
        }
        Ok(())
    }

    /// Writes the rows in memory, together with the position of their last record, into the open
    /// transaction.
    fn flush(&mut self) -> Result<(), Error> {
        if self.unflushed == 0 {
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
        self.unflushed = 0;
        Ok(())
    }

    /// Commits the added rows.
    pub fn commit(&mut self) -> Result<(), Error> {
        if self.uncommitted == 0 {
            return Ok(());
        }

        self.flush()?;
        let sqlite = failed(self.path);
        // If the process dies between these two commits, the next build begins again.
        self.fold.words.commit().map_err(&sqlite)?;
        failpoint("index-before-commit");
        self.db.execute_batch("COMMIT").map_err(&sqlite)?;
        failpoint("index-after-commit");
        self.uncommitted = 0;
        Ok(())
    }

    /// Returns an error if the record `sealed` redacts payloads whose words are in the index. The
    /// index must then be rebuilt, because its file must not keep these words.
    fn refuse_redacted(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        let Input::Operator(action) = &sealed.record.input else { return Ok(()) };
        let redacted: Vec<Position> =
            action.redacted().filter(|position| *position < sealed.record.position).collect();
        if redacted.is_empty() {
            return Ok(());
        }

        let sqlite = failed(self.path);
        self.fold.flush().map_err(&sqlite)?;
        // A first build has not made it yet.
        let by_position = "CREATE INDEX IF NOT EXISTS message_position ON message_row(position)";
        self.db.execute_batch(by_position).map_err(&sqlite)?;
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
    IndexWriter::new(path, db, journal, WordTable::Beside)?.catch_up(last, progress)
}

/// Brings the index at `path` up to the record at `last`. Rebuilds a damaged index.
pub fn update(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    match update_once(path, journal, last, progress) {
        Err(error) if error.is_damage() => {
            file::remove(path)?;
            update_once(path, journal, last, progress)
        }
        other => other,
    }
}

fn update_once(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut next = |reached: Position| {
        progress(reached.0, last.0);
        Some(last)
    };
    match open_or_build(path, journal, last, &mut || false, &mut next)? {
        Some(db) => catch_up(path, &db, journal, last, progress),
        None => Ok(()),
    }
}

/// Opens the index of `journal` for writing. If the index is missing or unusable, makes a new one.
/// For a long journal, the new index contains the records up to `last`. For a short journal, the
/// new index is empty.
///
/// Returns `None` if the build of a new index was stopped, because `next` returned `None` or
/// `is_stopped` returned true.
pub fn open_or_build(
    path: &Path,
    journal: &JournalReader,
    last: Position,
    is_stopped: &mut dyn FnMut() -> bool,
    next: &mut NextPosition<'_>,
) -> Result<Option<Connection>, Error> {
    if let Some(db) = file::open_usable(path, journal)? {
        return Ok(Some(db));
    }
    // SQLite attaches a database only by a path that is text.
    let is_text = path.to_str().is_some();
    if is_text
        && last.0 >= limits::INDEX_BUILD_RECORDS
        && first_build::build(path, journal, last, is_stopped, next)? == BuildEnd::Stopped
    {
        return Ok(None);
    }
    match file::open_usable(path, journal)? {
        Some(db) => Ok(Some(db)),
        None => file::create_at(path, journal).map(Some),
    }
}
