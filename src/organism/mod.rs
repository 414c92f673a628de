//! Starts and stops the parts of one organism in the right order.
//!
//! This module must not know terminals or browsers.

mod access;
mod agent_hosting;
mod agent_spans;
mod alerts;
mod client;
pub mod control;
mod fork_recalls;
mod health;
mod hosts;
mod index_follower;
mod local_agents;
mod model_metrics;
mod models;
pub mod nats_config;
mod nats_listeners;
pub mod operator;
mod own_journal;
mod partitioned;
mod payload_copies;
pub mod project;
pub mod promote;
mod prompt_difference;
mod prompt_preview;
mod prompt_sizes;
mod pump_rpc;
mod pump_runtime;
mod reload;
pub mod repair;
pub mod repair_stream;
pub mod replay;
mod request_lines;
mod start;
mod trial;
mod turn_on_record;
mod workflow_cases;
mod workflow_runs;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use uuid::Uuid;

use crate::blocking_work::BlockingWorkError;
use crate::bus::{Host, Sink};
use crate::config::{Config, ConfigProblems, StorageConfig};
use crate::contract::goal_schema;
use crate::ids::{ListenerName, ScheduleName};
use crate::index;
use crate::journal::jetstream::{self, JoiningHost};
use crate::journal::{self, Journal, OperatorAcceptance, sqlite};
use crate::nats;
use crate::owned_tasks::AbortOnDrop;
use crate::pump::ResidentCore;
use crate::pump::core::Core;
use crate::pump::driver::{Handle, PumpStopped, PumpUnavailable};
use crate::pump::gate::Gate;
use crate::schema::{SchemaCompiler, SchemaProblem};
use crate::service::announcement::CommandPresence;
use crate::service::{self, socket_path};
use crate::telemetry::SpanExporter;
use crate::trace::SpanTracer;
use crate::workflow::run_schema;
use pump_runtime::{PumpRuntime, gate_of};
use workflow_runs::WorkflowRuns;

pub use access::is_hosted_peer;
pub use agent_hosting::{HostedAgents, NotHosted, chosen};
pub use client::{OrganismClient, why_unreachable};
pub use health::{HealthMonitor, ReadinessProblem, UnprovedRecords};
pub use models::{ConfiguredModels, unpriced_model};
pub use own_journal::TemporaryDirectory;
pub use partitioned::{PartitionStatus, PartitionedOrganism};
pub use payload_copies::PayloadCopy;
pub use prompt_difference::{
    ComparedSide, DifferentPrompts, PromptSearch, first_different_prompts, request_text,
    unified_diff,
};
pub use prompt_preview::{
    PreviewInput, PromptComparison, PromptPreview, TurnSelector, due, preview,
};
pub use prompt_sizes::{PromptSize, prompt_sizes};
pub use reload::ReloadService;
pub use trial::{
    JudgeDecision, ResultsJudgement, TrialJudge, TrialOptions, TrialOutcome, TrialThread,
    prepare_trial, try_threads,
};
pub use turn_on_record::TurnOnRecord;
pub use workflow_cases::{CaseWriteError, run_case, write_case};
pub use workflow_runs::{JournalRuns, with_runs_of};

/// Reason why an organism does not start or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("the index has words of redacted payloads: {0}")]
    IndexWithRedactedWords(#[source] index::Error),
    #[error(transparent)]
    Project(project::Error),
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error(transparent)]
    Listeners(#[from] crate::bus::nats::Error),
    #[error("the model `{model}`: {detail}")]
    Model { model: String, detail: String },
    /// The pump's gate, which validates every payload, refused the payload of a schedule, although
    /// the earlier check of the config had accepted it.
    #[error("the payload of the schedule `{schedule}` is refused: {detail}")]
    Schedule { schedule: ScheduleName, detail: String },
    /// The built-in schemas do not load, which is a bug.
    #[error("a built-in schema: {detail}")]
    Builtin { detail: String },
    /// API keys of models are missing. Reported only if no running organism was found, see
    /// [`Config::keys_missing`].
    #[error("{0}")]
    Keys(Arc<ConfigProblems>),
    /// The requested prompt does not exist.
    #[error("{detail}")]
    Preview { detail: String },
    #[error("the organism has stopped; its log has the reason")]
    Stopped,
    /// The command needs an organism with only one partition, and this organism has several.
    #[error(
        "this organism has {partitions} partitions: `organism run` runs them, and this command \
         needs one that is whole"
    )]
    Divided { partitions: u32 },
    /// Another organism of the same name runs on the NATS servers, and this one has no journal yet.
    #[error(
        "{conflict}. No journal was begun: two organisms on the same servers need two names, \
         whatever their `stream` is"
    )]
    NameInUse { conflict: String },
    /// The program that embeds the organism has no config file to load again.
    #[error("this organism takes another config at a restart alone: another program embeds it")]
    NotReloadable,
    /// Another process has announced that it starts the organism, but has not opened the control
    /// socket in time. The command has had no effect.
    #[error(
        "{process} has announced that it starts this organism and has not opened its socket within \
         {waited:?}; nothing was done. Its log says what it waits for; try again, or end it"
    )]
    NotUp { process: String, waited: Duration },
    /// Either the config has no agent that can run outside the pump's process, or the caller gave a
    /// name that belongs to no such agent.
    #[error(transparent)]
    NotHosted(#[from] NotHosted),
    /// A process that this organism hosts has tried to start an organism.
    #[error(
        "this process runs in the listener `{listener}` of this very organism, and a hosted \
         process starts no pump; start `organism run` outside of it"
    )]
    HostedProcess { listener: ListenerName },
    /// The requested repair is possible only for an embedded journal, and this journal is on
    /// JetStream.
    #[error(
        "the journal of this config is on JetStream, where no record can be taken out: \
         `--accept-loss` is of an embedded journal. `organism repair --accept-key` keeps records \
         that no MAC covers; without flags `organism repair` brings the stream and the projection \
         of this host together, and `--from stream` accepts a loss"
    )]
    NotEmbedded,
    /// The requested repair would trust the key of another machine, which is possible only for a
    /// journal on JetStream. This journal is embedded, so only the machine that wrote it signs it.
    #[error(
        "the journal of this config is embedded: one host alone signs it. `organism repair \
         --accept-key` accepts another key of this host"
    )]
    OneHost,
    /// The requested repair is possible only for a journal on JetStream, and this journal is
    /// embedded.
    #[error(
        "the journal of this config is embedded: `organism repair` needs `--accept-loss`, \
         `--accept-key` or `--accept-redaction`, as the log of its start states"
    )]
    NotOnJetStream,
    /// A request to the organism failed.
    #[error(transparent)]
    Service(#[from] service::Error),
}

impl From<project::Error> for Error {
    fn from(error: project::Error) -> Self {
        match error {
            project::Error::Journal(error) => Self::Journal(error),
            project::Error::Io { path, source } => {
                Self::Io { context: path.display().to_string(), source }
            }
            error => Self::Project(error),
        }
    }
}

impl From<BlockingWorkError> for Error {
    fn from(error: BlockingWorkError) -> Self {
        match error {
            BlockingWorkError::Panicked => Self::Service(error.into()),
            BlockingWorkError::Stopped => Self::Stopped,
        }
    }
}

impl From<PumpStopped> for Error {
    fn from(_: PumpStopped) -> Self {
        Self::Stopped
    }
}

impl From<PumpUnavailable> for Error {
    fn from(error: PumpUnavailable) -> Self {
        match error {
            PumpUnavailable::Stopped(stopped) => stopped.into(),
            waits => Self::Service(waits.into()),
        }
    }
}

impl Error {
    fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }
}

/// Version of the program, as each boot records it.
const VERSION: &str = concat!("organism ", env!("CARGO_PKG_VERSION"));

/// A function that makes the host of a listener whose handler is in this program. The host passes
/// the handler's results to the given sink.
pub type NativeHostBuilder =
    Box<dyn FnOnce(Arc<dyn Sink>, &runtime::Handle) -> Arc<dyn Host> + Send>;

/// Name of a listener, with the host that runs the listener for the pump.
type HostedListener = (ListenerName, Arc<dyn Host>);

/// A running organism with a single pump.
pub struct Organism {
    config: Arc<Config>,
    runtime: PumpRuntime,
    control: Option<control::ControlServer>,
    reloader: ReloadService,
    health: HealthMonitor,
    exporter: Option<SpanExporter>,
    /// Responder that reports to other processes the last position of this machine's copy of the
    /// journal. `None` for an embedded journal.
    _responder: Option<AbortOnDrop>,
    // Declared last, so that it is dropped after the journal's lock is released.
    _presence: Option<CommandPresence>,
}

impl Organism {
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the health monitor of this organism. The monitor stays usable after the organism has
    /// stopped.
    pub fn health(&self) -> HealthMonitor {
        self.health.clone()
    }

    /// Returns the service that reloads the config of this organism.
    pub fn reloader(&self) -> ReloadService {
        self.reloader.clone()
    }

    pub fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Whether the pump has ended. If no stop was requested, a pump ends only after a fatal error.
    pub fn has_ended(&self) -> bool {
        self.runtime.has_ended()
    }

    /// Stops the organism in this order: entry points close, deliveries in flight end, hosts end,
    /// the journal closes, the last spans are exported. Queued calls are on record and continue at
    /// the next start.
    pub async fn stop(mut self, reason: &str) -> Result<(), Error> {
        let connections = self.control.take().map(control::ControlServer::close);
        let ended = self.runtime.drain(reason).await;
        if let Some(connections) = connections {
            connections.end().await;
        }
        flush_spans(self.exporter).await;
        ended
    }

    /// Stops the organism as [`Organism::stop`] does, but first waits until every connected client
    /// has its results. If `stop` returns another reason meanwhile, the wait ends, and the organism
    /// stops for that reason.
    pub async fn stop_when_served(
        mut self,
        mut reason: &str,
        stop: impl Future<Output = &'static str>,
    ) -> Result<(), Error> {
        let mut connections = self.control.take().map(control::ControlServer::close);
        let served = async {
            if let Some(connections) = &mut connections {
                connections.all().await;
            }
        };
        tokio::select! {
            // Looks at `stop` first, so that a stop that was requested earlier is the reason.
            biased;
            other = stop => reason = other,
            () = served => {}
        }
        let ended = self.runtime.drain(reason).await;
        if let Some(connections) = connections {
            connections.end().await;
        }
        flush_spans(self.exporter).await;
        ended
    }

    /// Waits until the pump thread has ended, and returns its result.
    pub async fn join(mut self) -> Result<(), Error> {
        if self.runtime.has_ended() {
            // Ordering rule: dropped before the joins and the last export, which take time. Another
            // process may take over the journal now, and this socket would refuse its clients. It
            // is not closed: that would remove its path, which may be the other process's by now.
            drop(self.control.take());
        }

        let ended = self.runtime.join().await;
        flush_spans(self.exporter).await;
        ended
    }
}

/// Starts the export of spans. Returns `None` if the config names no collector.
fn exporter(config: &Config) -> Option<SpanExporter> {
    let telemetry = config.telemetry.as_ref()?;
    Some(SpanExporter::start(telemetry, &config.name))
}

fn tracer(exporter: Option<&SpanExporter>) -> SpanTracer {
    exporter.map(SpanExporter::tracer).cloned().unwrap_or_default()
}

/// Exports the last spans. Must be called when everything that produces spans has ended.
async fn flush_spans(exporter: Option<SpanExporter>) {
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
}

/// Checks that the API keys of the config's models are present. A start needs these keys in
/// addition to a valid config.
fn check_start(config: &Config) -> Result<(), Error> {
    let missing = config.keys_missing_here();
    if missing.is_empty() {
        return Ok(());
    }

    // If another process holds the journal, it has the keys, and this command can use it. So that
    // error takes precedence over missing keys.
    journal::sqlite::require_free(&config.data)?;
    Err(Error::Keys(Arc::new(missing)))
}

fn open_control_socket(
    config: &Config,
    context: control::ControlContext,
) -> Result<control::ControlServer, Error> {
    let path = socket_path(&config.data);
    let failed = Error::io(format!("opening the control socket {}", path.display()));
    control::ControlServer::open(&path, context).map_err(failed)
}

/// Makes the core of a pump with an empty state. The core contains the pump's state and the rules
/// that change this state.
fn core(config: &Config) -> ResidentCore {
    let core = Core::new(Arc::new(config.contracts.clone()), config.limits, config.digest);
    ResidentCore::new(core.with_operators(config.operators.clone()), config.data.clone())
}

/// Builds the gate of a config, for callers that check payloads without a pump.
pub fn gate(config: Config) -> Result<Gate, Error> {
    Ok(gate_of(&with_core_words(config)?))
}

/// Adds the built-in schemas to the config. These schemas define the payloads of the core, of
/// agents and of workflows. Also adds the schemas that are generated for goals (see [`add_goals`])
/// and for the replies of workflows (see [`add_runs`]).
fn with_core_words(mut config: Config) -> Result<Config, Error> {
    let failed = |problems: Vec<SchemaProblem>| Error::Builtin { detail: joined(problems) };
    let builtins = [
        ("core.xsd", crate::system::SCHEMA),
        ("agent.xsd", crate::agent::SCHEMA),
        ("workflow.xsd", crate::workflow::SCHEMA),
    ];
    for (label, text) in builtins {
        config.schemas.add_builtin(label, text).map_err(failed)?;
    }

    add_goals(&mut config).map_err(failed)?;
    add_runs(&mut config).map_err(failed)?;
    Ok(config)
}

/// Writes several problems on one line.
fn joined<T: ToString>(problems: Vec<T>) -> String {
    problems.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

/// Adds one schema for each agent to which a workflow may send goals.
fn add_goals(config: &mut Config) -> Result<(), Vec<SchemaProblem>> {
    let mut compiler = SchemaCompiler::default();
    for agent in config.contracts.agents_with_goals() {
        let label = format!("goals of {agent}");
        config.schemas.add_generated(&mut compiler, &label, &goal_schema(agent))?;
    }

    Ok(())
}

/// Replaces the schemas of each workflow's replies by schemas that accept the replies of all runs
/// of the workflow. A run that began under an earlier definition of the workflow may have an output
/// of another form. Also adds the schema of the payload that requests a retry of a run.
fn add_runs(config: &mut Config) -> Result<(), Vec<SchemaProblem>> {
    let mut compiler = SchemaCompiler::default();
    for workflow in &config.workflows {
        let name = &workflow.definition.name.value;
        let label = format!("runs of {name}");
        config.schemas.replace_generated(&mut compiler, &label, &run_schema(name))?;
    }

    Ok(())
}

/// The way in which a process opens a journal.
#[derive(Debug, Clone, Copy, Default)]
struct JournalOpening {
    /// Id of a journal on JetStream that an operator adopts, although another machine or project
    /// began it; `None` if no journal is adopted.
    accepts: Option<Uuid>,
    /// Damage that an operator accepts in a stream.
    damage: OperatorAcceptance,
    /// Whether an operator's command opens the journal to record an action, so that no pump starts.
    is_offline: bool,
}

impl JournalOpening {
    fn offline(accepts: Option<Uuid>, damage: OperatorAcceptance) -> Self {
        Self { accepts, damage, is_offline: true }
    }
}

/// Opens the journal for a pump.
fn open_journal(config: &Config, core: &mut ResidentCore) -> Result<Box<dyn Journal>, Error> {
    open_journal_as(config, JournalOpening::default(), core)
}

fn open_journal_as(
    config: &Config,
    opening: JournalOpening,
    core: &mut ResidentCore,
) -> Result<Box<dyn Journal>, Error> {
    let Config { data, state, checkpoints, .. } = config;
    let opened: Result<Box<dyn Journal>, journal::Error> = match &config.storage {
        StorageConfig::Embedded => {
            let accept = OperatorAcceptance::default();
            let copies = checkpoints.as_deref();
            sqlite::SqliteJournal::open_recovering(data, state, copies, accept, core)
                .map(|journal| Box::new(journal) as Box<dyn Journal>)
        }
        StorageConfig::JetStream { .. } => {
            return Ok(Box::new(open_stream(config, opening, core)?));
        }
    };

    Ok(opened.map_err(|error| error.in_journal(config.journal_name()))?)
}

/// Opens the journal on JetStream.
fn open_stream(
    config: &Config,
    opening: JournalOpening,
    core: &mut ResidentCore,
) -> Result<jetstream::StreamJournal, Error> {
    let Config { data, state, storage, .. } = config;
    let StorageConfig::JetStream { servers, journal } = storage else {
        return Err(Error::NotOnJetStream);
    };

    let JournalOpening { accepts, damage, is_offline } = opening;
    let member = JoiningHost { data, state, accepts, damage, is_offline };
    let opened = jetstream::StreamJournal::open_recovering(servers, journal, &member, core);
    Ok(opened.map_err(|error| error.in_journal(config.journal_name()))?)
}
