//! The result of proving a journal.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use uuid::Uuid;

use crate::ids::{MessageId, Position};

use super::ledger::ThreadCounts;

/// The first thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainBreak {
    /// 0 where it is about the journal as a whole.
    #[serde(rename = "position")]
    pub position: u64,
    #[serde(rename = "detail")]
    pub detail: String,
}

/// A payload that was taken out of the record; the chain still proves what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedactedPayload {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "message")]
    pub message: MessageId,
}

/// How the checkpoints outside compare with those inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OutsideVerdict {
    /// No place of checkpoints outside the journal is known.
    #[serde(rename = "not-compared")]
    NotCompared,
    /// There are none, so that a rewritten log would look like this one.
    #[serde(rename = "missing")]
    Missing,
    /// Those in the state directory agree, and there are none elsewhere.
    #[serde(rename = "state-agrees")]
    StateAgrees,
    #[serde(rename = "agrees")]
    Agrees,
}

/// Result of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ProofVerdict {
    #[serde(rename = "proved")]
    Proved,
    /// Nothing contradicts it, and something is missing that would prove it.
    #[serde(rename = "not-proved")]
    NotProved,
    #[serde(rename = "broken")]
    Broken,
}

impl ProofReport {
    /// The stream holds the same records: the projection stands for it. `ahead`: so many records
    /// stand in the stream behind the projection's last, and were not proved.
    pub fn stream_agrees(&mut self, ahead: u64) {
        self.unproved.retain(|reason| reason != NOT_COMPARED);
        if ahead > 0 {
            let reason = format!("the stream holds {ahead} records that this projection has not");
            self.unproved.push(reason);
            if self.broken.is_none() {
                self.verdict = ProofVerdict::NotProved;
            }
        }

        if self.broken.is_none() && self.unproved.is_empty() {
            self.verdict = ProofVerdict::Proved;
        }
    }

    /// The stream does not hold the same records.
    pub fn stream_differs(&mut self, position: u64, detail: String) {
        self.verdict = ProofVerdict::Broken;
        self.broken.get_or_insert(ChainBreak { position, detail });
    }
}

/// Why a projection by itself is not proved.
pub(super) const NOT_COMPARED: &str = "this is a projection of a stream on JetStream, and was not compared \
                            with it: `--stream` does that";

/// Records that an operator accepted as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecordedLoss {
    /// The last record that was kept.
    #[serde(rename = "kept")]
    pub kept: Position,
    /// The last one that had been acknowledged.
    #[serde(rename = "acknowledged")]
    pub acknowledged: Position,
    /// The journal that they stood in, where it was another than this one.
    #[serde(rename = "journal", skip_serializing_if = "Option::is_none")]
    pub journal: Option<Uuid>,
}

/// Everything that was proved, up to the first break.
#[derive(Debug, Clone, Serialize)]
pub struct ProofReport {
    #[serde(rename = "verdict")]
    pub verdict: ProofVerdict,
    /// Why it is not proved, where nothing is broken.
    #[serde(rename = "unproved")]
    pub unproved: Vec<String>,
    #[serde(rename = "journal")]
    pub journal: Uuid,
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
    /// The last record that a copy of a checkpoint vouches for that is kept elsewhere; 0 where none
    /// does.
    #[serde(rename = "vouched")]
    pub vouched: Position,
    /// Files of checkpoints outside the journal that it was compared with.
    #[serde(rename = "copies")]
    pub copies: Vec<PathBuf>,
    /// The last record that a MAC or a signature of a key at hand covers.
    #[serde(rename = "covered")]
    pub covered: Position,
    /// Public keys that signed checkpoints, in hexadecimal.
    #[serde(rename = "keys")]
    pub keys: BTreeSet<String>,
    /// Each key from the first checkpoint that it signed on.
    #[serde(rename = "key_changes")]
    pub key_changes: Vec<(Position, String)>,
    /// Ids of keys that are not at hand.
    #[serde(rename = "unknown_keys")]
    pub unknown_keys: BTreeSet<String>,
    #[serde(rename = "losses")]
    pub losses: Vec<RecordedLoss>,
    #[serde(rename = "broken")]
    pub broken: Option<ChainBreak>,
}
