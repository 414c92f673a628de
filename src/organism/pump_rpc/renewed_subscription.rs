//! A subscription that outlasts the loss of its permission: while the servers deny it, it is tried
//! again every few seconds.

use std::time::Instant;

use futures_util::StreamExt as _;
use tokio::time::sleep_until;

use super::PumpRpc;
use crate::limits;
use crate::nats::{Message, Subscriber};
use crate::organism::Error;

/// Function that receives the error when the servers deny a subscription, and `None` when they
/// permit it.
type SubscriptionReport = Box<dyn Fn(Option<String>) + Send + Sync>;

/// A subscription of this process. While the servers deny it, [`RenewedSubscription::next`]
/// subscribes again at each [`limits::SUBSCRIBE_RETRY`].
pub(in crate::organism) struct RenewedSubscription {
    rpc: PumpRpc,
    subject: String,
    /// `None` while the servers deny the subscription.
    messages: Option<Subscriber>,
    /// Time of the last attempt to subscribe. Earlier permission errors do not count any more.
    since: Instant,
    /// Number of permission errors of the connection that are known.
    known_errors: u64,
    report: SubscriptionReport,
}

impl PumpRpc {
    /// Subscribes to `subject`, and again whenever the servers deny it and may permit it later.
    pub(super) async fn subscribe_renewed(
        &self,
        subject: String,
        report: SubscriptionReport,
    ) -> Result<RenewedSubscription, Error> {
        let since = Instant::now();
        // The servers may deny it later; `next` notices this.
        let messages = Some(self.begin_subscription(subject.clone()).await?);
        report(None);
        let rpc = self.clone();
        Ok(RenewedSubscription { rpc, subject, messages, since, known_errors: 0, report })
    }
}

impl RenewedSubscription {
    /// Returns the next message. Returns `None` if the connection is closed for good. May be
    /// cancelled without losing a message.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            let denials = self.rpc.transport.denials();
            if let Some(messages) = &mut self.messages {
                tokio::select! {
                    message = messages.next() => return message,
                    () = denials.changed(&mut self.known_errors) => {}
                }
            } else {
                self.renew().await;
                continue;
            }

            if let Some(denied) = denials.subscription_denied_since(&self.subject, self.since) {
                self.messages = None;
                self.since = Instant::now();
                (self.report)(Some(denied.to_string()));
            }
        }
    }

    async fn renew(&mut self) {
        // Ordering rule: the time of the next attempt is kept outside this future, which is often
        // cancelled and begun again.
        sleep_until((self.since + limits::SUBSCRIBE_RETRY).into()).await;
        self.since = Instant::now();

        match self.rpc.subscribe(self.subject.clone()).await {
            Ok(messages) => {
                tracing::warn!("subscribed to `{}` again", self.subject);
                self.messages = Some(messages);
                (self.report)(None);
            }
            Err(error) => (self.report)(Some(error.to_string())),
        }
    }
}
