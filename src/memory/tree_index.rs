//! Index of a tree's records: for each thread, the positions of the records that concern the
//! thread.
//!
//! The index covers one stretch of the tree's hash chain. New records extend the stretch at its
//! newer end. A read of a thread may need records from before the stretch. These older records then
//! extend the stretch at its older end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ids::{Digest, Position, ThreadId};
use crate::journal::sqlite::{JournalReader, WalkedRecord};
use crate::journal::{Error, HashedRecord};
use crate::limits;
use crate::thread::{Fact, ForkSource, Record, ReopenedNames};

/// Approximate bytes that the index needs for each thread, apart from the thread's positions.
const THREAD_BYTES: usize = 256;

/// Positions and hashes of records, oldest first.
type RecordPositions = VecDeque<(Position, Digest)>;

/// Positions of records by thread. The index covers one stretch of a tree's hash chain.
#[derive(Debug, Default)]
pub(super) struct TreeIndex {
    /// Position and hash of the newest record in the index.
    newest: Option<(Position, Digest)>,
    /// Position and hash of the record before the oldest record in the index. The position is 0 if
    /// the index contains the tree's first record.
    before: (Position, Digest),
    threads: HashMap<ThreadId, RecordPositions, foldhash::fast::RandomState>,
    /// Threads whose opening record is in the index.
    opened: HashSet<ThreadId, foldhash::fast::RandomState>,
    /// The thread from which this tree was forked. `None` if the tree is no fork, or if the index
    /// does not contain the tree's first record.
    source: Option<ForkSource>,
    /// Ids of calls that were open in the source when the fork began, and that the fork opened
    /// again under new ids. Also contains the ids of their messages. Each id in the source is
    /// mapped to the new id in the fork. Empty if this tree is no fork.
    reopened: Arc<ReopenedNames>,
    /// Number of positions in `threads`.
    positions: usize,
    /// Records that opened several threads, and that some of these threads have not read.
    shared: Vec<SharedRecord>,
}

/// A record that opened several threads, each of which will read it. The record is kept until as
/// many threads have read it, because it may contain the first payload of each of a hundred threads
/// and then takes long to read.
#[derive(Debug)]
struct SharedRecord {
    record: Record,
    hash: Digest,
    /// Number of opened threads that have not read the record.
    unread: usize,
}

/// A record that was visited on a walk along the tree's hash chain. `threads` contains the threads
/// that the record concerns.
struct VisitedRecord {
    position: Position,
    hash: Digest,
    threads: Vec<ThreadId>,
    opened: Vec<ThreadId>,
    source: Option<ForkSource>,
    reopened: ReopenedNames,
}

impl TreeIndex {
    /// Returns the approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let shared: usize = self.shared.iter().map(SharedRecord::bytes).sum();
        self.positions * size_of::<(Position, Digest)>()
            + self.threads.len() * THREAD_BYTES
            + shared
    }

    /// Returns the source of this tree if `thread` inherits records from the source. Returns `None`
    /// if the tree is no fork, if `thread` began in this tree, or if the index does not contain the
    /// tree's first record.
    pub fn source_of(&self, thread: &ThreadId) -> Option<&ForkSource> {
        self.source.as_ref().filter(|_| !self.opened.contains(thread))
    }

    /// Returns the ids of the calls that the fork has reopened, and of their messages. Each id in
    /// the source is paired with the new id in the fork. Empty if this tree is no fork.
    pub fn reopened(&self) -> Arc<ReopenedNames> {
        Arc::clone(&self.reopened)
    }

    /// Returns the records of `thread` after `after`, up to and including `up_to`, oldest first.
    /// `up_to` is a position in the tree.
    pub fn records(
        &mut self,
        reader: &JournalReader,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, Error> {
        let mut read = HashMap::new();
        self.extend_to(reader, thread, (after, up_to), &mut read)?;
        self.extend_back(reader, thread, after, &mut read)?;

        let Some(positions) = self.threads.get(thread) else { return Ok(Vec::new()) };
        let from = positions.partition_point(|(position, _)| *position <= after);
        let wanted = positions.range(from..).take_while(|(position, _)| *position <= up_to);
        let shared = &mut self.shared;
        let record = |(position, hash): &(Position, Digest)| {
            if let Some(record) = SharedRecord::take(shared, *hash) {
                return Ok(record);
            }
            let record = match read.remove(position) {
                Some(record) => record,
                None => verified(reader.existing_record(*position)?, *hash)?,
            };
            SharedRecord::keep(shared, &record, *hash);
            Ok(record)
        };
        wanted.map(record).collect()
    }

    /// Adds the records up to `up_to` that are newer than the index. To an empty index, adds only
    /// the records after `after`, and of these only the records from the opening of `thread` on.
    fn extend_to(
        &mut self,
        reader: &JournalReader,
        thread: &ThreadId,
        (after, up_to): (Position, Position),
        read: &mut HashMap<Position, Record>,
    ) -> Result<(), Error> {
        let newest = self.newest;
        if newest.is_some_and(|(newest, _)| up_to <= newest) {
            return Ok(());
        }

        let mut visited = Vec::new();
        let mut head = None;
        let mut before = (Position(0), Digest::ZERO);
        reader.walk_back(up_to, |walked| {
            let hash = walked.hash();
            let record = walked.record();
            head.get_or_insert((record.position, hash));
            before = (record.previous, record.previous_hash);
            let is_joined = joins(record, newest)?;
            let entry = VisitedRecord::of(record, hash);
            let is_first = newest.is_none() && (entry.opens(thread) || record.previous <= after);
            entry.keep(walked, thread, &mut visited, read)?;
            Ok(if is_joined || is_first {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;

        if newest.is_none() {
            self.before = before;
        }
        self.newest = head.or(newest);
        for entry in visited.into_iter().rev() {
            self.add(entry, VecDeque::push_back);
        }
        Ok(())
    }

    /// Adds records that are older than the index. Stops once the index contains the opening record
    /// of `thread`, or all records after `after`.
    fn extend_back(
        &mut self,
        reader: &JournalReader,
        thread: &ThreadId,
        after: Position,
        read: &mut HashMap<Position, Record>,
    ) -> Result<(), Error> {
        let (from, expected) = self.before;
        if from <= after || self.opened.contains(thread) {
            return Ok(());
        }

        let mut visited = Vec::new();
        let mut before = self.before;
        let mut is_checked = false;
        reader.walk_back(from, |walked| {
            let hash = walked.hash();
            if !std::mem::replace(&mut is_checked, true) && hash != expected {
                return Err(Error::broken(from.0, "the record after it does not follow from it"));
            }
            let record = walked.record();
            before = (record.previous, record.previous_hash);
            let entry = VisitedRecord::of(record, hash);
            let is_last = entry.opens(thread) || record.previous <= after;
            entry.keep(walked, thread, &mut visited, read)?;
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;

        self.before = before;
        for entry in visited {
            self.add(entry, VecDeque::push_front);
        }
        Ok(())
    }

    fn add(&mut self, entry: VisitedRecord, put: fn(&mut RecordPositions, (Position, Digest))) {
        self.positions += entry.threads.len();
        for thread in entry.threads {
            put(self.threads.entry(thread).or_default(), (entry.position, entry.hash));
        }
        self.opened.extend(entry.opened);
        self.source = self.source.take().or(entry.source);
        if !entry.reopened.is_empty() {
            self.reopened = Arc::new(entry.reopened);
        }
    }
}

impl SharedRecord {
    /// Returns the record with the hash `hash` if it is kept in `kept`. Removes it from there if no
    /// thread is left to read it.
    fn take(kept: &mut Vec<Self>, hash: Digest) -> Option<Record> {
        let at = kept.iter().position(|shared| shared.hash == hash)?;
        let shared = kept.get_mut(at)?;
        shared.unread -= 1;
        if shared.unread == 0 {
            Some(kept.swap_remove(at).record)
        } else {
            Some(shared.record.clone())
        }
    }

    /// Keeps `record`, which one thread has just read, for the other threads that it opened. If too
    /// many records are kept, drops the one that the fewest threads have yet to read.
    fn keep(kept: &mut Vec<Self>, record: &Record, hash: Digest) {
        let is_opening = |fact: &&Fact| matches!(fact, Fact::ThreadOpened { .. });
        let unread = record.facts.iter().filter(is_opening).count().saturating_sub(1);
        if unread == 0 {
            return;
        }

        kept.push(Self { record: record.clone(), hash, unread });
        if kept.len() > limits::MEMORY_SHARED_RECORDS_MAX {
            let unread = |(_, shared): &(usize, &Self)| shared.unread;
            let fewest = kept.iter().enumerate().min_by_key(unread).map(|(at, _)| at);
            fewest.map(|at| kept.swap_remove(at));
        }
    }

    /// Returns the approximate size in memory, in bytes.
    fn bytes(&self) -> usize {
        let payloads = self.record.payloads().map(|payload| payload.as_str().len());
        payloads.sum::<usize>() + self.record.facts.len() * size_of::<Fact>()
    }
}

/// Returns the record in `sealed`, which was just read. Returns an error if its hash differs from
/// `hash`, the hash that an earlier read found for the record at this position.
fn verified(sealed: HashedRecord, hash: Digest) -> Result<Record, Error> {
    if sealed.hash == hash {
        return Ok(sealed.record);
    }
    let detail = "it is not the record that was read before";
    Err(Error::broken(sealed.record.position.0, detail))
}

/// Whether `record` directly follows `newest`, the newest record of the index, in the hash chain of
/// their tree. Returns false if the index is empty, or if another record comes between the two.
/// Returns an error if the chain before `record` does not contain `newest`.
fn joins(record: &Record, newest: Option<(Position, Digest)>) -> Result<bool, Error> {
    let Some((newest, hash)) = newest else { return Ok(false) };
    if record.previous > newest {
        return Ok(false);
    }
    if record.previous == newest && record.previous_hash == hash {
        return Ok(true);
    }
    let detail = format!("it does not follow from the record {newest}, which was read before");
    Err(Error::broken(record.position.0, detail))
}

impl VisitedRecord {
    fn of(record: &Record, hash: Digest) -> Self {
        let position = record.position;
        let calls = record.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some(&**call),
            _ => None,
        });
        let mut entry = Self {
            position,
            hash,
            threads: Vec::new(),
            opened: Vec::new(),
            source: None,
            reopened: ReopenedNames::of(calls),
        };
        for fact in &record.facts {
            let concerned = match fact {
                Fact::ThreadOpened { thread, .. } => {
                    entry.opened.push(thread.clone());
                    thread
                }
                Fact::Forked { source, .. } => {
                    entry.source = Some(source.clone());
                    continue;
                }
                Fact::Accepted { message, .. } => &message.thread,
                Fact::Window { thread, .. } => thread,
                _ => continue,
            };
            if !entry.threads.contains(concerned) {
                entry.threads.push(concerned.clone());
            }
        }
        entry
    }

    fn opens(&self, thread: &ThreadId) -> bool {
        self.opened.contains(thread)
    }

    /// Adds this record to `visited`. If the record concerns `thread`, also reads its payloads and
    /// adds the whole record to `read`.
    fn keep(
        self,
        walked: WalkedRecord<'_>,
        thread: &ThreadId,
        visited: &mut Vec<Self>,
        read: &mut HashMap<Position, Record>,
    ) -> Result<(), Error> {
        if self.threads.contains(thread) {
            read.insert(self.position, walked.with_payloads()?.record);
        }
        visited.push(self);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::ListenerName;
    use crate::thread::Input;

    /// Creates a record that opens this number of threads, and its hash.
    fn opening(threads: usize) -> (Record, Digest) {
        let tree = ThreadId::parse("sess-tree0001").unwrap();
        let by = ListenerName::parse("worker").unwrap();
        let opened = |_| Fact::ThreadOpened {
            thread: tree.clone(),
            by: by.clone(),
            bound: None,
            allotment: None,
        };
        let record = Record {
            position: Position(threads as u64),
            tree: tree.clone(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
            facts: (0..threads).map(opened).collect(),
        };
        (record, Digest::of(&threads.to_le_bytes()))
    }

    #[test]
    fn a_record_is_kept_until_each_thread_that_it_opened_has_read_it() {
        let mut kept = Vec::new();
        let (record, hash) = opening(3);
        SharedRecord::keep(&mut kept, &record, hash);
        for _ in 0..2 {
            assert_eq!(SharedRecord::take(&mut kept, Digest::ZERO), None, "of another hash");
            assert_eq!(SharedRecord::take(&mut kept, hash), Some(record.clone()));
        }
        assert_eq!(SharedRecord::take(&mut kept, hash), None);
        assert!(kept.is_empty());

        let (record, hash) = opening(1);
        SharedRecord::keep(&mut kept, &record, hash);
        assert!(kept.is_empty(), "no other thread will read it");
    }

    #[test]
    fn of_too_many_records_the_one_with_the_fewest_readers_is_dropped() {
        let mut kept = Vec::new();
        let most = limits::MEMORY_SHARED_RECORDS_MAX;
        for threads in [5, 2].into_iter().chain(6..5 + most) {
            let (record, hash) = opening(threads);
            SharedRecord::keep(&mut kept, &record, hash);
        }
        let mut unread: Vec<usize> = kept.iter().map(|shared| shared.unread).collect();
        unread.sort_unstable();
        assert_eq!(unread, (4..4 + most).collect::<Vec<_>>());
    }
}
