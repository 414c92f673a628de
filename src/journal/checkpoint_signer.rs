//! Decides when a checkpoint is due, signs it, and writes it to the file outside the journal.

use std::sync::Arc;

use uuid::Uuid;

use crate::clock::Time;
use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::limits;

use super::background_proof::ProofProgress;
use super::checkpoint::{CheckpointFile, CheckpointKey};
use super::copy_directory::CopyDirectory;
use super::{Checkpoint, TreeHeads};

/// Decides when checkpoints are due, signs them, and keeps them until they are in the file outside
/// the journal.
#[derive(Debug)]
pub struct CheckpointSigner {
    pub journal: Uuid,
    pub key: CheckpointKey,
    pub public_key: String,
    pub outside: CheckpointFile,
    /// Checkpoints that are in the journal, and not yet in the checkpoint file outside the journal.
    pub unwritten: Vec<Checkpoint>,
    pub copying: CopyDirectory,
    /// Position of the last checkpoint.
    pub checked: Position,
    /// Start of the interval after which the next checkpoint is due. This is the time of the last
    /// checkpoint that this run of the pump signed. If the run has signed none, this is the time of
    /// the run's first record. `None` if the run has not written a record either.
    pub checked_at: Option<Time>,
    /// Progress of the background verification of the records before a snapshot. `None` if the pump
    /// did not start from a snapshot, and so verified every record at its start.
    pub proof: Option<Arc<ProofProgress>>,
    /// The last signed checkpoint, as long as it is uncertain whether this checkpoint is durable.
    /// Otherwise, `None`.
    pub signed: Option<Checkpoint>,
}

impl CheckpointSigner {
    /// Whether a journal that ends with `last` needs a checkpoint now.
    pub fn is_due(&self, last: Position, now: Time) -> bool {
        let since = last.0.saturating_sub(self.checked.0);
        let is_overdue =
            self.checked_at.is_none_or(|at| now.since(at) >= limits::CHECKPOINT_INTERVAL);
        since >= limits::CHECKPOINT_RECORDS || (since > 0 && is_overdue)
    }

    /// Signs a checkpoint over all durable records. The commit that appends the checkpoint may also
    /// contain new records, which the checkpoint does not cover.
    ///
    /// If a commit is retried, returns the same checkpoint as for the first attempt, because a
    /// stream recognizes a retry only by equal bytes. A new checkpoint could differ: it states from
    /// which record on the pump has verified the journal, and the background verification may have
    /// succeeded meanwhile.
    pub fn sign(&mut self, heads: &mut TreeHeads, now: Time) -> Checkpoint {
        failpoint("before-checkpoint");
        let position = heads.last();
        let is_retry = |signed: &&Checkpoint| signed.position == position && signed.time == now;
        if let Some(signed) = self.signed.as_ref().filter(is_retry) {
            return signed.clone();
        }

        let checkpoint = self.key.sign(Checkpoint {
            journal: self.journal,
            position,
            count: position.0,
            merkle_root: heads.merkle_root(),
            time: now,
            proved_from: self.proof.as_ref().and_then(|proof| proof.proved_from()),
            key: String::new(),
            signature: String::new(),
        });
        self.signed = Some(checkpoint.clone());
        checkpoint
    }

    /// Processes `checkpoint` after it has become durable in the journal: writes it to the file
    /// outside the journal too, and queues it to be copied.
    pub fn keep(&mut self, checkpoint: Checkpoint) {
        failpoint("after-checkpoint");
        self.signed = None;
        self.checked = checkpoint.position;
        self.checked_at = Some(checkpoint.time);
        self.unwritten.push(checkpoint.clone());
        self.write_outside();
        failpoint("after-outside-line");
        self.copying.copy(self.journal, [checkpoint]);
    }

    /// Writes pending checkpoints to the file outside the journal. A failure does not affect the
    /// journal itself; it is logged, and the writing is retried with the next checkpoint.
    pub fn write_outside(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }

        match self.outside.append(&self.unwritten) {
            Ok(()) => self.unwritten.clear(),
            Err(error) => {
                let path = self.outside.path().display();
                tracing::warn!(
                    %path, %error,
                    "could not write checkpoints to the file outside the journal; the next \
                     checkpoint retries"
                );
            }
        }
    }
}
