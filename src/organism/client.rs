//! The client that a command uses: of the organism that runs, or of one that is started for the
//! command and ends with it.

use std::ops::Deref;
use std::time::{Duration, Instant};

use super::access::refuse_hosted_start;
use super::{Error, Organism};
use crate::config::Config;
use crate::journal;
use crate::limits;
use crate::service::handshake::Handshake;
use crate::service::{ServiceClient, ServiceTransport, announcement};

pub struct OrganismClient {
    service: ServiceClient,
    /// The organism that ends with its command.
    own: Option<Box<Organism>>,
}

impl Deref for OrganismClient {
    type Target = ServiceClient;

    fn deref(&self) -> &ServiceClient {
        &self.service
    }
}

impl From<ServiceClient> for OrganismClient {
    /// The client of an organism that runs on when it is closed.
    fn from(service: ServiceClient) -> Self {
        Self { service, own: None }
    }
}

impl From<Organism> for OrganismClient {
    /// The client of an organism that stops when it is closed.
    fn from(organism: Organism) -> Self {
        let transport = ServiceTransport::InProcess(organism.works.service());
        let service = ServiceClient::new(&organism.config.data, transport);
        Self { service, own: Some(Box::new(organism)) }
    }
}

impl OrganismClient {
    /// Finds the running organism of this config, or starts it. Waits for one that is starting or
    /// ending. Starts nothing where the config has several partitions.
    pub async fn open(config: Config) -> Result<Self, Error> {
        Self::open_within(config, limits::ANNOUNCED_PATIENCE).await
    }

    /// As [`OrganismClient::open`]; waits for an organism that has announced itself for `patience`.
    pub async fn open_within(config: Config, patience: Duration) -> Result<Self, Error> {
        if config.partitions() > 1 {
            return Ok(ServiceClient::of_partitions(config).into());
        }

        let announced_until = Instant::now() + patience;
        let mut held_until = Instant::now() + limits::DOOR_PATIENCE;
        loop {
            if let Some(client) = ServiceClient::find(&config.data, Handshake::of(&config)).await? {
                return Ok(client.into());
            }
            // A hosted process whose pump has ended must not become the client of the next one.
            refuse_hosted_start(&config)?;
            if announcement::is_announced(&config.data) {
                if Instant::now() >= announced_until {
                    let process = announcement::announced_process(&config.data);
                    return Err(Error::NotUp { process, waited: patience });
                }
                held_until = Instant::now() + limits::DOOR_PATIENCE;
                tokio::time::sleep(limits::DOOR_RETRY).await;
                continue;
            }
            match Organism::start_for_command(config.clone()).await {
                Err(Error::Journal(journal::Error::Held { .. })) if Instant::now() < held_until => {
                    tokio::time::sleep(limits::DOOR_RETRY).await;
                }
                started => return Ok(started?.into()),
            }
        }
    }

    /// Stops the organism that was started for this client. A running organism goes on.
    pub async fn close(self) -> Result<(), Error> {
        match self.own {
            Some(organism) => organism.stop_when_served("the command is done").await,
            None => Ok(()),
        }
    }
}
