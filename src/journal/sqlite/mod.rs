//! The journal in one SQLite file, for one writing process and any number of readers.
//!
//! The only B-tree a record costs is the one it is appended to: what else can be asked is
//! derived, in batches or by reading.

mod backup;
mod connect;
mod copying;
mod directory;
mod judge;
mod known;
mod mover;
mod open;
mod projection;
mod reader;
mod redactions;
mod repair;
mod row;
mod scan;
mod signers;
mod trees;
mod write;

use std::path::PathBuf;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use uuid::Uuid;

use crate::clock::Time;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::limits;
use crate::thread::Record;

use super::checkpoint::{Key, Outside};
use super::mac::{Coverage, HeadSealer};
use super::row::{Encoded, Rows};
use super::{Checkpoint, CopyMetrics, Error, HeadMac, Heads};
use copying::Copying;
use directory::Watermark;
use mover::{Moved, Mover};

pub use backup::{BackedUp, back_up};
pub(in crate::journal) use directory::noted_journal;
pub use directory::{DATABASE, Lock, LockHolder, is_free, lock_holder, make as make_directory};
pub use known::{refuse_lost_file, replaced, replaced_journal, unreadable};
pub use open::{Acceptance, Found, hold};
pub(in crate::journal) use projection::{Evidence, Following, Opening, Taken};
pub use reader::{About, Reader};
pub use redactions::Redactions;
use repair::Mend;
pub use repair::TakenOut;
pub use scan::scan;
pub use signers::Signers;
pub use trees::Tree;

/// The last record that was acknowledged, as noted outside the journal; zeros where none was.
pub fn acknowledged(state: &std::path::Path, journal: Uuid) -> Result<(Position, Digest), Error> {
    Ok(Watermark::read(state, journal)?.unwrap_or_default())
}

/// Whether the journal in `data` has records, and was kept before there were MACs.
pub fn is_without_mac(data: &std::path::Path, state: &std::path::Path) -> Result<bool, Error> {
    let reader = match Reader::open(data) {
        Err(Error::Missing { .. }) => return Ok(false),
        other => other?,
    };
    let is_noted = Watermark::read(state, reader.about()?.journal)?.is_some();
    Ok(!is_noted && reader.last()? > Position(0) && !reader.has_any_mac()?)
}

const SCHEMA: &str = include_str!("schema.sql");
/// Added to what earlier versions made, and to new journals in the same way: the text that SQLite
/// keeps of the table is the same.
const MAC_COLUMN: &str = "ALTER TABLE step ADD COLUMN mac BLOB";
/// The key in `meta` that a projection has: how far it followed its stream.
const STREAM: &str = "stream";

/// Records with their places, ready to be written.
#[derive(Debug)]
pub(super) struct Group {
    pub rows: Rows,
    pub mac: HeadMac,
    pub checkpoint: Option<Checkpoint>,
}

impl Group {
    /// Its rows; the last one carries the MAC.
    pub fn encoded(&self) -> impl Iterator<Item = Encoded<'_>> {
        let last = self.rows.len().saturating_sub(1);
        let carries = move |at: usize| (at == last).then_some(self.mac);
        self.rows.iter().enumerate().map(move |(at, row)| Encoded { mac: carries(at), ..row })
    }
}

/// The writing end: one owner, on its own thread, as every call waits for the disk.
#[derive(Debug)]
pub struct Journal {
    db: Connection,
    id: Uuid,
    epoch: u32,
    heads: Heads,
    rows: Rows,
    watermark: Watermark,
    data: PathBuf,
    state: PathBuf,
    /// How it was when it was opened.
    found: Found,
    /// Where an operator accepts a loss: the last record before what is lost.
    kept: Option<Position>,
    /// What an operator accepts takes effect with the next commit of records.
    awaits_action: bool,
    mend: Mend,
    /// How far MACs cover what was read.
    coverage: Coverage,
    key: Key,
    public_key: String,
    sealer: HeadSealer,
    outside: Outside,
    /// Checkpoints that are in the journal, but not outside yet.
    unwritten: Vec<Checkpoint>,
    copying: Copying,
    checked: Position,
    /// None until the first record of this run says what time it is.
    checked_at: Option<Time>,
    refreshed: Position,
    /// About what the write-ahead log holds.
    wal_bytes: usize,
    mover: Mover,
    /// Why nothing can be written any more.
    stopped: Option<String>,
    // Last, so that it is let go of after everything else is closed.
    _lock: Lock,
}

impl Journal {
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// This pump's; every start has a higher one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The key that its checkpoints are signed with, in hexadecimal.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// How it was when it was opened.
    pub fn found(&self) -> &Found {
        &self.found
    }

    pub fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Where the next record will stand.
    pub fn next(&self) -> Position {
        Position(self.heads.last().0 + 1)
    }

    /// Makes records durable and readable in one commit, see [`super::Journal::write`].
    pub fn append(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        match self.stamp(records)? {
            Some(mut group) => self.insert(records, &mut group, None),
            None => Ok(Vec::new()),
        }
    }

    /// Gives the records their places and encodes them, with a checkpoint where one is due.
    pub(super) fn stamp(&mut self, records: &mut [Record]) -> Result<Option<Group>, Error> {
        self.usable()?;
        let Some(now) = records.last().map(|record| record.time) else { return Ok(None) };
        failpoint("before-append");
        self.checked_at.get_or_insert(now);
        let mut rows = std::mem::take(&mut self.rows);
        rows.stamp(&self.heads, records)?;
        let mac = self.sealer.seal(&self.heads, records, &rows);
        let checkpoint = self.is_due(now).then(|| self.next_checkpoint(now));
        Ok(Some(Group { rows, mac, checkpoint }))
    }

    /// Commits what was stamped. `mark`: where it stands in the stream it is a projection of.
    pub(super) fn insert(
        &mut self,
        records: &[Record],
        group: &mut Group,
        mark: Option<&str>,
    ) -> Result<Vec<Digest>, Error> {
        let mend = std::mem::take(&mut self.mend);
        let committed = self.commit(group.checkpoint.as_ref(), |db| {
            mend.apply(db)?;
            write::steps(db, records.iter().map(Into::into).zip(group.encoded()))?;
            mark.map_or(Ok(()), |mark| write::set_meta(db, STREAM, mark))
        });
        if committed.is_err() {
            // It may be tried again, as where the disk is full.
            self.mend = mend;
        }
        committed?;
        failpoint("after-commit");
        let Group { rows, mac, checkpoint } = group;
        self.sealer.sealed(*mac);
        self.wal_bytes += rows.size();
        let hashes: Vec<Digest> = rows.iter().map(|row| row.hash).collect();
        self.rows = std::mem::take(rows);
        for (record, hash) in records.iter().zip(&hashes) {
            self.heads.advance(record, *hash);
        }
        if std::mem::take(&mut self.awaits_action) {
            self.settle().map_err(|error| self.stop(error))?;
        }
        self.watermark
            .set(self.heads.last(), self.heads.last_hash())
            .map_err(|error| self.stop(error))?;
        self.after_checkpoint(checkpoint.take());
        if mark.is_none() {
            self.checkpoint_decisions(records)?;
        }
        self.move_log();
        failpoint("after-append");
        Ok(hashes)
    }

    /// What an operator decided is signed at once: nobody who takes the key later can have
    /// decided otherwise.
    fn checkpoint_decisions(&mut self, records: &[Record]) -> Result<(), Error> {
        let decided = records.iter().rev().find(|record| record.input.is_decision());
        match decided {
            Some(record) => self.checkpoint(record.time).map(drop),
            None => Ok(()),
        }
    }

    /// Signs and records how far the journal goes, when that is due. A pump with nothing to
    /// append calls this now and then.
    pub fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        self.usable()?;
        if !self.is_due(now) {
            return Ok(false);
        }
        self.checkpoint(now)
    }

    /// Keeps bytes the organism ran on (config, prompt file, schema) under their digest.
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        self.usable()?;
        let digest = Digest::of(bytes);
        if self.has_blob(digest)? {
            return Ok(digest);
        }
        self.commit(None, |db| write::blob(db, digest, bytes))?;
        Ok(digest)
    }

    pub(super) fn has_blob(&self, digest: Digest) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM blob WHERE digest = ?1";
        let found = self.db.prepare_cached(sql).and_then(|mut q| q.exists([digest.to_string()]));
        found.map_err(Error::sqlite("looking for a blob"))
    }

    /// The most pages the file may have; None lifts it. Beyond it, the disk counts as full.
    pub fn set_pages_max(&self, pages: Option<u32>) -> Result<(), Error> {
        let pages = pages.unwrap_or(u32::MAX - 1);
        let failed = Error::sqlite("limiting the journal's size");
        self.db
            .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
            .map_err(failed)
    }

    /// A last checkpoint, everything in the one file, the lock let go.
    pub fn close(mut self, now: Time) -> Result<(), Error> {
        self.usable()?;
        if self.checked < self.heads.last() {
            self.checkpoint(now)?;
        }
        self.copying.finish(self.id);
        self.fold()
    }

    /// Everything in the one file.
    fn fold(mut self) -> Result<(), Error> {
        if self.refreshed < self.heads.last() {
            self.refresh_trees()?;
        }
        if let Some(Moved::Failed(error)) = self.mover.ended(true) {
            return Err(error);
        }
        let failed = Error::sqlite("closing the journal");
        let moved = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let tidied = |()| self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        moved.and_then(tidied).map(drop).map_err(failed)
    }

    /// False where the disk is full: every record is durable without it, and it comes later.
    fn checkpoint(&mut self, now: Time) -> Result<bool, Error> {
        let checkpoint = self.next_checkpoint(now);
        match self.commit(Some(&checkpoint), |_| Ok(())) {
            Ok(()) => self.after_checkpoint(Some(checkpoint)),
            Err(Error::Full { detail }) => {
                tracing::warn!("the disk is full, a checkpoint is put off: {detail}");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    pub(super) fn usable(&self) -> Result<(), Error> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.to_string());
        error
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        let since = self.heads.last().0.saturating_sub(self.checked.0);
        since >= limits::CHECKPOINT_RECORDS
            || (since > 0
                && self.checked_at.is_none_or(|at| now.since(at) >= limits::CHECKPOINT_INTERVAL))
    }

    /// Over what is durable now, which excludes the group it is committed with.
    pub(super) fn next_checkpoint(&mut self, now: Time) -> Checkpoint {
        failpoint("before-checkpoint");
        let position = self.heads.last();
        self.key.sign(Checkpoint {
            journal: self.id,
            position,
            count: position.0,
            merkle_root: self.heads.merkle_root(),
            time: now,
            key: String::new(),
            signature: String::new(),
        })
    }

    fn after_checkpoint(&mut self, checkpoint: Option<Checkpoint>) {
        let Some(checkpoint) = checkpoint else { return };
        failpoint("after-checkpoint");
        (self.checked, self.checked_at) = (checkpoint.position, Some(checkpoint.time));
        self.unwritten.push(checkpoint.clone());
        self.write_outside();
        failpoint("after-outside-line");
        self.copying.copy(self.id, [checkpoint]);
    }

    /// Copies checkpoints outside. Should that fail, the journal itself is whole: it is tried
    /// again with the next one.
    fn write_outside(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }
        match self.outside.append(&self.unwritten) {
            Ok(()) => self.unwritten.clear(),
            Err(error) => {
                let path = self.outside.path().display();
                tracing::warn!(%path, %error, "checkpoints could not be written outside the journal");
            }
        }
    }

    /// One transaction: the fence, what `fill` writes, a checkpoint, and the table of trees when
    /// it is its turn. On any error nothing of it remains.
    fn commit(
        &mut self,
        checkpoint: Option<&Checkpoint>,
        fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let behind = self.heads.last().0 - self.refreshed.0;
        let heads = (behind >= limits::TREES_REFRESH_RECORDS).then_some(&self.heads);
        let anew = self.refreshed == Position(0);
        let result = write::transaction(&self.db, self.epoch, |db| {
            fill(db)?;
            checkpoint.map_or(Ok(()), |checkpoint| write::checkpoint(db, checkpoint))?;
            heads.map_or(Ok(()), |heads| write::trees(db, heads, anew))
        });
        match result {
            Ok(()) if heads.is_some() => self.trees_refreshed(),
            Ok(()) => {}
            Err(error @ Error::Full { .. }) => return Err(error),
            Err(error) => return Err(self.stop(error)),
        }
        self.wal_bytes += 2 * limits::JOURNAL_PAGE_BYTES;
        Ok(())
    }

    fn refresh_trees(&mut self) -> Result<(), Error> {
        let (heads, anew) = (&self.heads, self.refreshed == Position(0));
        match write::transaction(&self.db, self.epoch, |db| write::trees(db, heads, anew)) {
            Ok(()) => self.trees_refreshed(),
            // The table is derived: it can wait for room.
            Err(Error::Full { .. }) => {}
            Err(error) => return Err(self.stop(error)),
        }
        Ok(())
    }

    fn trees_refreshed(&mut self) {
        self.refreshed = self.heads.last();
        self.heads.saved();
    }

    /// Has the write-ahead log moved into the file when it is long: most of it beside the writer,
    /// the rest, which is short, by the writer, so that the log begins anew.
    fn move_log(&mut self) {
        let overdue = self.wal_bytes >= limits::WAL_BYTES_MAX;
        match self.mover.ended(overdue) {
            Some(Moved::Nearly | Moved::NotBegun) => self.move_rest(),
            Some(other) => self.moved(other),
            None if self.wal_bytes >= limits::WAL_BYTES && !self.mover.is_moving() => {
                self.mover.begin();
                if !self.mover.is_moving() {
                    // There was no thread to be had.
                    self.move_rest();
                }
            }
            None => {}
        }
    }

    fn move_rest(&mut self) {
        self.wal_bytes = 0;
        let rest = mover::move_now(&self.db);
        self.moved(rest);
    }

    fn moved(&mut self, moved: Moved) {
        match moved {
            Moved::Nearly | Moved::NotBegun => {}
            Moved::NoRoom => {
                self.wal_bytes = 0;
                tracing::warn!("the disk is too full to shorten the journal's write-ahead log");
            }
            // What was appended is durable; nothing after it would be.
            Moved::Failed(error) => drop(self.stop(error)),
        }
    }
}

impl super::Journal for Journal {
    fn id(&self) -> Uuid {
        self.id
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn next(&self) -> Position {
        Self::next(self)
    }

    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        self.append(records)
    }

    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        Self::checkpoint_if_due(self, now)
    }

    fn checked_at(&self) -> Option<Time> {
        self.checked_at
    }

    fn copy_metrics(&self) -> Option<CopyMetrics> {
        self.copying.counts()
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        Self::put_blob(self, bytes)
    }

    fn close(self: Box<Self>, now: Time) -> Result<(), Error> {
        Self::close(*self, now)
    }
}
