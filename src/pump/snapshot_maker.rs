//! Makes snapshots of the state beside a running pump, on an OS thread of its own.
//!
//! The maker reads the journal up to a checkpoint. Like a start of the pump, it begins with the
//! earlier snapshot and replays the records after it. It gets only positions of checkpoints from
//! the pump, so it never makes the pump wait.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use uuid::Uuid;

use super::core::{CORE_VERSION, Core};
use super::resident_core::{ResidencyLimits, ResidentCore};
use crate::contract::TreeLimits;
use crate::ids::{Digest, Position};
use crate::journal::checkpoint::CheckpointKey;
use crate::journal::sqlite::{
    JournalReader, RestingStore, Snapshot, SnapshotDraft, SnapshotEvidence, SnapshotPlace,
    StoredState, scan_alone,
};
use crate::journal::{
    Checkpoint, CheckpointSigners, Error, InnerCheckpoints, MacCoverage, ProofProgress,
    RedactedRecords, TreeHeads,
};
use crate::limits;
use crate::owned_tasks::JoinOnDrop;
use crate::thread::{AcceptedLoss, Input};

/// The OS thread that makes snapshots of one journal. Dropping this value ends that
/// thread.
#[derive(Debug)]
pub struct SnapshotMaker {
    /// Channel for the positions of checkpoints. Dropping it ends the OS thread.
    checkpoints: SyncSender<Position>,
    is_stopped: Arc<AtomicBool>,
    _thread: JoinOnDrop,
    /// Position of the last checkpoint that was sent to the OS thread.
    announced: Position,
}

/// Settings for the snapshots of a pump, such as the journal and the interval.
#[derive(Debug)]
pub struct SnapshotPlan {
    pub data: PathBuf,
    pub state: PathBuf,
    pub journal: Uuid,
    /// Number of records between two snapshots.
    pub records: u64,
    /// Progress of the background proof, or `None` if there is none. If the pump started from a
    /// snapshot, this proof verifies the records before that snapshot. Until the proof has passed,
    /// no new snapshot is made.
    pub proof: Option<Arc<ProofProgress>>,
}

impl SnapshotMaker {
    /// Starts the thread that makes snapshots.
    pub fn start(plan: SnapshotPlan) -> Result<Self, Error> {
        // Queue: one place, because a checkpoint covers all earlier ones.
        let (checkpoints, inbox) = sync_channel(1);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        let run = move || plan.run(&inbox, &flag);
        let thread = std::thread::Builder::new().name("snapshots".to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Io {
            context: "starting the thread for snapshots".to_owned(),
            source,
        })?;
        Ok(Self {
            checkpoints,
            is_stopped,
            _thread: JoinOnDrop::new(thread),
            announced: Position(0),
        })
    }

    /// Reports the position of the last checkpoint to the OS thread. Never waits.
    pub fn announce(&mut self, checkpoint: Position) {
        if checkpoint <= self.announced {
            return;
        }

        match self.checkpoints.try_send(checkpoint) {
            // A full queue holds an earlier checkpoint; a later call announces this one.
            Err(TrySendError::Full(_)) => {}
            Ok(()) | Err(TrySendError::Disconnected(_)) => self.announced = checkpoint,
        }
    }
}

impl Drop for SnapshotMaker {
    fn drop(&mut self) {
        // The thread looks at this flag in the middle of a snapshot.
        self.is_stopped.store(true, Ordering::Release);
    }
}

impl SnapshotPlan {
    fn run(&self, inbox: &Receiver<Position>, is_stopped: &AtomicBool) {
        let has_to_end = || is_stopped.load(Ordering::Acquire);
        let mut last_snapshot = None;
        let mut not_before = Instant::now();

        while let Ok(checkpoint) = inbox.recv() {
            let last = *last_snapshot.get_or_insert_with(|| self.last_snapshot());
            let is_due = checkpoint.0 >= last.0.saturating_add(self.records);
            let is_proved = || self.proof.as_ref().is_none_or(|proof| proof.wait(&has_to_end));
            if !is_due || Instant::now() < not_before || !is_proved() || has_to_end() {
                continue;
            }

            let begun = Instant::now();
            match self.make(checkpoint, &has_to_end) {
                Ok(Some(position)) => {
                    tracing::debug!("a snapshot of the state at {position} was made");
                    last_snapshot = Some(position);
                }
                Ok(None) => {}
                Err(error) => {
                    // The next try comes after as many records as the next snapshot would have.
                    last_snapshot = Some(checkpoint);
                    tracing::warn!(
                        "no snapshot could be made, so the next start may take longer; retrying \
                         after {} records: {error}",
                        self.records
                    );
                }
            }

            // The cost grows with the number of trees, so a large organism makes snapshots less
            // often.
            not_before = Instant::now() + limits::SNAPSHOT_PAUSE * begun.elapsed();
        }
    }

    /// Returns the position of the latest snapshot, or 0 if no snapshot exists.
    fn last_snapshot(&self) -> Position {
        let key = CheckpointKey::read(&self.state).ok().flatten();
        key.map(|key| self.place(&key).position()).unwrap_or_default()
    }

    fn place<'p>(&'p self, key: &'p CheckpointKey) -> SnapshotPlace<'p> {
        let Self { state, journal, .. } = self;
        SnapshotPlace { state, key, journal: *journal, core_version: CORE_VERSION }
    }

    /// Makes a snapshot of the state at the checkpoint with this position, and returns the
    /// position. Returns `None` if `has_to_end` returned true, or if the journal has no checkpoint
    /// at this position that was signed with this pump's key.
    pub fn make(
        &self,
        position: Position,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<Option<Position>, Error> {
        let Some(key) = CheckpointKey::read(&self.state)? else { return Ok(None) };
        let place = self.place(&key);
        let reader = JournalReader::open(&self.data)?;
        let checkpoint = reader.checkpoint_at(position)?;
        let Some(checkpoint) = checkpoint.filter(|line| line.key == key.public()) else {
            return Ok(None);
        };

        let draft = place.draft(&|line, hash| {
            line.position < position && reader.has_checkpoint(line, hash).unwrap_or(false)
        })?;
        let SnapshotDraft { files, generation, base } = draft;
        let mut rebuilt =
            RebuiltState::begin(base, self.journal, &key).inspect_err(|_| place.remove())?;
        let due = InnerCheckpoints::between(reader, rebuilt.heads.last(), position);
        if !rebuilt.follow(&self.data, position, due, has_to_end)? {
            return Ok(None);
        }

        let (evidence, state) = rebuilt.finish(checkpoint)?;
        if has_to_end() {
            return Ok(None);
        }

        place.write((files, generation), evidence, state)?;
        Ok(Some(position))
    }
}

/// The state that a replay has rebuilt, with the evidence that a snapshot of this state must
/// contain.
struct RebuiltState {
    core: ResidentCore,
    heads: TreeHeads,
    coverage: MacCoverage,
    redactions: RedactedRecords,
    losses: Vec<AcceptedLoss>,
    signers: CheckpointSigners,
}

impl RebuiltState {
    /// Returns the state from which the replay begins: the state of `base`, the earlier snapshot.
    /// Without an earlier snapshot, `base` contains empty stores, and the state is empty.
    fn begin(
        base: Result<Snapshot, (TreeHeads, RestingStore)>,
        journal: Uuid,
        key: &CheckpointKey,
    ) -> Result<Self, Error> {
        let core = Core::new(Arc::default(), TreeLimits::default(), Digest::ZERO);
        match base {
            Err((heads, store)) => Ok(Self {
                core: ResidentCore::with_store(core, store, ResidencyLimits::default()),
                heads,
                coverage: MacCoverage::new(journal, Some(key.mac())),
                redactions: RedactedRecords::default(),
                losses: Vec::new(),
                signers: CheckpointSigners::default(),
            }),
            Ok(Snapshot { evidence, state }) => {
                let SnapshotEvidence { heads, coverage, redactions, losses, signers, .. } =
                    evidence;
                let core = ResidentCore::from(core).with_stored(state)?;
                Ok(Self { core, heads, coverage, redactions, losses, signers })
            }
        }
    }

    /// Replays the records up to the position `last`. On the way, verifies the checkpoints in `due`
    /// and records the keys that signed them. Returns false if `has_to_end` returned true before
    /// all records were replayed.
    fn follow(
        &mut self,
        data: &Path,
        last: Position,
        mut due: InnerCheckpoints,
        has_to_end: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let Self { core, heads, coverage, redactions, losses, signers } = self;
        scan_alone(data, last, heads, has_to_end, &mut |sealed, heads| {
            coverage.take(sealed.hash, sealed.mac, heads);
            redactions.take(&sealed);
            if let Input::Operator(action) = &sealed.record.input {
                losses.extend(action.accepted_loss());
            }
            signers.take_record(&sealed.record);
            if let Some(line) = due.agreed(sealed.record.position, heads)? {
                signers.take_checkpoint(&line);
            }

            core.replay(&sealed.record)?;
            if core.has_store_failed() {
                let detail = "there is no room for a snapshot".to_owned();
                return Err(Error::Full { detail });
            }
            Ok(())
        })
    }

    /// Returns the snapshot at `checkpoint`. All records that `checkpoint` covers, and no others,
    /// must have been replayed.
    fn finish(self, checkpoint: Checkpoint) -> Result<(SnapshotEvidence, StoredState), Error> {
        let Self { core, mut heads, coverage, redactions, losses, signers } = self;
        if heads.merkle_root() != checkpoint.merkle_root {
            let detail = "the records up to here are not those of the checkpoint".to_owned();
            return Err(Error::Broken { position: checkpoint.position.0, detail });
        }

        let evidence =
            SnapshotEvidence { checkpoint, heads, coverage, redactions, losses, signers };
        Ok((evidence, core.into_stored()?))
    }
}
