//! Keys that signed the checkpoints of a journal, and keys of other hosts that operators trust. An
//! operator declares such trust in a recorded action.
//!
//! This module must not know which keys the config names; the caller passes them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::Position;
use crate::thread::{Input, Record};

use super::Checkpoint;

/// Keys that signed checkpoints of a journal, and recorded actions in which operators declare trust
/// in further keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSigners {
    /// Keys that signed checkpoints, each with the position of the last checkpoint that it signed.
    #[serde(rename = "last")]
    last: BTreeMap<String, Position>,
    /// Recorded actions by which operators trust a key, in the order of their positions.
    #[serde(rename = "trusts")]
    trusts: Vec<RecordedTrust>,
}

/// A recorded action by which an operator trusts the key of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedTrust {
    #[serde(rename = "position")]
    position: Position,
    #[serde(rename = "key")]
    key: String,
    /// Key that signed the checkpoint at the position of this action; `None` if there is no
    /// checkpoint at exactly this position. A later checkpoint does not prove that a trusted pump
    /// recorded the action. A pump with an unknown key could have recorded the action before
    /// another pump signed the later checkpoint.
    #[serde(rename = "signer", default, skip_serializing_if = "Option::is_none")]
    signer: Option<String>,
}

impl CheckpointSigners {
    /// Adds `record` to the recorded actions if it is an action by which an operator trusts a key.
    pub fn take_record(&mut self, record: &Record) {
        let Input::Operator(action) = &record.input else { return };
        let trusted = action.trusted_key().map(|key| RecordedTrust {
            position: record.position,
            key: key.to_owned(),
            signer: None,
        });
        self.trusts.extend(trusted);
    }

    /// Remembers the key that signed `checkpoint`. The caller must have verified the checkpoint's
    /// Merkle root.
    pub fn take_checkpoint(&mut self, checkpoint: &Checkpoint) {
        self.last.insert(checkpoint.key.clone(), checkpoint.position);
        if let Some(trust) = self.trusts.last_mut()
            && trust.position == checkpoint.position
        {
            trust.signer.get_or_insert_with(|| checkpoint.key.clone());
        }
    }

    /// Returns the keys that signed checkpoints, each with the position of the last checkpoint that
    /// it signed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Position)> {
        self.last.iter().map(|(key, position)| (key.as_str(), *position))
    }

    /// Returns the last record that a checkpoint of a `known` key covers.
    pub fn signed_by(&self, known: &BTreeSet<&str>) -> Position {
        let signed = self.iter().filter(|(key, _)| known.contains(key));
        signed.map(|(_, position)| position).max().unwrap_or_default()
    }

    /// Returns the known keys: the `configured` keys, and the keys that operators trust by recorded
    /// actions. An action counts only if the checkpoint at its position is signed with a configured
    /// key, or with a key that an earlier action made known.
    pub fn known<'a>(&'a self, configured: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        let mut known: BTreeSet<&str> = configured.collect();
        for RecordedTrust { key, signer, .. } in &self.trusts {
            if signer.as_deref().is_some_and(|signer| known.contains(signer)) {
                known.insert(key);
            }
        }

        known
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{CheckpointSigners, RecordedTrust};
    use crate::clock::Time;
    use crate::ids::{Digest, Position};
    use crate::journal::Checkpoint;

    fn checkpoint(key: &str, position: u64) -> Checkpoint {
        Checkpoint {
            journal: Uuid::nil(),
            position: Position(position),
            count: position,
            merkle_root: Digest::ZERO,
            time: Time(0),
            proved_from: None,
            key: key.to_owned(),
            signature: String::new(),
        }
    }

    /// Returns the signers of a test journal with the given checkpoints: for each, the key that
    /// signed it, and its position. Record 5 of the journal is an action by which an operator
    /// trusts the key `new`.
    fn signers(checkpoints: &[(&str, u64)]) -> CheckpointSigners {
        let mut signers = CheckpointSigners::default();
        let trust = RecordedTrust { position: Position(5), key: "new".to_owned(), signer: None };
        signers.trusts.push(trust);
        for (key, position) in checkpoints {
            signers.take_checkpoint(&checkpoint(key, *position));
        }

        signers
    }

    #[test]
    fn a_key_is_trusted_by_the_signer_of_the_checkpoint_at_the_action_alone() {
        let is_known = |checkpoints: &[(&str, u64)]| {
            signers(checkpoints).known(["one"].into_iter()).contains("new")
        };

        assert!(is_known(&[("one", 5)]));
        assert!(is_known(&[("one", 5), ("new", 7)]));
        assert!(!is_known(&[("stranger", 5)]));
        assert!(!is_known(&[("stranger", 5), ("one", 7)]));
        assert!(!is_known(&[("one", 7)]), "the action was left for the next pump to sign");
        assert!(!is_known(&[]));
    }
}
