//! The hash chain: the hash of each record covers the hash of the previous record in the same tree.

use super::HeadMac;
use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::thread::Record;

/// A durable record with its hash.
#[derive(Debug, Clone)]
pub struct HashedRecord {
    pub record: Record,
    pub hash: Digest,
    /// MAC over the journal up to this record. `None` for most records, because only the last
    /// record of a commit carries a MAC.
    pub mac: Option<HeadMac>,
}

/// All columns of a record's row except its text. These columns state where the record is in the
/// journal and in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader<'r> {
    pub position: Position,
    pub tree: &'r str,
    pub previous: Position,
    pub previous_hash: Digest,
    pub time: Time,
}

impl<'r> From<&'r Record> for RecordHeader<'r> {
    fn from(record: &'r Record) -> Self {
        Self {
            position: record.position,
            tree: record.tree.as_str(),
            previous: record.previous,
            previous_hash: record.previous_hash,
            time: record.time,
        }
    }
}

/// Returns the hash of a record. The hash covers the hash of the previous record in the same tree,
/// the record's own header, and the record's text. The header ends with the name of the tree, and
/// this name contains no brace. The text begins with a brace, so header and text cannot be
/// confused.
pub fn record_hash(header: &RecordHeader<'_>, text: &[u8]) -> Digest {
    Digest::of_parts(&[
        &header.previous_hash.0,
        &header.position.0.to_be_bytes(),
        &header.previous.0.to_be_bytes(),
        &header.time.0.to_be_bytes(),
        header.tree.as_bytes(),
        text,
    ])
}
