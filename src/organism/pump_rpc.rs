//! Messages between the processes of an organism over NATS: requests to the pump of a partition
//! (sent by [`NatsTransport`]), announcements of processes, and reports about projections, which
//! are local copies of a journal on JetStream.

mod projection_positions;
mod server;

use serde::Serialize;

use super::Error;
use crate::nats::{self, Subscriber};
use crate::service::{self, NatsTransport};

pub(super) use projection_positions::{KnownMembers, ProjectionResponder};

/// Last token of the subject on which processes announce themselves.
const MEMBERS: &str = "roll";

#[derive(Clone)]
pub(super) struct PumpRpc {
    pub transport: NatsTransport,
}

impl PumpRpc {
    pub async fn connect(servers: &nats::Options, organism: &str) -> Result<Self, Error> {
        Ok(Self { transport: NatsTransport::connect(servers, organism).await? })
    }

    async fn subscribe(&self, subject: String) -> Result<Subscriber, Error> {
        let subscribed = self.transport.client().subscribe(subject).await;
        Ok(subscribed.map_err(service::Error::failed)?)
    }

    /// Subscribes to the announcements of all processes of this organism.
    pub async fn subscribe_members(&self) -> Result<Subscriber, Error> {
        self.subscribe(self.transport.subject(MEMBERS)).await
    }

    /// Publishes an announcement of this process to all other processes.
    pub async fn announce_member(&self, entry: &impl Serialize) -> Result<(), Error> {
        let entry = serde_json::to_vec(entry).map_err(service::Error::failed)?;
        let subject = self.transport.subject(MEMBERS);
        let published = self.transport.client().publish(subject, entry.into()).await;
        Ok(published.map_err(service::Error::failed)?)
    }
}
