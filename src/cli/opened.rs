//! What the verbs that touch a running organism share: the config, the runtime, the log.

use std::path::{Path, PathBuf};

use crate::config::{self, Config, Directories, Surroundings};
use crate::ids::ListenerName;

use super::exit::Failed;
use super::{Exit, problems};

/// Loads the config a verb was given, or says everything that is wrong with it and exits 78.
pub(super) fn config(given: Option<&Path>) -> anyhow::Result<Config> {
    let around = Surroundings::of_process();
    let path = config::locate(given, &around);
    let loaded = path.and_then(|path| config::load(&path, &around));
    loaded.map_err(|found| {
        problems::report(&found);
        Failed::silent(Exit::Config).into()
    })
}

/// Where the journal of the config a verb was given lies. What else is wrong with that config is
/// no concern of whoever only reads.
pub(super) fn directories(given: Option<&Path>) -> anyhow::Result<Directories> {
    let around = Surroundings::of_process();
    let path = config::locate(given, &around);
    let found = path.and_then(|path| config::directories(&path, &around));
    found.map_err(|problems| {
        problems::report(&problems);
        Failed::silent(Exit::Config).into()
    })
}

/// The client to send as: the one named, or the only one there is.
pub(super) fn client(config: &Config, given: Option<&str>) -> anyhow::Result<ListenerName> {
    let clients = config.contracts.iter().filter(|c| c.role == crate::contract::Role::Client);
    let clients: Vec<_> = clients.map(|c| c.name.clone()).collect();
    let names = || clients.iter().map(ListenerName::as_str).collect::<Vec<_>>().join(", ");
    match given {
        Some(name) => {
            let found = clients.iter().find(|client| client.as_str() == name);
            found.cloned().ok_or_else(|| {
                let text = format!("`{name}` is no client of this config; it has: {}", names());
                Failed::new(Exit::Usage, text).into()
            })
        }
        None => match clients.as_slice() {
            [only] => Ok(only.clone()),
            _ => {
                let text = format!("say which client sends, with --as: {}", names());
                Err(Failed::new(Exit::Usage, text).into())
            }
        },
    }
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Options of every verb that works on an organism.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArg {
    /// The config; otherwise ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArg {
    pub fn load(&self) -> anyhow::Result<Config> {
        config(self.config.as_deref())
    }
}
