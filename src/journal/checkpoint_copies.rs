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
use std::time::Duration;

use rustix::fs::Access;
use uuid::Uuid;

use crate::ids::Position;
use crate::io_reason::io_reason;
use crate::limits;
use crate::plural::{count, form};

use super::Checkpoint;
use super::checkpoint::CheckpointFile;
use super::checkpoint_lines::{LastLines, TimedLineReader, no_response, unreadable};

/// Copies of the checkpoints of one journal, as read from the end of their file in a directory. The
/// file grows as long as the journal does, so a start keeps only its last lines in memory, and
/// compares the earlier lines with the journal while it reads them.
#[derive(Debug, Default)]
pub struct CheckpointCopies {
    /// Path of the file with the copies of this journal's checkpoints.
    pub file: PathBuf,
    /// The last copied checkpoints in order of position. Contains only those in intact lines.
    pub lines: Vec<Checkpoint>,
    /// Description of the first damaged line among the last lines; `None` if they are intact.
    pub damage: Option<String>,
    /// Reason why the copies cannot be read; `None` if they were read.
    pub unread: Option<String>,
    /// Highest position of an earlier line that the journal does not reach; 0 if there is none, or
    /// if the earlier lines were not compared.
    pub earlier_beyond: Position,
    journal: Uuid,
    /// Offset of the last lines in the file; 0 if they are all lines of the file.
    from: u64,
    /// Length of the part of the file that must still be compared with the journal.
    uncompared: u64,
}

/// Limits of a read of all copied checkpoints. The default has no limits.
pub struct ReadPatience<'r> {
    /// Total time to wait for the file.
    pub total: Duration,
    /// Returns true once the copies are not needed any more.
    pub is_stopped: &'r dyn Fn() -> bool,
}

impl Default for ReadPatience<'_> {
    fn default() -> Self {
        Self { total: Duration::MAX, is_stopped: &|| false }
    }
}

impl CheckpointCopies {
    /// Returns the path of the file in `directory` that holds the copies for `journal`.
    pub fn file_in(directory: &Path, journal: Uuid) -> PathBuf {
        CheckpointFile::new(directory, journal).path().to_owned()
    }

    /// Returns no copies, because they cannot be read for the given reason.
    pub fn unread(reason: String) -> Self {
        Self { unread: Some(reason), ..Self::default() }
    }

    /// Reads the last copied checkpoints of `journal` from their file in `directory`, at most
    /// [`limits::CHECKPOINT_COPIES_END_BYTES`]. If these bytes contain no intact line, reads those
    /// before them. Returns no copies if this file does not exist yet, and leaves out damaged lines.
    /// `Err` explains why the copies cannot be read, or states that a part of this length took
    /// longer than [`limits::BOUNDS_TIMEOUT`].
    pub fn read(directory: &Path, journal: Uuid) -> Result<Self, String> {
        let file = Self::file_in(directory, journal);
        let (sender, receiver) = channel();
        let path = file.clone();
        let reader = std::thread::Builder::new().name("checkpoint-copies".to_owned());
        // On its own thread, because a file on an unreachable server may block forever.
        let reader = reader.spawn(move || {
            let mut alive = || drop(sender.send(None));
            let end = LastLines::read(&path, limits::CHECKPOINT_COPIES_END_BYTES, &mut alive);
            sender.send(Some(end)).ok();
        });
        reader.map_err(|error| error.to_string())?;
        let end = loop {
            let received = receiver.recv_timeout(limits::BOUNDS_TIMEOUT);
            if let Some(end) = received.map_err(|_| no_response(&file))? {
                break end;
            }
        };
        let end = end.map_err(|error| unreadable(&file, &error))?;

        let LastLines { checkpoints, from, damage } = end;
        let mut lines = checkpoints;
        lines.retain(|line| line.journal == journal);
        lines.sort_by_key(|line| line.position);
        let uncompared = from;
        Ok(Self { file, lines, damage, journal, from, uncompared, ..Self::default() })
    }

    /// Calls `visit` with each copied checkpoint of `journal` in `directory`, oldest first. Visits
    /// nothing if their file does not exist yet. Returns a description of the first damaged line;
    /// `None` if all lines are intact. `Err` explains why the copies cannot be read, or states that
    /// a block of their file took longer than [`limits::BOUNDS_TIMEOUT`].
    pub fn visit(
        directory: &Path,
        journal: Uuid,
        visit: &mut dyn FnMut(Checkpoint),
    ) -> Result<Option<String>, String> {
        let file = Self::file_in(directory, journal);
        Self::visit_start_of(&file, u64::MAX, journal, &ReadPatience::default(), visit)
    }

    /// Visits copied checkpoints as [`CheckpointCopies::visit`] does, but only those in the first
    /// `bytes` bytes of `file`, and only within the limits of `patience`.
    fn visit_start_of(
        file: &Path,
        bytes: u64,
        journal: Uuid,
        patience: &ReadPatience<'_>,
        visit: &mut dyn FnMut(Checkpoint),
    ) -> Result<Option<String>, String> {
        let reader = TimedLineReader::start(file, bytes, patience.total);
        let mut reader = reader.map_err(|error| error.to_string())?;
        while let Some(line) = reader.next_checkpoint()? {
            if (patience.is_stopped)() {
                return Ok(None);
            }
            if line.journal == journal {
                visit(line);
            }
        }

        Ok(reader.damage().map(str::to_owned))
    }

    /// Reads the lines before the last lines of the file into `lines`, too. Needs memory for all
    /// lines, so it is called only if an operator accepts a loss of records.
    pub fn read_earlier(&mut self) -> Result<(), String> {
        if self.from == 0 {
            return Ok(());
        }

        let mut earlier = Vec::new();
        let push = &mut |line| earlier.push(line);
        let damage = Self::visit_start_of(
            &self.file,
            self.from,
            self.journal,
            &ReadPatience::default(),
            push,
        )?;
        earlier.append(&mut self.lines);
        earlier.sort_by_key(|line| line.position);
        self.lines = earlier;
        self.damage = damage.or(self.damage.take());
        self.from = 0;
        Ok(())
    }

    /// Calls `visit` with each copied checkpoint before the last lines of the file, in the order of
    /// the file, unless a call has done so before. If `visit` returns false, the next call visits
    /// them again. If some of them cannot be read within the limits of `patience`, logs this.
    pub fn visit_earlier(
        &mut self,
        patience: &ReadPatience<'_>,
        visit: &mut dyn FnMut(Checkpoint) -> bool,
    ) {
        let mut is_done = true;
        let visit = &mut |line| is_done &= visit(line);
        let bytes = self.uncompared;
        let read = Self::visit_start_of(&self.file, bytes, self.journal, patience, visit);
        if let Err(reason) | Ok(Some(reason)) = read {
            let file = self.file.display();
            tracing::warn!("the journal is not compared with all copies in {file}: {reason}");
        }

        if is_done {
            self.uncompared = 0;
        }
    }

    /// Whether a part of the file before the last lines must still be compared with the journal.
    pub fn has_uncompared(&self) -> bool {
        self.uncompared > 0
    }

    /// Whether the file has lines before the last ones.
    pub fn has_earlier(&self) -> bool {
        self.from > 0
    }

    /// Compares only the last lines of the file, for a start that does not read the records before
    /// its snapshot. The proof behind the snapshot compares the earlier lines.
    pub fn skip_earlier(&mut self) {
        self.uncompared = 0;
    }

    /// Keeps further copied checkpoints among the last ones.
    pub fn keep(&mut self, lines: Vec<Checkpoint>) {
        self.lines.extend(lines);
        self.lines.sort_by_key(|line| line.position);
    }

    /// Returns the highest position of a copied checkpoint; 0 if no checkpoint is copied. Considers
    /// only the last lines of the file, and those earlier lines that were compared.
    pub fn last(&self) -> Position {
        let last = self.lines.last().map(|line| line.position).unwrap_or_default();
        last.max(self.earlier_beyond)
    }

    /// Returns those of the last copied checkpoints that are at one position. There are several if
    /// the journal was rewritten after a checkpoint at this position was copied.
    pub fn at(&self, position: Position) -> &[Checkpoint] {
        let from = self.lines.partition_point(|line| line.position < position);
        let to = self.lines.partition_point(|line| line.position <= position);
        self.lines.get(from..to).unwrap_or_default()
    }

    /// Whether `line`, a checkpoint of the journal, needs no copy, because it is copied, or because
    /// its position is before those of the last copied checkpoints.
    pub fn is_copied(&self, line: &Checkpoint) -> bool {
        let first = self.lines.first().filter(|_| self.from > 0);
        let is_earlier = first.is_some_and(|first| line.position < first.position);
        is_earlier || self.at(line.position).contains(line)
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
            Some(format!(
                "{shown} cannot be written ({}): let this user write there",
                io_reason(&error.into())
            ))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("{shown} is not there: make it, or mount what holds it"))
        }
        Err(error) => Some(format!("{shown} cannot be read ({})", io_reason(&error))),
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
                "{} {} not copied to {file}; the next start copies {}",
                count(waiting, "checkpoint"),
                form(waiting, "was", "were"),
                form(waiting, "it", "them")
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
            format!(
                "{failure}; free its disk or mend it, or name another directory with `checkpoints` \
                 under [journal]"
            )
        });
        tracing::warn!(
            "checkpoints cannot be copied to {}: {problem}. The journal continues, and the \
             checkpoints are copied later; until then, a holder of the key could rewrite the \
             journal without a trace",
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
        let until = std::time::Instant::now() + Duration::from_secs(30);
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
    fn a_start_reads_only_the_end_of_a_long_file_and_compares_the_rest_with_the_records() {
        let home = tempfile::tempdir().unwrap();
        let journal = Uuid::now_v7();
        let file = CheckpointFile::new(home.path(), journal);
        let all: Vec<_> = (1..=20_000).map(|position| line(journal, position)).collect();
        file.append(&all).unwrap();
        let bytes = std::fs::metadata(file.path()).unwrap().len();
        assert!(bytes > 2 * limits::CHECKPOINT_COPIES_END_BYTES, "{bytes}");

        let mut copies = CheckpointCopies::read(home.path(), journal).unwrap();
        assert_eq!(copies.last(), Position(20_000));
        let read = copies.lines.len() as u64;
        assert!(read * bytes < 20_000 * limits::CHECKPOINT_COPIES_END_BYTES, "{read}");
        let first = copies.lines.first().unwrap().position;
        assert_eq!(first.0 + read, 20_001, "no line is left out");
        assert!(copies.is_copied(&line(journal, 1)));
        assert!(copies.is_copied(&line(journal, 20_000)));
        assert!(!copies.is_copied(&line(journal, 20_001)));

        let mut found = Vec::new();
        copies.visit_earlier(&ReadPatience::default(), &mut |line| {
            found.push(line);
            true
        });
        assert_eq!([found, copies.lines.clone()].concat(), all);
        assert!(!copies.has_uncompared());
        copies.read_earlier().unwrap();
        assert_eq!(copies.lines, all);
    }

    #[test]
    fn blank_lines_at_the_end_of_the_file_hide_no_copy() {
        let home = tempfile::tempdir().unwrap();
        let journal = Uuid::now_v7();
        let file = CheckpointFile::new(home.path(), journal);
        file.append(&[line(journal, 7)]).unwrap();
        for filler in ["\n", "x", " \n"] {
            let count = 3 * limits::CHECKPOINT_COPIES_END_BYTES as usize / filler.len();
            let blank = filler.repeat(count);
            let text = [std::fs::read_to_string(file.path()).unwrap(), blank].concat();
            std::fs::write(file.path(), text).unwrap();
            let copies = CheckpointCopies::read(home.path(), journal).unwrap();
            assert_eq!(copies.last(), Position(7));
        }
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
