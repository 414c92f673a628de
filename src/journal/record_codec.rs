//! Encodes a record as a row of the journal, and decodes the row again. The hash of the record
//! covers the text of the row. Decoding verifies that all other values of the row agree with this
//! text.

use crate::ids::{Digest, Position, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::text::{self, InternedNames};
use crate::thread::{Map, Record};

use super::{Error, HashedRecord, HeadMac, RecordHeader, TreeHeads, record_hash};

/// The encoded records of one commit. The buffers are reused for the next commit.
#[derive(Debug, Default)]
pub struct RecordBatch {
    bodies: Vec<u8>,
    payloads: Vec<u8>,
    ends: Vec<RowEnds>,
    /// Position and hash of the last record of each tree in this batch.
    chains: Map<ThreadId, (Position, Digest)>,
}

/// Where one encoded row ends in the two buffers, for bodies and for payloads, and the hash of this
/// row.
#[derive(Debug)]
struct RowEnds {
    body: usize,
    payloads: usize,
    hash: Digest,
}

/// A record that is encoded as a row of the journal.
pub struct EncodedRow<'r> {
    pub hash: Digest,
    pub body: &'r [u8],
    pub payloads: &'r [u8],
    pub mac: Option<HeadMac>,
}

impl RecordBatch {
    /// Sets the positions of the records, which follow directly after the last record of `heads`.
    /// Links each record to the previous record of its tree, and encodes the records. Does not
    /// change `heads`. The heads of these records' trees must be in memory.
    pub fn stamp(&mut self, heads: &TreeHeads, records: &mut [Record]) -> Result<(), Error> {
        self.clear();
        let next = heads.last().0 + 1;
        for (expected, record) in (next..).map(Position).zip(records) {
            if record.position != Position(0) && record.position != expected {
                return Err(Error::PositionMismatch { given: record.position, expected });
            }
            record.position = expected;
            let head = || heads.resident(&record.tree).map(|head| (head.position, head.hash));
            let before = self.chains.get(&record.tree).copied().or_else(head).unwrap_or_default();
            (record.previous, record.previous_hash) = before;
            let hash = self.encode(record)?;
            self.chains.insert(record.tree.clone(), (expected, hash));
        }

        Ok(())
    }

    fn encode(&mut self, record: &Record) -> Result<Digest, Error> {
        let begin = self.bodies.len();
        let written = record.write_text(&mut self.bodies);
        written.map_err(Error::io(format!("record {} as JSON", record.position)))?;
        let payloads = record.payloads();
        payloads.for_each(|payload| self.payloads.extend_from_slice(payload.bytes.as_bytes()));
        let hash = record_hash(&record.into(), self.bodies.get(begin..).unwrap_or_default());
        self.ends.push(RowEnds { body: self.bodies.len(), payloads: self.payloads.len(), hash });
        Ok(hash)
    }

    fn clear(&mut self) {
        for buffer in [&mut self.bodies, &mut self.payloads] {
            buffer.clear();
            buffer.shrink_to(limits::ROWS_KEPT_BYTES);
        }
        self.ends.clear();
        self.chains.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = EncodedRow<'_>> {
        let mut begin = (0, 0);
        self.ends.iter().map(move |ends| {
            let body = self.bodies.get(begin.0..ends.body).unwrap_or_default();
            let payloads = self.payloads.get(begin.1..ends.payloads).unwrap_or_default();
            begin = (ends.body, ends.payloads);
            EncodedRow { hash: ends.hash, body, payloads, mac: None }
        })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

/// A row of the journal as it is stored.
pub struct StoredRow<'r> {
    pub place: RecordHeader<'r>,
    pub hash: Digest,
    pub body: &'r str,
    pub payloads: &'r str,
    pub mac: Option<HeadMac>,
}

impl<'r> StoredRow<'r> {
    pub fn encoded(&self) -> EncodedRow<'r> {
        let body = self.body.as_bytes();
        let payloads = self.payloads.as_bytes();
        EncodedRow { hash: self.hash, body, payloads, mac: self.mac }
    }

    /// Whether both rows hold the same record, possibly with different MACs.
    pub fn is_same_record(&self, other: &StoredRow<'_>) -> bool {
        self.has_same_hash(other) && (self.body, self.payloads) == (other.body, other.payloads)
    }

    /// Whether both rows have the same place and the same hash. The hash covers the digests of the
    /// payloads, so this is also true if a payload was redacted in one of the rows.
    pub fn has_same_hash(&self, other: &StoredRow<'_>) -> bool {
        self.place == other.place && self.hash == other.hash
    }

    /// Decodes and verifies the record of the row. Returns an error for a broken journal if the
    /// record is invalid or does not have the position `expected`.
    pub fn unseal(
        &self,
        expected: Position,
        names: &mut InternedNames,
    ) -> Result<HashedRecord, Error> {
        self.unseal_with(Some(self.payloads), expected, names)
    }

    /// Decodes and verifies as [`StoredRow::unseal`] does, but does not read the bytes of the
    /// payloads. The hash can still be verified: it covers the digests of the payloads, not their
    /// bytes.
    pub fn unseal_body(
        &self,
        expected: Position,
        names: &mut InternedNames,
    ) -> Result<HashedRecord, Error> {
        self.unseal_with(None, expected, names)
    }

    fn unseal_with(
        &self,
        payloads: Option<&str>,
        expected: Position,
        names: &mut InternedNames,
    ) -> Result<HashedRecord, Error> {
        let broken = |detail: String| Error::broken(expected.0, detail);
        let place = &self.place;
        if place.position != expected {
            return Err(broken(format!("found position {}", place.position)));
        }

        if record_hash(place, self.body.as_bytes()) != self.hash && !mutant("trust-the-hash") {
            return Err(broken("its hash does not match what it says".to_owned()));
        }

        let unreadable =
            |error: &dyn std::fmt::Display| broken(format!("its body cannot be read: {error}"));
        let tree = names.thread(place.tree).map_err(|error| unreadable(&error))?;
        let (input, facts) = text::read(self.body, payloads, &tree, place.time, names).map_err(
            |error| match error {
                text::UnreadableRecord::Payload { .. } | text::UnreadableRecord::Beyond => {
                    broken(error.to_string())
                }
                error => unreadable(&error),
            },
        )?;
        let RecordHeader { position, previous, previous_hash, time, .. } = *place;
        let record = Record { position, tree, previous, previous_hash, time, input, facts };
        Ok(HashedRecord { record, hash: self.hash, mac: self.mac })
    }
}
