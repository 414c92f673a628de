//! Reload: puts the config file of a running organism in force again, while work is in flight.
//!
//! The file is loaded and checked as at a start. A difference is applied whole or not at all.
//!
//! **Invariant:** the config in force is the one of the last boot or reload on record.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::access::AccessRules;
use super::alerts::AlertWatch;
use super::hosts::{HostFactory, SharedHosts};
use super::pump_runtime::{PumpRuntime, core_config, gate_of};
use super::{Error, with_core_words};
use crate::bus::Host;
use crate::config::{self, Config, ConfigEnvironment, ConfigProblems, ReloadComparison};
use crate::ids::{Digest, ListenerName};
use crate::pump::driver::{ConfigExchange, Handle, RetireHost};
use crate::service::ReloadReport;
use crate::service::handshake::OrganismIdentity;
use crate::thread::{ActionDetail, DecisionOrigin, OperatorAction, OperatorVerb};

/// Rules of an entry point under the config in force. A reload replaces them.
#[derive(Default)]
pub(super) struct SharedRules(RwLock<Arc<RulesInForce>>);

#[derive(Default)]
pub(super) struct RulesInForce {
    pub rules: Arc<AccessRules>,
    /// Identity of the organism. `None` for a program that embeds the pump and serves it.
    pub identity: Option<OrganismIdentity>,
}

impl SharedRules {
    pub fn new(rules: Arc<AccessRules>, config: &Config) -> Self {
        let identity = Some(OrganismIdentity::of(config));
        Self(RwLock::new(Arc::new(RulesInForce { rules, identity })))
    }

    pub fn in_force(&self) -> Arc<RulesInForce> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, config: &Config) {
        let rules = Arc::new(AccessRules::of(config));
        let identity = Some(OrganismIdentity::of(config));
        let next = Arc::new(RulesInForce { rules, identity });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// Reloads the config of one running organism. Cheap to clone.
#[derive(Clone)]
pub struct ReloadService(Arc<ReloadTarget>);

struct ReloadTarget {
    /// The config in force. Locked during a whole reload, so that reloads are served one after the
    /// other, each against the config of the one before.
    config: Mutex<Arc<Config>>,
    factory: Arc<HostFactory>,
    hosts: SharedHosts,
    pump: Handle,
    rules: Arc<SharedRules>,
    alerts: Arc<AlertWatch>,
}

impl ReloadService {
    /// The reloader of a pump; `None` if it cannot reload.
    pub(super) fn of(
        config: &Arc<Config>,
        runtime: &PumpRuntime,
        rules: &Arc<SharedRules>,
    ) -> Option<Self> {
        let target = ReloadTarget {
            config: Mutex::new(Arc::clone(config)),
            factory: runtime.factory()?,
            hosts: runtime.hosts().clone(),
            pump: runtime.handle().clone(),
            rules: Arc::clone(rules),
            alerts: Arc::clone(runtime.alerts()),
        };
        Some(Self(Arc::new(target)))
    }

    /// Loads the config file again and puts it in force, if it is valid and a running organism can
    /// take the difference. Returns when that is on record.
    pub async fn reload(&self, origin: DecisionOrigin) -> Result<ReloadReport, Error> {
        let target = &self.0;
        let mut config = target.config.lock().await;
        let before = Arc::clone(&config);
        let loading = {
            let before = Arc::clone(&before);
            spawn_blocking(move || load_again(&before))
        };
        let after = match loading.await.map_err(|_| Error::Stopped)? {
            Ok(after) => after,
            Err(problems) => return Ok(invalid(&problems)),
        };

        let ReloadComparison { changes, restart } = ReloadComparison::between(&before, &after);
        if changes.is_empty() && restart.is_empty() {
            return Ok(ReloadReport::Unchanged { config: before.digest });
        }
        if !restart.is_empty() {
            return Ok(ReloadReport::NeedsRestart { keys: restart.into_iter().collect() });
        }

        let completing = spawn_blocking(move || with_core_words(after));
        let after = Arc::new(completing.await.map_err(|_| Error::Stopped)??);
        target.exchange(&before, &after, origin).await?;
        *config = Arc::clone(&after);
        target.rules.replace(&after);
        target.alerts.reconfigure(&after).await?;

        let changes = changes.into_iter().map(|change| change.path).collect();
        Ok(ReloadReport::Applied { before: before.digest, config: after.digest, changes })
    }
}

impl ReloadTarget {
    async fn exchange(
        &self,
        before: &Config,
        after: &Arc<Config>,
        origin: DecisionOrigin,
    ) -> Result<(), Error> {
        let gate = gate_of(after);
        let core = core_config(after, &gate, after.runs_schedules)?;
        let hosts = self.factory.hosts_after(before, after, &self.hosts)?;
        let runtime = self.factory.runtime.clone();
        let retire: Arc<RetireHost> = Arc::new(move |host: Arc<dyn Host>| {
            drop(runtime.spawn(async move { host.drain().await }));
        });

        let exchange = ConfigExchange {
            action: action(origin, before.digest, after.digest),
            core,
            gate,
            texts: after.texts().into_iter().map(str::to_owned).collect(),
            hosts: hosts.clone(),
            retire,
        };
        self.pump.reload(exchange).await.map_err(|_| Error::Stopped)?;
        self.hosts.replace(hosts);
        Ok(())
    }
}

/// Loads the file of the config in force again. What no file states stays as it is.
fn load_again(before: &Config) -> Result<Config, ConfigProblems> {
    let after = config::load(&before.file, &ConfigEnvironment::of_process())?;
    let missing = after.keys_missing_here();
    if !missing.is_empty() {
        return Err(missing);
    }

    Ok(Config {
        runs_schedules: before.runs_schedules,
        recorder: before.recorder.clone(),
        launcher: before.launcher.clone(),
        ..after
    })
}

fn invalid(problems: &ConfigProblems) -> ReloadReport {
    ReloadReport::Invalid { problems: problems.iter().map(ToString::to_string).collect() }
}

fn action(origin: DecisionOrigin, before: Digest, after: Digest) -> OperatorAction {
    let DecisionOrigin { who, note, .. } = origin;
    let details = vec![ActionDetail::new("from", before), ActionDetail::new("to", after)];
    OperatorAction { verb: OperatorVerb::Reload, by: ListenerName::operator(), who, note, details }
}
