//! The journal in one SQLite file, for one writing process and any number of readers.
//!
//! To add a record, SQLite appends to only one B-tree. All other data in the file is derived from
//! the records. This derived data is updated in batches, or computed when it is read.

mod backup;
mod block_digest;
mod connect;
mod creation;
mod directory;
mod directory_lock;
mod found;
mod head_store;

mod open;
mod projection;
mod reader;
mod repair;
mod resting_store;
mod row;
mod scan;
mod shared_memory;
mod snapshot;
mod snapshot_start;
mod stored_names;
mod trees;
mod wal_checkpointer;
mod walk;
mod working_file;
mod write;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::clock::Time;
use crate::ids::{Digest, Position, ThreadId};
use crate::limits;

use super::commit_watermark::CommitWatermark;
use super::log::{Log, LogGroup, LogMark};
use super::writer::JournalWriter;
use super::{Error, TreeHeads};
use wal_checkpointer::{WalCheckpointResult, WalCheckpointer};

pub use backup::{BackedUp, UnnamedCopy, back_up};
pub use connect::{is_disk_full, keep_plans};
pub use directory::{DATABASE, make as make_directory};
pub(in crate::journal) use directory::{note_journal, noted_journal};
pub use directory_lock::{DirectoryLock, LockHolder, lock_holder, require_free};
pub use found::FoundJournal;
pub(super) use head_store::{HeadStore, HeadsSummary};
pub use open::hold;
pub(in crate::journal) use projection::{
    CatchingUp, LockedJournalDir, RecordProof, RecordsAhead, StreamEvidence,
};
pub use reader::{JournalMetadata, JournalReader};
pub use repair::TakenOut;
pub(in crate::journal) use repair::{FILE_ENDS, TableRepair};
pub use resting_store::RestingStore;
pub use scan::{in_order, in_order_alone, scan, scan_alone};
pub use shared_memory::require_room;
pub(in crate::journal) use snapshot::remove as remove_snapshot;
pub use snapshot::{
    DraftFiles, Snapshot, SnapshotDraft, SnapshotEvidence, SnapshotPlace, StoredState,
};
pub use trees::TreeRow;
pub use walk::WalkedRecord;

/// Whether the journal in `data` has records and was written before MACs existed.
pub fn is_without_mac(data: &std::path::Path, state: &std::path::Path) -> Result<bool, Error> {
    let reader = match JournalReader::open(data) {
        Err(Error::Missing { .. }) => return Ok(false),
        other => other?,
    };
    let is_noted = CommitWatermark::read(state, reader.about()?.journal)?.is_some();
    Ok(!is_noted && reader.last()? > Position(0) && !reader.has_any_mac()?)
}

const SCHEMA: &str = include_str!("schema.sql");

/// Views for people who query a journal with SQL.
const VIEWS: &str = include_str!("views.sql");

/// The views of a journal of format 2.
const VIEWS_OF_FORMAT_2: &str = include_str!("views_of_format_2.sql");

/// The views of a journal of format 3.
const VIEWS_OF_FORMAT_3: &str = include_str!("views_of_format_3.sql");

const DROP_VIEWS: &str = "DROP VIEW IF EXISTS thread; DROP VIEW IF EXISTS message; \
                          DROP VIEW IF EXISTS refusal; DROP VIEW IF EXISTS disposition; \
                          DROP VIEW IF EXISTS fact";

/// Statement that adds the MAC column to the table `step`. It runs both for new journals and for
/// older journals without this column. So SQLite stores the same definition of the table for both,
/// and a pump can compare definitions when it verifies the table.
const MAC_COLUMN: &str = "ALTER TABLE step ADD COLUMN mac BLOB";

/// Key in table `meta` under which a projection stores its position in its stream.
const STREAM: &str = "stream";

/// A journal in one SQLite file, opened for writing.
pub type SqliteJournal = JournalWriter<SqliteLog>;

/// The log of an embedded journal: the file itself.
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
        file.write(group, None, None, heads)?;
        Ok(LogMark::default())
    }
}

impl<L: Log> JournalWriter<L> {
    /// Writes the journal's file anew from its rows, and empties the write-ahead log. Unused parts
    /// of the file may contain old copies of rows, such as a payload that was blanked later. The
    /// new file has no such copies. A crash at any moment leaves all rows as they are.
    ///
    /// # Errors
    ///
    /// - [`Error::Full`] if the disk has no room for two more copies of the file.
    /// - [`Error::InUse`] if another process reads the old state of the file.
    pub fn rewrite_file(&self) -> Result<(), Error> {
        let failed = |error: rusqlite::Error| {
            if is_disk_full(&error) {
                let detail = "no room to write the journal's file anew; nothing was recorded";
                return Error::Full { detail: detail.to_owned() };
            }
            Error::sqlite("writing the journal's file anew")(error)
        };

        let db = &self.file.db;
        db.execute_batch("VACUUM").map_err(failed)?;
        let moved = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        let is_incomplete: bool = moved.map_err(failed)?;
        if is_incomplete {
            let path = self.file.data.join(DATABASE).display().to_string();
            let holder = "a command that reads it; nothing was recorded".to_owned();
            return Err(Error::InUse { path, holder });
        }

        Ok(())
    }
}

/// Device and inode of a file, which stay the same when the file is moved or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of the file that is at `path` now.
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The file that readers of a journal open. It is the log itself, or the projection of a log.
#[derive(Debug)]
pub struct JournalFile {
    db: Connection,
    /// Identity of the file that `db` has open.
    opened: FileIdentity,
    /// Time at which a check first found the open file no longer at its path. `None` if the last
    /// check found the file there.
    displaced_since: Option<Time>,
    data: PathBuf,
    state: PathBuf,
    pub(super) epoch: u32,
    mend: TableRepair,
    refreshed: Position,
    /// Whether the next commit updates the table of trees even if only few records are new.
    must_refresh: bool,
    /// Approximate size of the write-ahead log, in bytes.
    wal_bytes: usize,
    mover: WalCheckpointer,
    // Ordering rule: dropped last, so that the lock is released after everything else is closed.
    _lock: DirectoryLock,
}

impl JournalFile {
    /// Writes a group in one commit. If the file follows a stream, also writes `mark`, which is the
    /// group's position in the stream, and `about`, which is the new metadata of the file.
    pub(super) fn write(
        &mut self,
        group: &LogGroup<'_>,
        mark: Option<LogMark>,
        about: Option<&JournalMetadata>,
        heads: &mut TreeHeads,
    ) -> Result<(), Error> {
        let has_records = !group.steps.is_empty();
        let mend = std::mem::take(&mut self.mend);
        let committed = self.commit(heads, |db| {
            if has_records {
                mend.apply(db)?;
            }
            about.map_or(Ok(()), |about| write::about(db, about))?;
            write::group(db, group, mark)
        });
        if committed.is_err() || !has_records {
            // Kept for a retry, such as after a full disk.
            self.mend = mend;
        }

        committed?;
        self.wal_bytes += group.size();
        Ok(())
    }

    /// Returns an error if the open file has been missing from its place for at least
    /// [`limits::JOURNAL_DISPLACED_AFTER`], because it was moved, removed or replaced. The duration
    /// counts from the first call that does not find the file in its place. A call that finds the
    /// file in its place resets the duration. `now` is the time of this call, and `last` is the
    /// last record of the file.
    pub(super) fn verify_in_place(&mut self, last: Position, now: Time) -> Result<(), Error> {
        let Err(error) = self.require_in_place(last) else {
            self.displaced_since = None;
            return Ok(());
        };

        let since = *self.displaced_since.get_or_insert(now);
        if now.since(since) >= limits::JOURNAL_DISPLACED_AFTER { Err(error) } else { Ok(()) }
    }

    /// Returns an error if the file was moved, removed or replaced while it is open. In this case,
    /// readers and the next start would not find the new records. `last` is the last record of the
    /// file.
    pub(super) fn require_in_place(&self, last: Position) -> Result<(), Error> {
        let path = self.data.join(DATABASE);
        let is_in_place = match FileIdentity::of(&path) {
            Ok(present) => present == self.opened,
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        if is_in_place {
            return Ok(());
        }

        let detail = format!(
            "{} was moved, removed or replaced while a pump had it open, and that file has the \
             records up to {last}. If it was moved, put it back, with the file `{DATABASE}-wal` that \
             was beside it. Otherwise, move `{DATABASE}-wal` and `{DATABASE}-shm` away, which \
             belong to that file, and then restore a backup (docs/OPERATIONS.md, Restore), or go \
             on without what is missing with `organism repair --accept-loss`",
            path.display()
        );
        Err(Error::broken(0, detail))
    }

    pub(super) fn has_blob(&self, digest: Digest) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM blob WHERE digest = ?1";
        let found = self.db.prepare_cached(sql).and_then(|mut q| q.exists([digest.to_string()]));
        found.map_err(Error::sqlite("looking for a blob"))
    }

    /// Whether the table of trees has the tree `root`. Trees that are newer than the last update of
    /// the table are not in it.
    pub(super) fn has_tree(&self, root: &ThreadId) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM tree WHERE root = ?1";
        let found = self.db.prepare_cached(sql).and_then(|mut q| q.exists([root.as_str()]));
        found.map_err(Error::sqlite("looking for a tree"))
    }

    pub(super) fn set_pages_max(&self, pages: Option<u32>) -> Result<(), Error> {
        let pages = pages.unwrap_or(u32::MAX - 1);
        let failed = Error::sqlite("limiting the journal's size");
        self.db
            .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
            .map_err(failed)
    }

    /// Moves the whole write-ahead log into the file, and closes the file. If the disk has no room,
    /// the log stays beside the file: its records are durable, and the next close with room, or
    /// further records, move them.
    pub(super) fn fold(mut self, heads: &mut TreeHeads) -> Result<(), Error> {
        if self.refreshed < heads.last() {
            self.refresh_trees(heads)?;
        }

        if let Some(WalCheckpointResult::Failed(error)) = self.mover.ended(true) {
            return Err(error);
        }

        let rest = wal_checkpointer::move_all(&self.db);
        self.moved(rest)?;
        let tidied = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        tidied.map(drop).map_err(Error::sqlite("closing the journal"))
    }

    /// Runs one transaction in which `fill` writes to the database. Any error rolls back the whole
    /// transaction. Fails if another pump has begun a newer epoch. The transaction also updates the
    /// table of trees if this table lacks at least [`limits::TREES_REFRESH_RECORDS`] records, or if
    /// an update was requested.
    fn commit(
        &mut self,
        heads: &mut TreeHeads,
        fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let behind = heads.last().0 - self.refreshed.0;
        let is_refreshed = self.must_refresh || behind >= limits::TREES_REFRESH_RECORDS;
        let anew = self.refreshed == Position(0);
        write::transaction(&self.db, self.epoch, |db| {
            fill(db).map_err(write::failed)?;
            if is_refreshed { write::trees(db, heads, anew) } else { Ok(()) }
        })?;

        if is_refreshed {
            self.trees_refreshed(heads);
        }

        self.wal_bytes += 2 * limits::JOURNAL_PAGE_BYTES;
        Ok(())
    }

    /// Makes the next commit write the whole table of trees.
    pub(super) fn rewrite_trees(&mut self) {
        self.refreshed = Position(0);
        self.must_refresh = true;
    }

    fn refresh_trees(&mut self, heads: &mut TreeHeads) -> Result<(), Error> {
        let anew = self.refreshed == Position(0);
        match write::transaction(&self.db, self.epoch, |db| write::trees(db, heads, anew)) {
            Ok(()) => self.trees_refreshed(heads),
            // The table is derived, so it can wait for disk space.
            Err(Error::Full { .. }) => {}
            Err(error) => return Err(error),
        }

        Ok(())
    }

    fn trees_refreshed(&mut self, heads: &mut TreeHeads) {
        self.refreshed = heads.last();
        self.must_refresh = false;
        heads.saved();
    }

    /// Moves the contents of a long write-ahead log into the file, so that SQLite writes the log
    /// from its beginning again. A separate OS thread moves most of the log. The writer then moves
    /// only the short rest.
    pub(super) fn move_log(&mut self) -> Result<(), Error> {
        let overdue = self.wal_bytes >= limits::WAL_BYTES_MAX;
        match self.mover.ended(overdue) {
            Some(WalCheckpointResult::Nearly | WalCheckpointResult::NotBegun) => self.move_rest(),
            Some(other) => self.moved(other),
            None if self.wal_bytes >= limits::WAL_BYTES && !self.mover.is_moving() => {
                self.mover.begin();
                // Without a thread, the writer moves the log itself.
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
                tracing::warn!(
                    "could not truncate the journal's write-ahead log, because the disk is full"
                );
                Ok(())
            }
            WalCheckpointResult::Failed(error) => Err(error),
        }
    }
}
