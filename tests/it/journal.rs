//! Properties of every journal, and further properties of an embedded journal.

pub mod attacks;
mod copies;
mod damage;
mod death;
mod log;
pub mod script;
mod sql;
pub mod streamed;
pub mod substrate;
mod suite;
#[cfg(target_os = "linux")]
mod sync;

use std::path::PathBuf;

use organism::clock::Time;
use organism::journal::sqlite::{JournalReader, SqliteJournal};
use organism::journal::{Error, HashedRecord, Journal as _};
use organism::thread::Record;
use tempfile::TempDir;

/// A directory for a journal, and one for the files outside the journal.
pub struct Place {
    pub home: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    pub fn open(&self) -> Result<SqliteJournal, Error> {
        self.open_with(&mut |_| Ok(()))
    }

    pub fn open_with(
        &self,
        visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
    ) -> Result<SqliteJournal, Error> {
        SqliteJournal::open(&self.data(), &self.state(), visit)
    }

    /// The file outside the journal that contains the watermark: the position of the last
    /// acknowledged record.
    pub fn watermark(&self) -> PathBuf {
        let about = self.reader().about().unwrap();
        self.state().join(format!("{}.watermark", about.journal))
    }

    pub fn reader(&self) -> JournalReader {
        JournalReader::open(&self.data()).unwrap()
    }

    /// A copy of all files in their present state, as after a power cut.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        for from in [self.data(), self.state()] {
            let to = copy.home.path().join(from.file_name().unwrap());
            std::fs::create_dir_all(&to).unwrap();
            for file in std::fs::read_dir(&from).unwrap() {
                let file = file.unwrap();
                // SQLite rebuilds its shared-memory file, and a copy would belong to another run.
                if file.path().extension().is_none_or(|kind| kind != "db-shm") {
                    std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
                }
            }
        }
        copy
    }

    /// Creates a closed journal with these records, which are appended in groups of three.
    pub fn with(records: &mut [Record]) -> Self {
        let place = Self::new();
        let mut journal = place.open().unwrap();
        for group in records.chunks_mut(3) {
            journal.append(group).unwrap();
        }
        let end = records.last().map_or(Time(0), |record| record.time);
        journal.close(end).unwrap();
        place
    }

    pub fn records(&self) -> Vec<HashedRecord> {
        let reader = self.reader();
        reader.records(organism::ids::Position(1), reader.last().unwrap()).unwrap()
    }
}
