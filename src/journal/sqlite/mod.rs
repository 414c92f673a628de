//! The journal in one SQLite file, for one writing process and any number of readers.
//!
//! The only B-tree a record costs is the one it is appended to: what else can be asked is
//! derived, in batches or by reading.

mod backup;
mod connect;
mod directory;
mod external_marks;
mod judge;
mod open;
mod projection;
mod reader;
mod redactions;
mod repair;
mod row;
mod scan;
mod signers;
mod trees;
mod wal_checkpointer;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::limits;

use super::log::{Log, LogGroup, LogMark};
use super::writer::JournalWriter;
use super::{Error, TreeHeads};
use wal_checkpointer::{WalCheckpointResult, WalCheckpointer};

pub use backup::{BackedUp, back_up};
pub(in crate::journal) use directory::{CommitWatermark, noted_journal};
pub use directory::{
    DATABASE, DirectoryLock, LockHolder, is_free, lock_holder, make as make_directory,
};
pub use external_marks::{refuse_lost_file, replaced, replaced_journal, unreadable};
pub use open::{FoundJournal, OperatorAcceptance, hold};
pub(in crate::journal) use projection::{
    CatchingUp, LockedJournalDir, StreamEvidence, StreamItem, mac_of,
};
pub use reader::{JournalMetadata, JournalReader};
pub use redactions::RedactedRecords;
use repair::TableRepair;
pub use repair::TakenOut;
pub use scan::scan;
pub use signers::CheckpointSigners;
pub use trees::TreeRow;

/// The last record that was acknowledged, as noted outside the journal; zeros where none was.
pub fn acknowledged(state: &std::path::Path, journal: Uuid) -> Result<(Position, Digest), Error> {
    Ok(CommitWatermark::read(state, journal)?.unwrap_or_default())
}

/// Whether the journal in `data` has records, and was kept before there were MACs.
pub fn is_without_mac(data: &std::path::Path, state: &std::path::Path) -> Result<bool, Error> {
    let reader = match JournalReader::open(data) {
        Err(Error::Missing { .. }) => return Ok(false),
        other => other?,
    };
    let is_noted = CommitWatermark::read(state, reader.about()?.journal)?.is_some();
    Ok(!is_noted && reader.last()? > Position(0) && !reader.has_any_mac()?)
}

const SCHEMA: &str = include_str!("schema.sql");
/// Added to what earlier versions made, and to new journals in the same way: the text that SQLite
/// keeps of the table is the same.
const MAC_COLUMN: &str = "ALTER TABLE step ADD COLUMN mac BLOB";
/// The key in `meta` that a projection has: how far it followed its stream.
const STREAM: &str = "stream";

/// A journal in one file.
pub type SqliteJournal = JournalWriter<SqliteLog>;

/// The file is the log.
#[derive(Debug)]
pub struct SqliteLog;

impl Log for SqliteLog {
    const HAS_PROJECTION: bool = false;
    const REST: Duration = limits::CHECKPOINT_INTERVAL;

    fn append(
        &mut self,
        group: &LogGroup<'_>,
        file: &mut JournalFile,
        heads: &mut TreeHeads,
    ) -> Result<LogMark, Error> {
        file.write(group, None, heads)?;
        Ok(LogMark::default())
    }
}

/// The file that readers of a journal open: the log itself, or the projection of one.
#[derive(Debug)]
pub struct JournalFile {
    db: Connection,
    data: PathBuf,
    state: PathBuf,
    pub(super) epoch: u32,
    mend: TableRepair,
    refreshed: Position,
    /// About what the write-ahead log holds.
    wal_bytes: usize,
    mover: WalCheckpointer,
    // Last, so that it is let go of after everything else is closed.
    _lock: DirectoryLock,
}

impl JournalFile {
    /// Writes a group in one commit. `mark`: where it stands in the stream that this follows.
    pub(super) fn write(
        &mut self,
        group: &LogGroup<'_>,
        mark: Option<LogMark>,
        heads: &mut TreeHeads,
    ) -> Result<(), Error> {
        let has_records = !group.records.is_empty();
        let mend = std::mem::take(&mut self.mend);
        let committed = self.commit(heads, |db| {
            if has_records {
                mend.apply(db)?;
            }
            let (checkpoints, blobs) = (group.checkpoint.into_iter(), group.blob.into_iter());
            write::group(db, group.steps(), checkpoints, blobs, mark)
        });
        if committed.is_err() || !has_records {
            // It may be tried again, as where the disk is full.
            self.mend = mend;
        }

        committed?;
        self.wal_bytes += group.stamped.map_or(0, |stamped| stamped.rows.size());
        Ok(())
    }

    pub(super) fn has_blob(&self, digest: Digest) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM blob WHERE digest = ?1";
        let found = self.db.prepare_cached(sql).and_then(|mut q| q.exists([digest.to_string()]));
        found.map_err(Error::sqlite("looking for a blob"))
    }

    pub(super) fn set_pages_max(&self, pages: Option<u32>) -> Result<(), Error> {
        let pages = pages.unwrap_or(u32::MAX - 1);
        let failed = Error::sqlite("limiting the journal's size");
        self.db
            .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
            .map_err(failed)
    }

    /// Everything in the one file.
    pub(super) fn fold(mut self, heads: &mut TreeHeads) -> Result<(), Error> {
        if self.refreshed < heads.last() {
            self.refresh_trees(heads)?;
        }

        if let Some(WalCheckpointResult::Failed(error)) = self.mover.ended(true) {
            return Err(error);
        }

        let failed = Error::sqlite("closing the journal");
        let moved = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let tidied = |()| self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        moved.and_then(tidied).map(drop).map_err(failed)
    }

    /// One transaction: the fence, what `fill` writes, and the table of trees when it is its turn.
    /// On any error nothing of it remains.
    fn commit(
        &mut self,
        heads: &mut TreeHeads,
        fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let behind = heads.last().0 - self.refreshed.0;
        let is_refreshed = behind >= limits::TREES_REFRESH_RECORDS;
        let anew = self.refreshed == Position(0);
        write::transaction(&self.db, self.epoch, |db| {
            fill(db)?;
            if is_refreshed { write::trees(db, heads, anew) } else { Ok(()) }
        })?;

        if is_refreshed {
            self.trees_refreshed(heads);
        }

        self.wal_bytes += 2 * limits::JOURNAL_PAGE_BYTES;
        Ok(())
    }

    fn refresh_trees(&mut self, heads: &mut TreeHeads) -> Result<(), Error> {
        let anew = self.refreshed == Position(0);
        match write::transaction(&self.db, self.epoch, |db| write::trees(db, heads, anew)) {
            Ok(()) => self.trees_refreshed(heads),
            // The table is derived: it can wait for room.
            Err(Error::Full { .. }) => {}
            Err(error) => return Err(error),
        }

        Ok(())
    }

    fn trees_refreshed(&mut self, heads: &mut TreeHeads) {
        self.refreshed = heads.last();
        heads.saved();
    }

    /// Has the write-ahead log moved into the file when it is long: most of it beside the writer,
    /// the rest, which is short, by the writer, so that the log begins anew.
    pub(super) fn move_log(&mut self) -> Result<(), Error> {
        let overdue = self.wal_bytes >= limits::WAL_BYTES_MAX;
        match self.mover.ended(overdue) {
            Some(WalCheckpointResult::Nearly | WalCheckpointResult::NotBegun) => self.move_rest(),
            Some(other) => self.moved(other),
            None if self.wal_bytes >= limits::WAL_BYTES && !self.mover.is_moving() => {
                self.mover.begin();
                // Where no thread was to be had, this one moves it.
                if self.mover.is_moving() { Ok(()) } else { self.move_rest() }
            }
            None => Ok(()),
        }
    }

    fn move_rest(&mut self) -> Result<(), Error> {
        self.wal_bytes = 0;
        let rest = wal_checkpointer::move_now(&self.db);
        self.moved(rest)
    }

    fn moved(&mut self, moved: WalCheckpointResult) -> Result<(), Error> {
        match moved {
            WalCheckpointResult::Nearly | WalCheckpointResult::NotBegun => Ok(()),
            WalCheckpointResult::NoRoom => {
                self.wal_bytes = 0;
                tracing::warn!("the disk is too full to shorten the journal's write-ahead log");
                Ok(())
            }
            WalCheckpointResult::Failed(error) => Err(error),
        }
    }
}
