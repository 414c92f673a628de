//! A record as a row, and back: every value is checked against the text that was hashed.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::ids::{Digest, Position};
use crate::journal::{Error, Sealed, chained};
use crate::mutant::mutant;
use crate::thread::Record;

pub const COLUMNS: &str = "position, tree, previous, time, hash, body, payloads";
pub const INSERT: &str = "INSERT INTO step(position, tree, previous, time, hash, body, payloads) \
                          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// What stands beside the stamped columns of a record.
pub struct Encoded {
    pub hash: Digest,
    pub body: String,
    pub payloads: Vec<u8>,
}

impl Encoded {
    pub fn of(record: &Record) -> Result<Self, Error> {
        let body = serde_json::to_string(record).map_err(std::io::Error::other);
        let body = body.map_err(Error::io(format!("record {} as JSON", record.position)))?;
        let mut payloads = Vec::new();
        record.payloads().for_each(|payload| payloads.extend_from_slice(payload.bytes.as_bytes()));
        Ok(Self { hash: chained(record.previous_hash, &body), body, payloads })
    }

    /// About what it takes in the write-ahead log.
    pub fn size(&self) -> usize {
        self.body.len() + self.payloads.len() + 128
    }
}

/// The record at `expected`, which is what the row is for; anything else is a break there.
pub fn decode(expected: Position, row: &Row<'_>) -> Result<Sealed, Error> {
    let broken = |detail: String| Error::broken(expected.0, detail);
    let columns = Columns::read(row).map_err(|error| match error {
        Unreadable::Row(error) => broken(format!("the row cannot be read: {error}")),
        Unreadable::Column(name) => broken(format!("its {name} is of the wrong type")),
    })?;
    let mut record: Record = serde_json::from_str(columns.body)
        .map_err(|error| broken(format!("its body cannot be read: {error}")))?;
    let is_chained = chained(record.previous_hash, columns.body).0 == *columns.hash;
    if !is_chained && !mutant("trust-the-hash") {
        return Err(broken("its hash does not match its body".to_owned()));
    }
    let stamped = record.position.0 == columns.position
        && record.tree.as_str().as_bytes() == columns.tree
        && record.previous.0 == columns.previous
        && record.time.0 == columns.time;
    if !stamped || record.position != expected {
        return Err(broken("its columns do not match its body".to_owned()));
    }
    restore_payloads(&mut record, columns.payloads).map_err(broken)?;
    let hash = chained_hash(columns.hash).ok_or_else(|| broken("its hash is cut".to_owned()))?;
    Ok(Sealed { record, hash })
}

fn chained_hash(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest)
}

fn restore_payloads(record: &mut Record, bytes: &[u8]) -> Result<(), String> {
    let mut rest = std::str::from_utf8(bytes).map_err(|_| "its payloads are not UTF-8")?;
    let mut restore = |payload: &mut crate::envelope::Payload| {
        let (bytes, after) = rest.split_at_checked(payload.len())?;
        rest = after;
        payload.restore(bytes).then_some(())
    };
    for (index, payload) in record.payloads_mut().enumerate() {
        restore(payload).ok_or_else(|| {
            format!("payload {} is not what its digest says ({})", index + 1, payload.digest)
        })?;
    }
    if rest.is_empty() { Ok(()) } else { Err("bytes beyond its payloads".to_owned()) }
}

enum Unreadable {
    Row(rusqlite::Error),
    Column(&'static str),
}

impl From<rusqlite::Error> for Unreadable {
    fn from(error: rusqlite::Error) -> Self {
        Self::Row(error)
    }
}

struct Columns<'r> {
    position: u64,
    tree: &'r [u8],
    previous: u64,
    time: i64,
    hash: &'r [u8],
    body: &'r str,
    payloads: &'r [u8],
}

impl<'r> Columns<'r> {
    fn read(row: &'r Row<'_>) -> Result<Self, Unreadable> {
        let integer = |at: usize, name| match row.get_ref(at)? {
            ValueRef::Integer(value) => Ok(value),
            _ => Err(Unreadable::Column(name)),
        };
        let unsigned = |at: usize, name| {
            integer(at, name)
                .and_then(|value| u64::try_from(value).map_err(|_| Unreadable::Column(name)))
        };
        let bytes = |at: usize, name, text: bool| match row.get_ref(at)? {
            ValueRef::Text(bytes) if text => Ok(bytes),
            ValueRef::Blob(bytes) if !text => Ok(bytes),
            _ => Err(Unreadable::Column(name)),
        };
        let body = std::str::from_utf8(bytes(5, "body", true)?);
        Ok(Self {
            position: unsigned(0, "position")?,
            tree: bytes(1, "tree", true)?,
            previous: unsigned(2, "previous")?,
            time: integer(3, "time")?,
            hash: bytes(4, "hash", false)?,
            body: body.map_err(|_| Unreadable::Column("body"))?,
            payloads: bytes(6, "payloads", false)?,
        })
    }
}
