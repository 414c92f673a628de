//! Variables that are none of a listener's business, whatever else is in the environment.

use super::{Config, ModelSpec, ProviderConfig};
use crate::model::KeySource;
use crate::nats;

/// Names the file with the passphrase of an operator's key.
pub const PASSPHRASE_FILE: &str = "ORGANISM_PASSPHRASE_FILE";

impl Config {
    /// Those with keys of models and of a collector, with the password of NATS, with secrets of
    /// clients and with what an operator signs with, also where none of them is used at present: no listener gets one but where its own
    /// section hands it on.
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
        nats::Credentials::Password { variable, .. } => variable.clone(),
        _ => None,
    }
}
