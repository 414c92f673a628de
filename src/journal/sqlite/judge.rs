//! Judging what stands in a journal's file by what is known of it, and by what an operator accepts.

use std::path::Path;

use rusqlite::Connection;

use crate::ids::Position;
use crate::journal::checkpoint::{CheckpointFile, CheckpointKey};
use crate::journal::mac::MacCoverage;
use crate::journal::{Checkpoint, Error, HashedRecord, TreeHeads};
use crate::mutant::mutant;
use crate::thread::AcceptedLoss;

use super::external_marks::ExternalMarks;
use super::open::OpenPurpose;
use super::repair::TableRepair;
use super::{JournalMetadata, OperatorAcceptance, RedactedRecords};

/// Whether something of the journal is lost that was known of it.
pub(super) fn is_lost(loss: &AcceptedLoss, mend: &TableRepair) -> bool {
    loss.acknowledged > loss.kept || loss.journal.is_some() || !mend.put_back.is_empty()
}

/// What stands in the file, before it is held against what is known of it.
pub(super) struct ProvedFile {
    pub about: JournalMetadata,
    pub redactions: RedactedRecords,
    pub known: ExternalMarks,
    pub heads: TreeHeads,
    pub coverage: MacCoverage,
    /// Checkpoints that are not outside yet.
    pub unwritten: Vec<Checkpoint>,
    /// Checkpoints behind the last one that is copied.
    pub uncopied: Vec<Checkpoint>,
    /// Copies of checkpoints over what an operator accepts as lost now.
    pub given_up: Vec<Checkpoint>,
    pub checked: Position,
    /// How far the table of trees is right.
    pub refreshed: Position,
    /// Where an operator accepted a loss: the last record before what is lost.
    pub kept: Option<Position>,
}

impl ProvedFile {
    /// Refuses a journal that does not agree with what is known of it, unless an operator accepts
    /// that now, or has accepted it on record. Returns what is accepted now.
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
        self.kept = self.known.forgive(last);
        let lines = CheckpointFile::new(state, self.about.journal).read()?;
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
        let mut mend = TableRepair::default();
        if accept.loss {
            mend.cut = Some(Position(last.0 + 1));
            let end = self.kept.unwrap_or(last);
            let lines = lines.iter().chain(&self.known.copies.lines);
            let lines = lines.filter(|line| line.position <= end);
            mend.put_back =
                lines.filter(|line| stands_in(&inside, line).is_none()).cloned().collect();
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

    /// The last checkpoint outside must stand in the journal, too, or be put back now.
    fn judge_latest(&self, inside: &[Checkpoint], accept: OperatorAcceptance) -> Result<(), Error> {
        let copies = &self.known.copies;
        let copied = || format!("the checkpoint in {}", copies.file.display());
        for (latest, what) in [
            (self.known.latest.as_ref(), "the checkpoint outside".to_owned()),
            (copies.lines.last(), copied()),
        ] {
            let Some(latest) = latest else { continue };
            let detail = match stands_in(inside, latest) {
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

    pub fn is_under_another_key(&self, key: &CheckpointKey, accept: OperatorAcceptance) -> bool {
        let judged = self.judge_end(Path::new(""), key, accept, false);
        matches!(
            judged,
            Err(Error::OtherKey { .. } | Error::Uncovered { first: Position(..=1), .. })
        )
    }

    /// Proves what the connection that holds the write lock sees behind what was proved.
    pub fn take_rest(
        &mut self,
        db: &Connection,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self { known, heads, coverage, redactions, .. } = self;
        super::scan::rest(db, heads, &mut |sealed, heads| {
            coverage.take(sealed.hash, sealed.mac, heads);
            redactions.take(&sealed);
            known.take(&sealed, heads);
            visit(sealed)
        })
    }

    /// Refuses a journal whose end no MAC of this host covers, unless the operator accepts it.
    pub fn judge_end(
        &self,
        data: &Path,
        key: &CheckpointKey,
        accept: OperatorAcceptance,
        lost: bool,
    ) -> Result<(), Error> {
        let (covered, last) = (self.coverage.covered(), self.heads.last());
        if covered == last || accept.key || mutant("trust-the-mac") {
            return Ok(());
        }

        let path = data.display().to_string();
        let ours = key.mac().id();

        match self.coverage.last() {
            None if self.known.is_old && accept.without_mac => Ok(()),
            None if self.known.is_old => Err(Error::WithoutMac { path, records: last }),
            Some((at, mac)) if at == last && mac.key() != ours => {
                Err(Error::OtherKey { path, theirs: mac.key(), ours, lost })
            }
            _ => Err(Error::Uncovered { path, first: Position(covered.0 + 1), last, lost }),
        }
    }
}

/// The checkpoint of `inside`, which is in order, at the position of `line`.
fn stands_in<'c>(inside: &'c [Checkpoint], line: &Checkpoint) -> Option<&'c Checkpoint> {
    let at = inside.binary_search_by_key(&line.position, |it| it.position).ok()?;
    inside.get(at)
}
