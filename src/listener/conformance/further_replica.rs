//! The check that replicas on NATS share their deliveries, by the queue group of their name.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::sleep;

use super::{ASK_AGAIN, ListenerTrial, MissingOutcome, PayloadJudge, TrialRequest, tested};
use crate::bus::nats::{ListenerSubjects, NatsConnection};
use crate::nats::{Client, Message, Subscriber};

/// Maximum deliveries until the program under test must have got one. The server selects a replica
/// at random for each delivery.
const SHARED_DELIVERIES: usize = 20;

/// A replica beside the program under test, in the queue group that the program must join. It
/// acknowledges each delivery.
pub(super) struct FurtherReplica {
    client: Client,
    deliveries: Subscriber,
}

impl FurtherReplica {
    /// Returns when the server has the subscription of the replica.
    ///
    /// The replica uses the connection of the host. So a delivery to the replica arrives before any
    /// answer to this delivery.
    pub async fn subscribe(
        wire: &Arc<NatsConnection>,
        subjects: &ListenerSubjects,
    ) -> Result<Self, String> {
        let client = wire.client();
        let group = tested().as_str().to_owned();
        let deliveries = client.queue_subscribe(subjects.deliveries(), group).await;
        let deliveries = deliveries.map_err(|e| e.to_string())?;
        wire.send_and_confirm().await;
        Ok(Self { client, deliveries })
    }

    async fn acknowledge(&self, delivery: Message) {
        // If the message is lost, the delivery has no outcome, and the check fails.
        if let Some(reply) = delivery.reply {
            self.client.publish(reply, "".into()).await.ok();
        }
    }
}

impl ListenerTrial {
    /// Checks that each delivery reaches either the program under test or a further replica. The
    /// check has passed once the program alone has answered a delivery.
    ///
    /// If all deliveries reach the further replica, waits for an answer of the program to any of
    /// them. Such an answer is refused. If none arrives, the program is in the queue group: servers
    /// of a cluster prefer replicas that are connected to the same server as the host.
    pub(super) async fn shared(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let Some(replica) = self.harness.further_replica().await else { return Ok(()) };
        let mut replica = replica?;

        for _ in 0..SHARED_DELIVERIES {
            let has_taken = self.deliver_to_either(&mut replica, request).await?;
            self.check_not_taken_twice()?;
            if !has_taken {
                return Ok(());
            }
        }

        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            self.check_not_taken_twice()?;
            sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// Delivers the request, and waits for its outcome. Returns true if the delivery reached the
    /// further replica.
    async fn deliver_to_either(
        &mut self,
        replica: &mut FurtherReplica,
        request: &TrialRequest,
    ) -> Result<bool, String> {
        self.deliver(request);
        let mut outcome = pin!(self.outcome());
        let taken = tokio::select! {
            biased;
            delivery = replica.deliveries.next() => delivery,
            ended = &mut outcome => {
                ended.map_err(MissingOutcome::reason)?;
                let taken = replica.deliveries.next().now_or_never().flatten();
                return if taken.is_some() { Err(TAKEN_TWICE.to_owned()) } else { Ok(false) };
            }
        };

        let delivery = taken.ok_or("the connection to NATS has ended")?;
        replica.acknowledge(delivery).await;
        outcome.await.map_err(MissingOutcome::reason)?;
        Ok(true)
    }

    fn check_not_taken_twice(&self) -> Result<(), String> {
        self.harness.check_refused_answers().map_err(|_| TAKEN_TWICE.to_owned())
    }
}

/// Message about a delivery that reached two replicas.
const TAKEN_TWICE: &str = "a delivery to another replica reached it, too: subscribe to the \
                           deliveries in the queue group that has the listener's name (12)";
