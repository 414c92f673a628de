//! The marks of a journal: data outside the journal's file that shows which records the journal
//! had. The marks are a note with the id of the journal, the watermark of acknowledged records, and
//! the checkpoints. If a journal contradicts one of these marks, a pump starts on it only if a
//! recorded action of an operator accepts the loss.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{AcceptedLoss, Input};

use super::checkpoint::CheckpointFile;
use super::checkpoint_copies::ReadPatience;
use super::commit_watermark::{CommitWatermark, damaged_watermark, warn_of_damaged_watermark};
use super::earlier_copies::{ComparedRecords, EarlierFindings};
use super::signers::CheckpointSigners;
use super::sqlite::{DATABASE, noted_journal};
use super::{Checkpoint, CheckpointCopies, Error, HashedRecord, TreeHeads, partition_in};

/// Returns advice to an operator for a journal with missing records. `with_key` states whether the
/// MACs of the remaining records are made with the key of another host. If so, the advice also
/// explains how to accept this key.
fn way_on(with_key: bool) -> &'static str {
    if with_key {
        "restore a backup (docs/OPERATIONS.md, Restore), or go on without what is missing, and \
             with what another key signed, with `organism repair --accept-loss --accept-key`"
    } else {
        "restore a backup (docs/OPERATIONS.md, Restore), or go on without what is missing with \
             `organism repair --accept-loss`"
    }
}

/// Advice to an operator for a partition whose journal file is lost. This file is a copy of a
/// stream.
const COPIED_AGAIN: &str = "`organism run` copies it again from its stream";

/// The marks that a journal has outside its file, such as its watermark and its checkpoints. A pump
/// compares the journal with these marks when it starts.
#[derive(Debug, Default)]
pub(super) struct ExternalMarks {
    /// Whether the journal may have been written before MACs existed. True if the state directory
    /// has no watermark of the journal. In this case, this host has never acknowledged a record of
    /// the journal, and does not know the journal's age.
    pub is_old: bool,
    /// Position and hash of the last acknowledged record.
    pub mark: (Position, Digest),
    /// The latest checkpoint in the state directory; `None` if this directory has no checkpoint.
    pub latest: Option<Checkpoint>,
    /// The journal that was in the data directory before this one: its id, and its last
    /// acknowledged record. `None` if there was no such journal, or if none of its records was
    /// acknowledged.
    pub before: Option<(Uuid, Position)>,
    /// Keys that signed checkpoints of the journal, and recorded actions in which operators have
    /// declared that they trust keys. Used only if the journal file is a copy of a stream.
    pub signers: CheckpointSigners,
    /// Position up to which the last checkpoint in the journal's own file covers the records.
    pub inside: Position,
    /// Whether the journal's MACs are made with the key of another host.
    pub with_key: bool,
    /// Copied checkpoints, as read from the directory for copies that the config names.
    pub copies: CheckpointCopies,
    /// Copied checkpoints that contradict the records of the journal. Contains those of the last
    /// lines of their file, and of the earlier lines only those that matter.
    differing: Vec<Checkpoint>,
    /// Position of the first copied checkpoint before the last lines that the journal lacks,
    /// although it has its records.
    missing: Option<Position>,
    /// Merkle roots of the records up to the last record, and up to those checkpoints in the
    /// journal that contradict the records.
    roots: BTreeMap<Position, Digest>,
    /// Copied checkpoints that cover lost records. A recorded action of an operator accepts this
    /// loss.
    pub forgiven: Vec<Checkpoint>,
    /// Losses of records that operators accepted in recorded actions.
    losses: Vec<AcceptedLoss>,
    /// The error for the first record that contradicts the watermark or the latest checkpoint in
    /// the state directory. `None` if no such record was found.
    disagreement: Option<Error>,
}

impl ExternalMarks {
    /// Reads the marks that show which records `journal` had: the watermark and the latest
    /// checkpoint from `state`, and the copied checkpoints from `copies`. `data` contains the
    /// journal's file. If the watermark or a copied checkpoint is damaged, or the copied
    /// checkpoints cannot be read, logs this and leaves out the marks concerned. Reads only the
    /// ends of the files with checkpoints, so that a start does not take longer as they grow.
    pub fn read(
        data: &Path,
        state: &Path,
        copies: Option<&Path>,
        journal: Uuid,
    ) -> Result<Self, Error> {
        warn_of_damaged_watermark(state, journal)?;
        let noted = CommitWatermark::read(state, journal)?;
        let mark = noted.or(CommitWatermark::read_beside(data)?).unwrap_or_default();
        let latest = CheckpointFile::new(state, journal).last()?;
        let before = replaced(data, state, journal)?;
        let copies = copies.filter(|_| !mutant("trust-no-copy"));
        let copies = copies.map(|directory| read_copies(directory, journal)).unwrap_or_default();
        Ok(Self { is_old: noted.is_none(), mark, latest, before, copies, ..Self::default() })
    }

    /// Prepares the marks for a pump that starts from a snapshot. `losses` are the losses of
    /// records that operators accepted in recorded actions up to the snapshot. `checkpoint` is the
    /// checkpoint of the snapshot, and `hash` is the hash of the record at the checkpoint's
    /// position.
    ///
    /// # Errors
    ///
    /// Returns an error if the watermark is at the position of `checkpoint`, but has a hash other
    /// than `hash`.
    pub fn continue_after(
        &mut self,
        checkpoint: &Checkpoint,
        hash: Digest,
        losses: Vec<AcceptedLoss>,
    ) -> Result<(), Error> {
        let position = checkpoint.position;
        if self.mark.0 == position && self.mark.1 != hash {
            return Err(Error::broken(position.0, "it is not the record that was acknowledged"));
        }

        self.copies.skip_earlier();
        self.losses = losses;
        Ok(())
    }

    /// Adds further losses of records that operators accepted. The actions that accept these losses
    /// may be later than the snapshot from which the pump starts.
    pub fn accept_losses(&mut self, later: &[AcceptedLoss]) {
        self.losses.extend_from_slice(later);
    }

    /// Returns the losses of records that operators accepted in recorded actions.
    pub fn losses(&self) -> &[AcceptedLoss] {
        &self.losses
    }

    pub fn latest_position(&self) -> Position {
        self.latest.as_ref().map(|latest| latest.position).unwrap_or_default()
    }

    /// Returns the lowest position whose checkpoint a start compares with one outside the journal:
    /// with the latest checkpoint in the state directory, or with the last copied one. Returns 0 if
    /// the state directory has no checkpoint, because all checkpoints must be written there then.
    pub fn first_compared(&self) -> Position {
        let latest = self.latest_position();
        self.copies.lines.last().map_or(latest, |copied| copied.position.min(latest))
    }

    /// Returns the highest position that the watermark, the latest checkpoint in the state
    /// directory, or a copied checkpoint names; 0 if none of them exists.
    pub fn acknowledged(&self) -> Position {
        self.mark.0.max(self.latest_position()).max(self.copies.last())
    }

    /// Returns an error if the watermark or a checkpoint names a record after `last`, the last
    /// record of the journal. The journal then lacks records. Also returns an error if another
    /// journal was in the data directory before this one, and records of that journal were
    /// acknowledged.
    pub fn check_end(&self, last: Position) -> Result<(), Error> {
        if let Some((journal, records)) = self.before {
            return Err(another_journal(journal, records, self.with_key));
        }

        let refuse = |known, how| refuse_cut_tail(last, known, how, self.with_key);
        refuse(self.mark.0, "acknowledged")?;
        refuse(self.latest_position(), "signed in a checkpoint outside")?;
        self.check_copied_end(last, self.copies.last())?;
        refuse(self.inside, "signed in a checkpoint of its own")
    }

    /// Returns the path of the file with copies of checkpoints, for error messages.
    fn copied(&self) -> String {
        self.copies.file.display().to_string()
    }

    /// Compares the record `sealed` with two marks: the watermark, which has the hash of the last
    /// acknowledged record, and the latest checkpoint in the state directory. Returns an error if
    /// the record contradicts one of them. `heads` are the last records of all trees, including
    /// this record.
    pub fn check(&self, sealed: &HashedRecord, heads: &mut TreeHeads) -> Result<(), Error> {
        let position = sealed.record.position;
        if position == self.mark.0 && sealed.hash != self.mark.1 {
            return Err(Error::broken(position.0, "it is not the record that was acknowledged"));
        }

        match self.latest.as_ref().filter(|latest| latest.position == position) {
            Some(latest) => agree(latest, heads),
            None => Ok(()),
        }
    }

    /// Returns an error if a copy of the checkpoint at `position` contradicts the records up to
    /// that position.
    pub fn check_copies(&mut self, position: Position, heads: &mut TreeHeads) -> Result<(), Error> {
        if self.differing_copies(position, heads).is_empty() {
            Ok(())
        } else {
            Err(self.copy_differs(position))
        }
    }

    fn differing_copies(&mut self, position: Position, heads: &mut TreeHeads) -> Vec<Checkpoint> {
        let mut copies = self.copies.at(position).to_vec();
        copies.retain(|line| line.merkle_root != heads.merkle_root());
        copies
    }

    fn copy_differs(&self, position: Position) -> Error {
        let detail = format!(
            "the records up to here are not those of the checkpoint in {}. `organism verify` \
             compares them all; restore a backup that holds those records, or, where what stands \
             here is right, move that file away",
            self.copied()
        );
        Error::broken(position.0, detail)
    }

    /// Checks a record as [`ExternalMarks::check`] does, but keeps the error for
    /// [`ExternalMarks::disagreement`] instead of returning it. The whole journal must be read
    /// first, because a later record may contain an operator's action that accepts the
    /// contradiction. Also collects copies that contradict the record, and losses that the record
    /// accepts.
    pub fn take(&mut self, sealed: &HashedRecord, heads: &mut TreeHeads) {
        if let Err(error) = self.check(sealed, heads) {
            self.disagreement.get_or_insert(error);
        }

        let differing = self.differing_copies(sealed.record.position, heads);
        self.differing.extend(differing);
        if let Input::Operator(action) = &sealed.record.input {
            self.losses.extend(action.accepted_loss());
        }

        self.signers.take_record(&sealed.record);
    }

    /// Keeps the Merkle root of `heads` if `line`, the checkpoint of the journal at this position,
    /// contradicts the records.
    pub fn take_inner(&mut self, line: &Checkpoint, heads: &mut TreeHeads) {
        if self.copies.has_earlier() {
            let root = heads.merkle_root();
            if line.merkle_root != root {
                self.roots.insert(line.position, root);
            }
        }
    }

    /// Keeps the Merkle root of all records, which `heads` has.
    pub fn take_last(&mut self, heads: &mut TreeHeads) {
        self.roots.insert(heads.last(), heads.merkle_root());
    }

    /// Adds the Merkle roots that another reader of the same journal has kept.
    pub fn add_roots(&mut self, other: &Self) {
        self.roots.extend(&other.roots);
    }

    /// Compares the copied checkpoints before the last lines of their file with the records of
    /// `journal`. The losses that operators accepted must be known. If `keeps_lost`, also collects
    /// copies of lost records. Does nothing if all copies were compared before. Returns an error if
    /// the checkpoints of `journal` cannot be read.
    pub fn compare_earlier(
        &mut self,
        journal: &ComparedRecords<'_>,
        patience: &ReadPatience<'_>,
        keeps_lost: bool,
    ) -> Result<(), Error> {
        if !self.copies.has_uncompared() {
            return Ok(());
        }

        let mut found = EarlierFindings::default();
        let roots = &self.roots;
        let losses = &self.losses;
        let compare = &mut |line| found.compare(line, journal, roots, losses, keeps_lost);
        self.copies.visit_earlier(patience, compare);
        found.unread.map_or(Ok(()), Err)?;

        self.copies.earlier_beyond = found.beyond;
        self.copies.keep(found.ahead);
        self.missing = found.missing;
        self.differing.extend(found.lost);
        self.differing.extend(found.differing);
        Ok(())
    }

    /// Returns an error if a copied checkpoint before the last lines of their file is missing in
    /// the journal.
    pub fn check_missing(&self) -> Result<(), Error> {
        let Some(position) = self.missing else { return Ok(()) };
        let detail = format!(
            "the checkpoint in {} over the records up to here is not in the journal; restore a \
             backup, or put it back with `organism repair --accept-loss`",
            self.copied()
        );
        Err(Error::broken(position.0, detail))
    }

    /// Returns an error if a copied checkpoint names a record after `last`, the last record of the
    /// journal.
    pub fn check_copied_end(&self, last: Position, copied: Position) -> Result<(), Error> {
        let how = format!("signed in a checkpoint in {}", self.copied());
        refuse_cut_tail(last, copied, &how, self.with_key)
    }

    /// Removes from memory those marks that name lost records, if a recorded action of an operator
    /// accepts the loss. Such a mark may be the watermark, the latest checkpoint, a copied
    /// checkpoint, or the note of a replaced journal. If the watermark or the latest checkpoint was
    /// removed, returns the last record before the loss. Otherwise, returns `None`.
    ///
    /// The marks must be removed because their files may still name lost records. A pump changes
    /// these files only after it has recorded the operator's action, and may crash before it has
    /// changed them.
    pub fn forgive(&mut self, last: Position) -> Option<Position> {
        let mut kept = None;
        let losses = &self.losses;
        let is_lost = |line: &mut Checkpoint| losses.iter().any(|loss| loss.covers(line.position));
        let differing: HashSet<_> = self.differing.iter().collect();
        let is_wrong = |line: &Checkpoint| line.position > last || differing.contains(line);
        let is_forgiven = |line: &mut Checkpoint| is_wrong(line) && is_lost(line);

        self.forgiven = self.copies.lines.extract_if(.., is_forgiven).collect();
        self.differing.retain_mut(|line| !is_lost(line));

        for loss in &self.losses {
            if self.mark.0 > loss.kept && loss.mark == Some(self.mark) {
                self.mark = (Position(0), Digest::ZERO);
                kept = Some(loss.kept);
            }
            let latest = self.latest.as_ref().map(|line| (line.position, line.merkle_root));
            if latest.is_some() && loss.checkpoint == latest {
                self.latest = None;
                kept = Some(loss.kept);
            }
            let before = self.before.map(|(journal, _)| journal);
            if before.is_some() && loss.journal == before {
                self.before = None;
            }
        }

        if kept.is_some() {
            self.disagreement = None;
        }

        kept
    }

    /// Returns the error for the first record that contradicts the watermark or the latest
    /// checkpoint in the state directory. If there is no such record, returns the error for the
    /// first record that contradicts a copied checkpoint. If there is no contradiction at all,
    /// returns `Ok`.
    pub fn disagreement(&mut self) -> Result<(), Error> {
        match (self.disagreement.take(), self.differing.first()) {
            (Some(error), _) => Err(error),
            (None, Some(line)) => Err(self.copy_differs(line.position)),
            (None, None) => Ok(()),
        }
    }

    /// Gives up the lost records after `last`, the present last record of the journal, and returns
    /// this loss. Must be called only if an operator accepts the loss.
    ///
    /// Moves these marks from memory into the returned loss:
    /// - The watermark, if it names a lost record.
    /// - The latest checkpoint, if it covers lost records. In memory, the last checkpoint of
    ///   `outside` that covers no lost record replaces it. `outside` contains the checkpoints in
    ///   the state directory.
    /// - The mark of a replaced journal, if there is one.
    ///
    /// `inside` is the last checkpoint in the journal's file. If `inside` covers lost records, and
    /// the latest checkpoint covers none, the loss contains `inside` as the lost checkpoint.
    pub fn give_up(
        &mut self,
        last: Position,
        outside: &[Checkpoint],
        inside: Option<&Checkpoint>,
    ) -> AcceptedLoss {
        let acknowledged = self.acknowledged().max(self.inside);
        let mut loss = AcceptedLoss { kept: last, acknowledged, ..AcceptedLoss::default() };
        if self.mark.0 > last {
            loss.mark = Some(std::mem::take(&mut self.mark));
        }

        if self.latest_position() > last {
            let lost = self.latest.take();
            loss.checkpoint = lost.map(|line| (line.position, line.merkle_root));
            self.latest = outside.iter().rfind(|line| line.position <= last).cloned();
        } else if let Some(line) = inside.filter(|line| line.position > last) {
            loss.checkpoint = Some((line.position, line.merkle_root));
        }

        if let Some((journal, records)) = self.before.take() {
            loss.journal = Some(journal);
            loss.acknowledged = records;
        }

        loss
    }

    /// Removes the copied checkpoints after the record `last` from memory, and returns them. Must
    /// be called only if an operator accepts the loss of the records after `last`.
    pub fn give_up_copies(&mut self, last: Position) -> Vec<Checkpoint> {
        let kept = self.copies.lines.partition_point(|line| line.position <= last);
        self.copies.lines.split_off(kept)
    }
}

/// Reads all copied checkpoints into memory, not only the last ones. If this is not possible, logs
/// the reason.
pub(super) fn read_earlier(copies: &mut CheckpointCopies) {
    if let Err(reason) = copies.read_earlier() {
        let file = copies.file.display();
        tracing::warn!("the journal is not compared with all copies in {file}: {reason}");
    }
}

/// Reads the last copied checkpoints of `journal` from `directory`. If they cannot be read, logs
/// the reason and returns no copies. If a line is damaged, logs this, and leaves the line out.
fn read_copies(directory: &Path, journal: Uuid) -> CheckpointCopies {
    let copies = match CheckpointCopies::read(directory, journal) {
        Ok(copies) => copies,
        Err(reason) => {
            let directory = directory.display();
            tracing::warn!(
                "the copies of checkpoints in {directory} cannot be read, so the journal is not \
                 compared with them: {reason}"
            );
            return CheckpointCopies::unread(reason);
        }
    };

    if let Some(damage) = &copies.damage {
        let file = copies.file.display();
        tracing::warn!("the journal is not compared with all copies in {file}: {damage}");
    }

    copies
}

/// Returns the earlier journal that was in `data` before `journal`, and the last of its records
/// that is known to be acknowledged. Returns `None` if there was no earlier journal, or if it had
/// no acknowledged records. If the watermark or the checkpoint file of the earlier journal is
/// damaged, at least one record of the earlier journal counts as acknowledged.
pub fn replaced(
    data: &Path,
    state: &Path,
    journal: Uuid,
) -> Result<Option<(Uuid, Position)>, Error> {
    let noted = noted_journal(data, state).filter(|noted| *noted != journal);
    let Some(noted) = noted else { return Ok(None) };
    let mark = CommitWatermark::read(state, noted)?.unwrap_or_default();
    let outside = CheckpointFile::new(state, noted).last_intact()?;
    let latest = outside.checkpoints.last().map(|line| line.position).unwrap_or_default();
    // A damaged file shows that the journal had records, but not how many.
    let is_damaged = outside.damage.is_some() || damaged_watermark(state, noted)?.is_some();
    let least = Position(u64::from(is_damaged));
    let records = mark.0.max(latest).max(least);
    let is_lost = records > Position(0) && !mutant("trust-any-journal");
    Ok(is_lost.then_some((noted, records)))
}

/// Returns an error if the directory `data` once held a journal with acknowledged records. The
/// caller must then not create a new journal in this directory.
pub fn refuse_lost_file(data: &Path, state: &Path) -> Result<(), Error> {
    refuse_lost(data, state, "is gone", way_on(false))
}

/// Returns the error for a lost journal if `data`, or the directory of a partition inside `data`,
/// once held a journal with acknowledged records. Otherwise, returns `None`.
fn lost_file(data: &Path, state: &Path) -> Option<Error> {
    let mut partitions = (0..limits::PARTITIONS_MAX).map(|partition| partition_in(data, partition));
    let of_partition = |data: PathBuf| refuse_lost(&data, state, "is gone", COPIED_AGAIN).err();
    refuse_lost_file(data, state).err().or_else(|| partitions.find_map(of_partition))
}

/// Returns the error to show if a journal could not be opened because of `error`. If the journal is
/// missing or unreadable, but records of it were acknowledged, this is the error for lost records.
/// Otherwise, it is `error` itself.
pub fn unreadable(data: &Path, state: &Path, error: Error) -> Error {
    match error {
        Error::Unreadable { .. } => {
            let lost = refuse_lost(data, state, "is empty or unreadable", way_on(false));
            lost.err().unwrap_or(error)
        }
        Error::Missing { .. } => lost_file(data, state).unwrap_or(error),
        other => other,
    }
}

fn refuse_lost(data: &Path, state: &Path, how: &str, way_on: &str) -> Result<(), Error> {
    let journal = noted_journal(data, state);
    let noted = match journal {
        Some(journal) => CommitWatermark::read(state, journal)?,
        None => None,
    };

    let file = data.join(DATABASE);
    let file = file.display();
    if let Some(journal) = journal
        && let Some(damaged) = damaged_watermark(state, journal)?
    {
        let damaged = damaged.display();
        let detail = format!(
            "{file} {how}, and {damaged}, which notes how many records were acknowledged, is \
             damaged; {way_on}"
        );
        return Err(Error::broken(1, detail));
    }

    match noted.or(CommitWatermark::read_beside(data)?) {
        Some((position, _)) if position > Position(0) => {
            let detail =
                format!("{file} {how}, but {position} records were acknowledged; {way_on}");
            Err(Error::broken(1, detail))
        }
        _ => Ok(()),
    }
}

/// Returns the error for a journal that has replaced the journal `journal`. At least the records of
/// the replaced journal up to position `records` were acknowledged.
pub fn replaced_journal(journal: Uuid, records: Position) -> Error {
    another_journal(journal, records, false)
}

fn another_journal(journal: Uuid, records: Position, with_key: bool) -> Error {
    let way_on = way_on(with_key);
    let detail = format!(
        "this is another journal than the journal {journal} that lay here, of which at least \
         {records} records were acknowledged; {way_on}"
    );
    Error::broken(1, detail)
}

fn refuse_cut_tail(
    last: Position,
    known: Position,
    how: &str,
    with_key: bool,
) -> Result<(), Error> {
    if known <= last || mutant("trust-the-tail") {
        return Ok(());
    }

    let way_on = way_on(with_key);
    let detail = format!(
        "it ends here, but records up to {known} were {how}: its tail was cut or damaged, or an \
         older copy was put in its place; {way_on}"
    );
    Err(Error::broken(last.0 + 1, detail))
}

/// Returns an error if the signature of `checkpoint` is invalid, or if its Merkle root differs from
/// the Merkle root of `heads`.
pub(super) fn agree(checkpoint: &Checkpoint, heads: &mut TreeHeads) -> Result<(), Error> {
    let position = checkpoint.position.0;
    if !checkpoint.is_genuine() {
        return Err(Error::broken(position, "the checkpoint outside has a false signature"));
    }

    if checkpoint.merkle_root != heads.merkle_root() {
        let detail = "the records up to here are not those of the checkpoint outside";
        return Err(Error::broken(position, detail));
    }

    Ok(())
}
