//! Decides whether a journal may be opened. The decision compares the records of the journal's file
//! with the marks outside the file: the noted id of the journal, the watermark of acknowledged
//! records, and the checkpoints. It also considers the damage that an operator accepts.

use std::path::Path;

use crate::ids::Position;
use crate::limits;
use crate::mutant::mutant;
use crate::thread::AcceptedLoss;

use super::checkpoint::{CheckpointFile, CheckpointKey};
use super::checkpoint_copies::ReadPatience;
use super::earlier_copies::ComparedRecords;
use super::external_marks::{ExternalMarks, read_earlier};
use super::mac::MacCoverage;
use super::sqlite::{JournalMetadata, TableRepair};
use super::{Checkpoint, Error, RedactedRecords, TreeHeads};

/// Purpose of opening a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPurpose {
    /// Opens the journal to append records in a new epoch.
    Write,
    /// Opens the journal to move it into a stream. The file holds all records.
    Move,
    /// Opens the file to follow a stream. The stream may hold more records than the file.
    Follow,
}

/// Kinds of damage that an operator accepts in a journal. Without this acceptance, no pump starts
/// on the damaged journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperatorAcceptance {
    /// Accepts a journal that was written before MACs existed.
    pub without_mac: bool,
    /// Accepts that acknowledged records are missing at the end of the journal.
    pub loss: bool,
    /// Accepts that MACs are missing or made with another key. Records that no right MAC covers
    /// then count as not proved.
    pub key: bool,
    /// Accepts that payloads were blanked.
    pub redaction: bool,
}

/// Whether the journal has lost anything that was acknowledged: records, a whole earlier journal,
/// or checkpoints. `loss` states the lost records and the lost earlier journal. Checkpoints are
/// lost if `mend`, the repair of the journal's tables, must write them back.
pub(super) fn is_lost(loss: &AcceptedLoss, mend: &TableRepair) -> bool {
    loss.acknowledged > loss.kept || loss.journal.is_some() || !mend.put_back.is_empty()
}

/// Content of a journal's file after its hash chain was verified. The content is not compared with
/// the watermark and the checkpoints outside the file yet.
pub(super) struct ProvedFile {
    pub about: JournalMetadata,
    pub redactions: RedactedRecords,
    pub known: ExternalMarks,
    pub heads: TreeHeads,
    pub coverage: MacCoverage,
    /// Checkpoints that the file has and the state directory lacks.
    pub unwritten: Vec<Checkpoint>,
    /// Checkpoints of the file that follow the last copied checkpoint.
    pub uncopied: Vec<Checkpoint>,
    /// Copied checkpoints that cover lost records and must be removed from the file of copies.
    /// Empty unless an operator accepts a loss of records when the journal is opened.
    pub given_up: Vec<Checkpoint>,
    /// The last record that a checkpoint covers.
    pub checked: Position,
    /// Position of the last record that the `tree` table includes. This table stores the first and
    /// the last record of each tree.
    pub refreshed: Position,
    /// Last record before the loss, if an operator accepts a loss of records now, or accepted it in
    /// a recorded action. Otherwise, `None`.
    pub kept: Option<Position>,
}

impl ProvedFile {
    /// Refuses a journal that contradicts a mark outside its file, such as the watermark or a
    /// checkpoint. A loss of records does not count as a contradiction if an operator accepts it
    /// now, or accepted it in a recorded action. Returns the loss that is accepted now, and the
    /// changes to the journal's tables that this loss requires.
    pub fn judge_known(
        &mut self,
        purpose: OpenPurpose,
        accept: OperatorAcceptance,
        state: &Path,
    ) -> Result<(AcceptedLoss, TableRepair), Error> {
        let last = self.heads.last();
        let inside = std::mem::take(&mut self.unwritten);
        if purpose != OpenPurpose::Follow {
            self.known.inside = inside.last().map(|line| line.position).unwrap_or_default();
        }

        let mut loss = AcceptedLoss { kept: last, acknowledged: last, ..AcceptedLoss::default() };
        let is_behind = purpose == OpenPurpose::Follow;
        let lookup = |position| Ok(inside_at(&inside, position).cloned());
        let compared = ComparedRecords { inside: &lookup, last, is_behind };
        self.known.take_last(&mut self.heads);
        let total = limits::EARLIER_COPIES_TIMEOUT;
        let patience = ReadPatience { total, ..ReadPatience::default() };
        self.known.compare_earlier(&compared, &patience, accept.loss)?;
        if accept.loss {
            // The repair takes any of the copies out of their file, and puts any of them back into
            // the journal.
            read_earlier(&mut self.known.copies);
        }
        self.kept = self.known.forgive(last);
        // Other starts need only the last line, because the file grows as long as the journal does.
        let needs_lines = self.kept.is_some() || accept.loss;
        let outside = CheckpointFile::new(state, self.about.journal);
        let lines = if needs_lines { outside.read()? } else { Vec::new() };
        if let Some(kept) = self.kept {
            self.known.latest = lines.iter().rfind(|line| line.position <= kept).cloned();
        }

        if accept.loss {
            loss = self.known.give_up(last, &lines, inside.last());
            self.given_up = std::mem::take(&mut self.known.forgiven);
            self.given_up.extend(self.known.give_up_copies(last));
            self.kept = Some(self.kept.unwrap_or(last));
        } else if purpose != OpenPurpose::Follow {
            self.known.check_end(last)?;
        }

        self.known.disagreement()?;
        if !accept.loss {
            self.known.check_missing()?;
        }
        let mut mend = TableRepair::default();
        if accept.loss {
            mend.cut = Some(Position(last.0 + 1));
            let end = self.kept.unwrap_or(last);
            let lines = lines.iter().chain(&self.known.copies.lines);
            let lines = lines.filter(|line| line.position <= end);
            mend.put_back =
                lines.filter(|line| inside_at(&inside, line.position).is_none()).cloned().collect();
            mend.put_back.sort_by_key(|line| line.position);
            mend.put_back.dedup_by_key(|line| line.position);
        }

        if purpose != OpenPurpose::Follow {
            self.judge_latest(&inside, accept)?;
        }

        let outside = self.known.latest_position();
        self.unwritten = inside;
        self.unwritten.retain(|checkpoint| checkpoint.position <= last);
        let signed = self.unwritten.iter().chain(&mend.put_back).map(|line| line.position);
        self.checked = signed.max().unwrap_or_default();
        self.unwritten.retain(|checkpoint| checkpoint.position > outside);
        Ok((loss, mend))
    }

    /// Compares two checkpoints from outside the journal's file with those in the file: the last
    /// checkpoint of the state directory, and the last copied checkpoint. The result for each of
    /// the two depends on the checkpoint that the file has at the same position:
    ///
    /// - The same checkpoint: accepts the journal.
    /// - A different checkpoint: refuses the journal.
    /// - No checkpoint: refuses the journal, unless an operator accepts a loss. If an operator
    ///   does, the repair later restores the checkpoint.
    fn judge_latest(&self, inside: &[Checkpoint], accept: OperatorAcceptance) -> Result<(), Error> {
        let copies = &self.known.copies;
        let copied = || format!("the checkpoint in {}", copies.file.display());
        for (latest, what) in [
            (self.known.latest.as_ref(), "the checkpoint outside".to_owned()),
            (copies.lines.last(), copied()),
        ] {
            let Some(latest) = latest else { continue };
            let detail = match inside_at(inside, latest.position) {
                Some(line) if line == latest => continue,
                Some(_) => format!("{what} is not the one in the journal; restore a backup"),
                None if accept.loss || mutant("miss-no-checkpoint") => continue,
                None => format!(
                    "{what} over the records up to here is not in the journal; restore a backup, \
                     or put it back with `organism repair --accept-loss`"
                ),
            };
            return Err(Error::broken(latest.position.0, detail));
        }

        Ok(())
    }

    /// Whether `judge_end` refuses the journal because the journal ends with a MAC of another key,
    /// or because no MAC of this host covers any record.
    pub fn is_under_another_key(&self, key: &CheckpointKey, accept: OperatorAcceptance) -> bool {
        let judged = self.judge_end(Path::new(""), key, accept, false);
        matches!(
            judged,
            Err(Error::OtherKey { .. } | Error::Uncovered { first: Position(..=1), .. })
        )
    }

    /// Refuses a journal if no MAC of this host covers its last records, unless the operator
    /// accepts such records. `lost` states whether anything that was acknowledged, such as records
    /// or checkpoints, is also missing. If so, the error also explains how to accept this loss.
    pub fn judge_end(
        &self,
        data: &Path,
        key: &CheckpointKey,
        accept: OperatorAcceptance,
        lost: bool,
    ) -> Result<(), Error> {
        let covered = self.coverage.covered();
        let last = self.heads.last();
        if covered == last || accept.key || mutant("trust-the-mac") {
            return Ok(());
        }

        let path = data.display().to_string();
        let ours = key.mac().id();

        match self.coverage.last() {
            None if self.known.is_old && accept.without_mac => Ok(()),
            None if self.known.is_old => Err(Error::WithoutMac { path, records: last }),
            Some((at, mac)) if at == last && mac.key() != ours => {
                let ours = key.is_stored().then_some(ours);
                Err(Error::OtherKey { path, theirs: mac.key(), ours, lost })
            }
            _ => Err(Error::Uncovered { path, first: Position(covered.0 + 1), last, lost }),
        }
    }
}

/// Returns the checkpoint of the journal at `position`; `None` if the journal has none there.
/// `inside` contains the journal's checkpoints, sorted by position.
fn inside_at(inside: &[Checkpoint], position: Position) -> Option<&Checkpoint> {
    let at = inside.binary_search_by_key(&position, |line| line.position).ok()?;
    inside.get(at)
}
