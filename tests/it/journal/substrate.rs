//! The journal of the pump tests: embedded, or on JetStream if `ORGANISM_TEST_NATS` is set.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;

use organism::clock::Time;
use organism::ids::{Digest, Position};
use organism::journal::sqlite::JournalReader;
use organism::journal::{Error, HashedRecord, Journal};
use organism::thread::Record;

use super::{Place, streamed};

/// Maximum number of `World` values of one test whose records are written to a journal. The test's
/// further values differ from these only in size.
const WORLDS_MAX: u32 = 3;
const RECORDS_MAX: usize = 3_000;

/// A journal of the kind that `ORGANISM_TEST_NATS` selects.
pub enum Kept {
    Embedded(Place),
    Streamed(streamed::Place),
}

impl Kept {
    pub fn new() -> Self {
        match std::env::var_os("ORGANISM_TEST_NATS") {
            None => Self::Embedded(Place::new()),
            Some(_) => Self::Streamed(streamed::Place::new()),
        }
    }

    pub fn data(&self) -> PathBuf {
        match self {
            Self::Embedded(place) => place.data(),
            Self::Streamed(place) => place.data(),
        }
    }

    /// Opens the journal. `pages` is the maximum number of pages in the journal's file.
    pub fn open(&self, pages: Option<u32>) -> Box<dyn Journal> {
        match self {
            Self::Embedded(place) => {
                let journal = place.open().unwrap();
                journal.set_pages_max(pages).unwrap();
                Box::new(journal)
            }
            Self::Streamed(place) => {
                let journal = place.open().unwrap();
                journal.set_pages_max(pages).unwrap();
                Box::new(journal)
            }
        }
    }

    /// All records that a reader of the directory finds at present.
    pub fn records(&self) -> Vec<Record> {
        let reader = JournalReader::open(&self.data()).unwrap();
        let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
        records.into_iter().map(|sealed| sealed.record).collect()
    }

    /// Opens the journal again, and returns all durable records.
    fn read_back(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut visit = |sealed: HashedRecord| -> Result<(), Error> {
            records.push(sealed.record);
            Ok(())
        };
        match self {
            Self::Embedded(place) => drop(place.open_with(&mut visit).unwrap()),
            Self::Streamed(place) => drop(place.elsewhere().open_with(&mut visit).unwrap()),
        }
        records
    }
}

thread_local!(static COLLECTED: RefCell<Option<Vec<Vec<Record>>>> = const { RefCell::new(None) });

/// Runs a test of the pump. Returns the records of each `World` that the test creates.
pub fn collect(test: fn()) -> Vec<Vec<Record>> {
    COLLECTED.set(Some(Vec::new()));
    test();
    COLLECTED.take().unwrap_or_default()
}

/// Writes the records of a pump in groups, as a driver does, and asserts that the same records are
/// read back.
#[track_caller]
pub fn comes_back(records: &[Record]) {
    COLLECTED.with_borrow_mut(|collected| {
        if let Some(worlds) = collected {
            worlds.push(records.to_vec());
        }
    });
    thread_local!(static WORLDS: Cell<u32> = const { Cell::new(0) });
    if WORLDS.replace(WORLDS.get() + 1) >= WORLDS_MAX || records.is_empty() {
        return;
    }
    write_and_read_back(&Kept::new(), records);
}

/// Writes the records of a pump to JetStream, whatever `ORGANISM_TEST_NATS` selects, and asserts
/// that the same records are read back.
#[track_caller]
pub fn comes_back_streamed(records: &[Record]) {
    if !records.is_empty() {
        write_and_read_back(&Kept::Streamed(streamed::Place::new()), records);
    }
}

#[track_caller]
fn write_and_read_back(kept: &Kept, records: &[Record]) {
    let mut written: Vec<_> = records.iter().take(RECORDS_MAX).cloned().collect();
    let mut journal = kept.open(None);
    let (mut rest, mut size) = (&mut written[..], 1);
    while !rest.is_empty() {
        let (group, after) = rest.split_at_mut(size.min(rest.len()));
        journal.append(group).unwrap();
        (rest, size) = (after, size % 7 + 1);
    }
    journal.close(written.last().map_or(Time(0), |record| record.time)).unwrap();
    let read = kept.read_back();
    assert_eq!(read.len(), written.len());
    // The journal assigns the hashes of the chain itself.
    let plain = |record: &Record| Record {
        previous: Position(0),
        previous_hash: Digest::ZERO,
        ..record.clone()
    };
    for (read, meant) in read.iter().zip(records) {
        assert_eq!(plain(read), plain(meant), "what came back is something else");
    }
}
