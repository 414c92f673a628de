//! The check that replicas on NATS share their deliveries, by the queue group of their name.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::sleep;

use super::{ASK_AGAIN, ListenerTrial, MissingOutcome, PayloadJudge, TrialRequest, tested};
use crate::bus::nats::{ListenerSubjects, NatsConnection};
use crate::nats::{Message, Subscriber};

/// Maximum deliveries until the program under test must have got one. The server selects a replica
/// at random for each delivery.
const SHARED_DELIVERIES: usize = 20;

/// A replica beside the program under test, in the queue group that the program must join. It
/// acknowledges each delivery.
pub(super) struct FurtherReplica {
    wire: Arc<NatsConnection>,
    deliveries: Subscriber,
    /// All messages to reply subjects, also from this replica.
    answers: Subscriber,
    /// Reply subjects of the deliveries that this replica took.
    taken: HashSet<String>,
    /// Number of messages that have arrived on the subjects in `taken`.
    answered: usize,
}

impl FurtherReplica {
    /// Returns when the server has the subscriptions of the replica.
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
        let answers = client.subscribe(subjects.answers()).await.map_err(|e| e.to_string())?;
        wire.send_and_confirm().await;
        let wire = Arc::clone(wire);
        Ok(Self { wire, deliveries, answers, taken: HashSet::new(), answered: 0 })
    }

    async fn acknowledge(&mut self, delivery: Message) {
        // If the message is lost, the delivery has no outcome, and the check fails.
        if let Some(reply) = delivery.reply {
            self.taken.insert(reply.to_string());
            self.wire.client().publish(reply, "".into()).await.ok();
        }
    }

    /// Returns an error if another program has answered a delivery that this replica took, or has
    /// sent a sign of life for it. This replica sends one message to each reply subject.
    async fn check_not_taken_twice(&mut self) -> Result<(), String> {
        // After the round trip, all messages have arrived that the host may have reported.
        self.wire.send_and_confirm().await;
        while let Some(Some(message)) = self.answers.next().now_or_never() {
            self.answered += usize::from(self.taken.contains(message.subject.as_str()));
        }
        if self.answered > self.taken.len() { Err(TAKEN_TWICE.to_owned()) } else { Ok(()) }
    }
}

impl ListenerTrial {
    /// Checks that each delivery reaches either the program under test or a further replica. The
    /// check has passed once the program alone has answered a delivery.
    ///
    /// If all deliveries reach the further replica, waits for a message of the program about any of
    /// them. If none arrives, the program is in the queue group: servers of a cluster prefer
    /// replicas that are connected to the same server as the host.
    pub(super) async fn shared(
        &mut self,
        request: &TrialRequest,
        judge: PayloadJudge<'_>,
    ) -> Result<(), String> {
        self.answered(request, judge).await?;
        let Some(replica) = self.harness.further_replica().await else { return Ok(()) };
        let mut replica = replica?;

        for _ in 0..SHARED_DELIVERIES {
            let has_taken = self.deliver_to_either(&mut replica, request).await;
            // This is also the reason if the delivery failed because of a refused answer.
            replica.check_not_taken_twice().await?;
            if !has_taken? {
                return Ok(());
            }
        }

        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            replica.check_not_taken_twice().await?;
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
}

/// Message about a delivery that reached two replicas.
const TAKEN_TWICE: &str = "a delivery to another replica reached it, too: subscribe to the \
                           deliveries in the queue group that has the listener's name (12)";
