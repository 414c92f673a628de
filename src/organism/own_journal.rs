//! Makes isolated copies of an organism, for example to test a workflow, or to run recorded threads
//! again under another config. A copy has the config of the organism and a journal of its own. A
//! copy does not use the organism's NATS servers, its schedules or the keys of its operators.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Error;
use crate::config::{Config, StorageConfig};
use crate::thread::OperatorKeys;

/// Returns the config of an isolated copy of the organism. The copy has an embedded journal in
/// `home`. The copy uses no network and has no schedules and no operators' keys.
pub(super) fn in_own_journal(config: &Config, home: &Path) -> Config {
    let mut isolated = config.clone();
    isolated.data = home.join("data");
    isolated.state = home.join("state");
    // The project's journals in the default directories are not used.
    isolated.project.data_parent = None;
    isolated.project.state_parent = None;

    isolated.storage = StorageConfig::Embedded;
    isolated.checkpoints = None;
    isolated.http = None;
    isolated.telemetry = None;
    isolated.nats = None;
    isolated.remotes = Vec::new();
    isolated.operators = OperatorKeys::default();
    isolated.recorder = None;
    isolated.runs_schedules = false;
    isolated
}

/// Path of a directory. Dropping this value removes the directory with everything in it.
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// Creates a directory that only this user may read.
    pub fn create(purpose: &str) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt as _;
        let parent = std::env::temp_dir();
        let path = parent.join(format!("organism-{purpose}-{}", Uuid::now_v7()));
        let mut builder = std::fs::DirBuilder::new();
        let created = builder.mode(0o700).create(&path);
        let what = format!(
            "creating a directory in {}, the directory for temporary files (TMPDIR)",
            parent.display()
        );
        created.map_err(Error::io(what))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} cannot be removed: {error}", self.0.display());
        }
    }
}
