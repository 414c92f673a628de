//! Runs one pump with its hosts, and stops them. The pump runs on an OS thread of its
//! own. An organism has one runtime for each partition that it runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::access::HostPresence;
use super::alerts::{AlertSource, AlertWatch};
use super::fork_recalls;
use super::health::PumpHealth;
use super::hosts::{HostFactory, SharedHosts, drain_all, stop_all};
use super::index_follower::IndexFollower;
use super::models::ModelLimiters;
use super::nats_listeners;
use super::workflow_runs::{self, OpenDefinitions, WorkflowRuns};
use super::{Error, NativeHostBuilder};
use crate::blocking_work;
use crate::bus::nats::PromptConfig;
use crate::bus::process::{PumpMark, end_leftovers};
use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::{Digest, ListenerName};
use crate::journal::{self, Journal};
use crate::limits;
use crate::memory::JournalMemory;
use crate::pump::ResidentCore;
use crate::pump::core::{Core, CoreConfig, Schedules};
use crate::pump::driver::{Handle, Pump, PumpSink};
use crate::pump::gate::Gate;
use crate::pump::snapshot_maker::{SnapshotMaker, SnapshotPlan};
use crate::service::PumpService;
use crate::trace::SpanTracer;

pub(super) struct PumpRuntime {
    handle: Handle,
    sink: Arc<PumpSink>,
    data: PathBuf,
    /// Name of the journal, for error messages.
    journal: String,
    hosts: SharedHosts,
    /// Factory that makes the hosts of another config at a reload, or the reason why this pump
    /// cannot reload.
    factory: Result<Arc<HostFactory>, &'static str>,
    pump: JoinHandle<Result<(), journal::Error>>,
    /// Receiver of a channel that closes when the pump has ended.
    ended: watch::Receiver<()>,
    health: PumpHealth,
    index: Option<IndexFollower>,
    alerts: Arc<AlertWatch>,
}

/// Purpose of a start. Decides whether schedules run, whether the clock is frozen, and which open
/// work the pump reports at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StartPurpose {
    /// The organism runs until it is stopped.
    Service,
    /// The organism serves the command that started it, and ends with that command.
    Command,
    /// The organism takes the cancellation of the command that started it, and hands nothing over.
    /// It serves no other command.
    Cancellation,
    /// The organism runs a test case of a workflow. The clock moves only when the case lets time
    /// pass.
    Case,
}

impl PumpRuntime {
    /// Starts a pump on a journal whose records were applied to `core`. Stores the texts of the
    /// config in the journal, then starts the hosts and the pump's OS thread.
    pub async fn start(
        config: &Arc<Config>,
        core: ResidentCore,
        mut journal: Box<dyn Journal>,
        natives: HashMap<ListenerName, NativeHostBuilder>,
        purpose: StartPurpose,
        tracer: &SpanTracer,
    ) -> Result<Self, Error> {
        let runtime = runtime::Handle::current();
        let open = OpenDefinitions::also_outside(&core)?;
        let WorkflowRuns { config: extended, definitions } = workflow_runs::at_start(config, open);
        // An embedding program has its own handlers, and a test case its own clock.
        let is_embedded = !natives.is_empty() || purpose == StartPurpose::Case;
        let has_earlier_runs = !Arc::ptr_eq(config, &extended);
        let config = &extended;
        let contracts = Arc::new(config.contracts.clone());
        let core = core.map(|core| core.with_contracts(contracts));

        let blobs = store_texts(config, &mut *journal)?;
        let mark = end_earlier_processes(&*journal);

        let gate = gate_of(config);
        let last_time = core.state().time;
        let core = core.try_map(|core| with_schedules(core, config, &gate))?;

        let plan = SnapshotPlan {
            data: config.data.clone(),
            state: config.state.clone(),
            journal: journal.id(),
            records: config.snapshot_records,
            proof: journal.proof(),
        };
        let snapshots = SnapshotMaker::start(plan)?;
        let pump = Pump::new(core, journal, gate).with_blobs(blobs).with_snapshots(snapshots);
        let (recalls, orders) = fork_recalls::channel();
        let pump = pump.with_recalls(recalls);

        let mut pump = for_purpose(pump.traced(tracer.clone()), purpose, config);
        let mut health = PumpHealth::new(config, pump.counts());
        let factory = HostFactory {
            sink: pump.sink(),
            runtime,
            models: Arc::clone(&health.models),
            limiters: ModelLimiters::default(),
            tracer: tracer.clone(),
            memory: Arc::new(JournalMemory::new(config.data.clone())),
            mark,
            prompts: PromptConfig::new(config.digest),
            presence: Arc::new(show_presence(config)?),
        };
        let mut hosts = factory.agents(config)?;
        hosts.extend(factory.listeners(config, natives));
        hosts.extend(factory.workflows(config, definitions));
        hosts.extend(nats_listeners::remotes(config, &factory).await?);
        for (listener, host) in &hosts {
            pump.host(listener.clone(), Arc::clone(host));
        }

        let handle = pump.handle();
        let sink = Arc::clone(&factory.sink);
        tokio::spawn(fork_recalls::serve(orders, handle.clone(), fork_recalls::journals(config)));
        let (running, ended) = watch::channel(());
        let alerts = health.alert_watch(config, &factory, &handle, &ended, last_time);
        let pump = run_pump(pump, running, Arc::clone(&alerts))?;
        let hosts = SharedHosts::new(hosts, Arc::clone(&factory.presence));
        let factory = factory_for_reloads(factory, is_embedded, has_earlier_runs);
        let data = config.data.clone();
        let journal = config.journal_name();
        let index = None;
        Ok(Self { handle, sink, data, journal, hosts, factory, pump, ended, health, index, alerts })
    }

    /// Keeps the index of the journal up to date from now on, until the pump ends.
    pub fn follow_index(&mut self) -> Result<(), Error> {
        let recorded = self.handle.recorded();
        let follower = IndexFollower::start(self.data.clone(), recorded, self.ended.clone())?;
        self.health.index = Some(follower.lag());
        self.index = Some(follower);
        Ok(())
    }

    /// Starts the watch for alerts if the config declares alerts. The watch ends with the pump.
    pub fn watch_alerts(&self, config: &Config) -> Result<(), Error> {
        self.alerts.configure(config, self.health.index.clone())
    }

    /// Returns the watch for alerts of this pump. A reload configures it anew.
    pub fn alerts(&self) -> &Arc<AlertWatch> {
        &self.alerts
    }

    /// Returns the hosts of this pump. A reload replaces them.
    pub fn hosts(&self) -> &SharedHosts {
        &self.hosts
    }

    /// Returns the factory for the hosts of another config. Fails with the reason if this pump
    /// takes another config only at a restart.
    pub fn factory(&self) -> Result<Arc<HostFactory>, &'static str> {
        self.factory.clone()
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the health of the pump, which includes its metrics.
    pub fn health(&self) -> PumpHealth {
        self.health.clone()
    }

    /// Returns the service that carries out requests on this pump.
    pub fn service(&self) -> PumpService {
        PumpService::new(self.handle.clone(), self.data.clone())
    }

    pub fn has_ended(&self) -> bool {
        self.pump.is_finished()
    }

    /// Returns when the pump has ended. If no stop was requested, a pump ends only after a fatal
    /// error.
    pub async fn ended(&self) {
        // No value is ever sent. The channel closes when the pump has ended.
        self.ended.clone().changed().await.ok();
    }

    /// Returns when the pump has ended, as [`PumpRuntime::ended`] does. The returned future does
    /// not borrow the runtime.
    pub fn end(&self) -> impl Future<Output = ()> + use<> {
        let mut ended = self.ended.clone();
        async move {
            ended.changed().await.ok();
        }
    }

    /// Stops in this order: entry points close, deliveries in flight end, hosts end, the journal
    /// closes.
    pub async fn drain(self, reason: &str) -> Result<(), Error> {
        let handle = self.handle.clone();
        let drained = async {
            handle.drain(reason).await.ok();
        };
        self.end_when(drained, tokio::time::sleep(limits::DRAIN_TIMEOUT)).await
    }

    /// Stops the pump as [`PumpRuntime::drain`] does, but ends the deliveries in flight at once
    /// when `enough` completes. Another process then continues the work.
    pub async fn hand_over(
        self,
        reason: &str,
        enough: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let handle = self.handle.clone();
        let drained = async {
            handle.hand_over(reason).await.ok();
        };
        self.end_when(drained, enough).await
    }

    /// Ends the pump and its hosts when `drained` completes, or when `enough` completes before.
    async fn end_when(
        self,
        drained: impl Future<Output = ()>,
        enough: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        self.alerts.stop().await;
        let is_drained = tokio::select! {
            // If the pump has already ended, the drain returns immediately.
            () = drained => true,
            () = enough => false,
        };

        if is_drained {
            drain_all(&self.hosts.take()).await;
        } else {
            warn_of_end(&self.health, begun.elapsed());
            self.stop_turns().await;
            self.handle.stop();
            stop_all(&self.hosts.take()).await;
        }

        self.join().await
    }

    /// Stops the running turns of agents, and waits for a limited time until the agents have
    /// reported what their model calls have used.
    ///
    /// **Ordering rule:** called before the pump is stopped. The reports are then in the pump's
    /// inbox before the request to stop, so the pump records them first.
    async fn stop_turns(&self) {
        let agents = self.hosts.agent_hosts(&self.handle.contracts());
        let (names, agents): (Vec<_>, Vec<_>) = agents.into_iter().unzip();
        self.sink.begin_stop(names);
        // An agent that does not report in time counts as lost, so its whole reservation is charged.
        timeout(limits::STOPPED_TURNS_TIMEOUT, stop_all(&agents)).await.ok();
    }

    /// Waits until the pump's thread has ended, and returns its result.
    pub async fn join(self) -> Result<(), Error> {
        let Self { pump, journal, index, .. } = self;
        let join = move || {
            let ended = pump.join();
            // The directory of the journal belongs to the next process from now on.
            if let Some(index) = index {
                index.join();
            }
            ended
        };
        let ended = blocking_work::run(join).await;
        match ended {
            Ok(Ok(result)) => Ok(result.map_err(|error| error.in_journal(journal))?),
            Ok(Err(_)) | Err(_) => Err(Error::Stopped),
        }
    }

    /// Returns the result of a pump that ended although no stop was requested. Stops its hosts on a
    /// separate task, without waiting for them.
    pub async fn finish_detached(self) -> Result<(), Error> {
        let hosts = self.hosts.take();
        drop(tokio::spawn(async move { drain_all(&hosts).await }));
        self.join().await
    }
}

/// Prepares a pump for the purpose of its start.
fn for_purpose(pump: Pump, purpose: StartPurpose, config: &Config) -> Pump {
    let pump = pump.of_partition(config.own_partition());
    match purpose {
        StartPurpose::Service => pump,
        // The work that other commands have left open does not concern this one.
        StartPurpose::Command => pump.reporting_own_work(),
        StartPurpose::Cancellation => pump.reporting_own_work().draining_from_boot(),
        // A program may keep the ids of requests, and would mistake the next run for a repetition.
        StartPurpose::Case if config.processes.is_empty() => {
            pump.with_frozen_clock().with_same_ids()
        }
        StartPurpose::Case => pump.with_frozen_clock(),
    }
}

/// Returns the factory with which a reload makes hosts. Fails with the reason if the pump takes
/// another config only at a restart.
fn factory_for_reloads(
    factory: HostFactory,
    is_embedded: bool,
    has_earlier_runs: bool,
) -> Result<Arc<HostFactory>, &'static str> {
    if is_embedded {
        return Err("another program embeds the organism");
    }
    // A reload does not know the definitions of these runs.
    if has_earlier_runs {
        return Err(
            "a workflow run that was open at the start is on a definition of an earlier config",
        );
    }
    Ok(Arc::new(factory))
}

/// Logs why a pump is ended before it has completed its work. `waited` is the time for which the
/// stop waited for this work.
fn warn_of_end(health: &PumpHealth, waited: Duration) {
    let obstacle = health.counts().waits_for();
    if let Some(obstacle) = obstacle {
        tracing::warn!(
            "{obstacle}: the journal took no records within {waited:.0?}, so the pump is stopped \
             without a last record"
        );
    }
    if obstacle.is_none() || health.under_way() > 0 {
        tracing::warn!("some listeners did not finish within {waited:.0?} and were stopped");
    }
}

/// Stores the texts of the config in the journal, and returns their digests. The texts are the
/// config itself, its prompts and schemas, and the definitions of its workflows. They are stored
/// because every model request must be reproducible from the journal alone.
fn store_texts(config: &Config, journal: &mut dyn Journal) -> Result<Vec<Digest>, Error> {
    let texts = config.texts().into_iter();
    let digests = texts.map(|text| journal.put_blob(text.as_bytes()));
    Ok(digests.collect::<Result<_, _>>()?)
}

impl PumpHealth {
    /// Makes the watch for the alerts of a pump. `handle` reaches the pump. Adds the metrics of the
    /// watch to this health of the pump.
    fn alert_watch(
        &mut self,
        config: &Config,
        factory: &HostFactory,
        handle: &Handle,
        ended: &watch::Receiver<()>,
        last_time: Time,
    ) -> Arc<AlertWatch> {
        let watch = Arc::new(AlertWatch::new(AlertSource {
            pump: handle.clone(),
            runtime: factory.runtime.clone(),
            data: config.data.clone(),
            state: config.state.clone(),
            health: Arc::clone(self.counts()),
            ended: ended.clone(),
            mark: factory.mark.clone(),
            last_time,
        }));
        self.alerts = Some(Arc::clone(watch.metrics()));
        watch
    }
}

/// Makes the gate of a config. The gate validates every payload. `config` must already have the
/// schemas that `with_core_words` adds.
pub(super) fn gate_of(config: &Config) -> Gate {
    let gate = Gate::new(Arc::new(config.contracts.clone()), config.schemas.clone());
    gate.with_payload_bytes(config.payload_bytes)
}

/// Returns the parts of a config that the core receives at a reload.
pub(super) fn core_config(
    config: &Config,
    gate: &Gate,
    runs_schedules: bool,
) -> Result<CoreConfig, Error> {
    let schedules = if runs_schedules { Some(schedules_of(config, gate)?) } else { None };
    Ok(CoreConfig {
        contracts: Arc::clone(&gate.contracts),
        limits: config.limits,
        schedules: schedules.map(Arc::new),
        digest: config.digest,
    })
}

/// Returns the core with the schedules of its partition. Returns the core unchanged if this process
/// runs no schedules.
pub(super) fn with_schedules(core: Core, config: &Config, gate: &Gate) -> Result<Core, Error> {
    if !config.runs_schedules {
        return Ok(core);
    }
    Ok(core.with_schedules(schedules_of(config, gate)?))
}

fn schedules_of(config: &Config, gate: &Gate) -> Result<Schedules, Error> {
    let partition = match &config.storage {
        StorageConfig::Embedded => 0,
        StorageConfig::JetStream { journal, .. } => journal.partition,
    };
    let schedules = Schedules::new(&config.schedules, gate, (partition, config.partitions()));
    schedules.map_err(|(schedule, refusal)| Error::Schedule { schedule, detail: refusal.message })
}

/// Shows other processes that this process hosts listeners of the config's organism.
fn show_presence(config: &Config) -> Result<HostPresence, Error> {
    HostPresence::show(config).map_err(Error::io("starting a thread that shows the organism"))
}

/// Kills processes that an earlier pump of this journal has left running, so that they do not run
/// beside the processes of the present pump. Returns the mark that the present pump gives to each
/// process that it starts. `journal` is the journal of both pumps.
fn end_earlier_processes(journal: &dyn Journal) -> PumpMark {
    let mark = PumpMark::of_this_process(journal.id(), journal.epoch());
    let ended = end_leftovers(&mark);
    if !ended.is_empty() {
        tracing::warn!(
            "ended processes that an earlier run on this journal had left: {}",
            ended.join(", ")
        );
    }

    mark
}

/// Runs the pump on an OS thread of its own, because every step waits for the disk.
fn run_pump(
    pump: Pump,
    running: watch::Sender<()>,
    alerts: Arc<AlertWatch>,
) -> Result<JoinHandle<Result<(), journal::Error>>, Error> {
    let run = move || {
        let ended = pump.run(super::VERSION);
        drop(running);
        if let Err(error) = &ended {
            tracing::error!("the pump stopped: {error}");
            alerts.report_fatal(error);
        }
        ended
    };

    let thread = std::thread::Builder::new().name("pump".to_owned());
    thread.spawn(run).map_err(Error::io("starting the pump's thread"))
}
