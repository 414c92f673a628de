//! Decides which differences between two configs a running organism can apply, and which need a
//! restart.

use std::collections::BTreeSet;

use crate::ids::ListenerName;

use super::{ComparedConfig, Config, ConfigChange, config_changes};

/// Names of sections whose changes need a restart. The output of `organism config diff` uses these
/// names.
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
    /// Keys whose changes need a restart. If this set is not empty, the reload applies no change at
    /// all.
    pub restart: BTreeSet<String>,
}

impl ReloadComparison {
    pub fn between(before: &Config, after: &Config) -> Self {
        let compared = ComparedConfig::of_config(before);
        let changes = config_changes(&compared, &ComparedConfig::of_config(after));
        let keys = changes.iter().map(|change| &change.path);
        let mut restart: BTreeSet<_> =
            keys.filter(|key| needs_restart(key, before, after)).cloned().collect();

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
