//! Queries with which the web view reads the indexes of the journals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::Semaphore;

use crate::ids::Position;
use crate::index::{self, IndexReader, IndexReaderPool};
use crate::journal::partitions_in;
use crate::limits;
use crate::locks::locked;

/// The journals that the pages show, each with its index.
#[derive(Debug, Clone)]
pub(super) struct ViewedJournals {
    data: PathBuf,
    /// Limits concurrent queries, so that many open pages leave processor time to the pump.
    permits: Arc<Semaphore>,
    readers: Arc<IndexReaderPool>,
    /// Journals whose indexes are being built, each on an OS thread that this view has started.
    building: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// The result of a query to the index of one journal.
#[derive(Debug)]
pub(super) struct PartitionAnswer<T> {
    pub partition: u32,
    pub answer: T,
    /// Position of the last record in the index, and position of the last record in the journal;
    /// `None` if the index is up to date.
    pub behind: Option<(Position, Position)>,
}

/// Whether the index of any queried journal lacks records. If so, a journal may contain something
/// that its index does not contain yet.
pub(super) fn is_any_behind<T>(answers: &[PartitionAnswer<T>]) -> bool {
    answers.iter().any(|answer| answer.behind.is_some())
}

/// Returns the first result of a search in the indexes of all journals, with the partition of the
/// journal in which it was found. If no index has a result, returns an error: a `bool` that states
/// whether any index lacks records.
fn first_found<T>(answers: Vec<PartitionAnswer<Option<T>>>) -> Result<(u32, T), bool> {
    let is_behind = is_any_behind(&answers);
    let mut answers = answers.into_iter();
    let found = answers.find_map(|found| found.answer.map(|answer| (found.partition, answer)));
    found.ok_or(is_behind)
}

impl ViewedJournals {
    pub fn new(data: PathBuf) -> Self {
        let permits = Arc::new(Semaphore::new(limits::WEB_QUERIES_MAX));
        Self { data, permits, readers: Arc::default(), building: Arc::default() }
    }

    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Returns the numbers of the partitions with a journal on this host; an empty list if the
    /// organism has no partitions.
    pub fn partitions(&self) -> Vec<u32> {
        partitions_in(&self.data).into_iter().filter_map(|(partition, _)| partition).collect()
    }

    /// Returns `partition` for a text or a link that names a record or a thread of it. Returns `None`
    /// if the organism has no partitions.
    pub fn named(&self, partition: u32) -> Option<u32> {
        Some(partition).filter(|partition| self.partitions().contains(partition))
    }

    /// Queries the index of each journal, and passes all results to `draw`. `query` gets the number
    /// of the journal's partition; 0 if the organism has no partitions.
    ///
    /// # Errors
    ///
    /// Returns the errors of `query`. If the index of a journal must be built first, starts to
    /// build it, and returns [`index::Error::Building`].
    pub async fn query<T, R: Send + 'static>(
        &self,
        query: impl FnMut(u32, &mut IndexReader) -> Result<T, index::Error> + Send + 'static,
        draw: impl FnOnce(Vec<PartitionAnswer<T>>) -> R + Send + 'static,
    ) -> Result<R, index::Error> {
        let stopped = |detail: &str| index::Error::Query { detail: detail.to_owned() };
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| stopped("the view has ended"))?;

        let journals = self.clone();
        let drawn = tokio::task::spawn_blocking(move || {
            let drawn = journals.ask_all(query).map(draw);
            drop(permit);
            drawn
        });
        drawn.await.unwrap_or_else(|_| Err(stopped("the query ended without an answer")))
    }

    /// Searches the index of each journal with `find`. Returns the first result, with the partition
    /// of the journal in which it was found. If no index has a result, returns the inner error: a
    /// `bool` that states whether any index lacks records.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::query`] does.
    pub async fn find<T: Send + 'static>(
        &self,
        mut find: impl FnMut(&mut IndexReader) -> Result<Option<T>, index::Error> + Send + 'static,
    ) -> Result<Result<(u32, T), bool>, index::Error> {
        self.query(move |_, index| find(index), first_found).await
    }

    fn ask_all<T>(
        &self,
        mut query: impl FnMut(u32, &mut IndexReader) -> Result<T, index::Error>,
    ) -> Result<Vec<PartitionAnswer<T>>, index::Error> {
        let answers = partitions_in(&self.data).into_iter().map(|(partition, journal)| {
            let partition = partition.unwrap_or_default();
            let mut behind = None;
            let answer = self.readers.read_unless_far(&journal, &mut |reader| {
                behind = reader.is_behind().then(|| (reader.position(), reader.last()));
                query(partition, reader)
            })?;
            let Some(answer) = answer else {
                return Err(self.build(&journal, thread::Builder::new()));
            };
            Ok(PartitionAnswer { partition, answer, behind })
        });
        answers.collect()
    }

    /// Starts to build the index of a journal on a separate OS thread. If this view is already
    /// building the index, starts nothing. Returns [`index::Error::Building`] in both cases. If the
    /// OS thread cannot be started, returns its error, and the next query starts it.
    fn build(&self, journal: &Path, builder: thread::Builder) -> index::Error {
        let mut building = locked(&self.building);
        if building.insert(journal.to_owned()) {
            let journals = Arc::clone(&self.building);
            let readers = Arc::clone(&self.readers);
            let path = journal.to_owned();
            let started = builder.spawn(move || {
                if let Err(error) = readers.build(&path) {
                    tracing::warn!("the index for the web view cannot be made: {error}");
                }
                locked(&journals).remove(&path);
            });
            if let Err(source) = started {
                tracing::warn!("could not start a thread for the index of the web view: {source}");
                building.remove(journal);
                return index::Error::Io { path: journal.to_owned(), source };
            }
        }
        index::Error::building(journal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_without_a_thread_is_not_taken_for_one_that_is_being_built() {
        let place = tempfile::tempdir().unwrap();
        let journals = ViewedJournals::new(place.path().to_owned());
        // No system has room for this stack.
        let without_room = || thread::Builder::new().stack_size(1 << 50);
        for _ in 0..2 {
            let error = journals.build(place.path(), without_room());
            assert!(matches!(error, index::Error::Io { .. }), "{error}");
        }
    }
}
