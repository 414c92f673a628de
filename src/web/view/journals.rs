//! Queries of the pages, which the indexes of the journals answer.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::ids::Position;
use crate::index::{self, IndexReader};
use crate::journal::partitions_in;
use crate::limits;

/// The journals that the pages show, each with its index.
#[derive(Debug, Clone)]
pub(super) struct ViewedJournals {
    data: PathBuf,
    /// Bounds the queries at once, so that many open pages leave the processor to the pump.
    permits: Arc<Semaphore>,
}

/// The answer of the index of one journal.
#[derive(Debug)]
pub(super) struct PartitionAnswer<T> {
    pub partition: u32,
    pub answer: T,
    /// Last record in the index and last record of the journal, if the index lacks records.
    pub behind: Option<(Position, Position)>,
}

impl ViewedJournals {
    pub fn new(data: PathBuf) -> Self {
        Self { data, permits: Arc::new(Semaphore::new(limits::WEB_QUERIES_MAX)) }
    }

    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Asks the index of each journal. `query` gets the journal's partition, or 0.
    pub async fn query<T: Send + 'static>(
        &self,
        mut query: impl FnMut(u32, &mut IndexReader) -> Result<T, index::Error> + Send + 'static,
    ) -> Result<Vec<PartitionAnswer<T>>, index::Error> {
        let data = self.data.clone();
        let stopped = |detail: &str| index::Error::Query { detail: detail.to_owned() };
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| stopped("the view has ended"))?;

        let read = tokio::task::spawn_blocking(move || {
            let answers = partitions_in(&data).into_iter().map(|(partition, journal)| {
                let partition = partition.unwrap_or_default();
                let mut behind = None;
                let answer = index::read(&journal, &mut |_, _| {}, &mut |reader| {
                    behind = reader.is_behind().then(|| (reader.position(), reader.last()));
                    query(partition, reader)
                })?;
                Ok(PartitionAnswer { partition, answer, behind })
            });
            let answers = answers.collect();
            drop(permit);
            answers
        });
        read.await.unwrap_or_else(|_| Err(stopped("the query ended without an answer")))
    }
}
