//! The connection to a NATS cluster: how it is made, and asking over it and waiting.
//!
//! Must not know what is asked: subjects and what they mean belong to journal and bus.

mod denied;
mod drive;
mod link;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::{ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt as _;

use crate::limits;

pub use async_nats::client::PublishErrorKind;
pub use async_nats::connection::State;
pub use async_nats::{
    Client, HeaderMap, HeaderName, Message, Request, RequestErrorKind, StatusCode, SubscribeError,
    Subscriber,
};
pub use denied::{Denials, Denied};
pub use drive::Drive;
pub use link::{Away, Link, Question, Reply};

/// Where the servers are, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `nats://host:port`, or `tls://host:port`; others of the cluster are learned from these.
    pub servers: Vec<String>,
    pub credentials: Credentials,
    /// Certificates that are trusted instead of the system's, in PEM; with it, TLS is demanded.
    pub ca: Option<PathBuf>,
}

/// As whom. Files are read anew by every [`connect`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Credentials {
    #[default]
    Nobody,
    /// A `.creds` file with a JWT and its seed.
    File(PathBuf),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    Password {
        user: String,
        password: Password,
        /// The variable it was read from: no listener gets it.
        variable: Option<String>,
    },
}

/// Prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{address}` is no address of a NATS server, such as nats://127.0.0.1:4222")]
    Address { address: String },
    #[error("the credentials in {path}: {source}")]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error("connecting to NATS at {servers}: {detail}")]
    Connect { servers: String, detail: String },
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("starting the threads that talk to NATS: {source}")]
    Threads { source: std::io::Error },
}

/// Connects; later, a broken connection is made anew for as long as the client lives.
pub async fn connect(options: &Options, name: &str) -> Result<Client, Error> {
    Ok(connect_told(options, name).await?.0)
}

/// As [`connect`], for whoever wants to know what the connection is not allowed.
pub async fn connect_told(options: &Options, name: &str) -> Result<(Client, Denials), Error> {
    connect_with(options, name, None).await
}

/// As [`connect_told`], for somebody whose inboxes have to begin with `inbox`.
pub async fn connect_with(
    options: &Options,
    name: &str,
    inbox: Option<&str>,
) -> Result<(Client, Denials), Error> {
    let parse = |address: &String| {
        let parsed = address.parse::<ServerAddr>();
        parsed.map_err(|_| Error::Address { address: address.clone() })
    };

    let servers = options.servers.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let denials = Denials::of(&options.credentials);
    let noted = Noted::new(&denials, options);
    let mut connecting = as_whom(&options.credentials)?
        .name(name)
        .connection_timeout(limits::NATS_CONNECT_TIMEOUT)
        .ping_interval(limits::NATS_PING_INTERVAL)
        .reconnect_delay_callback(backoff)
        .event_callback(move |event| {
            noted.note(&event);
            std::future::ready(())
        });
    if let Some(inbox) = inbox {
        connecting = connecting.custom_inbox_prefix(inbox);
    }

    if let Some(ca) = &options.ca {
        connecting = connecting.add_root_certificates(ca.clone()).require_tls(true);
    }

    let connected = connecting.connect(servers).await;
    let client = connected.map_err(|error| Error::Connect {
        servers: options.servers.join(", "),
        detail: explained(&error.to_string(), options),
    })?;
    Ok((client, denials))
}

/// With what to look at, where it is known.
fn explained(detail: &str, options: &Options) -> String {
    let ca = match &options.ca {
        Some(ca) => format!("`ca_file` trusts {}", ca.display()),
        None => "without `ca_file`, the system's authorities are trusted".to_owned(),
    };

    let whom = match &options.credentials {
        Credentials::Nobody => {
            "there are no credentials: name them with `nkey_file` or another key of [nats]; a \
             listener's with ORGANISM_BUS_NKEY"
                .to_owned()
        }
        Credentials::File(path) | Credentials::Nkey(path) => {
            format!("they do not take those in {}", path.display())
        }
        Credentials::Password { user, .. } => format!("they do not take `{user}` by that password"),
    };

    let lower = detail.to_lowercase();
    if lower.contains("certificate") {
        format!("{detail}: {ca}")
    } else if lower.contains("authorization") || lower.contains("authentication") {
        format!("{detail}: {whom}")
    } else if lower.contains("connection refused") {
        format!("{detail}: nothing listens there: start the server, or name another address")
    } else if lower.contains("invalidcontenttype") {
        format!("{detail}: the server there speaks no TLS: give it a certificate, or ask for none")
    } else {
        detail.to_owned()
    }
}

const ROUNDS_TO_SETTLE: u32 = 3;

/// Returns when the servers have seen everything that was said before, and with it have told what
/// is denied; or when they are too slow for that.
pub async fn settled(client: &Client, denials: &Denials) {
    let token = client.new_inbox();
    let round_trip = async {
        let mut heard = client.subscribe(token.clone()).await.ok()?;
        client.publish(token.clone(), "".into()).await.ok()?;
        let (mut seen, mut round) = (0, 1);
        loop {
            tokio::select! {
                // What is denied is noted by another task, which may be a little behind.
                message = heard.next() => match round {
                    ROUNDS_TO_SETTLE => return message,
                    _ => {
                        round += 1;
                        client.publish(token.clone(), "".into()).await.ok()?;
                    }
                },
                () = denials.changed(&mut seen) => {
                    denials.of_hearing(&token).is_none().then_some(())?;
                    denials.of_publishing_beneath(&token).is_none().then_some(())?;
                }
            }
        }
    };

    // What they say later is in the log.
    tokio::time::timeout(limits::NATS_ROUND_TRIP, round_trip).await.ok();
}

/// Whether a server can be reached under this at all.
pub fn is_address(address: &str) -> bool {
    address.parse::<ServerAddr>().is_ok_and(|parsed| !parsed.host().is_empty())
}

fn as_whom(credentials: &Credentials) -> Result<ConnectOptions, Error> {
    let read = |path: &PathBuf| {
        let failed = |source| Error::Credentials { path: path.clone(), source };
        std::fs::read_to_string(path).map_err(failed)
    };

    let nobody = ConnectOptions::new();
    Ok(match credentials {
        Credentials::Nobody => nobody,
        Credentials::File(path) => {
            let failed = |source| Error::Credentials { path: path.clone(), source };
            nobody.credentials(&read(path)?).map_err(failed)?
        }
        Credentials::Nkey(path) => {
            let seed = read(path)?.trim().to_owned();
            // The client would say so without the file's name, and only while it connects.
            nkeys::KeyPair::from_seed(&seed).map_err(|error| Error::Credentials {
                path: path.clone(),
                source: std::io::Error::other(format!("this is no seed of an nkey: {error}")),
            })?;
            nobody.nkey(seed)
        }
        Credentials::Password { user, password, .. } => {
            nobody.user_and_password(user.clone(), password.0.clone())
        }
    })
}

/// At once, then in growing steps: a server that was only restarted is back soon.
fn backoff(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    match attempts {
        0 => Duration::ZERO,
        _ => {
            limits::NATS_BACKOFF_FIRST.saturating_mul(1 << doublings).min(limits::NATS_BACKOFF_MAX)
        }
    }
}

/// What a connection's events come to in the log.
struct Noted {
    denials: Denials,
    servers: String,
    /// While there is no connection: what was said of that last.
    outage: Mutex<Option<String>>,
}

impl Noted {
    fn new(denials: &Denials, options: &Options) -> Self {
        let servers = options.servers.join(", ");
        Self { denials: denials.clone(), servers, outage: Mutex::default() }
    }

    fn note(&self, event: &Event) {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Connected => {
                self.denials.forget_subscriptions();
                match outage.take() {
                    Some(_) => tracing::warn!("connected to NATS again"),
                    None => tracing::info!("connected to NATS"),
                }
            }
            Event::Disconnected => {
                *outage = Some(String::new());
                tracing::warn!("the connection to NATS broke; it is made anew");
            }
            Event::ServerError(error) => match self.denials.note(&error.to_string()) {
                Some(denied) => tracing::error!("{denied}"),
                None => tracing::error!("NATS refuses something: {error}"),
            },
            Event::ClientError(error) => {
                let said = error.to_string();
                match &mut *outage {
                    // It is tried twice a second, for hours if need be.
                    Some(last) if *last == said => tracing::debug!("NATS: {said}"),
                    last => {
                        tracing::warn!("NATS at {}: {said}", self.servers);
                        last.iter_mut().for_each(|last| last.clone_from(&said));
                    }
                }
            }
            // What was dropped is delivered again when its time is up.
            Event::SlowConsumer(_) => {
                tracing::error!("NATS: answers came faster than they were heard");
            }
            other => tracing::info!("NATS: {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_is_made_anew_at_once_and_then_ever_more_slowly() {
        let delays: Vec<_> = (0..40).map(backoff).collect();
        assert_eq!(delays[0], Duration::ZERO);
        assert!(delays.is_sorted());
        assert_eq!(delays[39], limits::NATS_BACKOFF_MAX);
    }

    /// What is in the log of a connection after these.
    fn log_of(events: &[Event]) -> String {
        use std::io::Write;
        use std::sync::Arc;
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl Write for Log {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let log = Log::default();
        let kept = log.clone();
        let logs = tracing_subscriber::fmt().with_writer(move || kept.clone()).finish();
        let noted = Noted::new(&Denials::of(&Credentials::Nobody), &nobody_at("nats://there"));
        tracing::subscriber::with_default(logs, || events.iter().for_each(|e| noted.note(e)));
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    fn nobody_at(server: &str) -> Options {
        let servers = vec![server.to_owned()];
        Options { servers, credentials: Credentials::Nobody, ca: None }
    }

    #[test]
    fn what_the_servers_do_to_a_connection_is_in_the_log() {
        let denied = "Permissions Violation for Publish to \"a.b\"".to_owned();
        for (event, level, told) in [
            (Event::SlowConsumer(7), "ERROR", "answers came faster than they were heard"),
            (
                Event::ServerError(async_nats::ServerError::Other(denied)),
                "ERROR",
                "publish to `a.b`",
            ),
            (Event::Disconnected, "WARN", "made anew"),
            (Event::LameDuckMode, "INFO", "lame duck"),
        ] {
            let said = log_of(std::slice::from_ref(&event));
            assert!(said.contains(level) && said.contains(told), "{event:?}: {said}");
        }
    }

    #[test]
    fn an_outage_is_told_once_for_each_reason_and_so_is_its_end() {
        let failed = |why: &str| Event::ClientError(async_nats::ClientError::Other(why.to_owned()));
        let tries = vec![failed("refused"); 50];
        let one = [vec![Event::Disconnected], tries.clone(), vec![failed("no such host")]].concat();
        let said = log_of(&[one.clone(), vec![Event::Connected], one].concat());
        let lines = |word: &str| said.lines().filter(|line| line.contains(word)).count();
        let counts = ["made anew", "NATS at nats://there: nats: refused", "no such host", "again"];
        assert_eq!(counts.map(lines), [2, 2, 2, 1], "{said}");
        // While there is a connection, nothing is left out.
        let said = log_of(&tries);
        assert_eq!(said.lines().count(), 50, "{said}");
    }

    #[test]
    fn why_there_is_no_connection_is_told_with_what_to_look_at() {
        let options = nobody_at("nats://127.0.0.1:4222");
        for (detail, told) in [
            ("IO error: Connection refused (os error 111)", "start the server"),
            ("received corrupt message of type InvalidContentType", "speaks no TLS"),
            ("authorization violation", "nkey_file"),
            ("invalid peer certificate: UnknownIssuer", "ca_file"),
        ] {
            let said = explained(detail, &options);
            assert!(said.starts_with(detail) && said.contains(told), "{said}");
        }
    }

    #[test]
    fn a_file_that_holds_no_seed_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "server_name: \"organism\"\n").unwrap();
        let told = as_whom(&Credentials::Nkey(file.path().to_owned())).unwrap_err().to_string();
        assert!(told.contains(&*file.path().to_string_lossy()), "{told}");
        assert!(told.contains("no seed of an nkey"), "{told}");
    }

    #[test]
    fn a_password_is_never_shown() {
        let password = Password("hunter2".to_owned());
        let credentials =
            Credentials::Password { user: "pump".to_owned(), password, variable: None };
        assert!(!format!("{credentials:?}").contains("hunter2"));
    }
}
