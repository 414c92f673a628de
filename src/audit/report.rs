//! The report on the proof of a journal. A proof checks that the records of the journal are
//! complete and unchanged.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use uuid::Uuid;

use crate::ids::{MessageId, Position};
use crate::plural::count;

use super::ledger::ThreadCounts;

/// The first violation that the proof of a journal has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainBreak {
    /// Position of the violation; 0 if it concerns the journal as a whole.
    #[serde(rename = "position")]
    pub position: u64,
    #[serde(rename = "detail")]
    pub detail: String,
}

/// A message whose payload was removed from the record. The hash chain still proves the hash of the
/// payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedactedPayload {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "message")]
    pub message: MessageId,
}

/// Result of comparing the journal with copies of its checkpoints that are outside the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OutsideVerdict {
    /// No copies of the checkpoints were found, and the auditor named no state directory.
    #[serde(rename = "not-compared")]
    NotCompared,
    /// The auditor named a state directory, but no copy of a checkpoint counts as proof. So a
    /// rewritten journal could not be detected.
    #[serde(rename = "missing")]
    Missing,
    /// Copies of checkpoints in the state directory agree with the journal, but no copy outside
    /// this directory does.
    #[serde(rename = "state-agrees")]
    StateAgrees,
    #[serde(rename = "agrees")]
    Agrees,
    /// At least one copy of a checkpoint contradicts the journal, so the journal is broken.
    #[serde(rename = "disagrees")]
    Disagrees,
}

/// Result of the whole proof of a journal: proved, broken, or not proved for lack of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ProofVerdict {
    #[serde(rename = "proved")]
    Proved,
    /// The proof found no violation, but lacks evidence for a part of the journal.
    #[serde(rename = "not-proved")]
    NotProved,
    #[serde(rename = "broken")]
    Broken,
}

impl ProofReport {
    /// Adds to the report that the records of the stream and of its projection in SQLite are equal.
    /// `ahead` is the number of records that only the stream has. If `ahead` is not 0, the
    /// projection is incomplete, and the journal is not proved.
    pub fn stream_agrees(&mut self, ahead: u64) {
        self.unproved.retain(|reason| reason != NOT_COMPARED);
        if ahead > 0 {
            let ahead = count(ahead, "record");
            let reason = format!("the stream has {ahead} that this projection lacks");
            self.unproved.push(reason);
            if self.broken.is_none() {
                self.verdict = ProofVerdict::NotProved;
            }
        }

        if self.broken.is_none() && self.unproved.is_empty() {
            self.verdict = ProofVerdict::Proved;
        }
    }

    /// Adds to the report that the stream and its projection in SQLite differ at `position`, so
    /// that the journal is broken.
    pub fn stream_differs(&mut self, position: u64, detail: String) {
        self.verdict = ProofVerdict::Broken;
        self.broken.get_or_insert(ChainBreak { position, detail });
    }
}

/// Reason why a journal is not proved: the journal is a projection of a stream, and was not
/// compared with the stream.
pub(super) const NOT_COMPARED: &str = "this is a projection of a stream on JetStream, and was not compared \
                            with it: `--stream` does that";

/// A loss of records that an operator has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecordedLoss {
    /// Position of the last record before the loss.
    #[serde(rename = "kept")]
    pub kept: Position,
    /// Position of the last lost record: the last record that the journal had acknowledged.
    #[serde(rename = "acknowledged")]
    pub acknowledged: Position,
    /// Id of the journal that contained the lost records; `None` if the verified journal itself
    /// contained them.
    #[serde(rename = "journal", skip_serializing_if = "Option::is_none")]
    pub journal: Option<Uuid>,
    /// Whether the verified journal has different records at the positions of the lost ones,
    /// because its stream was forked.
    #[serde(rename = "fork", skip_serializing_if = "std::ops::Not::not")]
    pub is_fork: bool,
}

/// Records that an operator has accepted although no MAC of an available key covered them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedRecords {
    #[serde(rename = "first")]
    pub first: Position,
    #[serde(rename = "last")]
    pub last: Position,
    /// Ids of the keys that the MACs over these records name. Empty if no MAC covers the records.
    #[serde(rename = "keys")]
    pub keys: Vec<String>,
}

/// Result of the proof of a journal. The proof ends at the first violation.
#[derive(Debug, Clone, Serialize)]
pub struct ProofReport {
    #[serde(rename = "verdict")]
    pub verdict: ProofVerdict,
    /// Reasons why the journal is not proved. If there is a violation, contains only the reasons
    /// that were found before the violation, and reasons about evidence that could not be read.
    #[serde(rename = "unproved")]
    pub unproved: Vec<String>,
    /// Id of the journal; `None` if the journal's metadata cannot be read.
    #[serde(rename = "journal")]
    pub journal: Option<Uuid>,
    #[serde(rename = "epoch")]
    pub epoch: u32,
    #[serde(rename = "records")]
    pub records: u64,
    #[serde(rename = "trees")]
    pub trees: usize,
    #[serde(rename = "threads")]
    pub threads: usize,
    #[serde(rename = "messages")]
    pub messages: ThreadCounts,
    #[serde(rename = "in_flight")]
    pub in_flight: u64,
    #[serde(rename = "redacted")]
    pub redacted: Vec<RedactedPayload>,
    #[serde(rename = "blobs")]
    pub blobs: usize,
    #[serde(rename = "checkpoints")]
    pub checkpoints: usize,
    #[serde(rename = "outside")]
    pub outside: OutsideVerdict,
    /// Position of the last record that a copy of a checkpoint proves; 0 if there is none. Only
    /// copies outside the directories of the journal and of its key count. If the journal is
    /// broken, only copies before the violation count.
    #[serde(rename = "vouched")]
    pub vouched: Position,
    /// Files outside the journal with copies of checkpoints that were compared with the journal.
    #[serde(rename = "copies")]
    pub copies: Vec<PathBuf>,
    /// Position up to which an available key covers every record, by a MAC or a signature.
    #[serde(rename = "covered")]
    pub covered: Position,
    /// Public keys, in hexadecimal, that signed checkpoints in the journal, or newer copies that
    /// count as proof.
    #[serde(rename = "keys")]
    pub keys: BTreeSet<String>,
    /// Public keys, each with the position of the first checkpoint that it signed.
    #[serde(rename = "key_changes")]
    pub key_changes: Vec<(Position, String)>,
    /// Ids of keys that signed checkpoints or made MACs, but are not available.
    #[serde(rename = "unknown_keys")]
    pub unknown_keys: BTreeSet<String>,
    #[serde(rename = "losses")]
    pub losses: Vec<RecordedLoss>,
    #[serde(rename = "accepted")]
    pub accepted: Vec<AcceptedRecords>,
    #[serde(rename = "broken")]
    pub broken: Option<ChainBreak>,
}
