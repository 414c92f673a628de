//! The config: one TOML file. Loading it returns a valid config, or all its problems at once.
//!
//! Loading starts nothing and keeps nothing open. This module must not know terminals: problems are
//! data, which the command line draws. `docs/CONFIG.md` describes the file.

mod agents;
mod budgets;
mod cases;
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
mod schedules;
mod secrets;
mod sections;
mod short_types;
mod source_text;
mod storage;
mod syntax;
mod telemetry;
mod transports;
mod tree;
mod undo;
mod variables;
mod vocabulary;
mod withheld;
mod workflows;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

pub use crate::agent::{ActionTransport, FinalFormat, FinalMode, MemoryScope};
use crate::contract::{Contracts, Schedule, TreeLimits};
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
use crate::workflow::{CompiledWorkflow, WorkflowDefinition};
pub use cases::{
    CaseAnswer, CaseExpectations, CaseFault, CaseFile, CaseInput, CaseText, CaseTurn, FailureClaim,
    PathClaims, TextClaim, WorkflowCase, check_cases, client_of, read_cases,
};
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
    /// Name of the organism, which is one token.
    pub name: String,
    /// Path of the config file, as it was given.
    pub file: PathBuf,
    /// Absolute directory of the config file. It is the base of the file's relative paths, and the
    /// working directory of child processes.
    pub directory: PathBuf,
    /// The project to which the journal, the socket and the keys belong.
    pub project: ProjectPaths,
    /// Directory of the journal.
    pub data: PathBuf,
    /// Directory of keys and of the checkpoints that are kept beside them.
    pub state: PathBuf,
    /// Directory, apart from `data` and `state`, into which checkpoints are copied.
    pub checkpoints: Option<PathBuf>,
    pub storage: StorageConfig,
    /// Loopback address that serves health and metrics.
    pub http: Option<SocketAddr>,
    /// Collector to which spans are exported, if the config names one.
    pub telemetry: Option<TelemetryConfig>,
    /// Names of variables that contain keys of the collector, even if no spans are exported. They
    /// are hidden from listeners.
    pub collector_keys: Vec<String>,
    pub contracts: Contracts,
    pub schemas: Schemas,
    pub processes: Vec<ProcessSpec>,
    /// Listeners that are on NATS, without agents.
    pub remotes: Vec<ListenerName>,
    /// Clients that can prove their identity by a secret.
    pub client_secrets: Vec<ClientSecret>,
    /// Clients that see what models write in their own threads.
    pub clients_with_steps: Vec<ListenerName>,
    /// Public keys of operators. If there are none, decisions need no signature.
    pub operators: OperatorKeys,
    /// Names of the environment variables from which operators' keys are read.
    pub operator_variables: Vec<String>,
    /// NATS servers, if the config names any.
    pub nats: Option<nats::Options>,
    pub agents: Vec<AgentSpec>,
    pub models: Vec<ModelSpec>,
    pub workflows: Vec<ConfiguredWorkflow>,
    pub schedules: Vec<Schedule>,
    /// Whether a pump of this process plans and runs the schedules. If not, the schedules in the
    /// journal stay as they are.
    pub runs_schedules: bool,
    pub limits: TreeLimits,
    /// Notes for the author of the config about settings that are valid but may surprise.
    pub notes: Vec<String>,
    /// Maximum payload size in bytes.
    pub payload_bytes: usize,
    /// Digest of `text`, which identifies the config.
    pub digest: Digest,
    /// API keys that are missing, each with its model. Commands that only read, or that use a
    /// running organism, do not need them.
    pub keys_missing: Arc<MissingKeys>,
    /// The recorder of model answers, if answers are recorded.
    pub recorder: Option<Arc<TurnRecorder>>,
    /// Path of the `organism` program that ties the processes of listeners to this one. An
    /// embedding program sets it if the program is neither beside it nor on `PATH`.
    pub launcher: Option<PathBuf>,
    /// The effective config as JSON: defaults, overrides, texts of prompts, and digests of schemas
    /// and recordings. Contains no secrets and no paths of this machine.
    pub text: String,
}

impl Config {
    /// Directories of the journal and of its state, and the project to which they belong.
    pub fn directories(&self) -> ProjectFolders {
        let data = self.data.clone();
        let state = self.state.clone();
        ProjectFolders { project: self.project.clone(), data, state }
    }

    /// All texts that the journal stores as blobs: the effective config with its prompts, and the
    /// schemas.
    pub fn texts(&self) -> Vec<&str> {
        let workflows = self.workflows.iter().map(|one| one.compiled.text.as_str());
        std::iter::once(self.text.as_str())
            .chain(self.schemas.documents())
            .chain(workflows)
            .collect()
    }

    /// Number of partitions. Each has its own pump.
    pub fn partitions(&self) -> u32 {
        match &self.storage {
            StorageConfig::Embedded => 1,
            StorageConfig::JetStream { journal, .. } => journal.partitions,
        }
    }

    /// Agents that run in `organism host` processes.
    pub fn remote_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| agent.is_remote)
    }

    /// Agents that run in the process of the pump.
    pub fn local_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| !agent.is_remote)
    }

    /// Makes every agent run in the process of the pump, whatever the file states.
    pub fn gather_agents(&mut self) {
        self.agents.iter_mut().for_each(|agent| agent.is_remote = false);
    }

    /// Missing keys of a process that hosts only `agents`.
    pub fn keys_missing_for<'a>(
        &'a self,
        agents: impl Iterator<Item = &'a AgentSpec>,
    ) -> ConfigProblems {
        self.keys_missing.of_agents(agents, &self.models)
    }

    /// Missing keys of the process in which the pump runs.
    pub fn keys_missing_here(&self) -> ConfigProblems {
        self.keys_missing.of_pump(&self.agents, &self.models)
    }

    /// The config for the pump of one partition. All partitions share the keys of checkpoints.
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

/// Where the journal is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageConfig {
    /// Only in the data directory.
    Embedded,
    /// In a stream on these servers. The data directory has a projection for readers.
    JetStream { servers: Box<nats::Options>, journal: jetstream::Options },
}

/// A listener hosted as a child process.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    pub name: ListenerName,
    /// Absolute path of the program, followed by its arguments.
    pub command: Vec<String>,
    pub env: Vec<(String, SecretValue)>,
    pub instances: u32,
}

/// A secret value, which is never printed.
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
    /// Whether the agent runs in an `organism host` process that is reached over NATS. The agent's
    /// deliveries are the same in both cases.
    #[serde(skip)]
    pub is_remote: bool,
    /// Name of the model, which is one of the config's.
    #[serde(rename = "model")]
    pub model: String,
    #[serde(rename = "transport")]
    pub transport: ActionTransport,
    #[serde(rename = "memory")]
    pub memory: MemoryScope,
    /// Maximum number of model calls in each call of the agent.
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
    /// Sections of the prompt, by name and in the order of the config.
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

/// A model of the config with its provider.
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
    /// Plays recorded turns from a file with an absolute path, with this pause before each chunk.
    Playback { recording: PathBuf, chunk_delay: Option<Duration>, max_tokens: Option<u32> },
    /// Calls a provider over the network.
    Remote { options: Box<remote::Options>, pace: RateLimits, attempts: u32 },
    /// Routes calls to several other models of the config, which can replace each other.
    Routed { routes: Vec<String>, strategy: RoutingStrategy, attempts: u32 },
}

/// Directories of an organism: that of the journal, and that of files kept outside the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFolders {
    pub project: ProjectPaths,
    pub data: PathBuf,
    pub state: PathBuf,
}

/// Reads the sections of the file, with overrides from the environment. Each section is checked
/// separately.
fn read(
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Result<(sections::DeclaredSections, Arc<ConfigSource>), ConfigProblems> {
    let text = file::read(path, around)?;
    let shown = path.display().to_string();
    let (mut root, source) = tree::parse(&shown, &text, around, problems)?;
    overrides::apply(&mut root, around, problems);
    let mut sections = sections::read(&root, &source, problems);
    sections.workflows = root.take(keys::WORKFLOWS.name);
    Ok((sections, source))
}

/// Returns the journal's directories even if other parts of the config are invalid, so that the
/// record of an organism that cannot start can be read. Returns `Err` if the file does not state
/// the directories.
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

/// Returns the journal's storage even if other parts of the config are invalid. If the sections
/// about storage are invalid, `Err` contains every problem of the config.
pub fn storage(path: &Path, around: &ConfigEnvironment) -> Result<StorageConfig, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, _) = read(path, around, &mut problems)?;
    let directory = file::directory(path, around);
    storage_of(&sections, &directory, around, &mut problems).ok_or(problems)
}

/// Loads and checks the config at `path`, without starting anything. `Err` contains every problem.
pub fn load(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Needed)
}

/// Like [`load`], for a process that only hosts agents. Such a process needs no programs of
/// listeners. If it has its own NATS credentials, it does not need the pump's. Keys of models are
/// checked later, when the agents are known.
pub fn load_for_host(
    path: &Path,
    around: &ConfigEnvironment,
    own: bool,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, if own { KeyRequirement::Own } else { KeyRequirement::Host })
}

/// Like [`load`], for commands that only read or that may use a running organism. Missing keys are
/// reported only when an organism is started with this config.
pub fn load_without_keys(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Optional)
}

/// Like [`load_without_keys`], for the command that writes the configs of servers and the keys. The
/// config may already name these keys. Programs of listeners may be missing, too.
pub fn load_for_servers(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Unwritten)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyRequirement {
    Needed,
    Optional,
    /// Keys of models are optional, and secrets of clients are not read.
    Host,
    /// Like `Host`, for a program that has its own NATS credentials.
    Own,
    /// Like `Own`, but the sync settings of the servers are not checked.
    Unwritten,
}

/// Finds the programs of listeners. Missing programs are reported only to commands that start
/// listeners.
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

/// Like [`read`], but leaves out the parts that this kind of command does not need.
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

/// Storage of the journal. `None` if the organism has no valid name.
fn storage_of(
    sections: &sections::DeclaredSections,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<StorageConfig> {
    let name = sections.name.as_deref()?;
    sections.storage.storage(name, directory, around, problems)
}

/// Checks the sections against each other.
fn check_sections(
    sections: &sections::DeclaredSections,
    source: &Arc<ConfigSource>,
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    sections::check_directories(sections, path, around, problems);
    names::check(sections, source, problems);
    budgets::check(sections, problems);
    check_proof(sections, path, around, problems);
}

/// The parts of a config that depend on its payloads.
struct ResolvedSections {
    /// Contracts of all members and workflows; `None` after a problem.
    contracts: Option<Contracts>,
    workflows: Vec<ConfiguredWorkflow>,
    schedules: Vec<Schedule>,
}

/// Resolves all payload names, and what depends on them.
fn resolve(
    sections: &sections::DeclaredSections,
    payloads: &mut payloads::PayloadResolver,
    place: (&Path, &ConfigEnvironment),
    problems: &mut ConfigProblems,
) -> ResolvedSections {
    payloads.declare(&sections.payloads, problems);
    let workflows = workflows::read(sections, payloads, place, problems);
    let of_workflows = workflows.contracts(&sections.limits, payloads, problems);
    let contracts = payloads.contracts(&sections.members, of_workflows, problems);
    if let Some(contracts) = &contracts {
        undo::check(&sections.members, contracts, &payloads.schemas, problems);
    }
    let workflows = workflows.configured(sections, contracts.as_ref(), payloads, problems);
    let schemas = &payloads.schemas;
    let schedules = schedules::schedules(sections, contracts.as_ref(), schemas, place.0, problems);
    ResolvedSections { contracts, workflows, schedules }
}

/// Notes for the author about transports of agents.
fn transport_notes(
    sections: &sections::DeclaredSections,
    contracts: Option<&Contracts>,
    payloads: &payloads::PayloadResolver,
    problems: &mut ConfigProblems,
) -> Vec<String> {
    let notes = contracts.map(|contracts| {
        transports::check(&sections.members, contracts, &payloads.schemas, problems)
    });
    notes.into_iter().flatten().collect()
}

/// Reports a directory for copies of checkpoints that is inside the organism's own directories.
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
    check_sections(&sections, &source, path, around, &mut problems);
    let mut payloads = payloads::PayloadResolver::new(&directory);
    let ResolvedSections { contracts, workflows, schedules } =
        resolve(&sections, &mut payloads, (&directory, around), &mut problems);
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
    let notes = transport_notes(&sections, contracts.as_ref(), &payloads, &mut problems);
    report_unmet(keys, keys_missing.of_pump(&agents, &models), &mut problems);
    problems.sort();
    let (Some(contracts), Some(name), Some(storage), true) =
        (contracts, &sections.name, storage, problems.is_empty())
    else {
        return Err(problems);
    };
    let parts = (&*agents, &*models, &*workflows, &*schedules);
    let text = effective_text(name, &sections, &contracts, parts, &payloads);
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
        clients_with_steps: with_steps(&sections.members),
        operators: sections.operators.keys(),
        operator_variables: sections.operators.variables.clone(),
        nats: sections.storage.servers(&file::directory(path, around), around),
        agents,
        models,
        workflows,
        schedules,
        runs_schedules: true,
        limits: sections.limits,
        notes: payloads.notes.into_iter().chain(notes).chain(hints).collect(),
        payload_bytes: sections.payload_bytes,
        keys_missing: Arc::new(keys_missing),
        recorder: None,
        launcher: None,
        digest: Digest::of(text.as_bytes()),
        text,
    })
}

/// The clients whose config says `steps = true`.
fn with_steps(members: &[members::DeclaredMember]) -> Vec<ListenerName> {
    let clients = members.iter().filter(|member| member.steps);
    clients.map(|client| client.name.value.clone()).collect()
}

/// Reports the missing keys and programs (`unmet`) to commands that start an organism.
fn report_unmet(keys: KeyRequirement, unmet: ConfigProblems, problems: &mut ConfigProblems) {
    if keys == KeyRequirement::Needed {
        problems.also(unmet);
    }
}

/// Agents, models, workflows and schedules.
type EffectiveParts<'a> =
    (&'a [AgentSpec], &'a [ModelSpec], &'a [ConfiguredWorkflow], &'a [Schedule]);

fn effective_text(
    name: &str,
    sections: &sections::DeclaredSections,
    contracts: &Contracts,
    (agents, models, workflows, schedules): EffectiveParts<'_>,
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
        clients_with_steps: with_steps(&sections.members),
        schemas: payloads.digests(),
        workflows: effective::workflows(workflows),
        schedules: effective::schedules(schedules),
    };

    effective.text()
}

/// A workflow of the config.
#[derive(Debug, Clone)]
pub struct ConfiguredWorkflow {
    pub definition: WorkflowDefinition,
    pub compiled: CompiledWorkflow,
}
