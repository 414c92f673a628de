//! Opens a journal for writing. Nothing is written before every record in the file is verified.
//! Exception: a pump that starts from a snapshot first verifies only the records after the
//! snapshot. A background thread then verifies the earlier records.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::journal::checkpoint::{CheckpointFile, CheckpointKey};
use crate::journal::checkpoint_signer::CheckpointSigner;
use crate::journal::commit_watermark::CommitWatermark;
use crate::journal::copy_directory::{CopyDirectory, UncopiedCheckpoints};
use crate::journal::external_marks::{ExternalMarks, agree, refuse_lost_file, unreadable};
use crate::journal::judge::{OpenPurpose, OperatorAcceptance, ProvedFile, is_lost};
use crate::journal::log::LogMark;
use crate::journal::mac::{HeadSealer, MacCoverage};
use crate::journal::record_codec::RecordBatch;
use crate::journal::redactions::RedactedRecords;
use crate::journal::writer::{JournalRecovery, JournalWriter};
use crate::journal::{
    Checkpoint, Error, EveryRecord, FORMAT, HashedRecord, KeyId, StateRecovery, TreeHeads,
    may_have_journal,
};

use super::connect::connect_writer;
use super::creation::create;
use super::directory::{self, DATABASE, make};
use super::directory_lock::DirectoryLock;
use super::found::{FoundJournal, JournalPlace, without_metadata};
use super::repair::{
    TableRepair, drop_checkpoints_after, keep_uncovered_aside, set_file_aside, set_logs_aside,
};
use super::snapshot::{self, SnapshotEvidence};
use super::snapshot_start::SnapshotStart;
use super::wal_checkpointer::WalCheckpointer;
use super::{
    FileIdentity, JournalFile, JournalMetadata, JournalReader, STREAM, SqliteJournal, SqliteLog,
    scan, write,
};

/// A locked directory of a journal, from which nothing was read yet.
pub struct LockedJournalDir {
    pub(super) data: PathBuf,
    pub(super) state: PathBuf,
    /// Directory for copies of checkpoints; `None` if the config names none.
    pub(super) copies: Option<PathBuf>,
    lock: DirectoryLock,
    pub(super) key: CheckpointKey,
    /// The snapshot from which the pump starts; `None` if every record must be verified at the
    /// start.
    pub(super) base: Option<SnapshotStart>,
}

/// Locks `data`, a directory with the journals of several partitions, and `state`, their state
/// directory. Creates the common signing key of these journals if the key is missing. The state
/// directory needs its own lock, because the names of its files depend only on the journal: another
/// process that follows the same journals would overwrite these files.
pub fn hold(data: &Path, state: &Path) -> Result<[DirectoryLock; 2], Error> {
    make(data)?;
    make(state)?;
    let data_lock = DirectoryLock::take(data)?;
    let state_lock = DirectoryLock::take_state(state)?;
    CheckpointKey::open(state)?;
    Ok([data_lock, state_lock])
}

impl LockedJournalDir {
    /// Locks `data`, and creates the state directory and this host's key if they are missing.
    pub fn begin(data: &Path, state: &Path) -> Result<Self, Error> {
        make(state)?;
        let mut opening = Self::lock(data, state)?;
        opening.key = CheckpointKey::open(state)?;
        Ok(opening)
    }

    /// Locks `data`, and leaves the state directory as it is: a host without a key gets its key only
    /// once the journal is accepted.
    pub fn lock(data: &Path, state: &Path) -> Result<Self, Error> {
        make(data)?;
        let lock = DirectoryLock::take(data)?;
        let key = CheckpointKey::read_or_generate(state)?;
        Ok(Self {
            data: data.to_owned(),
            state: state.to_owned(),
            copies: None,
            lock,
            key,
            base: None,
        })
    }

    /// Sets the directory for copies of checkpoints. The journal is compared with the copies in
    /// this directory, and new checkpoints are copied into it.
    pub fn with_copies(self, directory: Option<&Path>) -> Self {
        Self { copies: directory.map(Path::to_owned), ..self }
    }

    pub fn exists(&self) -> bool {
        may_have_journal(&self.data)
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the id of this host's key. Every MAC that this host makes contains the id.
    pub fn key_id(&self) -> KeyId {
        self.key.mac().id()
    }

    /// Creates the file of a journal. If the file is a projection, `mark` is the projection's
    /// position in its stream.
    pub fn create(&self, journal: Uuid, mark: Option<LogMark>) -> Result<(), Error> {
        let key = self.key.public();
        create(&self.data, &JournalMetadata { format: FORMAT, journal, epoch: 0, key }, mark)
    }

    /// Returns the id of the journal in the file and, if the file is a projection, the projection's
    /// position in its stream. The second value is `None` if the file is no projection.
    pub fn found(&self) -> Result<(Uuid, Option<String>), Error> {
        let reader = JournalReader::open(&self.data)?;
        Ok((reader.about()?.journal, reader.meta(STREAM)?))
    }

    /// Verifies the hash chain of `journal` up to `last`. Returns the first of the unproved records
    /// at the end of the journal; no MAC proves that a pump wrote these records. Returns `None` if
    /// there are no such records.
    ///
    /// If no record has a MAC, all records are unproved. But if this host also has no watermark of
    /// the journal, returns `None`, because the journal may have been written before MACs existed.
    pub fn uncovered_end(&self, journal: Uuid, last: Position) -> Result<Option<Position>, Error> {
        let mut coverage = MacCoverage::new(journal, Some(self.key.mac()));
        let reader = JournalReader::open(&self.data)?;
        scan(&reader, last, &mut TreeHeads::default(), &mut |sealed, heads| {
            coverage.take(sealed.hash, sealed.mac, heads);
            Ok(())
        })?;

        let is_old = CommitWatermark::read(&self.state, journal)?.is_none();
        Ok(coverage.uncovered_end(last, is_old))
    }

    /// Reads and verifies every record of the journal's file, and opens the file for writing.
    ///
    /// A connection takes the write lock before the first record is read, and keeps it until all
    /// records are verified. Without this lock, a commit that a killed pump left in the write-ahead
    /// log could become visible after the verification.
    pub(super) fn prove(
        self,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<VerifiedJournal, Error> {
        self.prove_from(None, purpose, accept, visit)
    }

    /// Reads and verifies as [`LockedJournalDir::prove`] does. If `base` is given, reads only the
    /// records after its snapshot.
    pub(super) fn prove_from(
        mut self,
        base: Option<SnapshotEvidence>,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<VerifiedJournal, Error> {
        let reader = JournalReader::open(&self.data)?;
        reader.check_write_version()?;
        reader.check_tables()?;
        reader.check_first_position()?;
        let file = self.data.join(DATABASE);
        let db =
            connect_writer(&self.data).map_err(write::failed_on(&file, "opening the journal"))?;
        // SQLite opens a file that this user may not write, and fails only when it writes.
        let failed = || write::failed_on(&file, "writing to the journal");
        let opened = FileIdentity::of(&file).map_err(Error::io(file.display().to_string()))?;
        write::begin(&db)?;
        // If the operator accepts another key, records without a MAC of this host stay.
        let taken_out = if accept.loss && !accept.key {
            keep_uncovered_aside(&self.data, &self.state, &self.key)?
        } else {
            None
        };

        let end = taken_out.as_ref().map(|out| Position(out.first.0 - 1));
        let mut proved = self.prove_file(&reader, purpose, accept, end, base, visit)?;
        if end.is_none() {
            prove_rest(&mut proved, &db, visit)?;
        }

        if purpose != OpenPurpose::Follow {
            let accept = OperatorAcceptance { key: false, ..accept };
            proved.known.with_key = proved.is_under_another_key(&self.key, accept);
        }

        let (loss, mend) = proved.judge_known(purpose, accept, &self.state)?;
        let before = proved.about.key.clone();

        match purpose {
            OpenPurpose::Follow => {
                drop_checkpoints_after(&db, proved.heads.last()).map_err(failed())?;
            }
            OpenPurpose::Write | OpenPurpose::Move => {
                let is_lost = is_lost(&loss, &mend);
                proved.judge_end(&self.data, &self.key, accept, is_lost)?;
                proved.redactions.judge(accept)?;
            }
        }

        self.key.store(&self.state)?;
        if purpose == OpenPurpose::Write {
            // If the operator accepts another key, the file names that key until the action is
            // recorded: a crash before that leaves the journal as it was.
            let key = if accept.key { before.clone() } else { self.key.public() };
            proved.about = JournalMetadata { epoch: proved.about.epoch + 1, key, ..proved.about };
            write::about(&db, &proved.about).map_err(failed())?;
        }

        if !write::has_mac(&db).map_err(failed())? {
            db.execute_batch(super::MAC_COLUMN).map_err(failed())?;
        }

        // A move into a stream appends no record, and leaves the journal as it is if it fails.
        if purpose != OpenPurpose::Move {
            write::raise_format(&db, &mut proved.about).map_err(failed())?;
        }
        write::commit(&db)?;
        let found = FoundJournal {
            key: before,
            without_mac: proved.coverage.first().is_none(),
            covered: proved.coverage.covered(),
            last: proved.heads.last(),
            loss,
            taken_out,
            put_back: mend.put_back.len(),
            set_aside: None,
        };

        let awaits_action = accept != OperatorAcceptance::default();
        self.journal(db, opened, proved, found, mend, awaits_action)
    }

    /// Assembles the writer of a verified journal.
    fn journal(
        self,
        db: Connection,
        opened: FileIdentity,
        proved: ProvedFile,
        found: FoundJournal,
        mend: TableRepair,
        awaits_action: bool,
    ) -> Result<VerifiedJournal, Error> {
        let ProvedFile {
            about,
            redactions,
            known,
            heads,
            coverage,
            unwritten,
            checked,
            refreshed,
            kept,
            ..
        } = proved;
        let sealer = sealer(&self.key, about.journal, &coverage, &heads);
        let signer = CheckpointSigner {
            journal: about.journal,
            public_key: self.key.public(),
            key: self.key,
            outside: CheckpointFile::new(&self.state, about.journal),
            unwritten,
            copying: CopyDirectory::new(self.copies, proved.uncopied, proved.given_up),
            checked,
            checked_at: None,
            proof: None,
            signed: None,
        };

        let watermark = CommitWatermark::open(&self.state, about.journal)?;
        let file = JournalFile {
            db,
            opened,
            displaced_since: None,
            epoch: about.epoch,
            mend,
            refreshed,
            must_refresh: false,
            wal_bytes: 0,
            mover: WalCheckpointer::new(&self.data),
            data: self.data,
            state: self.state,
            _lock: self.lock,
        };

        let journal = JournalWriter {
            id: about.journal,
            heads,
            rows: RecordBatch::default(),
            coverage,
            sealer,
            watermark,
            signer,
            recovery: JournalRecovery { found, kept, awaits_action },
            owed: None,
            put_off: None,
            unshown: None,
            stopped: None,
            proof: None,
            log: SqliteLog,
            file,
        };

        Ok(VerifiedJournal { journal, known, about, redactions })
    }
}

/// A journal whose file was verified, with the values that the verification has read: the marks
/// outside the file, the metadata, and the redacted records.
pub(super) struct VerifiedJournal {
    pub journal: SqliteJournal,
    pub known: ExternalMarks,
    pub about: JournalMetadata,
    pub redactions: RedactedRecords,
}

impl SqliteJournal {
    /// Opens the journal in directory `data`, or creates one, and passes every record to `visit`,
    /// in order. `state` is the directory with the signing key, the watermark of acknowledged
    /// records, and the checkpoints.
    ///
    /// Drops a commit that a crash interrupted before its acknowledgement. Returns
    /// [`Error::Broken`] if an acknowledged record is missing or different.
    pub fn open(
        data: &Path,
        state: &Path,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_with_copies(data, state, None, OperatorAcceptance::default(), visit)
    }

    /// Opens the journal as [`SqliteJournal::open`] does, and compares it with the copies of
    /// checkpoints in the directory `copies`. Also copies new checkpoints into this directory.
    ///
    /// `accept` states the kinds of damage that an operator accepts. [`SqliteJournal::open`]
    /// refuses every journal with such damage. The acceptance takes effect with the commit of the
    /// first records, which include the operator's action. A crash before that commit changes
    /// nothing.
    pub fn open_with_copies(
        data: &Path,
        state: &Path,
        copies: Option<&Path>,
        accept: OperatorAcceptance,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::open_recovering(data, state, copies, accept, &mut EveryRecord(visit))
    }

    /// Opens the journal as [`SqliteJournal::open_with_copies`] does. If `recovery` can restore the
    /// snapshot, continues from the snapshot. The earlier records are then verified in the
    /// background while the pump runs. If the operator accepts damage, deletes the snapshot and
    /// reads every record.
    pub fn open_recovering(
        data: &Path,
        state: &Path,
        copies: Option<&Path>,
        accept: OperatorAcceptance,
        recovery: &mut dyn StateRecovery,
    ) -> Result<Self, Error> {
        let mut opening = LockedJournalDir::lock(data, state)?.with_copies(copies);
        let (journal, set_aside) = match opening.make_room(accept)? {
            JournalPlace::Free { set_aside } => {
                if !accept.loss {
                    refuse_lost_file(data, state)?;
                }
                let journal = Uuid::now_v7();
                make(state)?;
                opening.key = CheckpointKey::open(state)?;
                opening.create(journal, None)?;
                (journal, set_aside)
            }
            JournalPlace::Taken { journal, mark: None } => (journal, None),
            JournalPlace::Taken { mark: Some(_), .. } => {
                let detail = "follows a journal on JetStream, which goes on there alone: start it \
                              with `store = \"jetstream\"`, or name another directory";
                return Err(Error::ForeignJournal {
                    path: data.display().to_string(),
                    detail: detail.into(),
                });
            }
        };

        if accept == OperatorAcceptance::default() {
            opening.restore_snapshot(journal, recovery)?;
        } else {
            // The snapshot may contain what the operator accepts as lost or redacted.
            snapshot::remove(state, journal);
        }

        let (verified, claim) =
            opening.prove_recovering(journal, OpenPurpose::Write, accept, recovery)?;
        let VerifiedJournal { mut journal, known, redactions, .. } = verified;
        journal.recovery.found.set_aside = set_aside;
        failpoint("epoch-raised");
        if !journal.recovery.awaits_action {
            journal.settle()?;
        }

        if let Some(claim) = claim {
            journal.start_proof(claim, OpenPurpose::Write, &known, &redactions)?;
        }

        Ok(journal)
    }

    /// Removes from this journal's file of copied checkpoints those checkpoints that cover lost
    /// records. First saves the file under another name. An operator must have accepted the loss of
    /// these records.
    pub fn put_aside_lost_copies(&mut self) {
        self.signer.copying.put_aside_given_up(self.id);
    }

    /// Decides how the next MAC is made. If a MAC of this host's key covers all records, the next
    /// MAC continues the chain of that MAC. Otherwise, the next MAC begins a new chain.
    pub(super) fn renew_sealer(&mut self) {
        self.sealer = sealer(&self.signer.key, self.id, &self.coverage, &self.heads);
    }

    /// Begins a new epoch of the journal. From then on, commits of pumps with an earlier epoch
    /// fail.
    pub(super) fn raise_epoch(
        &mut self,
        before: &JournalMetadata,
        epoch: u32,
    ) -> Result<(), Error> {
        let key = self.signer.key.public();
        let after = JournalMetadata { format: FORMAT, epoch, key, ..before.clone() };
        write::transaction(&self.file.db, before.epoch, |db| {
            write::about(db, &after).map_err(write::failed)
        })?;
        self.file.epoch = epoch;
        Ok(())
    }
}

impl<L> JournalWriter<L> {
    /// Updates the watermark, the checkpoints in the state directory, their copies and the `tree`
    /// table. A crash may have left each of these older than the records.
    pub(in crate::journal) fn settle(&mut self) -> Result<(), Error> {
        let file = &mut self.file;
        let kept = self.recovery.kept.take().unwrap_or(self.heads.last());
        self.signer.outside.keep_up_to(kept).map_err(Error::io("checkpoints outside"))?;
        // An empty journal gets a watermark too, so that the watermark already has its space if the
        // disk is full later. A journal from before MACs keeps its old watermark until a commit
        // carries a MAC.
        if self.heads.last() == Position(0) || self.coverage.last().is_some() {
            self.watermark.set(self.heads.last(), self.heads.last_hash())?;
            CommitWatermark::remove_beside(&file.data)?;
        }

        directory::note_journal(&file.data, &file.state, self.id)?;
        self.signer.write_outside();
        self.signer.copying.put_aside_given_up(self.id);
        self.signer.copying.copy(self.id, []);
        if file.refreshed < self.heads.last() {
            return file.refresh_trees(&mut self.heads);
        }

        self.heads.saved();
        Ok(())
    }
}

impl LockedJournalDir {
    /// Makes the journal's path free, if an operator accepts the loss of the journal. If the file
    /// at this path is no journal, renames the file. If the file is missing and only its
    /// write-ahead log is left, renames the log. Returns what the path has afterwards.
    fn make_room(&self, accept: OperatorAcceptance) -> Result<JournalPlace, Error> {
        if !self.exists() {
            let set_aside = if accept.loss { set_logs_aside(&self.data)? } else { None };
            return Ok(JournalPlace::Free { set_aside });
        }

        let found = self.found();
        match found.map_err(|error| unreadable(&self.data, &self.state, error)) {
            Ok((journal, mark)) => Ok(JournalPlace::Taken { journal, mark }),
            Err(Error::Broken { .. }) if accept.loss && self.is_no_journal() => {
                let set_aside = Some(set_file_aside(&self.data)?);
                Ok(JournalPlace::Free { set_aside })
            }
            Err(Error::Broken { position: 0, detail }) => {
                Err(without_metadata(&detail, self.has_legible_end()))
            }
            Err(error) => Err(error),
        }
    }

    fn is_no_journal(&self) -> bool {
        matches!(JournalReader::open(&self.data), Err(Error::Unreadable { .. }))
    }

    /// Whether the position of the last record can be read. If so, records may be whole although
    /// the metadata is damaged.
    fn has_legible_end(&self) -> bool {
        JournalReader::open(&self.data).and_then(|reader| reader.last()).is_ok()
    }

    /// Reads the records up to `end`, and compares them with the watermark and the checkpoints
    /// outside the file. Changes nothing, so that a damaged journal can be examined.
    fn prove_file(
        &self,
        reader: &JournalReader,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        end: Option<Position>,
        base: Option<SnapshotEvidence>,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<ProvedFile, Error> {
        let about = reader.about()?;
        let last = end.map_or_else(|| reader.last(), Ok)?;
        let copies = self.copies.as_deref();
        let mut known = ExternalMarks::read(&self.data, &self.state, copies, about.journal)?;
        if purpose == OpenPurpose::Follow {
            // The stream, not the directory, determines which journal the projection follows.
            known.before = None;
        }

        let mut uncopied = UncopiedCheckpoints::default();
        let mut heads = TreeHeads::in_directory(&self.state);
        let mut coverage = MacCoverage::new(about.journal, Some(self.key.mac()));
        let mut redactions = RedactedRecords::default();
        let snapshot = base.as_ref().map(|base| base.checkpoint.position);
        let mut due = reader.checkpoints_after(snapshot.unwrap_or_default())?;
        due.reverse();
        if let Some(base) = base {
            known.continue_after(&base.checkpoint, base.heads.last_hash(), base.losses)?;
            known.signers = base.signers;
            heads = base.heads;
            coverage = base.coverage;
            redactions = base.redactions;
        }

        let scanned = scan(reader, last, &mut heads, &mut |sealed, heads| {
            coverage.take(sealed.hash, sealed.mac, heads);
            redactions.take(&sealed);
            known.take(&sealed, heads);
            if let Some(line) = due.pop_if(|line| line.position == sealed.record.position) {
                uncopied.take(&line, &known.copies, heads);
                known.take_inner(&line, heads);
                // A checkpoint of another host proves the records that its pump wrote.
                if purpose == OpenPurpose::Follow {
                    agree(&line, heads)?;
                    known.signers.take_checkpoint(&line);
                }
            }
            visit(sealed)
        });

        if scanned.is_err() && purpose != OpenPurpose::Follow && !accept.loss {
            // A contradiction to a mark explains the damage better than a break in the hash chain.
            known.check_end(last)?;
            known.disagreement()?;
        }

        scanned?;

        let mut unwritten = compared_checkpoints(reader, &known, snapshot)?;
        unwritten.retain(|checkpoint| end.is_none_or(|end| checkpoint.position <= end));

        let refreshed =
            if accept.loss { Position(0) } else { reader.right_up_to(&mut heads, snapshot)? };

        let checked = Position(0);
        let kept = None;

        Ok(ProvedFile {
            uncopied: uncopied.lines,
            given_up: Vec::new(),
            about,
            redactions,
            known,
            heads,
            coverage,
            unwritten,
            checked,
            refreshed,
            kept,
        })
    }
}

/// Returns the checkpoints in the journal that a start compares with `known`, or may have to write
/// outside the journal. `snapshot` is the position of the snapshot, if the start has one.
fn compared_checkpoints(
    reader: &JournalReader,
    known: &ExternalMarks,
    snapshot: Option<Position>,
) -> Result<Vec<Checkpoint>, Error> {
    // The last checkpoints outside the journal may be older than the snapshot. After an accepted
    // loss, any of them may be the last one that counts.
    let snapshot = snapshot.filter(|_| known.losses().is_empty());
    let first = snapshot.map(|at| at.min(known.first_compared())).unwrap_or_default();
    reader.checkpoints_after(Position(first.0.saturating_sub(1)))
}

/// Verifies the records that follow the last verified record. Reads through `db`, the connection
/// with the write lock. So the verification also covers commits that a killed pump wrote to the
/// write-ahead log but not to the index of this log.
fn prove_rest(
    proved: &mut ProvedFile,
    db: &Connection,
    visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
) -> Result<(), Error> {
    let ProvedFile { known, heads, coverage, redactions, .. } = proved;
    scan::rest(db, heads, &mut |sealed, heads| {
        coverage.take(sealed.hash, sealed.mac, heads);
        redactions.take(&sealed);
        known.take(&sealed, heads);
        visit(sealed)
    })
}

/// Returns the sealer, which makes the MACs of further commits. If a MAC of this host's key covers
/// the last record, the next MAC continues the chain of that MAC. Otherwise, the next MAC begins a
/// new chain.
fn sealer(
    key: &CheckpointKey,
    journal: Uuid,
    coverage: &MacCoverage,
    heads: &TreeHeads,
) -> HeadSealer {
    let is_covered = coverage.covered() == heads.last();
    let last = coverage.last().filter(|_| is_covered).map(|(_, mac)| mac);
    HeadSealer::new(key.mac(), journal, last)
}
