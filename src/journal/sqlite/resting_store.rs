//! Stores the states of trees and client keys that a pump has moved out of its memory. A client key
//! is the key with which a client may repeat a submission. Each state is stored as text, under a
//! unique name.
//!
//! The states are in a working file of the pump, which is a temporary database. A snapshot contains
//! a database of the same form. A pump that started from a snapshot only reads that database, and
//! writes to a new working file. If both contain a state of the same name, the state in the working
//! file is valid.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use crate::ids::Digest;
use crate::journal::Error;

use super::stored_names::StoredNames;
use super::working_file;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS resting(name TEXT PRIMARY KEY, \
                      text TEXT NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID; \
                      CREATE TABLE IF NOT EXISTS filter(names BLOB NOT NULL);";

/// A store of states by name. A pump moves the states of trees and client keys from its memory into
/// this store.
#[derive(Debug)]
pub struct RestingStore {
    place: StorePlace,
    /// The opened store; `None` until a state is stored. Most organisms never store a state.
    open: Option<OpenStore>,
    /// Whether the store has ever failed to write a state.
    has_failed: bool,
}

#[derive(Debug)]
enum StorePlace {
    /// The store is a file in this directory.
    Directory(PathBuf),
    /// The store is in memory, for tests.
    Memory,
}

#[derive(Debug)]
struct OpenStore {
    db: Connection,
    /// Database of a snapshot, opened for reading only; `None` without a snapshot. The store reads
    /// from this database only the states whose names `db` lacks.
    base: Option<Connection>,
    names: StoredNames,
}

impl RestingStore {
    /// Creates a store whose file will be in this directory.
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { place: StorePlace::Directory(directory), open: None, has_failed: false }
    }

    /// Creates a store in memory, for tests.
    pub fn in_memory() -> Self {
        Self { place: StorePlace::Memory, open: None, has_failed: false }
    }

    /// Opens a store in the file `file`. Creates the file if it is missing, and never deletes it.
    pub(super) fn in_file(file: &Path) -> Result<Self, Error> {
        let open = OpenStore::new(working_file::open(file)?, None)?;
        let directory = file.parent().unwrap_or(file).to_owned();
        Ok(Self { place: StorePlace::Directory(directory), open: Some(open), has_failed: false })
    }

    /// Opens a store that begins with the states in `snapshot`, a database of a snapshot. The store
    /// never writes to this database.
    pub(super) fn over_file(snapshot: &Path) -> Result<Self, Error> {
        let directory = snapshot.parent().unwrap_or(snapshot).to_owned();
        let base = working_file::open_read_only(snapshot)?;
        let open = OpenStore::new(working_file::create(&directory, "resting")?, Some(base))?;
        Ok(Self { place: StorePlace::Directory(directory), open: Some(open), has_failed: false })
    }

    /// Writes the Bloom filter of the stored names into the store's file, so that the file can be
    /// opened again without reading all names.
    pub(super) fn write_filter(&self) -> rusqlite::Result<()> {
        let Some(OpenStore { db, names, .. }) = &self.open else { return Ok(()) };
        db.execute("DELETE FROM filter", [])?;
        db.execute("INSERT INTO filter(names) VALUES (?1)", [names.to_bytes()]).map(drop)
    }

    /// Returns the connection to the database to which the store writes. Returns `None` if the
    /// store is not open, or if it began with the states of a snapshot.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().filter(|open| open.base.is_none()).map(|open| &open.db)
    }

    /// Returns the connection to the database of the snapshot.
    ///
    /// - For a store from [`RestingStore::over_file`], this is the read-only database with which
    ///   the store began.
    /// - For a store from [`RestingStore::in_file`], this is the store's own file.
    ///
    /// Returns `None` if the store has no file yet.
    pub(super) fn snapshot(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| open.base.as_ref().unwrap_or(&open.db))
    }

    /// Stores all of `texts`, which are pairs of a name and an encoded state, or none of them. Each
    /// state replaces an earlier state of the same name.
    pub fn put(&mut self, texts: &[(String, String)]) -> Result<(), Error> {
        let open = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(OpenStore::empty(&self.place)?),
        };

        let put = open.put(texts);
        self.has_failed |= put.is_err();
        put.map_err(|error| working_file::unwritable(&open.db, "trees at rest", error))
    }

    /// Whether the store has ever failed to write a state.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the encoded state with this name; `None` if the store does not contain it.
    pub fn get(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(open) = self.open.as_ref().filter(|open| open.names.may_have(name)) else {
            return Ok(None);
        };

        let found = open.get(name);
        let found = found.map_err(Error::sqlite("reading trees at rest from a working file"))?;
        match found {
            Some((text, check)) if check != check_of(name, &text) => {
                let detail = "its text in the working file was damaged".to_owned();
                Err(Error::Resting { name: name.to_owned(), detail })
            }
            found => Ok(found.map(|(text, _)| text)),
        }
    }

    /// Returns the names of all stored states.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let Some(open) = &self.open else { return Ok(Vec::new()) };
        let names = open.all_names();
        names.map_err(Error::sqlite("reading trees at rest from a working file"))
    }
}

impl OpenStore {
    fn empty(place: &StorePlace) -> Result<Self, Error> {
        let db = match place {
            StorePlace::Memory => working_file::in_memory()?,
            StorePlace::Directory(directory) => working_file::create(directory, "resting")?,
        };
        Self::new(db, None)
    }

    /// Opens a store with the states in `db` and in `base`, a read-only database. If there is a
    /// `base`, `db` must be empty, because this function then looks for stored names only in
    /// `base`.
    fn new(db: Connection, base: Option<Connection>) -> Result<Self, Error> {
        let names = || -> rusqlite::Result<StoredNames> {
            db.execute_batch(TABLES)?;
            let stored = base.as_ref().unwrap_or(&db);
            stored_filter(stored)?.map_or_else(|| filter_of_names(stored), Ok)
        };
        let names =
            names().map_err(|error| working_file::unwritable(&db, "trees at rest", error))?;
        Ok(Self { db, base, names })
    }

    fn put(&mut self, texts: &[(String, String)]) -> rusqlite::Result<()> {
        let write = self.db.transaction()?;
        {
            let sql = "INSERT OR REPLACE INTO resting(name, text, hash) VALUES (?1, ?2, ?3)";
            let mut insert = write.prepare_cached(sql)?;
            for (name, text) in texts {
                insert.execute((name, text, check_of(name, text)))?;
                self.names.add(name);
            }
        }
        write.commit()
    }

    fn get(&self, name: &str) -> rusqlite::Result<Option<(String, [u8; 32])>> {
        for db in std::iter::once(&self.db).chain(&self.base) {
            let mut select = db.prepare_cached("SELECT text, hash FROM resting WHERE name = ?1")?;
            let found = select.query_row([name], |row| Ok((row.get(0)?, row.get(1)?)));
            if let Some(found) = found.optional()? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn all_names(&self) -> rusqlite::Result<Vec<String>> {
        let mut all = BTreeSet::new();
        for db in std::iter::once(&self.db).chain(&self.base) {
            let mut select = db.prepare("SELECT name FROM resting")?;
            let names = select.query_map([], |row| row.get(0))?;
            for name in names {
                all.insert(name?);
            }
        }
        Ok(all.into_iter().collect())
    }
}

/// Returns the Bloom filter that [`RestingStore::write_filter`] wrote to `db`. Returns `None` if
/// there is no filter, or if its size differs from that of a new [`StoredNames`].
fn stored_filter(db: &Connection) -> rusqlite::Result<Option<StoredNames>> {
    let read = |row: &rusqlite::Row<'_>| Ok(StoredNames::from_bytes(row.get_ref(0)?.as_blob()?));
    let filter = db.query_row("SELECT names FROM filter", [], read).optional()?;
    Ok(filter.flatten())
}

fn filter_of_names(db: &Connection) -> rusqlite::Result<StoredNames> {
    let mut filter = StoredNames::default();
    let mut select = db.prepare("SELECT name FROM resting")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        filter.add(row.get_ref(0)?.as_str()?);
    }
    Ok(filter)
}

/// Returns the checksum of a name and its state `text`. The checksum reveals damage of the disk.
fn check_of(name: &str, text: &str) -> [u8; 32] {
    Digest::of_parts(&[name.as_bytes(), b"\0", text.as_bytes()]).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_text_is_found_by_its_name_and_replaced_by_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = RestingStore::in_directory(directory.path().to_owned());
        assert_eq!(store.get("one").unwrap(), None);

        store.put(&[pair("one", "first"), pair("two", "other")]).unwrap();
        store.put(&[pair("one", "second")]).unwrap();
        assert_eq!(store.get("one").unwrap().as_deref(), Some("second"));
        assert_eq!(store.get("three").unwrap(), None);
        assert_eq!(store.names().unwrap(), ["one", "two"]);
        let files = std::fs::read_dir(directory.path()).unwrap();
        assert_eq!(files.count(), 0, "no file can be seen");
    }

    #[test]
    fn a_store_over_a_file_hides_earlier_texts_and_leaves_the_file_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("snapshot");
        let mut earlier = RestingStore::in_file(&file).unwrap();
        earlier.put(&[pair("one", "first"), pair("two", "other")]).unwrap();
        earlier.write_filter().unwrap();
        drop(earlier);
        let bytes = std::fs::read(&file).unwrap();

        let mut store = RestingStore::over_file(&file).unwrap();
        assert_eq!(store.get("one").unwrap().as_deref(), Some("first"));
        store.put(&[pair("one", "second"), pair("three", "new")]).unwrap();
        assert_eq!(store.get("one").unwrap().as_deref(), Some("second"));
        assert_eq!(store.get("two").unwrap().as_deref(), Some("other"));
        assert_eq!(store.get("three").unwrap().as_deref(), Some("new"));
        assert_eq!(store.names().unwrap(), ["one", "three", "two"]);
        assert!(std::fs::read(&file).unwrap() == bytes, "the file is unchanged");

        std::fs::remove_file(&file).unwrap();
        assert_eq!(store.get("two").unwrap().as_deref(), Some("other"), "it may be deleted");
    }

    #[test]
    fn an_error_of_a_full_disk_names_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = RestingStore::in_directory(directory.path().to_owned());
        store.put(&[pair("one", "first")]).unwrap();
        let open = store.open.as_ref().unwrap();
        open.db.query_row("PRAGMA max_page_count = 1", [], |_| Ok(())).unwrap();
        let error = store.put(&[pair("two", &"long".repeat(10_000))]).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        let named = format!("writing trees at rest to a file in {}: ", directory.path().display());
        assert!(error.to_string().starts_with(&named), "{error}");
    }

    #[test]
    fn a_damaged_text_is_an_error() {
        let mut store = RestingStore::in_memory();
        store.put(&[pair("one", "first")]).unwrap();
        let open = store.open.as_ref().unwrap();
        open.db.execute("UPDATE resting SET text = 'forged'", []).unwrap();
        let error = store.get("one").unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
