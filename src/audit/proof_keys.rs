//! The public keys that the proof of a journal trusts, and those that signed the journal.

use std::collections::BTreeSet;

use crate::ids::Position;
use crate::journal::{CheckpointSigners, KeyId};

/// The keys of a proof, and the signers of the checkpoints that the proof has compared.
pub(super) struct ProofKeys<'p> {
    /// Keys that the options name, and the key of this host.
    pub available: &'p BTreeSet<String>,
    /// Whether the auditor has named the trusted keys. If so, only the available keys are trusted.
    pub is_pinned: bool,
    /// Key that signed the journal's last checkpoint.
    pub present: Option<&'p String>,
    /// Keys of the copies of checkpoints in the files that the auditor named.
    pub of_copies: &'p BTreeSet<String>,
    /// Keys that signed checkpoints in the journal.
    pub signers: &'p CheckpointSigners,
    /// Keys that signed newer copies: copies of checkpoints after the journal's last checkpoint.
    /// Contains only keys of copies that agree with the journal.
    pub later_signers: &'p CheckpointSigners,
}

impl<'p> ProofKeys<'p> {
    /// Returns the position of the last record that a trusted key has signed, in the journal or in
    /// a newer copy.
    pub fn signed(&self) -> Position {
        let later = self.later_signers.signed_by(&self.known_later());
        self.signers.signed_by(&self.known()).max(later)
    }

    /// Whether any key, trusted or not, has signed records after `position`.
    pub fn is_signed_after(&self, position: Position) -> bool {
        let mut signers = self.signers.iter().chain(self.later_signers.iter());
        signers.any(|(_, signed)| signed > position)
    }

    /// Returns the keys that signed checkpoints in the journal, and the keys that signed newer
    /// copies which count as proof.
    pub fn signing(&self) -> BTreeSet<String> {
        let known = self.known_later();
        let later = self.later_signers.iter().filter(|(key, _)| known.contains(key));
        self.signers.iter().chain(later).map(|(key, _)| key.to_owned()).collect()
    }

    /// Returns the ids of the keys that signed checkpoints or made MACs, but are not trusted to do
    /// so. `foreign` contains the ids of other hosts' keys that made MACs. The result includes
    /// these ids, except those of trusted keys.
    pub fn unknown(&self, foreign: &BTreeSet<KeyId>) -> BTreeSet<String> {
        let known = self.known();
        let known_later = self.known_later();
        let signed = self.signers.iter().filter(|(key, _)| !known.contains(key));
        let later = self.later_signers.iter().filter(|(key, _)| !known_later.contains(key));
        let signed = signed.chain(later).map(|(key, _)| KeyId::of(key).to_string());
        let ids: BTreeSet<KeyId> = known.iter().copied().map(KeyId::of).collect();
        let of_macs = foreign.iter().filter(|id| !ids.contains(id));
        signed.chain(of_macs.map(KeyId::to_string)).collect()
    }

    /// Returns the keys whose checkpoints in the journal count. If the auditor has named trusted
    /// keys, only these count. Otherwise, the available keys count, the keys in the copies that the
    /// auditor named, and keys that the journal adds in signed records.
    fn known(&self) -> BTreeSet<&'p str> {
        self.trusted(|_| true)
    }

    /// Returns the keys whose newer copies of checkpoints count. The writer of a copy chooses the
    /// copy's key. Therefore, a key that is trusted only because a copy contains it must also have
    /// signed the journal's last checkpoint.
    fn known_later(&self) -> BTreeSet<&'p str> {
        self.trusted(|key| Some(key) == self.present)
    }

    fn trusted(&self, is_copy_trusted: impl Fn(&String) -> bool) -> BTreeSet<&'p str> {
        let available = self.available.iter();
        if self.is_pinned {
            return available.map(String::as_str).collect();
        }

        let of_copies = self.of_copies.iter().filter(|key| is_copy_trusted(key));
        self.signers.known(available.chain(of_copies).map(String::as_str))
    }
}
