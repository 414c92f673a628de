//! Results of a replay.

use serde::Serialize;
use uuid::Uuid;

use crate::config::BootConfig;
use crate::ids::{Digest, Position, ThreadId};
use crate::shorten::shorten;
use crate::thread::Record;

/// Maximum number of characters that a [`DecisionDifference`] shows of each value.
const VALUE_CHARS_MAX: usize = 600;

/// Result of the replay of one journal.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayReport {
    #[serde(rename = "journal")]
    pub journal: Uuid,
    /// Number of records that were read and checked, and whose facts were applied to the state.
    #[serde(rename = "records")]
    pub records: u64,
    /// Number of refused payloads in the recomputed records. The replay cannot check these refusals
    /// again, because a record keeps only the first bytes of a refused payload.
    #[serde(rename = "refusals_as_recorded")]
    pub refusals: u64,
    /// Number of redacted payloads.
    #[serde(rename = "redacted")]
    pub redacted: u64,
    #[serde(rename = "epochs")]
    pub epochs: Vec<ReplayedEpoch>,
    /// The first difference between a record and its recomputed form. The replay ended at this
    /// record. `None` if no difference was found.
    #[serde(rename = "difference", skip_serializing_if = "Option::is_none")]
    pub difference: Option<DecisionDifference>,
}

/// One part of a replay: the records from one start or reload to the next.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayedEpoch {
    #[serde(rename = "epoch")]
    pub epoch: u32,
    #[serde(rename = "from")]
    pub from: Position,
    #[serde(rename = "to")]
    pub to: Position,
    #[serde(rename = "core_version")]
    pub core_version: u32,
    #[serde(rename = "config")]
    pub config: Digest,
    /// Number of records that the core recomputed with the same result.
    #[serde(rename = "decided")]
    pub decided: u64,
    /// Number of records that were checked and applied to the state, but not recomputed.
    #[serde(rename = "folded")]
    pub folded: u64,
    /// Why some records were not recomputed; `None` if all were.
    #[serde(rename = "reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<UndecidedReason>,
}

/// Why records of an epoch are not recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "code")]
pub enum UndecidedReason {
    /// The core of the epoch's pump had another version than the core of this program.
    #[serde(rename = "core-version")]
    CoreVersion {
        #[serde(rename = "program")]
        program: u32,
    },
    /// The config of the epoch is not stored, or this program cannot load it.
    #[serde(rename = "config")]
    Config {
        #[serde(rename = "detail")]
        detail: String,
    },
    /// The input of the record at this position has a payload that was redacted. The state of the
    /// pump after this record is unknown.
    #[serde(rename = "redacted")]
    Redacted {
        #[serde(rename = "position")]
        position: Position,
    },
    /// The records differ from their recomputed forms only in the planned times of schedules in a
    /// time zone. This machine has other rules of the zone than the machine of the pump had.
    #[serde(rename = "zone-rules")]
    ZoneRules {
        /// The first such record.
        #[serde(rename = "position")]
        position: Position,
        /// Time zone of a schedule that this record plans.
        #[serde(rename = "zone")]
        zone: String,
    },
    /// The journal has records before its first boot.
    #[serde(rename = "no-boot")]
    NoBoot,
}

/// The difference between a record and its recomputed form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionDifference {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// The part of the record in which the recomputed and the recorded form differ, such as `fact
    /// 3`.
    #[serde(rename = "part")]
    pub part: String,
    /// The recorded value of the part that differs; empty if the record lacks the part.
    #[serde(rename = "recorded")]
    pub recorded: String,
    /// The recomputed value of the part that differs; empty if the recomputed record lacks the
    /// part.
    #[serde(rename = "decided")]
    pub decided: String,
}

/// Verdict of a replay on the journal as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayVerdict {
    Equal,
    /// No difference was found, but some records were not recomputed.
    Undecided,
    Differs,
}

impl ReplayReport {
    pub(super) fn new(journal: Uuid) -> Self {
        let epochs = Vec::new();
        Self { journal, records: 0, refusals: 0, redacted: 0, epochs, difference: None }
    }

    pub fn verdict(&self) -> ReplayVerdict {
        if self.difference.is_some() {
            return ReplayVerdict::Differs;
        }
        if self.records == 0 || self.folded() > 0 {
            return ReplayVerdict::Undecided;
        }
        ReplayVerdict::Equal
    }

    /// Returns the number of records that the core recomputed with the same result.
    pub fn decided(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.decided).sum()
    }

    /// Returns the number of records that were checked and applied to the state, but not
    /// recomputed.
    pub fn folded(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.folded).sum()
    }

    /// Returns the epoch to which the next record belongs, which is the last epoch of the report.
    /// If the report has no epoch yet, the record lies before the first boot. In this case, adds an
    /// epoch that begins at `position`, the position of the record.
    pub(super) fn epoch_of(&mut self, position: Position) -> &mut ReplayedEpoch {
        if self.epochs.is_empty() {
            self.epochs.push(ReplayedEpoch {
                epoch: 0,
                from: position,
                to: position,
                core_version: 0,
                config: Digest::ZERO,
                decided: 0,
                folded: 0,
                reason: Some(UndecidedReason::NoBoot),
            });
        }
        self.epochs.last_mut().expect("an epoch was pushed")
    }
}

impl ReplayedEpoch {
    pub(super) fn of_boot(boot: &BootConfig) -> Self {
        Self {
            epoch: boot.epoch,
            from: boot.position,
            to: boot.position,
            core_version: boot.core_version,
            config: boot.config,
            decided: 0,
            folded: 0,
            reason: None,
        }
    }
}

impl DecisionDifference {
    /// Returns the first difference between a record and its recomputed form. Returns `None` if
    /// they are equal.
    pub(super) fn between(recorded: &Record, decided: Option<&Record>) -> Option<Self> {
        let Some(decided) = decided else {
            let part = "the whole record";
            return Some(Self::of(recorded, part, &text(&recorded.input), ""));
        };

        if recorded.tree != decided.tree {
            let trees = [&recorded.tree, &decided.tree].map(ToString::to_string);
            let [recorded_tree, decided_tree] = trees;
            return Some(Self::of(recorded, "tree", &recorded_tree, &decided_tree));
        }
        if recorded.input != decided.input {
            let input = text(&recorded.input);
            return Some(Self::of(recorded, "input", &input, &text(&decided.input)));
        }

        let count = recorded.facts.len().max(decided.facts.len());
        (0..count).find_map(|index| {
            let was = recorded.facts.get(index);
            let is = decided.facts.get(index);
            if was == is {
                return None;
            }
            // The text contains the digest and the length of a redacted payload, so such payloads
            // compare as equal.
            let was = was.map(text).unwrap_or_default();
            let is = is.map(text).unwrap_or_default();
            let part = format!("fact {}", index + 1);
            (was != is).then(|| Self::of(recorded, part, &was, &is))
        })
    }

    /// Describes the difference for a record that could not be recomputed, because the gate refuses
    /// a payload of its input, or because a part of the input is missing.
    pub(super) fn of_gate(record: &Record) -> Self {
        let decided = "the gate of that config does not pass a payload of this input, or a part of \
                       the input is missing";
        Self::of(record, "gate", &text(&record.input), decided)
    }

    /// Describes a difference at the end of an epoch, which contains the records from one boot to
    /// the next. All records were recomputed as equal, but the state after the recomputation
    /// differs from the state after the recorded facts.
    pub(super) fn of_state(position: Position) -> Self {
        Self {
            position,
            thread: ThreadId::organism(),
            part: "state after the epoch".to_owned(),
            recorded: String::new(),
            decided: String::new(),
        }
    }

    fn of(record: &Record, part: impl Into<String>, recorded: &str, decided: &str) -> Self {
        Self {
            position: record.position,
            thread: record.tree.clone(),
            part: part.into(),
            recorded: shorten(recorded, VALUE_CHARS_MAX),
            decided: shorten(decided, VALUE_CHARS_MAX),
        }
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
