//! Cache of records that opened several threads of a tree and must still be read for some of them.
//!
//! Such a record may contain the first payload of each of a hundred threads, and then takes long to
//! read. Without this cache, the whole record would be read, verified and parsed for each of these
//! threads.

use std::collections::HashSet;

use crate::bounded_cache::BoundedCache;
use crate::ids::{Digest, ThreadId};
use crate::limits;
use crate::thread::{Fact, Record};

/// Approximate bytes in memory of a fact, without the payload of its message.
const FACT_BYTES: usize = 768;

/// A cache of records by their hashes. If the cache exceeds a limit, it drops the record that was
/// read longest ago.
#[derive(Debug)]
pub(super) struct SharedRecords(BoundedCache<Digest, SharedRecord>);

#[derive(Debug)]
struct SharedRecord {
    record: Record,
    /// The threads that the record opened, without those for which the record was already read.
    unread: HashSet<ThreadId, foldhash::fast::RandomState>,
}

impl Default for SharedRecords {
    fn default() -> Self {
        let records_max = limits::MEMORY_SHARED_RECORDS_MAX;
        Self(BoundedCache::new(records_max, limits::MEMORY_SHARED_BYTES_MAX))
    }
}

impl SharedRecords {
    /// Returns the record with the hash `hash` for a read of `thread`. Returns `None` if the cache
    /// does not contain the record. Removes the record from the cache once it was read for each
    /// thread that it opened.
    pub fn read(&mut self, hash: Digest, thread: &ThreadId) -> Option<Record> {
        let mut shared = self.0.take(&hash)?;
        shared.unread.remove(thread);
        if shared.unread.is_empty() {
            return Some(shared.record);
        }

        let record = shared.record.clone();
        self.put(hash, shared);
        Some(record)
    }

    /// Adds `record`, which was just read from the journal for `thread`. So the other threads that
    /// the record opened can get it from the cache. Does nothing if the record opened no other
    /// thread.
    ///
    /// Also does nothing if the record did not open `thread` itself, for example if it opened only
    /// children of `thread`. In this case, the record may already have been read for all threads
    /// that it opened.
    pub fn add(&mut self, record: &Record, hash: Digest, thread: &ThreadId) {
        let opened = record.facts.iter().filter_map(|fact| match fact {
            Fact::ThreadOpened { thread, .. } => Some(thread),
            _ => None,
        });
        let mut unread: HashSet<_, _> = opened.cloned().collect();
        if unread.remove(thread) && !unread.is_empty() {
            self.put(hash, SharedRecord { record: record.clone(), unread });
        }
    }

    fn put(&mut self, hash: Digest, shared: SharedRecord) {
        let bytes = shared.bytes();
        self.0.put(hash, shared, bytes);
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl SharedRecord {
    fn bytes(&self) -> usize {
        let payloads: usize = self.record.payloads().map(|payload| payload.as_str().len()).sum();
        // The note of a model turn contains the payloads of the turn once more.
        2 * payloads + self.record.facts.len() * FACT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::{ListenerName, Position};
    use crate::thread::Input;

    fn thread(number: usize) -> ThreadId {
        ThreadId::parse(&format!("sess-tree0001.thread{number}")).unwrap()
    }

    /// Returns a record that opens the given number of threads, and the record's hash.
    fn opening(position: u64, threads: usize) -> (Record, Digest) {
        let by = ListenerName::parse("worker").unwrap();
        let opened = |number| Fact::ThreadOpened {
            thread: thread(number),
            by: by.clone(),
            bound: None,
            allotment: None,
        };
        let record = Record {
            position: Position(position),
            tree: thread(0).root(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
            facts: (0..threads).map(opened).collect(),
        };
        (record, Digest::of(&position.to_le_bytes()))
    }

    #[test]
    fn a_record_stays_until_each_thread_that_it_opened_has_read_it() {
        let mut shared = SharedRecords::default();
        let (record, hash) = opening(1, 3);
        shared.add(&record, hash, &thread(0));
        assert!(shared.bytes() > 0);
        assert_eq!(shared.read(Digest::ZERO, &thread(1)), None, "it has another hash");

        let readers = [thread(1), thread(1), thread(0).root(), thread(2)];
        for reader in &readers {
            assert_eq!(shared.read(hash, reader), Some(record.clone()), "{reader}");
        }
        assert_eq!(shared.read(hash, &thread(1)), None);
        assert_eq!(shared.bytes(), 0);
    }

    #[test]
    fn a_record_that_no_other_thread_will_read_is_not_kept() {
        let mut shared = SharedRecords::default();
        let (record, hash) = opening(1, 1);
        shared.add(&record, hash, &thread(0));
        let (record, hash) = opening(2, 3);
        shared.add(&record, hash, &thread(0).root());
        assert_eq!(shared.bytes(), 0);
    }

    #[test]
    fn beyond_the_bound_the_record_that_was_read_longest_ago_is_removed() {
        let mut shared = SharedRecords::default();
        let records: Vec<_> = (0..=limits::MEMORY_SHARED_RECORDS_MAX)
            .map(|position| opening(position as u64, 4))
            .collect();
        let (last, full) = records.split_last().unwrap();
        for (record, hash) in full {
            shared.add(record, *hash, &thread(0));
        }
        let [(_, first), (_, second), ..] = full else { panic!("the bound is at least two") };
        assert!(shared.read(*first, &thread(1)).is_some());
        shared.add(&last.0, last.1, &thread(0));
        assert!(shared.read(*first, &thread(2)).is_some());
        assert_eq!(shared.read(*second, &thread(1)), None);
    }
}
