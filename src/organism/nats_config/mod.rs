//! Writes configs of NATS servers, and the keys that identify the users. The configs let each
//! listener publish only on its own subjects.
//!
//! A listener gets permissions for core NATS only. With any permission on JetStream, a listener
//! could make the server publish on another listener's subject.

mod keys;
mod rights;
mod server;

use std::path::{Path, PathBuf};

use crate::config::{Config, StorageConfig};
use crate::durable_file;
use crate::ids::ListenerName;

pub use keys::{KeyError, KeyRotation};
pub use server::{ServerNode, ServerTls};

use keys::SeedFolder;
use rights::SubjectRights;

/// Returns the name of the file with the NATS seed (the text of the private key) of a listener or
/// agent. The file is in the directory of keys.
pub fn seed_of(listener: &ListenerName) -> String {
    format!("{}.nk", user_of(listener))
}

fn user_of(listener: &ListenerName) -> String {
    format!("listener-{listener}")
}

/// NATS user of the pump.
const PUMP: &str = "pump";
const OPERATOR: &str = "operator";
/// NATS user of the servers' system account. The account has no other user.
const SYSTEM: &str = "system";

/// Settings for the configs and keys that are written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of keys and configs. The directory is created if it does not exist.
    pub directory: PathBuf,
    /// The servers of the cluster, at least one.
    pub nodes: Vec<ServerNode>,
    pub client_port: u16,
    pub cluster_port: u16,
    /// Directory in which each server keeps its streams.
    pub store: PathBuf,
    pub tls: Option<ServerTls>,
    /// Whether a server syncs each message to disk before it acknowledges the message.
    pub synced: bool,
    /// Users whose keys are rotated, each with the kind of rotation.
    pub rotate: Vec<(String, KeyRotation)>,
}

/// Reason why not all files were written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "this config uses NATS for no listener, no agent and no journal, so there are no users to \
         create"
    )]
    NothingOnNats,
    #[error("no user `{user}`; the users are {users}")]
    NoUser { user: String, users: String },
    #[error(
        "{host} can be reached from elsewhere and there is no TLS: keys are never sent, but \
         everything else could be read on the way"
    )]
    Open { host: String },
    #[error("two servers have the name or the host of {node}; give each server its own")]
    NodeTwice { node: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Paths of the written files.
#[derive(Debug, Clone)]
pub struct WrittenFiles {
    /// Configs for `nats-server --config`, one file for each node.
    pub servers: Vec<PathBuf>,
    /// Users, each with the path of the file that contains the user's seed. A seed is the text of a
    /// private key.
    pub seeds: Vec<(String, PathBuf)>,
    /// Names or public keys of users that the earlier configs contain and the new configs lack,
    /// because the directory has no seed of them. A person had added these users, or the seeds were
    /// removed.
    pub dropped: Vec<String>,
    /// Users whose old keys were to be retired, and who have none.
    pub without_old_key: Vec<String>,
}

/// Makes missing keys and rewrites all configs.
///
/// # Errors
///
/// Returns an error for an invalid name or host. In this case, no file is written.
pub fn write(config: &Config, options: &Options) -> Result<WrittenFiles, Error> {
    let users = users(config)?;
    for (user, _) in &options.rotate {
        if !users.iter().any(|(name, _)| name == user) {
            let names: Vec<_> = users.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::NoUser { user: user.clone(), users: names.join(", ") });
        }
    }

    let open = options.nodes.iter().find(|node| !node.is_loopback());
    if let (Some(node), None) = (open, &options.tls) {
        return Err(Error::Open { host: node.host.clone() });
    }

    nodes_differ(&options.nodes)?;
    let keys = SeedFolder::open(&options.directory)?;
    keys.require_organism(&config.name)?;
    for (user, rotation) in &options.rotate {
        keys.check_rotation(user, *rotation)?;
    }

    let dropped = keys.foreign_users();
    let mut without_old_key = Vec::new();
    for (user, rotation) in &options.rotate {
        // A renewal of the same command may have kept an old key.
        if *rotation == KeyRotation::Retire && !keys.has_old(user) {
            without_old_key.push(user.clone());
        }
        keys.rotate(user, *rotation)?;
    }

    let mut granted = Vec::new();
    let mut seeds = Vec::new();

    for (user, rights) in users {
        let public = keys.of(&user)?;
        seeds.push((user.clone(), keys.path(&user)));
        granted.push((user, public, rights));
    }

    keys.only(&seeds.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>())?;
    let mut servers = Vec::new();

    for (index, node) in options.nodes.iter().enumerate() {
        let path = options.directory.join(node.file(options.nodes.len()));
        put(&path, &server::config(&config.name, options, index, &keys.cluster_secret()?))?;
        servers.push(path);
    }

    // Ordering rule: written last. A renewal of a key is complete once this file names the new key.
    let accounts = server::accounts(&config.name, &granted);
    put(&options.directory.join("accounts.conf"), &accounts)?;
    Ok(WrittenFiles { servers, seeds, dropped, without_old_key })
}

fn nodes_differ(nodes: &[ServerNode]) -> Result<(), Error> {
    for (index, node) in nodes.iter().enumerate() {
        let twice = nodes.iter().take(index).any(|other| other.name == node.name);
        if twice || nodes.iter().take(index).any(|other| other.host == node.host) {
            return Err(Error::NodeTwice { node: format!("{}={}", node.name, node.host) });
        }
    }

    Ok(())
}

/// Returns all users of the NATS servers, with their permissions.
fn users(config: &Config) -> Result<Vec<(String, SubjectRights)>, Error> {
    let journal = match &config.storage {
        StorageConfig::JetStream { journal, .. } => Some(journal),
        StorageConfig::Embedded => None,
    };

    let remote = || config.remote_agents().map(|agent| &agent.name);
    if journal.is_none() && config.remotes.is_empty() && remote().next().is_none() {
        return Err(Error::NothingOnNats);
    }

    let hosted = || config.remotes.iter().chain(remote());
    let mut users = vec![
        (
            PUMP.to_owned(),
            SubjectRights::of_pump(&config.name, journal, config.partitions(), hosted()),
        ),
        (OPERATOR.to_owned(), SubjectRights::of_operator()),
    ];
    if journal.is_some() {
        users.push((SYSTEM.to_owned(), SubjectRights::of_system()));
    }

    let listener =
        |name: &ListenerName| (user_of(name), SubjectRights::of_listener(&config.name, name));
    users.extend(hosted().map(listener));
    Ok(users)
}

/// Writes a file atomically, readable by its owner only.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let unfinished = path.with_extension("new");
    durable_file::replace_private(path, &unfinished, text.as_bytes()).map_err(failed)
}
