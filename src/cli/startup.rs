//! Start-up steps that commands share: config, runtime, log.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use tokio::time::timeout;

use crate::audit::{self, HeldCall};
use crate::children;
use crate::config::{
    self, Config, ConfigEnvironment, ConfigProblems, ProjectFolders, StorageConfig,
};
use crate::envelope::{Refusal, Rule};
use crate::ids::{Digest, ListenerName, MessageId};
use crate::journal::sqlite::{DATABASE, Reader};
use crate::journal::{Error, partitions_in};
use crate::limits;
use crate::mutant::mutant;
use crate::organism::{self, OrganismClient, operator, project};
use crate::service::handshake::Handshake;
use crate::service::signing::{self, OperatorSigner};
use crate::service::{
    self, DecisionRequest, ServiceClient, SocketTransport, SubmittedAnswer, socket_path,
};
use crate::thread::{Decision, DecisionOrigin, Hold};

use super::exit::CommandFailure;
use super::{CommandExit, journal_target, passphrase, problems};

/// Loads the config a verb was given, or says everything that is wrong with it and exits 78.
pub(super) fn config(given: Option<&Path>) -> anyhow::Result<Config> {
    loaded(given, config::load)
}

/// Where the config of a command keeps its record. The rest of that config may be wrong: a record
/// can be proved when its organism cannot be started.
pub(super) fn storage(given: Option<&Path>) -> anyhow::Result<StorageConfig> {
    loaded(given, config::storage)
}

/// How a config is read.
type LoadConfig<T> = fn(&Path, &ConfigEnvironment) -> Result<T, ConfigProblems>;

fn loaded<T>(given: Option<&Path>, load: LoadConfig<T>) -> anyhow::Result<T> {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(given, &around);
    let loaded = path.and_then(|path| load(&path, &around));
    hide_memory();
    adopt_orphans();
    loaded.map_err(|found| {
        problems::report(&found);
        CommandFailure::silent(CommandExit::Config).into()
    })
}

/// From here on this process may hold keys: other programs of the same user, such as what a
/// listener starts, cannot read its memory or its environment.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if mutant("leave-memory-open") {
            return;
        }
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!("this process can be looked into by others of the same user: {error}");
        }
    }
}

/// From here on a process that detaches itself from a listener is still known to stem from here.
fn adopt_orphans() {
    if mutant("leave-orphans") {
        return;
    }
    if let Err(error) = children::become_subreaper() {
        tracing::warn!("a process that detaches from its listener is not recognised: {error}");
    }
}

/// Finds the journal's directories in the config. Other problems of the config do not matter to
/// commands that only read.
pub(super) fn directories(given: Option<&Path>) -> anyhow::Result<ProjectFolders> {
    let found = find_directories(given).map_err(|problems| {
        problems::report(&problems);
        note!("a journal can be named without its config, with --data DIR");
        CommandFailure::silent(CommandExit::Config)
    })?;
    belongs(&found)?;
    note_change(given, &found);
    Ok(found)
}

/// Finds the directories by the config, or by the config's path where it cannot be read at all.
fn find_directories(given: Option<&Path>) -> Result<ProjectFolders, ConfigProblems> {
    let around = ConfigEnvironment::of_process();
    let file = config::locate(given, &around)?;
    config::directories(&file, &around).or_else(|problems| {
        static ONCE: Once = Once::new();
        let found = project::by_path(&file, &around).ok_or(problems)?;
        let (shown, data) = (file.display(), found.data.display());
        ONCE.call_once(|| {
            note!(
                "note: {shown} cannot be read (`organism check` says why); the journal of its project is \
                 {data}"
            );
        });
        Ok(found)
    })
}

/// Says so, once in a command, where the organism runs with another config than the one that
/// stands there now.
pub(super) fn note_change(given: Option<&Path>, directories: &ProjectFolders) {
    note_change_to(given, || running_config(directories).flatten());
}

/// As [`note_change`], where `running` returns the digest of the config that runs.
fn note_change_to(given: Option<&Path>, running: impl FnOnce() -> Option<Digest>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| note_change_now(given, running()));
}

fn note_change_now(given: Option<&Path>, running: Option<Digest>) {
    // A hosted process gets no digest, and no note.
    let Some(running) = running else { return };
    let around = ConfigEnvironment::of_process();
    let now = config::locate(given, &around)
        .and_then(|path| config::load_without_keys(&path, &around))
        .map(|config| config.digest);
    match now {
        Ok(now) if now == running => {}
        Ok(now) => note!(
            "note: the config has changed since the organism started: it runs with {running}, and \
             the config is {now} now; the change takes effect at a restart"
        ),
        Err(_) => note!(
            "note: the config has changed since the organism started, and no longer loads \
             (`organism check` says why); the organism goes on with {running}"
        ),
    }
}

/// Digest of the config of the organism that runs in these directories, if it responds in time. None
/// where none runs.
fn running_config(directories: &ProjectFolders) -> Option<Option<Digest>> {
    if !socket_path(&directories.data).exists() {
        return None;
    }
    let asking = async {
        let handshake = Handshake::of_project(directories);
        let socket = SocketTransport::find(&directories.data, handshake).await.ok().flatten()?;
        Some(socket.running_config().await.ok().flatten())
    };
    runtime().ok()?.block_on(asking)
}

/// The handshake of a command that knows only the directory of the journal.
fn handshake_in(data: &Path) -> anyhow::Result<Handshake> {
    let project = project::stored(data).map_err(organism::Error::from)?;
    Ok(project.as_deref().map(Handshake::of_path).unwrap_or_default())
}

/// The organism that runs on the journal in `data`, whatever its config is.
fn running_on(data: &Path) -> anyhow::Result<OrganismReach> {
    let handshake = handshake_in(data)?;
    let find = SocketTransport::find(data, handshake.clone());
    if runtime()?.block_on(find).is_ok_and(|found| found.is_some()) {
        return Ok(OrganismReach::Running { data: data.to_owned(), handshake });
    }
    let text = format!(
        "no organism runs on {}: start it, or name its config instead of --data, and one is started \
         for the decision",
        data.display()
    );
    Err(CommandFailure::new(CommandExit::Unavailable, text).into())
}

/// How a verb that decides reaches the organism.
pub(super) enum OrganismReach {
    /// Through its config: the organism runs, or is started for the occasion.
    Config(Box<Config>),
    /// Through its socket alone, as its config no longer loads or was not named.
    Running { data: PathBuf, handshake: Handshake },
}

impl OrganismReach {
    pub fn data(&self) -> &Path {
        match self {
            Self::Config(config) => &config.data,
            Self::Running { data, .. } => data,
        }
    }

    /// The client of the organism, which is started where the config is known and none runs.
    pub async fn client(self) -> Result<OrganismClient, organism::Error> {
        match self {
            Self::Config(config) => OrganismClient::open(*config).await,
            Self::Running { data, handshake } => {
                let found = ServiceClient::find(&data, handshake).await?;
                Ok(found.ok_or(service::Error::Lost)?.into())
            }
        }
    }

    /// Whether one journal has all threads.
    pub fn has_one_journal(&self) -> bool {
        match self {
            Self::Config(config) => config.partitions() == 1,
            Self::Running { .. } => true,
        }
    }
}

/// Refuses the directories of another project.
fn belongs(directories: &ProjectFolders) -> anyhow::Result<()> {
    project::check(directories).map_err(|error| organism::Error::from(error).into())
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
                CommandFailure::new(CommandExit::Usage, text).into()
            })
        }
        None => match clients.as_slice() {
            [only] => Ok(only.clone()),
            _ => {
                let text = format!("say which client sends, with --as: {}", names());
                Err(CommandFailure::new(CommandExit::Usage, text).into())
            }
        },
    }
}

/// The calls of the journals in `data` that wait for a person in this way: from the organism that runs,
/// or where none responds from the journals, each read once.
pub(super) fn waiting(data: &Path, hold: Hold) -> anyhow::Result<Vec<HeldCall>> {
    let runtime = runtime()?;
    let found = ServiceClient::find(data, handshake_in(data)?);
    let running = runtime.block_on(found).ok().flatten();
    let mut all = Vec::new();
    let mut is_read = false;
    for (partition, journal) in partitions_in(data) {
        let query = async {
            let query = running.as_ref()?.held_calls(partition.unwrap_or_default());
            timeout(limits::HELD_PATIENCE, query).await.ok()?.ok()
        };
        if let Some(held) = runtime.block_on(query) {
            all.extend(held);
            continue;
        }
        match Reader::open(&journal).and_then(|reader| audit::held(&reader)) {
            // A journal that does not exist holds nothing.
            Err(Error::Missing { .. }) => {}
            held => {
                all.extend(held.map_err(journal_target::failed)?);
                is_read = true;
            }
        }
    }
    if is_read {
        note!(
            "note: no organism responds to this command; the journal in {} is read as it stands now",
            data.display()
        );
    }
    all.retain(|call| call.hold == hold);
    HeldCall::sort(&mut all);
    Ok(all)
}

/// As [`waiting`], for who lists it: where there is no journal, nothing is known.
pub(super) fn waiting_on_record(data: &Path, hold: Hold) -> anyhow::Result<Vec<HeldCall>> {
    let mut journals = partitions_in(data).into_iter();
    if !journals.any(|(_, journal)| journal.join(DATABASE).exists()) {
        let path = data.display().to_string();
        return Err(journal_target::failed(Error::Missing { path }));
    }
    waiting(data, hold)
}

/// A message id as it was typed.
pub(super) fn message(text: &str) -> anyhow::Result<MessageId> {
    let parsed = text.parse();
    parsed.map_err(|e: crate::ids::IdError| {
        CommandFailure::new(CommandExit::Usage, e.to_string()).into()
    })
}

/// Has something decided by the organism, started for it where none runs.
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

/// Says why a decision was refused, if it was.
pub(super) fn ruled(ruled: Option<Refusal>) -> anyhow::Result<()> {
    let Some(refusal) = ruled else { return Ok(()) };
    if let Some(expected) = &refusal.expected {
        note!("expected, for example:");
        expected.lines().for_each(|line| note!("  {line}"));
    }
    Err(CommandFailure::new(exit_of_refusal(&refusal), refusal.to_string()).into())
}

/// A refusal for lack of room passes by itself.
pub(super) fn exit_of_refusal(refusal: &Refusal) -> CommandExit {
    match refusal.rule {
        Rule::Busy | Rule::Draining | Rule::StorageFull => CommandExit::TryAgain,
        _ => CommandExit::InvalidData,
    }
}

/// A file's bytes as they are, or those of standard input for `-`: what is wrong with them is
/// refused by the gate, on the record.
pub(super) fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let failed = |e: std::io::Error| {
        CommandFailure::new(CommandExit::Usage, format!("{} cannot be read: {e}", path.display()))
    };
    let source: Box<dyn std::io::Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(failed)?),
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

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Arguments of every command that takes a decision.
#[derive(Debug, clap::Args)]
pub(super) struct DecisionArgs {
    /// Put on record with the decision, and told to nobody.
    #[arg(long, default_value = "")]
    note: String,
    /// Sign the decision with this key of an operator, made by `organism operator key`.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Decide in the organism that runs on the journal in this directory, whatever its config says.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
}

impl DecisionArgs {
    /// The user of this process, and the note.
    pub fn origin(&self) -> DecisionOrigin {
        let (who, note) = (operator::this_user(), self.note.clone());
        DecisionOrigin { who, note, signature: None }
    }

    /// Returns the signer of the decision, if one is configured.
    pub fn signer(&self) -> anyhow::Result<Option<OperatorSigner>> {
        let Some(path) = &self.sign else { return Ok(None) };
        hide_memory();
        OperatorSigner::load(path, || passphrase::of_key(path)).map(Some).map_err(|error| {
            match error.downcast::<signing::Error>() {
                Ok(error) => CommandFailure::new(CommandExit::Usage, error.to_string()).into(),
                Err(error) => error,
            }
        })
    }
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

    /// For who takes turns of agents elsewhere; `own` where it has keys of its own for the servers.
    pub fn load_for_host(&self, own: bool) -> anyhow::Result<Config> {
        loaded(
            self.config.as_deref(),
            match own {
                true => |path, around| config::load_for_host(path, around, true),
                false => |path, around| config::load_for_host(path, around, false),
            },
        )
    }

    /// For verbs that ask no provider, or have the organism that runs do their work: where none
    /// runs, it is started only with the keys.
    pub fn load_without_keys(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        belongs(&config.directories())?;
        Ok(config)
    }

    /// For who repairs a journal, which may name no project.
    pub fn load_to_repair(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        project::check_to_repair(&config.directories()).map_err(organism::Error::from)?;
        Ok(config)
    }

    /// For verbs that show what the record and the config come to.
    pub fn load_to_read(&self) -> anyhow::Result<Config> {
        let config = self.load_without_keys()?;
        note_change(self.config.as_deref(), &config.directories());
        Ok(config)
    }

    /// For verbs that decide: with a config that no longer loads they still reach the organism that
    /// runs.
    pub fn reach(&self, args: &DecisionArgs) -> anyhow::Result<OrganismReach> {
        if let Some(data) = &args.data {
            return running_on(data);
        }
        let given = self.config.as_deref();
        let around = ConfigEnvironment::of_process();
        let found = find_directories(given).ok();
        let running = found.and_then(|found| running_config(&found).map(|config| (found, config)));
        let Some((directories, config)) = running else {
            return Ok(OrganismReach::Config(Box::new(self.load_without_keys()?)));
        };

        belongs(&directories)?;
        note_change_to(given, || config);
        let path = config::locate(given, &around);
        match path.and_then(|path| config::load_without_keys(&path, &around)) {
            Ok(_) => Ok(OrganismReach::Config(Box::new(self.load_without_keys()?))),
            Err(_) => {
                let handshake = Handshake::of_project(&directories);
                Ok(OrganismReach::Running { data: directories.data, handshake })
            }
        }
    }

    /// As [`ConfigArg::load_without_keys`], whichever project the directories belong to.
    pub fn load_unbound(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_without_keys)
    }

    /// For who writes the keys that it may name.
    pub fn load_for_servers(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_for_servers)
    }
}
