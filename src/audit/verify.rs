//! Verifies a journal by its own records and by copies of its checkpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::agent::PastTurn;
use crate::envelope::MessageKind;
use crate::ids::{Digest, Position};
use crate::journal::checkpoint::CheckpointKey;
use crate::journal::sqlite::{JournalReader, scan};
use crate::journal::{
    Checkpoint, CheckpointSigners, Error, HashedRecord, MacCoverage, TreeHeads, acknowledged,
    replaced, replaced_journal, unreadable,
};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{Fact, Input, OperatorAction, OperatorVerb};

use super::checkpoint_copies::{ComparedJournal, CopyDifference, CopyEvidence};
use super::fork_point::RecordedFork;
use super::ledger::MessageLedger;
use super::mac_ranges::{MacRange, accepted_records, add_mac, is_key_named_after};
use super::proof_checks::{
    actions_behind, first_violation, is_accepted, judge_end, recorded_loss, uncovered_reason,
    watermark_damage,
};
use super::proof_keys::ProofKeys;
use super::report::{
    AcceptedRecords, ChainBreak, NOT_COMPARED, ProofReport, ProofVerdict, RecordedLoss,
    RedactedPayload,
};

/// The evidence outside the journal that a proof uses, and the keys that the proof trusts.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// State directory of the journal, with the journal's key, a mark of the last acknowledged
    /// record, and copies of checkpoints. `None` if the auditor names no state directory.
    pub state: Option<PathBuf>,
    /// Directory with the journal's key; `None` if the key is in `state`. Needed if `state` is a
    /// copy of the state directory, because a copy does not contain the key.
    pub key_state: Option<PathBuf>,
    /// Files with copies of checkpoints, which are kept outside the directories of the journal and
    /// of its key.
    pub copies: Vec<PathBuf>,
    /// Directory to which the running pump copies checkpoints, as named in the config. `None` if
    /// the config names none.
    pub checkpoints: Option<PathBuf>,
    /// Whether the journal to verify is a backup. For a backup, copies of checkpoints may be newer
    /// than the last checkpoint in the journal.
    pub is_backup: bool,
    /// Further public keys that the proof trusts: those of pumps on other machines. Ignored if
    /// `keys` is given.
    pub known_keys: Vec<String>,
    /// The only public keys that the proof trusts. If this list is empty, the proof trusts the key
    /// in `state`, `known_keys`, and the keys in `copies`. A key that only `copies` names is
    /// trusted for checkpoints in the journal. For copies that are newer than the journal's last
    /// checkpoint, it is trusted only if it signed that checkpoint, too.
    pub keys: Vec<String>,
    /// Whether the copies of checkpoints in `state` do not count as proof. Set this if the owner of
    /// the key may have rewritten these copies.
    pub distrust_state: bool,
}

/// Verifies a journal as [`verify_with`] does, with `state` as the only evidence outside the
/// journal.
pub fn verify(
    data: &Path,
    state: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ProofReport, Error> {
    let options = VerifyOptions { state: state.map(Path::to_owned), ..VerifyOptions::default() };
    verify_with(data, &options, progress)
}

/// Verifies the whole journal in the directory `data`. Calls `progress` with the number of records
/// that were checked so far, and the number of all records.
///
/// A violation in the journal is not returned as an error, but is part of the report.
pub fn verify_with(
    data: &Path,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ProofReport, Error> {
    let mut proof = JournalProof::default();
    let broken = match proof.run(data, options, progress) {
        Ok(()) => None,
        Err(Error::Broken { position, detail }) => Some(ChainBreak { position, detail }),
        Err(error) => return Err(error),
    };

    Ok(proof.report(broken))
}

/// The way in which records refer to a blob, which is a stored text. If records refer to a blob in
/// several ways, the last of these variants counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BlobUse {
    /// The blob contains inputs of a turn's model request.
    Turn,
    /// The blob is the config of a boot record that is too old to list its blobs.
    Older,
    /// A boot record lists the blob.
    Boot,
}

impl std::fmt::Display for BlobUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Turn => "a turn",
            Self::Older => "an older boot",
            Self::Boot => "a boot",
        })
    }
}

#[derive(Default)]
struct JournalProof {
    journal: Uuid,
    epoch: u32,
    /// Version of the core that wrote the last record that was read. The last boot or reload up to
    /// this record states the version.
    core_version: u32,
    heads: TreeHeads,
    ledger: MessageLedger,
    coverage: MacCoverage,
    redacted: Vec<RedactedPayload>,
    /// Positions of records from which an operator has redacted payloads, as other records state.
    redactions: BTreeSet<Position>,
    losses: Vec<RecordedLoss>,
    /// Actions of operators in the records after a broken record. The proof does not read these
    /// records, but one of the actions may accept a violation that the proof has found.
    later_actions: Vec<OperatorAction>,
    forks: Vec<RecordedFork>,
    accepted: Vec<AcceptedRecords>,
    mac_ranges: Vec<MacRange>,
    blobs: usize,
    /// The blobs to which records refer. The value is the position of the first record that refers
    /// to the blob, and the use of the blob.
    named_blobs: BTreeMap<Digest, (Position, BlobUse)>,
    checkpoints: usize,
    copies: CopyEvidence,
    signers: CheckpointSigners,
    key_changes: Vec<(Position, String)>,
    /// Keys that the options name, and the key of this host.
    available_keys: BTreeSet<String>,
    /// Whether the auditor has named the trusted keys. If so, records of the journal cannot add
    /// trusted keys.
    is_pinned: bool,
    /// Error message, if the operating system does not permit this user to read the key of this
    /// host; otherwise `None`.
    denied_key: Option<String>,
    unproved: Vec<String>,
}

impl JournalProof {
    fn run(
        &mut self,
        data: &Path,
        options: &VerifyOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let about = JournalReader::open(data).and_then(|reader| reader.about());
        let about = about.map_err(|error| match &options.state {
            Some(state) => unreadable(data, state, error),
            None => error,
        })?;

        self.journal = about.journal;
        self.epoch = about.epoch;

        // The evidence is read before the journal, because the journal may grow meanwhile.
        let state = options.state.as_deref();
        let mark = state.map(|state| acknowledged(state, about.journal)).transpose()?;
        let mark = mark.unwrap_or_default();
        let replaced = state.map(|state| replaced(data, state, about.journal)).transpose()?;
        let replaced = replaced.flatten();

        let damage = state.map(|state| watermark_damage(state, about.journal)).transpose()?;
        self.unproved.extend(damage.flatten());

        self.select_keys(options)?;

        self.read_copies(data, options)?;

        self.is_pinned = !options.keys.is_empty();

        let reader = JournalReader::open(data)?;
        let checkpoints = reader.checkpoints()?;
        let last = reader.last()?;
        if options.is_backup {
            // A checkpoint made after the backup must not be compared with records that the backup
            // lacks.
            self.copies.set_later_aside(last);
        }

        let mut differs = self.copies.differences(&checkpoints, last);
        // The two checks run concurrently: each reads the whole file, and neither needs the other's
        // result.
        let (structure, records) = std::thread::scope(|scope| {
            let check = scope.spawn(|| JournalReader::open(data)?.check_structure());
            let records = self.read_all(&reader, last, mark, &checkpoints, progress);
            (check.join(), records)
        });
        let structure = structure.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        differs.extend(self.copies.later_differences());

        // A record that is broken ends the reading. An earlier violation counts then, too.
        let is_read = records.is_ok();
        if !is_read {
            self.later_actions = actions_behind(&reader, self.heads.last());
        }

        let mut checks = vec![
            records,
            judge_end(last, mark.0, &checkpoints),
            self.judge_copies(differs),
            self.judge_place(replaced),
            self.judge_macs(mark.0, is_read),
        ];
        if is_read {
            checks.push(self.judge_redactions());
        }
        checks.push(structure);
        first_violation(checks)?;

        self.check_trees(&reader, last)?;
        self.check_blobs(&reader)?;
        for fork in &self.forks {
            self.unproved.extend(fork.prove(&reader)?);
        }
        if reader.is_projection()? {
            self.unproved.push(NOT_COMPARED.to_owned());
        }

        Ok(())
    }

    /// Collects the public keys whose signatures the proof accepts, and selects the key for MACs.
    /// The keys come from the options and from the directory with the journal's key.
    fn select_keys(&mut self, options: &VerifyOptions) -> Result<(), Error> {
        // A key in a backup is no key of this host: whoever changed the backup may have put it there.
        let state = options.state.as_ref().filter(|_| !options.is_backup);
        let directory = options.key_state.as_ref().or(state);
        let key = match directory.map(|directory| CheckpointKey::read(directory)) {
            Some(Ok(key)) => key,
            Some(Err(error)) => {
                // An auditor may be able to read the checkpoints, but not the private key.
                let is_denied = matches!(
                    &error,
                    Error::Io { source, .. }
                        if source.kind() == std::io::ErrorKind::PermissionDenied
                );
                if !is_denied {
                    return Err(error);
                }
                self.denied_key = Some(error.to_string());
                None
            }
            None => None,
        };

        self.available_keys.extend(options.keys.iter().cloned());
        let key = key
            .filter(|key| options.keys.is_empty() || self.available_keys.contains(&key.public()));
        self.available_keys.extend(key.as_ref().map(CheckpointKey::public));
        if options.keys.is_empty() {
            self.available_keys.extend(options.known_keys.iter().cloned());
        }

        self.coverage = MacCoverage::new(self.journal, key.as_ref().map(CheckpointKey::mac));
        Ok(())
    }

    fn read_all(
        &mut self,
        reader: &JournalReader,
        last: Position,
        mark: (Position, Digest),
        checkpoints: &[Checkpoint],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let mut due: HashMap<Position, &Checkpoint> =
            checkpoints.iter().map(|checkpoint| (checkpoint.position, checkpoint)).collect();

        let mut heads = std::mem::take(&mut self.heads);
        let mut visit = |sealed: HashedRecord, heads: &mut TreeHeads| -> Result<(), Error> {
            let position = sealed.record.position;
            if position == mark.0 && sealed.hash != mark.1 {
                let detail = "it is not the record that was acknowledged".to_owned();
                return Err(Error::Broken { position: position.0, detail });
            }

            self.coverage.take(sealed.hash, sealed.mac, heads);
            self.take(&sealed)?;
            // Ordering rule: after the record, because the MAC of an action that accepts records
            // is none of theirs.
            if let Some(mac) = sealed.mac {
                let key = (!self.coverage.is_last_wrong()).then(|| mac.key());
                add_mac(&mut self.mac_ranges, position, key);
            }
            if let Some(checkpoint) = due.remove(&position) {
                self.hold_to(checkpoint, heads)?;
            }

            self.copies.compare_later(heads);
            if position.0.is_multiple_of(limits::SCAN_RECORDS) || position == last {
                progress(position.0, last.0);
            }
            Ok(())
        };

        let result = match scan(reader, last, &mut heads, &mut visit) {
            // A scan visits no record of a chunk with a broken record. Those before the broken one
            // are visited now.
            Err(Error::Broken { position, detail }) if heads.last().0 + 1 < position => {
                let before = Position(position - 1);
                let visited = scan(reader, before, &mut heads, &mut visit);
                visited.and(Err(Error::Broken { position, detail }))
            }
            result => result,
        };

        self.heads = heads;
        result
    }

    fn take(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        let position = sealed.record.position;
        let broken = |detail| Error::Broken { position: position.0, detail };
        self.ledger.take(&sealed.record).map_err(broken)?;
        self.signers.take_record(&sealed.record);
        if let Input::Operator(action) = &sealed.record.input {
            self.take_action(action);
        }

        self.forks.extend(RecordedFork::of(&sealed.record, self.core_version));
        for fact in &sealed.record.facts {
            match fact {
                Fact::Accepted { message, .. } if message.payload.is_redacted() => {
                    self.redacted.push(RedactedPayload { position, message: message.id });
                }
                Fact::Accepted { message, .. } if message.kind == MessageKind::Note => {
                    let note = PastTurn::with_inputs(&message.payload.bytes);
                    if let Some(inputs) = note.and_then(|turn| turn.inputs) {
                        self.name_blob(inputs, position, BlobUse::Turn);
                    }
                }
                Fact::Booted { epoch, .. } if *epoch > self.epoch => {
                    let detail = format!("a pump started with epoch {epoch}, beyond the journal's");
                    return Err(broken(detail));
                }
                Fact::Booted { config, blobs, core_version, .. }
                | Fact::Reloaded { config, blobs, core_version, .. } => {
                    self.core_version = *core_version;
                    self.name_blob(*config, position, BlobUse::Older);
                    blobs.iter().for_each(|blob| self.name_blob(*blob, position, BlobUse::Boot));
                }
                _ => {}
            }
        }

        Ok(())
    }

    fn name_blob(&mut self, digest: Digest, at: Position, usage: BlobUse) {
        let (_, known) = self.named_blobs.entry(digest).or_insert((at, usage));
        *known = usage.max(*known);
    }

    /// Remembers damage that an operator has accepted with `action`: lost records, redacted
    /// payloads, or records without a valid MAC. Accepted damage is no violation.
    fn take_action(&mut self, action: &OperatorAction) {
        if let Some((first, last)) = action.accepted_records() {
            self.accepted.extend(accepted_records(&self.mac_ranges, first, last));
        }
        if action.verb != OperatorVerb::Repair {
            return;
        }

        self.redactions.extend(action.redacted());
        self.losses.extend(recorded_loss(action));
    }

    /// Returns the losses that operators have accepted, including those in records after a broken
    /// record.
    fn accepted_losses(&self) -> Vec<RecordedLoss> {
        let later = self.later_actions.iter().filter_map(recorded_loss);
        self.losses.iter().copied().chain(later).collect()
    }

    /// Reads the copies of checkpoints, and compares them with the checkpoints that the journal has
    /// now.
    fn read_copies(&mut self, data: &Path, options: &VerifyOptions) -> Result<(), Error> {
        let reader = JournalReader::open(data)?;
        let inside = &reader.checkpoints()?;
        let end = if options.is_backup { Some(reader.last()?) } else { None };
        let compared = ComparedJournal { journal: self.journal, inside, end };
        self.copies = CopyEvidence::read(data, options, &compared)?;
        Ok(())
    }

    /// Reports a violation if a copy of a checkpoint contradicts the journal. If an operator has
    /// accepted the loss of the records that the copy covers, this is no violation, but the journal
    /// counts as not proved.
    fn judge_copies(&mut self, differs: Vec<CopyDifference>) -> Result<(), Error> {
        let losses = self.accepted_losses();
        let is_lost = |position: Position| {
            let mut losses = losses.iter().filter(|loss| loss.journal.is_none());
            losses.any(|loss| loss.kept < position && position <= loss.acknowledged)
        };

        let contradictions = differs.iter().filter(|differs| !is_lost(differs.position));
        if let Some(differs) = contradictions.min_by_key(|differs| differs.position) {
            self.copies.is_contradicted = true;
            return Err(differs.violation());
        }

        if let Some(CopyDifference { position, file, .. }) = differs.last() {
            self.unproved.push(format!(
                "{} shows records up to {position} that an operator accepted as lost: `organism \
                 repair --accept-loss` sets such copies aside",
                file.display()
            ));
        }

        Ok(())
    }

    /// Reports a violation if this journal has replaced another journal that had acknowledged
    /// records. Reports none if an operator has accepted the loss of the other journal.
    fn judge_place(&self, replaced: Option<(Uuid, Position)>) -> Result<(), Error> {
        let Some((journal, records)) = replaced else { return Ok(()) };
        if self.accepted_losses().iter().any(|loss| loss.journal == Some(journal)) {
            Ok(())
        } else {
            Err(replaced_journal(journal, records))
        }
    }

    /// Reports a violation in these cases:
    /// - A MAC of the available key is wrong, and no later MAC of this key is right.
    /// - A MAC covers earlier records, but no MAC covers the last records. A pump never leaves its
    ///   last records without a MAC.
    /// - The journal has no MAC at all, and `mark` is not 0.
    ///
    /// `mark` is the position of the last acknowledged record, or 0 if it is unknown. If `is_read`
    /// is false, not all records were read, and only a wrong MAC among the records that were read
    /// is a violation. Exception: a record that was not read may state that an operator has
    /// accepted the records that a wrong MAC should cover. Then the MAC is no violation, but the
    /// journal is not proved.
    fn judge_macs(&mut self, mark: Position, is_read: bool) -> Result<(), Error> {
        let covered = self.coverage.covered();
        let last = self.heads.last();
        let broken = |position: Position, detail: &str| {
            Err(Error::Broken { position: position.0, detail: detail.to_owned() })
        };

        match (self.coverage.wrong(), self.coverage.last()) {
            (Some(wrong), _) if covered < wrong && is_accepted(&self.later_actions, wrong) => {
                self.unproved.push(format!(
                    "the records up to {wrong} are not those that their MAC covers; a record that \
                     was not proved says that an operator accepted them"
                ));
                Ok(())
            }
            (Some(wrong), _) if covered < wrong => {
                broken(wrong, "the records up to here are not those that their MAC covers")
            }
            _ if !is_read => Ok(()),
            (_, Some((at, _))) if at < last => {
                broken(Position(at.0 + 1), "the records from here on have no MAC")
            }
            (_, None) if mark > Position(0) => {
                broken(Position(1), "none of its records has a MAC, although its pump wrote MACs")
            }
            _ => Ok(()),
        }
    }

    fn judge_redactions(&self) -> Result<(), Error> {
        let unrecorded =
            self.redacted.iter().find(|redacted| !self.redactions.contains(&redacted.position));
        match unrecorded {
            Some(RedactedPayload { position, .. }) => Err(Error::Broken {
                position: position.0,
                detail: "a payload of the record was blanked, and no operator's redaction is \
                         recorded"
                    .to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn hold_to(&mut self, checkpoint: &Checkpoint, heads: &mut TreeHeads) -> Result<(), Error> {
        let position = checkpoint.position.0;
        let broken = |detail: &str| Error::Broken { position, detail: detail.to_owned() };
        if checkpoint.journal != self.journal || checkpoint.count != position {
            return Err(broken("its checkpoint is another journal's"));
        }

        if !checkpoint.is_genuine() {
            return Err(broken("its checkpoint has a false signature"));
        }

        if checkpoint.merkle_root != heads.merkle_root() {
            return Err(broken("the records up to here are not those of its checkpoint"));
        }

        self.checkpoints += 1;
        if self.key_changes.last().is_none_or(|(_, key)| *key != checkpoint.key) {
            self.key_changes.push((checkpoint.position, checkpoint.key.clone()));
        }

        self.signers.take_checkpoint(checkpoint);
        Ok(())
    }

    /// Checks the table of trees, on which readers rely, against the records from which the table
    /// was made.
    fn check_trees(&self, reader: &JournalReader, last: Position) -> Result<(), Error> {
        reader.check_refreshed()?;
        let trees = reader.trees()?;
        for tree in &trees {
            let right = self.heads.resident(&tree.root).is_some_and(|head| {
                (head.first, head.position, head.records, head.opened, head.updated)
                    == (tree.first, tree.head, tree.records, tree.opened, tree.updated)
            });
            // A tree that has grown since the heads were read is no violation.
            if !right && tree.head <= last {
                let detail = format!("the table of trees is wrong about {}", tree.root);
                return Err(Error::Broken { position: tree.head.0, detail });
            }
        }

        if trees.len() < self.heads.len() {
            let detail = "trees are missing from the table of trees".to_owned();
            return Err(Error::Broken { position: 0, detail });
        }

        Ok(())
    }

    fn check_blobs(&mut self, reader: &JournalReader) -> Result<(), Error> {
        for digest in reader.blobs()? {
            reader.blob(digest)?;
            self.blobs += 1;
            self.named_blobs.remove(&digest);
        }

        if mutant("miss-no-blob") {
            return Ok(());
        }

        for (digest, (position, of)) in &self.named_blobs {
            if *of == BlobUse::Boot {
                let detail = format!("blob {digest}, which this boot lists, is missing");
                return Err(Error::Broken { position: position.0, detail });
            }
            self.unproved.push(format!("blob {digest} of {of} at {position} is missing"));
        }

        Ok(())
    }

    /// Returns the position up to which an available key covers every record. A key covers records
    /// by a MAC, by signing a checkpoint in the journal, or by signing a newer copy of a
    /// checkpoint.
    fn covered(&self) -> Position {
        self.keys().signed().max(self.coverage.covered())
    }

    fn keys(&self) -> ProofKeys<'_> {
        ProofKeys {
            available: &self.available_keys,
            is_pinned: self.is_pinned,
            present: self.key_changes.last().map(|(_, key)| key),
            of_copies: &self.copies.pinned_keys,
            signers: &self.signers,
            later_signers: &self.copies.later_signers,
        }
    }

    fn unknown_keys(&self) -> BTreeSet<String> {
        self.keys().unknown(self.coverage.foreign())
    }

    /// Returns the reasons why the journal is not proved. If a violation has ended the proof,
    /// returns only the reasons that were found before the violation, and reasons about evidence
    /// that could not be read.
    fn reasons(&mut self, is_broken: bool) -> Vec<String> {
        let mut reasons = std::mem::take(&mut self.unproved);
        if is_broken {
            reasons.append(&mut self.copies.unread);
            return reasons;
        }

        let covered = self.covered();
        let last = self.heads.last();
        if covered < last {
            // A known signer of these records would have covered them.
            let has_unknown_key = self.keys().is_signed_after(covered)
                || is_key_named_after(&self.mac_ranges, covered, &self.unknown_keys());
            let denied = self.denied_key.as_deref();
            reasons.push(uncovered_reason(covered, last, denied, has_unknown_key));
        }

        reasons.append(&mut self.copies.unread);
        match last {
            Position(0) => reasons.push("the journal is empty: nothing in it is proved".to_owned()),
            _ => reasons.extend(self.copies.reason()),
        }

        reasons
    }

    /// Returns the position of the last record that was read before the violation `broken`.
    fn sound_end(&self, broken: Option<&ChainBreak>) -> Position {
        let last = self.heads.last();
        match broken.and_then(|broken| broken.position.checked_sub(1)) {
            Some(before) => last.min(Position(before)),
            None => last,
        }
    }

    fn report(mut self, broken: Option<ChainBreak>) -> ProofReport {
        let messages = self.ledger.total();
        let unproved = self.reasons(broken.is_some());
        let verdict = match (&broken, unproved.is_empty()) {
            (Some(_), _) => ProofVerdict::Broken,
            (None, false) => ProofVerdict::NotProved,
            (None, true) => ProofVerdict::Proved,
        };

        ProofReport {
            verdict,
            unproved,
            journal: Some(self.journal).filter(|journal| !journal.is_nil()),
            epoch: self.epoch,
            records: self.heads.last().0,
            trees: self.heads.len(),
            threads: self.ledger.threads().count(),
            in_flight: messages.in_flight(),
            messages,
            blobs: self.blobs,
            checkpoints: self.checkpoints,
            outside: self.copies.state(),
            vouched: self.copies.vouched(self.sound_end(broken.as_ref())),
            covered: self.covered(),
            unknown_keys: self.unknown_keys(),
            keys: self.keys().signing(),
            redacted: self.redacted,
            copies: self.copies.files(),
            key_changes: self.key_changes,
            losses: self.losses,
            accepted: self.accepted,
            broken,
        }
    }
}
