//! What a command says of itself with each request over the control socket, and what an organism
//! makes of it: commands of another project are refused, and so is new work under another config
//! than the one that runs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use super::project;
use crate::config::{Config, Directories};
use crate::ids::Digest;
use crate::mutant::mutant;
use crate::service::{ServiceRequest, ServiceResponse};

/// The sender of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// Path of its project. A request without one is of an unknown project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Digest of its config; none where that does not load, or is not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Digest>,
}

impl Handshake {
    pub fn of(config: &Config) -> Self {
        let digest = Some(config.digest);
        Self { config: digest, ..Self::of_project(&config.directories()) }
    }

    /// Of a command that needs no config.
    pub fn of_project(directories: &Directories) -> Self {
        Self::of_path(&directories.project.path)
    }

    /// The handshake of a command that knows only the path of its project.
    pub fn of_path(project: &Path) -> Self {
        Self { project: Some(project.to_string_lossy().into_owned()), config: None }
    }
}

/// One line of the control socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    #[serde(flatten)]
    pub ask: ServiceRequest,
    #[serde(flatten)]
    pub handshake: Handshake,
}

/// The organism behind a socket.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    project: PathBuf,
    config: Digest,
}

impl Identity {
    pub fn of(config: &Config) -> Self {
        Self { project: config.project.path.clone(), config: config.digest }
    }

    /// What answers a request instead of the pump, if anything.
    pub fn judge(&self, request: &Request) -> Option<ServiceResponse> {
        let Handshake { project, config } = &request.handshake;
        let ours = self.project.to_string_lossy();
        if project.as_deref() != Some(&*ours) && !mutant("trust-any-project") {
            return Some(ServiceResponse::OtherProject(ours.into_owned()));
        }
        match &request.ask {
            ServiceRequest::Status => Some(ServiceResponse::Status { config: self.config }),
            ServiceRequest::Submit(_)
                if *config != Some(self.config) && !mutant("send-under-any-config") =>
            {
                Some(ServiceResponse::ConfigChanged { running: self.config })
            }
            _ => None,
        }
    }
}

/// The error that an answer of [`Identity::judge`] stands for.
pub(super) fn refusal(said: &ServiceResponse, data: &Path, handshake: &Handshake) -> Option<Error> {
    match said {
        ServiceResponse::OtherProject(stored) => {
            let ours = handshake.project.clone().unwrap_or_default().into();
            let (data, stored) = (data.to_owned(), stored.into());
            Some(Error::Project(project::Error::OtherProject { data, stored, ours }))
        }
        ServiceResponse::ConfigChanged { running } => {
            Some(Error::ConfigChanged { running: *running, ours: handshake.config })
        }
        _ => None,
    }
}
