//! Starts an organism in this order: directories, journal, state, hosts, pump, and last the control
//! socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::health::HealthMonitor;
use super::hosts::{warn_of_file_limit, warn_of_readable_key};
use super::pump_rpc::PumpRpc;
use super::pump_runtime::{PumpRuntime, StartPurpose};
use super::reload::SharedRules;
use super::{
    Error, NativeHostBuilder, Organism, ReloadService, access, alerts, check_start, control, core,
    exporter, open_control_socket, open_journal, project, tracer, with_core_words,
};
use crate::config::{Config, StorageConfig};
use crate::ids::ListenerName;
use crate::journal::{self, jetstream};
use crate::limits;
use crate::owned_tasks::AbortOnDrop;
use crate::service::announcement::{self, Announcement, CommandPresence};

impl Organism {
    /// Starts everything that the config declares, in this order: verifies the journal, rebuilds
    /// the state, starts the hosts and the pump, and last opens the control socket.
    pub async fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, HashMap::new()).await
    }

    /// Starts as [`Organism::start`] does, for a process that keeps running and announces itself.
    /// If a command runs an organism on the same journal, first waits until that organism has
    /// ended. In this case, calls `on_wait` once with the name of the process that holds the
    /// journal.
    pub async fn start_announced(
        config: Config,
        on_wait: impl FnOnce(&str),
    ) -> Result<Self, Error> {
        access::refuse_hosted_start(&config)?;
        bind_directories(&config, StartPurpose::Service).await?;
        let _announcement = Announcement::make(&config.data)?;
        let mut on_wait = Some(on_wait);
        // On JetStream, a pump of another host may hold the lease while a command only tries to
        // start here. A command that pumps has locked the journal's directory.
        let directory = config.data.display().to_string();

        loop {
            let is_used = || announcement::is_used_by_command(&config.data);
            // Read also before the attempt, because the command may end after the journal was found
            // in use.
            let was_used = is_used();
            match Self::start(config.clone()).await {
                Err(Error::Journal(journal::Error::InUse { path, holder }))
                    if path == directory && (was_used || is_used()) =>
                {
                    if let Some(on_wait) = on_wait.take() {
                        on_wait(&holder);
                    }
                    tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
                }
                started => return started,
            }
        }
    }

    /// Starts as [`Organism::start`] does, for a command. The organism ends together with the
    /// command.
    pub async fn start_for_command(config: Config) -> Result<Self, Error> {
        Self::start_as(config, HashMap::new(), StartPurpose::Command).await
    }

    /// Starts as [`Organism::start`] does, but serves each listener in `natives` by a handler of
    /// the embedding program instead of a process.
    pub async fn start_with(
        config: Config,
        natives: HashMap<ListenerName, NativeHostBuilder>,
    ) -> Result<Self, Error> {
        Self::start_as(config, natives, StartPurpose::Service).await
    }

    /// Starts as [`Organism::start_with`] does, for a test case of a workflow. The clock is frozen
    /// and moves only when the case advances it.
    pub(super) async fn start_for_case(
        config: Config,
        natives: HashMap<ListenerName, NativeHostBuilder>,
    ) -> Result<Self, Error> {
        Self::start_as(config, natives, StartPurpose::Case).await
    }

    pub(super) async fn start_as(
        config: Config,
        natives: HashMap<ListenerName, NativeHostBuilder>,
        purpose: StartPurpose,
    ) -> Result<Self, Error> {
        let for_command = matches!(purpose, StartPurpose::Command | StartPurpose::Cancellation);
        if config.partitions() > 1 {
            return Err(Error::Divided { partitions: config.partitions() });
        }

        access::refuse_hosted_start(&config)?;
        check_start(&config)?;
        // A command's organism ends with the command, and would leave a scheduled run unfinished.
        let runs_schedules = config.runs_schedules && !for_command;
        let config = Arc::new(Config { runs_schedules, ..with_core_words(config)? });
        bind_directories(&config, purpose).await?;
        let presence = if for_command { Some(CommandPresence::take(&config.data)?) } else { None };

        let mut core = core(&config);
        let journal = open_journal(&config, &mut core);
        if purpose == StartPurpose::Service
            && let Err(Error::Journal(error)) = &journal
        {
            alerts::report_failed_start(&config, error).await;
        }
        let journal = journal?;
        warn_of_file_limit(&config, &natives, 1);
        warn_of_readable_key(&config);
        let _responder = start_projection_responder(&config);

        let exporter = exporter(&config);
        let tracer = tracer(exporter.as_ref());

        let mut runtime =
            PumpRuntime::start(&config, core, journal, natives, purpose, &tracer).await?;
        // For a command that ends soon, no follower starts: the next query updates the index.
        if purpose == StartPurpose::Service {
            runtime.follow_index()?;
            runtime.watch_alerts(&config)?;
        }
        let health = HealthMonitor::of_one(&config.name, runtime.health(), &tracer);
        let rules = Arc::new(SharedRules::new(&config));
        let reloader = ReloadService::new(&config, &rules);
        reloader.join(0, &config, &runtime).await?;
        let mut organism = Self {
            config,
            runtime,
            control: None,
            reloader,
            health,
            exporter,
            _responder,
            _presence: presence,
        };

        // Other commands wait until this organism has ended, because it would refuse their work.
        if purpose == StartPurpose::Cancellation {
            return Ok(organism);
        }
        match organism.open_control_socket(rules) {
            Ok(()) => Ok(organism),
            // Drop the started part: it would hold the journal without serving requests.
            Err(error) => {
                organism.stop("the control socket cannot be opened").await.and(Err(error))
            }
        }
    }

    fn open_control_socket(&mut self, rules: Arc<SharedRules>) -> Result<(), Error> {
        let service = self.runtime.service();
        let context = control::ControlContext::of(service, rules, self.reloader.clone());
        self.control = Some(open_control_socket(&self.config, context)?);
        Ok(())
    }
}

/// Binds the directories to their project. Refuses a start without a data directory if a journal with
/// acknowledged records was there, before a new directory takes the place of the one that was moved
/// away. A journal on JetStream is copied again.
async fn bind_directories(config: &Config, purpose: StartPurpose) -> Result<(), Error> {
    let is_embedded = matches!(config.storage, StorageConfig::Embedded);
    // Where a part of the path is no directory, the next function names it.
    if is_embedded && matches!(config.data.try_exists(), Ok(false)) {
        let refused = journal::refuse_lost_file(&config.data, &config.state);
        if purpose == StartPurpose::Service
            && let Err(error) = &refused
        {
            alerts::report_failed_start(config, error).await;
        }
        refused?;
    }

    Ok(project::begin(&config.directories(), false)?)
}

/// Starts a task that reports the position of this machine's projection, which is a copy of the
/// stream. The reports begin as soon as NATS is reachable. A pump that starts on another machine
/// learns from the reports how many records the stream has had. Returns `None` for an embedded
/// journal.
fn start_projection_responder(config: &Arc<Config>) -> Option<AbortOnDrop> {
    let StorageConfig::JetStream { servers, journal } = &config.storage else { return None };
    let servers = servers.clone();
    let journal = journal.stream.clone();
    let config = Arc::clone(config);
    let members = BTreeMap::from([(jetstream::MemberId::here(), jetstream::this_process())]);
    Some(AbortOnDrop::new(tokio::spawn(async move {
        let started = async {
            let rpc = PumpRpc::connect(&servers, &config.name, &journal).await?;
            rpc.answer_for_projections(&config, Arc::new(move || members.clone())).await
        };

        match started.await {
            Ok(Some(mut responder)) => responder.ended().await,
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(
                    "could not subscribe to requests for the position of the projection: {error}"
                );
            }
        }
    })))
}
