//! Signatures of hosts. With such a signature, a host proves to the pumps on other hosts that it
//! has made a statement.

use serde::{Deserialize, Serialize};

use super::checkpoint::{CheckpointKey, is_signed_by};
use super::{Error, KeyId};
use crate::clock::Time;
use crate::limits;

/// First line of the bytes that a host signs for a statement. The bytes that a host signs for a
/// checkpoint never begin with this line. So the signature of a statement is not valid for a
/// checkpoint.
const SCHEME: &str = "organism host statement 1\n";

/// A host's signature over a statement, made with the key that also signs the host's journals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSignature {
    /// Public key of the host, in hexadecimal.
    #[serde(rename = "key")]
    pub key: String,
    #[serde(rename = "time")]
    pub time: Time,
    #[serde(rename = "signature")]
    signature: String,
}

impl HostSignature {
    /// Signs a statement at the present time with the key of the host. Returns `None` if the host
    /// has no key yet. Does not create a key, because commands that only display data also call
    /// this function.
    ///
    /// # Errors
    ///
    /// The file of the key cannot be read.
    pub fn new(state: &std::path::Path, statement: &str) -> Result<Option<Self>, Error> {
        let Some(key) = CheckpointKey::read(state)? else { return Ok(None) };
        let time = Time::now();
        let signature = key.sign_bytes(&signed(time, statement));
        Ok(Some(Self { key: key.public(), time, signature }))
    }

    /// Whether this signature covers exactly `statement`, is made with the key that the signature
    /// names, and is recent enough to be accepted at `now`.
    pub fn holds(&self, statement: &str, now: Time) -> bool {
        let is_over = now > self.time.plus(limits::SIGNATURE_VALIDITY);
        let is_ahead = self.time > now.plus(limits::SIGNATURE_AHEAD_MAX);
        let signed = signed(self.time, statement);
        !is_over && !is_ahead && is_signed_by(&self.key, &signed, &self.signature)
    }

    /// Returns the id of the signing key. Error messages name the key by this id.
    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.key)
    }
}

fn signed(time: Time, statement: &str) -> Vec<u8> {
    format!("{SCHEME}{}\n{statement}", time.0).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_key_signs_nothing_and_creates_none() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(HostSignature::new(state.path(), "live").unwrap(), None);
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_signature_holds_for_its_statement_and_for_some_minutes() {
        let state = tempfile::tempdir().unwrap();
        CheckpointKey::open(state.path()).unwrap();
        let signature = HostSignature::new(state.path(), "live").unwrap().unwrap();
        let now = signature.time;
        assert!(signature.holds("live", now));
        assert!(signature.holds("live", now.plus(limits::SIGNATURE_VALIDITY)));

        let second = std::time::Duration::from_secs(1);
        assert!(!signature.holds("live", now.plus(limits::SIGNATURE_VALIDITY + second)));
        assert!(!signature.holds("lives", now));
        let later = now.plus(limits::SIGNATURE_AHEAD_MAX + second);
        let ahead = HostSignature { time: later, ..signature };
        assert!(!ahead.holds("live", now));
    }
}
