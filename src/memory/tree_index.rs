//! Index of a tree's records: for each thread, the positions of the records that concern the
//! thread.
//!
//! The index covers one uninterrupted part of the tree's hash chain. New records extend this part
//! at its newer end. If a read of a thread needs older records, they extend the part at its older
//! end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ids::{Digest, Position, ThreadId};
use crate::journal::sqlite::{JournalReader, WalkedRecord};
use crate::journal::{Error, HashedRecord};
use crate::thread::{Fact, ForkSource, Record, ReopenedNames};

use super::shared_records::SharedRecords;

/// Approximate bytes that the index needs for each thread, apart from the thread's positions.
const THREAD_BYTES: usize = 256;

/// Positions and hashes of records, oldest first.
type RecordPositions = VecDeque<(Position, Digest)>;

/// Positions of records by thread. The index covers one stretch of a tree's hash chain.
#[derive(Debug, Default)]
pub(super) struct TreeIndex {
    /// Position and hash of the newest record in the index; `None` if the index is empty.
    newest: Option<(Position, Digest)>,
    /// Position and hash of the record that precedes the oldest record in the index. The position
    /// is 0 if the index contains the tree's first record.
    before: (Position, Digest),
    threads: HashMap<ThreadId, RecordPositions, foldhash::fast::RandomState>,
    /// Threads whose opening record is in the index.
    opened: HashSet<ThreadId, foldhash::fast::RandomState>,
    /// The thread from which this tree was forked. `None` if the tree is no fork, or if the index
    /// does not contain the tree's first record.
    source: Option<ForkSource>,
    /// Map from ids in the source of this fork to ids in the fork. The map contains the calls that
    /// were open in the source when the fork began, and the messages of these calls. The fork
    /// reopened these calls under new ids. Empty if this tree is no fork.
    reopened: Arc<ReopenedNames>,
    /// Number of positions in `threads`.
    positions: usize,
    shared: SharedRecords,
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
        self.positions * size_of::<(Position, Digest)>()
            + self.threads.len() * THREAD_BYTES
            + self.shared.bytes()
    }

    /// Returns the source of this fork if `thread` inherits records from it. Returns `None` if the
    /// tree is no fork, if `thread` began in this tree, or if the index lacks the tree's first
    /// record.
    pub fn source_of(&self, thread: &ThreadId) -> Option<&ForkSource> {
        self.source.as_ref().filter(|_| !self.opened.contains(thread))
    }

    /// Returns a map from ids in the source of this fork to ids in the fork. The map contains the
    /// calls that the fork has reopened, and the messages of these calls. The map is empty if this
    /// tree is no fork.
    pub fn reopened(&self) -> Arc<ReopenedNames> {
        Arc::clone(&self.reopened)
    }

    /// Returns the records of `thread` at positions greater than `after` and not greater than
    /// `up_to`, oldest first. `up_to` must be the position of a record of this tree.
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
            if let Some(record) = shared.read(*hash, thread) {
                return Ok(record);
            }
            let record = match read.remove(position) {
                Some(record) => record,
                None => verified(reader.existing_record(*position)?, *hash)?,
            };
            shared.add(&record, *hash, thread);
            Ok(record)
        };
        wanted.map(record).collect()
    }

    /// Adds the records that are newer than the index, up to the record at `up_to`. If the index is
    /// empty, it then begins with the later of two records: the record that opened `thread`, and
    /// the first record after position `after`.
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

    /// Adds records that are older than the index. Stops as soon as the index contains the record
    /// that opened `thread`, or all records of the tree after position `after`.
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

/// Returns the record in `sealed`, which was just read. Returns an error if the record's hash is
/// not `hash`, the hash that an earlier read found at the same position.
fn verified(sealed: HashedRecord, hash: Digest) -> Result<Record, Error> {
    if sealed.hash == hash {
        return Ok(sealed.record);
    }
    let detail = "it is not the record that was read before";
    Err(Error::broken(sealed.record.position.0, detail))
}

/// Checks whether `record` directly follows `newest`, the newest record of the index, in the hash
/// chain of the tree. Returns false if `newest` is `None`, or if other records come between
/// `newest` and `record`. Returns an error if `newest` cannot come before `record` in the hash
/// chain.
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
        let mut entry = Self {
            position,
            hash,
            threads: Vec::new(),
            opened: Vec::new(),
            source: None,
            reopened: record.reopened_names(),
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

    /// Adds `self`, the visited record, to `visited`. If the record concerns `thread`, also reads
    /// its payloads and adds the whole record to `read`.
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
