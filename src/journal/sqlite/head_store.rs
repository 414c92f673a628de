//! Stores the heads of trees and the leaves of the Merkle tree over these heads. The head of a tree
//! is its last record. The store is a working file of a pump, or one of the databases of a
//! snapshot. A pump that started from a snapshot reads the snapshot's database in place, and writes
//! to a new working file.
//!
//! Everything that is read is checked, because damage of the disk must not change the records that
//! a pump writes. This module checks each head against a checksum. It stores leaves in chunks of
//! consecutive leaves; the caller checks the leaves of a chunk against the root of that chunk.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::clock::Time;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::{Error, TreeHead};

use super::stored_names::StoredNames;
use super::working_file;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS head(root TEXT PRIMARY KEY, \
                      number INTEGER NOT NULL, first INTEGER NOT NULL, \
                      position INTEGER NOT NULL, hash BLOB NOT NULL, records INTEGER NOT NULL, \
                      opened INTEGER NOT NULL, updated INTEGER NOT NULL, \
                      checksum INTEGER NOT NULL) WITHOUT ROWID; \
                      CREATE TABLE IF NOT EXISTS leaves(chunk INTEGER PRIMARY KEY, \
                      digests BLOB NOT NULL); \
                      CREATE TABLE IF NOT EXISTS summary(trees INTEGER NOT NULL, \
                      roots BLOB NOT NULL, names BLOB NOT NULL);";
const COLUMNS: &str = "root, number, first, position, hash, records, opened, updated, checksum";

/// A store in SQLite for the heads of trees and for the leaves of their Merkle tree. A head is
/// found by the root of its tree, and leaves are found by the number of their chunk.
#[derive(Debug)]
pub struct HeadStore {
    db: Connection,
    /// Database of a snapshot, opened for reading only; `None` without a snapshot. The store reads
    /// from this database only the heads and chunks that `db` lacks.
    base: Option<Connection>,
    names: StoredNames,
}

/// A summary of the heads in a store. The summary stays in memory, even while the heads do not.
#[derive(Debug)]
pub struct HeadsSummary {
    /// Number of trees.
    pub trees: usize,
    /// Roots of the chunks of the Merkle tree.
    pub roots: Vec<Digest>,
}

impl HeadStore {
    /// Creates a store with a new file in `directory`. No other process can see the file.
    pub fn create(directory: &Path) -> Result<Self, Error> {
        Self::new(working_file::create(directory, "heads")?, None)
    }

    /// Creates a store in memory.
    #[cfg(test)]
    fn in_memory() -> Result<Self, Error> {
        Self::new(working_file::in_memory()?, None)
    }

    /// Creates a store in the new file `file`. The file remains when the store is closed.
    pub fn create_file(file: &Path) -> Result<Self, Error> {
        Self::new(working_file::open(file)?, None)
    }

    /// Opens the store in `file`, and reads the summary that was written last. The file remains
    /// when the store is closed. Returns `None` if there is no valid summary.
    pub fn open(file: &Path) -> Result<Option<(Self, HeadsSummary)>, Error> {
        Self::new(working_file::open(file)?, None)?.with_summary()
    }

    /// Opens a store that begins with the content of `snapshot`, a snapshot's database of heads,
    /// and reads the summary in this database. Never writes to this database. Returns `None` if the
    /// database contains no valid summary.
    pub fn open_over(snapshot: &Path) -> Result<Option<(Self, HeadsSummary)>, Error> {
        let base = working_file::open_read_only(snapshot)?;
        let directory = snapshot.parent().unwrap_or(snapshot);
        Self::new(working_file::create(directory, "heads")?, Some(base))?.with_summary()
    }

    fn with_summary(self) -> Result<Option<(Self, HeadsSummary)>, Error> {
        let sql = "SELECT trees, roots, names FROM summary";
        let read = |row: &Row<'_>| -> rusqlite::Result<_> {
            let roots = digests_in(row.get_ref(1)?.as_blob()?);
            let names = StoredNames::from_bytes(row.get_ref(2)?.as_blob()?);
            Ok((row.get(0)?, roots, names))
        };

        let stored = self.base.as_ref().unwrap_or(&self.db);
        let summary = stored.query_row(sql, [], read).optional().map_err(unreadable())?;
        let Some((trees, Some(roots), Some(names))) = summary else { return Ok(None) };
        Ok(Some((Self { names, ..self }, HeadsSummary { trees, roots })))
    }

    fn new(db: Connection, base: Option<Connection>) -> Result<Self, Error> {
        db.execute_batch(TABLES).map_err(|error| unwritable(&db, error))?;
        Ok(Self { db, base, names: StoredNames::default() })
    }

    /// Returns the databases to read, in this order: `db`, which has the newer values, and the
    /// snapshot's database, if the store uses one.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Connection> {
        std::iter::once(&self.db).chain(&self.base)
    }

    fn unwritable(&self, error: rusqlite::Error) -> Error {
        unwritable(&self.db, error)
    }

    /// Copies the store to a new working file in `directory`.
    pub fn duplicate(&self, directory: &Path) -> Result<Self, Error> {
        let copy = Self::create(directory)?;
        let write = copy.db.unchecked_transaction().map_err(|error| copy.unwritable(error))?;
        self.for_each(&mut |head| copy.write(std::iter::once(head)))?;
        // Newer leaves replace those of the snapshot.
        for db in self.layers().rev() {
            let failed = unreadable;
            let mut query = db.prepare("SELECT chunk, digests FROM leaves").map_err(failed())?;
            let mut rows = query.query([]).map_err(failed())?;
            while let Some(row) = rows.next().map_err(failed())? {
                let chunk: usize = row.get(0).map_err(failed())?;
                let digests: Vec<u8> = row.get(1).map_err(failed())?;
                copy.write_leaves(chunk, &digests).map_err(|error| copy.unwritable(error))?;
            }
        }

        write.commit().map_err(|error| copy.unwritable(error))?;
        let names = StoredNames::from_bytes(&self.names.to_bytes()).unwrap_or_default();
        Ok(Self { names, ..copy })
    }

    /// Stores all of `heads`, and the leaves of all of `chunks`, or nothing at all. A new head
    /// replaces the earlier head of the same tree, and new leaves replace the earlier leaves of the
    /// same chunk.
    pub fn put<'h>(
        &mut self,
        heads: impl Iterator<Item = &'h TreeHead> + Clone,
        chunks: impl Iterator<Item = (usize, &'h [Digest])>,
    ) -> Result<(), Error> {
        let write = self.db.unchecked_transaction().map_err(|error| self.unwritable(error))?;
        self.write(heads.clone())?;
        for (chunk, leaves) in chunks {
            self.write_leaves(chunk, &bytes_of(leaves)).map_err(|error| self.unwritable(error))?;
        }
        write.commit().map_err(|error| self.unwritable(error))?;

        heads.for_each(|head| self.names.add(head.root.as_str()));
        Ok(())
    }

    fn write<'h>(&self, heads: impl Iterator<Item = &'h TreeHead>) -> Result<(), Error> {
        let sql = format!(
            "INSERT OR REPLACE INTO head({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        );
        let mut insert = self.db.prepare_cached(&sql).map_err(|error| self.unwritable(error))?;
        for head in heads {
            let written = insert.execute((
                head.root.as_str(),
                head.number,
                head.first.0,
                head.position.0,
                head.hash.0,
                head.records,
                head.opened.0,
                head.updated.0,
                checksum(head),
            ));
            written.map_err(|error| self.unwritable(error))?;
        }
        Ok(())
    }

    fn write_leaves(&self, chunk: usize, digests: &[u8]) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO leaves(chunk, digests) VALUES (?1, ?2)";
        self.db.prepare_cached(sql)?.execute((chunk, digests)).map(drop)
    }

    /// Writes the summary that [`HeadStore::open`] returns.
    pub fn write_summary(&self, trees: usize, roots: &[Digest]) -> Result<(), Error> {
        let write = || -> rusqlite::Result<()> {
            let write = self.db.unchecked_transaction()?;
            self.db.execute("DELETE FROM summary", [])?;
            let sql = "INSERT INTO summary(trees, roots, names) VALUES (?1, ?2, ?3)";
            self.db.execute(sql, (trees, bytes_of(roots), self.names.to_bytes()))?;
            write.commit()
        };
        write().map_err(|error| self.unwritable(error))
    }

    /// Whether the store may contain the head of the tree `root`. If false, the store certainly
    /// does not contain that head.
    pub fn may_have(&self, root: &ThreadId) -> bool {
        self.names.may_have(root.as_str())
    }

    /// Returns the head of the tree `root`; `None` if the store does not contain this head.
    pub fn get(&self, root: &ThreadId) -> Result<Option<TreeHead>, Error> {
        if !self.may_have(root) {
            return Ok(None);
        }

        let sql = format!("SELECT {COLUMNS} FROM head WHERE root = ?1");
        for db in self.layers() {
            let mut select = db.prepare_cached(&sql).map_err(unreadable())?;
            let mut rows = select.query([root.as_str()]).map_err(unreadable())?;
            if let Some(row) = rows.next().map_err(unreadable())? {
                return head_in(row).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the leaves of a chunk; an empty list if the store does not contain this chunk.
    pub fn leaves(&self, chunk: usize) -> Result<Vec<Digest>, Error> {
        let sql = "SELECT digests FROM leaves WHERE chunk = ?1";
        for db in self.layers() {
            let mut select = db.prepare_cached(sql).map_err(unreadable())?;
            let read = |row: &Row<'_>| Ok(digests_in(row.get_ref(0)?.as_blob()?));
            let leaves = select.query_row([chunk], read).optional().map_err(unreadable())?;
            if let Some(leaves) = leaves {
                return Ok(leaves.unwrap_or_default());
            }
        }
        Ok(Vec::new())
    }

    /// Deletes the row of the tree `root`, to simulate damage of the file.
    #[cfg(test)]
    pub fn lose(&self, root: &ThreadId) {
        self.db.execute("DELETE FROM head WHERE root = ?1", [root.as_str()]).unwrap();
    }

    /// Passes every head to `visit`, in no particular order.
    pub fn for_each(
        &self,
        visit: &mut dyn FnMut(&TreeHead) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!("SELECT {COLUMNS} FROM head ORDER BY root");
        let is_newer = "SELECT 1 FROM head WHERE root = ?1";
        let mut is_newer = self.db.prepare(is_newer).map_err(unreadable())?;
        for (db, is_base) in self.layers().zip([false, true]) {
            let mut select = db.prepare(&sql).map_err(unreadable())?;
            let mut rows = select.query([]).map_err(unreadable())?;
            while let Some(row) = rows.next().map_err(unreadable())? {
                // Before the head is checked, because damage to a replaced head does no harm.
                let mut is_replaced = || is_newer.exists([row.get_ref(0)?.as_str()?]);
                if !is_base || !is_replaced().map_err(unreadable())? {
                    visit(&head_in(row)?)?;
                }
            }
        }
        Ok(())
    }
}

fn head_in(row: &Row<'_>) -> Result<TreeHead, Error> {
    let read = || -> rusqlite::Result<(String, TreeHead, i64)> {
        let head = TreeHead {
            root: ThreadId::organism(),
            number: row.get(1)?,
            first: Position(row.get(2)?),
            position: Position(row.get(3)?),
            hash: Digest(row.get(4)?),
            records: row.get(5)?,
            opened: Time(row.get(6)?),
            updated: Time(row.get(7)?),
            is_summed: true,
            is_saved: true,
            is_stored: true,
        };
        Ok((row.get(0)?, head, row.get(8)?))
    };

    let (root, head, sum) = read().map_err(unreadable())?;
    let damaged = || Error::Resting {
        name: format!("the head of the tree {root}"),
        detail: "it was damaged in the working file".to_owned(),
    };
    let head = TreeHead { root: ThreadId::parse(&root).map_err(|_| damaged())?, ..head };
    if sum == checksum(&head) { Ok(head) } else { Err(damaged()) }
}

/// Returns the checksum of a head. The checksum reveals damage of the disk.
fn checksum(head: &TreeHead) -> i64 {
    let TreeHead { root, number, first, position, hash, records, opened, updated, .. } = head;
    let numbers =
        [*number as u64, first.0, position.0, *records, opened.0 as u64, updated.0 as u64];
    let numbers = numbers.map(u64::to_be_bytes);
    let digest =
        Digest::of_parts(&[root.as_str().as_bytes(), b"\0", &hash.0, numbers.as_flattened()]);
    let [first, ..] = digest.0.as_chunks().0 else { return 0 };
    i64::from_be_bytes(*first)
}

fn bytes_of(digests: &[Digest]) -> Vec<u8> {
    digests.iter().flat_map(|digest| digest.0).collect()
}

/// Splits `bytes` into digests. Returns `None` if the last digest is incomplete.
fn digests_in(bytes: &[u8]) -> Option<Vec<Digest>> {
    let (digests, rest) = bytes.as_chunks();
    rest.is_empty().then(|| digests.iter().copied().map(Digest).collect())
}

fn unreadable() -> impl FnOnce(rusqlite::Error) -> Error {
    Error::sqlite("reading heads of trees from a working file")
}

fn unwritable(db: &Connection, error: rusqlite::Error) -> Error {
    working_file::unwritable(db, "heads of trees", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: usize) -> TreeHead {
        TreeHead {
            root: ThreadId::parse(&format!("sess-tree{number:04}")).unwrap(),
            number,
            first: Position(1),
            position: Position(2),
            hash: Digest::of(&number.to_le_bytes()),
            records: 2,
            opened: Time(3),
            updated: Time(4),
            is_summed: true,
            is_saved: true,
            is_stored: true,
        }
    }

    #[test]
    fn a_head_and_the_leaves_of_a_chunk_are_found_again() {
        let mut store = HeadStore::in_memory().unwrap();
        let leaves = [Digest::of(b"one"), Digest::of(b"two")];
        store.put([head(1), head(2)].iter(), std::iter::once((7, &leaves[..]))).unwrap();
        let found = store.get(&head(2).root).unwrap().unwrap();
        assert_eq!((found.number, found.hash), (2, head(2).hash));
        assert!(store.get(&head(3).root).unwrap().is_none());
        assert_eq!(store.leaves(7).unwrap(), leaves);
        assert!(store.leaves(8).unwrap().is_empty());
    }

    #[test]
    fn a_store_over_a_file_hides_earlier_values_and_leaves_the_file_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("snapshot");
        let [first, second] = [Digest::of(b"first"), Digest::of(b"second")];
        let mut earlier = HeadStore::create_file(&file).unwrap();
        let chunks = [(1, &[first][..]), (2, &[first][..])];
        earlier.put([head(1), head(2)].iter(), chunks.into_iter()).unwrap();
        earlier.write_summary(2, &[first, first]).unwrap();
        drop(earlier);
        let bytes = std::fs::read(&file).unwrap();

        let (mut store, summary) = HeadStore::open_over(&file).unwrap().unwrap();
        assert_eq!((summary.trees, summary.roots.len()), (2, 2));
        let newer = TreeHead { records: 7, ..head(1) };
        store.put([newer, head(3)].iter(), std::iter::once((1, &[second][..]))).unwrap();
        let copy = store.duplicate(directory.path()).unwrap();
        for store in [store, copy] {
            let records = |number| store.get(&head(number).root).unwrap().unwrap().records;
            assert_eq!([1, 2, 3].map(records), [7, 2, 2]);
            assert_eq!(store.leaves(1).unwrap(), [second]);
            assert_eq!(store.leaves(2).unwrap(), [first]);
            let mut visited = Vec::new();
            let mut visit = |head: &TreeHead| {
                visited.push((head.number, head.records));
                Ok(())
            };
            store.for_each(&mut visit).unwrap();
            visited.sort_unstable();
            assert_eq!(visited, [(1, 7), (2, 2), (3, 2)]);
        }
        assert!(std::fs::read(&file).unwrap() == bytes, "the file is unchanged");
    }

    #[test]
    fn a_damaged_head_is_an_error() {
        for damage in ["position = 3", "number = 5", "records = 1", "hash = zeroblob(32)"] {
            let mut store = HeadStore::in_memory().unwrap();
            store.put(std::iter::once(&head(1)), std::iter::empty()).unwrap();
            store.db.execute(&format!("UPDATE head SET {damage}"), []).unwrap();
            let error = store.get(&head(1).root).unwrap_err();
            assert!(error.to_string().contains("damaged"), "{damage}: {error}");
        }
    }
}
