//! `organism replay`: proves that the pump's rules produce each record from the record's input.
//!
//! The replay reads the records in order. It checks the hash of each record and its place in the
//! hash chain. It also checks that each message is accepted once and has at most one disposition.
//! Then it applies the record's facts to a state.
//!
//! Each boot of the organism begins an epoch. If the config of an epoch is stored, and its pump had
//! the same core version as this program, the records of the epoch are also recomputed. For this, a
//! second core starts from the state before the epoch, as the pump did. The gate of the epoch's
//! config validates the payloads in each record's input again, and the core recomputes the record
//! from this input. The result must equal the record.
//!
//! **Invariant:** nothing here writes to a journal or starts a program.

mod decider;
mod report;
mod zone_rules;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Error, with_core_words};
use crate::audit::MessageLedger;
use crate::config::{BootConfig, Config, StoredConfig};
use crate::contract::{Contracts, TreeLimits};
use crate::ids::{Digest, Position};
use crate::journal::sqlite::{JournalReader, scan};
use crate::journal::{self, TreeHeads};
use crate::limits;
use crate::pump::core::{CORE_VERSION, Core};
use crate::thread::{Record, Verdict};
use decider::{DecisionOutcome, EpochDecider};
pub use report::{DecisionDifference, ReplayReport, ReplayVerdict, ReplayedEpoch, UndecidedReason};

/// Replays the journal in `data`, which belongs to `partition`. `progress` gets the number of
/// records that were replayed so far, and the number of all records.
///
/// # Errors
///
/// [`Error::Journal`] if the journal cannot be read or its chain is broken.
pub fn replay(
    data: &Path,
    partition: u32,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ReplayReport, Error> {
    let reader = JournalReader::open(data)?;
    reader.check_first_position()?;
    let journal = reader.about()?.journal;
    let last = reader.last()?;
    let nothing = Arc::new(Contracts::default());
    let mut run = ReplayRun {
        data: data.to_owned(),
        partition,
        reader,
        folded: Core::new(nothing, TreeLimits::default(), Digest::ZERO),
        decider: None,
        ledger: MessageLedger::default(),
        configs: HashMap::new(),
        report: ReplayReport::new(journal),
    };

    let mut heads = TreeHeads::default();
    let scanned_reader = JournalReader::open(data)?;
    let scanned = scan(&scanned_reader, last, &mut heads, &mut |sealed, _| {
        let position = sealed.record.position;
        run.take(&sealed.record)?;
        if run.report.difference.is_some() {
            // Ends the scan. The report has the reason.
            return Err(journal::Error::broken(position.0, "the replay ends here"));
        }
        if position.0 % limits::SCAN_RECORDS == 0 || position == last {
            progress(position.0, last.0);
        }
        Ok(())
    });

    if run.report.difference.is_none() {
        scanned?;
        run.end_epoch();
    }
    Ok(run.report)
}

/// A config with the schemas that [`with_core_words`] adds, or the reason why the config is not
/// available.
type LoadedConfig = Result<Arc<Config>, UndecidedReason>;

struct ReplayRun {
    data: PathBuf,
    partition: u32,
    reader: JournalReader,
    /// State that results from applying the recorded facts, without recomputing any record.
    folded: Core,
    /// Recomputes the records of the current epoch. `None` if the replay applies the facts of these
    /// records without recomputing them.
    decider: Option<EpochDecider>,
    ledger: MessageLedger,
    /// Loaded configs. The key consists of the digest of the effective config and the digest of the
    /// stored config's manifest.
    configs: HashMap<(Digest, Option<Digest>), LoadedConfig>,
    report: ReplayReport,
}

impl ReplayRun {
    /// Checks the next record, recomputes it if possible, and applies its facts to the state.
    fn take(&mut self, record: &Record) -> Result<(), journal::Error> {
        let broken = |detail: String| journal::Error::broken(record.position.0, detail);
        self.ledger.take(record).map_err(broken)?;

        if let Some(boot) = BootConfig::of_record(record) {
            if boot.is_reload {
                self.reload(&boot);
            } else {
                // Such a boot and its shutdown are one group of records.
                let unexplained =
                    self.decider.as_mut().and_then(EpochDecider::take_boot_difference);
                if let Some(difference) = unexplained {
                    self.report.difference = Some(*difference);
                    return Ok(());
                }
                self.end_epoch();
                if self.report.difference.is_some() {
                    return Ok(());
                }
                self.begin_epoch(&boot);
            }
        }

        let decided = self.decider.as_mut().map(|decider| decider.decide(record));
        let epoch = self.report.epoch_of(record.position);
        epoch.to = record.position;
        let has_other_zone_rules = matches!(decided, Some(DecisionOutcome::OtherZoneRules { .. }));
        match decided {
            None => epoch.folded += 1,
            Some(DecisionOutcome::Equal) => {
                epoch.decided += 1;
                self.report.refusals += refusals(record);
            }
            Some(DecisionOutcome::Redacted) => {
                epoch.folded += 1;
                epoch.reason = Some(UndecidedReason::Redacted { position: record.position });
                self.decider = None;
            }
            Some(DecisionOutcome::OtherZoneRules { zone }) => {
                epoch.folded += 1;
                let position = record.position;
                epoch.reason.get_or_insert(UndecidedReason::ZoneRules { position, zone });
            }
            Some(DecisionOutcome::Differs(difference)) => {
                self.report.difference = Some(*difference);
                return Ok(());
            }
        }

        let is_redacted = record.payloads().filter(|payload| payload.is_redacted());
        self.report.redacted += is_redacted.count() as u64;
        self.report.records += 1;
        self.folded.replay(record);
        if has_other_zone_rules && let Some(decider) = &mut self.decider {
            decider.adopt_schedules(self.folded.state());
        }
        Ok(())
    }

    /// Compares two states at the end of an epoch: the state that results from the recomputed
    /// records, and the state that results from the recorded facts.
    fn end_epoch(&mut self) {
        let Some(decider) = self.decider.take() else { return };
        if decider.state() != self.folded.state() {
            let position = Position(self.report.records);
            self.report.difference = Some(DecisionDifference::of_state(position));
        }
    }

    fn begin_epoch(&mut self, boot: &BootConfig) {
        let begun = match self.config_of(boot) {
            Ok(config) => EpochDecider::start(&config, &self.folded)
                .map_err(|error| UndecidedReason::Config { detail: error.to_string() }),
            Err(reason) => Err(reason),
        };

        let mut epoch = ReplayedEpoch::of_boot(boot);
        match begun {
            Ok(decider) => self.decider = Some(decider),
            Err(reason) => epoch.reason = Some(reason),
        }
        self.report.epochs.push(epoch);
    }

    /// Puts the config of a reload in force. If the records before the reload were recomputed, and
    /// this config can be loaded, the recomputation continues with this config from the state at
    /// the reload. Otherwise, the records after the reload are not recomputed.
    fn reload(&mut self, reload: &BootConfig) {
        let mut part = ReplayedEpoch::of_boot(reload);
        if let Some(mut decider) = self.decider.take() {
            let config = self.config_of(reload);
            let reloaded = config.and_then(|config| {
                decider
                    .reload(&config)
                    .map_err(|error| UndecidedReason::Config { detail: error.to_string() })
            });
            match reloaded {
                Ok(()) => self.decider = Some(decider),
                Err(reason) => part.reason = Some(reason),
            }
        } else {
            part.reason = self.report.epochs.last().and_then(|before| before.reason.clone());
        }
        self.report.epochs.push(part);
    }

    /// Loads the config of an epoch. Returns the reason if this program cannot recompute the
    /// records of the epoch.
    fn config_of(&mut self, boot: &BootConfig) -> LoadedConfig {
        if boot.core_version != CORE_VERSION {
            return Err(UndecidedReason::CoreVersion { program: CORE_VERSION });
        }

        let key = (boot.config, boot.blobs.get(1).copied());
        if let Some(known) = self.configs.get(&key) {
            return known.clone();
        }

        let loaded = self.load(boot);
        self.configs.insert(key, loaded.clone());
        loaded
    }

    fn load(&self, boot: &BootConfig) -> LoadedConfig {
        let unusable = |detail: String| UndecidedReason::Config { detail };
        let stored = StoredConfig::read(&self.reader, boot).and_then(|stored| stored.load());
        let config = stored.map_err(|error| unusable(error.to_string()))?;
        let mut config = config.of_partition(self.partition);
        // Definitions of open runs are read from the journal.
        config.data.clone_from(&self.data);
        let config = with_core_words(config).map_err(|error| unusable(error.to_string()))?;
        Ok(Arc::new(config))
    }
}

/// Counts the refused payloads in the input of a record.
fn refusals(record: &Record) -> u64 {
    let refused = |verdict: &&Verdict| matches!(verdict, Verdict::Refused(_));
    record.input.verdicts().iter().filter(refused).count() as u64
}
