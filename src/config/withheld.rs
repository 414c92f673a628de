//! Environment variables that are hidden from the processes of listeners.

use std::collections::BTreeSet;
use std::path::Path;

use super::sections::DeclaredSections;
use super::{ClientSecret, ConfigEnvironment, ModelSpec, ProviderConfig};
use crate::model::KeySource;
use crate::nats;

/// Variable that names the file with the passphrase of an operator's key.
pub const PASSPHRASE_FILE: &str = "ORGANISM_PASSPHRASE_FILE";

/// Returns the names of variables that are hidden from listeners: keys of models and of the
/// collector, the password of NATS, secrets of clients, keys of operators, and overrides with
/// private values. Always includes [`PASSPHRASE_FILE`]. A listener gets such a variable only if its
/// own config section passes the variable on. The names are sorted, and each occurs once.
pub(super) fn withheld(
    sections: &DeclaredSections,
    models: &[ModelSpec],
    client_secrets: &[ClientSecret],
    (directory, around): (&Path, &ConfigEnvironment),
) -> Vec<String> {
    let keys = models.iter().filter_map(key_variable);
    let servers = sections.storage.servers(directory, around);
    let password = servers.as_ref().and_then(password_variable);
    let secrets = client_secrets.iter().filter_map(|secret| secret.variable.clone());
    let own = keys.chain(password).chain(secrets);
    let collector = sections.telemetry.withheld(around);
    let operators = sections.operators.variables.iter().cloned();
    let overrides = around.variables.keys().filter(|name| is_private_override(name)).cloned();
    let passphrase = std::iter::once(PASSPHRASE_FILE.to_owned());
    let names = own.chain(collector).chain(operators).chain(overrides).chain(passphrase);
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether a child process inherits the same variables of this process if the variables `before`
/// are hidden from it, and if the variables `after` are hidden. A hidden variable makes a
/// difference only if this process has it. Both lists must be sorted, without repeated names.
pub fn hides_same(before: &[String], after: &[String]) -> bool {
    let is_set = |name: &&String| std::env::var_os(name).is_some();
    before.iter().filter(is_set).eq(after.iter().filter(is_set))
}

/// Whether `variable` overrides a value in a private table of the config: `env` of a listener,
/// `env` of `[alerts]`, or `headers` of `[telemetry]`. The case of the letters after `ORGANISM_`
/// does not matter.
fn is_private_override(variable: &str) -> bool {
    let Some(path) = variable.strip_prefix("ORGANISM_") else { return false };
    let path = path.to_ascii_uppercase();
    let parts: Vec<&str> = path.split("__").collect();
    matches!(
        parts.as_slice(),
        ["LISTENERS", _, "ENV", ..] | ["ALERTS", "ENV", ..] | ["TELEMETRY", "HEADERS", ..]
    )
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

#[cfg(test)]
mod tests {
    use super::{hides_same, is_private_override};

    #[test]
    fn only_variables_of_this_process_change_what_a_child_process_inherits() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let path = list(&["PATH"]);
        assert!(hides_same(&path, &list(&["ABSENT_KEY", "PATH"])));
        assert!(!hides_same(&path, &list(&["ABSENT_KEY"])));
        assert!(!hides_same(&[], &path));
    }

    #[test]
    fn only_overrides_of_private_tables_are_withheld() {
        for private in [
            "ORGANISM_LISTENERS__SEARCH__ENV__TOKEN",
            "ORGANISM_listeners__SEARCH__env__TOKEN",
            "ORGANISM_ALERTS__ENV__TOKEN",
            "ORGANISM_TELEMETRY__HEADERS__AUTHORIZATION",
        ] {
            assert!(is_private_override(private), "{private}");
        }
        for public in [
            "ORGANISM_LISTENERS__ENV__COMMAND",
            "ORGANISM_LISTENERS__SEARCH__TIMEOUT",
            "ORGANISM_ORGANISM__DATA",
            "LISTENERS__SEARCH__ENV__TOKEN",
        ] {
            assert!(!is_private_override(public), "{public}");
        }
    }
}
