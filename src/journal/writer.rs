//! Writes a journal over any kind of log. Positions, hashes, MACs and checkpoints are made in the
//! same way for every kind of log.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Time;
use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::mutant::mutant;
use crate::thread::Record;

use super::background_proof::{BackgroundProof, ProofProgress};
use super::checkpoint_signer::CheckpointSigner;
use super::commit_watermark::CommitWatermark;
use super::log::{Log, LogGroup, LogMark, StampedGroup};
use super::mac::{HeadSealer, MacCoverage};
use super::record_codec::RecordBatch;
use super::sqlite::{FoundJournal, JournalFile};
use super::{Checkpoint, CopyMetrics, Error, Journal, TreeHeads};

/// Writes a journal. A writer has one owner, which runs on an OS thread of its own, because every
/// call blocks until its effect is durable.
#[derive(Debug)]
pub struct JournalWriter<L> {
    pub(super) id: Uuid,
    pub(super) heads: TreeHeads,
    /// Buffers for the encoded records of a group, reused for each group.
    pub(super) rows: RecordBatch,
    /// Tracks which of the records that were read so far are covered by MACs.
    pub(super) coverage: MacCoverage,
    pub(super) sealer: HeadSealer,
    pub(super) watermark: CommitWatermark,
    pub(super) signer: CheckpointSigner,
    pub(super) recovery: JournalRecovery,
    /// A checkpoint whose append was not acknowledged; it may already be in the log. `None` if
    /// there is no such checkpoint.
    pub(super) owed: Option<Checkpoint>,
    /// Reason why the latest attempt to write a checkpoint failed; `None` if it succeeded.
    pub(super) put_off: Option<String>,
    /// A group that is in the log but not in its projection yet; `None` if there is no such group.
    pub(super) unshown: Option<(StampedGroup, LogMark)>,
    /// Reason why the journal refuses further records; `None` while it accepts records.
    pub(super) stopped: Option<String>,
    /// Background thread that verifies the records before a snapshot. `None` if the journal was
    /// opened without a snapshot, so that every record was verified at the start.
    pub(super) proof: Option<BackgroundProof>,
    pub(super) log: L,
    // Ordering rule: dropped last, so that its lock is released after everything else, including a
    // lease.
    pub(super) file: JournalFile,
}

/// State of the journal when it was opened, the loss that an operator accepted at that time, and
/// whether the operator's action must still be recorded.
#[derive(Debug)]
pub(super) struct JournalRecovery {
    pub found: FoundJournal,
    /// Position of the last record before the loss, if an operator accepted a loss of records.
    /// Otherwise, `None`.
    pub kept: Option<Position>,
    /// Whether the next commit must contain the action by which the operator accepts damage.
    pub awaits_action: bool,
}

impl<L: Log> JournalWriter<L> {
    /// Returns the public half of the key that signs the journal's checkpoints, in hexadecimal.
    pub fn public_key(&self) -> &str {
        &self.signer.public_key
    }

    /// Returns the state of the journal when it was opened.
    pub fn found(&self) -> &FoundJournal {
        &self.recovery.found
    }

    pub fn heads(&self) -> &TreeHeads {
        &self.heads
    }

    /// Limits the number of pages of the journal's SQLite file; `None` removes the limit. At the
    /// limit, writes fail as if the disk were full.
    pub fn set_pages_max(&self, pages: Option<u32>) -> Result<(), Error> {
        self.file.set_pages_max(pages)
    }

    /// Closes the journal as [`Journal::close`] does.
    pub fn close(mut self, now: Time) -> Result<(), Error> {
        self.usable()?;
        if !L::HAS_PROJECTION {
            self.file.require_in_place(self.heads.last())?;
        }
        self.checkpoint(now, true)?;
        self.let_go()
    }

    /// Moves the write-ahead log into the journal's file, and releases the lease and the lock of
    /// the directory. Writes no last checkpoint.
    pub(super) fn let_go(self) -> Result<(), Error> {
        refuse_stopped(self.stopped.as_deref())?;
        let Self { id, mut heads, mut signer, proof, log, file, .. } = self;
        // Ordering rule: a reader holds back the write-ahead log, which is moved below.
        drop(proof);
        // Ordering rule: the lease goes first, so that another pump need not wait for the rest.
        drop(log);
        signer.copying.finish(id);
        file.fold(&mut heads)
    }

    /// Returns this writer with `log` in place of its present log.
    pub(super) fn over<M>(self, log: M) -> JournalWriter<M> {
        let Self { id, heads, rows, coverage, sealer, watermark, signer, recovery, .. } = self;
        JournalWriter {
            id,
            heads,
            rows,
            coverage,
            sealer,
            watermark,
            signer,
            recovery,
            owed: self.owed,
            put_off: self.put_off,
            unshown: self.unshown,
            stopped: self.stopped,
            proof: self.proof,
            log,
            file: self.file,
        }
    }

    /// Sets positions and hashes of the records, encodes the records, and makes their MAC. Also
    /// signs a checkpoint if one is due. Returns `None` if there are no records.
    fn stamp(&mut self, records: &mut [Record]) -> Result<Option<StampedGroup>, Error> {
        let Some(now) = records.last().map(|record| record.time) else { return Ok(None) };
        failpoint("before-append");
        self.signer.checked_at.get_or_insert(now);
        let is_due = self.signer.is_due(self.heads.last(), now);
        if is_due {
            self.verify_file(now)?;
        }

        self.recall_heads(records).map_err(|error| self.stop(error))?;
        let mut rows = std::mem::take(&mut self.rows);
        rows.stamp(&self.heads, records)?;
        let mac = self.sealer.seal(&mut self.heads, records, &rows);
        let checkpoint = is_due.then(|| self.signer.sign(&mut self.heads, now));
        Ok(Some(StampedGroup { rows, mac, checkpoint }))
    }

    /// Loads the heads of the trees to which `records` belong into memory.
    fn recall_heads(&mut self, records: &[Record]) -> Result<(), Error> {
        for record in records {
            let tree = &record.tree;
            self.heads.recall(tree)?;
            // Damage can hide a row of the working file. A tree that began again would break the
            // hash chains of the journal.
            if self.heads.may_have_lost(tree) && self.file.has_tree(tree)? {
                let name = format!("the head of the tree {tree}");
                let detail = "the working file has lost it".to_owned();
                return Err(Error::Resting { name, detail });
            }
        }
        Ok(())
    }

    /// Updates this writer after a group of records has become durable and readable.
    fn advance(&mut self, records: &[Record], stamped: StampedGroup) -> Result<(), Error> {
        failpoint("after-commit");
        let StampedGroup { rows, mac, checkpoint } = stamped;
        self.sealer.sealed(mac);
        for (record, row) in records.iter().zip(rows.iter()) {
            self.heads.advance(record, row.hash);
        }
        self.heads.let_leave();

        self.rows = rows;

        if std::mem::take(&mut self.recovery.awaits_action) {
            let settled = self.settle();
            settled.map_err(|error| self.stop(error))?;
        }

        let marked = self.watermark.set(self.heads.last(), self.heads.last_hash());
        marked.map_err(|error| self.stop(error))?;
        if let Some(checkpoint) = checkpoint {
            self.signer.keep(checkpoint);
        }

        // A checkpoint signs a decision at once, so that a later thief of the key cannot claim
        // another decision.
        let decided = records.iter().rev().find(|record| record.input.is_decision());
        if let Some(decided) = decided {
            self.checkpoint(decided.time, true)?;
        }

        if let Err(error) = self.file.move_log() {
            // The records are durable, but nothing after them would be.
            self.stop(error);
        }

        failpoint("after-append");
        Ok(())
    }

    /// If a checkpoint is due, signs and appends it, and returns true. If `is_last` is true, a
    /// checkpoint is also due whenever the previous one does not cover all records. If the log is
    /// full or unreachable, or denies a permission, returns false. The records stay durable then,
    /// and a later call appends the checkpoint.
    pub(super) fn checkpoint(&mut self, now: Time, is_last: bool) -> Result<bool, Error> {
        let mut appended = self.append_owed();
        if appended.is_ok() {
            let last = self.heads.last();
            let is_last = is_last && !mutant("sign-what-is-due");
            let is_due = self.signer.is_due(last, now) || (is_last && self.signer.checked < last);
            if !is_due {
                return Ok(false);
            }
            self.owed = Some(self.signer.sign(&mut self.heads, now));
            appended = self.append_owed();
        }

        match appended {
            Err(error) if error.is_passing() => {
                self.log_put_off(&error);
                Ok(false)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.put_off = None;
                Ok(true)
            }
        }
    }

    /// Logs why no checkpoint could be written, unless the previous attempt failed for the same
    /// reason. As a result, many failed attempts during one outage cause few log lines.
    fn log_put_off(&mut self, error: &Error) {
        let reason = error.to_string();
        if self.put_off.as_ref() != Some(&reason) {
            tracing::warn!("could not write a checkpoint; retrying later: {reason}");
            self.put_off = Some(reason);
        }
    }

    /// Appends the checkpoint that waits to be appended, if there is one: a new checkpoint, or a
    /// checkpoint whose append was not acknowledged. Must be called before anything else is
    /// appended.
    fn append_owed(&mut self) -> Result<(), Error> {
        if self.unshown.is_some() {
            let cause = "records that were written are not readable".to_owned();
            return Err(self.stop(Error::Stopped { cause }));
        }

        let Some(checkpoint) = self.owed.take() else { return Ok(()) };
        let group = LogGroup { checkpoints: vec![&checkpoint], ..LogGroup::default() };

        match self.append_now(&group) {
            Ok(()) => self.signer.keep(checkpoint),
            Err(error) => {
                // Without a projection, a failed append leaves nothing in the log, and a later
                // checkpoint replaces this one.
                self.owed = Some(checkpoint).filter(|_| L::HAS_PROJECTION);
                return Err(error);
            }
        }

        Ok(())
    }

    /// Appends a group to the log, and then to the log's projection. If the disk has no room for
    /// the projection, the caller must call this method again with the same group. The second call
    /// finds the group already in the log.
    fn append_now(&mut self, group: &LogGroup<'_>) -> Result<(), Error> {
        let mark = self.append_group(group)?;
        self.project(group, mark)?;
        self.confirm(mark, self.heads.last(), self.heads.last_hash());
        Ok(())
    }

    fn append_group(&mut self, group: &LogGroup<'_>) -> Result<LogMark, Error> {
        let appended = self.log.append(group, &mut self.file, &mut self.heads);
        appended.map_err(|error| self.stop_unless_passing(error))
    }

    fn project(&mut self, group: &LogGroup<'_>, mark: LogMark) -> Result<(), Error> {
        if !L::HAS_PROJECTION {
            return Ok(());
        }
        let written = self.file.write(group, Some(mark), None, &mut self.heads);
        written.map_err(|error| self.stop_unless_passing(error))
    }

    /// Confirms to the log that the group at `mark` is appended. The journal now ends at the
    /// position `last`, with a record whose hash is `hash`.
    pub(super) fn confirm(&mut self, mark: LogMark, last: Position, hash: Digest) {
        self.log.confirm(mark, self.id, last, hash);
    }

    fn usable(&mut self) -> Result<(), Error> {
        refuse_stopped(self.stopped.as_deref())?;
        if let Some(proof) = &self.signer.proof {
            if let Some(error) = proof.take_failure() {
                return Err(self.stop(error));
            }
            if proof.take_wrong_trees() {
                self.file.rewrite_trees();
            }
        }

        let checked = self.log.check();
        checked.map_err(|error| self.stop(error))
    }

    /// Stops the journal if its file was moved, removed or replaced while it is open. Does not
    /// check the file of a projection, because the stream still has every record.
    fn verify_file(&mut self, now: Time) -> Result<(), Error> {
        if L::HAS_PROJECTION {
            return Ok(());
        }
        let verified = self.file.verify_in_place(self.heads.last(), now);
        verified.map_err(|error| self.stop(error))
    }

    fn stop_unless_passing(&mut self, error: Error) -> Error {
        if error.is_passing() { error } else { self.stop(error) }
    }

    fn stop(&mut self, error: Error) -> Error {
        self.stopped = Some(error.to_string());
        error
    }
}

fn refuse_stopped(cause: Option<&str>) -> Result<(), Error> {
    match cause {
        Some(cause) => Err(Error::Stopped { cause: cause.to_owned() }),
        None => Ok(()),
    }
}

impl<L: Log> Journal for JournalWriter<L> {
    fn id(&self) -> Uuid {
        self.id
    }

    fn epoch(&self) -> u32 {
        self.file.epoch
    }

    fn next(&self) -> Position {
        Position(self.heads.last().0 + 1)
    }

    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        self.usable()?;
        if self.unshown.is_none() {
            self.append_owed()?;
            let Some(stamped) = self.stamp(records)? else { return Ok(Vec::new()) };
            let mark = self.append_group(&LogGroup::of_records(records, &stamped))?;
            if !L::HAS_PROJECTION {
                let hashes = stamped.rows.iter().map(|row| row.hash).collect();
                self.advance(records, stamped)?;
                return Ok(hashes);
            }
            if let (Some(record), Some(row)) = (records.last(), stamped.rows.iter().last()) {
                self.confirm(mark, record.position, row.hash);
            }
            self.unshown = Some((stamped, mark));
        }

        let rows = self.unshown.iter().flat_map(|(stamped, _)| stamped.rows.iter());
        Ok(rows.map(|row| row.hash).collect())
    }

    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        let Some((stamped, mark)) = self.unshown.take() else { return Ok(()) };
        match self.project(&LogGroup::of_records(records, &stamped), mark) {
            Ok(()) => self.advance(records, stamped),
            Err(error) => {
                self.unshown = Some((stamped, mark));
                Err(error)
            }
        }
    }

    fn verify_lead(&mut self) -> Result<(), Error> {
        self.usable()?;
        let verified = self.log.verify_lead();
        verified.map_err(|error| self.stop_unless_passing(error))
    }

    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error> {
        self.usable()?;
        self.verify_file(now)?;
        let is_due = self.owed.is_some() || self.signer.is_due(self.heads.last(), now);
        Ok(is_due && self.checkpoint(now, false)?)
    }

    fn checked_at(&self) -> Option<Time> {
        self.signer.checked_at
    }

    fn last_checkpoint(&self) -> Position {
        self.signer.checked
    }

    fn proof(&self) -> Option<Arc<ProofProgress>> {
        self.signer.proof.clone()
    }

    fn copy_metrics(&self) -> Option<CopyMetrics> {
        self.signer.copying.counts()
    }

    fn rest(&self) -> Duration {
        L::REST
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error> {
        self.usable()?;
        self.append_owed()?;
        let digest = Digest::of(bytes);
        if !self.file.has_blob(digest)? {
            let blobs = vec![(digest, bytes)];
            self.append_now(&LogGroup { blobs, ..LogGroup::default() })?;
        }

        Ok(digest)
    }

    fn close(self: Box<Self>, now: Time) -> Result<(), Error> {
        Self::close(*self, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;
    use crate::journal::sqlite::SqliteJournal;
    use crate::limits;
    use crate::thread::Input;

    fn record(tree: &ThreadId) -> Record {
        Record {
            position: Position(0),
            tree: tree.clone(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time::now(),
            input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
            facts: Vec::new(),
        }
    }

    #[test]
    fn a_tree_whose_head_the_working_file_has_lost_does_not_begin_again() {
        let directory = tempfile::tempdir().unwrap();
        let (data, state) = (directory.path().join("data"), directory.path().join("state"));
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        let trees = ["sess-treeone1", "sess-treetwo2"].map(|id| ThreadId::parse(id).unwrap());
        trees.iter().for_each(|tree| {
            journal.append(&mut [record(tree)]).unwrap();
        });
        journal.file.rewrite_trees();
        journal.append(&mut [record(&trees[1])]).unwrap();

        journal.heads.lose(&trees[0]);
        journal.append(&mut [record(&trees[1])]).unwrap();
        let error = journal.append(&mut [record(&trees[0])]).unwrap_err();
        assert!(error.to_string().contains("sess-treeone1"), "{error}");
        assert!(journal.append(&mut [record(&trees[1])]).is_err(), "the journal has stopped");
        drop(journal);

        let mut records = 0;
        let mut count = |_| {
            records += 1;
            Ok(())
        };
        SqliteJournal::open(&data, &state, &mut count).unwrap();
        assert_eq!(records, 4);
    }

    #[test]
    fn a_journal_stops_once_its_file_is_no_longer_at_its_path() {
        let tree = ThreadId::parse("sess-treeone1").unwrap();
        for is_replaced in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (data, state) = (directory.path().join("data"), directory.path().join("state"));
            let file = data.join("journal.db");
            let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
            journal.append(&mut [record(&tree)]).unwrap();
            journal.checkpoint_if_due(Time::now()).unwrap();

            std::fs::rename(&file, data.join("moved")).unwrap();
            if is_replaced {
                std::fs::copy(data.join("moved"), &file).unwrap();
            }
            let found = Time::now();
            journal.checkpoint_if_due(found).unwrap();
            let later = found.plus(limits::JOURNAL_DISPLACED_AFTER);
            let error = journal.checkpoint_if_due(later).unwrap_err();
            assert!(matches!(error, Error::Broken { .. }), "{error}");
            for text in ["moved, removed or replaced", "move `journal.db-wal` and `journal.db-shm`"]
            {
                assert!(error.to_string().contains(text), "{error}");
            }
            assert!(journal.append(&mut [record(&tree)]).is_err(), "nothing more is accepted");
        }
    }

    #[test]
    fn a_pump_whose_file_was_removed_does_not_close_as_if_all_were_well() {
        let directory = tempfile::tempdir().unwrap();
        let (data, state) = (directory.path().join("data"), directory.path().join("state"));
        let tree = ThreadId::parse("sess-treeone1").unwrap();
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        journal.append(&mut [record(&tree)]).unwrap();
        std::fs::remove_file(data.join("journal.db")).unwrap();
        assert!(journal.close(Time::now()).is_err());
    }
}
