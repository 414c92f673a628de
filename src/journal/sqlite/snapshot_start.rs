//! A start that continues from a snapshot.

use crate::journal::background_proof::ProofClaim;
use crate::journal::external_marks::ExternalMarks;
use crate::journal::{Error, RedactedRecords, StateRecovery};

use super::JournalReader;
use super::open::LockedJournalDir;
use super::snapshot::{Snapshot, SnapshotEvidence, SnapshotPlace};

/// The snapshot from which a start continues.
pub struct SnapshotStart {
    pub evidence: SnapshotEvidence,
    /// The claim about the records before it.
    pub claim: ProofClaim,
}

impl LockedJournalDir {
    /// Restores the newest snapshot that this host made of the journal, so that only later records
    /// are proved and replayed now. Without one, nothing changes.
    pub fn restore_snapshot(&mut self, recovery: &mut dyn StateRecovery) -> Result<(), Error> {
        let Some(core_version) = recovery.snapshot_version() else { return Ok(()) };
        let reader = JournalReader::open(&self.data)?;
        let journal = reader.about()?.journal;
        let copies = self.copies.as_deref();
        // Read before the start changes any of them, because the proof compares records with them.
        let known = ExternalMarks::read(&self.data, &self.state, copies, journal)?;
        let place = SnapshotPlace { state: &self.state, key: &self.key, journal, core_version };
        // Checkpoints before one that was copied need no copy any more; others are looked for.
        if copies.is_some() && known.copies.last() < place.position() {
            tracing::warn!("no checkpoint of the snapshot was copied, so every record is read");
            return Ok(());
        }

        let loaded = place.load(&|line, hash| reader.has_checkpoint(line, hash).unwrap_or(false));
        let Some(Snapshot { evidence, state }) = loaded else { return Ok(()) };
        if let Err(error) = recovery.restore(state) {
            tracing::warn!("the snapshot is ignored, and every record is read: {error}");
            super::remove_snapshot(&self.state, journal);
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
            known,
            redactions: RedactedRecords::default(),
            losses: Vec::new(),
        };
        self.base = Some(SnapshotStart { evidence, claim });
        Ok(())
    }
}
