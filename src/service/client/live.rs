//! The client's subscription to the live channel. The live channel shows what model calls do now.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::sync::Notify;

use super::{ServiceClient, Transports, is_reached, unexpected};
use crate::bus::live::LiveEvent;
use crate::limits;
use crate::locks::locked;
use crate::service::signing::OperatorSigner;
use crate::service::{Error, LiveRequest, PartitionUnavailable, ServiceRequest, ServiceResponse};

/// The target of live events. It passes each event to `on_event`, until `on_event` returns
/// `ControlFlow::Break`.
struct EventOutlet<F> {
    /// Callback for the events. Its lock is held during one call of the callback, never across an
    /// await.
    on_event: Mutex<F>,
    leave: Notify,
}

impl<F: FnMut(LiveEvent) -> ControlFlow<()>> EventOutlet<F> {
    fn put(&self, event: LiveEvent) {
        let mut on_event = locked(&self.on_event);
        if on_event(event).is_break() {
            self.leave.notify_one();
        }
    }
}

impl ServiceClient {
    /// Follows the live channel, which shows what model calls do now. If the request names a
    /// thread, calls `on_event` with each event of this thread and of everything beneath it.
    /// Otherwise, calls `on_event` with each event of all threads. If a partition moves to another
    /// pump, subscribes to that pump, and reports that events may have been lost. Returns when
    /// `on_event` returns `ControlFlow::Break` or the organism ends.
    pub async fn follow_live(
        &self,
        request: LiveRequest,
        signer: Option<&OperatorSigner>,
        on_event: impl FnMut(LiveEvent) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let outlet = EventOutlet { on_event: Mutex::new(on_event), leave: Notify::new() };
        let partitions = match (&self.transports, &request.thread) {
            (_, Some(thread)) => vec![self.partition_of(thread)],
            // An organism on this host subscribes to the pumps of all partitions.
            (Transports::Partitioned { config, local, is_local_silent, .. }, None)
                if !is_reached(local, is_local_silent).await? =>
            {
                (0..config.partitions()).collect()
            }
            (_, None) => vec![0],
        };
        let following = partitions.into_iter().map(|partition| {
            let request = LiveRequest { partition, ..request.clone() };
            self.follow_partition(request, signer, &outlet)
        });

        tokio::select! {
            // Ordering rule: the stop of a reader is checked first, so that a reader that leaves
            // with the last event gets no error.
            biased;
            () = outlet.leave.notified() => Ok(()),
            ended = try_join_all(following) => ended.map(drop),
        }
    }

    async fn follow_partition(
        &self,
        request: LiveRequest,
        signer: Option<&OperatorSigner>,
        outlet: &EventOutlet<impl FnMut(LiveEvent) -> ControlFlow<()>>,
    ) -> Result<(), Error> {
        let partition = request.partition;
        let mut until = Instant::now() + limits::PARTITION_TIMEOUT;
        let mut was_opened = false;

        loop {
            let mut request = ServiceRequest::FollowLive(request.clone());
            self.sign(&mut request, signer).await?;

            let mut is_opened = false;
            let mut unavailable = None;
            let mut failed = None;
            let on_response = |response| match response {
                ServiceResponse::Live(LiveEvent::Opened { text }) => {
                    is_opened = true;
                    outlet.put(if was_opened {
                        // Events between the two subscriptions are missing.
                        LiveEvent::Lost { events: 0 }
                    } else {
                        LiveEvent::Opened { text }
                    });
                }
                ServiceResponse::Live(event) => outlet.put(event),
                ServiceResponse::Unavailable(why) => unavailable = Some(why),
                ServiceResponse::Failed(detail) => failed = Some(Error::failed(detail)),
                other => failed = Some(unexpected(&other)),
            };
            self.attempt(partition, &request, on_response).await?;
            if let Some(error) = failed {
                return Err(error);
            }

            if is_opened {
                was_opened = true;
                until = Instant::now() + limits::PARTITION_TIMEOUT;
            }
            let Some(PartitionUnavailable { detail, failed, .. }) = unavailable else {
                return Ok(());
            };
            if failed {
                return Err(Error::NotReady { detail });
            }
            if Instant::now() >= until {
                return Err(Error::NoPump { partition, detail });
            }
            tokio::time::sleep(limits::BUSY_RETRY).await;
        }
    }
}
