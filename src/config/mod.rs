//! The config, which is one TOML file. Loading it returns a valid config, or all its problems at
//! once.
//!
//! Loading starts nothing and keeps nothing open. This module must not know terminals: it returns
//! problems as data, and the command line formats them. `docs/CONFIG.md` describes the file.

mod agents;
mod alerts;
mod browser_key;
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
mod load;
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
mod reload;
mod remotes;
mod schedules;
mod secrets;
mod sections;
mod shell_word;
mod shipped_listeners;
mod shipped_schemas;
mod short_types;
mod source_text;
mod storage;
mod stored;
mod syntax;
mod telemetry;
mod transports;
mod tree;
mod trial_source;
mod unclosed;
mod undo;
mod variables;
mod vocabulary;
mod withheld;
mod workflows;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
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
use crate::mutant::mutant;
use crate::nats;
use crate::schema::Schemas;
use crate::thread::OperatorKeys;
use crate::workflow::{CompiledWorkflow, WorkflowDefinition};
pub use alerts::{AlertRulesConfig, AlertsConfig};
pub use browser_key::{BrowserKeyChange, BrowserKeyError, with_browser_key};
pub use cases::{
    CaseAnswer, CaseExpectations, CaseFault, CaseFile, CaseInput, CaseText, CaseTurn, FailureClaim,
    PathClaims, TextClaim, WorkflowCase, check_cases, client_of, read_cases,
};
pub use config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
pub use duration::{parse as parse_duration, show as show_duration};
pub use environment::{ConfigEnvironment, locate};
pub use http::loopback;
pub use keys::nearest;
pub use load::{
    directories, load, load_for_check, load_for_host, load_for_servers, load_without_keys, storage,
};
pub use missing_keys::MissingKeys;
pub use models::shown as shown_model;
pub use program::{is_installed as is_program_installed, missing_interpreter};
pub use project::{ProjectPaths, directory_name, is_directory_of, path_of};
pub use proof::{ProofSettings, is_public_key, proof_settings};
pub use reload::ReloadComparison;
pub use secrets::ClientSecret;
pub use shell_word::in_shell;
pub use source_text::{ConfigSource, SourceRange};
pub use stored::{
    BootConfig, CONFIG_NAME, ComparedConfig, ConfigChange, ConfigHistory, ConfigManifest,
    ExtractedConfig, RecordedSchema, StoredConfig, StoredConfigError, config_changes,
    effective_of as effective_config_of, schemas_of,
};
pub use telemetry::TelemetryConfig;
pub use trial_source::TrialSource;
pub use withheld::PASSPHRASE_FILE;
pub(crate) use withheld::hides_same;

/// A valid config.
#[derive(Clone)]
pub struct Config {
    /// Name of the organism, in the format of a [`ListenerName`].
    pub name: String,
    /// Path of the config file, as it was given.
    pub file: PathBuf,
    /// Absolute directory of the config file. Relative paths in the file are resolved against this
    /// directory, which is also the working directory of child processes.
    pub directory: PathBuf,
    /// The project to which the journal, the socket and the keys belong.
    pub project: ProjectPaths,
    /// Directory of the journal.
    pub data: PathBuf,
    /// Directory of the keys and of the checkpoints.
    pub state: PathBuf,
    /// Directory, apart from `data` and `state`, into which checkpoints are copied. `None` if no
    /// checkpoints are copied.
    pub checkpoints: Option<PathBuf>,
    /// Number of records between two snapshots of the pump's state.
    pub snapshot_records: u64,
    pub storage: StorageConfig,
    /// Loopback address that serves health and metrics; `None` if no address serves them.
    pub http: Option<SocketAddr>,
    /// The collector to which spans are exported; `None` if spans are not exported.
    pub telemetry: Option<TelemetryConfig>,
    /// Settings of alerts; `None` if the config has no section `[alerts]`.
    pub alerts: Option<Arc<AlertsConfig>>,
    pub contracts: Contracts,
    pub schemas: Schemas,
    pub processes: Vec<ProcessSpec>,
    /// Listeners on NATS, except agents.
    pub remotes: Vec<ListenerName>,
    /// Clients that can prove their identity by a secret.
    pub client_secrets: Vec<ClientSecret>,
    /// Clients that may see the text that models write. Each client sees the text only in its own
    /// threads.
    pub clients_with_steps: Vec<ListenerName>,
    /// Public keys of operators. If there are none, decisions need no signature.
    pub operators: OperatorKeys,
    /// Names of environment variables with secrets, which listeners and the alert command do not
    /// inherit. The list is complete even in the copy of the config with which a workflow test or a
    /// trial runs, although this copy may lack models and servers.
    pub withheld: Vec<String>,
    /// Settings of the connections to NATS; `None` if the config names no NATS servers.
    pub nats: Option<nats::Options>,
    pub agents: Vec<AgentSpec>,
    /// Place of each agent's name in the text of the config, for problems that are found after the
    /// config was read.
    pub agent_places: BTreeMap<ListenerName, SourceRange>,
    pub models: Vec<ModelSpec>,
    pub workflows: Vec<ConfiguredWorkflow>,
    pub schedules: Vec<Schedule>,
    /// Whether a pump of this process plans and runs the schedules. If false, the schedules in the
    /// journal stay as they are.
    pub runs_schedules: bool,
    pub limits: TreeLimits,
    /// Notes for the author of the config about settings that are valid but may surprise.
    pub notes: Vec<String>,
    /// Maximum payload size in bytes.
    pub payload_bytes: usize,
    /// Digest of `text`, which identifies the config.
    pub digest: Digest,
    /// API keys that are missing, each with its model. A command that only reads, or that sends
    /// requests to a running organism, does not need these keys.
    pub keys_missing: Arc<MissingKeys>,
    /// The recorder of model answers; `None` if answers are not recorded.
    pub recorder: Option<Arc<TurnRecorder>>,
    /// Location of the recorded threads that a trial runs again with this config. `None` outside a
    /// trial.
    pub trial: Option<TrialSource>,
    /// Path of the `organism` program, which ends the processes of listeners when this process
    /// ends. A program that embeds this crate must set this path if `organism` is neither beside
    /// that program nor on `PATH`.
    pub launcher: Option<PathBuf>,
    /// The effective config as JSON: defaults, overrides, texts of prompts, and digests of schemas
    /// and recordings. Contains no secrets. Schema files and their folders have portable names,
    /// which are valid on every machine.
    pub text: String,
    /// The config in the form that the journal stores, and that can be loaded again.
    pub stored: Arc<StoredConfig>,
}

impl Config {
    /// Returns the directory of the journal and the directory of the files outside the journal,
    /// with the project to which both belong.
    pub fn directories(&self) -> ProjectFolders {
        let data = self.data.clone();
        let state = self.state.clone();
        ProjectFolders { project: self.project.clone(), data, state }
    }

    /// Returns all texts of this config that the journal stores as blobs, without duplicates, in
    /// the order in which the boot record of a pump lists them:
    ///
    /// - the effective config
    /// - the manifest of the stored config, and the files that the manifest lists
    /// - the generated schemas
    /// - the definitions of workflows
    pub fn texts(&self) -> Vec<&str> {
        let workflows = self.workflows.iter().map(|one| one.compiled.text.as_str());
        let stored = (!mutant("forget-the-config")).then(|| self.stored.texts());
        let texts = std::iter::once(self.text.as_str())
            .chain(stored.into_iter().flatten())
            .chain(self.schemas.documents())
            .chain(workflows);
        let mut listed = HashSet::new();
        texts.filter(|text| listed.insert(*text)).collect()
    }

    /// Returns the number of partitions. Each partition has its own pump.
    pub fn partitions(&self) -> u32 {
        match &self.storage {
            StorageConfig::Embedded => 1,
            StorageConfig::JetStream { journal, .. } => journal.partitions,
        }
    }

    /// Returns the partition whose pump uses this config; `None` if there is only one partition.
    pub fn own_partition(&self) -> Option<u32> {
        match &self.storage {
            StorageConfig::JetStream { journal, .. } if journal.partitions > 1 => {
                Some(journal.partition)
            }
            _ => None,
        }
    }

    /// Returns the agents that run in `organism host` processes.
    pub fn remote_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| agent.is_remote)
    }

    /// Returns the agents that run in the process of the pump.
    pub fn local_agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.iter().filter(|agent| !agent.is_remote)
    }

    /// Makes every agent run in the process of the pump, even an agent that the config assigns to
    /// an `organism host` process. A recording of model answers needs this, because the recorder
    /// gets only the answers of agents in its own process.
    pub fn gather_agents(&mut self) {
        self.agents.iter_mut().for_each(|agent| agent.is_remote = false);
    }

    /// Returns the missing keys that a process needs if it hosts only `agents`.
    pub fn keys_missing_for<'a>(
        &'a self,
        agents: impl Iterator<Item = &'a AgentSpec>,
    ) -> ConfigProblems {
        self.keys_missing.of_agents(agents, &self.models)
    }

    /// Returns the missing API keys that the process of the pump needs. The key of a model is not
    /// needed if only agents on other machines use the model.
    pub fn keys_missing_here(&self) -> ConfigProblems {
        self.keys_missing.of_pump(&self.agents, &self.models)
    }

    /// Returns the config for the pump of one partition. All partitions use the same keys for
    /// checkpoints.
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
    /// The data directory alone contains the journal.
    Embedded,
    /// A stream on NATS servers contains the journal. The data directory contains a copy of the
    /// stream in SQLite, from which commands read the journal.
    JetStream { servers: Box<nats::Options>, journal: jetstream::Options },
}

/// A listener hosted as a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Settings of an agent. The agent's contract, which states its payloads and peers, is kept in
/// [`Config::contracts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    #[serde(rename = "name")]
    pub name: ListenerName,
    /// Whether the agent runs in an `organism host` process, which is reached over NATS, and not in
    /// the process of the pump. The agent gets the same deliveries in both cases.
    #[serde(skip)]
    pub is_remote: bool,
    /// Name of the agent's model, as the config declares it.
    #[serde(rename = "model")]
    pub model: String,
    #[serde(rename = "transport")]
    pub transport: ActionTransport,
    #[serde(rename = "memory")]
    pub memory: MemoryScope,
    /// Maximum number of model calls in each call of the agent.
    #[serde(rename = "max_iterations")]
    pub max_iterations: u32,
    /// Name of the final payload, which ends the agent's call.
    #[serde(rename = "final_name")]
    pub final_name: PayloadName,
    #[serde(rename = "final_format")]
    pub final_format: FinalFormat,
    #[serde(rename = "final_by", skip_serializing_if = "FinalMode::is_action")]
    pub final_by: FinalMode,
    #[serde(rename = "tool_choice", serialize_with = "tool_choice")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether each request to the model ends with a notice about the present state of the agent's
    /// call. The notices of earlier requests are not repeated.
    #[serde(rename = "notice")]
    pub notice: bool,
    /// Whether the config sets the agent's `timeout`. If false, the time-outs of the model limit
    /// the wait for an answer.
    #[serde(skip)]
    pub has_timeout: bool,
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

/// A language model that the config declares, with its provider.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    pub name: String,
    pub provider: ProviderConfig,
    /// Maximum tokens of prompt and answer together; `None` if the config states no maximum.
    pub context_window: Option<u64>,
    pub price: Option<TokenPrice>,
}

#[derive(Debug, Clone)]
pub enum ProviderConfig {
    /// Plays recorded turns from the file at the absolute path `recording`. Pauses for
    /// `chunk_delay`, if it is set, before each chunk of an answer.
    Playback { recording: PathBuf, chunk_delay: Option<Duration>, max_tokens: Option<u32> },
    /// Calls a provider over the network.
    Remote { options: Box<remote::Options>, pace: RateLimits, attempts: u32 },
    /// Routes each call to one of several other models of the config. These models can replace each
    /// other.
    Routed { routes: Vec<String>, strategy: RoutingStrategy, attempts: u32 },
}

/// The two directories of an organism: one for the journal, one for files outside the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFolders {
    pub project: ProjectPaths,
    pub data: PathBuf,
    pub state: PathBuf,
}

/// A workflow of the config.
#[derive(Debug, Clone)]
pub struct ConfiguredWorkflow {
    pub definition: WorkflowDefinition,
    pub compiled: CompiledWorkflow,
}
