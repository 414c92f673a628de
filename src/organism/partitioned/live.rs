//! The live channel of an organism with several partitions. A reader can watch several partitions
//! with one subscription, wherever the pumps of these partitions run.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::partition_map::PartitionMap;
use crate::bus::live::{LiveEvent, LiveQueue};
use crate::limits;
use crate::service::{
    Error, LiveGrant, LiveRequest, ResponseSender, ServiceRequest, ServiceResponse, response_queue,
};

impl PartitionMap {
    /// Sends the reader the events of every partition that the reader watches, until the reader
    /// leaves. The events of all these partitions share one bounded queue. A full queue drops
    /// events, so that a slow reader delays neither a pump nor the connection to NATS.
    pub(super) async fn follow_live(
        &self,
        request: &LiveRequest,
        responses: &ResponseSender,
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

    /// Queues the events of one partition until this process ends. Subscribes again when the
    /// partition moves to another pump. After an error, returns the error if the reader watches
    /// only this partition (`is_only`). Otherwise, subscribes again.
    async fn follow_partition(
        &self,
        request: LiveRequest,
        queue: &LiveQueue,
        is_only: bool,
    ) -> Result<(), Error> {
        let mut watch = PartitionWatch::new(request.partition);
        loop {
            let mut request = request.clone();
            self.rules.in_force().rules.sign_grant(&mut request);
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

    /// Queues the events of one subscription until the subscription ends. If the partition was
    /// unavailable, returns the reason. If the subscription ended otherwise, returns `None`.
    async fn subscribe(
        &self,
        request: LiveRequest,
        queue: &LiveQueue,
        watch: &mut PartitionWatch,
    ) -> Result<Option<String>, Error> {
        let (events, mut received) = response_queue();
        let partition = request.partition;
        let request = ServiceRequest::FollowLive(request);
        // The task owns the sender, so that the receiver ends with the subscription.
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

/// State of the subscription to one partition, as far as the reader knows it.
struct PartitionWatch {
    partition: u32,
    /// Whether the reader must get a report of lost events when the next subscription begins,
    /// because it may have missed events before. True after the first subscription has begun, or
    /// after the reader got the first `Unwatched` event.
    has_gap: bool,
    /// Last reason that the reader got for missing events. Becomes `None` when a subscription
    /// begins.
    reported: Option<String>,
    /// Time since which no pump has responded; `None` while a pump responds.
    unserved_since: Option<Instant>,
    /// Duration of the wait before the next attempt to subscribe.
    pause: Duration,
}

impl PartitionWatch {
    fn new(partition: u32) -> Self {
        let pause = limits::BUSY_RETRY;
        Self { partition, has_gap: false, reported: None, unserved_since: None, pause }
    }

    fn opened(&mut self, queue: &LiveQueue) {
        if std::mem::replace(&mut self.has_gap, true) {
            queue.push(LiveEvent::Lost { events: 0 });
        }
        self.reported = None;
        self.unserved_since = None;
        self.pause = limits::BUSY_RETRY;
    }

    /// Handles a failed attempt to subscribe, to which no pump responded. `detail` is the reason.
    /// The reader gets the reason only if no pump responds for [`limits::PARTITION_TIMEOUT`],
    /// because another pump usually takes over within this time. The pause before the next attempt
    /// is set to its minimum, so that the other pump is found soon.
    fn unavailable(&mut self, queue: &LiveQueue, detail: String) {
        self.pause = limits::BUSY_RETRY;
        let since = *self.unserved_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= limits::PARTITION_TIMEOUT {
            self.report(queue, detail);
        }
    }

    /// Records that the pump refused the subscription. Doubles the pause before the next attempt,
    /// because the pump records each refusal.
    fn failed(&mut self, queue: &LiveQueue, error: &Error) {
        self.unserved_since = None;
        self.report(queue, error.to_string());
        self.pause = (2 * self.pause).min(limits::LIVE_REFUSED_RETRY_MAX);
    }

    /// Reports to the reader why no events arrive. Does nothing if this reason is the last one that
    /// the reader got since the latest subscription began.
    fn report(&mut self, queue: &LiveQueue, detail: String) {
        if self.reported.as_ref() == Some(&detail) {
            return;
        }

        self.has_gap = true;
        self.reported = Some(detail.clone());
        queue.push(LiveEvent::Unwatched { partition: self.partition, detail });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Removes all events from `queue`. Returns the reasons that its [`LiveEvent::Unwatched`]
    /// events state.
    fn reasons(queue: &LiveQueue) -> Vec<String> {
        let events = std::iter::from_fn(|| queue.next().now_or_never());
        let details = events.filter_map(|event| match event {
            LiveEvent::Unwatched { detail, .. } => Some(detail),
            _ => None,
        });
        details.collect()
    }

    #[test]
    fn a_reader_learns_each_reason_once_and_a_takeover_ends_the_pause() {
        let queue = LiveQueue::default();
        let mut watch = PartitionWatch::new(1);
        let refused = Error::failed("refused");
        watch.failed(&queue, &refused);
        watch.failed(&queue, &refused);
        assert_eq!(reasons(&queue), [refused.to_string()]);
        assert!(watch.pause > limits::BUSY_RETRY);

        watch.unavailable(&queue, "no pump".to_owned());
        assert_eq!(watch.pause, limits::BUSY_RETRY);
        assert!(reasons(&queue).is_empty(), "a takeover may follow");
        watch.unserved_since = Instant::now().checked_sub(limits::PARTITION_TIMEOUT);
        watch.unavailable(&queue, "no pump".to_owned());
        watch.unavailable(&queue, "no pump".to_owned());
        assert_eq!(reasons(&queue), ["no pump"]);

        watch.failed(&queue, &Error::failed("of another pump"));
        assert_eq!(reasons(&queue).len(), 1);
        watch.opened(&queue);
        watch.failed(&queue, &refused);
        assert_eq!(reasons(&queue).len(), 1);
    }
}
