//! Messages between the processes of an organism over NATS: requests to the pump of a partition
//! (sent by [`NatsTransport`]), announcements of processes, and reports about projections, which
//! are local copies of a journal on JetStream.

mod projection_positions;
mod server;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;

use super::Error;
use crate::limits;
use crate::nats::{
    self, Message, RenewedSubscription, Subscriber, SubscriptionFailure, SubscriptionReport,
    subscribe_checked,
};
use crate::service::{self, NatsTransport};

pub(super) use projection_positions::KnownMembers;
use server::is_inbox;

/// Last token of the subject on which processes announce themselves.
const MEMBERS: &str = "roll";

#[derive(Clone)]
pub(super) struct PumpRpc {
    pub transport: NatsTransport,
}

impl PumpRpc {
    /// Connects to the other processes of the organism with the name `organism`, whose journal is
    /// in the streams with the prefix `journal`.
    pub async fn connect(
        servers: &nats::Options,
        organism: &str,
        journal: &str,
    ) -> Result<Self, Error> {
        Ok(Self { transport: NatsTransport::connect(servers, organism, journal).await? })
    }

    /// Subscribes to `subject`. If the servers deny the subscription, now or later, the returned
    /// subscription is renewed until they permit it.
    async fn subscribe_renewed(
        &self,
        subject: String,
        report: SubscriptionReport,
    ) -> Result<RenewedSubscription, Error> {
        let client = self.transport.client().clone();
        let denials = self.transport.denials().clone();
        let opened = RenewedSubscription::open(client, denials, subject, report).await;
        Ok(opened.map_err(service::Error::failed)?)
    }

    /// Subscribes to `subject`. Returns a permission error if the servers deny the subscription.
    async fn subscribe(&self, subject: String) -> Result<Subscriber, Error> {
        let client = self.transport.client();
        let subscribed = subscribe_checked(client, self.transport.denials(), subject).await;
        subscribed.map_err(|failure| match failure {
            SubscriptionFailure::Denied(denied) => nats::Error::Denied(denied).into(),
            failure @ SubscriptionFailure::Unsent(_) => service::Error::failed(failure).into(),
        })
    }

    /// Checks the subscriptions that this process needs in order to serve these partitions. Returns
    /// an error if the servers deny one of them.
    pub async fn check_rights(&self, partitions: &[u32]) -> Result<(), Error> {
        let subject = |partition| self.transport.subject(partition);
        let mut subjects: Vec<String> = partitions.iter().map(subject).collect();
        subjects.push(self.transport.subject(MEMBERS));

        let checks = subjects.into_iter().map(|subject| self.subscribe(subject));
        for checked in join_all(checks).await {
            // The worker of a partition reports every other error.
            if let Err(denied @ Error::Nats(nats::Error::Denied(_))) = checked {
                return Err(denied);
            }
        }

        Ok(())
    }

    /// Subscribes to the announcements of all processes of this organism.
    pub async fn subscribe_members(&self) -> Result<RenewedSubscription, Error> {
        self.subscribe_renewed(self.transport.subject(MEMBERS), Box::new(|_| {})).await
    }

    /// Publishes an announcement of this process to all other processes.
    pub async fn announce_member(&self, entry: &impl Serialize) -> Result<(), Error> {
        let entry = serde_json::to_vec(entry).map_err(service::Error::failed)?;
        let subject = self.transport.subject(MEMBERS);
        let published = self.transport.client().publish(subject, entry.into()).await;
        Ok(published.map_err(service::Error::failed)?)
    }

    /// Requests an announcement from the running processes of each organism of this name. Returns
    /// the first announcement. Returns `None` if no process answers, and at once if none runs.
    pub async fn query_member(&self) -> Option<Vec<u8>> {
        let query = self.transport.client().request(self.transport.subject(MEMBERS), "".into());
        let answer = timeout(limits::MEMBER_LAPSE, query).await.ok()?.ok()?;
        Some(answer.payload.into())
    }

    /// Answers a query for an announcement with `entry`.
    pub async fn answer_member_query(
        &self,
        query: &Message,
        entry: &impl Serialize,
    ) -> Result<(), Error> {
        let Some(inbox) = query.reply.clone().filter(|inbox| is_inbox(inbox)) else {
            return Ok(());
        };
        let entry = serde_json::to_vec(entry).map_err(service::Error::failed)?;
        let published = self.transport.client().publish(inbox, entry.into()).await;
        Ok(published.map_err(service::Error::failed)?)
    }
}
