//! Reload: loads the config file of a running organism again and puts it in force, while work is in
//! flight.
//!
//! The file is loaded and checked as at a start. Either all changes of the config are applied or
//! none.
//!
//! **Invariant:** the config in force is the config of the last boot or reload on record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures_util::future::join_all;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::access::AccessRules;
use super::alerts::AlertWatch;
use super::hosts::{HostFactory, SharedHosts, drain_all};
use super::pump_runtime::{PumpRuntime, core_config, gate_of};
use super::{Error, HostedListener, operator, with_core_words};
use crate::blocking_work;
use crate::bus::Host;
use crate::config::{self, Config, ConfigEnvironment, ConfigProblems, ReloadComparison};
use crate::ids::{Digest, ListenerName};
use crate::limits;
use crate::locks::locked;
use crate::pump::driver::{ConfigExchange, Handle, PumpUnavailable, RetireHost, WriteObstacle};
use crate::service::handshake::OrganismIdentity;
use crate::service::{self, ReloadReport};
use crate::thread::{ActionDetail, DecisionOrigin, OperatorAction, OperatorVerb};

/// Access rules and identity of the organism, as the config in force states them. A reload replaces
/// both.
#[derive(Default)]
pub(super) struct SharedRules(RwLock<Arc<RulesInForce>>);

#[derive(Default)]
pub(super) struct RulesInForce {
    pub rules: Arc<AccessRules>,
    /// Identity of the organism. `None` if another program embeds the pump and serves the requests.
    pub identity: Option<OrganismIdentity>,
}

impl RulesInForce {
    fn of(config: &Config) -> Self {
        let rules = Arc::new(AccessRules::of(config));
        let identity = Some(OrganismIdentity::of(config));
        Self { rules, identity }
    }
}

impl SharedRules {
    pub fn new(config: &Config) -> Self {
        Self(RwLock::new(Arc::new(RulesInForce::of(config))))
    }

    pub fn in_force(&self) -> Arc<RulesInForce> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, config: &Config) {
        let next = Arc::new(RulesInForce::of(config));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// Service that reloads the config of a running organism, in every pump of this process. Cheap to
/// clone.
#[derive(Clone)]
pub struct ReloadService(Arc<ReloadState>);

struct ReloadState {
    /// Lock that a reload holds until its end, so that only one reload runs at a time.
    reloading: AsyncMutex<()>,
    /// The pumps that run in this process, by partition. An organism without partitions has one
    /// pump.
    ///
    /// Lock: held while the config in force is replaced or compared. Never held across an await,
    /// because a pump that starts or ends must not wait for other pumps.
    pumps: Mutex<BTreeMap<u32, JoinedPump>>,
    config: watch::Sender<Arc<Config>>,
    rules: Arc<SharedRules>,
}

/// A pump that can take another config while it runs.
struct ReloadablePump {
    /// The config in force, adapted to the pump's partition.
    config: Mutex<Arc<Config>>,
    factory: Arc<HostFactory>,
    hosts: SharedHosts,
    pump: Handle,
    alerts: Arc<AlertWatch>,
}

/// A pump whose config a reload can replace. If a pump takes another config only at a restart, the
/// error is the reason for this.
type JoinedPump = Result<Arc<ReloadablePump>, &'static str>;

type PumpsByPartition = Vec<(u32, Arc<ReloadablePump>)>;

/// Everything that one pump needs to switch to the next config. A reload first prepares all pumps,
/// and only then switches them.
struct PreparedExchange {
    config: Arc<Config>,
    exchange: ConfigExchange,
    hosts: Vec<HostedListener>,
}

impl ReloadService {
    /// Makes the service of an organism, without any pumps yet. Every reload replaces the contents
    /// of `rules`: the access rules and the identity of the organism.
    pub(super) fn new(config: &Arc<Config>, rules: &Arc<SharedRules>) -> Self {
        let state = ReloadState {
            reloading: AsyncMutex::default(),
            pumps: Mutex::default(),
            config: watch::Sender::new(Arc::clone(config)),
            rules: Arc::clone(rules),
        };
        Self(Arc::new(state))
    }

    /// Returns a receiver of the config in force. Each reload sends the new config to the receiver.
    pub(super) fn config(&self) -> watch::Receiver<Arc<Config>> {
        self.0.config.subscribe()
    }

    /// Adds the pump of a partition. `config` is the config with which the pump started. If another
    /// config is in force now, the pump first switches to that config. Returns false if it cannot
    /// switch. In this case, the caller must end the pump and start it again.
    pub(super) async fn join(
        &self,
        partition: u32,
        config: &Arc<Config>,
        runtime: &PumpRuntime,
    ) -> Result<bool, Error> {
        let pump = ReloadablePump::of(config, runtime).map(Arc::new);
        let note = "started while the config was reloaded".to_owned();
        let origin = DecisionOrigin { who: operator::this_user(), note, signature: None };
        let mut started = Arc::clone(config);
        while let Some(in_force) = self.0.insert_if(&started, partition, &pump) {
            let Ok(pump) = &pump else { return Ok(false) };
            let prepared = pump.prepare(&in_force.of_partition(partition), &origin)?;
            match pump.exchange(prepared).await {
                // The pump takes the config once its journal accepts records again.
                Err(Error::Service(service::Error::NotReady { .. })) => {
                    tokio::time::sleep(limits::BUSY_RETRY).await;
                }
                exchanged => {
                    exchanged?;
                    started = in_force;
                }
            }
        }
        Ok(true)
    }

    /// Removes the pump of a partition, so that later reloads leave it out. The partition's worker
    /// calls this when the pump has ended or is about to end.
    pub(super) fn leave(&self, partition: u32) {
        locked(&self.0.pumps).remove(&partition);
    }

    /// Returns the obstacle that keeps a pump of this process from writing records, and so from
    /// recording a reload; `None` if there is none.
    pub(super) fn waits_for(&self) -> Option<WriteObstacle> {
        locked(&self.0.pumps).values().flatten().find_map(|pump| pump.pump.waits_for())
    }

    /// Loads the config file again and puts it in force, if the config is valid and every pump of
    /// this process can apply the changes. Returns when the reload is on record.
    pub async fn reload(&self, origin: DecisionOrigin) -> Result<ReloadReport, Error> {
        let _reloading = self.0.reloading.lock().await;
        let before = Arc::clone(&self.0.config.borrow());
        let loading = {
            let before = Arc::clone(&before);
            move || load_again(&before)
        };
        let after = match blocking_work::run(loading).await? {
            Ok(after) => after,
            Err(problems) => return Ok(invalid(&problems)),
        };

        let ReloadComparison { changes, restart } = ReloadComparison::between(&before, &after);
        if changes.is_empty() && restart.is_empty() {
            return Ok(ReloadReport::Unchanged { config: before.digest });
        }
        if !restart.is_empty() {
            let keys = restart.into_iter().collect();
            return Ok(ReloadReport::NeedsRestart { keys, reason: None });
        }
        let obstacle = locked(&self.0.pumps).values().find_map(|pump| pump.as_ref().err().copied());
        if let Some(obstacle) = obstacle {
            let keys = changes.into_iter().map(|change| change.path).collect();
            return Ok(ReloadReport::NeedsRestart { keys, reason: Some(obstacle.to_owned()) });
        }

        // Checked first, so that either all pumps take the config or none does.
        if let Some(obstacle) = self.waits_for() {
            return Err(PumpUnavailable::Waits(obstacle).into());
        }

        let after = Arc::new(blocking_work::run(move || with_core_words(after)).await??);
        self.0.exchange_all(&after, &origin).await?;
        self.0.rules.replace(&after);

        let changes = changes.into_iter().map(|change| change.path).collect();
        Ok(ReloadReport::Applied { before: before.digest, config: after.digest, changes })
    }
}

impl ReloadState {
    /// Adds a pump if its config, `config`, is in force, and returns `None`. If another config is
    /// in force, adds nothing and returns the config in force.
    fn insert_if(&self, config: &Config, partition: u32, pump: &JoinedPump) -> Option<Arc<Config>> {
        let mut pumps = locked(&self.pumps);
        let in_force = Arc::clone(&self.config.borrow());
        if differs(config, &in_force) {
            return Some(in_force);
        }
        pumps.insert(partition, pump.clone());
        None
    }

    fn remove(&self, partition: u32, pump: &Arc<ReloadablePump>) {
        let mut pumps = locked(&self.pumps);
        let found = pumps.get(&partition).and_then(|found| found.as_ref().ok());
        if found.is_some_and(|found| Arc::ptr_eq(found, pump)) {
            pumps.remove(&partition);
        }
    }

    /// Puts a config in force in every pump.
    async fn exchange_all(
        &self,
        after: &Arc<Config>,
        origin: &DecisionOrigin,
    ) -> Result<(), Error> {
        let mut progress = ReloadProgress::default();
        // Pumps that join meanwhile start with the config before, so they are next.
        while let Some(pumps) = self.without(after) {
            // Steps that can fail come first, so that either all pumps take the config or none
            // does.
            let mut prepared = Vec::new();
            for (partition, pump) in pumps {
                let exchange = pump.prepare(&after.of_partition(partition), origin)?;
                prepared.push((partition, pump, exchange));
            }

            let exchanges = prepared.into_iter().map(async |(partition, pump, exchange)| {
                let exchanged = pump.exchange(exchange).await;
                // The next pump of the partition starts with the config in force. Without
                // partitions, there is no other pump.
                if matches!(exchanged, Err(Error::Stopped)) && after.partitions() > 1 {
                    self.remove(partition, &pump);
                    return Ok(());
                }
                exchanged
            });
            if progress.add(join_all(exchanges).await)? {
                tokio::time::sleep(limits::BUSY_RETRY).await;
            }
        }
        Ok(())
    }

    /// Returns the pumps that do not have `config` yet. If all pumps have it, puts `config` in
    /// force and returns `None`.
    ///
    /// Ignores a pump that cannot reload. Such a pump may have joined after the reload began, and
    /// keeps its config until it ends.
    fn without(&self, config: &Arc<Config>) -> Option<PumpsByPartition> {
        let pumps = locked(&self.pumps);
        let lacking = pumps.iter().filter_map(|(partition, pump)| {
            let pump = pump.as_ref().ok().filter(|pump| differs(&pump.config(), config))?;
            Some((*partition, Arc::clone(pump)))
        });
        let lacking: Vec<_> = lacking.collect();
        if lacking.is_empty() {
            self.config.send_replace(Arc::clone(config));
            return None;
        }
        Some(lacking)
    }
}

/// Progress of a reload in several pumps.
#[derive(Default)]
struct ReloadProgress {
    /// Whether at least one pump has the new config.
    is_taken: bool,
}

impl ReloadProgress {
    /// Adds the results of one attempt to give the new config to the pumps: one result for each
    /// pump that lacked this config. Returns false if every pump of the attempt now has the new
    /// config. If the journal of a pump accepts no records now, the result depends on the other
    /// pumps:
    ///
    /// - If at least one pump has the new config, returns true: the attempt must be repeated,
    ///   because all pumps must follow.
    /// - If no pump has the new config, fails with the error of that journal.
    ///
    /// Fails at once with any other error of a pump.
    fn add(&mut self, exchanged: Vec<Result<(), Error>>) -> Result<bool, Error> {
        let mut obstacle = None;
        for exchanged in exchanged {
            match exchanged {
                Err(Error::Service(service::Error::NotReady { detail })) => {
                    obstacle = Some(detail);
                }
                other => {
                    other?;
                    self.is_taken = true;
                }
            }
        }

        match obstacle {
            Some(detail) if !self.is_taken => Err(service::Error::NotReady { detail }.into()),
            obstacle => Ok(obstacle.is_some()),
        }
    }
}

/// Whether a reload from the config `before` to the config `after` would change anything. Does not
/// compare the digests of the configs, because a reload also applies settings that the digest does
/// not cover, such as alerts.
fn differs(before: &Config, after: &Config) -> bool {
    // The usual case at a start, which a comparison would lengthen by a fiftieth.
    if std::ptr::eq(before, after) {
        return false;
    }
    !ReloadComparison::between(before, after).changes.is_empty()
}

impl ReloadablePump {
    /// Makes a reloadable pump. Fails with the reason if the pump takes another config only at a
    /// restart.
    fn of(config: &Arc<Config>, runtime: &PumpRuntime) -> Result<Self, &'static str> {
        Ok(Self {
            config: Mutex::new(Arc::clone(config)),
            factory: runtime.factory()?,
            hosts: runtime.hosts().clone(),
            pump: runtime.handle().clone(),
            alerts: Arc::clone(runtime.alerts()),
        })
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&locked(&self.config))
    }

    fn prepare(&self, after: &Config, origin: &DecisionOrigin) -> Result<PreparedExchange, Error> {
        let before = self.config();
        let config = Arc::new(after.clone());
        let gate = gate_of(&config);
        let core = core_config(&config, &gate, config.runs_schedules)?;
        let hosts = self.factory.hosts_after(&before, &config, &self.hosts)?;
        let runtime = self.factory.runtime.clone();
        let retire: Arc<RetireHost> = Arc::new(move |host: Arc<dyn Host>| {
            drop(runtime.spawn(async move { host.drain().await }));
        });

        let prompts = self.factory.prompts.clone();
        let limiters = self.factory.limiters.clone();
        let in_force = Arc::clone(&config);
        let exchange = ConfigExchange {
            action: action(origin.clone(), before.digest, config.digest),
            core,
            gate,
            texts: config.texts().into_iter().map(str::to_owned).collect(),
            hosts: hosts.clone(),
            retire,
            switch: Box::new(move || {
                prompts.set(in_force.digest);
                limiters.set_limits(&in_force.models);
            }),
        };
        Ok(PreparedExchange { config, exchange, hosts })
    }

    async fn exchange(&self, prepared: PreparedExchange) -> Result<(), Error> {
        let PreparedExchange { config, exchange, hosts } = prepared;
        let exchanged = self.pump.reload(exchange).await;
        // A pump that is ending keeps the hosts that it has.
        let unused = match exchanged {
            Ok(()) => self.hosts.replace(hosts),
            Err(_) => self.hosts.without_those_in_use(hosts),
        };
        drain_all(&unused).await;
        exchanged?;

        *locked(&self.config) = Arc::clone(&config);
        // The config is in force on record, whether or not the alerts follow it.
        if let Err(error) = self.alerts.reconfigure(&config).await {
            tracing::error!("the alerts of the reloaded config do not run: {error}");
        }
        Ok(())
    }
}

/// Loads the file of the config `before` again. Keeps the settings of `before` that come from the
/// command line or from the embedding program, because no config file contains them.
fn load_again(before: &Config) -> Result<Config, ConfigProblems> {
    let after = config::load(&before.file, &ConfigEnvironment::of_process())?;
    let missing = after.keys_missing_here();
    if !missing.is_empty() {
        return Err(missing);
    }

    Ok(Config {
        runs_schedules: before.runs_schedules,
        recorder: before.recorder.clone(),
        trial: before.trial.clone(),
        launcher: before.launcher.clone(),
        ..after
    })
}

/// Makes the report about a config file that does not load.
pub(super) fn invalid(problems: &ConfigProblems) -> ReloadReport {
    ReloadReport::Invalid { problems: problems.iter().map(ToString::to_string).collect() }
}

fn action(origin: DecisionOrigin, before: Digest, after: Digest) -> OperatorAction {
    let DecisionOrigin { who, note, .. } = origin;
    let details = vec![ActionDetail::new("from", before), ActionDetail::new("to", after)];
    OperatorAction { verb: OperatorVerb::Reload, by: ListenerName::operator(), who, note, details }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_ready() -> Result<(), Error> {
        Err(service::Error::NotReady { detail: "the disk is full".to_owned() }.into())
    }

    /// Tests that a pump whose journal accepts no records gets the config later. A reload puts the
    /// config in force in all pumps or in none, so this pump must follow the others.
    #[test]
    fn a_pump_that_cannot_write_is_tried_again_once_another_pump_has_the_config() {
        for first in [vec![Ok(()), not_ready()], vec![not_ready(), Ok(())]] {
            let mut progress = ReloadProgress::default();
            let is_retried = progress.add(first).unwrap();
            assert!(is_retried);
            let is_retried = progress.add(vec![not_ready()]).unwrap();
            assert!(is_retried, "a later attempt");
            let is_retried = progress.add(vec![Ok(())]).unwrap();
            assert!(!is_retried);
        }
    }

    #[test]
    fn a_reload_that_no_pump_has_taken_fails_with_the_obstacle() {
        let failed = ReloadProgress::default().add(vec![not_ready(), not_ready()]);
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("the disk is full"), "{error}");
    }
}
