//! Keeps readers of indexes open between the queries of a web view, because opening a reader takes
//! longer than most queries.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
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
    /// The reader of the temporary index of each journal whose directory this process may not write.
    /// The lock of the map is held only to find an entry. The lock of an entry is held during a
    /// query, because a temporary index has only this reader.
    temporary: Mutex<HashMap<PathBuf, TemporaryReader>>,
}

/// The reader of a temporary index; `None` until the index is made, and while it is made again.
type TemporaryReader = Arc<Mutex<Option<IndexReader>>>;

impl IndexReaderPool {
    /// Answers a query from the index of the journal in `data`, like [`read`](super::read). Returns
    /// `None` if this process would first have to make the index or add many records to it; the
    /// caller must then call [`Self::build`]. A query must not query this pool.
    ///
    /// # Errors
    ///
    /// Returns errors of the journal, of the index's file, and of `query`.
    pub fn read_unless_far<T>(
        &self,
        data: &Path,
        query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let present = reader::index_file(data);
        let opened = match self.take_renewed(data) {
            Some(reader) => Ok(Some(reader)),
            None => reader::open_unless_far(data),
        };

        let answer = match opened {
            Ok(Some(mut reader)) => query(&mut reader).map(|answer| {
                self.add(reader);
                Some(answer)
            }),
            Ok(None) => return self.read_temporary(data, query),
            Err(error) => Err(error),
        };
        reader::discard_if_damaged(data, present, answer)
    }

    /// Makes the index of the journal in `data`, or brings it up to date, as [`read`](super::read)
    /// does. Keeps a temporary index for the next queries.
    ///
    /// # Errors
    ///
    /// Returns errors of the journal and of the index's file.
    pub fn build(&self, data: &Path) -> Result<(), Error> {
        let temporary = self.temporary(data);
        // Ordering rule: taken out during the work, so that queries do not wait for it.
        let mut kept = locked(&temporary).take();
        kept.take_if(|reader| !reader.update_temporary(u64::MAX).is_ok_and(|is_usable| is_usable));
        let reader = match kept {
            Some(reader) => reader,
            None => reader::open_updated(data)?,
        };
        if reader.is_temporary() {
            *locked(&temporary) = Some(reader);
        }
        Ok(())
    }

    /// Answers a query from the temporary index of the journal in `data`. Returns `None` if there is
    /// no such index, or if it lacks many records.
    fn read_temporary<T>(
        &self,
        data: &Path,
        query: &mut dyn FnMut(&mut IndexReader) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let temporary = self.temporary(data);
        let mut kept = locked(&temporary);
        let Some(reader) = kept.as_mut() else { return Ok(None) };
        match reader.update_temporary(limits::INDEX_NEAR_RECORDS) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) => {
                *kept = None;
                return Ok(None);
            }
        }

        let answer = query(reader);
        if answer.as_ref().is_err_and(Error::is_damage) {
            *kept = None;
            return Ok(None);
        }
        answer.map(Some)
    }

    fn temporary(&self, data: &Path) -> TemporaryReader {
        Arc::clone(locked(&self.temporary).entry(data.to_owned()).or_default())
    }

    /// Returns a kept reader that is ready for another query. If a kept reader cannot be used again,
    /// closes all kept readers of the same index, because a deleted file occupies the disk for as
    /// long as any reader has it open.
    fn take_renewed(&self, data: &Path) -> Option<IndexReader> {
        let mut reader = self.take(data)?;
        if renew(&mut reader) {
            return Some(reader);
        }
        while self.take(data).is_some() {}
        None
    }

    fn take(&self, data: &Path) -> Option<IndexReader> {
        let mut free = locked(&self.free);
        let at = free.iter().rposition(|reader| reader.journal().data() == data)?;
        Some(free.swap_remove(at))
    }

    fn add(&self, reader: IndexReader) {
        if reader.is_temporary() || !reader.has_present_files() {
            return;
        }
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
