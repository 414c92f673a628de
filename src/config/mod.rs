//! The config: one TOML file. Loading returns a valid config, or every problem at once.
//!
//! Starts nothing and keeps no handles. Must not know terminals: problems are data, and the command
//! line draws them. `docs/CONFIG.md` describes the file.

mod agents;
mod budgets;
mod config_problem;
mod duration;
mod effective;
mod environment;
mod file;
mod http;
mod journal_directories;
mod keys;
mod mask;
mod members;
mod missing_keys;
mod models;
mod names;
mod operators;
mod overrides;
mod payloads;
mod program;
mod project;
mod proof;
mod read;
mod remotes;
mod secrets;
mod sections;
mod short_types;
mod source_text;
mod storage;
mod syntax;
mod telemetry;
mod transports;
mod tree;
mod variables;
mod vocabulary;
mod withheld;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

pub use crate::agent::{ActionTransport, FinalFormat, FinalMode, MemoryScope};
use crate::contract::{Contracts, TreeLimits};
use crate::ids::{Digest, ListenerName, PayloadName};
use crate::journal::{jetstream, partition_in};
use crate::model::TokenPrice;
pub use crate::model::ToolChoice;
use crate::model::playback::TurnRecorder;
use crate::model::remote;
use crate::model::router::{RateLimits, RoutingStrategy};
use crate::nats;
use crate::schema::Schemas;
use crate::thread::OperatorKeys;
pub use config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
pub use duration::show as show_duration;
pub use environment::{ConfigEnvironment, locate};
pub use http::loopback;
pub use keys::nearest;
pub use missing_keys::MissingKeys;
pub use models::shown as shown_model;
pub use project::{ProjectPaths, directory_name, is_directory_of, path_of};
pub use proof::{ProofSettings, is_public_key, proof_settings};
pub use secrets::ClientSecret;
pub use source_text::{ConfigSource, SourceRange};
pub use telemetry::TelemetryConfig;
pub use withheld::PASSPHRASE_FILE;

/// A valid config.
#[derive(Clone)]
pub struct Config {
    /// Name of the organism: one token.
    pub name: String,
    /// Path of the config file, as given.
    pub file: PathBuf,
    /// Absolute directory of that file: base of its relative paths, and working directory of child
    /// processes.
    pub directory: PathBuf,
    /// The project that owns the journal, the socket and the keys.
    pub project: ProjectPaths,
    /// Directory of the journal.
    pub data: PathBuf,
    /// Directory of keys and of the state's copy of checkpoints.
    pub state: PathBuf,
    /// Directory that checkpoints are copied to, apart from `data` and `state`.
    pub checkpoints: Option<PathBuf>,
    pub storage: StorageConfig,
    /// Loopback address that serves health and metrics.
    pub http: Option<SocketAddr>,
    /// Collector of spans, if the config names one.
    pub telemetry: Option<TelemetryConfig>,
    /// Variables with keys of the collector, also if no spans are exported. They are hidden from
    /// listeners.
    pub collector_keys: Vec<String>,
    pub contracts: Contracts,
    pub schemas: Schemas,
    pub processes: Vec<ProcessSpec>,
    /// Listeners that are on NATS; agents are not among them.
    pub remotes: Vec<ListenerName>,
    /// Clients that may prove themselves with a secret.
    pub client_secrets: Vec<ClientSecret>,
    /// Public keys of operators. Without any, decisions need no signature.
    pub operators: OperatorKeys,
    /// Environment variables that operators' keys are read from.
    pub operator_variables: Vec<String>,
    /// NATS servers, if the config names any.
    pub nats: Option<nats::Options>,
    pub agents: Vec<AgentSpec>,
    pub models: Vec<ModelSpec>,
    pub limits: TreeLimits,
    /// Notes for the reader about settings that are valid but surprising.
    pub notes: Vec<String>,
    /// Maximum payload size in bytes.
    pub payload_bytes: usize,
    /// Digest of `text`.
    pub digest: Digest,
    /// Missing keys, each with its model. Commands that only read, or call a running organism, do
    /// not need them.
    pub keys_missing: Arc<MissingKeys>,
    /// Recorder of model answers, if they are recorded.
    pub recorder: Option<Arc<TurnRecorder>>,
    /// Path of the `organism` program that ties listeners' processes to this one. Set by an
    /// embedding program if it is neither beside that program nor on `PATH`.
    pub launcher: Option<PathBuf>,
    /// The effective config as JSON: defaults, overrides, prompt texts and the digests of
    /// schemas and recordings; no secrets, no paths of this machine.
    pub text: String,
}

impl Config {
    /// Directories of the journal and of its state, with the project they belong to.
    pub fn directories(&self) -> ProjectFolders {
        let data = self.data.clone();
        let state = self.state.clone();
        ProjectFolders { project: self.project.clone(), data, state }
    }

    /// All texts that the journal keeps as blobs: the effective config with its prompts, and the
    /// schemas.
    pub fn texts(&self) -> Vec<&str> {
        std::iter::once(self.text.as_str()).chain(self.schemas.documents()).collect()
    }

    /// Number of partitions, and so of pumps.
    pub fn partitions(&self) -> u32 {
        match &self.storage {
            StorageConfig::Embedded => 1,
            StorageConfig::JetStream { journal, .. } => journal.partitions,
        }
    }

    /// Agents that run in `organism host` processes.
    pub fn far_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| agent.is_far)
    }

    /// Agents that run in the process of the pump.
    pub fn near_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| !agent.is_far)
    }

    /// Moves every agent into the process of the pump, regardless of the file.
    pub fn gather_agents(&mut self) {
        self.agents.iter_mut().for_each(|agent| agent.is_far = false);
    }

    /// Missing keys of a process that hosts only `agents`.
    pub fn keys_missing_for<'a>(
        &'a self,
        agents: impl Iterator<Item = &'a AgentSpec>,
    ) -> ConfigProblems {
        self.keys_missing.of_agents(agents, &self.models)
    }

    /// Missing keys of the pump's process.
    pub fn keys_missing_here(&self) -> ConfigProblems {
        self.keys_missing.of_pump(&self.agents, &self.models)
    }

    /// The config of one partition's pump. Keys of checkpoints are shared by all partitions.
    pub fn of_partition(&self, partition: u32) -> Self {
        let mut config = self.clone();
        if let StorageConfig::JetStream { journal, .. } = &mut config.storage
            && journal.partitions > 1
        {
            journal.partition = partition;
            config.data = partition_in(&self.data, partition);
        }

        config
    }
}

/// Storage of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageConfig {
    /// In the data directory only.
    Embedded,
    /// In a stream on these servers, with a projection for readers in the data directory.
    JetStream { servers: Box<nats::Options>, journal: jetstream::Options },
}

/// A listener hosted as a child process.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    pub name: ListenerName,
    /// Absolute path of the program, then its arguments.
    pub command: Vec<String>,
    pub env: Vec<(String, SecretValue)>,
    pub instances: u32,
}

/// A secret value. It never prints itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Settings of an agent besides its contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    #[serde(rename = "name")]
    pub name: ListenerName,
    /// Whether the agent runs in an `organism host` process and is reached over NATS. Its
    /// deliveries are the same either way.
    #[serde(skip)]
    pub is_far: bool,
    /// Name of one of the config's models.
    #[serde(rename = "model")]
    pub model: String,
    #[serde(rename = "transport")]
    pub transport: ActionTransport,
    #[serde(rename = "memory")]
    pub memory: MemoryScope,
    /// Maximum model calls for each call.
    #[serde(rename = "max_iterations")]
    pub max_iterations: u32,
    /// Payload name of the final, which ends the agent's call.
    #[serde(rename = "final_name")]
    pub final_name: PayloadName,
    #[serde(rename = "final_format")]
    pub final_format: FinalFormat,
    #[serde(rename = "final_by", skip_serializing_if = "FinalMode::is_action")]
    pub final_by: FinalMode,
    #[serde(rename = "tool_choice", serialize_with = "tool_choice")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether each turn gets a notice.
    #[serde(rename = "notice")]
    pub notice: bool,
    /// Sections of the prompt by name, in config order.
    #[serde(rename = "prompt")]
    pub prompt: Vec<(String, String)>,
}

fn tool_choice<S: serde::Serializer>(
    choice: &Option<ToolChoice>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let word = choice.map(|choice| match choice {
        ToolChoice::Auto => "auto",
        ToolChoice::Required => "required",
        ToolChoice::None => "none",
    });
    word.serialize(serializer)
}

/// A model and its provider.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    pub name: String,
    pub provider: ProviderConfig,
    /// Maximum tokens of prompt and answer together.
    pub context_window: Option<u64>,
    pub price: Option<TokenPrice>,
}

#[derive(Debug, Clone)]
pub enum ProviderConfig {
    /// Plays recorded turns from a file with an absolute path.
    Playback { recording: PathBuf, max_tokens: Option<u32> },
    /// Calls a provider over the network.
    Remote { options: Box<remote::Options>, pace: RateLimits, attempts: u32 },
    /// Routes calls to others of the config's models, which replace each other.
    Routed { routes: Vec<String>, strategy: RoutingStrategy, attempts: u32 },
}

/// Directories of an organism's journal and of what is kept outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFolders {
    pub project: ProjectPaths,
    pub data: PathBuf,
    pub state: PathBuf,
}

/// Reads the file's sections, with overrides from the environment. Checks each section by itself.
fn read(
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Result<(sections::DeclaredSections, Arc<ConfigSource>), ConfigProblems> {
    let text = file::read(path, around)?;
    let shown = path.display().to_string();
    let (mut root, source) = tree::parse(&shown, &text, around, problems)?;
    overrides::apply(&mut root, around, problems);
    let sections = sections::read(&root, &source, problems);
    Ok((sections, source))
}

/// Returns the journal's directories even if other parts of the config are invalid, so that the
/// record of an organism that cannot start can be read. `Err` if the file does not state them.
pub fn directories(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<ProjectFolders, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, _) = read(path, around, &mut problems)?;
    match (&sections.name, sections.places_unread) {
        (Some(name), false) => Ok(sections.directories(name, path, around)),
        _ => Err(problems),
    }
}

/// Returns the journal's storage even if other parts of the config are invalid. `Err` holds every
/// problem if its own sections do not state it.
pub fn storage(path: &Path, around: &ConfigEnvironment) -> Result<StorageConfig, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, _) = read(path, around, &mut problems)?;
    let directory = file::directory(path, around);
    storage_of(&sections, &directory, around, &mut problems).ok_or(problems)
}

/// Loads and checks the config at `path`. Starts nothing. `Err` holds every problem.
pub fn load(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Needed)
}

/// Like [`load`], for a process that only hosts agents. It needs no listener programs and none of
/// the pump's NATS credentials if it has its own. Model keys are checked later, when its agents are
/// known.
pub fn load_for_host(
    path: &Path,
    around: &ConfigEnvironment,
    own: bool,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, if own { KeyRequirement::Own } else { KeyRequirement::Host })
}

/// Like [`load`], for commands that only read, or that may find the organism running. Missing keys
/// are reported when an organism is started with this config.
pub fn load_without_keys(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Optional)
}

/// Like [`load_without_keys`], for the command that writes the servers' config and the keys that
/// this config may name already. Listener programs may be missing, too.
pub fn load_for_servers(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Unwritten)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyRequirement {
    Needed,
    Optional,
    /// Model keys are optional; secrets of clients are not read.
    Host,
    /// As `Host`, for a program with NATS credentials of its own.
    Own,
    /// As `Own`, without the check of the servers' sync settings.
    Unwritten,
}

/// Finds the programs of listeners. Problems count only for commands that start listeners.
fn processes(
    sections: &sections::DeclaredSections,
    directory: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> Vec<ProcessSpec> {
    let mut own = ConfigProblems::default();
    let processes = program::processes(&sections.members, directory, around, &mut own);
    if matches!(keys, KeyRequirement::Needed | KeyRequirement::Optional) {
        own.into_iter().for_each(|problem| problems.push(problem));
    }
    processes
}

/// Like [`read`], without the parts that this set of keys does not need.
fn read_as(
    path: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> Result<(sections::DeclaredSections, Arc<ConfigSource>), ConfigProblems> {
    let (mut sections, source) = read(path, around, problems)?;
    if matches!(keys, KeyRequirement::Own | KeyRequirement::Unwritten) {
        sections.storage.forget_whom();
    }

    if keys == KeyRequirement::Unwritten {
        sections.storage.forget_who_asks();
    }

    Ok((sections, source))
}

/// Storage of the journal, if the organism has a name.
fn storage_of(
    sections: &sections::DeclaredSections,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<StorageConfig> {
    let name = sections.name.as_deref()?;
    sections.storage.storage(name, directory, around, problems)
}

/// Reports a place for copies of checkpoints that is inside the organism's own directories.
fn check_proof(
    sections: &sections::DeclaredSections,
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    if let Some(name) = &sections.name {
        let own = sections.directories(name, path, around);
        sections.storage.proof.check(&own, &file::directory(path, around), problems);
    }
}

fn load_with(
    path: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
) -> Result<Config, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, source) = read_as(path, around, keys, &mut problems)?;
    let directory = file::directory(path, around);
    sections::check_directories(&sections, path, around, &mut problems);
    names::check(&sections, &source, &mut problems);
    budgets::check(&sections, &mut problems);
    let mut payloads = payloads::PayloadResolver::new(&directory);
    let contracts = payloads.contracts(&sections.payloads, &sections.members, &mut problems);
    let processes = processes(&sections, &directory, around, keys, &mut problems);
    let remotes = remotes::remotes(&sections, &mut problems);
    let client_secrets = secrets::read(&sections.members, &directory, around, keys, &mut problems);
    let agents = agents::agents(&sections.members, &payloads, &directory, &mut problems);
    let mut keys_missing = MissingKeys::default();
    let models =
        models::specs(&sections.models, &directory, around, &mut keys_missing, &mut problems);
    let storage = storage_of(&sections, &directory, around, &mut problems);
    let mut hints = Vec::new();
    let telemetry = sections.telemetry.telemetry(&directory, around, &mut hints, &mut problems);
    let notes = contracts.as_ref().map(|contracts| {
        transports::check(&sections.members, contracts, &payloads.schemas, &mut problems)
    });
    if keys == KeyRequirement::Needed {
        problems.also(keys_missing.of_pump(&agents, &models));
    }

    check_proof(&sections, path, around, &mut problems);
    problems.sort();
    let (Some(contracts), Some(name), Some(storage), true) =
        (contracts, &sections.name, storage, problems.is_empty())
    else {
        return Err(problems);
    };

    let text = effective_text(name, &sections, &contracts, &agents, &models, &payloads);
    let ProjectFolders { project, data, state } = sections.directories(name, path, around);
    Ok(Config {
        name: name.clone(),
        file: path.to_owned(),
        project,
        data,
        state,
        checkpoints: sections.storage.proof.checkpoints(&directory),
        storage,
        http: sections.http,
        telemetry,
        collector_keys: sections.telemetry.withheld(around),
        directory,
        contracts,
        schemas: payloads.schemas,
        processes,
        remotes,
        client_secrets,
        operators: sections.operators.keys(),
        operator_variables: sections.operators.variables.clone(),
        nats: sections.storage.servers(&file::directory(path, around), around),
        agents,
        models,
        limits: sections.limits,
        notes: payloads.notes.into_iter().chain(notes.into_iter().flatten()).chain(hints).collect(),
        payload_bytes: sections.payload_bytes,
        keys_missing: Arc::new(keys_missing),
        recorder: None,
        launcher: None,
        digest: Digest::of(text.as_bytes()),
        text,
    })
}

fn effective_text(
    name: &str,
    sections: &sections::DeclaredSections,
    contracts: &Contracts,
    agents: &[AgentSpec],
    models: &[ModelSpec],
    payloads: &payloads::PayloadResolver,
) -> String {
    let effective = effective::EffectiveConfig {
        name,
        limits: &sections.limits,
        payload_bytes: sections.payload_bytes,
        contracts: contracts.iter().collect(),
        processes: effective::processes(&sections.members),
        agents,
        models: models.iter().map(models::shown).collect(),
        operators: effective::operators(&sections.operators.keys()),
        schemas: payloads.digests(),
    };

    effective.text()
}
