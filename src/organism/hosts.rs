//! Makes the hosts of a config's listeners, at a start and at a reload. A host is the object that
//! runs one listener for the pump.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use tokio::runtime;
use tokio::task::JoinHandle;

use super::access::HostPresence;
use super::model_metrics::ModelCounts;
use super::models::{ConfiguredModels, ModelLimiters};
use super::workflow_runs::{self, JournalRuns};
use super::{Error, HostedListener, NativeHostBuilder, fork_recalls, local_agents};
use crate::bus::native_host::NativeHost;
use crate::bus::nats::PromptConfig;
use crate::bus::process::{Options, ProcessHost, PumpMark};
use crate::bus::{Host, Sink};
use crate::config::{Config, ProcessSpec, hides_same};
use crate::contract::{Contract, Contracts};
use crate::file_limit;
use crate::ids::ListenerName;
use crate::journal::readable_key_warning;
use crate::limits;
use crate::locks::locked;
use crate::memory::JournalMemory;
use crate::pump::driver::PumpSink;
use crate::trace::SpanTracer;
use crate::workflow::{RunDefinitions, WorkflowHandler};

/// Factory for the hosts of one pump, with everything that these hosts share. A host runs one
/// listener for the pump: in this process, as a child process, or over NATS.
pub(super) struct HostFactory {
    pub sink: Arc<PumpSink>,
    pub runtime: runtime::Handle,
    pub models: Arc<ModelCounts>,
    pub limiters: ModelLimiters,
    pub tracer: SpanTracer,
    pub memory: Arc<JournalMemory>,
    pub mark: PumpMark,
    /// The config with which the agents on other machines render their prompts.
    pub prompts: PromptConfig,
    /// While this value exists, other processes can see that this process hosts listeners of the
    /// organism.
    pub presence: Arc<HostPresence>,
}

/// The hosts that the pump uses at present. A reload replaces them. The field `hosts` is `None`
/// once the pump has taken the hosts in order to end them.
#[derive(Clone, Default)]
pub(super) struct SharedHosts {
    hosts: Arc<Mutex<Option<Vec<HostedListener>>>>,
    /// While this value exists, other processes can see that this process hosts listeners. Kept as
    /// long as the hosts may run.
    _presence: Option<Arc<HostPresence>>,
}

impl SharedHosts {
    pub fn new(hosts: Vec<HostedListener>, presence: Arc<HostPresence>) -> Self {
        Self { hosts: Arc::new(Mutex::new(Some(hosts))), _presence: Some(presence) }
    }

    pub fn of(&self, listener: &ListenerName) -> Option<Arc<dyn Host>> {
        let hosts = locked(&self.hosts);
        let found = hosts.iter().flatten().find(|(name, _)| name == listener);
        found.map(|(_, host)| Arc::clone(host))
    }

    /// Replaces the hosts in use by `hosts`, and returns an empty list. If the pump has already
    /// taken its hosts in order to end them, returns `hosts` instead, and the caller must end them
    /// at once.
    pub fn replace(&self, hosts: Vec<HostedListener>) -> Vec<Arc<dyn Host>> {
        match &mut *locked(&self.hosts) {
            Some(in_use) => {
                *in_use = hosts;
                Vec::new()
            }
            None => hosts.into_iter().map(|(_, host)| host).collect(),
        }
    }

    /// Returns those hosts in `hosts` that the pump does not use at present.
    pub fn without_those_in_use(&self, hosts: Vec<HostedListener>) -> Vec<Arc<dyn Host>> {
        let in_use = locked(&self.hosts);
        let is_used =
            |host: &Arc<dyn Host>| in_use.iter().flatten().any(|(_, used)| Arc::ptr_eq(used, host));
        hosts.into_iter().map(|(_, host)| host).filter(|host| !is_used(host)).collect()
    }

    /// Returns the hosts of agents, with the names of the agents.
    pub fn agent_hosts(&self, contracts: &Contracts) -> Vec<HostedListener> {
        let is_agent = |name: &ListenerName| contracts.get(name).is_some_and(Contract::spends);
        let hosts = locked(&self.hosts);
        let agents = hosts.iter().flatten().filter(|(name, _)| is_agent(name));
        agents.cloned().collect()
    }

    /// Removes and returns all hosts, so that the pump can end them. Later calls return no hosts.
    pub fn take(&self) -> Vec<Arc<dyn Host>> {
        let hosts = locked(&self.hosts).take();
        hosts.into_iter().flatten().map(|(_, host)| host).collect()
    }
}

impl HostFactory {
    /// Makes a host for each agent that runs in this process.
    pub fn agents(&self, config: &Arc<Config>) -> Result<Vec<HostedListener>, Error> {
        let memory = Arc::clone(&self.memory);
        let Self { sink, runtime, models, limiters, tracer, .. } = self;
        let built = ConfiguredModels::watched(config, limiters, models, tracer)?;
        local_agents::agents(config, sink, runtime, &built, tracer, memory)
    }

    /// Makes a host for each listener that runs as a child process or has a handler in this
    /// process.
    pub fn listeners(
        &self,
        config: &Config,
        mut natives: HashMap<ListenerName, NativeHostBuilder>,
    ) -> Vec<HostedListener> {
        let mut hosts: Vec<HostedListener> = Vec::new();
        for spec in &config.processes {
            let host = match natives.remove(&spec.name) {
                Some(native) => native(self.sink.clone(), &self.runtime),
                None => self.process(config, spec),
            };
            hosts.push((spec.name.clone(), host));
        }

        // Handlers in place of agents, or of listeners that the config has elsewhere.
        let handlers = natives.into_iter().map(|(name, native)| {
            let host = native(self.sink.clone(), &self.runtime);
            (name, host)
        });
        hosts.extend(handlers);
        hosts
    }

    /// Makes a host for each workflow. A new host can continue an earlier run of the workflow. The
    /// state of the run follows from the run's definition and from the messages of the run's call.
    pub fn workflows(
        &self,
        config: &Config,
        definitions: BTreeMap<ListenerName, RunDefinitions>,
    ) -> Vec<HostedListener> {
        let hosts = definitions.into_iter().map(|(name, definitions)| {
            let memory = Arc::clone(&self.memory);
            let (data, sources) = fork_recalls::journals(config);
            let archive = Arc::new(JournalRuns { data, memory, sources });
            let contracts = &config.contracts;
            let schemas = &config.schemas;
            let handler =
                WorkflowHandler::new(name.clone(), definitions, contracts, schemas, archive);
            let sink: Arc<dyn Sink> = self.sink.clone();
            let host = NativeHost::new(name.clone(), Arc::new(handler), sink, self.runtime.clone());
            (name, Arc::new(host) as Arc<dyn Host>)
        });
        hosts.collect()
    }

    /// Makes the hosts for a reload from the config `before` to the config `after`. Keeps these
    /// present hosts:
    ///
    /// - the host of each child process that has the same settings in both configs, unless the
    ///   configs hide different variables of this process from listeners,
    /// - the host of each listener or agent on NATS.
    pub fn hosts_after(
        &self,
        before: &Config,
        after: &Arc<Config>,
        hosts: &SharedHosts,
    ) -> Result<Vec<HostedListener>, Error> {
        let mut next = self.agents(after)?;
        next.extend(self.workflows(after, workflow_runs::of_config(after)));

        let is_kept = |spec: &ProcessSpec| {
            before.processes.contains(spec)
                && before.directory == after.directory
                && hides_same(&before.withheld, &after.withheld)
        };
        for spec in &after.processes {
            let kept = if is_kept(spec) { hosts.of(&spec.name) } else { None };
            let host = kept.unwrap_or_else(|| self.process(after, spec));
            next.push((spec.name.clone(), host));
        }

        let agents = after.remote_agents().map(|agent| &agent.name);
        let remotes = after.remotes.iter().chain(agents);
        next.extend(remotes.filter_map(|name| Some((name.clone(), hosts.of(name)?))));
        Ok(next)
    }

    fn process(&self, config: &Config, spec: &ProcessSpec) -> Arc<dyn Host> {
        let options = self.process_options(config, spec);
        Arc::new(ProcessHost::start(options, self.sink.clone(), &self.runtime))
    }

    fn process_options(&self, config: &Config, spec: &ProcessSpec) -> Options {
        let mut options = Options::new(spec.name.clone(), spec.command.clone());
        options.instances = spec.instances;
        options.working_dir = Some(config.directory.clone());
        let exposed = spec.env.iter().map(|(key, value)| (key.clone(), value.expose().to_owned()));
        options.env = exposed.collect();
        options.withheld.clone_from(&config.withheld);
        options.launcher.clone_from(&config.launcher);
        options.pump = Some(self.mark.clone());
        options
    }
}

/// Logs a warning if other users can read the key that signs the checkpoints of this host.
pub(super) fn warn_of_readable_key(config: &Config) {
    if let Some(warning) = readable_key_warning(&config.state) {
        tracing::warn!("{warning}");
    }
}

/// Logs a warning if the processes of listeners need more file descriptors than this process may
/// have open. `natives` are the listeners without a process. `pumps` is the number of pumps that
/// this process may have: each one starts processes of its own.
pub(super) fn warn_of_file_limit(
    config: &Config,
    natives: &HashMap<ListenerName, NativeHostBuilder>,
    pumps: usize,
) {
    let Some(limit) = file_limit::current() else { return };
    let specs = config.processes.iter().filter(|spec| !natives.contains_key(&spec.name));
    let processes = specs.map(|spec| u64::from(spec.instances)).sum::<u64>() * pumps as u64;
    let needed = processes * limits::LISTENER_FILES + limits::ORGANISM_FILES;
    if processes > 0 && needed > limit {
        tracing::warn!(
            "{processes} processes of listeners need about {needed} file descriptors, and this \
             process may have {limit} open, so some of them may not start; raise its limit \
             (`ulimit -n`, or `LimitNOFILE` of systemd)"
        );
    }
}

/// Drains all hosts at the same time, so that a slow host does not delay the others. A draining
/// host refuses new deliveries, and its running deliveries may end within a time limit.
pub(super) async fn drain_all(hosts: &[Arc<dyn Host>]) {
    let drains = hosts.iter().cloned().map(|host| {
        tokio::spawn(async move {
            host.drain().await;
        })
    });
    join_tasks(drains.collect()).await;
}

/// Stops all hosts at the same time. The running deliveries of a host end at once.
pub(super) async fn stop_all(hosts: &[Arc<dyn Host>]) {
    let stops = hosts.iter().cloned().map(|host| {
        tokio::spawn(async move {
            host.stop().await;
        })
    });
    join_tasks(stops.collect()).await;
}

async fn join_tasks(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        if let Err(error) = task.await {
            tracing::error!("the task that stops a listener's host panicked: {error}");
        }
    }
}
