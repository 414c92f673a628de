//! Reads many places of an index, or of its journal, with several threads if the files are not in the
//! page cache. The places of old calls stand far apart, and a disk serves several reads in the time
//! of one.

use std::time::{Duration, Instant};

use super::{Error, IndexReader};
use crate::limits;

impl IndexReader {
    /// Divides `items` into shares, applies `read` to each share, and returns the results in the
    /// order of the shares. The first share is small. If it takes longer than `patience`, threads
    /// read the other shares at once, each with a reader of its own. Otherwise this reader goes on,
    /// because to open the other readers would take longer than to read everything.
    ///
    /// # Errors
    ///
    /// Returns the first error of `read` or of opening a reader.
    pub fn read_in_shares<T: Sync, R: Send>(
        &self,
        items: &[T],
        patience: Duration,
        read: impl Fn(&Self, &[T]) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let (first, others) = items.split_at(limits::SHARE_ITEMS_FIRST.min(items.len()));
        let begun = Instant::now();
        let mut results = vec![read(self, first)?];
        if others.is_empty() {
            return Ok(results);
        }
        if begun.elapsed() <= patience {
            results.push(read(self, others)?);
            return Ok(results);
        }

        let share = others.len().div_ceil(limits::SHARES_MAX).max(limits::SHARE_ITEMS_MIN);
        let source = self.source();
        let read = |items| read(&source.open()?, items);
        let read = &read;
        std::thread::scope(|scope| {
            let shares = others.chunks(share);
            let shares: Vec<_> = shares.map(|items| scope.spawn(move || read(items))).collect();
            for share in shares {
                let result = share.join();
                results.push(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(results)
        })
    }
}
