//! Reads the columns of a row of the table `step`, which has one row for each record.

use rusqlite::types::ValueRef;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::journal::record_codec::StoredRow;
use crate::journal::{Error, HashedRecord, HeadMac, RecordHeader};
use crate::thread::Record;
use crate::thread::text::InternedNames;

const COLUMNS: &str = "position, tree, previous, previous_hash, time, hash, body, payloads";
pub const INSERT: &str = "INSERT INTO step(position, tree, previous, previous_hash, time, hash, \
                          body, payloads, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Returns the columns of a row for a SELECT statement. If `has_mac` is false, selects NULL instead
/// of the MAC column. Tables that were created before MACs existed lack this column.
pub fn columns(has_mac: bool) -> String {
    format!("{COLUMNS}, {}", if has_mac { "mac" } else { "NULL" })
}

/// Decodes and verifies the record of the row. Returns an error for a broken journal if the record
/// is invalid or does not have the position `expected`.
pub fn decode(
    expected: Position,
    row: &rusqlite::Row<'_>,
    names: &mut InternedNames,
) -> Result<HashedRecord, Error> {
    let row = read_at(expected, row)?;
    row.unseal(expected, names)
}

/// Decodes and verifies the record of the row without the bytes of its payloads. The record must
/// have the position `expected`.
pub fn decode_body(
    expected: Position,
    row: &rusqlite::Row<'_>,
    names: &mut InternedNames,
) -> Result<HashedRecord, Error> {
    let row = read(row).map_err(|error| unreadable(expected, error))?;
    row.unseal_body(expected, names)
}

/// Reads the bytes of the payloads of `record` from `row`, the row of that record.
pub fn restore_payloads(record: &mut Record, row: &rusqlite::Row<'_>) -> Result<(), Error> {
    let position = record.position;
    let mut rest = payloads(row).map_err(|error| unreadable(position, error))?;
    let broken = |detail: &str| Error::broken(position.0, detail);

    for payload in record.payloads_mut() {
        let split = rest.split_at_checked(payload.len());
        let split = split.filter(|(bytes, _)| payload.restore(bytes));
        (_, rest) = split.ok_or_else(|| broken("a payload does not match its digest"))?;
    }

    if rest.is_empty() { Ok(()) } else { Err(broken("bytes are left after the last payload")) }
}

/// Reads the row at position `expected` as it is stored.
pub fn read_at<'r>(expected: Position, row: &'r rusqlite::Row<'_>) -> Result<StoredRow<'r>, Error> {
    let stored = read(row).and_then(|stored| Ok(StoredRow { payloads: payloads(row)?, ..stored }));
    stored.map_err(|error| unreadable(expected, error))
}

fn unreadable(expected: Position, error: UnreadableRow) -> Error {
    match error {
        UnreadableRow::Row(error) => {
            Error::broken(expected.0, format!("the row cannot be read: {error}"))
        }
        UnreadableRow::Column(name) => {
            Error::broken(expected.0, format!("its {name} is of the wrong type"))
        }
    }
}

enum UnreadableRow {
    Row(rusqlite::Error),
    Column(&'static str),
}

impl From<rusqlite::Error> for UnreadableRow {
    fn from(error: rusqlite::Error) -> Self {
        Self::Row(error)
    }
}

/// Returns the bytes of all payloads of the row, one after another.
fn payloads<'r>(row: &'r rusqlite::Row<'_>) -> Result<&'r str, UnreadableRow> {
    match row.get_ref(7)? {
        ValueRef::Blob(bytes) => {
            std::str::from_utf8(bytes).map_err(|_| UnreadableRow::Column("payloads"))
        }
        _ => Err(UnreadableRow::Column("payloads")),
    }
}

/// Reads the row without the bytes of its payloads, because payloads may be long.
fn read<'r>(row: &'r rusqlite::Row<'_>) -> Result<StoredRow<'r>, UnreadableRow> {
    let integer = |at: usize, name| match row.get_ref(at)? {
        ValueRef::Integer(value) => Ok(value),
        _ => Err(UnreadableRow::Column(name)),
    };

    let position = |at: usize, name| {
        let value = integer(at, name)?;
        u64::try_from(value).map(Position).map_err(|_| UnreadableRow::Column(name))
    };

    let text = |at: usize, name| match row.get_ref(at)? {
        ValueRef::Text(bytes) => {
            std::str::from_utf8(bytes).map_err(|_| UnreadableRow::Column(name))
        }
        _ => Err(UnreadableRow::Column(name)),
    };

    let digest = |at: usize, name| match row.get_ref(at)? {
        ValueRef::Blob(bytes) => {
            bytes.try_into().map(Digest).map_err(|_| UnreadableRow::Column(name))
        }
        _ => Err(UnreadableRow::Column(name)),
    };

    let place = RecordHeader {
        position: position(0, "position")?,
        tree: text(1, "tree")?,
        previous: position(2, "previous")?,
        previous_hash: digest(3, "previous_hash")?,
        time: Time(integer(4, "time")?),
    };

    let mac = match row.get_ref(8)? {
        ValueRef::Null => None,
        ValueRef::Blob(bytes) => {
            Some(HeadMac::from_bytes(bytes).ok_or(UnreadableRow::Column("mac"))?)
        }
        _ => return Err(UnreadableRow::Column("mac")),
    };

    let body = text(6, "body")?;
    Ok(StoredRow { place, hash: digest(5, "hash")?, body, payloads: "", mac })
}
