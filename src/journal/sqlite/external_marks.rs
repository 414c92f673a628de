//! What is known of a journal from outside its file: the journal that its directory is noted with,
//! the mark of its last acknowledged record, and its checkpoints. A journal that does not agree
//! with all of it is refused, but for what an operator accepted as lost on record.

use std::path::Path;

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::journal::checkpoint::CheckpointFile;
use crate::journal::{Checkpoint, CheckpointCopies, Error, HashedRecord, TreeHeads, partition_in};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{AcceptedLoss, Input};

use super::directory::{self, CommitWatermark, DATABASE};
use super::signers::CheckpointSigners;

/// What an operator can do where records are missing. `with_key`: what is left is under another key.
fn way_on(with_key: bool) -> &'static str {
    match with_key {
        false => {
            "restore a backup (docs/OPERATIONS.md, Restore), or go on without what is missing with \
             `organism repair --accept-loss`"
        }
        true => {
            "restore a backup (docs/OPERATIONS.md, Restore), or go on without what is missing, and \
             with what another key signed, with `organism repair --accept-loss --accept-key`"
        }
    }
}

/// What is known of a journal from outside its file.
#[derive(Debug, Default)]
pub(in crate::journal) struct ExternalMarks {
    /// It has no mark in the state, as before MACs.
    pub is_old: bool,
    /// The last record that was acknowledged, and its hash.
    pub mark: (Position, Digest),
    /// The latest checkpoint outside.
    pub latest: Option<Checkpoint>,
    /// The journal that its directory was noted with, and how far that one was acknowledged.
    pub before: Option<(Uuid, Position)>,
    /// Signers of checkpoints, where the journal follows a stream.
    pub signers: CheckpointSigners,
    /// The last record that a checkpoint in its own file is over.
    pub inside: Position,
    /// What stands there is under another key than this host's.
    pub with_key: bool,
    /// Copies of its checkpoints in the directory that the config names.
    pub copies: CheckpointCopies,
    /// Copies that are over other records than those of the journal.
    differing: Vec<Checkpoint>,
    /// Copies over records that an operator accepted as lost, on record.
    pub forgiven: Vec<Checkpoint>,
    /// What operators accepted as lost, as its own records have it.
    losses: Vec<AcceptedLoss>,
    /// The first record that is not the one known outside.
    disagreement: Option<Error>,
}

impl ExternalMarks {
    /// Reads what is known of `journal`, which lies in `data`. `copies`: where its checkpoints are
    /// copied to. What cannot be read there is named in the log, and stops nothing.
    pub fn read(
        data: &Path,
        state: &Path,
        copies: Option<&Path>,
        journal: Uuid,
    ) -> Result<Self, Error> {
        let noted = CommitWatermark::read(state, journal)?;
        let mark = noted.or(CommitWatermark::read_beside(data)?).unwrap_or_default();
        let latest = CheckpointFile::new(state, journal).read()?.pop();
        let before = replaced(data, state, journal)?;
        let copies = copies.filter(|_| !mutant("trust-no-copy"));
        let copies = copies.map(|directory| read_copies(directory, journal)).unwrap_or_default();
        Ok(Self { is_old: noted.is_none(), mark, latest, before, copies, ..Self::default() })
    }

    pub fn latest_position(&self) -> Position {
        self.latest.as_ref().map(|latest| latest.position).unwrap_or_default()
    }

    /// The last record that is known outside.
    pub fn acknowledged(&self) -> Position {
        self.mark.0.max(self.latest_position()).max(self.copies.last())
    }

    /// Refuses a journal that ends before what is known of it.
    pub fn check_end(&self, last: Position) -> Result<(), Error> {
        if let Some((journal, records)) = self.before {
            return Err(another_journal(journal, records, self.with_key));
        }

        let refuse = |known, how| refuse_cut_tail(last, known, how, self.with_key);
        refuse(self.mark.0, "acknowledged")?;
        refuse(self.latest_position(), "signed in a checkpoint outside")?;
        let copied = format!("signed in a checkpoint in {}", self.copied());
        refuse(self.copies.last(), &copied)?;
        refuse(self.inside, "signed in a checkpoint of its own")
    }

    /// The file of copies, for people.
    fn copied(&self) -> String {
        self.copies.file.display().to_string()
    }

    /// Refuses a record that is not the one known at its position.
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

    /// Refuses records that are not those of a copy at the position of the last of them.
    pub fn check_copies(&self, position: Position, heads: &mut TreeHeads) -> Result<(), Error> {
        match self.differing_copies(position, heads).is_empty() {
            true => Ok(()),
            false => Err(self.copy_differs(position)),
        }
    }

    fn differing_copies(&self, position: Position, heads: &mut TreeHeads) -> Vec<Checkpoint> {
        let copies = self.copies.at(position).iter();
        let differs = |line: &&Checkpoint| line.merkle_root != heads.merkle_root();
        copies.filter(differs).cloned().collect()
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

    /// As [`ExternalMarks::check`], and keeps a refusal until the whole journal was read: an operator's
    /// action behind the record may answer it.
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

    /// Forgets what an operator accepted as lost, where the pump that recorded the action died
    /// before it could settle that. Returns the last record that was kept then.
    pub fn forgive(&mut self, last: Position) -> Option<Position> {
        let mut kept = None;
        let losses = &self.losses;
        let is_lost = |line: &mut Checkpoint| losses.iter().any(|loss| loss.covers(line.position));
        let differing = &self.differing;
        let is_wrong = |line: &Checkpoint| line.position > last || differing.contains(line);
        let copies = &mut self.copies.lines;
        self.forgiven = copies.extract_if(.., |line| is_wrong(line) && is_lost(line)).collect();
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

    /// The refusal of a record that is not the one known at its position.
    pub fn disagreement(&mut self) -> Result<(), Error> {
        match (self.disagreement.take(), self.differing.first()) {
            (Some(error), _) => Err(error),
            (None, Some(line)) => Err(self.copy_differs(line.position)),
            (None, None) => Ok(()),
        }
    }

    /// Takes out what an operator accepts as lost of a journal that ends with `last`. `inside`: the
    /// last checkpoint in it.
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

    /// Takes out copies over what an operator accepts as lost, behind `last`.
    pub fn give_up_copies(&mut self, last: Position) -> Vec<Checkpoint> {
        let kept = self.copies.lines.partition_point(|line| line.position <= last);
        self.copies.lines.split_off(kept)
    }
}

/// Reads the copies; names in the log a directory that it cannot read.
fn read_copies(directory: &Path, journal: Uuid) -> CheckpointCopies {
    CheckpointCopies::read(directory, journal).unwrap_or_else(|reason| {
        let directory = directory.display();
        tracing::warn!(
            "the copies of checkpoints in {directory} cannot be read, so the journal is not \
             compared with them: {reason}"
        );
        CheckpointCopies::default()
    })
}

/// Another journal that lay in `data` before `journal` and had acknowledged records.
pub fn replaced(
    data: &Path,
    state: &Path,
    journal: Uuid,
) -> Result<Option<(Uuid, Position)>, Error> {
    let noted = directory::noted_journal(data, state).filter(|noted| *noted != journal);
    let Some(noted) = noted else { return Ok(None) };
    let mark = CommitWatermark::read(state, noted)?.unwrap_or_default();
    let latest = CheckpointFile::new(state, noted).read()?.pop().map(|line| line.position);
    let records = mark.0.max(latest.unwrap_or_default());
    let is_lost = records > Position(0) && !mutant("trust-any-journal");
    Ok(is_lost.then_some((noted, records)))
}

/// Refuses to make a journal anew where one with acknowledged records lay.
pub fn refuse_lost_file(data: &Path, state: &Path) -> Result<(), Error> {
    refuse_lost(data, state, "is gone")
}

/// The refusal where the journal in `data`, or that of a partition in it, is gone.
fn lost_file(data: &Path, state: &Path) -> Option<Error> {
    let partitions = (0..limits::PARTITIONS_MAX).map(|partition| partition_in(data, partition));
    let mut places = std::iter::once(data.to_owned()).chain(partitions);
    places.find_map(|data| refuse_lost_file(&data, state).err())
}

/// The error of a file that is no journal, or is gone: lost records, where one with acknowledged
/// records lay in its place.
pub fn unreadable(data: &Path, state: &Path, error: Error) -> Error {
    match error {
        Error::Unreadable { .. } => {
            refuse_lost(data, state, "is empty or unreadable").err().unwrap_or(error)
        }
        Error::Missing { .. } => lost_file(data, state).unwrap_or(error),
        other => other,
    }
}

fn refuse_lost(data: &Path, state: &Path, how: &str) -> Result<(), Error> {
    let noted = match directory::noted_journal(data, state) {
        Some(journal) => CommitWatermark::read(state, journal)?,
        None => None,
    };

    match noted.or(CommitWatermark::read_beside(data)?) {
        Some((position, _)) if position > Position(0) => {
            let way_on = way_on(false);
            let file = data.join(DATABASE);
            let file = file.display();
            let detail =
                format!("{file} {how}, but {position} records were acknowledged; {way_on}");
            Err(Error::broken(1, detail))
        }
        _ => Ok(()),
    }
}

/// The refusal of a journal that lies in the place of another one.
pub fn replaced_journal(journal: Uuid, records: Position) -> Error {
    another_journal(journal, records, false)
}

fn another_journal(journal: Uuid, records: Position, with_key: bool) -> Error {
    let way_on = way_on(with_key);
    let detail = format!(
        "this is another journal than the journal {journal} that lay here, of which {records} \
         records were acknowledged; {way_on}"
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
        "it ends here, but records up to {known} were {how}: its tail was cut or damaged, \
                 or an older copy was put in its place; {way_on}"
    );
    Err(Error::broken(last.0 + 1, detail))
}

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
