//! The handshake: the project and the config that a command states in each request over the control
//! socket. The organism refuses every request from another project. If the command has another
//! number of partitions, the organism refuses all requests except those for the status or a reload.
//! If the command has another config, the organism refuses new work.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::changed_config::forbids_new_work;
use super::{Error, OtherProject, ServiceRequest, ServiceResponse};
use crate::config::{Config, ProjectFolders};
use crate::ids::Digest;
use crate::mutant::mutant;

/// The project and the config of the program that sends a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// Path of the sender's project; `None` if the project is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Digest of the sender's config; `None` if the config does not load or the request needs no
    /// config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Digest>,
    /// Number of partitions in the sender's config; `None` if the config does not load or the
    /// request needs no config.
    #[serde(rename = "partitions", default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
}

impl Handshake {
    pub fn of(config: &Config) -> Self {
        Self {
            config: Some(config.digest),
            partitions: Some(config.partitions()),
            ..Self::of_project(&config.directories())
        }
    }

    /// Creates the handshake of a command that needs no config.
    pub fn of_project(directories: &ProjectFolders) -> Self {
        Self::of_path(&directories.project.path)
    }

    /// Creates the handshake of a command that knows only the path of its project.
    pub fn of_path(project: &Path) -> Self {
        Self { project: Some(project.to_string_lossy().into_owned()), ..Self::default() }
    }
}

/// A request on the control socket, with its handshake.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SocketRequest {
    #[serde(flatten)]
    pub request: ServiceRequest,
    #[serde(flatten)]
    pub handshake: Handshake,
    /// Whether the client wants to send another request over the same connection. If so, the
    /// organism sends a [`ServiceResponse::End`] after the last response, and keeps the connection
    /// open.
    #[serde(rename = "keep", default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// The project and the config of the organism behind a control socket.
#[derive(Debug, Clone)]
pub struct OrganismIdentity {
    project: PathBuf,
    config: Digest,
    /// Number of partitions; `None` if the organism has a single pump.
    partitions: Option<u32>,
}

impl OrganismIdentity {
    pub fn of(config: &Config) -> Self {
        let partitions = Some(config.partitions()).filter(|partitions| *partitions > 1);
        Self { project: config.project.path.clone(), config: config.digest, partitions }
    }

    /// Checks the handshake of a request. If the handshake forbids the request, returns a refusal.
    /// If the request is for the status, which needs no pump, returns the status. Otherwise,
    /// returns `None`: the request may go to the pump.
    pub fn judge(
        &self,
        request: &ServiceRequest,
        handshake: &Handshake,
    ) -> Option<ServiceResponse> {
        let Handshake { project, config, partitions } = handshake;
        let ours = self.project.to_string_lossy();
        if project.as_deref() != Some(&*ours) && !mutant("trust-any-project") {
            return Some(ServiceResponse::OtherProject(ours.into_owned()));
        }

        let running = self.partitions.unwrap_or(1);
        match request {
            ServiceRequest::Status => {
                let partitions = self.partitions;
                Some(ServiceResponse::Status { config: self.config, partitions })
            }
            // The report of a reload names the setting that takes a restart.
            ServiceRequest::Reload { .. } => None,
            _ if partitions.is_some_and(|theirs| theirs != running) => {
                Some(ServiceResponse::OtherPartitions { running })
            }
            ServiceRequest::Submit(_) | ServiceRequest::Fork(_) | ServiceRequest::Retry(_)
                if forbids_new_work(self.config, *config) =>
            {
                Some(ServiceResponse::ConfigChanged { running: self.config })
            }
            _ => None,
        }
    }
}

/// Returns the error that the client reports if `response` is a refusal by
/// [`OrganismIdentity::judge`]. Returns `None` for any other response.
pub(super) fn refusal(
    response: &ServiceResponse,
    data: &Path,
    handshake: &Handshake,
) -> Option<Error> {
    match response {
        ServiceResponse::OtherProject(stored) => {
            let ours = handshake.project.clone().unwrap_or_default().into();
            let data = data.to_owned();
            let stored = stored.into();
            Some(Error::OtherProject(OtherProject { data, stored, ours }))
        }
        ServiceResponse::OtherPartitions { running } => {
            let ours = handshake.partitions.unwrap_or_default();
            Some(Error::OtherPartitions { running: *running, ours })
        }
        ServiceResponse::ConfigChanged { running } => {
            Some(Error::ConfigChanged { running: *running, ours: handshake.config })
        }
        _ => None,
    }
}
