//! How commands reach the organism that runs on a journal. A command connects over the organism's
//! socket or over NATS, or starts an organism itself.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::audit::CopyEnd;
use crate::config::{self, Config, ConfigEnvironment, ProjectFolders, StorageConfig};
use crate::contract::Role;
use crate::ids::{Digest, Position};
use crate::journal;
use crate::journal::sqlite::require_free;
use crate::limits;
use crate::locks::locked;
use crate::organism::{self, OrganismClient, project};
use crate::service::announcement;
use crate::service::handshake::Handshake;
use crate::service::{self, ServiceClient, ServiceTransport, SocketTransport, socket_path};

use super::command_organism::CommandOrganism;
use super::exit::CommandFailure;
use super::startup::{ConfigArg, runtime};
use super::{CommandExit, journal_target, named_config};

/// How a command reaches an organism to send it a request of an operator, such as an approval or a
/// retry.
pub(super) enum OrganismReach {
    /// The command knows the config. The command connects to the running organism. If no organism
    /// runs, the command starts one.
    Config { config: Box<Config>, is_running: bool },
    /// The command has no valid config, or `--data` names a data directory in place of a config.
    /// The command connects to the running organism over its socket, and cannot start an organism.
    Running { data: PathBuf, handshake: Handshake },
}

impl OrganismReach {
    pub fn data(&self) -> &Path {
        match self {
            Self::Config { config, .. } => &config.data,
            Self::Running { data, .. } => data,
        }
    }

    /// Returns the names of all listeners of the config, including agents. Returns `None` if the
    /// command knows no config.
    pub fn callees(&self) -> Option<Vec<String>> {
        let Self::Config { config, .. } = self else { return None };
        let contracts = config.contracts.iter().filter(|contract| contract.role != Role::Client);
        Some(contracts.map(|contract| contract.name.to_string()).collect())
    }

    /// Whether the journal is in streams, so that an organism on another host may pump it.
    pub fn is_streamed(&self) -> bool {
        match self {
            Self::Config { config, .. } => {
                matches!(config.storage, StorageConfig::JetStream { .. })
            }
            Self::Running { .. } => false,
        }
    }

    /// Returns a client of the organism. Starts an organism if none runs and the config is known.
    pub async fn client(self) -> anyhow::Result<CommandOrganism> {
        self.open(OrganismClient::open_over).await
    }

    /// Returns a client of the organism for a cancellation. If no organism runs and the config is
    /// known, starts one that hands nothing over.
    pub async fn client_for_cancellation(self) -> anyhow::Result<CommandOrganism> {
        self.open(OrganismClient::open_for_cancellation).await
    }

    /// Returns a client of the organism that runs, and starts none. Waits as [`is_running`] does:
    /// an organism that runs may end before this call. Returns `None` if no organism runs.
    pub async fn client_of_running(&self) -> anyhow::Result<Option<CommandOrganism>> {
        let client = match self {
            Self::Config { config, .. } => {
                let socket = socket_in(&config.data, Handshake::of(config));
                if config.partitions() > 1 {
                    ServiceClient::of_partitions((**config).clone(), socket)
                } else if is_running(&socket).await? {
                    ServiceClient::of_running(&config.data, socket).await?
                } else {
                    return Ok(None);
                }
            }
            Self::Running { data, handshake } => {
                ServiceClient::of_running(data, socket_in(data, handshake.clone())).await?
            }
        };
        CommandOrganism::of(client.into()).map(Some)
    }

    async fn open(
        self,
        open_or_start: impl AsyncFnOnce(
            SocketTransport,
            Config,
            Duration,
        ) -> Result<OrganismClient, organism::Error>,
    ) -> anyhow::Result<CommandOrganism> {
        let client = match self {
            Self::Config { config, .. } => {
                let socket = socket_in(&config.data, Handshake::of(&config));
                open_or_start(socket, *config, limits::ANNOUNCED_TIMEOUT).await?
            }
            Self::Running { data, handshake } => {
                let socket = socket_in(&data, handshake);
                ServiceClient::of_running(&data, socket).await?.into()
            }
        };
        CommandOrganism::of(client)
    }

    /// Whether [`OrganismReach::client`] will start an organism. False if an organism runs already,
    /// and also if the config has several partitions.
    pub fn starts_organism(&self) -> bool {
        match self {
            Self::Config { config, is_running } => !is_running && config.partitions() == 1,
            Self::Running { .. } => false,
        }
    }
}

/// Returns how to reach the organism that runs on the journal in `data`, whatever config it uses.
/// Waits for an organism that has announced its start. Fails if no organism runs there.
pub(super) fn running_on(data: &Path) -> anyhow::Result<OrganismReach> {
    let handshake = handshake_in(data)?;
    let socket = socket_in(data, handshake.clone());
    if runtime()?.block_on(is_running(&socket))? {
        return Ok(OrganismReach::Running { data: data.to_owned(), handshake });
    }

    require_no_holder(data)?;
    let text = format!(
        "no organism runs on {}: start it, or name its config instead of --data, and one is started \
         for the decision",
        data.display()
    );
    Err(CommandFailure::new(CommandExit::Unavailable, text).into())
}

/// Whether an organism takes requests on `socket`. If none does, waits for the socket of an
/// organism that has announced its start, or that a command has started for itself and that starts
/// or stops. Fails if an announced start takes too long.
pub(super) async fn is_running(socket: &SocketTransport) -> anyhow::Result<bool> {
    let data = socket.data();
    let until = Instant::now() + limits::ANNOUNCED_TIMEOUT;
    loop {
        // Ordering rule: both are read before the socket. An announcement ends after the socket has
        // been opened, and a command's organism opens its socket while the command is present.
        let is_announced = announcement::is_announced(data);
        let has_command = announcement::is_used_by_command(data);
        if socket.locate().await? {
            return Ok(true);
        }
        let is_late = Instant::now() >= until;
        if !is_announced && (!has_command || is_late) {
            return Ok(false);
        }

        if is_late {
            let process = announcement::announced_process(data);
            let waited = limits::ANNOUNCED_TIMEOUT;
            return Err(organism::Error::NotUp { process, waited }.into());
        }
        tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
    }
}

/// Fails if a process holds the journal in `data`. Commands that start no organism call this
/// function if no organism takes their requests. An organism that stops closes its socket first,
/// and holds the journal until its deliveries in flight have ended.
pub(super) fn require_no_holder(data: &Path) -> anyhow::Result<()> {
    let Err(journal::Error::InUse { path, holder }) = require_free(data) else { return Ok(()) };
    let text = format!(
        "the journal {path} is in use by {holder}, {}. Nothing was done",
        organism::why_unreachable(data)
    );
    Err(CommandFailure::new(CommandExit::TryAgain, text).into())
}

/// Returns the digest of the config that the organism in `directories` uses. Returns `None` if no
/// organism runs, and `Some(None)` if the organism does not respond in time.
pub(super) fn running_config(directories: &ProjectFolders) -> Option<Option<Digest>> {
    if !socket_path(&directories.data).exists() {
        return None;
    }

    let asking = async {
        let socket = socket_in(&directories.data, Handshake::of_project(directories));
        let is_found = match socket.locate_within(limits::STATUS_TIMEOUT).await {
            // An organism runs, and takes no connection at present.
            Err(service::Error::NotReady { .. }) => return Some(None),
            found => found.ok()?,
        };
        if !is_found {
            return None;
        }
        Some(socket.running_config().await.ok().flatten())
    };

    runtime().ok()?.block_on(asking)
}

/// Makes the handshake of a command that knows the journal's directory, but not the config. The
/// handshake names the project of the directory, if known.
pub(super) fn handshake_in(data: &Path) -> anyhow::Result<Handshake> {
    let project = project::stored(data).map_err(organism::Error::from)?;
    Ok(project.as_deref().map(Handshake::of_path).unwrap_or_default())
}

/// Prints a note if this process has not printed the same note before. So a command that queries
/// the pumps several times does not repeat its notes.
pub(super) fn note_once(text: String) {
    // The lock is held while the note is printed, so that no other thread prints the same note.
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut noted = locked(&NOTED);
    if !noted.contains(&text) {
        note!("{text}");
        noted.insert(text);
    }
}

/// Prints a note that the command reads the journal because no running organism could be queried.
/// The note states the reason: the error `refused`, or that no organism responds.
pub(super) fn note_read_once(data: &Path, refused: Option<&service::Error>) {
    let reason = refused.map_or_else(
        || "no organism responds to this command".to_owned(),
        service::Error::to_string,
    );
    note_once(format!(
        "note: {reason}; this command reads the journal in {} in its present state",
        data.display()
    ));
}

/// Prints a note that the command reads `journals`, because their pumps could not be queried. Each
/// journal comes with its partition. If the journals are copies of streams, the note states where
/// each copy ends, because a pump on another host may have recorded more.
///
/// The note also states the reason, which is the first of these that applies:
///
/// - the error `refused` of the query
/// - for copies of streams, `silent`, the reason why a pump did not answer
/// - that no organism responds
pub(super) fn note_journals_read(
    data: &Path,
    journals: &[(Option<u32>, PathBuf)],
    refused: Option<&service::Error>,
    silent: Option<&str>,
) {
    let copies = journals.iter();
    let ends = copies.filter_map(|(partition, journal)| CopyEnd::read(*partition, journal));
    let ends: Vec<String> = ends.map(|end| end.to_string()).collect();
    if ends.is_empty() {
        note_read_once(data, refused);
        return;
    }

    let reason = match (refused, silent) {
        (Some(error), _) => error.to_string(),
        (None, Some(silent)) => silent.to_owned(),
        (None, None) => "no organism runs on this host, and no pump was queried".to_owned(),
    };
    note_once(format!(
        "note: {reason}; this command reads this host's copy of the journal in {}, up to {}; a \
         pump on another host may have recorded more",
        data.display(),
        ends.join(", ")
    ));
}

/// Returns the config of this command if the config has several partitions whose journals are in
/// `data`. A command with such a config can query the pumps of all partitions over NATS. Returns
/// `None` for any other config, or if the config cannot be loaded.
pub(super) fn partitioned_config(data: &Path) -> Option<Config> {
    config_of(data).filter(|config| config.partitions() > 1)
}

/// Returns the config of this command if its journals are in `data`. Returns `None` for any other
/// config, or if the config cannot be loaded.
pub(super) fn config_of(data: &Path) -> Option<Config> {
    let around = ConfigEnvironment::of_process();
    let file = config::locate(named_config::given(), &around).ok()?;
    let config = config::load_without_keys(&file, &around).ok()?;
    (config.data == data).then_some(config)
}

/// Follows the journals in `data` through the organism that runs on them, as
/// [`ServiceClient::follow`] does. Calls `on_recorded` with the partition and the position of new
/// records. Returns when `on_recorded` returns [`ControlFlow::Break`], or when the organism has
/// ended. Fails if the organism does not permit this command to follow.
pub(super) fn follow(
    data: &Path,
    on_recorded: impl FnMut(u32, Position) -> ControlFlow<()>,
) -> anyhow::Result<()> {
    let client = client_at(data)?;
    runtime()?.block_on(following(&client, on_recorded))
}

/// Follows the journals through `client`, as [`follow`] does.
pub(super) async fn following(
    client: &ServiceClient,
    mut on_recorded: impl FnMut(u32, Position) -> ControlFlow<()>,
) -> anyhow::Result<()> {
    loop {
        let mut has_responded = false;
        let mut has_left = false;
        let followed = client.follow(|partition, position| {
            has_responded = true;
            let next = on_recorded(partition, position);
            has_left = next.is_break();
            next
        });
        match followed.await {
            Ok(()) if has_responded && !has_left => {}
            Ok(()) | Err(service::Error::Lost | service::Error::Stopped) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a client of the organism that runs on the journal in `data`, whatever config the organism
/// uses.
pub(super) fn client_at(data: &Path) -> anyhow::Result<ServiceClient> {
    Ok(client_in(data, handshake_in(data)?))
}

/// Returns a client with which a command can watch live events. The config decides what the client
/// watches:
///
/// - With several partitions, the organism on this machine. If none runs, the pumps of all
///   partitions on all machines.
/// - With one partition, or without a config, the organism on this machine. The function waits
///   until one runs.
pub(super) fn watching_client(
    place: &journal_target::JournalTarget,
    data: &Path,
) -> anyhow::Result<ServiceClient> {
    let config = place.data.is_none().then(|| ConfigArg { config: place.config.clone() });
    let config = config.and_then(|config| config.load_to_read().ok());
    match config.filter(|config| config.partitions() > 1) {
        Some(config) => {
            let socket = socket_in(data, Handshake::of(&config));
            let is_found = runtime()?.block_on(socket.locate())?;
            Ok(if is_found {
                ServiceClient::new(data, ServiceTransport::Socket(socket))
            } else {
                ServiceClient::of_partitions(config, socket)
            })
        }
        None => {
            let socket = socket_in(data, handshake_in(data)?);
            runtime()?.block_on(wait_for_organism(&socket))?;
            client_at(data)
        }
    }
}

/// Waits until an organism accepts connections on `socket`.
async fn wait_for_organism(socket: &SocketTransport) -> anyhow::Result<()> {
    let mut is_noted = false;
    while !socket.locate().await? {
        if !std::mem::replace(&mut is_noted, true) {
            note!("no organism runs on {} yet; waiting for one", socket.data().display());
        }
        tokio::time::sleep(limits::BUSY_RETRY).await;
    }
    Ok(())
}

/// Returns the transport to the organism that runs on the journal in `data`. `handshake` states the
/// project and the config of the requests. All transports from this function share one connection,
/// even if their handshakes name different configs.
pub(super) fn socket_in(data: &Path, handshake: Handshake) -> SocketTransport {
    static SHARED: Mutex<Option<SocketTransport>> = Mutex::new(None);
    let mut shared = locked(&SHARED);
    let known = shared.take().filter(|known| known.data() == data);
    let socket = known.unwrap_or_else(|| SocketTransport::new(data, Handshake::default()));
    *shared = Some(socket.clone());
    socket.with_handshake(handshake)
}

/// Makes a client for the journal in `data`. Each request goes to the organism that runs on this
/// journal at the time of the request.
fn client_in(data: &Path, handshake: Handshake) -> ServiceClient {
    ServiceClient::new(data, ServiceTransport::Socket(socket_in(data, handshake)))
}
