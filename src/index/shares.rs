//! Reads many places of an index, or of its journal, with several threads at once. The places of old
//! calls stand far apart, and a disk serves several reads in the time of one.

use super::{Error, IndexReader};
use crate::limits;

impl IndexReader {
    /// Divides `items` into shares, applies `read` to the shares at once, and returns the results in
    /// the order of the shares. Each share but the first has a reader of its own.
    ///
    /// # Errors
    ///
    /// Returns the first error of `read` or of opening a reader.
    pub fn read_in_shares<T: Sync, R: Send>(
        &self,
        items: &[T],
        read: impl Fn(&Self, &[T]) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let usual = items.len().div_ceil(limits::SHARES_MAX);
        let share = usual.max(limits::SHARE_ITEMS_MIN).min(items.len());
        let (own, others) = items.split_at(share);
        let source = self.source();
        let read_share = |items| read(&source.open()?, items);
        let read_share = &read_share;

        std::thread::scope(|scope| {
            let shares = others.chunks(share.max(1));
            let shares: Vec<_> =
                shares.map(|items| scope.spawn(move || read_share(items))).collect();
            let first = read(self, own);
            let others = shares.into_iter().map(|share| match share.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            std::iter::once(first).chain(others).collect()
        })
    }
}
