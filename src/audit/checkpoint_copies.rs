//! Copies of the journal's checkpoints, which are signed statements about the records up to a
//! position. Verification compares the journal with these copies. A copy outside the state
//! directory protects the journal even from an attacker who knows the journal's key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::checkpoint::CheckpointFile;
use crate::journal::sqlite::require_free;
use crate::journal::{
    Checkpoint, CheckpointCopies, CheckpointSigners, Error, KeyId, TreeHeads, directory_problem,
};
use crate::limits;
use crate::mutant::mutant;

use super::report::OutsideVerdict;
use super::verify::VerifyOptions;

/// Interval at which the copies in a directory are read again, while a running pump has not yet
/// copied the journal's last checkpoint.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// One file that contains copies of checkpoints.
#[derive(Debug)]
struct CopyFile {
    path: PathBuf,
    /// Copies that were not yet equal to a checkpoint in the journal when the file was read.
    lines: Vec<Checkpoint>,
    /// Positions of the copies that are equal to checkpoints in the journal.
    equal: BTreeSet<Position>,
    /// Whether the file is outside the directories of the journal and of its key.
    is_elsewhere: bool,
    /// Whether copies in the file can prove the journal. False for the file in a state directory
    /// that the auditor distrusts. However, a copy in that file that contradicts the journal is
    /// still reported.
    counts: bool,
}

/// A copy of a checkpoint that contradicts the journal, or whose signature is false. A copy
/// contradicts the journal if:
/// - the journal has another checkpoint or none at the position of the copy, or
/// - the journal's records are not those that the copy covers.
#[derive(Debug)]
pub(super) struct CopyDifference {
    /// Position of the copied checkpoint.
    pub position: Position,
    pub file: PathBuf,
    /// Position of the violation. If the journal ends before the copy, this is the position after
    /// the journal's last record.
    at: Position,
    /// Description of the contradiction, with advice for the reader.
    detail: String,
}

impl CopyDifference {
    pub fn violation(&self) -> Error {
        Error::Broken { position: self.at.0, detail: self.detail.clone() }
    }

    /// Describes the copy `line` in `file`, which contradicts a journal with the last record `last`
    /// and the last checkpoint `due`. `has_other` states whether the journal has another checkpoint
    /// at the position of the copy.
    fn of_journal(
        line: &Checkpoint,
        file: &Path,
        has_other: bool,
        last: Position,
        due: Position,
    ) -> Self {
        let position = line.position;
        let copy = format!("the checkpoint in {}", file.display());
        let backup = if position > due {
            "if `organism backup` made this journal in DIR, prove it with `organism verify DIR`; \
             otherwise "
        } else {
            ""
        };
        let detail = if !line.is_genuine() {
            false_signature(file)
        } else if has_other {
            format!("{copy} is not the one in the journal; restore a backup")
        } else if position > last {
            format!(
                "it ends here, but {copy} covers the records up to {position}; {backup}restore a \
                 newer backup, or accept the loss with `organism repair --accept-loss`"
            )
        } else {
            format!(
                "{copy} over the records up to here is not in the journal; {backup}restore a \
                 backup, or put it back with `organism repair --accept-loss`"
            )
        };
        let at = position.min(Position(last.0 + 1));
        Self { position, file: file.to_owned(), at, detail }
    }
}

/// Describes a copy of a checkpoint in `file` whose signature is false.
fn false_signature(file: &Path) -> String {
    format!(
        "the copy of a checkpoint in {} is damaged or forged, because its signature is false; \
         compare with another copy",
        file.display()
    )
}

/// A copy of a checkpoint that is newer than the last checkpoint in the journal. If the journal is
/// a backup, newer copies are normal.
#[derive(Debug)]
struct LaterCopy {
    line: Checkpoint,
    file: PathBuf,
    is_elsewhere: bool,
}

/// The checkpoints in a journal with which the lines of each file of copies are compared while the
/// file is read. A file of copies grows as long as the journal does, so its lines are not kept.
#[derive(Debug)]
pub(super) struct ComparedJournal<'c> {
    pub journal: Uuid,
    /// Checkpoints in the journal itself, in order of position.
    pub inside: &'c [Checkpoint],
    /// Last record, if the journal is a backup. Copies for later positions do not count then.
    pub end: Option<Position>,
}

/// Copies that were read from one file.
#[derive(Debug, Default)]
struct ReadCopies {
    lines: Vec<Checkpoint>,
    equal: BTreeSet<Position>,
    /// Public keys of all copies in the file.
    keys: BTreeSet<String>,
}

impl ReadCopies {
    /// Compares the next copy with the journal. Keeps the copy only if the journal has no equal
    /// checkpoint.
    fn take(&mut self, line: Checkpoint, compared: &ComparedJournal<'_>) {
        if !self.keys.contains(&line.key) {
            self.keys.insert(line.key.clone());
        }

        if checkpoint_at(compared.inside, line.position) == Some(&line) {
            self.equal.insert(line.position);
        } else if compared.end.is_none_or(|end| line.position <= end) {
            self.lines.push(line);
        }
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Returns the checkpoint of the journal at `position`. `inside` are its checkpoints in order of
/// position.
fn checkpoint_at(inside: &[Checkpoint], position: Position) -> Option<&Checkpoint> {
    let found = inside.binary_search_by_key(&position, |inside| inside.position);
    inside.get(found.ok()?)
}

/// All copies of the journal's checkpoints that were read.
#[derive(Debug, Default)]
pub(super) struct CopyEvidence {
    files: Vec<CopyFile>,
    /// Whether the auditor named a state directory. Also true if `distrust_state` excludes this
    /// directory from the proof.
    has_state: bool,
    /// Reason why the configured directory contains no copies of the journal's checkpoints. `None`
    /// if the directory contains copies, if it cannot be read, or if no directory is configured.
    lacking: Option<String>,
    /// Position of the last checkpoint in the journal itself when the copies were read.
    due: Position,
    /// Positions of the copies that agree with the journal. Contains only copies outside the
    /// directories of the journal and of its key, because only these are proofs.
    agreeing: BTreeSet<Position>,
    /// Whether a copy contradicts the journal, and no operator has accepted the loss of the records
    /// that this copy covers.
    pub is_contradicted: bool,
    /// Copies of checkpoints that are newer than the journal's last checkpoint, newest first.
    later: Vec<LaterCopy>,
    later_differences: Vec<CopyDifference>,
    /// Keys that signed newer copies: copies of checkpoints after the journal's last checkpoint.
    /// Contains only keys of copies that agree with the journal's records. These keys are kept
    /// separate from the keys of the journal's checkpoints, so that a copy cannot add a trusted
    /// key.
    pub later_signers: CheckpointSigners,
    /// Reasons why some or all copies in the named files and directories cannot serve as proof.
    pub unread: Vec<String>,
    /// Public keys of the checkpoints in the files that the auditor named.
    pub pinned_keys: BTreeSet<String>,
}

impl CopyEvidence {
    /// Reads the copies of checkpoints that the options name. `data` is the directory of the
    /// journal.
    pub fn read(
        data: &Path,
        options: &VerifyOptions,
        compared: &ComparedJournal<'_>,
    ) -> Result<Self, Error> {
        let due = compared.inside.last().map(|line| line.position).unwrap_or_default();
        let mut copies = Self { due, has_state: options.state.is_some(), ..Self::default() };
        for path in &options.copies {
            copies.add_named(data, options, compared, path)?;
        }

        if let Some(directory) = &options.checkpoints {
            copies.add_directory(data, directory, compared);
        }

        if let Some(state) = &options.state {
            let outside = CheckpointFile::new(state, compared.journal);
            let (read, unread) = read_lines(&outside, compared, &|_| true);
            copies.add(outside.path(), read, false, !options.distrust_state);
            // The auditor expects no proof from a state directory that is distrusted.
            copies.unread.extend(unread.filter(|_| !options.distrust_state));
        }

        Ok(copies)
    }

    fn add(&mut self, path: &Path, read: ReadCopies, is_elsewhere: bool, counts: bool) {
        if read.is_empty() {
            return;
        }

        let ReadCopies { lines, equal, .. } = read;
        let path = path.to_owned();
        self.files.push(CopyFile { path, lines, equal, is_elsewhere, counts });
    }

    fn add_named(
        &mut self,
        data: &Path,
        options: &VerifyOptions,
        compared: &ComparedJournal<'_>,
        path: &Path,
    ) -> Result<(), Error> {
        let journal = compared.journal;
        let is_of_journal = |line: &Checkpoint| line.journal == journal;
        let (read, unread) = read_lines(&CheckpointFile::at(path), compared, &is_of_journal);
        let is_whole = unread.is_none();
        self.unread.extend(unread);
        if read.is_empty() && !is_whole {
            return Ok(());
        }
        if read.is_empty() {
            let detail = format!(
                "{} contains no checkpoint of the journal {journal}: either the journal or the \
                 copy is another one",
                path.display()
            );
            return Err(Error::Broken { position: 0, detail });
        }

        let own = [Some(data), options.state.as_deref(), options.key_state.as_deref()];
        let is_own = own.into_iter().flatten().any(|own| is_in(path, own));
        if is_own {
            self.unread.push(format!(
                "{} is in the directory of the journal or of its key, so it is not a copy on other \
                 storage",
                path.display()
            ));
        } else {
            self.pinned_keys.extend(read.keys.iter().cloned());
        }

        self.add(path, read, !is_own, true);
        Ok(())
    }

    /// Reads the copies in a directory. If a running pump has not copied the journal's last
    /// checkpoint to the directory yet, waits for this copy for a limited time.
    fn add_directory(&mut self, data: &Path, directory: &Path, compared: &ComparedJournal<'_>) {
        self.wait_for_copy(data, directory, compared.journal);
        let file = CheckpointCopies::file_in(directory, compared.journal);
        let mut read = ReadCopies::default();
        let visit = &mut |line| read.take(line, compared);
        match CheckpointCopies::visit(directory, compared.journal, visit) {
            Ok(damage) => {
                self.unread.extend(damage.map(|damage| not_compared(&file, &damage)));
                if read.is_empty() {
                    let none =
                        || format!("{} contains no copy of the checkpoints", directory.display());
                    self.lacking = directory_problem(directory).or_else(|| Some(none()));
                }
            }
            Err(reason) => {
                let directory = directory.display();
                let text = format!("the copies in {directory} cannot be read: {reason}");
                self.unread.push(text);
            }
        }

        self.add(&file, read, true, true);
    }

    /// Waits for the copy of the journal's last checkpoint in `directory`, as long as a pump runs
    /// that has not made this copy yet, at most for [`limits::CHECKPOINT_COPY_TIMEOUT`]. Returns at
    /// once if the copies cannot be read.
    fn wait_for_copy(&self, data: &Path, directory: &Path, journal: Uuid) {
        let until = Instant::now() + limits::CHECKPOINT_COPY_TIMEOUT;
        let is_late = || {
            let copies = CheckpointCopies::read(directory, journal);
            copies.is_ok_and(|copies| copies.last() < self.due) && require_free(data).is_err()
        };
        while is_late() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Sets aside the copies that are newer than the journal's last checkpoint, for
    /// [`CopyEvidence::compare_later`]. Drops copies for positions after `last`, the position of
    /// the journal's last record, because the journal lacks their records.
    pub fn set_later_aside(&mut self, last: Position) {
        for file in &mut self.files {
            let later = file.lines.extract_if(.., |line| line.position > self.due);
            self.later.extend(later.filter(|line| line.position <= last).map(|line| LaterCopy {
                line,
                file: file.path.clone(),
                is_elsewhere: file.is_elsewhere,
            }));
        }
        self.later.sort_by_key(|later| std::cmp::Reverse(later.line.position));
        let is_compared = |file: &CopyFile| self.later.iter().any(|later| later.file == file.path);
        let is_used =
            |file: &CopyFile| !file.lines.is_empty() || !file.equal.is_empty() || is_compared(file);
        self.files.retain(is_used);
    }

    /// Compares the copies that [`CopyEvidence::set_later_aside`] has kept with `heads`, the heads
    /// of all trees after the records read so far. These copies are newer than the journal's last
    /// checkpoint. Handles only copies at or before the last record read. A copy agrees if all of
    /// this is true:
    /// - The copy is genuine.
    /// - Its position is that of the last record read.
    /// - It has the same Merkle root as `heads`.
    ///
    /// Any other copy becomes a difference. An agreeing copy proves the records up to its position
    /// if the copy is outside the directories of the journal and of the journal's key. If a trusted
    /// key signed such a copy, the copy also covers these records, as a checkpoint in the journal
    /// does.
    pub fn compare_later(&mut self, heads: &mut TreeHeads) {
        let position = heads.last();
        while let Some(later) = self.later.pop_if(|later| later.line.position <= position) {
            let is_genuine = later.line.is_genuine();
            let is_same = later.line.position == position
                && is_genuine
                && later.line.merkle_root == heads.merkle_root();
            if !is_same {
                let detail = if is_genuine {
                    format!(
                        "the records up to here are not those of the checkpoint in {}, signed with \
                         the key {}; compare with another copy, or restore another backup",
                        later.file.display(),
                        KeyId::of(&later.line.key)
                    )
                } else {
                    false_signature(&later.file)
                };
                let file = later.file;
                let difference = CopyDifference { position, file, at: position, detail };
                self.later_differences.push(difference);
            } else if later.is_elsewhere {
                self.agreeing.insert(position);
                self.later_signers.take_checkpoint(&later.line);
            }
        }
    }

    /// Returns the differences of copies that [`CopyEvidence::compare_later`] has found to
    /// contradict the journal's records. Each call returns only those found since the previous
    /// call.
    pub fn later_differences(&mut self) -> Vec<CopyDifference> {
        std::mem::take(&mut self.later_differences)
    }

    /// Returns the copies that differ from `inside`, the checkpoints in the journal itself. `last`
    /// is the position of the journal's last record. Any other copy proves all records up to its
    /// position, if this copy is outside the directories of the journal and of the journal's key.
    pub fn differences(&mut self, inside: &[Checkpoint], last: Position) -> Vec<CopyDifference> {
        let mut differences = Vec::new();
        for file in &mut self.files {
            let is_proof = file.is_elsewhere || mutant("trust-the-state");
            if is_proof {
                self.agreeing.append(&mut file.equal);
            }

            for line in &file.lines {
                let position = line.position;
                let found = checkpoint_at(inside, position);
                if found != Some(line) {
                    let has_other = found.is_some();
                    let path = &file.path;
                    let difference =
                        CopyDifference::of_journal(line, path, has_other, last, self.due);
                    differences.push(difference);
                } else if is_proof {
                    self.agreeing.insert(position);
                }
            }
        }

        differences
    }

    pub fn state(&self) -> OutsideVerdict {
        if self.is_contradicted {
            return OutsideVerdict::Disagrees;
        }

        match self.files.iter().find(|file| file.counts) {
            Some(_) if !self.agreeing.is_empty() => OutsideVerdict::Agrees,
            Some(_) => OutsideVerdict::StateAgrees,
            None if self.has_state => OutsideVerdict::Missing,
            None => OutsideVerdict::NotCompared,
        }
    }

    /// Returns the position of the last copy up to `end` that agrees with the journal; 0 if there
    /// is none. This copy proves all records up to its position. Only copies outside the
    /// directories of the journal and of its key count, because other copies prove nothing.
    pub fn vouched(&self, end: Position) -> Position {
        self.agreeing.range(..=end).next_back().copied().unwrap_or_default()
    }

    /// Returns the files whose copies of checkpoints can prove the journal. Excludes the file in a
    /// state directory that the auditor distrusts.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|file| file.counts);
        files.map(|file| file.path.clone()).collect()
    }

    /// Returns why the copies do not protect the journal from an attacker who knows its key.
    /// Returns `None` if the copies protect the journal. Also returns `None` if they contradict the
    /// journal, because this is reported as a violation instead.
    pub fn reason(&self) -> Option<String> {
        let vouched = self.agreeing.last().copied().unwrap_or_default();
        let due = self.due;
        if vouched > Position(0) && vouched >= due {
            return None;
        }

        let name_place = "name a directory for copies with `checkpoints` under [journal], or \
                          compare with a copy on other storage with `--checkpoint FILE`";
        let way_on = self.lacking.as_deref().unwrap_or(name_place);
        Some(match self.state() {
            OutsideVerdict::Agrees => format!(
                "the copies elsewhere vouch for the records up to {vouched}, and not up to the last \
                 checkpoint at {due}"
            ),
            OutsideVerdict::StateAgrees => format!(
                "only the state directory vouches for the journal: a holder of the key could have rewritten \
                 journal and state together; {way_on}"
            ),
            OutsideVerdict::Disagrees => return None,
            OutsideVerdict::Missing | OutsideVerdict::NotCompared => {
                format!("no checkpoint outside the journal was seen; {way_on}")
            }
        })
    }
}

/// Reads the intact copies in `file` for which `is_used` is true. Also returns the reason why some
/// copies cannot be compared with the journal, or `None` if all copies can be compared.
fn read_lines(
    file: &CheckpointFile,
    compared: &ComparedJournal<'_>,
    is_used: &dyn Fn(&Checkpoint) -> bool,
) -> (ReadCopies, Option<String>) {
    let mut read = ReadCopies::default();
    let damage = file.visit_intact(&mut |line| {
        if is_used(&line) {
            read.take(line, compared);
        }
    });
    let unread = match damage {
        Ok(damage) => damage.map(|damage| not_compared(file.path(), &damage)),
        Err(error) => Some(format!("the copies of checkpoints were not compared: {error}")),
    };
    (read, unread)
}

/// Returns a sentence which states why some copies in `file` cannot be compared with the journal.
fn not_compared(file: &Path, damage: &str) -> String {
    format!("not all copies of checkpoints in {} were compared: {damage}", file.display())
}

/// Whether `file` is in `directory`, or in a directory beneath it. Symbolic links in both paths are
/// resolved first. A path that cannot be resolved is compared as it is written.
fn is_in(file: &Path, directory: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(file).starts_with(real(directory))
}
