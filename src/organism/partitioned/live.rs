//! The live channel of an organism with several partitions: one subscription to the pumps of all
//! partitions that its reader watches, wherever they run.

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::partition_map::PartitionMap;
use crate::bus::live::{LiveEvent, LiveQueue};
use crate::limits;
use crate::service::{Error, LiveGrant, LiveRequest, ServiceRequest, ServiceResponse};

impl PartitionMap {
    /// Passes on the events of every partition that the reader watches, until the reader leaves.
    /// The events of all of them share one bounded queue. So a reader that does not keep up delays
    /// neither a pump nor the connection to the servers.
    pub(super) async fn follow_live(
        &self,
        request: &LiveRequest,
        responses: &mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        let partitions = u32::try_from(self.statuses().len()).unwrap_or(1);
        let watched: Vec<u32> = match &request.thread {
            Some(thread) => vec![thread.partition(partitions)],
            None => (0..partitions).collect(),
        };

        let queue = LiveQueue::default();
        let text = request.granted == Some(LiveGrant::Text);
        queue.push(LiveEvent::Opened { text });

        let following = watched.iter().map(|partition| {
            let request = LiveRequest { partition: *partition, ..request.clone() };
            self.follow_partition(request, &queue)
        });
        let sending = async {
            loop {
                let event = queue.next().await;
                if responses.send(ServiceResponse::Live(event)).await.is_err() {
                    return Ok(());
                }
            }
        };

        tokio::select! {
            ended = join_all(following) => ended.into_iter().collect(),
            left = sending => left,
            () = responses.closed() => Ok(()),
        }
    }

    /// Queues the events of one partition. Subscribes again when the partition has moved. Ends with
    /// this process.
    async fn follow_partition(&self, request: LiveRequest, queue: &LiveQueue) -> Result<(), Error> {
        let partition = request.partition;
        let mut is_opened = false;

        loop {
            let (events, mut received) = mpsc::channel(limits::CONTROL_LINES_MAX);
            let request = ServiceRequest::FollowLive(request.clone());
            // Takes the sender along, so that the receiver ends with it.
            let subscribed = async move { self.pass_on(partition, request, &events).await };
            let queueing = async {
                while let Some(response) = received.recv().await {
                    match response {
                        // What came between two subscriptions is missing.
                        ServiceResponse::Live(LiveEvent::Opened { .. }) if is_opened => {
                            queue.push(LiveEvent::Lost { events: 0 });
                        }
                        ServiceResponse::Live(LiveEvent::Opened { .. }) => is_opened = true,
                        ServiceResponse::Live(event) => queue.push(event),
                        ServiceResponse::Failed(detail) => return Err(Error::failed(detail)),
                        _ => {}
                    }
                }
                Ok(())
            };

            let (subscribed, queued) = tokio::join!(subscribed, queueing);
            subscribed.and(queued)?;
            if self.has_ended() {
                return Err(Error::Stopped);
            }
            sleep(limits::BUSY_RETRY).await;
        }
    }
}
