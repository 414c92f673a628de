//! Builds the agents that run in the pump's process: model, memory source and host.

use std::sync::Arc;

use tokio::runtime;
use uuid::Uuid;

use super::agent_spans::TracedAgent;
use super::models::{ConfiguredModel, ConfiguredModels};
use super::{Error, HostedListener};
use crate::agent::history::transfer;
use crate::agent::{AgentEnvironment, AgentMemories, AgentOptions, ModelAgent};
use crate::bus::Sink;
use crate::bus::native_host::NativeHost;
use crate::bus::nats::{ThreadMark, ThreadSource, ThreadTransfer};
use crate::config::{AgentSpec, Config};
use crate::ids::{Digest, ListenerName, Position, ThreadId};
use crate::journal;
use crate::memory::{JoinedHistory, JournalMemory, ThreadHistory};
use crate::pump::driver::PumpSink;
use crate::trace::SpanTracer;

pub(super) fn agents(
    config: &Arc<Config>,
    sink: &Arc<PumpSink>,
    runtime: &runtime::Handle,
    models: &ConfiguredModels,
    tracer: &SpanTracer,
    memory: Arc<JournalMemory>,
) -> Result<Vec<HostedListener>, Error> {
    let memories = AgentMemories::new(memory);
    let memories = Arc::new(match &config.trial {
        Some(trial) => memories.with_source_history(Arc::new(JoinedHistory::of(&trial.journals))),
        None => memories,
    });
    let mut hosts: Vec<HostedListener> = Vec::new();

    for spec in config.local_agents() {
        let made = models.named(&spec.model)?;
        let name = spec.name.clone();
        let route = made.model.route();
        let agent = agent(config, spec, made, Arc::clone(&memories))?;
        let agent = TracedAgent { agent, name, route, tracer: tracer.clone() };
        let sink: Arc<dyn Sink> = sink.clone();
        let host = NativeHost::new(spec.name.clone(), agent, sink, runtime.clone());
        hosts.push((spec.name.clone(), Arc::new(host)));
    }

    Ok(hosts)
}

/// Source from which agents on other machines get the messages of their threads.
pub(super) struct RemoteMemorySource {
    pub agent: ListenerName,
    pub memory: Arc<JournalMemory>,
    /// Id of this run of the pump. The process that hosts `agent` downloads copies of threads, and
    /// uses each copy only in the run in which it was downloaded. Between two runs, an operator may
    /// have redacted payloads or restored a backup.
    pub run: Uuid,
}

impl RemoteMemorySource {
    /// Returns a digest of the id of this run and the hash of the record at `position`. Another
    /// machine that sends the same digest has the same records up to `position`. Returns `None` if
    /// the journal has no record at `position`.
    fn mark(&self, position: Position) -> Result<Option<Digest>, journal::Error> {
        let hash = self.memory.hash(position)?;
        Ok(hash.map(|hash| Digest::of_parts(&[self.run.as_bytes(), &hash.0])))
    }

    fn transfer(
        &self,
        thread: &ThreadId,
        known: Option<ThreadMark>,
        up_to: Position,
    ) -> Result<ThreadTransfer, journal::Error> {
        let after = match known {
            Some(known)
                if known.position <= up_to && self.mark(known.position)? == Some(known.mark) =>
            {
                known.position
            }
            _ => Position(0),
        };

        let mark = self.mark(up_to)?.unwrap_or_default();
        let records = self.memory.records(thread, after, up_to)?;
        let text = transfer::encode_thread(&records, &self.agent, thread);
        Ok(ThreadTransfer { after, text, mark })
    }
}

impl ThreadSource for RemoteMemorySource {
    fn thread(
        &self,
        thread: &ThreadId,
        known: Option<ThreadMark>,
        up_to: Position,
    ) -> Result<ThreadTransfer, String> {
        self.transfer(thread, known, up_to).map_err(|error| error.to_string())
    }
}

/// Makes the source from which agents read their threads: the journal of this config.
pub(super) fn history(config: &Config) -> Arc<JournalMemory> {
    Arc::new(JournalMemory::new(config.data.clone()))
}

/// Builds the agent that `spec` describes.
pub(super) fn agent(
    config: &Config,
    spec: &AgentSpec,
    made: ConfiguredModel,
    memories: Arc<AgentMemories>,
) -> Result<ModelAgent, Error> {
    let detail = || format!("the agent `{}` has no contract", spec.name);
    let mut options = options(config, spec).ok_or_else(|| Error::Builtin { detail: detail() })?;
    options.terms = made.terms;
    Ok(ModelAgent::with_memories(options, made.model, memories))
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
    options.is_bounded_by_model = !spec.has_timeout;
    options.sections = spec.prompt.clone();
    options.environment = AgentEnvironment::detect();
    Some(options)
}
