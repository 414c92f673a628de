//! The live channel of an organism with several partitions: one subscription to the pumps of all
//! partitions that its reader watches, wherever they run.

use std::time::{Duration, Instant};

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
            self.follow_partition(request, &queue, watched.len() == 1)
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

    /// Queues the events of one partition. Subscribes again when the partition has moved, and also
    /// after an error unless it is the only partition. Ends with this process.
    async fn follow_partition(
        &self,
        request: LiveRequest,
        queue: &LiveQueue,
        is_only: bool,
    ) -> Result<(), Error> {
        let mut watch = PartitionWatch::new(request.partition);
        loop {
            let mut request = request.clone();
            self.rules.sign_grant(&mut request);
            match self.subscribe(request, queue, &mut watch).await {
                Err(error) if is_only || self.has_ended() => return Err(error),
                Err(error) => watch.failed(queue, &error),
                Ok(Some(detail)) => watch.unavailable(queue, detail),
                Ok(None) => {}
            }
            if self.has_ended() {
                return Err(Error::Stopped);
            }
            sleep(watch.pause).await;
        }
    }

    /// Queues the events of one subscription until it ends. Returns why the partition was
    /// unavailable, if it was.
    async fn subscribe(
        &self,
        request: LiveRequest,
        queue: &LiveQueue,
        watch: &mut PartitionWatch,
    ) -> Result<Option<String>, Error> {
        let (events, mut received) = mpsc::channel(limits::CONTROL_LINES_MAX);
        let partition = request.partition;
        let request = ServiceRequest::FollowLive(request);
        // Takes the sender along, so that the receiver ends with it.
        let subscribed = async move { self.pass_on(partition, request, &events).await };
        let queueing = async {
            let mut unavailable = None;
            while let Some(response) = received.recv().await {
                match response {
                    ServiceResponse::Live(LiveEvent::Opened { .. }) => watch.opened(queue),
                    ServiceResponse::Live(event) => queue.push(event),
                    ServiceResponse::Unavailable(why) => unavailable = Some(why.detail),
                    ServiceResponse::Failed(detail) => return Err(Error::failed(detail)),
                    _ => {}
                }
            }
            Ok(unavailable)
        };

        let (subscribed, queued) = tokio::join!(subscribed, queueing);
        subscribed.and(queued)
    }
}

/// Knowledge of a reader about the events of one partition.
struct PartitionWatch {
    partition: u32,
    /// Whether a subscription has begun, or the lack of one was reported. What comes before a
    /// further subscription is missing.
    has_gap: bool,
    /// Whether the reader knows that nothing comes at present.
    is_reported: bool,
    /// Since when no pump has responded, if none does.
    unserved_since: Option<Instant>,
    /// Pause before the next subscription.
    pause: Duration,
}

impl PartitionWatch {
    fn new(partition: u32) -> Self {
        let pause = limits::BUSY_RETRY;
        Self { partition, has_gap: false, is_reported: false, unserved_since: None, pause }
    }

    fn opened(&mut self, queue: &LiveQueue) {
        if std::mem::replace(&mut self.has_gap, true) {
            queue.push(LiveEvent::Lost { events: 0 });
        }
        self.is_reported = false;
        self.unserved_since = None;
        self.pause = limits::BUSY_RETRY;
    }

    /// Notes that no pump responded. The reader learns of it only if it lasts longer than a
    /// takeover.
    fn unavailable(&mut self, queue: &LiveQueue, detail: String) {
        let since = *self.unserved_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= limits::PARTITION_TIMEOUT {
            self.report(queue, detail);
        }
    }

    /// Notes that the pump refused. It records each refusal, so the next subscription waits longer.
    fn failed(&mut self, queue: &LiveQueue, error: &Error) {
        self.report(queue, error.to_string());
        self.pause = (2 * self.pause).min(limits::LIVE_REFUSED_RETRY_MAX);
    }

    fn report(&mut self, queue: &LiveQueue, detail: String) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.has_gap = true;
            queue.push(LiveEvent::Unwatched { partition: self.partition, detail });
        }
    }
}
