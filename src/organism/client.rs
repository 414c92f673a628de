//! The client with which a command sends requests. The client connects to the running organism. If
//! no organism runs, the client starts one, which ends with the command.

use std::collections::HashMap;
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::access::refuse_hosted_start;
use super::pump_runtime::StartPurpose;
use super::{Error, Organism};
use crate::config::{Config, StorageConfig};
use crate::journal;
use crate::limits;
use crate::service::handshake::Handshake;
use crate::service::{ServiceClient, ServiceTransport, SocketTransport, announcement, socket_path};

pub struct OrganismClient {
    service: ServiceClient,
    /// The organism that was started for this client and ends with the client; `None` if the client
    /// uses an organism that was already running.
    own: Option<Box<Organism>>,
}

impl Deref for OrganismClient {
    type Target = ServiceClient;

    fn deref(&self) -> &ServiceClient {
        &self.service
    }
}

impl From<ServiceClient> for OrganismClient {
    /// Makes a client of an organism that continues to run after the client is closed.
    fn from(service: ServiceClient) -> Self {
        Self { service, own: None }
    }
}

impl From<Organism> for OrganismClient {
    /// Makes a client of an organism that stops when the client is closed.
    fn from(organism: Organism) -> Self {
        let transport = ServiceTransport::InProcess(organism.runtime.service());
        let service = ServiceClient::new(&organism.config.data, transport);
        Self { service, own: Some(Box::new(organism)) }
    }
}

impl OrganismClient {
    /// Connects to the running organism of this config, or starts an organism for this client.
    /// Waits for an organism that is starting or stopping. Never starts an organism with several
    /// partitions.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let socket = SocketTransport::new(&config.data, Handshake::of(&config));
        Self::open_over(socket, config, limits::ANNOUNCED_TIMEOUT).await
    }

    /// Opens a client as [`OrganismClient::open`] does, with `socket` as the transport to a running
    /// organism. Waits at most `patience` for an organism that has announced its start.
    pub async fn open_over(
        socket: SocketTransport,
        config: Config,
        patience: Duration,
    ) -> Result<Self, Error> {
        Self::open_as(socket, config, patience, StartPurpose::Command).await
    }

    /// Opens a client as [`OrganismClient::open_over`] does, for a cancellation. If an organism is
    /// started for this client, it hands nothing over: otherwise, it could hand over a call before
    /// the cancellation of this call arrives.
    pub async fn open_for_cancellation(
        socket: SocketTransport,
        config: Config,
        patience: Duration,
    ) -> Result<Self, Error> {
        Self::open_as(socket, config, patience, StartPurpose::Cancellation).await
    }

    /// Opens a client as [`OrganismClient::open_over`] does. An organism that is started for this
    /// client is started for `purpose`.
    async fn open_as(
        socket: SocketTransport,
        config: Config,
        patience: Duration,
        purpose: StartPurpose,
    ) -> Result<Self, Error> {
        if config.partitions() > 1 {
            return Ok(ServiceClient::of_partitions(config, socket).into());
        }

        let latest = Instant::now() + patience;
        let mut held_until = Instant::now() + limits::ORGANISM_WAIT_TIMEOUT;
        let mut last_holder = None;

        loop {
            if socket.locate().await? {
                let transport = ServiceTransport::Socket(socket);
                return Ok(ServiceClient::new(&config.data, transport).into());
            }
            // A hosted process whose pump has ended must not start a pump of its own.
            refuse_hosted_start(&config)?;
            if announcement::is_announced(&config.data) {
                if Instant::now() >= latest {
                    let process = announcement::announced_process(&config.data);
                    return Err(Error::NotUp { process, waited: patience });
                }
                held_until = Instant::now() + limits::ORGANISM_WAIT_TIMEOUT;
                tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
                continue;
            }
            match Organism::start_as(config.clone(), HashMap::new(), purpose).await {
                Err(Error::Journal(journal::Error::InUse { path, holder })) => {
                    // Each holder has its own time, because of several cancellations one after the
                    // other holds the journal. This is not so on JetStream, where two commands
                    // whose pump is on another host hold the directory by turns.
                    let is_embedded = matches!(config.storage, StorageConfig::Embedded);
                    if is_embedded && last_holder.as_ref() != Some(&holder) {
                        let own = Instant::now() + limits::ORGANISM_WAIT_TIMEOUT;
                        held_until = held_until.max(own.min(latest));
                        last_holder = Some(holder.clone());
                    }
                    if Instant::now() < held_until {
                        tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
                        continue;
                    }
                    let holder = format!("{holder}, {}", why_unreachable(&config.data));
                    return Err(Error::Journal(journal::Error::InUse { path, holder }));
                }
                started => return Ok(started?.into()),
            }
        }
    }

    /// Whether the organism was started for this client and ends with the client.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Closes the client. If the organism was started for this client, waits until every other
    /// connected client has its results, and then stops the organism. Otherwise, the organism
    /// continues to run.
    pub async fn close(self) -> Result<(), Error> {
        self.close_or_stop(std::future::pending()).await
    }

    /// Closes the client as [`OrganismClient::close`] does. But if `stop` returns a reason for the
    /// stop, stops the organism without waiting for the other clients. Deliveries in flight may
    /// still end.
    pub async fn close_or_stop(
        self,
        stop: impl Future<Output = &'static str>,
    ) -> Result<(), Error> {
        match self.own {
            Some(organism) => organism.stop_when_served("the command is done", stop).await,
            None => Ok(()),
        }
    }
}

/// Returns why the holder of the journal in `data` takes no requests from here, and what to do.
pub fn why_unreachable(data: &Path) -> String {
    let socket = socket_path(data);
    let found = std::fs::symlink_metadata(&socket);
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        return format!(
            "which takes no requests, because {} is no socket: remove it, and the organism makes \
             its socket again within seconds",
            socket.display()
        );
    }

    "which takes no requests from here, maybe because it is starting or stopping, or runs on \
     another machine; try again, or run the command there"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_the_place_of_the_socket_is_named() {
        let data = tempfile::tempdir().unwrap();
        let socket = socket_path(data.path());
        assert!(why_unreachable(data.path()).contains("maybe because it is starting"));
        std::fs::create_dir(&socket).unwrap();
        let why = why_unreachable(data.path());
        assert!(why.contains(&format!("{} is no socket: remove it", socket.display())), "{why}");

        std::fs::remove_dir(&socket).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(why_unreachable(data.path()).contains("maybe because it is starting"));
    }
}
