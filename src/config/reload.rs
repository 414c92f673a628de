//! Decides which differences between two configs a running organism can apply, and which need a
//! restart.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ListenerName;
use crate::model::ProviderKey;

use super::stored::{effective_changes, in_order};
use super::{ComparedConfig, Config, ConfigChange, ProviderConfig, SecretValue};

/// Names of sections of the effective config whose changes need a restart.
const SECTIONS_OF_START: [&str; 10] = [
    "name",
    "organism",
    "journal",
    "nats",
    "http",
    "telemetry",
    "operators",
    "operators_in_browsers",
    "workflows",
    "schedules",
];

/// Contract settings whose changes need a restart, because the pump's state of open calls depends
/// on these settings.
const CONTRACT_KEYS_OF_START: [&str; 2] = ["role", "serial_per_thread"];

/// The difference between the config in force and a changed config.
#[derive(Debug, Clone, Default)]
pub struct ReloadComparison {
    /// Every difference, in order of keys.
    pub changes: Vec<ConfigChange>,
    /// Keys whose changes need a restart. If this set is not empty, a reload applies no change at
    /// all.
    pub restart: BTreeSet<String>,
}

impl ReloadComparison {
    pub fn between(before: &Config, after: &Config) -> Self {
        let old = ComparedConfig::of_config(before);
        let new = ComparedConfig::of_config(after);
        let mut changes = Vec::new();
        let mut restart = BTreeSet::new();
        for change in effective_changes(&old, &new) {
            let needs_restart = needs_restart(&change.path, before, after);
            let change = change.named_by_file(&old, &new);
            if needs_restart {
                restart.insert(change.path.clone());
            }
            changes.push(change);
        }
        changes.extend(secret_changes(before, after));
        changes.extend(default_timeout_changes(before, after));
        // A reference to another variable is a change of the setting and of the text. The sort is
        // stable, so the change with the values stays.
        let changes = in_order(changes);

        // Overrides from the environment are in no section of the file.
        let places = [
            ("organism.data", before.data == after.data),
            ("organism.state", before.state == after.state),
            ("journal", before.storage == after.storage),
            ("journal.checkpoints", before.checkpoints == after.checkpoints),
            ("http", before.http == after.http),
        ];
        let moved = places.iter().filter(|(_, is_equal)| !is_equal);
        restart.extend(moved.map(|(key, _)| (*key).to_owned()));

        let moved = before.remotes.iter().filter(|name| !after.remotes.contains(name));
        let moved = moved.chain(after.remotes.iter().filter(|name| !before.remotes.contains(name)));
        restart.extend(moved.map(|name| format!("listeners.{name}.nats")));

        let remote_agents = |config: &Config| -> BTreeSet<_> {
            config.remote_agents().map(|agent| agent.name.clone()).collect()
        };
        let moved = &remote_agents(before) ^ &remote_agents(after);
        restart.extend(moved.iter().map(|name| format!("agents.{name}.nats")));

        Self { changes, restart }
    }
}

/// A secret of a loaded config: a value or an API key. No output shows its text.
enum ReadSecret<'a> {
    Value(&'a SecretValue),
    Key(&'a ProviderKey),
}

impl ReadSecret<'_> {
    fn is_same_text(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => one == other,
            (Self::Key(one), Self::Key(other)) => one.is_same_text(other),
            _ => false,
        }
    }
}

/// Returns a change for each secret that both configs have and whose text differs. If only one
/// config has a secret, [`effective_changes`] already lists the setting that names the secret.
fn secret_changes(before: &Config, after: &Config) -> Vec<ConfigChange> {
    let earlier = secrets_of(before);
    let mut changes = Vec::new();
    for (path, secret) in secrets_of(after) {
        if earlier.get(&path).is_some_and(|earlier| !earlier.is_same_text(&secret)) {
            changes.push(ConfigChange { path, before: None, after: None, diff: None });
        }
    }
    changes
}

/// Returns a change for each agent whose `timeout` is set in only one of the two configs, and whose
/// resulting time-out is the same in both. The effective configs do not show this difference.
fn default_timeout_changes(before: &Config, after: &Config) -> Vec<ConfigChange> {
    let timeout = |config: &Config, name: &ListenerName| {
        config.contracts.get(name).map(|contract| contract.timeout)
    };
    let earlier: BTreeMap<_, _> =
        before.agents.iter().map(|agent| (&agent.name, agent.has_timeout)).collect();
    let changed = after.agents.iter().filter(|agent| {
        let had_timeout = earlier.get(&agent.name);
        had_timeout.is_some_and(|had_timeout| *had_timeout != agent.has_timeout)
            && timeout(before, &agent.name) == timeout(after, &agent.name)
    });
    let changes = changed.map(|agent| {
        let path = format!("agents.{}.timeout", agent.name);
        ConfigChange { path, before: None, after: None, diff: None }
    });
    changes.collect()
}

/// Returns the secrets of a config by their keys, such as `listeners.mail.env.PASSWORD`.
fn secrets_of(config: &Config) -> BTreeMap<String, ReadSecret<'_>> {
    let mut secrets = BTreeMap::new();
    let mut named = Vec::new();
    for process in &config.processes {
        named.push((format!("listeners.{}.env", process.name), &process.env));
    }
    named.extend(config.alerts.iter().map(|alerts| ("alerts.env".to_owned(), &alerts.env)));
    for (place, values) in named {
        for (name, value) in values {
            secrets.insert(format!("{place}.{name}"), ReadSecret::Value(value));
        }
    }

    for client in &config.client_secrets {
        let secret = client.secret().map(ReadSecret::Value);
        secrets.extend(secret.map(|secret| (format!("clients.{}.secret", client.client), secret)));
    }
    for model in &config.models {
        let ProviderConfig::Remote { options, .. } = &model.provider else { continue };
        let key = options.key.as_ref().map(ReadSecret::Key);
        secrets.extend(key.map(|key| (format!("models.{}.api_key", model.name), key)));
    }
    secrets
}

/// Whether a change of `key`, a key of the effective config, needs a restart.
fn needs_restart(key: &str, before: &Config, after: &Config) -> bool {
    let mut words = key.split('.');
    let section = words.next().unwrap_or_default();
    match section {
        // The catalogue: folders from which schemas may import.
        "organism" => words.next() != Some("catalogue"),
        // The connection to the NATS servers was checked against the earlier value.
        "payload_bytes" => !before.remotes.is_empty() || before.remote_agents().next().is_some(),
        "contracts" => {
            let name = words.next().and_then(|name| ListenerName::parse(name).ok());
            let setting = words.next().unwrap_or_default();
            name.is_some_and(|name| is_contract_of_start(&name, setting, before, after))
        }
        section => SECTIONS_OF_START.contains(&section),
    }
}

/// Whether a change of `setting` of the listener `name` needs a restart. False if the listener is
/// in only one of the two configs.
fn is_contract_of_start(
    name: &ListenerName,
    setting: &str,
    before: &Config,
    after: &Config,
) -> bool {
    let stays = before.contracts.get(name).is_some() && after.contracts.get(name).is_some();
    let is_ordered_on_nats = setting == "concurrency" && before.remotes.contains(name);
    stays && (CONTRACT_KEYS_OF_START.contains(&setting) || is_ordered_on_nats)
}
