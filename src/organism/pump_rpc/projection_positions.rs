//! Reports the positions of this process's projections, which are local copies of the journals on
//! JetStream. A pump that is about to take over a partition requests these positions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::PumpRpc;
use super::server::is_inbox;
use crate::blocking_work;
use crate::config::{Config, StorageConfig};
use crate::journal::jetstream::{MemberId, ProjectionReport};
use crate::nats::Message;
use crate::organism::Error;
use crate::owned_tasks::AbortOnDrop;

/// A function that returns the live processes of the organism, as far as this process knows them.
/// The result includes this process itself.
pub(in crate::organism) type KnownMembers =
    Arc<dyn Fn() -> BTreeMap<MemberId, String> + Send + Sync>;

impl PumpRpc {
    /// Starts the task that reports the positions of this process's projections on request. The
    /// task ends with its NATS subscription. Returns `None` if the journal is embedded.
    pub async fn answer_for_projections(
        &self,
        config: &Config,
        members: KnownMembers,
    ) -> Result<Option<AbortOnDrop>, Error> {
        let StorageConfig::JetStream { journal, .. } = &config.storage else { return Ok(None) };
        let subject = format!("{}.*", journal.bound_subjects());
        let mut questions = self.subscribe_renewed(subject, Box::new(|_| {})).await?;
        let places: Vec<PathBuf> =
            (0..config.partitions()).map(|partition| config.of_partition(partition).data).collect();

        let client = self.transport.client().clone();
        let answering = tokio::spawn(async move {
            // Handled one at a time, because each reads only one record of a file.
            while let Some(question) = questions.next().await {
                let Some(inbox) = question.reply.clone().filter(|inbox| is_inbox(inbox)) else {
                    continue;
                };
                let Some(data) = partition_of(&question).and_then(|at| places.get(at)).cloned()
                else {
                    continue;
                };

                let known = members();
                let report = move || ProjectionReport::of(&data, known);
                match blocking_work::run(report).await {
                    Ok(Ok(report)) => {
                        let report = serde_json::to_vec(&report).expect("plain data is JSON");
                        client.publish(inbox, report.into()).await.ok();
                    }
                    Ok(Err(error)) => tracing::warn!("a projection cannot be read: {error}"),
                    Err(error) => tracing::warn!("a projection cannot be read: {error}"),
                }
            }
        });

        Ok(Some(AbortOnDrop::new(answering)))
    }
}

/// Reads the number of the requested partition from the subject of a request. Returns `None` if the
/// subject names no partition.
fn partition_of(question: &Message) -> Option<usize> {
    question.subject.rsplit('.').next()?.parse().ok()
}
