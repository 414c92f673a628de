//! Signers of the checkpoints of a journal, and the keys of other hosts that they trust.
//!
//! Must not know which keys the config names: the caller brings them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Position;
use crate::journal::Checkpoint;
use crate::thread::{Input, Record};

/// Keys that signed checkpoints, and recorded actions that trust a key.
#[derive(Debug, Clone, Default)]
pub struct CheckpointSigners {
    /// Each key with the last of its checkpoints that agree with the records.
    last: BTreeMap<String, Position>,
    /// In the order of the record.
    trusts: Vec<RecordedTrust>,
}

/// A recorded action that trusts the key of another host.
#[derive(Debug, Clone)]
struct RecordedTrust {
    position: Position,
    key: String,
    /// Key of the checkpoint at the action itself. A later checkpoint does not count: the pump of
    /// an unknown key could have left the action for the next pump to sign.
    signer: Option<String>,
}

impl CheckpointSigners {
    pub fn take_record(&mut self, record: &Record) {
        let Input::Operator(action) = &record.input else { return };
        let trusted = action.trusted_key().map(|key| RecordedTrust {
            position: record.position,
            key: key.to_owned(),
            signer: None,
        });
        self.trusts.extend(trusted);
    }

    /// Takes a checkpoint that agrees with the records before it.
    pub fn take_checkpoint(&mut self, checkpoint: &Checkpoint) {
        self.last.insert(checkpoint.key.clone(), checkpoint.position);
        if let Some(trust) = self.trusts.last_mut()
            && trust.position == checkpoint.position
        {
            trust.signer.get_or_insert_with(|| checkpoint.key.clone());
        }
    }

    /// Each key with the position of its last checkpoint.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Position)> {
        self.last.iter().map(|(key, position)| (key.as_str(), *position))
    }

    /// The last record under a checkpoint of one of these keys.
    pub fn signed_by(&self, known: &BTreeSet<&str>) -> Position {
        let signed = self.iter().filter(|(key, _)| known.contains(key));
        signed.map(|(_, position)| position).max().unwrap_or_default()
    }

    /// `configured`, and every key that a recorded action of one of these, or of a key that is
    /// trusted already, trusts.
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
            key: key.to_owned(),
            signature: String::new(),
        }
    }

    /// Signers of a journal in which record 5 trusts the key `new`.
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
