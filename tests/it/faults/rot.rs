//! Flipped bits and cut tails in the files that a killed organism left: in the journal's file and
//! in its write-ahead log.

use std::path::Path;

use organism::audit;
use organism::ids::Digest;
use organism::journal::sqlite::{DATABASE, JournalReader, SqliteJournal};
use organism::journal::{Error, HashedRecord};
use tempfile::TempDir;

use super::SMALL;
use crate::campaign::Campaign;
use crate::organism::kill::{Choices, choices, torture};
use crate::organism::{House, numbered};

const LOG: &str = "journal.db-wal";
/// Bytes of the header of a database file.
const DATABASE_HEADER: usize = 100;
/// Bytes of the header of a write-ahead log.
const LOG_HEADER: u64 = 32;
/// Bytes of the header of each page in a write-ahead log.
const PAGE_HEADER: u64 = 24;

/// Copies of the files that a killed organism left. The tests damage them.
struct Remains {
    place: TempDir,
    database: Vec<u8>,
    log: Vec<u8>,
    hashes: Vec<Digest>,
}

impl Remains {
    fn new() -> Self {
        let house = House::settled(SMALL);
        let send = |number: String| {
            let sent = house.send_text(&numbered("ping", &number), &[]);
            assert_eq!(sent.code, Some(0), "{sent:?}");
        };
        // The journal is closed, so the file contains all of it.
        (0..3).for_each(|number| send(number.to_string()));
        let mut running = house.run();
        (3..6).for_each(|number| send(number.to_string()));
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        let place = TempDir::new().unwrap();
        for (name, from) in [("data", house.data()), ("state", house.state())] {
            std::fs::create_dir(place.path().join(name)).unwrap();
            for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
                if file.file_type().unwrap().is_file() && file.file_name() != "journal.db-shm" {
                    let to = place.path().join(name).join(file.file_name());
                    std::fs::copy(file.path(), to).unwrap();
                }
            }
        }
        let read = |name: &str| std::fs::read(place.path().join("data").join(name)).unwrap();
        let (database, log) = (read(DATABASE), read(LOG));
        let mut remains = Self { place, database, log, hashes: Vec::new() };
        remains.hashes = remains.read().unwrap();
        assert!(remains.hashes.len() > 12 && remains.log.len() > 20_000);
        remains
    }

    fn data(&self) -> std::path::PathBuf {
        self.place.path().join("data")
    }

    /// Writes a database file and a write-ahead log, and removes the shared-memory file.
    fn put(&self, database: &[u8], log: &[u8]) {
        let data = self.data();
        std::fs::remove_file(data.join("journal.db-shm")).ok();
        std::fs::write(data.join(DATABASE), database).unwrap();
        std::fs::write(data.join(LOG), log).unwrap();
    }

    fn read(&self) -> Result<Vec<Digest>, Error> {
        hashes(&self.data())
    }

    /// Opens the journal as a starting organism would, up to the first write.
    fn open(&self) -> Result<Vec<Digest>, Error> {
        let mut hashes = Vec::new();
        let mut take = |sealed: HashedRecord| {
            hashes.push(sealed.hash);
            Ok(())
        };
        SqliteJournal::open(&self.data(), &self.place.path().join("state"), &mut take)?;
        Ok(hashes)
    }

    /// Whether `organism verify` reports the journal as broken.
    fn is_found_broken(&self) -> bool {
        let state = self.place.path().join("state");
        let report = audit::verify(&self.data(), Some(&state), &mut |_, _| {});
        report.map_or(true, |report| report.broken.is_some())
    }
}

/// The reactions of `organism verify` and of a start to damaged files.
struct Damage {
    /// Whether `organism verify` reports the journal as broken.
    is_found: bool,
    /// Whether the start of an organism refuses the journal.
    is_refused: bool,
}

impl Remains {
    /// Puts damaged files in place. Asserts that the damage is found, or that every record can
    /// still be read unchanged.
    fn damaged(&self, what: &str, database: &[u8], log: &[u8]) -> Damage {
        self.put(database, log);
        let is_found = self.is_found_broken();
        if !is_found {
            assert_eq!(self.read().unwrap(), self.hashes, "{what}");
        }

        std::fs::remove_file(self.data().join("journal.db-shm")).ok();
        let opened = self.open();
        let is_refused = opened.is_err();
        match opened {
            Ok(hashes) => assert_eq!(hashes, self.hashes, "{what}"),
            Err(error) => {
                // The damaged files are left unchanged for inspection.
                assert!(is_found, "{what}: {error}");
                for (name, before) in [(LOG, log), (DATABASE, database)] {
                    let now = std::fs::read(self.data().join(name)).unwrap_or_default();
                    assert!(now == *before, "{what} changed {name}");
                }
            }
        }
        Damage { is_found, is_refused }
    }
}

fn hashes(data: &Path) -> Result<Vec<Digest>, Error> {
    let reader = JournalReader::open(data)?;
    let records = reader.records(organism::ids::Position(1), reader.last()?)?;
    Ok(records.into_iter().map(|sealed| sealed.hash).collect())
}

fn flip(bytes: &[u8], choices: &mut Choices) -> Vec<u8> {
    let mut rotten = bytes.to_vec();
    let at = choices.below(bytes.len() as u64) as usize;
    rotten[at] ^= 1 << choices.below(8);
    rotten
}

#[test]
fn flipped_bits_are_found_or_change_nothing_and_nothing_after_them_is_dropped() {
    let mut campaign = Campaign::new("flipped bits");
    let flips = if torture() { 2_000 } else { 60 };
    let remains = Remains::new();
    let mut choices = choices();
    let both = (remains.database.len() + remains.log.len()) as u64;
    let (mut found, mut refused) = (0, 0);
    for number in 0..flips {
        let (mut database, mut log) = (remains.database.clone(), remains.log.clone());
        if choices.below(both) < database.len() as u64 {
            database = flip(&database, &mut choices);
        } else {
            log = flip(&log, &mut choices);
        }
        let damage = remains.damaged(&format!("flip {number}"), &database, &log);
        found += u64::from(damage.is_found);
        refused += u64::from(damage.is_refused);
    }
    let rest = flips - found;
    campaign.note(format!("{flips} flips: {found} found, {refused} of them by opening"));
    campaign.note(format!("{rest} hit what no record depends on"));
    assert!(refused > flips / 10, "{refused}");
}

/// The headers decide how SQLite treats the whole file. A short run tries a sixteenth of the bits
/// in the headers, and each run tries another sixteenth.
#[test]
fn each_flipped_bit_of_the_headers_is_found_or_changes_nothing() {
    let remains = Remains::new();
    let step = if torture() { 1 } else { 16 };
    let first = choices().below(step) as usize;
    for bit in (first..8 * DATABASE_HEADER).step_by(step as usize) {
        let mut database = remains.database.clone();
        database[bit / 8] ^= 1 << (bit % 8);
        remains.damaged(&format!("bit {bit} of the file"), &database, &remains.log);
    }
    for bit in (first..8 * (LOG_HEADER + PAGE_HEADER) as usize).step_by(step as usize) {
        let mut log = remains.log.clone();
        log[bit / 8] ^= 1 << (bit % 8);
        remains.damaged(&format!("bit {bit} of the log"), &remains.database, &log);
    }
}

/// Offset at which the last three commits of the write-ahead log begin.
fn last_three_commits(log: &[u8]) -> u64 {
    let number = |at: u64| {
        let bytes = log.get(at as usize..)?.first_chunk()?;
        Some(u64::from(u32::from_be_bytes(*bytes)))
    };
    let page = number(8).unwrap() + PAGE_HEADER;
    let mut begins = vec![LOG_HEADER];
    let mut at = LOG_HEADER;
    let salt = &log[16..24];
    while log.get(at as usize + 8..at as usize + 16) == Some(salt) {
        at += page;
        // The last page of a commit contains the size of the file.
        if number(at - page + 4) != Some(0) {
            begins.push(at);
        }
    }
    assert_eq!(at, log.len() as u64, "the log ends with its last commit");
    begins[begins.len() - 4]
}

#[test]
fn a_tail_cut_at_any_byte_of_the_last_three_commits_is_never_taken_for_the_end() {
    let mut campaign = Campaign::new("cut tails");
    let remains = Remains::new();
    let begin = last_three_commits(&remains.log);
    let end = remains.log.len() as u64;
    let step = if torture() { 1 } else { 303 };
    // One byte at a time near the boundaries of each write.
    let near = |at: &u64| (at - LOG_HEADER) % (8_192 + PAGE_HEADER) < 30;
    let lengths: Vec<u64> =
        (begin..end).rev().filter(|at| near(at) || (end - at).is_multiple_of(step)).collect();
    remains.put(&remains.database, &remains.log);
    let log = remains.data().join(LOG);
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    for length in &lengths {
        file.set_len(*length).unwrap();
        let error = remains.open().unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "cut to {length}: {error}");
        assert_eq!(std::fs::metadata(&log).unwrap().len(), *length, "nothing else was dropped");
    }
    assert!(remains.is_found_broken());
    campaign.note(format!("{} cuts in the last {} bytes", lengths.len(), end - begin));
}
