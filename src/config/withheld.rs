//! Environment variables that are hidden from the processes of listeners.

use super::{Config, ModelSpec, ProviderConfig};
use crate::model::KeySource;
use crate::nats;

/// Variable that names the file with the passphrase of an operator's key.
pub const PASSPHRASE_FILE: &str = "ORGANISM_PASSPHRASE_FILE";

impl Config {
    /// Returns the names of variables that are hidden from listeners: variables with keys of models
    /// and of the collector, the password of NATS, secrets of clients, and keys of operators. The
    /// list always contains [`PASSPHRASE_FILE`]. A listener gets a hidden variable only if the
    /// listener's own config section passes it on.
    pub fn withheld(&self) -> Vec<String> {
        let keys = self.models.iter().filter_map(key_variable);
        let password = self.nats.as_ref().and_then(password_variable);
        let secrets = self.client_secrets.iter().filter_map(|secret| secret.variable.clone());
        let own = keys.chain(password).chain(secrets);
        let operators = self.operator_variables.iter().cloned();
        let passphrase = std::iter::once(PASSPHRASE_FILE.to_owned());
        own.chain(self.collector_keys.iter().cloned()).chain(operators).chain(passphrase).collect()
    }
}

fn key_variable(model: &ModelSpec) -> Option<String> {
    let ProviderConfig::Remote { options, .. } = &model.provider else { return None };
    match options.key.as_ref()?.source() {
        KeySource::Variable(name) => Some(name.clone()),
        KeySource::File(_) => None,
    }
}

fn password_variable(servers: &nats::Options) -> Option<String> {
    match &servers.credentials {
        nats::NatsCredentials::Password { variable, .. } => variable.clone(),
        _ => None,
    }
}
