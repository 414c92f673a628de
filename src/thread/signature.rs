//! Ed25519 signatures of operators on their decisions. A signature covers everything in a decision
//! that has an effect.
//!
//! The module is pure: the caller passes in the time, the nonce and all other values.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::{Decision, Input, PauseVerb, RecordedAnswer, Verdict};
use crate::clock::Time;
use crate::ids::{Digest, ListenerName, MessageId, ThreadId};
use crate::limits;

/// First line of the signed bytes.
const SCHEME: &str = "organism decision 1\n";

/// Beginning of a public key in text form.
const ALGORITHM: &str = "ed25519:";

/// The public key of an operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorPublicKey([u8; 32]);

impl OperatorPublicKey {
    pub fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key().to_bytes())
    }

    /// Parses `ed25519:` and 43 characters of base64url. Returns `None` if the text is not a valid
    /// key.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(ALGORITHM)?).ok()?;
        let key = VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()?;
        (!key.is_weak()).then(|| Self(key.to_bytes()))
    }

    fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        let key = VerifyingKey::from_bytes(&self.0);
        key.is_ok_and(|key| key.verify_strict(message, signature).is_ok())
    }
}

impl fmt::Display for OperatorPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for OperatorPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for OperatorPublicKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OperatorPublicKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an operator's public key"))
    }
}

/// The public keys of the operators that a config names, each with the name of its operator. An
/// operator may have several keys.
#[derive(Debug, Clone, Default)]
pub struct OperatorKeys(Arc<[(ListenerName, OperatorPublicKey)]>);

impl OperatorKeys {
    pub fn new(keys: impl IntoIterator<Item = (ListenerName, OperatorPublicKey)>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Whether the config names no operators. If so, decisions need no signature.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(ListenerName, OperatorPublicKey)> {
        self.0.iter()
    }

    pub fn owner(&self, key: &OperatorPublicKey) -> Option<&ListenerName> {
        self.0.iter().find(|(_, known)| known == key).map(|(name, _)| name)
    }

    /// Returns the names of all operators for error messages, such as `ana, ben`.
    pub fn names(&self) -> String {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }
}

/// The part of a signed text that describes the decision. The signed text also contains a thread, a
/// journal, a time and a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionStatement<'a> {
    pub verb: &'static str,
    /// The message that opened the held call; `None` for other actions.
    pub call: Option<MessageId>,
    /// Digest of the payload that a person approved, or of the answer that a person gave. `None`
    /// for every other action, such as a refusal.
    pub digest: Option<Digest>,
    /// Digest of the preview that was approved with the payload; `None` if no preview was approved.
    pub preview: Option<Digest>,
    pub reason: &'a str,
    pub note: &'a str,
}

impl<'a> DecisionStatement<'a> {
    /// Creates the statement for a decision about a held call. Returns `None` if an approval does
    /// not contain the complete digest of the payload.
    pub fn decided(
        message: MessageId,
        decision: &'a Decision<RecordedAnswer>,
        note: &'a str,
    ) -> Option<Self> {
        let preview = match decision {
            Decision::Approve { preview: Some(preview), .. } => Some(Digest::parse(preview).ok()?),
            _ => None,
        };
        let (digest, reason) = match decision {
            Decision::Approve { hash, .. } => (Some(Digest::parse(hash).ok()?), ""),
            Decision::Refuse { reason } => (None, reason.as_str()),
            Decision::Answer(answer) => {
                let (Verdict::Passed(digest) | Verdict::Refused(digest)) = answer.verdict;
                (Some(digest), "")
            }
        };

        let verb = decision.verb();
        Some(Self { verb, call: Some(message), digest, preview, reason, note })
    }

    pub fn cancel(reason: &'a str, note: &'a str) -> Self {
        Self { verb: "cancel", call: None, digest: None, preview: None, reason, note }
    }

    /// Returns the statement with which an operator pauses or resumes. `target` is the target in
    /// its text form, such as `listener search`.
    pub fn pause(verb: PauseVerb, target: &'a str, note: &'a str) -> Self {
        let verb = verb.as_str();
        Self { verb, call: None, digest: None, preview: None, reason: target, note }
    }

    /// Returns the statement with which an operator forks a thread. `action` is the text that
    /// `fork_text` returns.
    pub fn fork(action: &'a str, note: &'a str) -> Self {
        Self { verb: "fork", call: None, digest: None, preview: None, reason: action, note }
    }

    /// Returns the statement with which an operator retries a message. `action` is the text that
    /// `retry_text` returns.
    pub fn retry(action: &'a str, note: &'a str) -> Self {
        Self { verb: "retry", call: None, digest: None, preview: None, reason: action, note }
    }

    /// Returns the statement with which an operator subscribes to a thread's live output. This
    /// statement is never recorded.
    pub fn watch(note: &'a str) -> Self {
        Self { verb: "watch", call: None, digest: None, preview: None, reason: "", note }
    }

    /// Returns the bytes that a signature of this statement covers.
    pub fn signed_bytes(
        &self,
        (journal, thread): (Uuid, &ThreadId),
        (time, nonce): (Time, Uuid),
    ) -> Vec<u8> {
        #[derive(Serialize)]
        struct SignedFields<'a> {
            #[serde(rename = "journal")]
            journal: Uuid,
            #[serde(rename = "verb")]
            verb: &'a str,
            #[serde(rename = "thread")]
            thread: &'a ThreadId,
            #[serde(rename = "call")]
            call: Option<MessageId>,
            #[serde(rename = "digest")]
            digest: Option<Digest>,
            #[serde(rename = "preview", skip_serializing_if = "Option::is_none")]
            preview: Option<Digest>,
            #[serde(rename = "reason")]
            reason: &'a str,
            #[serde(rename = "note")]
            note: &'a str,
            #[serde(rename = "time")]
            time: Time,
            #[serde(rename = "nonce")]
            nonce: Uuid,
        }

        let DecisionStatement { verb, call, digest, preview, reason, note } = *self;
        let signed = SignedFields {
            journal,
            verb,
            thread,
            call,
            digest,
            preview,
            reason,
            note,
            time,
            nonce,
        };

        let mut message = SCHEME.as_bytes().to_vec();
        message.extend(serde_json::to_vec(&signed).expect("plain data is JSON"));
        message
    }
}

/// An operator's signature on one decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionSignature {
    #[serde(rename = "key")]
    pub key: OperatorPublicKey,
    #[serde(rename = "journal")]
    pub journal: Uuid,
    /// The thread that the signature names, such as the thread of the held call, or the thread that
    /// is cancelled.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "time")]
    pub time: Time,
    /// Random value that makes each signature unique. So the pump can refuse a signature that it
    /// has already accepted.
    #[serde(rename = "nonce")]
    pub nonce: Uuid,
    #[serde(rename = "signature", with = "in_base64")]
    signature: [u8; 64],
    /// Time of the host's clock when the pump checked the signature. `None` if this clock agreed
    /// with the time of the record. Record time never goes back, so it is ahead of a clock that was
    /// set back. The pump sets this field itself, and the signature does not cover it.
    #[serde(rename = "judged_at", default, skip_serializing_if = "Option::is_none")]
    pub judged_at: Option<Time>,
}

impl DecisionSignature {
    /// Signs a decision about `thread` in the journal `journal`.
    pub fn new(
        key: &SigningKey,
        (journal, thread): (Uuid, ThreadId),
        (time, nonce): (Time, Uuid),
        statement: &DecisionStatement<'_>,
    ) -> Self {
        let public = OperatorPublicKey::of(key);
        let place = (journal, thread);
        let mut signed = Self::made_elsewhere(public, place, (time, nonce), [0; 64]);
        signed.signature = key.sign(&signed.message(statement)).to_bytes();
        signed
    }

    /// Combines a signature that another program made with the values that the signature covers.
    /// Does not verify the signature: the caller must call [`DecisionSignature::holds`].
    pub fn made_elsewhere(
        key: OperatorPublicKey,
        (journal, thread): (Uuid, ThreadId),
        (time, nonce): (Time, Uuid),
        signature: [u8; 64],
    ) -> Self {
        Self { key, journal, thread, time, nonce, signature, judged_at: None }
    }

    /// Whether the signature was made with the key in the field `key`, over exactly this statement.
    pub fn holds(&self, statement: &DecisionStatement<'_>) -> bool {
        let signature = Signature::from_bytes(&self.signature);
        self.key.verifies(&self.message(statement), &signature)
    }

    /// Whether the signature is recent enough to be accepted at the time `now`.
    pub fn is_current(&self, now: Time) -> bool {
        let is_over = now > self.time.plus(limits::SIGNATURE_VALIDITY);
        let is_ahead = self.time > now.plus(limits::SIGNATURE_AHEAD_MAX);
        !is_over && !is_ahead
    }

    /// Whether the signature is valid for the decision that a journal record contains. `input` is
    /// the input of this record, and `note` is the operator's note.
    pub fn holds_for(&self, input: &Input, note: &str) -> bool {
        let target = match input {
            Input::Pause(action) => action.target.to_string(),
            Input::Fork(action) => action.text(),
            Input::OperatorRetry(action) => action.text(),
            _ => String::new(),
        };
        let statement = match input {
            Input::Pause(action) if action.target.home() == self.thread => {
                Some(DecisionStatement::pause(action.verb, &target, note))
            }
            Input::Fork(action) if action.source.thread == self.thread => {
                Some(DecisionStatement::fork(&target, note))
            }
            Input::OperatorRetry(action) if action.source == self.thread => {
                Some(DecisionStatement::retry(&target, note))
            }
            Input::Decided { message, decision, .. } => {
                DecisionStatement::decided(*message, decision, note)
            }
            Input::Cancel { thread, reason, .. } if *thread == self.thread => {
                Some(DecisionStatement::cancel(reason, note))
            }
            _ => None,
        };

        statement.is_some_and(|statement| self.holds(&statement))
    }

    /// Returns the bytes that the signature covers.
    fn message(&self, statement: &DecisionStatement<'_>) -> Vec<u8> {
        statement.signed_bytes((self.journal, &self.thread), (self.time, self.nonce))
    }
}

mod in_base64 {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &[u8; 64], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 64], D::Error> {
        let text = String::deserialize(from)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| serde::de::Error::custom("not an Ed25519 signature"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn thread() -> ThreadId {
        ThreadId::parse("sess-fixture1").unwrap()
    }

    /// The signed bytes must never change. Operators keep signed decisions, and other programs
    /// compute the same bytes to sign decisions.
    #[test]
    fn the_signed_bytes_are_these() {
        let statement = DecisionStatement {
            verb: "approve",
            call: Some(MessageId(Uuid::from_u128(1))),
            digest: Some(Digest::of(b"<run/>")),
            preview: None,
            reason: "",
            note: "seen \"by\" two\n",
        };

        let place = (Uuid::from_u128(2), thread());
        let signed =
            DecisionSignature::new(&key(), place, (Time(3), Uuid::from_u128(4)), &statement);
        let message = String::from_utf8(signed.message(&statement)).unwrap();
        expect_test::expect![[r#"
            organism decision 1
            {"journal":"00000000-0000-0000-0000-000000000002","verb":"approve","thread":"sess-fixture1","call":"00000000-0000-0000-0000-000000000001","digest":"201f3adbddeececeac4e9f6e572568de56bfdfb4f46ab4a7fd9b8589beef397d","reason":"","note":"seen \"by\" two\n","time":3,"nonce":"00000000-0000-0000-0000-000000000004"}"#]]
        .assert_eq(&message);
        assert!(signed.holds(&statement));
    }

    #[test]
    fn a_signature_holds_for_nothing_but_what_was_signed() {
        let statement = DecisionStatement::cancel("enough", "as agreed");
        let now = (Time(3), Uuid::from_u128(4));
        let signed =
            DecisionSignature::new(&key(), (Uuid::from_u128(2), thread()), now, &statement);
        let other_statements = [
            DecisionStatement { verb: "refuse", ..statement },
            DecisionStatement { call: Some(MessageId(Uuid::nil())), ..statement },
            DecisionStatement { digest: Some(Digest::ZERO), ..statement },
            DecisionStatement { reason: "", ..statement },
            DecisionStatement { note: "as agreed ", ..statement },
        ];
        for other in other_statements {
            assert!(!signed.holds(&other), "{other:?}");
        }

        let other_key = SigningKey::from_bytes(&[8; 32]);
        let other_signatures = [
            DecisionSignature { key: OperatorPublicKey::of(&other_key), ..signed.clone() },
            DecisionSignature { journal: Uuid::nil(), ..signed.clone() },
            DecisionSignature {
                thread: ThreadId::parse("sess-fixture2").unwrap(),
                ..signed.clone()
            },
            DecisionSignature { time: Time(4), ..signed.clone() },
            DecisionSignature { nonce: Uuid::nil(), ..signed.clone() },
        ];
        for other in other_signatures {
            assert!(!other.holds(&statement), "{other:?}");
        }
    }

    #[test]
    fn a_public_key_is_read_as_it_is_shown_and_nothing_else_is_one() {
        let key = OperatorPublicKey::of(&key());
        assert_eq!(OperatorPublicKey::parse(&key.to_string()), Some(key));
        let shown = key.to_string();
        let weak = format!("{ALGORITHM}{}", URL_SAFE_NO_PAD.encode([0; 32]));
        let texts = ["", "ed25519:", "ed25519:AAAA", &weak, &shown[1..], &format!("{shown}A")];
        for text in texts {
            assert_eq!(OperatorPublicKey::parse(text), None, "{text}");
        }
    }
}
