//! One organism, from its config to its last record: what starts in which order, and what stops.
//!
//! Must not know terminals or browsers.

pub mod control;
mod door;
mod guests;
mod kin;
mod matter;
mod metered;
mod models;
pub mod nats_config;
mod preview;
mod remotes;
mod watcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime;

use crate::bus::process::{Options, ProcessHost};
use crate::bus::{Host, Sink};
use crate::config::{Config, ModelSpec, Problems, ProcessSpec, Provider, Storage};
use crate::ids::ListenerName;
use crate::journal::{self, Journal, Sealed, jetstream, sqlite};
use crate::limits;
use crate::model::KeySource;
use crate::nats;
use crate::pump::core::Core;
use crate::pump::driver::{Handle, Pump, PumpSink};
use crate::pump::gate::Gate;

pub use door::{Answered, Door, Parcel, Sent};
pub use matter::{Matter, What};
pub use metered::ModelCounts;
pub use models::Models;
pub use preview::{Due, Moment, Preview, due, preview};
pub use watcher::Watcher;

/// Why an organism does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
    #[error(transparent)]
    Nats(#[from] crate::nats::Error),
    #[error(transparent)]
    Listeners(#[from] crate::bus::nats::Error),
    #[error("the model `{model}`: {detail}")]
    Model { model: String, detail: String },
    /// A bug: the schemas that are built in do not load.
    #[error("a built-in schema: {detail}")]
    Builtin { detail: String },
    /// Only found once there was nobody else to ask: see [`Config::keys_missing`].
    #[error("{0}")]
    Keys(Arc<Problems>),
    /// There is no prompt to be shown.
    #[error("{detail}")]
    Preview { detail: String },
    #[error("the organism has stopped; its log says why")]
    Stopped,
    /// It went away in the middle of an answer.
    #[error(
        "the running organism ended before everything was said; what it had accepted goes on at \
         its next start: send again with the same --key, or read the thread"
    )]
    Lost,
    /// What a running organism answered over its socket was not understood.
    #[error("the running organism could not do it: {detail}")]
    Control { detail: String },
}

impl Error {
    fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }
}

/// Makes the host of a native listener, which reports to the given sink.
pub type Native = Box<dyn FnOnce(Arc<dyn Sink>, &runtime::Handle) -> Arc<dyn Host> + Send>;

/// A listener's name and what runs it.
type Hosted = (ListenerName, Arc<dyn Host>);

/// A running organism.
pub struct Organism {
    config: Arc<Config>,
    handle: Handle,
    hosts: Vec<Arc<dyn Host>>,
    pump: JoinHandle<Result<(), journal::Error>>,
    control: Option<control::Server>,
    watcher: Watcher,
}

impl Organism {
    /// Starts everything the config names, in this order: the journal is proved and the state
    /// rebuilt, the hosts are made, the pump runs, and last the door is opened.
    pub async fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, HashMap::new()).await
    }

    /// As [`Organism::start`], with handlers of the embedding program in place of processes.
    pub async fn start_with(
        config: Config,
        natives: HashMap<ListenerName, Native>,
    ) -> Result<Self, Error> {
        if !config.keys_missing.is_empty() {
            // Whoever holds the journal has its keys: there will be somebody to ask.
            journal::sqlite::is_free(&config.data)?;
            return Err(Error::Keys(Arc::clone(&config.keys_missing)));
        }
        let config = Arc::new(with_core_words(config)?);
        let runtime = runtime::Handle::current();
        let contracts = Arc::new(config.contracts.clone());
        let mut core = Core::new(contracts.clone(), config.limits, config.digest);
        let journal = open_journal(&config, &mut core)?;
        let gate = Gate::new(contracts, config.schemas.clone());
        let gate = gate.with_payload_bytes(config.payload_bytes);
        let mut pump = Pump::new(core, journal, gate);
        let watcher = Watcher::new(&config, pump.counts());
        let mut hosts = hosts(&config, &pump.sink(), natives, &runtime, watcher.models())?;
        hosts.extend(remotes::remotes(&config, &pump.sink(), &runtime).await?);
        for (listener, host) in &hosts {
            pump.host(listener.clone(), Arc::clone(host));
        }
        let handle = pump.handle();
        let pump = run_pump(pump)?;
        let hosts = hosts.into_iter().map(|(_, host)| host).collect();
        let mut organism = Self { config, handle, hosts, pump, control: None, watcher };
        match organism.open_door() {
            Ok(()) => Ok(organism),
            // Half an organism would hold the journal and answer nobody.
            Err(error) => organism.stop("the door cannot be opened").await.and(Err(error)),
        }
    }

    fn open_door(&mut self) -> Result<(), Error> {
        let path = control::path(&self.config.data);
        let (handle, data) = (self.handle.clone(), self.config.data.clone());
        let desk = control::Desk { handle, data, patience: limits::CONTROL_PATIENCE };
        self.control = Some(
            control::Server::open(&path, desk)
                .map_err(Error::io(format!("opening the control socket {}", path.display())))?,
        );
        Ok(())
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What tells how it is, for as long as anybody asks.
    pub fn watcher(&self) -> Watcher {
        self.watcher.clone()
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the pump has ended, which it does by itself only when it must not go on.
    pub fn has_ended(&self) -> bool {
        self.pump.is_finished()
    }

    /// Stops in this order: nothing comes in, what is handed over ends, the hosts end, the
    /// journal is closed. What waits is on record and goes on at the next start.
    pub async fn stop(mut self, reason: &str) -> Result<(), Error> {
        if let Some(control) = self.control.take() {
            control.close();
        }
        self.drain(reason).await
    }

    /// As [`Organism::stop`], once everybody who is connected has been told what they wait for.
    pub async fn stop_when_served(mut self, reason: &str) -> Result<(), Error> {
        if let Some(control) = self.control.take() {
            control.close().all().await;
        }
        self.drain(reason).await
    }

    async fn drain(self, reason: &str) -> Result<(), Error> {
        let drained = self.handle.drain(reason);
        let in_time = tokio::time::timeout(limits::DRAIN_TIMEOUT, drained).await;
        if in_time.is_err() {
            tracing::warn!("listeners were still busy after {:?}", limits::DRAIN_TIMEOUT);
            self.handle.stop();
        }
        drain_all(&self.hosts).await;
        self.join().await
    }

    /// Waits for the pump's end and says how it was.
    pub async fn join(self) -> Result<(), Error> {
        let ended = tokio::task::spawn_blocking(move || self.pump.join()).await;
        match ended {
            Ok(Ok(result)) => result.map_err(Error::from),
            Ok(Err(_)) | Err(_) => Err(Error::Stopped),
        }
    }
}

/// The gate of a config by itself, for whoever wants verdicts and nothing else.
pub fn gate(config: Config) -> Result<Gate, Error> {
    let config = with_core_words(config)?;
    let gate = Gate::new(Arc::new(config.contracts), config.schemas);
    Ok(gate.with_payload_bytes(config.payload_bytes))
}

/// Side by side: one that takes its time holds up no other.
async fn drain_all(hosts: &[Arc<dyn Host>]) {
    let drains = hosts.iter().cloned().map(|host| {
        tokio::spawn(async move {
            host.drain().await;
        })
    });
    for drain in drains.collect::<Vec<_>>() {
        if let Err(error) = drain.await {
            tracing::error!("a host did not end as it should: {error}");
        }
    }
}

/// Schemas of the words every organism knows.
fn with_core_words(mut config: Config) -> Result<Config, Error> {
    let builtins = [("core.xsd", crate::system::SCHEMA), ("agent.xsd", crate::agent::SCHEMA)];
    for (label, text) in builtins {
        config.schemas.add_builtin(label, text).map_err(|problems| Error::Builtin {
            detail: problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        })?;
    }
    Ok(config)
}

fn open_journal(config: &Config, core: &mut Core) -> Result<Box<dyn Journal>, Error> {
    let Config { data, state, .. } = config;
    let mut replay = |sealed: Sealed| {
        core.replay(&sealed.record);
        Ok(())
    };
    let mut journal: Box<dyn Journal> = match &config.storage {
        Storage::Embedded => Box::new(sqlite::Journal::open(data, state, &mut replay)?),
        Storage::JetStream { servers, journal } => {
            Box::new(jetstream::Journal::open(servers, journal, data, state, &mut replay)?)
        }
    };
    // What a model is sent must be a function of what the journal holds.
    journal.put_blob(config.text.as_bytes())?;
    for document in config.schemas.documents() {
        journal.put_blob(document.as_bytes())?;
    }
    Ok(journal)
}

fn hosts(
    config: &Arc<Config>,
    sink: &Arc<PumpSink>,
    mut natives: HashMap<ListenerName, Native>,
    runtime: &runtime::Handle,
    models: &Arc<ModelCounts>,
) -> Result<Vec<Hosted>, Error> {
    let mut hosts: Vec<Hosted> = Vec::new();
    for spec in &config.processes {
        let sink: Arc<dyn Sink> = sink.clone();
        let host = match natives.remove(&spec.name) {
            Some(native) => native(sink, runtime),
            None => Arc::new(ProcessHost::start(process_options(config, spec), sink, runtime)),
        };
        hosts.push((spec.name.clone(), host));
    }
    hosts.extend(guests::agents(config, sink, runtime, models)?);
    Ok(hosts)
}

fn process_options(config: &Config, spec: &ProcessSpec) -> Options {
    let mut options = Options::new(spec.name.clone(), spec.command.clone());
    options.instances = spec.instances;
    options.working_dir = Some(config.directory.clone());
    let exposed = spec.env.iter().map(|(key, value)| (key.clone(), value.expose().to_owned()));
    options.env = exposed.collect();
    options.withheld = config.models.iter().filter_map(key_variable).collect();
    options.withheld.extend(password_variable(&config.storage));
    options
}

/// The variable a model's key is in: no listener gets it but one whose config hands it on.
fn key_variable(model: &ModelSpec) -> Option<String> {
    let Provider::Remote { options, .. } = &model.provider else { return None };
    match options.key.as_ref()?.source() {
        KeySource::Variable(name) => Some(name.clone()),
        KeySource::File(_) => None,
    }
}

/// The variable the servers' password is in.
fn password_variable(storage: &Storage) -> Option<String> {
    let Storage::JetStream { servers, .. } = storage else { return None };
    match &servers.credentials {
        nats::Credentials::Password { variable, .. } => variable.clone(),
        _ => None,
    }
}

/// The pump has a thread of its own: every step waits for the disk.
fn run_pump(pump: Pump) -> Result<JoinHandle<Result<(), journal::Error>>, Error> {
    let detail = concat!("organism ", env!("CARGO_PKG_VERSION"));
    let run = move || {
        let ended = pump.run(detail);
        if let Err(error) = &ended {
            tracing::error!("the pump stopped: {error}");
        }
        ended
    };
    let thread = std::thread::Builder::new().name("pump".to_owned());
    thread.spawn(run).map_err(Error::io("starting the pump's thread"))
}
