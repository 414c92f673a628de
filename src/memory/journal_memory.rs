//! Reads threads from the journal on this machine.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::tree_index::TreeIndex;
use super::{ThreadHistory, tree_with_history};
use crate::bounded_cache::BoundedCache;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::locks::locked;
use crate::thread::{ForkSource, Record, ReopenedNames};

/// Reads threads from the journal in one data directory. All listeners of a process share one such
/// reader.
pub struct JournalMemory {
    data: PathBuf,
    /// Journal readers that are kept open between reads. Between reads, a reader has no open read
    /// transaction, so it does not delay a WAL checkpoint of the database.
    idle: Mutex<Vec<JournalReader>>,
    /// Indexes of trees, by root thread. An index is locked while its tree is read, so that
    /// concurrent reads of several threads read the records of their tree only once.
    trees: Mutex<BoundedCache<ThreadId, Arc<Mutex<TreeIndex>>>>,
}

impl JournalMemory {
    pub fn new(data: PathBuf) -> Self {
        let trees = BoundedCache::new(limits::MEMORY_TREES_MAX, limits::MEMORY_INDEX_BYTES_MAX);
        Self { data, idle: Mutex::default(), trees: Mutex::new(trees) }
    }

    /// Runs `read` with a reader of the journal.
    fn reading<T>(
        &self,
        read: impl FnOnce(&JournalReader) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let idle = locked(&self.idle).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => {
                JournalReader::open(&self.data)?.with_page_cache(limits::MEMORY_READER_CACHE_KIB)?
            }
        };

        let result = read(&reader)?;
        let mut idle = locked(&self.idle);
        if idle.len() < limits::MEMORY_READERS_MAX {
            idle.push(reader);
        }
        Ok(result)
    }

    /// Returns every record that concerns `thread`, oldest first. Returns no records if the thread
    /// is unknown.
    pub fn thread(&self, thread: &ThreadId) -> Result<Vec<Record>, Error> {
        self.records_since(thread, Position(0))
    }

    /// Returns the records of the tree to which the record at `up_to` belongs, oldest first. The
    /// record at `up_to` is the last one. If the tree is a fork, the records begin with the fork's
    /// history.
    pub fn tree(&self, up_to: Position) -> Result<Vec<Record>, Error> {
        self.reading(|reader| tree_with_history(reader, up_to))
    }

    /// Returns the hash of the record at `position`; `None` if there is no record.
    pub fn hash(&self, position: Position) -> Result<Option<Digest>, Error> {
        let record = self.reading(|reader| reader.record(position))?;
        Ok(record.map(|sealed| sealed.hash))
    }

    fn index_of(&self, root: ThreadId) -> Arc<Mutex<TreeIndex>> {
        let mut trees = locked(&self.trees);
        if let Some(index) = trees.get(&root) {
            return Arc::clone(index);
        }

        let index = Arc::default();
        trees.put(root, Arc::clone(&index), 0);
        index
    }
}

impl ThreadHistory for JournalMemory {
    fn records(
        &self,
        thread: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, Error> {
        let root = thread.root();
        let shared = self.index_of(root.clone());
        let mut index = locked(&shared);
        let records = self.reading(|reader| index.records(reader, thread, after, up_to));
        let source = index.source_of(thread).filter(|source| after < source.history).cloned();
        let names = index.reopened();
        let bytes = index.bytes();
        drop(index);

        let mut trees = locked(&self.trees);
        match records {
            // The tree that was read last is kept whatever its size. Otherwise each turn would walk
            // it again from its beginning.
            Ok(_) => drop(trees.put(root, shared, bytes.min(limits::MEMORY_INDEX_BYTES_MAX))),
            Err(Error::Broken { .. }) => drop(trees.take(&root)),
            Err(_) => {}
        }
        drop(trees);

        let records = records?.into_iter().map(Record::without_reopened);
        let Some(source) = source else { return Ok(records.collect()) };
        let mut inherited = self.inherited(thread, (&source, &names), (after, up_to))?;
        inherited.extend(records);
        Ok(inherited)
    }

    fn records_since(&self, thread: &ThreadId, after: Position) -> Result<Vec<Record>, Error> {
        match self.reading(|reader| reader.head(&thread.root()))? {
            Some(head) => self.records(thread, after, head),
            None => Ok(Vec::new()),
        }
    }
}

impl JournalMemory {
    /// Returns the records that `thread` inherits from the source of its fork. In these records,
    /// the ids of the source are replaced by those of the fork.
    fn inherited(
        &self,
        thread: &ThreadId,
        (source, names): (&ForkSource, &ReopenedNames),
        (after, up_to): (Position, Position),
    ) -> Result<Vec<Record>, Error> {
        let Some(original) = thread.under(&source.thread) else { return Ok(Vec::new()) };
        let records = self.records(&original, after, up_to.min(source.history))?;
        let root = thread.root();
        Ok(records.into_iter().map(|record| record.under(&root, names)).collect())
    }
}
