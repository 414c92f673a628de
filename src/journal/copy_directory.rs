//! Copies the checkpoints of a journal into the directory that the config names.

use std::collections::HashSet;
use std::path::PathBuf;

use uuid::Uuid;

use super::checkpoint::CheckpointFile;
use super::checkpoint_copies::CheckpointCopier;
use super::{Checkpoint, CheckpointCopies, CopyMetrics, TreeHeads};

/// The checkpoints of a journal that follow the last copied checkpoint. They are collected while
/// the journal's records are read.
#[derive(Debug, Default)]
pub struct UncopiedCheckpoints {
    pub lines: Vec<Checkpoint>,
}

impl UncopiedCheckpoints {
    /// Updates the list of checkpoints that still need a copy. `line` is the next checkpoint in the
    /// journal, and `heads` contains the last records of all trees at the position of this
    /// checkpoint.
    /// - If `line` is already copied, empties the list, because only checkpoints after the last
    ///   copied one need a copy.
    /// - Otherwise, adds `line` to the list if its Merkle root is that of `heads`. If the copies
    ///   cannot be read, keeps only `line`: it covers all records before it, and the earlier
    ///   checkpoints may be copied already.
    pub fn take(&mut self, line: &Checkpoint, copies: &CheckpointCopies, heads: &mut TreeHeads) {
        if copies.is_copied(line) {
            self.lines.clear();
        } else if line.merkle_root == heads.merkle_root() {
            if copies.unread.is_some() {
                self.lines.clear();
            }
            self.lines.push(line.clone());
        }
    }
}

/// The directory for copies of checkpoints, and the checkpoints that wait to be copied.
#[derive(Debug, Default)]
pub struct CopyDirectory {
    /// Directory for copies; `None` if the config names none.
    pub directory: Option<PathBuf>,
    /// Checkpoints that must be copied and are not queued yet.
    pub due: Vec<Checkpoint>,
    /// Copied checkpoints that cover lost records. An operator has accepted that these records are
    /// lost.
    pub given_up: Vec<Checkpoint>,
    copier: Option<CheckpointCopier>,
}

impl CopyDirectory {
    pub fn new(
        directory: Option<PathBuf>,
        due: Vec<Checkpoint>,
        given_up: Vec<Checkpoint>,
    ) -> Self {
        Self { directory, due, given_up, copier: None }
    }

    /// Queues `lines` to be copied, behind the checkpoints that are already due. Returns
    /// immediately. Does nothing if the config names no directory for copies.
    pub fn copy(&mut self, journal: Uuid, lines: impl IntoIterator<Item = Checkpoint>) {
        let Some(directory) = &self.directory else { return };
        self.due.extend(lines);
        if self.due.is_empty() {
            return;
        }

        if self.copier.is_none() {
            match CheckpointCopier::start(directory, journal) {
                Ok(copier) => self.copier = Some(copier),
                Err(error) => {
                    let directory = directory.display();
                    tracing::warn!(
                        "could not start the thread that copies checkpoints to {directory}; the \
                         next checkpoint retries: {error}"
                    );
                }
            }
        }

        let Some(copier) = &self.copier else { return };
        self.due.drain(..).for_each(|line| copier.copy(line));
    }

    /// Removes the checkpoints in `given_up` from the file with the copied checkpoints of
    /// `journal`, because they cover lost records. First saves a copy of this file under another
    /// name.
    pub fn put_aside_given_up(&mut self, journal: Uuid) {
        let given_up: HashSet<_> = std::mem::take(&mut self.given_up).into_iter().collect();
        let Some(directory) = self.directory.as_ref().filter(|_| !given_up.is_empty()) else {
            return;
        };

        let file = CheckpointCopies::file_in(directory, journal);
        if let Err(error) = CheckpointFile::at(&file).keep(|line| !given_up.contains(line)) {
            tracing::warn!(
                "could not set aside copies of checkpoints for records that were accepted as lost; \
                 they stay in {} ({error}), and `organism verify` reports them until `organism \
                 repair --accept-loss` succeeds",
                file.display()
            );
        }
    }

    pub fn counts(&self) -> Option<CopyMetrics> {
        self.directory.as_ref()?;
        Some(self.copier.as_ref().map(CheckpointCopier::counts).unwrap_or_default())
    }

    /// Queues the checkpoints that are due, and waits a short time for them to be copied. The next
    /// start of the pump copies the checkpoints that are still queued then.
    pub fn finish(&mut self, journal: Uuid) {
        self.copy(journal, []);
        if let Some(copier) = self.copier.take() {
            copier.finish();
        }
    }
}
