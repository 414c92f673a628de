//! A projection: a journal file that follows a stream. Readers see no difference from an embedded
//! journal.
//!
//! This module must not know the stream or how it is read, only the content of its messages.

use std::collections::BTreeSet;

use crate::ids::{Digest, Position};
use crate::journal::checkpoint_copies::ReadPatience;
use crate::journal::earlier_copies::ComparedRecords;
use crate::journal::external_marks::{ExternalMarks, agree};
use crate::journal::judge::{OpenPurpose, OperatorAcceptance};
use crate::journal::log::{LogGroup, LogMark, StreamItem};
use crate::journal::record_codec::StoredRow;
use crate::journal::signers::CheckpointSigners;
use crate::journal::{
    Checkpoint, Error, HashedRecord, KeyId, MacCoverage, RedactedRecords, StateRecovery, TreeHeads,
};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::text::InternedNames;

use super::open::VerifiedJournal;
use super::{JournalMetadata, JournalReader, SqliteJournal, snapshot};

pub use super::open::LockedJournalDir;

/// A projection that has not caught up with its stream yet.
pub struct CatchingUp {
    journal: SqliteJournal,
    known: ExternalMarks,
    redactions: RedactedRecords,
    about: JournalMetadata,
    names: InternedNames,
}

impl LockedJournalDir {
    /// Verifies the records in the projection's file, and prepares to catch up with the stream. If
    /// `recovery` can restore the snapshot of the projection, verifies only the records after the
    /// snapshot now, and the earlier records in the background. If the operator accepts any
    /// `damage`, deletes the snapshot and verifies every record now.
    pub fn follow(
        mut self,
        damage: OperatorAcceptance,
        recovery: &mut dyn StateRecovery,
    ) -> Result<CatchingUp, Error> {
        let followed = self.found()?.0;
        if damage == OperatorAcceptance::default() {
            self.restore_snapshot(followed, recovery)?;
        } else {
            // The snapshot may contain what the operator accepts as damaged.
            snapshot::remove(&self.state, followed);
        }

        let accept = OperatorAcceptance::default();
        let (verified, claim) =
            self.prove_recovering(followed, OpenPurpose::Follow, accept, recovery)?;
        let VerifiedJournal { mut journal, known, about, redactions } = verified;
        if let Some(claim) = claim {
            journal.start_proof(claim, OpenPurpose::Follow, &known, &redactions)?;
        }

        // The journal of record is the stream: anything that a power cut removes here is read from
        // there again.
        let relaxed = journal.file.db.execute_batch("PRAGMA synchronous = NORMAL");
        relaxed.map_err(Error::sqlite("opening the journal"))?;
        Ok(CatchingUp { journal, known, redactions, about, names: InternedNames::default() })
    }
}

/// Prepares an embedded journal before the journal is moved into a stream.
impl LockedJournalDir {
    /// Verifies the journal and signs a checkpoint. The journal remains an embedded journal, and
    /// its epoch does not change.
    pub fn prove_to_move(
        self,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<SqliteJournal, Error> {
        let VerifiedJournal { mut journal, .. } =
            self.prove(OpenPurpose::Move, OperatorAcceptance::default(), visit)?;
        journal.settle()?;
        journal.checkpoint(crate::clock::Time::now(), true)?;
        Ok(journal)
    }
}

impl SqliteJournal {
    /// Makes the journal a projection of its stream. The stream must have all records of the
    /// journal, in messages up to `mark`.
    pub(in crate::journal) fn follow_from(&mut self, mark: LogMark) -> Result<(), Error> {
        self.file.write(&LogGroup::default(), Some(mark), None, &mut self.heads)
    }

    /// Returns the Merkle root over the heads of all trees.
    pub(in crate::journal) fn root(&mut self) -> Digest {
        self.heads.merkle_root()
    }
}

/// Evidence about the authors of a stream's records, up to the last record of the stream.
pub struct StreamEvidence<'f> {
    pub coverage: &'f MacCoverage,
    pub last: Position,
    /// This host's own public key.
    own: &'f str,
    signers: &'f CheckpointSigners,
}

impl StreamEvidence<'_> {
    /// Returns the last record that a checkpoint of a known key covers. Known keys are the key of
    /// this host, the `configured` keys, and keys that operators trust by recorded actions. Such an
    /// action counts only if the checkpoint at its position is signed with a key that was known
    /// before the action.
    pub fn signed_by(&self, configured: &[String]) -> Position {
        self.signers.signed_by(&self.known(configured))
    }

    /// Returns the unknown keys: public keys that signed checkpoints, and ids of keys that made
    /// MACs. [`StreamEvidence::signed_by`] explains which keys are known.
    pub fn unknown_to(&self, configured: &[String]) -> BTreeSet<String> {
        let known = self.known(configured);
        let signers: BTreeSet<&str> = self.signers.iter().map(|(key, _)| key).collect();
        let ids: BTreeSet<KeyId> = known.union(&signers).copied().map(KeyId::of).collect();
        let of_macs = self.coverage.foreign().iter().filter(|id| !ids.contains(id));
        let unknown = signers.difference(&known).map(|key| (*key).to_owned());
        unknown.chain(of_macs.map(KeyId::to_string)).collect()
    }

    fn known<'a>(&'a self, configured: &'a [String]) -> BTreeSet<&'a str> {
        let configured = configured.iter().map(String::as_str).chain([self.own]);
        if mutant("know-every-key") {
            return self.signers.known(configured.chain(self.signers.iter().map(|(key, _)| key)));
        }
        self.signers.known(configured)
    }
}

/// Evidence that pumps wrote the records of a stream. The evidence covers the part of the stream
/// that was read so far.
pub struct RecordProof<'f> {
    pub coverage: &'f MacCoverage,
    pub redactions: &'f RedactedRecords,
    pub last: Position,
    /// Whether this host has acknowledged no record of the journal, so that the journal may have
    /// been written before MACs existed.
    pub is_old: bool,
}

/// Records of a stream that are read beyond the end of a projection. Their MACs are checked before
/// any of them is written to the projection.
pub struct RecordsAhead {
    /// Epoch of the pump that wrote the last record read.
    pub epoch: u32,
    heads: TreeHeads,
    coverage: MacCoverage,
    redactions: RedactedRecords,
    is_old: bool,
    names: InternedNames,
}

impl RecordsAhead {
    /// Reads the next record of the stream, and verifies that it follows from the records before
    /// it.
    pub fn take(&mut self, row: &StoredRow<'_>) -> Result<(), Error> {
        let heads = &mut self.heads;
        let sealed = row.unseal(Position(heads.last().0 + 1), &mut self.names)?;
        heads.follow(&sealed)?;
        self.coverage.take(sealed.hash, sealed.mac, heads);
        self.redactions.take(&sealed);
        Ok(())
    }

    pub fn proof(&self) -> RecordProof<'_> {
        let Self { coverage, redactions, heads, is_old, .. } = self;
        RecordProof { coverage, redactions, last: heads.last(), is_old: *is_old }
    }
}

impl CatchingUp {
    pub fn proof(&self) -> RecordProof<'_> {
        let SqliteJournal { coverage, heads, .. } = &self.journal;
        let Self { redactions, known, .. } = self;
        RecordProof { coverage, redactions, last: heads.last(), is_old: known.is_old }
    }

    /// Begins to read the stream beyond the end of the projection. The projection stays unchanged.
    pub fn read_ahead(&self) -> Result<RecordsAhead, Error> {
        let SqliteJournal { coverage, heads, .. } = &self.journal;
        Ok(RecordsAhead {
            epoch: self.about.epoch,
            heads: heads.duplicate()?,
            coverage: coverage.clone(),
            redactions: self.redactions.clone(),
            is_old: self.known.is_old,
            names: InternedNames::default(),
        })
    }

    pub fn evidence(&self) -> StreamEvidence<'_> {
        let SqliteJournal { coverage, heads, signer, .. } = &self.journal;
        let signers = &self.known.signers;
        StreamEvidence { coverage, last: heads.last(), own: &signer.public_key, signers }
    }

    pub fn last(&self) -> crate::ids::Position {
        self.journal.heads.last()
    }

    /// Returns an error if the background verification of the records before a snapshot has failed.
    pub fn check_proof(&self) -> Result<(), Error> {
        let failure = self.journal.signer.proof.as_ref().and_then(|proof| proof.take_failure());
        failure.map_or(Ok(()), Err)
    }

    /// Returns the epoch of the pump that wrote the last record read from the stream.
    pub fn epoch(&self) -> u32 {
        self.about.epoch
    }

    /// Appends the items `taken` of the stream in one commit. `judge` runs before anything is
    /// written, and may refuse the items. Also stores `epoch`, the epoch of the pump that wrote the
    /// items. A process that starts later does not read these items again, so it reads the epoch
    /// from the projection.
    pub fn take_in(
        &mut self,
        taken: &[StreamItem<'_>],
        mark: LogMark,
        epoch: u32,
        judge: &mut dyn FnMut(&Self) -> Result<(), Error>,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut group = LogGroup::default();
        for one in taken {
            match one {
                StreamItem::Step(row) => {
                    self.follow(row, visit)?;
                    group.steps.push((row.place, row.encoded()));
                }
                StreamItem::Checkpoint(checkpoint) => {
                    self.hold_to(checkpoint)?;
                    group.checkpoints.push(checkpoint);
                }
                StreamItem::Blob(digest, bytes) if Digest::of(bytes) != *digest => {
                    let next = self.last().0 + 1;
                    return Err(Error::broken(next, format!("blob {digest} is damaged")));
                }
                StreamItem::Blob(digest, bytes) => group.blobs.push((*digest, *bytes)),
            }
        }

        judge(self)?;
        let epoch = epoch.max(self.about.epoch);
        let about = JournalMetadata { epoch, ..self.about.clone() };
        let SqliteJournal { id, heads, signer, file, .. } = &mut self.journal;
        file.write(&group, Some(mark), Some(&about), heads)?;

        self.about = about;
        file.epoch = epoch;
        signer.copying.copy(*id, []);
        file.move_log()
    }

    fn follow(
        &mut self,
        row: &StoredRow<'_>,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let heads = &mut self.journal.heads;
        let sealed = row.unseal(Position(heads.last().0 + 1), &mut self.names)?;
        heads.follow(&sealed)?;
        self.journal.coverage.take(sealed.hash, sealed.mac, heads);
        self.known.check(&sealed, heads)?;
        self.known.check_copies(sealed.record.position, heads)?;
        self.known.signers.take_record(&sealed.record);
        self.redactions.take(&sealed);
        visit(sealed)
    }

    fn hold_to(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let journal = &mut self.journal;
        if checkpoint.position != journal.heads.last() || checkpoint.journal != journal.id {
            let position = checkpoint.position.0;
            return Err(Error::broken(position, "a checkpoint of it stands at another place"));
        }

        agree(checkpoint, &mut journal.heads)?;
        self.known.signers.take_checkpoint(checkpoint);
        journal.signer.checked = checkpoint.position;
        if checkpoint.position > self.known.copies.last() {
            if self.known.copies.unread.is_some() {
                // It covers the earlier ones, which may be copied already.
                journal.signer.copying.due.clear();
            }
            journal.signer.copying.due.push(checkpoint.clone());
        }

        if checkpoint.position > self.known.latest_position() {
            journal.signer.unwritten.push(checkpoint.clone());
        }

        Ok(())
    }

    /// Compares the journal with those copied checkpoints that were not compared before because the
    /// projection lacked their records.
    fn check_earlier_copies(&mut self) -> Result<(), Error> {
        let last = self.last();
        if self.known.copies.has_uncompared() {
            let reader = JournalReader::open(&self.journal.file.data)?;
            let inside = |position| reader.checkpoint_at(position);
            let compared = ComparedRecords { inside: &inside, last, is_behind: false };
            let total = limits::EARLIER_COPIES_TIMEOUT;
            let patience = ReadPatience { total, ..ReadPatience::default() };
            self.known.take_last(&mut self.journal.heads);
            self.known.compare_earlier(&compared, &patience, false)?;
            self.known.disagreement()?;
            self.known.check_missing()?;
        }

        let copied = self.journal.signer.proof.as_ref().map(|proof| proof.catch_up());
        self.known.check_copied_end(last, copied.unwrap_or_default())
    }

    /// Ends the catch-up and begins `epoch`, in which this pump alone writes the projection.
    /// Returns an error if acknowledged records are missing at the end of the journal.
    pub fn caught_up(mut self, epoch: u32) -> Result<SqliteJournal, Error> {
        self.check_earlier_copies()?;
        self.known.check_end(self.last())?;
        self.journal.raise_epoch(&self.about, epoch)?;
        self.journal.renew_sealer();
        self.journal.settle()?;
        Ok(self.journal)
    }
}
