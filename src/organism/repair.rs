//! Repairs a journal that a start refuses. The damage that the operator accepts is recorded.

use std::path::Path;

use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::Position;
use crate::index;
use crate::journal::sqlite::{self, FoundJournal, JournalReader, TakenOut};
use crate::journal::{
    OperatorAcceptance, RedactedRecords, TreeHeads, may_have_journal, refuse_lost_file,
};
use crate::limits;
use crate::thread::{ActionDetail, OperatorAction, OperatorVerb};

use super::access::refuse_hosted_start;
use super::payload_copies::{PayloadCopy, copies_of_redacted};
use super::{Error, core, operator, project};

/// The kinds of damage that the operator accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedDamage {
    /// Whether to accept lost records, and records that no MAC covers.
    pub loss: bool,
    /// Whether to accept redacted payloads, whose bytes were replaced by NULs.
    pub redaction: bool,
    /// Whether to accept records that were not signed with the key of this machine. The key of
    /// another machine may have signed them.
    pub key: bool,
}

/// A kind of accepted damage. Each kind is recorded as a separate action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedKind {
    Loss,
    Redaction,
    Key,
}

impl AcceptedDamage {
    pub(super) fn acceptance(self) -> OperatorAcceptance {
        let Self { loss, redaction, key } = self;
        OperatorAcceptance { loss, redaction, key, ..OperatorAcceptance::default() }
    }

    fn kinds(self) -> impl Iterator<Item = AcceptedKind> {
        let kinds = [
            (self.loss, AcceptedKind::Loss),
            (self.redaction, AcceptedKind::Redaction),
            (self.key, AcceptedKind::Key),
        ];
        kinds.into_iter().filter_map(|(is_accepted, kind)| is_accepted.then_some(kind))
    }
}

/// Result of a repair: the state of the journal before the repair, and the redacted payloads that
/// the repair accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedJournal {
    pub found: FoundJournal,
    /// Positions of the records with redacted payloads that the repair accepted.
    pub redacted: Vec<Position>,
    /// Payloads of other records that have the bytes of a redacted payload. Counts all redacted
    /// payloads, also those that earlier repairs accepted. Empty unless redactions are accepted.
    pub copies: Vec<PayloadCopy>,
}

/// Accepts the damage that makes a start with `config` fail, and records each kind of damage as an
/// action. All actions take effect together, because they are in one commit. Then writes a
/// checkpoint. If the journal has no damage of the accepted kinds, records nothing, and returns
/// `None` unless copies of redacted payloads were found. A repair that accepts redactions also
/// writes the journal's file anew, so that the file contains no old copies of the redacted
/// payloads, and deletes the index, which contains their words.
pub fn repair(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
) -> Result<Option<RepairedJournal>, Error> {
    refuse_hosted_start(config)?;
    let StorageConfig::Embedded = config.storage else { return Err(Error::NotEmbedded) };
    let Config { data, state, .. } = config;
    if !may_have_journal(data) {
        match refuse_lost_file(data, state) {
            Ok(()) => return Ok(None),
            Err(error) if !accepted.loss => return Err(error.into()),
            Err(_) => project::begin(&config.directories(), true)?,
        }
    }

    let redactions =
        if accepted.redaction { redactions(data)? } else { RedactedRecords::default() };
    let redacted: Vec<_> = redactions.unrecorded().collect();
    let copies = if redactions.has_any() { copies_of_redacted(data)? } else { Vec::new() };
    let mut core = core(config);
    let mut journal = operator::open_accepting(config, &mut core, accepted.acceptance())?;
    if redactions.has_any() {
        // Ordering rule: before the record. A repair that ends in between records nothing, so the
        // next start still demands a repair. A repair without a new redaction does it, too, because
        // earlier versions left old copies of what they recorded as redacted.
        // The index comes first, because writing the file anew takes long, and the index may be in
        // use.
        remove_words(data)?;
        journal.rewrite_file()?;
    }

    let repaired = RepairedJournal { found: journal.found().clone(), redacted, copies };
    let actions = repaired.actions(accepted, note, journal.public_key())?;
    if actions.is_empty() {
        // A killed repair may have left copies of lost records.
        journal.put_aside_lost_copies();
        journal.close(Time::now())?;
        return Ok((!repaired.copies.is_empty()).then_some(repaired));
    }

    operator::append_actions(&mut core, &mut journal, &config.texts(), actions)?;
    journal.close(Time::now())?;
    Ok(Some(repaired))
}

/// Records in every partition that the key of another machine is trusted. Then signs a checkpoint
/// of each partition with the key of this machine. Machines that trust this machine read the
/// checkpoints, and also trust `key` from then on.
pub fn trust_key(config: &Config, key: &str, note: &str) -> Result<(), Error> {
    refuse_hosted_start(config)?;
    if matches!(config.storage, StorageConfig::Embedded) {
        return Err(Error::OneHost);
    }

    // A host may trust another host before its own first start.
    project::begin(&config.directories(), false)?;

    for partition in 0..config.partitions() {
        let details = vec![ActionDetail::new(OperatorAction::TRUSTED_KEY, key)];
        let action = operator::action(OperatorVerb::TrustKey, note, details)?;
        let config = config.of_partition(partition);
        operator::record_offline(&config, None, action, AcceptedDamage::default())?;
    }

    Ok(())
}

/// Deletes the index of the journal in `data`, because it contains words of redacted payloads.
pub(super) fn remove_words(data: &Path) -> Result<(), Error> {
    index::remove_index(data).map_err(Error::IndexWithRedactedWords)
}

/// Finds the payloads whose bytes were overwritten, and the recorded actions in which operators
/// accepted the overwriting.
pub(super) fn redactions(data: &Path) -> Result<RedactedRecords, Error> {
    let reader = JournalReader::open(data)?;
    let last = reader.last()?;
    let mut redactions = RedactedRecords::default();
    sqlite::scan(&reader, last, &mut TreeHeads::default(), &mut |sealed, _| {
        redactions.take(&sealed);
        Ok(())
    })?;
    Ok(redactions)
}

/// Returns the details of the actions that record the redaction of the records at `positions`: one
/// list for each action. One action has at most [`limits::ACTION_DETAILS_MAX`] details.
pub(super) fn redaction_details(positions: &[Position]) -> Vec<Vec<ActionDetail>> {
    let of_action = |positions: &[Position]| {
        positions.iter().map(|at| ActionDetail::new("redacted", at)).collect()
    };
    positions.chunks(limits::ACTION_DETAILS_MAX).map(of_action).collect()
}

impl RepairedJournal {
    /// Makes one action for each kind of damage that was found and that the operator accepts, or
    /// several for many redactions.
    pub(super) fn actions(
        &self,
        accepted: AcceptedDamage,
        note: &str,
        key: &str,
    ) -> Result<Vec<OperatorAction>, Error> {
        let kinds = self.kinds(accepted);
        let details = kinds.flat_map(|kind| self.details(kind, key));
        details.map(|details| operator::action(OperatorVerb::Repair, note, details)).collect()
    }

    /// Returns the kinds of damage that were found and that the operator accepts.
    pub fn kinds(&self, accepted: AcceptedDamage) -> impl Iterator<Item = AcceptedKind> {
        accepted.kinds().filter(|kind| !self.is_nothing(*kind))
    }

    fn is_nothing(&self, kind: AcceptedKind) -> bool {
        let FoundJournal { covered, last, loss, taken_out, put_back, .. } = &self.found;
        match kind {
            AcceptedKind::Loss => {
                let is_whole = loss.journal.is_none() && loss.acknowledged <= *last;
                taken_out.is_none() && is_whole && *put_back == 0
            }
            AcceptedKind::Redaction => self.redacted.is_empty(),
            AcceptedKind::Key => covered == last,
        }
    }

    /// Returns the details of each action that records the accepted damage of this kind.
    fn details(&self, kind: AcceptedKind, key: &str) -> Vec<Vec<ActionDetail>> {
        let FoundJournal { covered, last, loss, taken_out, put_back, set_aside, .. } = &self.found;
        let mut details = Vec::new();
        match kind {
            AcceptedKind::Loss => {
                details.push(ActionDetail::new("accepted", "loss"));
                details.extend(loss.details());
                if let Some(TakenOut { first, last, file }) = taken_out {
                    details.push(ActionDetail::new("taken-out-from", first));
                    details.push(ActionDetail::new("taken-out-to", last));
                    details.push(ActionDetail::new("taken-out-file", file.display()));
                }
                if *put_back > 0 {
                    details.push(ActionDetail::new("checkpoints-put-back", put_back));
                }
                if let Some(file) = set_aside {
                    details.push(ActionDetail::new("set-aside", file.display()));
                }
            }
            AcceptedKind::Redaction => return redaction_details(&self.redacted),
            AcceptedKind::Key => {
                details.push(ActionDetail::new("accepted", "key"));
                details.push(ActionDetail::new("key-before", &self.found.key));
                details.push(ActionDetail::new("key", key));
                details.push(ActionDetail::new("from", Position(covered.0 + 1)));
                details.push(ActionDetail::new("to", last));
            }
        }

        vec![details]
    }
}
