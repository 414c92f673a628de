//! Walks back along the hash chain of a tree, newest record first. Each record contains the hash of
//! the record before it. The walk verifies each record by this hash.

use std::ops::ControlFlow;

use rusqlite::Transaction;

use crate::ids::{Digest, Position, ThreadId};
use crate::journal::{Error, HashedRecord};
use crate::limits;
use crate::thread::Record;
use crate::thread::text::InternedNames;

use super::reader::JournalReader;
use super::row;

/// A record that a walk has reached. The payloads of the record are not read yet.
pub struct WalkedRecord<'r> {
    sealed: HashedRecord,
    row: &'r rusqlite::Row<'r>,
}

impl WalkedRecord<'_> {
    /// Returns the record; its payloads have digests and lengths, but no bytes.
    pub const fn record(&self) -> &Record {
        &self.sealed.record
    }

    pub const fn hash(&self) -> Digest {
        self.sealed.hash
    }

    /// Returns the record; its payloads have digests and lengths, but no bytes.
    pub fn without_payloads(self) -> Record {
        self.sealed.record
    }

    /// Returns the record with the bytes of its payloads.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] if the bytes do not match the digests.
    pub fn with_payloads(mut self) -> Result<HashedRecord, Error> {
        row::restore_payloads(&mut self.sealed.record, self.row)?;
        Ok(self.sealed)
    }
}

/// Values with which a walk verifies the record that it reads next. The values come from the record
/// that the walk has read last. A walk goes from newer to older records of one tree, so the next
/// record is the previous record of the tree.
struct NextRecord {
    position: Position,
    tree: ThreadId,
    previous_hash: Digest,
}

impl JournalReader {
    /// Returns the records of the tree with the root thread `root`, oldest first, up to and
    /// including position `up_to`. If `up_to` is `None`, returns all records of the tree.
    pub fn tree(
        &self,
        root: &ThreadId,
        up_to: Option<Position>,
    ) -> Result<Vec<HashedRecord>, Error> {
        let Some(head) = self.head(root)? else { return Ok(Vec::new()) };
        let mut records = self.walk(head)?;
        if let Some(up_to) = up_to {
            records.retain(|sealed| sealed.record.position <= up_to);
        }
        Ok(records)
    }

    /// Returns the record at `head` and all records before it in its tree, oldest first.
    pub fn walk(&self, head: Position) -> Result<Vec<HashedRecord>, Error> {
        let mut records = Vec::new();
        self.walk_back(head, |walked| {
            records.push(walked.with_payloads()?);
            Ok(ControlFlow::Continue(()))
        })?;

        records.reverse();
        Ok(records)
    }

    /// Begins a read transaction. Until the transaction is dropped, all reads see the same records,
    /// and the file lock is taken only once. Returns `None` if this reader already has an open read
    /// transaction, which then stays open.
    pub fn view(&self) -> Result<Option<Transaction<'_>>, Error> {
        if !self.db.is_autocommit() {
            return Ok(None);
        }
        let begun = self.db.unchecked_transaction();
        begun.map(Some).map_err(|error| self.read_error("the journal", error))
    }

    /// Calls `visit` for the record at `head`, and then for each earlier record of the same tree,
    /// newest first. Stops after the first record of the tree, or when `visit` returns
    /// `ControlFlow::Break` or an error.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] if a record is missing, or if the hash of a record is not the hash that
    /// the following record of the tree names.
    pub fn walk_back(
        &self,
        head: Position,
        mut visit: impl FnMut(WalkedRecord<'_>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        Self::reads().increment();
        let mut names = InternedNames::default();
        let mut query = self.by_position()?;
        let mut reading = None;
        let mut next: Option<NextRecord> = None;
        let mut at = head;
        let mut read = 0_u64;

        while at != Position(0) {
            if read.is_multiple_of(limits::SCAN_RECORDS) {
                // One view of the file for many records, because each view costs locks; but not for
                // all of them, because a view holds back the write-ahead log.
                drop(reading.take());
                reading = self.view()?;
            }
            let mut rows =
                query.query([at.0]).map_err(|error| self.read_error("a record", error))?;
            let row = rows.next().map_err(|error| self.failed_at(at, error))?;
            let row = row.ok_or_else(|| Error::broken(at.0, "its record is missing"))?;
            let sealed = row::decode_body(at, row, &mut names)?;
            if let Some(next) = next {
                check_chain(&sealed, &next)?;
            }

            let record = &sealed.record;
            let previous = record.previous;
            next = Some(NextRecord {
                position: record.position,
                tree: record.tree.clone(),
                previous_hash: record.previous_hash,
            });
            if visit(WalkedRecord { sealed, row })?.is_break() {
                break;
            }
            at = previous;
            read += 1;
        }

        Ok(())
    }
}

fn check_chain(sealed: &HashedRecord, next: &NextRecord) -> Result<(), Error> {
    let record = &sealed.record;
    let follows = next.previous_hash == sealed.hash
        && next.tree == record.tree
        && record.position < next.position;
    if follows {
        return Ok(());
    }

    let detail = format!("{} does not follow from it", next.position);
    Err(Error::broken(record.position.0, detail))
}
