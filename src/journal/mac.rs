//! The MAC with which a host proves that its pump wrote the records of a journal. Each commit
//! contains its records and their MAC, so records are never durable without a MAC.
//!
//! The last record of each commit carries the MAC, which covers all records up to this one. There
//! are two kinds of MACs. A chained MAC is made from the previous MAC and the hashes of the records
//! since then. A base MAC is made from the last records of all trees, and begins a new chain of
//! MACs. A host makes a base MAC where it cannot continue a chain: in a new journal, after records
//! of another host, or after an operator's decision. The key for MACs is derived from the host's
//! signing key, so that write access to `data` alone does not suffice to make a MAC.

use std::collections::BTreeSet;
use std::fmt;

use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac::{self, HMAC_SHA256};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hex;
use crate::ids::{Digest, Position};
use crate::mutant::mutant;
use crate::thread::Record;

use super::TreeHeads;
use super::record_codec::RecordBatch;

const BASE: u8 = 1;
const CHAINED: u8 = 2;
const KEY_ID_BYTES: usize = 8;
const TAG_BYTES: usize = 32;
const MAC_BYTES: usize = 1 + KEY_ID_BYTES + TAG_BYTES;

/// Id of a key: the first bytes of the SHA-256 of its public half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId([u8; KEY_ID_BYTES]);

impl KeyId {
    /// Returns the id of the public key `public`, which is written in hexadecimal.
    pub fn of(public: &str) -> Self {
        let digest = Digest::of(public.as_bytes());
        let mut id = [0; KEY_ID_BYTES];
        id.iter_mut().zip(digest.0).for_each(|(to, from)| *to = from);
        Self(id)
    }

    /// Parses the id of a key from hexadecimal digits, as `Display` writes them. Returns `None` for
    /// any other text.
    fn parse(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// A MAC over all records of a journal up to one record. Its bytes are its kind (base or chained),
/// the id of its key, and the tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeadMac([u8; MAC_BYTES]);

impl HeadMac {
    fn new(kind: u8, key: KeyId, tag: &[u8]) -> Self {
        let mut bytes = [0; MAC_BYTES];
        let all = std::iter::once(&kind).chain(&key.0).chain(tag);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses a MAC from hexadecimal digits. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }

    pub fn key(&self) -> KeyId {
        let mut id = [0; KEY_ID_BYTES];
        id.iter_mut().zip(self.0.iter().skip(1)).for_each(|(to, from)| *to = *from);
        KeyId(id)
    }

    fn kind(&self) -> u8 {
        self.0[0]
    }

    fn tag(&self) -> &[u8] {
        self.0.get(1 + KEY_ID_BYTES..).unwrap_or_default()
    }
}

impl fmt::Display for HeadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for HeadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeadMac({} of key {})", Digest::of(&self.0), self.key())
    }
}

/// The key with which a host makes MACs, derived from its signing key.
#[derive(Clone)]
pub struct MacKey {
    id: KeyId,
    keyed: hmac::Key,
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacKey({})", self.id)
    }
}

impl MacKey {
    /// Derives the MAC key. `seed` is the private half of the host's signing key, and `public` its
    /// public half in hexadecimal.
    pub fn derive(seed: &[u8; 32], public: &str) -> Self {
        let derived = Salt::new(HKDF_SHA256, &[]).extract(seed);
        let expanded = derived.expand(&[b"organism head mac 1"], HMAC_SHA256);
        let keyed = expanded.expect("32 bytes are within the limit of HKDF").into();
        Self { id: KeyId::of(public), keyed }
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the bytes that a chained MAC covers. They contain `before`, the previous MAC, and
    /// `hashes`, the hashes of the records since that MAC.
    fn chained(journal: Uuid, at: Position, before: &HeadMac, hashes: &[u8]) -> Vec<u8> {
        [b"chained\n", &journal.as_bytes()[..], &at.0.to_be_bytes(), &before.0, hashes].concat()
    }

    /// Returns the bytes that a base MAC covers. They contain the Merkle root over the last records
    /// of all trees, but no earlier MAC, because a base MAC begins a new chain of MACs.
    fn base(journal: Uuid, at: Position, merkle_root: Digest) -> Vec<u8> {
        [b"base\n", &journal.as_bytes()[..], &at.0.to_be_bytes(), &merkle_root.0].concat()
    }
}

/// Makes the MAC of each commit.
#[derive(Debug)]
pub struct HeadSealer {
    key: MacKey,
    journal: Uuid,
    /// The MAC that the next MAC continues; `None` if the next MAC begins a new chain of MACs.
    last: Option<HeadMac>,
}

impl HeadSealer {
    pub fn new(key: MacKey, journal: Uuid, last: Option<HeadMac>) -> Self {
        let last = last.filter(|last| last.key() == key.id);
        Self { key, journal, last }
    }

    /// Makes the MAC for `records`. `rows` are the encoded records, and `heads` are the last
    /// records of all trees before `records`.
    pub fn seal(&self, heads: &mut TreeHeads, records: &[Record], rows: &RecordBatch) -> HeadMac {
        let at = Position(heads.last().0 + records.len() as u64);
        let (kind, text) = match &self.last {
            Some(last) => {
                let hashes: Vec<u8> = rows.iter().flat_map(|row| row.hash.0).collect();
                (CHAINED, MacKey::chained(self.journal, at, last, &hashes))
            }
            None => {
                let hashes = rows.iter().map(|row| row.hash);
                let root = heads.merkle_root_after(records.iter().zip(hashes));
                (BASE, MacKey::base(self.journal, at, root))
            }
        };

        HeadMac::new(kind, self.key.id, hmac::sign(&self.key.keyed, &text).as_ref())
    }

    /// Notes `mac` as the MAC that the next one continues. Must be called once the commit that
    /// contains `mac` is durable.
    pub fn sealed(&mut self, mac: HeadMac) {
        self.last = Some(mac);
    }
}

/// The records of a journal that MACs cover, determined while the records are read.
#[derive(Debug, Default, Clone)]
pub struct MacCoverage {
    journal: Uuid,
    /// The key of this host, if known.
    key: Option<MacKey>,
    /// Hashes of the records since the last MAC.
    pending: Vec<u8>,
    /// The last MAC that was read, if this host's key proved it to be right; `None` otherwise.
    checked: Option<HeadMac>,
    covered: Position,
    first: Option<Position>,
    last: Option<(Position, HeadMac)>,
    wrong: Option<Position>,
    foreign: BTreeSet<KeyId>,
}

/// The state of a [`MacCoverage`], as a snapshot stores it. The last record of the snapshot carries
/// a MAC of this host's key, and this MAC was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCoverage {
    #[serde(rename = "last")]
    last: String,
    #[serde(rename = "first")]
    first: Position,
    #[serde(rename = "wrong", default, skip_serializing_if = "Option::is_none")]
    wrong: Option<Position>,
    #[serde(rename = "foreign", default, skip_serializing_if = "Vec::is_empty")]
    foreign: Vec<String>,
}

impl MacCoverage {
    /// Returns the MAC coverage to store in a snapshot that ends with the record at `at`. Returns
    /// `None` if this record carries no MAC of this host's key, or a wrong one.
    pub fn stored(&self, at: Position) -> Option<StoredCoverage> {
        let (last, mac) = self.last.filter(|_| self.pending.is_empty())?;
        if last != at || self.covered != at || self.checked != Some(mac) {
            return None;
        }

        let foreign = self.foreign.iter().map(ToString::to_string).collect();
        Some(StoredCoverage {
            last: mac.to_string(),
            first: self.first?,
            wrong: self.wrong,
            foreign,
        })
    }

    /// Restores the coverage from `stored`, which was saved after the record at position `at` was
    /// read. Reading can then continue with the next record. Returns `None` if `stored` is not
    /// valid.
    pub fn continued(self, at: Position, stored: &StoredCoverage) -> Option<Self> {
        let mac = HeadMac::parse(&stored.last)?;
        let foreign = stored.foreign.iter().map(|id| KeyId::parse(id));
        Some(Self {
            checked: Some(mac),
            covered: at,
            first: Some(stored.first),
            last: Some((at, mac)),
            wrong: stored.wrong,
            foreign: foreign.collect::<Option<_>>()?,
            ..self
        })
    }

    pub fn new(journal: Uuid, key: Option<MacKey>) -> Self {
        Self { journal, key, ..Self::default() }
    }

    /// Adds the next record, which has the hash `hash` and the MAC `mac`. `heads` are the last
    /// records of all trees, including this record.
    pub fn take(&mut self, hash: Digest, mac: Option<HeadMac>, heads: &mut TreeHeads) {
        if self.last.is_some() {
            self.pending.extend_from_slice(&hash.0);
        }

        let Some(mac) = mac else { return };
        let at = heads.last();
        self.first.get_or_insert(at);

        match self.key.as_ref().filter(|key| key.id == mac.key()) {
            Some(key) if self.is_right(key, &mac, at, heads) || mutant("trust-the-mac") => {
                self.checked = Some(mac);
                self.covered = at;
            }
            Some(_) => {
                // A wrong MAC at or before `covered` was accepted by an operator. A later wrong MAC
                // counts again.
                if self.wrong.is_none_or(|wrong| wrong <= self.covered) {
                    self.wrong = Some(at);
                }
                self.checked = None;
            }
            None => {
                self.foreign.insert(mac.key());
                self.checked = None;
            }
        }

        self.last = Some((at, mac));
        self.pending.clear();
    }

    fn is_right(&self, key: &MacKey, mac: &HeadMac, at: Position, heads: &mut TreeHeads) -> bool {
        let text = match (mac.kind(), &self.checked) {
            (BASE, _) => MacKey::base(self.journal, at, heads.merkle_root()),
            (CHAINED, Some(before)) => MacKey::chained(self.journal, at, before, &self.pending),
            _ => return false,
        };
        hmac::verify(&key.keyed, &text, mac.tag()).is_ok()
    }

    /// Returns the last record that a MAC of this host's key covers. Such a MAC also covers all
    /// earlier records.
    pub fn covered(&self) -> Position {
        self.covered
    }

    /// Returns the first record that carries a MAC, made with any key; `None` if no record carries
    /// one.
    pub fn first(&self) -> Option<Position> {
        self.first
    }

    /// Returns the last MAC, and the position of its record; `None` if no record carries a MAC.
    pub fn last(&self) -> Option<(Position, HeadMac)> {
        self.last
    }

    /// Whether the last MAC that was read names this host's key and is wrong.
    pub fn is_last_wrong(&self) -> bool {
        let own = self.key.as_ref().map(MacKey::id);
        self.last.is_some_and(|(at, mac)| Some(mac.key()) == own && self.covered != at)
    }

    /// Considers only MACs of this host's key. Wrong MACs without a right one between them form a
    /// series. Returns the record with the first wrong MAC of the latest series, even if right MACs
    /// follow the series. Returns `None` if every MAC is right.
    pub fn wrong(&self) -> Option<Position> {
        self.wrong
    }

    /// Returns the first of the unproved records at the end of a journal. No MAC proves that a pump
    /// wrote these records. Returns `None` if every record is proved. `last` is the last record of
    /// the journal.
    ///
    /// - Usually, the unproved records are those after the last MAC.
    /// - If the last MAC of this host's key is wrong, they are those after the last record that a
    ///   right MAC of this key covers.
    /// - If the journal has no MAC, all its records are unproved. But if `is_old` is true, the
    ///   journal may have been written before MACs existed, and the function returns `None`.
    pub fn uncovered_end(&self, last: Position, is_old: bool) -> Option<Position> {
        let Some((at, _)) = self.last else {
            let is_stripped = last > Position(0) && !is_old;
            return is_stripped.then_some(Position(1));
        };

        match self.wrong {
            Some(wrong) if self.covered < wrong => Some(Position(self.covered.0 + 1)),
            _ => (at < last).then_some(Position(at.0 + 1)),
        }
    }

    /// Returns the ids of other hosts' keys with which MACs of this journal were made.
    pub fn foreign(&self) -> &BTreeSet<KeyId> {
        &self.foreign
    }
}
