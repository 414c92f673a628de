//! Copying the checkpoints of a journal into the directory that its config names.

use std::path::PathBuf;

use uuid::Uuid;

use super::checkpoint::CheckpointFile;
use super::copies::CheckpointCopier;
use super::{Checkpoint, CheckpointCopies, CopyMetrics, TreeHeads};

/// Checkpoints of a journal behind the last one that is copied, found while its records are read.
#[derive(Debug, Default)]
pub struct UncopiedCheckpoints {
    pub lines: Vec<Checkpoint>,
}

impl UncopiedCheckpoints {
    /// Takes the journal's checkpoint over the records up to here, if it is over these records.
    pub fn take(&mut self, line: &Checkpoint, copies: &CheckpointCopies, heads: &mut TreeHeads) {
        if copies.at(line.position).contains(line) {
            self.lines.clear();
        } else if line.merkle_root == heads.merkle_root() {
            self.lines.push(line.clone());
        }
    }
}

/// The directory that checkpoints are copied to, and the checkpoints that wait for it.
#[derive(Debug, Default)]
pub struct CopyDirectory {
    /// None where the config names no place for copies.
    pub directory: Option<PathBuf>,
    /// Checkpoints of the journal that stood there already when it was opened.
    pub due: Vec<Checkpoint>,
    /// Copies of what an operator accepts as lost.
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

    /// Copies these lines behind all that are due. Returns at once.
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
                    tracing::warn!("no thread copies checkpoints to {directory} yet: {error}");
                }
            }
        }

        let Some(copier) = &self.copier else { return };
        self.due.drain(..).for_each(|line| copier.copy(line));
    }

    /// Puts copies aside of what an operator accepted as lost, in a file beside the copies.
    pub fn put_aside_given_up(&mut self, journal: Uuid) {
        let given_up = std::mem::take(&mut self.given_up);
        let Some(directory) = self.directory.as_ref().filter(|_| !given_up.is_empty()) else {
            return;
        };

        let file = CheckpointCopies::file_in(directory, journal);
        if let Err(error) = CheckpointFile::at(&file).keep(|line| !given_up.contains(line)) {
            tracing::warn!(
                "copies of checkpoints over records that were accepted as lost stay in {} ({error}); \
                 `organism verify` goes on to report them until `organism repair --accept-loss` can \
                 put them aside",
                file.display()
            );
        }
    }

    pub fn counts(&self) -> Option<CopyMetrics> {
        self.directory.as_ref()?;
        Some(self.copier.as_ref().map(CheckpointCopier::counts).unwrap_or_default())
    }

    /// Waits a moment until everything that is due is copied.
    pub fn finish(&mut self, journal: Uuid) {
        self.copy(journal, []);
        if let Some(copier) = self.copier.take() {
            copier.finish();
        }
    }
}
