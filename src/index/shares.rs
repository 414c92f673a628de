//! Reads many items of an index, or of its journal. Several OS threads read the items at once if
//! the files are not in the page cache: old items lie far apart on the disk, and a disk can carry
//! out several such reads at the same time.

use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::reader::ReaderSource;
use super::{Error, IndexReader};
use crate::limits;

impl IndexReader {
    /// Divides `items` into shares, applies `read` to each share, and returns the results in the
    /// order of the shares.
    ///
    /// The index reader on which the method is called reads a small first share alone. If that
    /// takes longer than `patience`, and many items are left, several OS threads then read the
    /// remaining shares in parallel, each with its own reader. Otherwise, this reader reads all
    /// remaining items as one share, because opening further readers would take longer. A temporary
    /// index is always read by this reader alone, because no other reader can open it.
    ///
    /// # Errors
    ///
    /// Returns the first error of `read`.
    pub fn read_in_shares<T: Sync, R: Send>(
        &self,
        items: &[T],
        patience: Duration,
        read: impl Fn(&Self, &[T]) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let (first, others) = items.split_at(limits::SHARE_ITEMS_FIRST.min(items.len()));
        let begun = Instant::now();
        let mut results = vec![read(self, first)?];
        let is_fast = begun.elapsed() <= patience;
        let source = self.source().filter(|_| !is_fast && others.len() > limits::SHARE_ITEMS_MIN);
        match source {
            Some(source) => results.extend(self.read_at_once(others, &source, &read)?),
            None if others.is_empty() => {}
            None => results.push(read(self, others)?),
        }
        Ok(results)
    }

    /// Reads shares of `items` in parallel, each on an OS thread with its own reader. If the OS
    /// thread or the reader for a share cannot be created, `self` reads this share.
    fn read_at_once<T: Sync, R: Send>(
        &self,
        items: &[T],
        source: &ReaderSource,
        read: &(impl Fn(&Self, &[T]) -> Result<R, Error> + Sync),
    ) -> Result<Vec<R>, Error> {
        let share = items.len().div_ceil(limits::SHARES_MAX).max(limits::SHARE_ITEMS_MIN);
        let read_apart = |items| source.open().map(|reader| read(&reader, items));
        let read_apart = &read_apart;
        std::thread::scope(|scope| {
            let start = |items| {
                let thread = Builder::new().spawn_scoped(scope, move || read_apart(items));
                (items, thread.ok())
            };
            let shares: Vec<_> = items.chunks(share).map(start).collect();
            let result = |(items, thread): (_, Option<ScopedJoinHandle<'_, _>>)| {
                let apart = thread.and_then(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                apart.unwrap_or_else(|| read(self, items))
            };
            shares.into_iter().map(result).collect()
        })
    }
}
