//! The handshake: the project and the config that a command states in each request over the control
//! socket. The organism refuses every request from another project, and new work from a command
//! with another config.

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
}

impl Handshake {
    pub fn of(config: &Config) -> Self {
        let digest = Some(config.digest);
        Self { config: digest, ..Self::of_project(&config.directories()) }
    }

    /// Creates the handshake of a command that needs no config.
    pub fn of_project(directories: &ProjectFolders) -> Self {
        Self::of_path(&directories.project.path)
    }

    /// Creates the handshake of a command that knows only the path of its project.
    pub fn of_path(project: &Path) -> Self {
        Self { project: Some(project.to_string_lossy().into_owned()), config: None }
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

    /// Checks the handshake of a request. Returns `None` if the request may go to the pump, and a
    /// refusal if the handshake forbids the request. If the request is for the status, which needs
    /// no pump, returns the status.
    pub fn judge(
        &self,
        request: &ServiceRequest,
        handshake: &Handshake,
    ) -> Option<ServiceResponse> {
        let Handshake { project, config } = handshake;
        let ours = self.project.to_string_lossy();
        if project.as_deref() != Some(&*ours) && !mutant("trust-any-project") {
            return Some(ServiceResponse::OtherProject(ours.into_owned()));
        }

        match request {
            ServiceRequest::Status => {
                let partitions = self.partitions;
                Some(ServiceResponse::Status { config: self.config, partitions })
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
        ServiceResponse::ConfigChanged { running } => {
            Some(Error::ConfigChanged { running: *running, ours: handshake.config })
        }
        _ => None,
    }
}
