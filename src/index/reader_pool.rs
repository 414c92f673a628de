//! Keeps readers of indexes open between the queries of a web view, because opening a reader takes
//! longer than most queries.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use super::reader::{self, IndexReader};
use super::{Error, file};
use crate::limits;
use crate::locks::locked;

/// Index readers that stay open while no query uses them.
#[derive(Debug, Default)]
pub struct IndexReaderPool {
    /// Readers that no query uses now. The lock is held only to take or add a reader, never during
    /// a query.
    free: Mutex<Vec<IndexReader>>,
}

impl IndexReaderPool {
    /// Answers a query from the index of the journal in `data`, like [`read`](super::read). Returns
    /// `None` if this process would first have to make the index or add many records to it; the
    /// caller must then use [`read`](super::read).
    ///
    /// # Errors
    ///
    /// Returns errors of the journal, of the index's file, and of `query`.
    pub fn read_unless_far<T>(
        &self,
        data: &Path,
        query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let kept = self.take(data);
        let kept = kept.and_then(|mut reader| renew(&mut reader).then_some(reader));
        let opened = match kept {
            Some(reader) => Ok(Some(reader)),
            None => reader::open_unless_far(data),
        };

        let answer = match opened {
            Ok(Some(mut reader)) => query(&mut reader).map(|answer| {
                self.add(reader);
                Some(answer)
            }),
            other => other.map(|_| None),
        };
        reader::discard_if_damaged(data, answer)
    }

    fn take(&self, data: &Path) -> Option<IndexReader> {
        let mut free = locked(&self.free);
        let at = free.iter().rposition(|reader| reader.journal().data() == data)?;
        Some(free.swap_remove(at))
    }

    fn add(&self, reader: IndexReader) {
        let mut free = locked(&self.free);
        if free.len() < limits::INDEX_READERS_KEPT {
            free.push(reader);
        }
    }
}

/// Prepares a reader for another query. If another process is completing the index, waits for that
/// process. Returns false if the caller must open a new reader, for example because the files were
/// replaced, or because the index is incomplete and no other process writes it.
fn renew(reader: &mut IndexReader) -> bool {
    if !reader.has_present_files() || file::is_rebuild_requested(&reader.path) {
        return false;
    }
    let Ok(last) = reader.journal().last() else { return false };
    if !reader.has_reached(last) {
        let wait = |wait: Duration| {
            let mut is_enough = || reader.has_reached(last);
            file::IndexLock::take(reader.journal().data(), wait, &mut is_enough)
        };
        if !matches!(wait(limits::INDEX_WAIT), Ok(file::LockResult::Busy)) {
            return false;
        }
    }
    reader.move_to(last).is_ok_and(|is_of_journal| is_of_journal)
}
