//! Steps at the start of a command that several commands share: config, runtime, log.

use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::audit::{self, HeldCall};
use crate::children;
use crate::config::{
    self, Config, ConfigEnvironment, ConfigProblems, ProjectFolders, StorageConfig,
};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Digest, ListenerName, MessageId, Position};
use crate::journal::sqlite::{DATABASE, JournalReader};
use crate::journal::{Error, partitions_in};
use crate::limits;
use crate::mutant::mutant;
use crate::organism::{self, OrganismClient, operator, project};
use crate::service::handshake::Handshake;
use crate::service::signing::{self, OperatorSigner};
use crate::service::{
    self, DecisionRequest, ServiceClient, ServiceTransport, SocketTransport, SubmittedAnswer,
    socket_path,
};
use crate::thread::{Decision, DecisionOrigin, Hold};

use super::exit::CommandFailure;
use super::{CommandExit, config_error_carets, journal_target, passphrase};

/// Loads the config of a command. Prints all problems of an invalid config, and exits with 78.
pub(super) fn config(given: Option<&Path>) -> anyhow::Result<Config> {
    loaded(given, config::load)
}

/// Returns the storage of the journal, even if other parts of the config are invalid. So a record
/// can be proved when its organism cannot start.
pub(super) fn storage(given: Option<&Path>) -> anyhow::Result<StorageConfig> {
    loaded(given, config::storage)
}

/// A function that loads a part of a config or all of it.
type LoadConfig<T> = fn(&Path, &ConfigEnvironment) -> Result<T, ConfigProblems>;

fn loaded<T>(given: Option<&Path>, load: LoadConfig<T>) -> anyhow::Result<T> {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(given, &around);
    let loaded = path.and_then(|path| load(&path, &around));
    hide_memory();
    adopt_orphans();
    loaded.map_err(|found| {
        config_error_carets::report(&found);
        CommandFailure::silent(CommandExit::Config).into()
    })
}

/// Protects the memory and the environment of this process, which may contain keys from now on,
/// from other programs of the same user, such as those of listeners.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if mutant("leave-memory-open") {
            return;
        }
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(
                "could not protect the memory of this process from other processes of \
                            the same user: {error}"
            );
        }
    }
}

/// Makes this process the parent of processes that detach themselves from a listener, so that their
/// origin remains known.
fn adopt_orphans() {
    if mutant("leave-orphans") {
        return;
    }
    if let Err(error) = children::become_subreaper() {
        tracing::warn!(
            "could not become the subreaper, so processes that detach from their \
                        listener are not found: {error}"
        );
    }
}

/// Finds the directories of the journal in the config. Other problems of the config are ignored,
/// because commands that only read do not need the rest.
pub(super) fn directories(given: Option<&Path>) -> anyhow::Result<ProjectFolders> {
    let found = find_directories(given).map_err(|problems| {
        config_error_carets::report(&problems);
        note!("a journal can be named without its config, with --data DIR");
        CommandFailure::silent(CommandExit::Config)
    })?;
    belongs(&found)?;
    note_change(given, &found);
    Ok(found)
}

/// Finds the directories as the config states them, or by the config's path if the config cannot be
/// parsed.
fn find_directories(given: Option<&Path>) -> Result<ProjectFolders, ConfigProblems> {
    let around = ConfigEnvironment::of_process();
    let file = config::locate(given, &around)?;
    config::directories(&file, &around).or_else(|problems| {
        static ONCE: Once = Once::new();
        let found = project::by_path(&file, &around).ok_or(problems)?;
        let shown = file.display();
        let data = found.data.display();
        ONCE.call_once(|| {
            note!(
                "note: {shown} cannot be loaded (`organism check` shows the reason); the journal \
                 of its project is {data}"
            );
        });
        Ok(found)
    })
}

/// Prints a note if the organism runs with another config than the file now contains. At most one
/// note is printed in each command.
pub(super) fn note_change(given: Option<&Path>, directories: &ProjectFolders) {
    note_change_to(given, || running_config(directories).flatten());
}

/// Like [`note_change`], but gets the digest of the running config from `running`.
fn note_change_to(given: Option<&Path>, running: impl FnOnce() -> Option<Digest>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| note_change_now(given, running()));
}

fn note_change_now(given: Option<&Path>, running: Option<Digest>) {
    // A hosted process gets no digest, and so prints no note.
    let Some(running) = running else { return };
    let around = ConfigEnvironment::of_process();
    let now = config::locate(given, &around)
        .and_then(|path| config::load_without_keys(&path, &around))
        .map(|config| config.digest);

    match now {
        Ok(now) if now == running => {}
        Ok(now) => note!(
            "note: the config has changed since the organism started: the organism runs with \
             {running}, and the config is now {now}; the change takes effect at a restart"
        ),
        Err(_) => note!(
            "note: the config has changed since the organism started, and no longer loads \
             (`organism check` shows the reason); the organism continues with {running}"
        ),
    }
}

/// Digest of the config with which the organism in these directories runs, if it responds in time.
/// Returns `None` if no organism runs.
fn running_config(directories: &ProjectFolders) -> Option<Option<Digest>> {
    if !socket_path(&directories.data).exists() {
        return None;
    }

    let asking = async {
        let socket = socket_in(&directories.data, Handshake::of_project(directories));
        let is_found = socket.locate().await.ok()?;
        if !is_found {
            return None;
        }
        Some(socket.running_config().await.ok().flatten())
    };

    runtime().ok()?.block_on(asking)
}

/// Handshake of a command that knows the journal's directory, but not the config.
fn handshake_in(data: &Path) -> anyhow::Result<Handshake> {
    let project = project::stored(data).map_err(organism::Error::from)?;
    Ok(project.as_deref().map(Handshake::of_path).unwrap_or_default())
}

/// Reaches the organism that runs on the journal in `data`, whatever its config is.
fn running_on(data: &Path) -> anyhow::Result<OrganismReach> {
    let handshake = handshake_in(data)?;
    let socket = socket_in(data, handshake.clone());
    if runtime()?.block_on(socket.locate()).is_ok_and(|is_found| is_found) {
        return Ok(OrganismReach::Running { data: data.to_owned(), handshake });
    }

    let text = format!(
        "no organism runs on {}: start it, or name its config instead of --data, and one is started \
         for the decision",
        data.display()
    );
    Err(CommandFailure::new(CommandExit::Unavailable, text).into())
}

/// How a command that makes a decision reaches the organism.
pub(super) enum OrganismReach {
    /// By the config: connects to the running organism, or starts one for the command.
    Config { config: Box<Config>, is_running: bool },
    /// By the socket alone, because the config is invalid or was not given.
    Running { data: PathBuf, handshake: Handshake },
}

impl OrganismReach {
    pub fn data(&self) -> &Path {
        match self {
            Self::Config { config, .. } => &config.data,
            Self::Running { data, .. } => data,
        }
    }

    /// Returns a client of the organism. If the config is known and no organism runs, starts one.
    pub async fn client(self) -> Result<OrganismClient, organism::Error> {
        match self {
            Self::Config { config, .. } => {
                let socket = socket_in(&config.data, Handshake::of(&config));
                OrganismClient::open_over(socket, *config, limits::ANNOUNCED_TIMEOUT).await
            }
            Self::Running { data, handshake } => Ok(client_in(&data, handshake).into()),
        }
    }

    /// Whether no organism runs, so that [`OrganismReach::client`] starts one.
    pub fn starts_organism(&self) -> bool {
        match self {
            Self::Config { config, is_running } => !is_running && config.partitions() == 1,
            Self::Running { .. } => false,
        }
    }
}

/// Refuses directories that belong to another project.
fn belongs(directories: &ProjectFolders) -> anyhow::Result<()> {
    project::check(directories).map_err(|error| organism::Error::from(error).into())
}

/// The client to send as: the given one, or the only client of the config.
pub(super) fn client(config: &Config, given: Option<&str>) -> anyhow::Result<ListenerName> {
    let clients = config.contracts.iter().filter(|c| c.role == crate::contract::Role::Client);
    let clients: Vec<_> = clients.map(|c| c.name.clone()).collect();
    let names = || clients.iter().map(ListenerName::as_str).collect::<Vec<_>>().join(", ");

    match given {
        Some(name) => {
            let found = clients.iter().find(|client| client.as_str() == name);
            found.cloned().ok_or_else(|| {
                let text = format!(
                    "`{name}` is not a client of this config; the clients are: {}",
                    names()
                );
                CommandFailure::new(CommandExit::Usage, text).into()
            })
        }
        None => match clients.as_slice() {
            [only] => Ok(only.clone()),
            _ => {
                let text = format!("pass --as with the client that sends: {}", names());
                Err(CommandFailure::new(CommandExit::Usage, text).into())
            }
        },
    }
}

/// Returns the calls in the data directory that wait for this kind of decision: approval or answer.
/// The running organism is queried; if none responds, each journal is read once.
pub(super) fn waiting(data: &Path, hold: Hold) -> anyhow::Result<Vec<HeldCall>> {
    let runtime = runtime()?;
    let socket = socket_in(data, handshake_in(data)?);
    let mut refused = None;
    let located = runtime.block_on(socket.locate());
    let is_found = located.unwrap_or_else(|error| {
        refused = Some(error);
        false
    });
    let running = is_found.then(|| ServiceClient::new(data, ServiceTransport::Socket(socket)));
    let mut all = Vec::new();
    let mut is_read = false;

    for (partition, journal) in partitions_in(data) {
        let query = async {
            let query = running.as_ref()?.held_calls(partition.unwrap_or_default());
            match timeout(limits::HELD_CALLS_TIMEOUT, query).await.ok()? {
                Ok(held) => Some(held),
                Err(service::Error::Lost | service::Error::Stopped) => None,
                Err(error) => {
                    refused = Some(error);
                    None
                }
            }
        };
        if let Some(held) = runtime.block_on(query) {
            all.extend(held);
            continue;
        }
        match JournalReader::open(&journal).and_then(|reader| audit::held(&reader)) {
            // There are no held calls in a journal that does not exist.
            Err(Error::Missing { .. }) => {}
            held => {
                all.extend(held.map_err(journal_target::failed)?);
                is_read = true;
            }
        }
    }

    if is_read {
        note_read_once(data, refused.as_ref());
    }

    all.retain(|call| call.hold == hold);
    HeldCall::sort(&mut all);
    Ok(all)
}

/// Prints a note that the output comes from the journal instead of a pump. The reason is that no
/// organism runs, or that the organism `refused` the query.
pub(super) fn note_read_once(data: &Path, refused: Option<&service::Error>) {
    let reason = refused.map_or_else(
        || "no organism responds to this command".to_owned(),
        service::Error::to_string,
    );
    note!(
        "note: {reason}; this command reads the journal in {} in its present state",
        data.display()
    );
}

/// Follows the journals in `data` through the organism that runs on them, see
/// [`ServiceClient::follow`]. Returns when the organism has ended and no other one took its place.
/// Returns an error if the organism does not let this command follow.
pub(super) fn follow(
    data: &Path,
    on_recorded: impl FnMut(u32, Position) -> ControlFlow<()>,
) -> anyhow::Result<()> {
    let client = client_at(data)?;
    runtime()?.block_on(following(&client, on_recorded))
}

/// Like [`follow`], through this client.
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

/// A client of the organism that runs on the journal in `data`, whatever its config is.
pub(super) fn client_at(data: &Path) -> anyhow::Result<ServiceClient> {
    Ok(client_in(data, handshake_in(data)?))
}

/// A client of the organism that a command watches: the one on this host, or the pumps of all
/// partitions where none runs here and the config names several. The choice holds for the whole
/// command, so that it ends with the organism on this host instead of asking others.
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
        None => client_at(data),
    }
}

/// Loads an operator's key, and asks for its passphrase.
pub(super) fn signer_of(path: &Path) -> anyhow::Result<OperatorSigner> {
    hide_memory();
    OperatorSigner::load(path, || passphrase::of_key(path)).map_err(|error| {
        match error.downcast::<signing::Error>() {
            Ok(error) => CommandFailure::new(CommandExit::Usage, error.to_string()).into(),
            Err(error) => error,
        }
    })
}

/// Like [`waiting`], but returns an empty list if there is no journal.
pub(super) fn waiting_on_record(data: &Path, hold: Hold) -> anyhow::Result<Vec<HeldCall>> {
    let mut journals = partitions_in(data).into_iter();
    if !journals.any(|(_, journal)| journal.join(DATABASE).exists()) {
        let path = data.display().to_string();
        return Err(journal_target::failed(Error::Missing { path }));
    }
    waiting(data, hold)
}

/// Parses a message id from the command line.
pub(super) fn message(text: &str) -> anyhow::Result<MessageId> {
    let parsed = text.parse();
    parsed.map_err(|e: crate::ids::IdError| {
        CommandFailure::new(CommandExit::Usage, e.to_string()).into()
    })
}

/// Sends a decision to the organism. Starts an organism if none runs.
pub(super) fn decide(
    reach: OrganismReach,
    message: MessageId,
    what: Decision<SubmittedAnswer>,
    args: &DecisionArgs,
) -> anyhow::Result<()> {
    let signer = args.signer()?;
    let by = ListenerName::operator();
    let ruled = runtime()?.block_on(async {
        let organism = reach.client().await?;
        let decision =
            DecisionRequest { message, partition: None, by, what, origin: Some(args.origin()) };
        let ruled = organism.decide(decision, signer.as_ref()).await;
        organism.close().await?;
        anyhow::Ok(ruled?)
    })?;
    self::ruled(ruled)
}

/// Returns an error if the decision was refused.
pub(super) fn ruled(ruled: Option<Refusal>) -> anyhow::Result<()> {
    let Some(refusal) = ruled else { return Ok(()) };
    if let Some(expected) = &refusal.expected {
        note!("expected, for example:");
        expected.lines().for_each(|line| note!("  {line}"));
    }
    Err(CommandFailure::new(exit_of_refusal(&refusal), refusal.to_string()).into())
}

/// Exit code of a command whose request was refused. A refusal as `busy` is temporary.
pub(super) fn exit_of_refusal(refusal: &Refusal) -> CommandExit {
    match refusal.rule {
        RefusalRule::Busy | RefusalRule::Draining | RefusalRule::StorageFull => {
            CommandExit::TryAgain
        }
        _ => CommandExit::InvalidData,
    }
}

/// Reads a file, or standard input for `-`, without any check: the gate refuses invalid bytes, and
/// the refusal is recorded.
pub(super) fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let failed = |e: std::io::Error| {
        CommandFailure::new(CommandExit::Usage, format!("{} cannot be read: {e}", path.display()))
    };

    let source: Box<dyn std::io::Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };

    let most = limits::SUBMISSION_BYTES_MAX;
    let mut bytes = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        let text = format!("{} has more than {most} bytes; nothing was sent", path.display());
        return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
    }

    Ok(bytes)
}

/// The runtime of this command, until [`end_runtime`] is called.
static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

/// Returns the one runtime of this command. There is only one, because a connection lives no longer
/// than its runtime.
pub(super) fn runtime() -> anyhow::Result<Arc<Runtime>> {
    let mut shared = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*shared {
        return Ok(Arc::clone(runtime));
    }
    let runtime = Arc::new(runtime::Builder::new_multi_thread().enable_all().build()?);
    *shared = Some(Arc::clone(&runtime));
    Ok(runtime)
}

/// Ends all tasks of this command that still run.
pub(super) fn end_runtime() {
    drop(RUNTIME.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// The transport to the organism that runs on the journal in `data`. All requests of this command
/// share its connection, with any handshake.
fn socket_in(data: &Path, handshake: Handshake) -> SocketTransport {
    static SHARED: Mutex<Option<SocketTransport>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = shared.take().filter(|known| known.data() == data);
    let socket = known.unwrap_or_else(|| SocketTransport::new(data, Handshake::default()));
    *shared = Some(socket.clone());
    socket.with_handshake(handshake)
}

/// A client of the organism that runs on the journal in `data` at the time of each request.
fn client_in(data: &Path, handshake: Handshake) -> ServiceClient {
    ServiceClient::new(data, ServiceTransport::Socket(socket_in(data, handshake)))
}

/// Options that all commands with a decision share.
#[derive(Debug, clap::Args)]
pub(super) struct DecisionArgs {
    /// Note for the record. It is not sent to the caller.
    #[arg(long, default_value = "")]
    note: String,
    /// Sign the decision with this operator's key, made by `organism operator key`.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Decide in the organism that runs on the journal in this directory, regardless of its config.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
}

impl DecisionArgs {
    /// Origin of the decision: the user of this process, with the note.
    pub fn origin(&self) -> DecisionOrigin {
        let who = operator::this_user();
        let note = self.note.clone();
        DecisionOrigin { who, note, signature: None }
    }

    /// The signer of the decision, if a key was given.
    pub fn signer(&self) -> anyhow::Result<Option<OperatorSigner>> {
        self.sign.as_deref().map(signer_of).transpose()
    }
}

/// Option that selects the config of an organism.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArg {
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArg {
    pub fn load(&self) -> anyhow::Result<Config> {
        config(self.config.as_deref())
    }

    /// Loads the config for a process that hosts agents; `own` states that the process has its own
    /// NATS credentials.
    pub fn load_for_host(&self, own: bool) -> anyhow::Result<Config> {
        let load: LoadConfig<Config> = if own {
            |path, around| config::load_for_host(path, around, true)
        } else {
            |path, around| config::load_for_host(path, around, false)
        };

        loaded(self.config.as_deref(), load)
    }

    /// Loads the config for commands that call no model themselves. Keys are required only if such
    /// a command starts an organism.
    pub fn load_without_keys(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        belongs(&config.directories())?;
        Ok(config)
    }

    /// Loads the config for repairing a journal, which may belong to no project yet.
    pub fn load_to_repair(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        project::check_to_repair(&config.directories()).map_err(organism::Error::from)?;
        Ok(config)
    }

    /// Loads the config for commands that only read.
    pub fn load_to_read(&self) -> anyhow::Result<Config> {
        let config = self.load_without_keys()?;
        note_change(self.config.as_deref(), &config.directories());
        Ok(config)
    }

    /// Finds the organism that a decision is for. A running organism is found even if the config is
    /// invalid.
    pub fn reach(&self, args: &DecisionArgs) -> anyhow::Result<OrganismReach> {
        if let Some(data) = &args.data {
            return running_on(data);
        }

        let given = self.config.as_deref();
        let around = ConfigEnvironment::of_process();
        let found = find_directories(given).ok();
        let running = found.and_then(|found| running_config(&found).map(|config| (found, config)));
        let Some((directories, config)) = running else {
            let config = Box::new(self.load_without_keys()?);
            return Ok(OrganismReach::Config { config, is_running: false });
        };

        belongs(&directories)?;
        note_change_to(given, || config);
        let path = config::locate(given, &around);

        match path.and_then(|path| config::load_without_keys(&path, &around)) {
            Ok(_) => {
                let config = Box::new(self.load_without_keys()?);
                Ok(OrganismReach::Config { config, is_running: true })
            }
            Err(_) => {
                let handshake = Handshake::of_project(&directories);
                Ok(OrganismReach::Running { data: directories.data, handshake })
            }
        }
    }

    /// Like [`ConfigArg::load_without_keys`], but does not check that the directories belong to the
    /// project.
    pub fn load_unbound(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_without_keys)
    }

    /// Loads the config for the command that writes keys, which the config may already name.
    pub fn load_for_servers(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_for_servers)
    }
}
