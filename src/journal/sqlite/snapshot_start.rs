//! The start of a pump from a snapshot.

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::background_proof::{BackgroundProof, ProofClaim};
use crate::journal::external_marks::ExternalMarks;
use crate::journal::judge::{OpenPurpose, OperatorAcceptance};
use crate::journal::{Error, InnerCheckpoints, RedactedRecords, StateRecovery};

use super::open::{LockedJournalDir, VerifiedJournal};
use super::snapshot::{self, Snapshot, SnapshotEvidence, SnapshotPlace};
use super::{JournalReader, SqliteJournal};

/// The snapshot from which a pump starts.
pub struct SnapshotStart {
    pub evidence: SnapshotEvidence,
    /// Input for the background verification of the records before the snapshot.
    pub claim: ProofClaim,
}

impl LockedJournalDir {
    /// Restores the newest snapshot that this host made of `journal`, the journal in this directory.
    /// The pump then verifies and
    /// replays only the records after the snapshot. The journal may also be a projection. Does
    /// nothing in these cases:
    ///
    /// - There is no usable snapshot.
    /// - Checkpoints are copied to another directory, and the last copied checkpoint is older than
    ///   the snapshot. The start must then read every record to find the checkpoints that still
    ///   need a copy.
    pub fn restore_snapshot(
        &mut self,
        journal: Uuid,
        recovery: &mut dyn StateRecovery,
    ) -> Result<(), Error> {
        let Some(core_version) = recovery.snapshot_version() else { return Ok(()) };
        let place = SnapshotPlace { state: &self.state, key: &self.key, journal, core_version };
        if !place.may_exist() {
            snapshot::remove_unfinished(&self.state, journal);
            return Ok(());
        }

        let reader = JournalReader::open(&self.data)?;
        let copies = self.copies.as_deref();
        // Read before the start changes any of them, because the proof compares records with them.
        let known = ExternalMarks::read(&self.data, &self.state, copies, journal)?;
        // Only checkpoints after the last copied one need a copy. If that one is older than the
        // snapshot, they must be found by reading the records. If the copies cannot be read, it is
        // unknown which checkpoints need a copy, and reading the records does not help.
        let copied = known.copies.last();
        let is_known = copies.is_some() && known.copies.unread.is_none();
        if is_known && copied < place.position() {
            tracing::warn!(
                "the last copied checkpoint is at {copied}, before the snapshot, so every record \
                 is read"
            );
            return Ok(());
        }

        let loaded = place.load(&|line, hash| reader.has_checkpoint(line, hash).unwrap_or(false));
        let Some(Snapshot { evidence, state }) = loaded else { return Ok(()) };
        if let Err(error) = recovery.restore(state) {
            tracing::warn!("the snapshot is ignored, and every record is read: {error}");
            snapshot::remove(&self.state, journal);
            return Ok(());
        }

        let position = evidence.checkpoint.position;
        tracing::info!(
            "continues from the snapshot at {position}; the records up to there are proved \
             meanwhile"
        );
        let claim = ProofClaim {
            data: self.data.clone(),
            state: self.state.clone(),
            journal,
            key: self.key.mac(),
            checkpoint: evidence.checkpoint.clone(),
            coverage: evidence.coverage.stored(position),
            signers: evidence.signers.clone(),
            due: InnerCheckpoints::between(reader, Position(0), position),
            known,
            redactions: RedactedRecords::default(),
            losses: Vec::new(),
            is_whole: true,
        };
        self.base = Some(SnapshotStart { evidence, claim });
        Ok(())
    }

    /// Verifies the journal as [`LockedJournalDir::prove`] does, and passes its records to
    /// `recovery`. If a snapshot of `journal` was restored, skips the records before this snapshot,
    /// and also returns the input for the background verification of the skipped records.
    pub(super) fn prove_recovering(
        mut self,
        journal: Uuid,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        recovery: &mut dyn StateRecovery,
    ) -> Result<(VerifiedJournal, Option<ProofClaim>), Error> {
        let state = self.state.clone();
        let base = self.base.take();
        let (evidence, claim) = base.map(|base| (base.evidence, base.claim)).unzip();
        let has_base = evidence.is_some();
        let replay = &mut |sealed| recovery.replay(sealed);
        let proved = self.prove_from(evidence, purpose, accept, replay);
        if has_base && proved.as_ref().is_err_and(|error| !error.is_passing()) {
            // If the snapshot is to blame, the next start succeeds without it.
            snapshot::remove(&state, journal);
        }

        Ok((proved?, claim))
    }
}

impl SqliteJournal {
    /// Starts to verify, in the background, the records up to the snapshot from which the journal
    /// was opened. `claim` is the input of this verification. The losses and redactions in `claim`
    /// are replaced by those in `known` and `redactions`, because operators may have accepted
    /// losses and made redactions after the snapshot. `purpose` is that for which the journal was
    /// opened.
    pub(super) fn start_proof(
        &mut self,
        mut claim: ProofClaim,
        purpose: OpenPurpose,
        known: &ExternalMarks,
        redactions: &RedactedRecords,
    ) -> Result<(), Error> {
        claim.is_whole = purpose != OpenPurpose::Follow;
        claim.known.add_roots(known);
        let losses = known.losses().to_vec();
        let redactions = redactions.clone();
        let (proof, progress) = BackgroundProof::start(ProofClaim { redactions, losses, ..claim })?;
        self.proof = Some(proof);
        self.signer.proof = Some(progress);
        Ok(())
    }
}
