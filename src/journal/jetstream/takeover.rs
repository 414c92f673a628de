//! Reports which records of a stream were proved to be genuine when a pump took over the stream.
//! The pump accepts all other records from the server without proof.

use std::collections::BTreeSet;

use crate::ids::Position;
use crate::journal::KeyId;
use crate::journal::sqlite::StreamEvidence;
use crate::plural;

use super::Options;

/// Length of a public key in hexadecimal digits.
const PUBLIC_KEY_DIGITS: usize = 64;

/// Which records of a stream were proved to be genuine at a takeover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamTakeover {
    /// The last record that is covered by a MAC of this host, or by a checkpoint of a known key.
    pub proved: Position,
    pub last: Position,
    /// Unknown keys that signed checkpoints or made MACs.
    pub unknown: BTreeSet<String>,
}

impl StreamTakeover {
    /// Determines from `evidence` which records of a stream are proved to be genuine, and which
    /// keys are unknown to this host.
    pub fn of(evidence: &StreamEvidence<'_>, options: &Options) -> Self {
        let signed = evidence.signed_by(&options.known_keys);
        let unknown = evidence.unknown_to(&options.known_keys);
        Self { proved: signed.max(evidence.coverage.covered()), last: evidence.last, unknown }
    }

    /// Logs how many records were accepted without proof, and the ids of unknown keys.
    pub fn report(&self, options: &Options) {
        let stream = options.stream();
        let Self { proved, last, unknown } = self;
        if proved < last {
            let count = last.0 - proved.0;
            tracing::warn!(
                "the stream {stream} is verified up to record {proved}, by MACs and checkpoints of \
                 known keys; {}, up to {last}, {} accepted without proof",
                plural::count(count, "later record"),
                plural::form(count, "is", "are")
            );
        }

        if !unknown.is_empty() {
            // For a key that only made MACs, only the id is known.
            let id = |key: &String| match key.len() {
                PUBLIC_KEY_DIGITS => KeyId::of(key).to_string(),
                _ => key.clone(),
            };
            let ids: BTreeSet<String> = unknown.iter().map(id).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            tracing::warn!(
                "the stream {stream} was written with keys that this host does not know, with the \
                 ids {}; run `organism key show` on each host and add the key to `known_keys` \
                 under [journal], or run `organism key trust`",
                ids.join(", ")
            );
        }
    }
}
