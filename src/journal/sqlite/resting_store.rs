//! Texts of trees and client keys that are outside the memory of a pump.
//!
//! The working file of a pump is not a record: it lives as long as its process, which alone can
//! read it. The file is deleted as soon as it is open, so nothing of it outlives the process, and
//! no other process can change it. A snapshot contains such a file that is kept; a start works on a
//! copy of that file.

use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use crate::ids::Digest;
use crate::journal::Error;
use crate::limits;

/// A store of texts by name, outside the memory of a pump.
#[derive(Debug)]
pub struct RestingStore {
    place: StorePlace,
    /// The opened store; `None` before the first text is stored, because most organisms never store
    /// one.
    open: Option<OpenStore>,
    /// Whether the store ever failed to write a text.
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
        let failed = || Error::sqlite("opening the file of a snapshot");
        let db = Connection::open(file).map_err(failed())?;
        let open = OpenStore::over(db).map_err(failed())?;
        let directory = file.parent().unwrap_or(file).to_owned();
        Ok(Self { place: StorePlace::Directory(directory), open: Some(open), has_failed: false })
    }

    /// Returns the connection to its file, if the store was opened.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.db)
    }

    /// Stores all of the texts under their names, or none of them. Each text replaces an earlier
    /// text of the same name.
    pub fn put(&mut self, texts: &[(String, String)]) -> Result<(), Error> {
        let failed = Error::sqlite("writing trees at rest to a working file");
        let open = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(OpenStore::new(&self.place)?),
        };

        let put = open.put(texts);
        self.has_failed |= put.is_err();
        put.map_err(failed)
    }

    /// Whether the store ever failed to write a text.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the text of this name; `None` if there is none.
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

    /// Returns the names of all texts.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let Some(open) = &self.open else { return Ok(Vec::new()) };
        let names = open.all_names();
        names.map_err(Error::sqlite("reading trees at rest from a working file"))
    }
}

impl OpenStore {
    fn new(place: &StorePlace) -> Result<Self, Error> {
        let failed = || Error::sqlite("opening a working file for trees at rest");
        let db = match place {
            StorePlace::Memory => Connection::open_in_memory().map_err(failed())?,
            StorePlace::Directory(directory) => {
                let path = directory.join(format!("resting-{}", Uuid::now_v7().simple()));
                let db = Connection::open(&path).map_err(failed())?;
                std::fs::remove_file(&path).map_err(|source| {
                    let detail = format!("it cannot be deleted: {source}");
                    Error::Resting { name: path.display().to_string(), detail }
                })?;
                db
            }
        };

        Self::over(db).map_err(failed())
    }

    fn over(db: Connection) -> rusqlite::Result<Self> {
        set_up(&db)?;
        let mut open = Self { db, names: StoredNames::default() };
        open.all_names()?.iter().for_each(|name| open.names.add(name));
        Ok(open)
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
        let mut select =
            self.db.prepare_cached("SELECT text, hash FROM resting WHERE name = ?1")?;
        select.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    fn all_names(&self) -> rusqlite::Result<Vec<String>> {
        let mut select = self.db.prepare("SELECT name FROM resting ORDER BY name")?;
        let names = select.query_map([], |row| row.get(0))?;
        names.collect()
    }
}

fn set_up(db: &Connection) -> rusqlite::Result<()> {
    // No synchronous writes and no lasting rollback journal: nothing needs the file after a crash.
    db.execute_batch(&format!(
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{}; \
         CREATE TABLE IF NOT EXISTS resting(name TEXT PRIMARY KEY, text TEXT NOT NULL, hash BLOB NOT NULL) \
         WITHOUT ROWID;",
        limits::RESTING_CACHE_KIB
    ))
}

/// Returns the checksum of a text, which detects damage of the disk.
fn check_of(name: &str, text: &str) -> [u8; 32] {
    Digest::of_parts(&[name.as_bytes(), b"\0", text.as_bytes()]).0
}

/// A Bloom filter of the names in the store, so that a search for a new name rarely reads the file.
/// The filter has a fixed size: the more names, the more searches read the file.
#[derive(Debug)]
struct StoredNames {
    words: Vec<u64>,
    hasher: foldhash::fast::RandomState,
}

impl Default for StoredNames {
    fn default() -> Self {
        let words = vec![0; limits::RESTING_FILTER_BYTES / size_of::<u64>()];
        Self { words, hasher: foldhash::fast::RandomState::default() }
    }
}

impl StoredNames {
    /// Returns the places of a name's two bits in the filter, each as the index of the word and the
    /// mask of the bit.
    fn bits(&self, name: &str) -> [(usize, u64); 2] {
        let hash = self.hasher.hash_one(name);
        let bit = |half: u64| {
            let words = self.words.len() as u64;
            let index = usize::try_from((half >> 6) % words).unwrap_or_default();
            (index, 1 << (half & 63))
        };
        [bit(hash & 0xffff_ffff), bit(hash >> 32)]
    }

    fn add(&mut self, name: &str) {
        for (index, mask) in self.bits(name) {
            if let Some(word) = self.words.get_mut(index) {
                *word |= mask;
            }
        }
    }

    fn may_have(&self, name: &str) -> bool {
        let is_set = |(index, mask): (usize, u64)| {
            self.words.get(index).is_some_and(|word| word & mask != 0)
        };
        self.bits(name).into_iter().all(is_set)
    }
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
    fn a_damaged_text_is_an_error() {
        let mut store = RestingStore::in_memory();
        store.put(&[pair("one", "first")]).unwrap();
        let open = store.open.as_ref().unwrap();
        open.db.execute("UPDATE resting SET text = 'forged'", []).unwrap();
        let error = store.get("one").unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }

    #[test]
    fn the_filter_knows_every_name_and_few_others() {
        let mut names = StoredNames::default();
        (0..10_000).for_each(|n| names.add(&format!("sess-{n}")));
        assert!((0..10_000).all(|n| names.may_have(&format!("sess-{n}"))));
        let others = (0..10_000).filter(|n| names.may_have(&format!("other-{n}"))).count();
        assert!(others < 100, "{others} of 10,000");
    }
}
