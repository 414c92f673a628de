//! Verifies the records before a snapshot. A pump that starts from a snapshot begins its work at
//! once. Meanwhile, an OS thread in the background verifies the earlier records. This verification
//! is called the proof.
//!
//! The proof verifies the same things as a pump that starts without a snapshot: hash chains, MACs,
//! checkpoints, the marks outside the journal, and redactions. If the proof fails, the snapshot is
//! deleted and the pump stops; a pump that started without a snapshot would have failed in the same
//! way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::Position;
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::owned_tasks::JoinOnDrop;
use crate::thread::AcceptedLoss;

use super::checkpoint_copies::ReadPatience;
use super::earlier_copies::ComparedRecords;
use super::external_marks::{ExternalMarks, agree};
use super::judge::OperatorAcceptance;
use super::mac::{MacKey, StoredCoverage};
use super::redactions::refuse_blanked;
use super::sqlite::{self, JournalReader};
use super::{
    Checkpoint, CheckpointSigners, Error, HashedRecord, InnerCheckpoints, MacCoverage,
    RedactedRecords, TreeHeads,
};

/// Progress of the background thread that verifies the records before a snapshot.
#[derive(Debug)]
pub struct ProofProgress {
    /// Position of the first record after the snapshot. The pump verified this record and all later
    /// records at its start. The background thread verifies the earlier records.
    from: Position,
    /// Position of the last record that the background thread has verified so far. The thread
    /// verifies the records from the first one up to the snapshot, in ascending order.
    proved: AtomicU64,
    has_passed: AtomicBool,
    /// Whether the background verification has found errors in the journal's table of trees, which
    /// states the last record of each tree. If so, the table must be written anew.
    has_wrong_trees: AtomicBool,
    /// Whether the OS thread that verifies the records before the snapshot has ended. It also ends
    /// if the verification fails or is stopped.
    has_ended: Mutex<bool>,
    ended: Condvar,
    /// The error with which the background verification has failed. `None` if it has not failed, or
    /// after the journal's writer has fetched the error.
    failure: Mutex<Option<Error>>,
    copied: Mutex<CopiedEnd>,
}

/// State shared by the proof of a projection and the pump that catches up with its stream.
#[derive(Debug, Default)]
struct CopiedEnd {
    /// Whether the projection has caught up.
    is_caught_up: bool,
    /// Highest position of a copied checkpoint after the records that the projection had when the
    /// copies were compared; 0 if there is none.
    position: Position,
}

impl ProofProgress {
    fn new(from: Position) -> Self {
        let proved = AtomicU64::new(0);
        let has_passed = AtomicBool::new(false);
        let has_wrong_trees = AtomicBool::new(false);
        let has_ended = Mutex::new(false);
        let ended = Condvar::new();
        Self {
            from,
            proved,
            has_passed,
            has_wrong_trees,
            has_ended,
            ended,
            failure: Mutex::default(),
            copied: Mutex::default(),
        }
    }

    /// Notes the highest position of a copied checkpoint after the end of the projection. Returns
    /// whether the projection has caught up with its stream. If not, the pump compares `position`
    /// with the end of the stream.
    fn is_caught_up_after(&self, position: Position) -> bool {
        // Lock: whichever of proof and pump takes it later compares the position.
        let mut copied = locked(&self.copied);
        copied.position = position;
        copied.is_caught_up
    }

    /// Notes that the projection has caught up with its stream. Returns the highest position of a
    /// copied checkpoint that the proof has noted; 0 if it has noted none.
    pub(super) fn catch_up(&self) -> Position {
        let mut copied = locked(&self.copied);
        copied.is_caught_up = true;
        copied.position
    }

    /// Waits until the background verification has ended, or until `is_stopped` returns true.
    /// Returns true only if all records before the snapshot are verified.
    pub fn wait(&self, is_stopped: &dyn Fn() -> bool) -> bool {
        // Lock: the thread of the proof holds it only for a moment, when it ends.
        let mut has_ended = locked(&self.has_ended);
        while !*has_ended && !is_stopped() {
            let waited = self.ended.wait_timeout(has_ended, limits::PROOF_WAIT_INTERVAL);
            (has_ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }

        self.proved_from().is_none()
    }

    fn end(&self) {
        *locked(&self.has_ended) = true;
        self.ended.notify_all();
    }

    /// Returns the position of the first record after the snapshot while some records before the
    /// snapshot are still unverified. Returns `None` as soon as all of them are verified.
    pub fn proved_from(&self) -> Option<Position> {
        (!self.has_passed.load(Ordering::Acquire)).then_some(self.from)
    }

    /// Returns the position of the last record that the background thread has verified so far.
    pub fn proved(&self) -> Position {
        Position(self.proved.load(Ordering::Relaxed))
    }

    /// Returns the error with which the background verification has failed, but only once. Returns
    /// `None` if the verification has not failed, or if this method has already returned the error.
    pub(super) fn take_failure(&self) -> Option<Error> {
        // Lock: held only to take the value, once for each append.
        locked(&self.failure).take()
    }

    /// Returns true if the background verification has found errors in the journal's table of
    /// trees. The writer of the journal must then write the whole table again. Returns true only
    /// once.
    pub(super) fn take_wrong_trees(&self) -> bool {
        self.has_wrong_trees.load(Ordering::Relaxed)
            && self.has_wrong_trees.swap(false, Ordering::AcqRel)
    }

    fn fail(&self, error: Error) {
        *locked(&self.failure) = Some(error);
    }
}

/// Input of the background verification: the checkpoint of the snapshot, and the data against which
/// the records before the snapshot are checked.
#[derive(Debug)]
pub(super) struct ProofClaim {
    pub data: PathBuf,
    pub state: PathBuf,
    pub journal: Uuid,
    pub key: MacKey,
    pub checkpoint: Checkpoint,
    pub coverage: Option<StoredCoverage>,
    /// Keys that signed the journal's checkpoints up to `checkpoint`, and the recorded actions in
    /// which operators have declared that they trust keys.
    pub signers: CheckpointSigners,
    /// Checkpoints that the journal itself contains, up to `checkpoint`. The background
    /// verification compares them with the records.
    pub due: InnerCheckpoints,
    /// The marks of the journal that are outside its file, such as checkpoints. They were read
    /// before this start of the pump changed any of them.
    pub known: ExternalMarks,
    /// Two sets of records: those with blanked payloads, and those whose redaction an operator has
    /// accepted. The action that accepts a redaction may be later than the snapshot.
    pub redactions: RedactedRecords,
    /// Losses of records that operators accepted in recorded actions.
    pub losses: Vec<AcceptedLoss>,
    /// Whether the file has all records of the journal. False for a projection, which may still
    /// catch up with its stream.
    pub is_whole: bool,
}

/// The OS thread that verifies the records before a snapshot. Dropping this value ends the OS
/// thread.
#[derive(Debug)]
pub(super) struct BackgroundProof {
    is_stopped: Arc<AtomicBool>,
    _thread: JoinOnDrop,
}

impl BackgroundProof {
    /// Starts a thread that verifies the records before the snapshot, with `claim` as its input.
    pub fn start(claim: ProofClaim) -> Result<(Self, Arc<ProofProgress>), Error> {
        let progress = Arc::new(ProofProgress::new(Position(claim.checkpoint.position.0 + 1)));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&progress);
        let flag = Arc::clone(&is_stopped);
        let run = move || claim.prove(&shared, &flag);
        let thread = std::thread::Builder::new().name("proof".to_owned()).spawn(run);
        let thread = thread.map_err(Error::io("starting the thread of the proof"))?;
        Ok((Self { is_stopped, _thread: JoinOnDrop::new(thread) }, progress))
    }
}

impl Drop for BackgroundProof {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
    }
}

impl ProofClaim {
    fn prove(mut self, progress: &ProofProgress, is_stopped: &AtomicBool) {
        let proving = AssertUnwindSafe(|| self.prove_records(progress, is_stopped));
        let proved = catch_unwind(proving).unwrap_or_else(|_| {
            let cause = "the thread of the proof panicked; its log has the reason".to_owned();
            Err(Error::Stopped { cause })
        });

        match proved {
            Ok(true) => {
                progress.has_passed.store(true, Ordering::Release);
                let position = self.checkpoint.position;
                tracing::info!("the records up to {position} are proved");
            }
            Ok(false) => {}
            Err(_) if mutant("trust-the-past") => {}
            Err(error) => {
                tracing::error!("the proof of the records before the snapshot failed: {error}");
                sqlite::remove_snapshot(&self.state, self.journal);
                progress.fail(error);
            }
        }

        progress.end();
    }

    /// Verifies the records up to the snapshot's checkpoint. Returns false if `is_stopped` ended
    /// the verification early.
    fn prove_records(
        &mut self,
        progress: &ProofProgress,
        is_stopped: &AtomicBool,
    ) -> Result<bool, Error> {
        let position = self.checkpoint.position;
        let known = &mut self.known;
        let mut coverage = MacCoverage::new(self.journal, Some(self.key.clone()));
        let mut redactions = RedactedRecords::default();
        let mut heads = TreeHeads::in_directory(&self.state);
        let mut signers = CheckpointSigners::default();
        let due = &mut self.due;

        let has_to_end = || is_stopped.load(Ordering::Acquire);
        let mut visit = |sealed: HashedRecord, heads: &mut TreeHeads| {
            failpoint("during-proof");
            coverage.take(sealed.hash, sealed.mac, heads);
            redactions.take(&sealed);
            known.take(&sealed, heads);
            signers.take_record(&sealed.record);
            if let Some(line) = due.agreed(sealed.record.position, heads)? {
                signers.take_checkpoint(&line);
            }
            progress.proved.store(sealed.record.position.0, Ordering::Relaxed);
            Ok(())
        };
        if !sqlite::scan_alone(&self.data, position, &mut heads, &has_to_end, &mut visit)? {
            return Ok(false);
        }

        agree(&self.checkpoint, &mut heads)?;
        let reader = JournalReader::open(&self.data)?;
        reader.check_trees_structure()?;
        if !reader.agrees_about_older(&heads)? {
            tracing::warn!("the table of trees is wrong, and is written anew");
            progress.has_wrong_trees.store(true, Ordering::Release);
        }

        if coverage.stored(position) != self.coverage {
            let detail = "the MACs up to here are not those that the snapshot was made from";
            return Err(Error::broken(position.0, detail));
        }

        if signers != self.signers {
            let detail = "the checkpoints up to here are not those that the snapshot was made from";
            return Err(Error::broken(position.0, detail));
        }

        known.accept_losses(&self.losses);
        // The start has compared the last copies with the records after the snapshot. All earlier
        // copies are compared here, also those for positions after the snapshot.
        let last = reader.last()?;
        let is_behind = !self.is_whole;
        let inside = |position| reader.checkpoint_at(position);
        let compared = ComparedRecords { inside: &inside, last, is_behind };
        let patience = ReadPatience { total: Duration::MAX, is_stopped: &has_to_end };
        known.compare_earlier(&compared, &patience, false)?;
        if has_to_end() {
            return Ok(false);
        }

        let copied = known.copies.earlier_beyond;
        if self.is_whole {
            // The pump may have appended records since `last` was read. They excuse no copy.
            known.check_copied_end(last, copied)?;
        } else if progress.is_caught_up_after(copied) {
            known.check_copied_end(reader.last()?, copied)?;
        }

        known.forgive(known.acknowledged().max(position));
        known.disagreement()?;
        known.check_missing()?;
        redactions.add_accepted(&self.redactions);
        refuse_blanked(redactions.unrecorded().next(), OperatorAcceptance::default())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::journal::sqlite::SqliteJournal;

    /// A stream recognizes the retry of a commit only by its bytes. So the retry must contain the
    /// same checkpoint, even if the background verification has succeeded between the two attempts.
    #[test]
    fn a_checkpoint_signed_again_for_a_retry_is_the_same_after_the_proof_has_passed() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let state = directory.path().join("state");
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        let progress = Arc::new(ProofProgress::new(Position(1)));
        journal.signer.proof = Some(Arc::clone(&progress));

        let first = journal.signer.sign(&mut journal.heads, Time(1));
        assert_eq!(first.proved_from, Some(Position(1)));
        progress.has_passed.store(true, Ordering::Release);
        let again = journal.signer.sign(&mut journal.heads, Time(1));
        assert_eq!(again, first);

        let later = journal.signer.sign(&mut journal.heads, Time(2));
        assert_eq!(later.proved_from, None);
    }
}
