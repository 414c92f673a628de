//! Hosts agents for a pump on another machine. Each agent has its own connection, because the
//! agent's NATS user determines its permissions.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::agent_spans::TracedAgent;
use super::health::{HealthMonitor, HostedHealth};
use super::model_metrics::ModelCounts;
use super::models::{ConfiguredModels, ModelLimiters};
use super::{
    Error, exporter, flush_spans, local_agents, nats_config, reload, tracer, with_core_words,
};
use crate::agent::history::transfer;
use crate::agent::{AgentMemories, ModelAgent, ThreadMemory};
use crate::blocking_work;
use crate::bus::native_host::{self, HandlerContext, NativeHandler, NativeHost};
use crate::bus::nats::{
    ConfiguredHosts, ListenerSubjects, RemoteAgentHost, RemoteSink, ThreadMark, ThreadTransfer,
};
use crate::bus::{Delivery, Host, Outcome};
use crate::config::{self, AgentSpec, Config, ConfigEnvironment, ReloadComparison};
use crate::envelope::AttemptFailure;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::journal;
use crate::memory::ThreadHistory;
use crate::nats::{self, Client, NatsCredentials, PermissionErrors};
use crate::service::ReloadReport;
use crate::telemetry::SpanExporter;
use crate::thread::Record;
use crate::trace::SpanTracer;

/// Reason why an agent cannot run outside the pump's process.
#[derive(Debug, thiserror::Error)]
pub enum NotHosted {
    #[error("no agent of this config has `nats = true`, so there is no agent to host")]
    NoRemoteAgents,
    #[error("no agent `{name}`; the agents that can be hosted are {names}")]
    Unknown { name: String, names: String },
    #[error("`{name}` is a listener, and only agents can be hosted")]
    NoAgent { name: String },
    #[error(
        "`{name}` runs in the process of `organism run`; write `nats = true` for it to host it \
             elsewhere"
    )]
    Near { name: String },
}

/// Returns the agents with the names in `only`. If `only` is empty, returns all agents that the
/// config places outside the pump's process.
///
/// # Errors
///
/// Returns [`NotHosted`] if the config places no agent outside the pump's process, or if a name in
/// `only` belongs to none of these agents.
pub fn chosen(config: &Config, only: &[String]) -> Result<Vec<AgentSpec>, NotHosted> {
    let all: Vec<_> = config.remote_agents().cloned().collect();
    if only.is_empty() {
        return if all.is_empty() { Err(NotHosted::NoRemoteAgents) } else { Ok(all) };
    }

    let mut chosen: Vec<AgentSpec> = Vec::new();

    for name in only {
        let name = name.trim();
        let found = config.agents.iter().find(|agent| agent.name.as_str() == name);
        match found {
            Some(agent) if chosen.iter().any(|known| known.name == agent.name) => {}
            Some(agent) if agent.is_remote => chosen.push(agent.clone()),
            Some(_) => return Err(NotHosted::Near { name: name.to_owned() }),
            None => return Err(unknown_agent(config, name)),
        }
    }

    Ok(chosen)
}

fn unknown_agent(config: &Config, name: &str) -> NotHosted {
    let name = name.to_owned();
    if config.contracts.iter().any(|contract| contract.name.as_str() == name) {
        return NotHosted::NoAgent { name };
    }

    let names: Vec<_> = config.remote_agents().map(|agent| agent.name.to_string()).collect();
    if names.is_empty() {
        NotHosted::NoRemoteAgents
    } else {
        NotHosted::Unknown { name, names: names.join(", ") }
    }
}

/// The agents that this process hosts for a pump elsewhere.
pub struct HostedAgents {
    /// The config in force. Lock: each reload holds the lock from the beginning to the end of the
    /// reload.
    config: Mutex<Arc<Config>>,
    has_own_keys: bool,
    agents: Vec<ReloadableAgent>,
    models: Arc<ModelCounts>,
    limiters: ModelLimiters,
    stop: watch::Sender<bool>,
    posts: Vec<JoinHandle<()>>,
    health: HealthMonitor,
    exporter: Option<SpanExporter>,
}

/// A hosted agent whose config can be replaced while it runs.
struct ReloadableAgent {
    name: ListenerName,
    relay: RemoteSink,
    hosts: ConfiguredHosts,
}

impl HostedAgents {
    /// Starts a host for each agent in `agents`, so that the agent runs in this process. Each agent
    /// gets its own connection to NATS. The connection uses the agent's secret NATS key in the
    /// directory `keys`. If `keys` is `None`, the connection uses the NATS credentials of the
    /// config.
    ///
    /// # Errors
    ///
    /// [`Error::Keys`] if a model's API key is missing, or the error of a connection.
    pub async fn start(
        config: Config,
        agents: &[AgentSpec],
        keys: Option<&Path>,
    ) -> Result<Self, Error> {
        let missing = config.keys_missing_for(agents.iter());
        if !missing.is_empty() {
            return Err(Error::Keys(Arc::new(missing)));
        }

        let config = with_core_words(config)?;
        let counts = Arc::new(ModelCounts::new(&config, agents.iter()));
        let exporter = exporter(&config);
        let tracer = tracer(exporter.as_ref());
        let limiters = ModelLimiters::default();
        let factory = HostedAgentFactory::new(&config, &limiters, &counts, &tracer)?;
        let (stop, stopped) = watch::channel(false);
        let mut posts = Vec::new();
        let mut connections = Vec::new();
        let mut reloadable = Vec::new();

        for spec in agents {
            let (client, denials) = client(&config, &spec.name, keys).await?;
            connections.push((spec.name.clone(), client.clone()));
            let relay = relay(&config, &spec.name, client);
            let host = factory.host(spec, &relay)?;
            let post = RemoteAgentHost::open(
                &config.name,
                spec.name.clone(),
                config.digest,
                relay.clone(),
                host,
            );
            let post = post.await?;
            refuse_without_rights(&config, &spec.name, &denials)?;
            let hosts = post.hosts();
            reloadable.push(ReloadableAgent { name: spec.name.clone(), relay, hosts });
            posts.push(tokio::spawn(serve(post, spec.name.clone(), stopped.clone())));
        }

        let hosted = HostedHealth { models: Arc::clone(&counts), connections, stopped };
        let health = HealthMonitor::of_hosted(&config.name, hosted, &tracer);
        Ok(Self {
            config: Mutex::new(Arc::new(config)),
            has_own_keys: keys.is_some(),
            agents: reloadable,
            models: counts,
            limiters,
            stop,
            posts,
            health,
            exporter,
        })
    }

    /// Loads the config file again, and uses the new config for all further deliveries. Deliveries
    /// in flight keep the config with which they began. Applies either all changes of the config or
    /// none of them.
    pub async fn reload(&self) -> Result<ReloadReport, Error> {
        let mut config = self.config.lock().await;
        let before = Arc::clone(&config);
        let loading = {
            let before = Arc::clone(&before);
            let has_own_keys = self.has_own_keys;
            let around = ConfigEnvironment::of_process();
            move || config::load_for_host(&before.file, &around, has_own_keys)
        };
        let after = match blocking_work::run(loading).await? {
            Ok(after) => after,
            Err(problems) => return Ok(reload::invalid(&problems)),
        };

        let ReloadComparison { changes, mut restart } = ReloadComparison::between(&before, &after);
        let specs = self.agents.iter().map(|agent| {
            let spec = after.remote_agents().find(|spec| spec.name == agent.name);
            (agent, spec.cloned())
        });
        let specs: Vec<_> = specs.collect();
        let left = specs.iter().filter(|(_, spec)| spec.is_none());
        restart.extend(left.map(|(agent, _)| format!("agents.{}.nats", agent.name)));
        if changes.is_empty() && restart.is_empty() {
            return Ok(ReloadReport::Unchanged { config: before.digest });
        }
        if !restart.is_empty() {
            let keys = restart.into_iter().collect();
            return Ok(ReloadReport::NeedsRestart { keys, reason: None });
        }
        let specs: Vec<_> =
            specs.into_iter().filter_map(|(agent, spec)| Some((agent, spec?))).collect();
        let missing = after.keys_missing_for(specs.iter().map(|(_, spec)| spec));
        if !missing.is_empty() {
            return Ok(reload::invalid(&missing));
        }

        let after = Arc::new(blocking_work::run(move || with_core_words(after)).await??);
        self.take_config(&after, &specs)?;
        *config = Arc::clone(&after);
        let changes = changes.into_iter().map(|change| change.path).collect();
        Ok(ReloadReport::Applied { before: before.digest, config: after.digest, changes })
    }

    fn take_config(
        &self,
        config: &Config,
        specs: &[(&ReloadableAgent, AgentSpec)],
    ) -> Result<(), Error> {
        let tracer = tracer(self.exporter.as_ref());
        let factory = HostedAgentFactory::new(config, &self.limiters, &self.models, &tracer)?;
        // Steps that can fail come first, so that either all agents take the config or none does.
        let hosts = specs.iter().map(|(agent, spec)| {
            let host = factory.host(spec, &agent.relay)?;
            Ok::<_, Error>((agent, host))
        });
        for (agent, host) in hosts.collect::<Result<Vec<_>, _>>()? {
            agent.hosts.add(config.digest, host);
        }
        self.limiters.set_limits(&config.models);
        Ok(())
    }

    /// Returns the health monitor of the hosted agents. The monitor stays usable after the agents
    /// have stopped.
    pub fn health(&self) -> HealthMonitor {
        self.health.clone()
    }

    /// Refuses new deliveries to the hosted agents. Returns when every running turn has ended and
    /// its answer has reached the pump.
    pub async fn stop(self) {
        // The send fails if every agent has already ended.
        self.stop.send(true).ok();
        for post in self.posts {
            if let Err(error) = post.await {
                tracing::error!("the task of an agent's host panicked: {error}");
            }
        }

        flush_spans(self.exporter).await;
    }

    /// Whether the host of an agent has ended. Without a request to stop, a host ends only if its
    /// connection to NATS has ended.
    pub fn has_ended(&self) -> bool {
        self.posts.iter().any(JoinHandle::is_finished)
    }
}

/// Serves the deliveries of one agent until `stopped` is true, or until the agent's connection has
/// ended.
async fn serve(post: RemoteAgentHost, agent: ListenerName, stopped: watch::Receiver<bool>) {
    let mut until_stopped = stopped.clone();
    post.serve(async move {
        // If the sender is dropped, the agents must stop, too.
        until_stopped.wait_for(|stopped| *stopped).await.ok();
    })
    .await;

    if !*stopped.borrow() {
        tracing::error!(
            %agent,
            "the NATS client of this agent has ended: most likely a message with malformed headers \
             arrived; the panic message above has the reason"
        );
    }
}

async fn client(
    config: &Config,
    name: &ListenerName,
    keys: Option<&Path>,
) -> Result<(Client, PermissionErrors), Error> {
    let mut servers = config.nats.clone().ok_or(NotHosted::NoRemoteAgents)?;
    if let Some(keys) = keys {
        servers.credentials = NatsCredentials::Nkey(keys.join(nats_config::seed_of(name)));
    }

    let inbox = ListenerSubjects::new(&config.name, name).inbox();
    let called = format!("agent {name} of {}", config.name);
    Ok(nats::connect_with(&servers, &called, Some(&inbox)).await?)
}

fn relay(config: &Config, name: &ListenerName, client: Client) -> RemoteSink {
    RemoteSink::new(client, ListenerSubjects::new(&config.name, name), runtime::Handle::current())
}

/// Factory that makes the hosts of agents for one config. A host runs one agent in this process.
struct HostedAgentFactory<'c> {
    config: &'c Config,
    models: ConfiguredModels,
    memories: Arc<AgentMemories>,
    tracer: &'c SpanTracer,
}

impl<'c> HostedAgentFactory<'c> {
    fn new(
        config: &'c Config,
        limiters: &ModelLimiters,
        counts: &Arc<ModelCounts>,
        tracer: &'c SpanTracer,
    ) -> Result<Self, Error> {
        let models = ConfiguredModels::watched(config, limiters, counts, tracer)?;
        let memories = Arc::new(AgentMemories::new(Arc::new(NothingRecorded)));
        Ok(Self { config, models, memories, tracer })
    }

    fn host(&self, spec: &AgentSpec, relay: &RemoteSink) -> Result<Arc<dyn Host>, Error> {
        let made = self.models.named(&spec.model)?;
        let route = made.model.route();
        let tracer = self.tracer.clone();
        let agent = local_agents::agent(self.config, spec, made, Arc::clone(&self.memories))?;
        let agent = HostedAgent { agent, relay: relay.clone() };
        let agent = TracedAgent { agent, name: spec.name.clone(), route, tracer };
        let sink = Arc::new(relay.clone());
        let runtime = runtime::Handle::current();
        Ok(Arc::new(NativeHost::new(spec.name.clone(), agent, sink, runtime)))
    }
}

/// Returns an error if the connection lacks a permission that the agent needs. Without permission
/// to subscribe, the agent would wait forever. Without permission to publish, the agent could not
/// answer, and the pump would deliver its calls again and again.
fn refuse_without_rights(
    config: &Config,
    name: &ListenerName,
    denials: &PermissionErrors,
) -> Result<(), Error> {
    let subjects = ListenerSubjects::new(&config.name, name);
    let unheard = denials.subscription_denied(&subjects.deliveries());
    let unheard = unheard.or_else(|| denials.subscription_denied(&subjects.inbox()));
    let denied = unheard.or_else(|| denials.publish_denied_below(&subjects.answer("")));
    denied.map_or(Ok(()), |denied| Err(nats::Error::from(denied).into()))
}

/// An agent of this process whose pump runs on another machine. Before each turn, the agent
/// downloads the part of the thread that it does not have yet.
struct HostedAgent {
    agent: ModelAgent,
    relay: RemoteSink,
}

/// A thread history without records, for a process without a journal. The journal is on the machine
/// of the pump, and the pump transfers the threads.
struct NothingRecorded;

impl ThreadHistory for NothingRecorded {
    fn records(
        &self,
        _: &ThreadId,
        _: Position,
        _: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        Ok(Vec::new())
    }
}

impl NativeHandler for HostedAgent {
    async fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        let mut memory = self.agent.kept_memory(&delivery);
        let known = memory.transferred();
        let known = known.map(|(position, mark)| ThreadMark { position, mark });
        let transferred = match self.relay.thread(&delivery, known).await {
            Ok(transferred) => transferred,
            Err(failure) => {
                self.agent.keep_memory(memory);
                return Err(failure);
            }
        };

        let place = (delivery.thread.clone(), delivery.position);
        let memory = native_host::run_blocking(move || {
            add_transferred(&mut memory, &transferred, &place)?;
            Ok(memory)
        });
        self.agent.turn_with(memory.await?, &delivery, &context).await
    }
}

/// Adds a transferred part of a thread to the memory of that thread.
fn add_transferred(
    memory: &mut ThreadMemory,
    transferred: &ThreadTransfer,
    (thread, up_to): &(ThreadId, Position),
) -> Result<(), AttemptFailure> {
    let failed = |detail: String| AttemptFailure::Unreachable {
        detail: format!("the thread cannot be read: {detail}"),
    };
    let ThreadTransfer { after, text, mark } = transferred;
    let records =
        transfer::decode_thread(text, thread).map_err(|error| failed(error.to_string()))?;
    if memory.extend_transferred(&records, *after, (*up_to, *mark)) {
        return Ok(());
    }
    Err(failed(format!("the transferred part begins after {after}")))
}
