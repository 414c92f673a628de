//! Builds the agents that run in the pump's process: model, memory source and host.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime;

use super::agent_spans::TracedAgent;
use super::model_metrics::ModelCounts;
use super::models::{ConfiguredModel, ConfiguredModels};
use super::{Error, HostedListener};
use crate::agent::history::transfer;
use crate::agent::{AgentEnvironment, AgentOptions, ModelAgent, ThreadHistory};
use crate::bus::Sink;
use crate::bus::native_host::NativeHost;
use crate::bus::nats::ThreadSource;
use crate::config::{AgentSpec, Config};
use crate::ids::{ListenerName, Position, ThreadId};
use crate::journal;
use crate::journal::sqlite::JournalReader;
use crate::pump::driver::PumpSink;
use crate::thread::Record;
use crate::trace::SpanTracer;

pub(super) fn agents(
    config: &Arc<Config>,
    sink: &Arc<PumpSink>,
    runtime: &runtime::Handle,
    counts: &Arc<ModelCounts>,
    tracer: &SpanTracer,
) -> Result<Vec<HostedListener>, Error> {
    let history = history(config);
    let models = ConfiguredModels::watched(config, counts, tracer)?;
    let mut hosts: Vec<HostedListener> = Vec::new();

    for spec in config.local_agents() {
        let made = models.named(&spec.model)?;
        let name = spec.name.clone();
        let route = made.model.route();
        let agent = agent(config, spec, made, Arc::clone(&history))?;
        let agent = TracedAgent { agent, name, route, tracer: tracer.clone() };
        let sink: Arc<dyn Sink> = sink.clone();
        let host = NativeHost::new(spec.name.clone(), agent, sink, runtime.clone());
        hosts.push((spec.name.clone(), Arc::new(host)));
    }

    Ok(hosts)
}

/// Reads the threads of agents that run on other machines.
pub(super) struct RemoteMemorySource {
    pub agent: ListenerName,
    pub history: Arc<dyn ThreadHistory>,
}

impl ThreadSource for RemoteMemorySource {
    fn thread(&self, thread: &ThreadId, up_to: Position) -> Result<Vec<u8>, String> {
        let records = self.history.records(thread, up_to).map_err(|error| error.to_string())?;
        Ok(transfer::encode_thread(&records, &self.agent, thread))
    }
}

/// The source of agents' memory: the journal of this config.
pub(super) fn history(config: &Config) -> Arc<dyn ThreadHistory> {
    Arc::new(JournalHistory { data: config.data.clone(), idle: Mutex::default() })
}

/// Builds an agent from its config.
pub(super) fn agent(
    config: &Config,
    spec: &AgentSpec,
    made: ConfiguredModel,
    history: Arc<dyn ThreadHistory>,
) -> Result<ModelAgent, Error> {
    let detail = || format!("the agent `{}` has no contract", spec.name);
    let mut options = options(config, spec).ok_or_else(|| Error::Builtin { detail: detail() })?;
    options.terms = made.terms;
    Ok(ModelAgent::new(options, made.model, history))
}

fn options(config: &Config, spec: &AgentSpec) -> Option<AgentOptions> {
    let contract = config.contracts.get(&spec.name)?.clone();
    let contracts = Arc::new(config.contracts.clone());
    let mut options = AgentOptions::new(contract, contracts, config.schemas.clone());
    options.memory = spec.memory;
    options.max_iterations = spec.max_iterations;
    options.transport = spec.transport;
    options.final_format = spec.final_format.clone();
    options.final_by = spec.final_by;
    options.tool_choice = spec.tool_choice;
    options.notice = spec.notice;
    options.sections = spec.prompt.clone();
    options.environment = AgentEnvironment::detect();
    Some(options)
}

/// Memory source that reads threads from the journal.
struct JournalHistory {
    data: PathBuf,
    /// A journal reader that is kept between turns. While kept, it holds no read transaction, so it
    /// delays no checkpoint of the database.
    idle: Mutex<Option<JournalReader>>,
}

impl JournalHistory {
    fn idle(&self) -> MutexGuard<'_, Option<JournalReader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadHistory for JournalHistory {
    fn records(&self, thread: &ThreadId, up_to: Position) -> Result<Vec<Record>, journal::Error> {
        let idle = self.idle().take();
        let reader = match idle {
            Some(reader) => reader,
            None => JournalReader::open(&self.data)?,
        };

        let walked = reader.walk_thread(thread, up_to)?;
        *self.idle() = Some(reader);
        Ok(walked.into_iter().map(|sealed| sealed.record).collect())
    }
}
