//! The address of a listener on NATS, read from the environment.

use std::path::PathBuf;
use std::time::Duration;

use crate::bus::nats::endpoint_variables::ENDPOINT_VARIABLES;
use crate::bus::nats::header_names::URL_VARIABLE;
use crate::ids::{IdError, ListenerName};
use crate::limits;
use crate::nats::{NatsCredentials, Options};

/// The address of a listener on NATS.
#[derive(Debug, Clone)]
pub struct NatsEndpoint {
    pub servers: Options,
    /// Name of the organism in its config.
    pub organism: String,
    pub listener: ListenerName,
    /// Time for which this replica counts as alive after each of its announcements.
    pub lease: Duration,
}

impl NatsEndpoint {
    /// Environment variable with the addresses of the NATS servers, separated by commas. If the
    /// variable is set, the listener gets its deliveries over NATS.
    pub const URL: &str = URL_VARIABLE;
    pub const ORGANISM: &str = "ORGANISM_NAME";
    pub const LISTENER: &str = "ORGANISM_LISTENER";
    /// Environment variable with the path of a file that contains a JWT and the seed of its key.
    pub const CREDENTIALS: &str = "ORGANISM_BUS_CREDENTIALS";
    /// Environment variable with the path of a file that contains the seed of an nkey.
    pub const NKEY: &str = "ORGANISM_BUS_NKEY";
    /// Environment variable with the path of a file of certificates. The listener trusts these
    /// certificates instead of the system's certificates.
    pub const CA: &str = "ORGANISM_BUS_CA";
    /// Environment variable with the lease of this replica in seconds. The lease is the time for
    /// which the replica counts as alive after each of its announcements.
    pub const LEASE: &str = "ORGANISM_BUS_LEASE";

    /// Creates an address with default settings.
    pub fn new(servers: Options, organism: impl Into<String>, listener: ListenerName) -> Self {
        Self { servers, organism: organism.into(), listener, lease: limits::NATS_LEASE }
    }

    /// Reads the address from the environment. Returns `None` if the environment has no variable of
    /// a listener on NATS. Fails if it has some, but names no server: a supervisor would take the
    /// end of the program, which finds no deliveries, for a success.
    pub fn of_environment() -> Result<Option<Self>, String> {
        Self::of(&|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let Some(url) = variable(Self::URL) else {
            let is_set = |name: &&str| variable(name).is_some();
            return match ENDPOINT_VARIABLES.into_iter().find(is_set) {
                Some(name) => Err(format!(
                    "{name} is set, and needs {} beside it; leave it out for a child process",
                    Self::URL
                )),
                None => Ok(None),
            };
        };

        let needed = |name| {
            let needs = || format!("{} is set, and needs {name} beside it", Self::URL);
            variable(name).ok_or_else(needs)
        };

        // The names of organisms have the same form as those of listeners.
        let name = |variable| {
            let wrong =
                |e: IdError| format!("{variable} is `{}`, not a name: {}", e.text, e.expected);
            ListenerName::parse(&needed(variable)?).map_err(wrong)
        };

        let organism = name(Self::ORGANISM)?.as_str().to_owned();
        let listener = name(Self::LISTENER)?;
        let credentials = match (variable(Self::CREDENTIALS), variable(Self::NKEY)) {
            (Some(_), Some(_)) => {
                return Err(format!("set {} or {}, not both", Self::CREDENTIALS, Self::NKEY));
            }
            (Some(file), None) => NatsCredentials::File(file.into()),
            (None, Some(file)) => NatsCredentials::Nkey(file.into()),
            (None, None) => NatsCredentials::Anonymous,
        };

        if url.contains('@') {
            let credentials = Self::CREDENTIALS;
            let nkey = Self::NKEY;
            return Err(format!("{} holds credentials; set {credentials} or {nkey}", Self::URL));
        }

        let servers = url.split(',').map(|address| address.trim().to_owned()).collect();
        let ca = variable(Self::CA).map(PathBuf::from);
        let mut place = Self::new(Options { servers, credentials, ca }, organism, listener);
        if let Some(text) = variable(Self::LEASE) {
            let lease = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
            let fits = lease
                .filter(|lease| (limits::NATS_LEASE_MIN..=limits::TIMEOUT_CEILING).contains(lease));
            let wrong = || format!("{} is `{text}`, not a number of seconds from 1", Self::LEASE);
            place.lease = fits.ok_or_else(wrong)?;
        }

        Ok(Some(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<NatsEndpoint>, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        NatsEndpoint::of(&|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn an_environment_names_a_place_or_none_or_says_what_is_missing() {
        assert!(of(&[(NatsEndpoint::LISTENER, "search")]).unwrap().is_none());
        let url = (NatsEndpoint::URL, "nats://a:1, nats://b:2");
        let organism = (NatsEndpoint::ORGANISM, "desk");
        let listener = (NatsEndpoint::LISTENER, "search");
        let place = of(&[url, organism, listener]).unwrap().unwrap();
        assert_eq!(place.servers.servers, ["nats://a:1", "nats://b:2"]);
        assert_eq!((place.organism.as_str(), place.lease), ("desk", limits::NATS_LEASE));
        let wrong: [(&[(&str, &str)], &str); 9] = [
            (
                &[organism, listener],
                "ORGANISM_NAME is set, and needs ORGANISM_BUS_URL beside it; leave it out for a \
                 child process",
            ),
            (
                &[organism, listener, (NatsEndpoint::NKEY, "x")],
                "ORGANISM_BUS_NKEY is set, and needs ORGANISM_BUS_URL beside it",
            ),
            (&[(NatsEndpoint::URL, "nats://me:secret@a"), organism, listener], "holds credentials"),
            (&[url, listener], "ORGANISM_NAME"),
            (&[url, organism], "ORGANISM_LISTENER"),
            (
                &[url, organism, (NatsEndpoint::LISTENER, "a.b")],
                "ORGANISM_LISTENER is `a.b`, not a name: a lowercase letter, then",
            ),
            (
                &[url, (NatsEndpoint::ORGANISM, "Desk"), listener],
                "ORGANISM_NAME is `Desk`, not a name: a lowercase letter, then",
            ),
            (&[url, organism, listener, (NatsEndpoint::LEASE, "0")], "ORGANISM_BUS_LEASE"),
            (
                &[
                    url,
                    organism,
                    listener,
                    (NatsEndpoint::NKEY, "x"),
                    (NatsEndpoint::CREDENTIALS, "y"),
                ],
                "not both",
            ),
        ];
        for (variables, why) in wrong {
            let error = of(variables).unwrap_err();
            assert!(error.contains(why), "{variables:?}: {error}");
        }
    }
}
