//! The part of a partitioned organism that runs in this process. Each partition has a worker, which
//! either runs the partition's pump or stands by to take over. One control socket serves all
//! partitions.

mod live;
mod membership;
mod partition_map;
mod rebalance;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::access;
use super::control;
use super::health::HealthMonitor;
use super::hosts::{warn_of_file_limit, warn_of_readable_key};
use super::project;
use super::pump_rpc::{KnownMembers, PumpRpc};
use super::reload::{ReloadService, SharedRules};
use super::{
    Error, check_start, exporter, flush_spans, open_control_socket, tracer, with_core_words,
};
use crate::config::{Config, StorageConfig};
use crate::journal::sqlite::{DirectoryLock, hold};
use crate::journal::{self, may_have_journal};
use crate::owned_tasks::AbortOnDrop;
use crate::pump::driver::WriteObstacle;
use crate::telemetry::SpanExporter;
use membership::{GroupMembership, refuse_taken_name};
use partition_map::PartitionLocation;
use worker::PartitionWorker;

pub use partition_map::PartitionMap;

/// Status of a partition, as seen by this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionStatus {
    /// This process does not serve the partition.
    Foreign,
    /// The partition's worker in this process has not read the lease of the partition yet.
    Starting,
    /// The process with this name runs the partition's pump, and this process stands by to take
    /// over.
    Elsewhere(String),
    /// This process can neither run the partition's pump nor follow the journal now, and will try
    /// again.
    Waiting {
        obstacle: WriteObstacle,
        /// The error of the last attempt.
        why: String,
    },
    Here,
    /// This process is handing the partition over.
    Leaving,
    /// The pump of the partition failed, and a retry cannot help. An operator must act.
    Broken(String),
}

/// The part of a partitioned organism that runs in this process.
pub struct PartitionedOrganism {
    name: Arc<str>,
    map: Arc<PartitionMap>,
    workers: Vec<JoinHandle<Result<(), Error>>>,
    stop: watch::Sender<Option<String>>,
    control: Option<control::ControlServer>,
    reloader: ReloadService,
    exporter: Option<SpanExporter>,
    /// Responder that reports to other processes up to which position this process has copies of
    /// the partitions' journals, including those of broken partitions.
    _responder: Option<AbortOnDrop>,
    // Declared last, so that the locks of the directories are released after everything in the
    // directories is closed.
    _locks: [DirectoryLock; 2],
}

impl PartitionedOrganism {
    /// Starts in this order: locks the directory, connects to NATS, starts a worker for each of the
    /// `partitions`, opens the control socket. Each worker verifies and follows the journal of its
    /// partition. When the worker gets the lease of the partition, it starts the hosts and the
    /// pump, and subscribes to the subject of the partition.
    pub async fn start(config: Config, partitions: &[u32]) -> Result<Self, Error> {
        access::refuse_hosted_start(&config)?;
        check_start(&config)?;
        let config = Arc::new(with_core_words(config)?);
        project::begin(&config.directories(), false)?;
        warn_of_file_limit(&config, &HashMap::new(), partitions.len());
        warn_of_readable_key(&config);
        let locks = lock(&config)?;
        let StorageConfig::JetStream { servers, journal } = &config.storage else {
            return Err(Error::Divided { partitions: config.partitions() });
        };

        let rpc = PumpRpc::connect(servers, &config.name, &journal.stream).await?;
        // Ordering rule: before this process subscribes, because it would be a process that runs.
        refuse_taken_name(&rpc, &config, journal).await?;
        rpc.check_rights(partitions).await?;
        let rules = Arc::new(SharedRules::new(&config));
        let reloader = ReloadService::new(&config, &rules);
        let map = Arc::new(PartitionMap::new(config.partitions(), partitions, rpc, rules));
        let known = Arc::clone(&map);
        let members: KnownMembers = Arc::new(move || known.members());
        let _responder = map.rpc.answer_for_projections(&config, members).await?;

        let (stop, stopped) = watch::channel(None);
        let exporter = exporter(&config);
        let tracer = tracer(exporter.as_ref());
        let mut workers = Vec::new();
        let mut heir_senders = BTreeMap::new();

        for &partition in partitions {
            let (heir_sender, hand_over) = mpsc::channel(1);
            heir_senders.insert(partition, heir_sender);
            let worker = PartitionWorker::new(
                partition,
                Arc::clone(&map),
                reloader.clone(),
                hand_over,
                stopped.clone(),
                tracer.clone(),
            );
            workers.push(tokio::spawn(worker.run()));
        }

        let membership = GroupMembership::new(Arc::clone(&map), reloader.config(), heir_senders);
        drop(tokio::spawn(async move {
            if let Err(error) = membership.call(stopped).await {
                tracing::error!(
                    "the membership task failed, so this process hands over no partitions any \
                     more: {error}"
                );
            }
        }));

        let name = config.name.as_str().into();
        let control = None;
        let mut organism = Self {
            name,
            map,
            workers,
            stop,
            control,
            reloader: reloader.clone(),
            exporter,
            _responder,
            _locks: locks,
        };
        let context = control::ControlContext::of_several(Arc::clone(&organism.map), reloader);

        match open_control_socket(&config, context) {
            Ok(control) => organism.control = Some(control),
            Err(error) => {
                return organism.stop("the control socket cannot be opened").await.and(Err(error));
            }
        }

        Ok(organism)
    }

    /// Returns the status of every partition, in order.
    pub fn statuses(&self) -> Vec<PartitionStatus> {
        self.map.statuses()
    }

    /// Returns the service that reloads the config in all pumps of this process.
    pub fn reloader(&self) -> ReloadService {
        self.reloader.clone()
    }

    /// Returns the health monitor of this process. The monitor stays usable after the process has
    /// stopped its pumps.
    pub fn health(&self) -> HealthMonitor {
        HealthMonitor::of_several(
            &self.name,
            Arc::clone(&self.map),
            &tracer(self.exporter.as_ref()),
        )
    }

    /// Whether every worker has ended. If no stop was requested, a worker ends only when its
    /// partition is broken.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Closes the entry points, and then stops each partition in this order: deliveries in flight
    /// end, hosts end, the journal closes, the lease is released. After that, clients that wait
    /// over NATS find the process that takes over the partition.
    pub async fn stop(mut self, reason: &str) -> Result<(), Error> {
        let connections = self.control.take().map(control::ControlServer::close);
        // The send fails if every worker has already ended.
        self.stop.send(Some(reason.to_owned())).ok();
        let ended = self.join().await;
        if let Some(connections) = connections {
            connections.end().await;
        }
        ended
    }

    /// Waits until all workers have ended. Returns the first error, if any.
    pub async fn join(self) -> Result<(), Error> {
        let mut first = Ok(());
        for worker in self.workers {
            let ended = worker.await.unwrap_or(Err(Error::Stopped));
            first = first.and(ended);
        }

        self.map.end_followers();
        flush_spans(self.exporter).await;
        first
    }
}

/// Locks the data directory and the state directory. Only one process may run partitions in a data
/// directory, because that process opens the directory's only control socket.
fn lock(config: &Config) -> Result<[DirectoryLock; 2], Error> {
    let Config { data, state, .. } = config;
    if may_have_journal(data) {
        let detail = "holds a journal that is not divided: name another directory, or take \
                      `partitions` out";
        let path = data.display().to_string();
        return Err(journal::Error::ForeignJournal { path, detail: detail.to_owned() }.into());
    }

    Ok(hold(data, state)?)
}
