//! Copies of a journal's checkpoints, in a directory that the config names. This directory is
//! separate from the data directory, which contains the journal, and from the state directory,
//! which contains the signing key. If a program rewrites a record of the journal, the new record
//! contradicts the copies, even if the program can sign checkpoints with the host's key.
//!
//! The directory may be on another machine, and may be slow, full, read-only or unreachable for a
//! while. This does not stop or delay a pump: a separate OS thread writes the copies, and repeats
//! failed writes later.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use rustix::fs::Access;
use uuid::Uuid;

use crate::ids::Position;
use crate::limits;

use super::Checkpoint;
use super::checkpoint::CheckpointFile;

/// Copies of the checkpoints of one journal, as read from a directory.
#[derive(Debug, Default)]
pub struct CheckpointCopies {
    /// Path of the file with the copies of this journal's checkpoints.
    pub file: PathBuf,
    /// Copied checkpoints in order of position. Contains only those in intact lines.
    pub lines: Vec<Checkpoint>,
    /// Description of the first damaged line of the file; `None` if all lines are intact.
    pub damage: Option<String>,
}

impl CheckpointCopies {
    /// Returns the path of the file in `directory` that holds the copies for `journal`.
    pub fn file_in(directory: &Path, journal: Uuid) -> PathBuf {
        CheckpointFile::new(directory, journal).path().to_owned()
    }

    /// Reads the copied checkpoints of `journal` from their file in `directory`. Returns no copies
    /// if this file does not exist yet, and leaves out damaged lines. `Err` explains why the copies
    /// cannot be read, or states that the read took longer than [`limits::BOUNDS_TIMEOUT`].
    pub fn read(directory: &Path, journal: Uuid) -> Result<Self, String> {
        let file = Self::file_in(directory, journal);
        let (sender, receiver) = channel();
        let outside = CheckpointFile::at(&file);
        let reader = std::thread::Builder::new().name("checkpoint-copies".to_owned());
        // On its own thread, because a file on an unreachable server may block forever.
        let reader = reader.spawn(move || sender.send(outside.read_intact()).ok());
        reader.map_err(|error| error.to_string())?;
        let (lines, damage) = match receiver.recv_timeout(limits::BOUNDS_TIMEOUT) {
            Ok(read) => read.map_err(|error| error.to_string())?,
            Err(_) => {
                let seconds = limits::BOUNDS_TIMEOUT.as_secs();
                return Err(format!("{} gave nothing within {seconds} s", file.display()));
            }
        };

        let mut lines: Vec<_> = lines.into_iter().filter(|line| line.journal == journal).collect();
        lines.sort_by_key(|line| line.position);
        Ok(Self { file, lines, damage })
    }

    /// Returns the position of the last copied checkpoint; 0 if no checkpoint is copied.
    pub fn last(&self) -> Position {
        self.lines.last().map(|line| line.position).unwrap_or_default()
    }

    /// Returns the copied checkpoints at one position. There are several if the journal was
    /// rewritten after a checkpoint at this position was copied.
    pub fn at(&self, position: Position) -> &[Checkpoint] {
        let from = self.lines.partition_point(|line| line.position < position);
        let to = self.lines.partition_point(|line| line.position <= position);
        self.lines.get(from..to).unwrap_or_default()
    }
}

/// Returns the reason why no checkpoint can be copied into `directory`, with advice. Returns `None`
/// if the directory can be used.
pub fn directory_problem(directory: &Path) -> Option<String> {
    let shown = directory.display();
    match std::fs::metadata(directory) {
        Ok(found) if !found.is_dir() => {
            Some(format!("{shown} is no directory: name one with `checkpoints` under [journal]"))
        }
        Ok(_) => {
            let is_writable = rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK);
            let error = is_writable.err()?;
            Some(format!("{shown} cannot be written ({error}): let this user write there"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("{shown} is not there: make it, or mount what holds it"))
        }
        Err(error) => Some(format!("{shown} cannot be read ({error})")),
    }
}

/// Counts of failed and pending copies of checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyMetrics {
    /// Number of failed attempts to copy a checkpoint.
    pub failures: u64,
    /// Number of checkpoints that are not copied yet.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct SharedCounts {
    failures: AtomicU64,
    waiting: AtomicU64,
}

/// An OS thread that copies the checkpoints of one journal into a directory, and the queue of the
/// checkpoints that this OS thread must copy.
#[derive(Debug)]
pub struct CheckpointCopier {
    file: PathBuf,
    /// Queue to the thread that writes copies; `None` once the thread must end.
    lines: Option<Sender<Checkpoint>>,
    /// Channel that closes when the thread that writes copies ends.
    ended: Receiver<()>,
    counts: Arc<SharedCounts>,
}

impl CheckpointCopier {
    /// Starts a thread that copies the checkpoints of `journal` into `directory`.
    pub fn start(directory: &Path, journal: Uuid) -> std::io::Result<Self> {
        let file = CheckpointCopies::file_in(directory, journal);
        // Queue: unbounded, so that a commit never waits for the directory. The worker drops the
        // oldest lines when too many wait, which loses nothing, because each line covers all
        // records before.
        let (lines, receiver) = channel();
        let (ending, ended) = channel();
        let counts = Arc::<SharedCounts>::default();
        let worker = CopyWorker {
            directory: directory.to_owned(),
            outside: CheckpointFile::at(&file),
            receiver,
            waiting: VecDeque::new(),
            failure: None,
            counts: Arc::clone(&counts),
        };

        let thread = std::thread::Builder::new().name("checkpoint-copier".to_owned());
        thread.spawn(move || {
            worker.run();
            drop(ending);
        })?;
        Ok(Self { file, lines: Some(lines), ended, counts })
    }

    /// Queues a checkpoint to be copied. Returns immediately.
    pub fn copy(&self, line: Checkpoint) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if let Some(lines) = &self.lines {
            // The thread ends only after this drop, so the send succeeds.
            lines.send(line).ok();
        }
    }

    pub fn counts(&self) -> CopyMetrics {
        CopyMetrics {
            failures: self.counts.failures.load(Ordering::Relaxed),
            waiting: self.counts.waiting.load(Ordering::Relaxed),
        }
    }

    /// Waits a short time for the queued checkpoints to be copied. The next start of the pump
    /// copies the checkpoints that are still queued then.
    pub fn finish(mut self) {
        self.lines = None;
        let ended = self.ended.recv_timeout(limits::CHECKPOINT_COPY_TIMEOUT);
        let waiting = self.counts().waiting;
        if ended == Err(RecvTimeoutError::Timeout) || waiting > 0 {
            let file = self.file.display();
            tracing::warn!(
                "{waiting} checkpoints were not copied to {file}; the next start copies them"
            );
        }
    }
}

struct CopyWorker {
    directory: PathBuf,
    outside: CheckpointFile,
    receiver: Receiver<Checkpoint>,
    waiting: VecDeque<Checkpoint>,
    /// Reason why the last attempt to copy checkpoints failed; `None` if this attempt succeeded.
    failure: Option<String>,
    counts: Arc<SharedCounts>,
}

impl CopyWorker {
    fn run(mut self) {
        loop {
            let next = if self.waiting.is_empty() {
                self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.receiver.recv_timeout(limits::CHECKPOINT_COPY_RETRY)
            };

            let is_last = match next {
                Ok(line) => {
                    self.waiting.push_back(line);
                    self.waiting.extend(self.receiver.try_iter());
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };

            // Drops the oldest lines: each line covers everything before it.
            while self.waiting.len() > limits::CHECKPOINT_COPIES_WAITING_MAX {
                self.waiting.pop_front();
                self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            }

            if !self.waiting.is_empty() {
                self.write();
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self) {
        let lines = self.waiting.make_contiguous();
        match self.outside.append(lines) {
            Ok(()) => {
                self.counts.waiting.fetch_sub(lines.len() as u64, Ordering::Relaxed);
                self.waiting.clear();
                if self.failure.take().is_some() {
                    let file = self.outside.path().display();
                    tracing::info!("checkpoints are copied to {file} again");
                }
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                let failure = error.to_string();
                if self.failure.as_ref() != Some(&failure) {
                    self.warn(&failure);
                }
                self.failure = Some(failure);
            }
        }
    }

    fn warn(&self, failure: &str) {
        let problem = directory_problem(&self.directory).unwrap_or_else(|| {
            "free its disk or mend it, or name another directory with `checkpoints` under [journal]"
                .to_owned()
        });
        tracing::warn!(
            "checkpoints cannot be copied to {} ({failure}); {problem}. The journal continues, and \
             the checkpoints are copied later; until then, anyone who has the key could rewrite \
             the journal without a trace",
            self.outside.path().display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::Digest;

    fn line(journal: Uuid, position: u64) -> Checkpoint {
        Checkpoint {
            journal,
            position: Position(position),
            count: position,
            merkle_root: Digest::of(&position.to_be_bytes()),
            time: Time(0),
            proved_from: None,
            key: String::new(),
            signature: String::new(),
        }
    }

    #[test]
    fn lines_that_found_no_directory_are_copied_when_it_is_there() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("copies");
        let journal = Uuid::now_v7();
        let copier = CheckpointCopier::start(&directory, journal).unwrap();
        copier.copy(line(journal, 1));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while copier.counts().failures == 0 && std::time::Instant::now() < until {
            std::thread::yield_now();
        }

        assert_eq!(copier.counts(), CopyMetrics { failures: 1, waiting: 1 });

        std::fs::create_dir(&directory).unwrap();
        copier.copy(line(journal, 2));
        copier.finish();
        let copies = CheckpointCopies::read(&directory, journal).unwrap();
        assert_eq!(copies.lines, [line(journal, 1), line(journal, 2)]);
    }

    #[test]
    fn a_damaged_line_hides_none_of_the_other_copies() {
        let home = tempfile::tempdir().unwrap();
        let journal = Uuid::now_v7();
        let file = CheckpointFile::new(home.path(), journal);
        std::fs::write(file.path(), "garbage\n").unwrap();
        file.append(&[line(journal, 1)]).unwrap();

        let copies = CheckpointCopies::read(home.path(), journal).unwrap();
        assert_eq!(copies.lines, [line(journal, 1)]);
        assert_eq!(copies.damage.as_deref(), Some("line 1 is damaged at column 1"));
    }

    #[test]
    fn two_journals_in_one_directory_have_a_file_each() {
        let home = tempfile::tempdir().unwrap();
        let journals = [Uuid::now_v7(), Uuid::now_v7()];
        for journal in journals {
            let copier = CheckpointCopier::start(home.path(), journal).unwrap();
            copier.copy(line(journal, 7));
            copier.finish();
        }

        for journal in journals {
            let copies = CheckpointCopies::read(home.path(), journal).unwrap();
            assert_eq!(copies.lines, [line(journal, 7)]);
        }
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named_with_the_way_on() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(directory_problem(home.path()), None);
        let gone = directory_problem(&home.path().join("gone")).unwrap();
        assert!(gone.contains("is not there: make it"), "{gone}");
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        let none = directory_problem(&file).unwrap();
        assert!(none.contains("is no directory"), "{none}");
    }
}
