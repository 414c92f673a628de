//! The connection to a NATS cluster: connecting, credentials, permission errors, and blocking
//! requests.
//!
//! This module must not know the content of NATS messages: `journal` and `bus` define the subjects
//! and their meaning.

mod blocking_client;
mod permission_errors;
mod renewed_subscription;
mod shared_runtime;

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt as _;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::io_reason::io_reason;
use crate::locks::locked;
use crate::{durable_file, limits};

pub use async_nats::client::PublishErrorKind;
pub use async_nats::connection::State;
pub use async_nats::{
    Client, HeaderMap, HeaderName, HeaderValue, Message, Request, RequestErrorKind, StatusCode,
    SubscribeError, Subscriber,
};
pub use blocking_client::{BlockingClient, NatsRequest, NoResponse, ReplyBytes};
pub use permission_errors::{PermissionError, PermissionErrors};
pub(crate) use renewed_subscription::{
    RenewedSubscription, SubscriptionFailure, SubscriptionReport, subscribe_checked,
};
pub use shared_runtime::SharedRuntime;

/// Log levels of the NATS client, as directives of a filter. The client logs a message at each
/// attempt to connect. These messages are hidden, because this module logs the same errors once,
/// with advice. If the client leaves a server, for example after a malformed message, only the client
/// logs the reason. This log line is shown; it has the field `error`.
pub const CLIENT_LOG_LEVELS: &str =
    "async_nats=off,async_nats[{error}]=debug,async_nats::connector=off";

/// Addresses of the NATS servers, and the credentials for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Addresses such as `nats://host:port` or `tls://host:port`. From one of these servers, the
    /// client learns the addresses of the cluster's other servers.
    pub servers: Vec<String>,
    pub credentials: NatsCredentials,
    /// PEM file of the certificates to trust; `None` to trust the system's certificates. If a file
    /// is given, a connection requires TLS.
    pub ca: Option<PathBuf>,
}

/// Credentials for the NATS servers. Every call of [`connect`] reads the files anew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NatsCredentials {
    #[default]
    Anonymous,
    /// Path of a `.creds` file with a JWT and the seed of its key.
    File(PathBuf),
    /// Path of a file with the seed of an nkey.
    Nkey(PathBuf),
    Password {
        user: String,
        password: NatsPassword,
        /// Name of the environment variable that holds the password; `None` if the password comes
        /// from a file. Listeners do not get this variable.
        variable: Option<String>,
    },
}

/// A password. Its `Debug` form does not show the value.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsPassword(pub String);

impl fmt::Debug for NatsPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{address}` is not the address of a NATS server; write it like nats://127.0.0.1:4222")]
    Address { address: String },
    #[error("the file {path} with the credentials {detail}")]
    Credentials { path: PathBuf, detail: String },
    #[error(
        "the file {path} {detail}; name a PEM file with the certificate of the authority that \
         signed the certificates of the NATS servers"
    )]
    Authority { path: PathBuf, detail: String },
    /// No connection was made. `is_passing` is true if no server responded, so that a later attempt
    /// may succeed. `is_passing` is false if a server refused the credentials, or if TLS failed.
    #[error("cannot connect to NATS at {servers}: {detail}")]
    Connect { servers: String, detail: String, is_passing: bool },
    #[error(transparent)]
    Denied(#[from] PermissionError),
    #[error("cannot start the thread of the NATS connection: {source}")]
    Threads { source: std::io::Error },
}

/// Connects to the servers. The client reconnects after every outage until it is dropped.
pub async fn connect(options: &Options, name: &str) -> Result<Client, Error> {
    Ok(connect_with_denials(options, name).await?.0)
}

/// Connects as [`connect`] does. Also returns a shared list, to which the connection adds each
/// permission error that a server reports.
pub async fn connect_with_denials(
    options: &Options,
    name: &str,
) -> Result<(Client, PermissionErrors), Error> {
    connect_with(options, name, None).await
}

/// Connects like [`connect_with_denials`]. If `inbox` is given, the subjects on which the client
/// receives responses begin with `inbox`.
pub async fn connect_with(
    options: &Options,
    name: &str,
    inbox: Option<&str>,
) -> Result<(Client, PermissionErrors), Error> {
    let parse = |address: &String| {
        let parsed = address.parse::<ServerAddr>();
        parsed.map_err(|_| Error::Address { address: address.clone() })
    };

    let servers = options.servers.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let denials = PermissionErrors::for_credentials(&options.credentials);
    let noted = Arc::new(ConnectionLog::new(&denials, options, name));
    let noted_reasons = Arc::clone(&noted);
    let mut connecting = connect_options(&options.credentials)?
        .name(name)
        .connection_timeout(limits::NATS_CONNECT_TIMEOUT)
        .ping_interval(limits::NATS_PING_INTERVAL)
        .reconnect_delay_callback(backoff)
        // This callback leaves the choice of the server to the client. An event of the client names
        // only the kind of an error, such as `IO error` for a bad certificate. The pool of servers
        // has the whole error.
        .reconnect_to_server_callback(move |pool, _| {
            noted_reasons.note_reasons(pool.into_iter().filter_map(|server| server.last_error));
            std::future::ready(None)
        })
        .event_callback(move |event| {
            noted.note(&event);
            std::future::ready(())
        });
    if let Some(inbox) = inbox {
        connecting = connecting.custom_inbox_prefix(inbox);
    }

    if let Some(ca) = &options.ca {
        check_authority(ca).map_err(|detail| Error::Authority { path: ca.clone(), detail })?;
        connecting = connecting.add_root_certificates(ca.clone()).require_tls(true);
    }

    let connected = connecting.connect(servers).await;
    let client = connected.map_err(|error| Error::Connect {
        servers: options.servers.join(", "),
        detail: explain_failure(&error.to_string(), options),
        is_passing: is_passing(&error),
    })?;
    Ok((client, denials))
}

/// Whether a later attempt to connect may succeed, although this attempt failed with `error`.
fn is_passing(error: &ConnectError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    // TLS reports a bad certificate in this way.
    let is_garbled = source.is_some_and(|source| source.kind() == std::io::ErrorKind::InvalidData);

    match error.kind() {
        ConnectErrorKind::Io
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::MaxReconnects => !is_garbled,
        ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Authentication
        | ConnectErrorKind::Tls
        | ConnectErrorKind::ServerParse => false,
    }
}

/// Adds advice for the operator to an error of the NATS client.
fn explain_failure(detail: &str, options: &Options) -> String {
    let ca = match &options.ca {
        Some(ca) => format!("`ca_file` trusts {}", ca.display()),
        None => "without `ca_file`, the system's authorities are trusted".to_owned(),
    };

    let whom = match &options.credentials {
        NatsCredentials::Anonymous => {
            "there are no credentials: name them with `nkey_file` or another key of [nats]; a \
             listener's with ORGANISM_BUS_NKEY"
                .to_owned()
        }
        NatsCredentials::File(path) | NatsCredentials::Nkey(path) => {
            format!("the servers refuse the credentials in {}", path.display())
        }
        NatsCredentials::Password { user, .. } => {
            format!("the servers refuse user `{user}` with this password")
        }
    };

    let lower = detail.to_lowercase();
    if lower.contains("causedasendentity") {
        format!(
            "{detail}: the server shows a self-signed certificate, which is an authority's and no \
             server's; make two: one of an authority, for `ca_file`, and one of the server that the \
             authority signs, with the server's host as subjectAltName; {ca}"
        )
    } else if lower.contains("certificaterequired") {
        format!(
            "{detail}: the server demands a certificate of its clients, and this program shows none: \
             remove `verify` from the `tls` section of the server"
        )
    } else if lower.contains("certificate") {
        format!("{detail}: {ca}")
    } else if is_refusal(detail) {
        format!("{detail}: {whom}")
    } else if lower.contains("connection refused") {
        format!("{detail}: nothing listens there: start the server, or name another address")
    } else if lower.contains("invalidcontenttype") {
        format!("{detail}: the server there speaks no TLS: give it a certificate, or ask for none")
    } else {
        detail.to_owned()
    }
}

/// Whether an error of the NATS client states that a server refused the credentials.
fn is_refusal(detail: &str) -> bool {
    let lower = detail.to_lowercase();
    lower.contains("authorization") || lower.contains("authentication")
}

/// Whether an error of the NATS client states that the name of a server has no address.
fn is_name_unknown(detail: &str) -> bool {
    detail.ends_with(&ConnectErrorKind::Dns.to_string())
}

const ROUNDS_TO_SETTLE: u32 = 3;

/// Waits until the servers have processed everything that this client has sent so far. After that,
/// `denials` contains a permission error for each denied message. Gives up after a timeout.
pub async fn flush_and_await_denials(client: &Client, denials: &PermissionErrors) {
    let token = client.new_inbox();
    let round_trip = async {
        let mut messages = client.subscribe(token.clone()).await.ok()?;
        client.publish(token.clone(), "".into()).await.ok()?;
        let mut seen = 0;
        let mut round = 1;
        loop {
            tokio::select! {
                // A message to itself may overtake a permission error, which another task records.
                // So several messages make the round trip, with pauses in which that task can run.
                message = messages.next() => match round {
                    ROUNDS_TO_SETTLE => return message,
                    _ => {
                        round += 1;
                        tokio::time::sleep(limits::NATS_SETTLE_PAUSE).await;
                        client.publish(token.clone(), "".into()).await.ok()?;
                    }
                },
                () = denials.changed(&mut seen) => {
                    denials.subscription_denied(&token).is_none().then_some(())?;
                    denials.publish_denied_below(&token).is_none().then_some(())?;
                }
            }
        }
    };

    // After the timeout, further permission errors only go to the log.
    tokio::time::timeout(limits::NATS_ROUND_TRIP, round_trip).await.ok();
}

/// Whether `address` is a valid address of a NATS server.
pub fn is_address(address: &str) -> bool {
    address.parse::<ServerAddr>().is_ok_and(|parsed| !parsed.host().is_empty())
}

/// Checks the content of a PEM file of certificates to trust. `Err` contains the reason why the file
/// cannot be used, as a predicate whose subject is the file. Without this check, the client would
/// accept a file without certificates, and reject the certificate of each server.
pub fn check_certificates(pem: &[u8]) -> Result<(), String> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Err(error) => Err(format!("is no valid PEM: {error}")),
        Ok(certificates) if certificates.is_empty() => {
            Err("contains no certificate in PEM form".to_owned())
        }
        Ok(_) => Ok(()),
    }
}

fn check_authority(ca: &Path) -> Result<(), String> {
    let mut bytes = Vec::new();
    let read = durable_file::open_regular(ca).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot be read: {}", io_reason(&error)))?;
    check_certificates(&bytes)
}

fn connect_options(credentials: &NatsCredentials) -> Result<ConnectOptions, Error> {
    let read = |path: &PathBuf| {
        let failed = |error: std::io::Error| Error::Credentials {
            path: path.clone(),
            detail: format!("cannot be read: {}", io_reason(&error)),
        };
        durable_file::open_regular(path).and_then(std::io::read_to_string).map_err(failed)
    };

    let nobody = ConnectOptions::new();
    Ok(match credentials {
        NatsCredentials::Anonymous => nobody,
        NatsCredentials::File(path) => {
            let failed = |error| Error::Credentials {
                path: path.clone(),
                detail: format!("does not contain a JWT and its seed: {error}"),
            };
            nobody.credentials(&read(path)?).map_err(failed)?
        }
        NatsCredentials::Nkey(path) => {
            let seed = read(path)?.trim().to_owned();
            // The client reports a bad seed only while it connects, and does not name the file.
            nkeys::KeyPair::from_seed(&seed).map_err(|error| Error::Credentials {
                path: path.clone(),
                detail: format!(
                    "is not the seed of an nkey ({error}); name the file with the seed, which \
                     begins with `SU`"
                ),
            })?;
            nobody.nkey(seed)
        }
        NatsCredentials::Password { user, password, .. } => {
            nobody.user_and_password(user.clone(), password.0.clone())
        }
    })
}

/// Returns the delay before the next attempt to reconnect. The first attempt has no delay, because
/// a restarted server is soon back; later delays grow.
fn backoff(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    match attempts {
        0 => Duration::ZERO,
        _ => {
            limits::NATS_BACKOFF_FIRST.saturating_mul(1 << doublings).min(limits::NATS_BACKOFF_MAX)
        }
    }
}

/// Logs the events of a connection. Each outage is logged once.
struct ConnectionLog {
    /// Name of the connection. For the connection of a listener, it contains the name of the
    /// listener.
    name: String,
    denials: PermissionErrors,
    options: Options,
    /// Number of received messages that were dropped because the process was too slow. Used to
    /// limit the log lines about dropped messages.
    dropped: AtomicU64,
    /// The current outage; `None` while the connection is up. Lock: several tasks of the client may
    /// report events at once.
    outage: Mutex<Option<Outage>>,
}

/// An outage of a connection.
#[derive(Debug, Default)]
struct Outage {
    /// Whether the client has tried to connect since the outage began. Before that, the errors of
    /// the servers may be those of an earlier outage.
    has_tried: bool,
    /// The reasons that were logged. That of an expired certificate has the current time, and is
    /// here without its digits.
    reasons: BTreeSet<String>,
}

impl Outage {
    /// Adds a reason. Returns false if it must not be logged, because it was logged already.
    fn add_reason(&mut self, reason: &str) -> bool {
        let mut key = reason.to_owned();
        if key.contains("verification time") {
            key.retain(|character| !character.is_ascii_digit());
        }
        self.reasons.len() < limits::NATS_OUTAGE_REASONS_MAX && self.reasons.insert(key)
    }
}

impl ConnectionLog {
    fn new(denials: &PermissionErrors, options: &Options, name: &str) -> Self {
        let name = name.to_owned();
        let options = options.clone();
        let dropped = AtomicU64::default();
        Self { name, denials: denials.clone(), options, dropped, outage: Mutex::default() }
    }

    /// Adds advice to an error of the client.
    fn explain(&self, error: &str) -> String {
        let explained = explain_failure(error, &self.options);
        if !is_refusal(error) {
            return explained;
        }

        format!(
            "{explained}; a process reads its credentials at its start alone: restart it after \
             they were replaced"
        )
    }

    fn note(&self, event: &Event) {
        let mut outage = locked(&self.outage);
        let connection = self.name.as_str();

        match event {
            Event::Connected => {
                self.denials.forget_subscriptions();
                self.denials.set_refusal(None);
                match outage.take() {
                    Some(_) => tracing::warn!(connection, "connected to NATS again"),
                    None => tracing::info!(connection, "connected to NATS"),
                }
            }
            Event::Disconnected => {
                *outage = Some(Outage::default());
                // The NATS client logs the reason itself, directly before this event.
                tracing::warn!(connection, "disconnected from NATS; reconnecting");
            }
            Event::ServerError(error) => match self.denials.note(&error.to_string()) {
                Some(denied) => tracing::error!("{denied}"),
                None => tracing::error!(connection, "error from the NATS server: {error}"),
            },
            Event::ClientError(error) => {
                let error = error.to_string();
                let text = self.explain(&error);
                // A refusal is the reason why later requests cannot be sent.
                self.denials.set_refusal(is_refusal(&error).then(|| text.clone()));
                match &mut *outage {
                    Some(outage) => {
                        outage.has_tried = true;
                        // Before the next attempt, `note_reasons` logs the whole error. The client
                        // does not keep an error about the name of a server.
                        if is_name_unknown(&error) && outage.add_reason(&text) {
                            tracing::warn!(connection, "NATS at {}: {text}", self.servers());
                        } else {
                            tracing::debug!("NATS: {text}");
                        }
                    }
                    None => tracing::warn!(connection, "NATS at {}: {text}", self.servers()),
                }
            }
            // The pump delivers again, after a timeout, everything whose answer was dropped.
            Event::SlowConsumer(subscription) => self.note_dropped(*subscription),
            other => tracing::info!(connection, "NATS: {other}"),
        }
    }

    /// Logs why the servers cannot be reached, before another attempt to connect. `errors` are the
    /// last errors of the servers. The client tries to connect twice a second, possibly for hours.
    /// So each reason of an outage is logged once.
    fn note_reasons(&self, errors: impl Iterator<Item = String>) {
        let mut outage = locked(&self.outage);
        let Some(outage) = outage.as_mut().filter(|outage| outage.has_tried) else { return };
        let reasons = errors.map(|error| self.explain(&error));
        let new: Vec<_> = reasons.filter(|reason| outage.add_reason(reason)).collect();
        if !new.is_empty() {
            let reasons = new.join("; ");
            tracing::warn!(connection = self.name, "NATS at {}: {reasons}", self.servers());
        }
    }

    fn servers(&self) -> String {
        self.options.servers.join(", ")
    }

    /// Counts a message that was dropped. A program may flood a connection, so this method logs the
    /// count only if the count is a power of two.
    fn note_dropped(&self, subscription: u64) {
        let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::error!(
                connection = self.name.as_str(),
                subscription,
                count,
                "slow consumer: NATS messages arrived faster than they were processed, and some \
                 were dropped"
            );
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

    /// Passes `events` to a [`ConnectionLog`], and returns the text that it logs.
    fn log_of(events: &[Event]) -> String {
        logged(|log| events.iter().for_each(|event| log.note(event)))
    }

    /// Returns the text that a [`ConnectionLog`] logs in `report`.
    fn logged(report: impl FnOnce(&ConnectionLog)) -> String {
        use std::io::Write;
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
        let noted = ConnectionLog::new(
            &PermissionErrors::for_credentials(&NatsCredentials::Anonymous),
            &nobody_at("nats://there"),
            "organism talk, listener echo",
        );
        tracing::subscriber::with_default(logs, || report(&noted));
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    fn nobody_at(server: &str) -> Options {
        let servers = vec![server.to_owned()];
        Options { servers, credentials: NatsCredentials::Anonymous, ca: None }
    }

    #[test]
    fn what_the_servers_do_to_a_connection_is_in_the_log() {
        let denied = "Permissions Violation for Publish to \"a.b\"".to_owned();
        for (event, level, expected) in [
            (Event::SlowConsumer(7), "ERROR", "messages arrived faster than they were processed"),
            (
                Event::ServerError(async_nats::ServerError::Other(denied)),
                "ERROR",
                "publish to `a.b`",
            ),
            (Event::Disconnected, "WARN", "reconnecting"),
            (Event::LameDuckMode, "INFO", "lame duck"),
        ] {
            let text = log_of(std::slice::from_ref(&event));
            assert!(text.contains(level) && text.contains(expected), "{event:?}: {text}");
        }
    }

    #[test]
    fn a_flood_of_dropped_messages_is_a_few_lines_that_name_the_listener() {
        let text = log_of(&vec![Event::SlowConsumer(7); 1000]);
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(text.lines().all(|line| line.contains("listener echo")), "{text}");
        assert!(text.contains("512") && text.contains("subscription"), "{text}");

        let text = log_of(&[Event::Disconnected, Event::Connected]);
        assert!(text.lines().all(|line| line.contains("listener echo")), "{text}");
    }

    fn failed(why: &str) -> Event {
        Event::ClientError(async_nats::ClientError::Other(why.to_owned()))
    }

    #[test]
    fn an_outage_is_logged_once_for_each_reason_and_its_end_once() {
        // The client reports the kind of an error after each attempt, and has the whole error before
        // the next one.
        let outage = |log: &ConnectionLog, stale: Option<&str>| {
            let errors = |text: &str| log.note_reasons([text.to_owned()].into_iter());
            log.note(&Event::Disconnected);
            stale.into_iter().for_each(errors);
            for n in 0..50 {
                log.note(&failed("IO error"));
                errors("refused");
                log.note(&failed("IO error"));
                errors(&format!("expired: verification time {n}"));
            }
        };
        let text = logged(|log| {
            outage(log, None);
            log.note(&Event::Connected);
            outage(log, Some("error of the first outage"));
        });
        let lines = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        let counts =
            ["reconnecting", "NATS at nats://there: refused", "verification time 0", "again"];
        assert_eq!(counts.map(lines), [2, 2, 2, 1], "{text}");
        assert_eq!(text.lines().count(), 7, "{text}");
        // While connected, every error is logged.
        let text = log_of(&vec![failed("refused"); 50]);
        assert_eq!(text.lines().count(), 50, "{text}");
    }

    #[test]
    fn a_server_whose_name_has_no_address_is_logged_once_in_an_outage() {
        let text = logged(|log| {
            log.note(&Event::Disconnected);
            for _ in 0..50 {
                log.note(&failed(&ConnectErrorKind::Dns.to_string()));
                log.note_reasons(std::iter::empty());
            }
        });
        assert_eq!(text.matches("NATS at nats://there: nats: DNS error").count(), 1, "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn the_number_of_reasons_that_are_logged_for_an_outage_is_bounded() {
        let mut outage = Outage::default();
        let reasons = (0..2 * limits::NATS_OUTAGE_REASONS_MAX).map(|n| "x".repeat(n));
        let new = reasons.filter(|reason| outage.add_reason(reason)).count();
        assert_eq!(new, limits::NATS_OUTAGE_REASONS_MAX);
    }

    #[test]
    fn each_reason_of_several_servers_is_named_once_with_advice() {
        let text = logged(|log| {
            log.note(&Event::Disconnected);
            log.note(&failed("IO error"));
            let expired = "IO error: invalid peer certificate: Expired";
            let errors = [expired, "authorization violation", expired].map(str::to_owned);
            log.note_reasons(errors.into_iter());
        });
        assert_eq!(text.matches("certificate: Expired: without `ca_file`").count(), 1, "{text}");
        assert!(text.contains("; authorization violation: there are no credentials"), "{text}");
    }

    #[test]
    fn a_failed_connection_is_reported_with_its_cause_and_advice() {
        let options = nobody_at("nats://127.0.0.1:4222");
        for (detail, expected) in [
            ("IO error: Connection refused (os error 111)", "start the server"),
            ("received corrupt message of type InvalidContentType", "speaks no TLS"),
            ("authorization violation", "nkey_file"),
            ("invalid peer certificate: UnknownIssuer", "ca_file"),
            ("received fatal alert: CertificateRequired", "remove `verify`"),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "make two"),
        ] {
            let text = explain_failure(detail, &options);
            assert!(text.starts_with(detail) && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn credentials_that_the_servers_refuse_later_are_named_with_advice_until_it_connects() {
        let credentials = NatsCredentials::Nkey("keys/pump.nk".into());
        let denials = PermissionErrors::for_credentials(&credentials);
        let options = Options { credentials, ..nobody_at("nats://there") };
        let log = ConnectionLog::new(&denials, &options, "test");
        let refused = failed("authorization violation");

        log.note(&Event::Disconnected);
        log.note(&refused);
        let refusal = denials.refusal().unwrap();
        assert!(refusal.contains("refuse the credentials in keys/pump.nk"), "{refusal}");
        assert!(refusal.contains("restart it"), "{refusal}");

        log.note(&failed("IO error: Connection refused"));
        assert_eq!(denials.refusal(), None);
        log.note(&refused);
        log.note(&Event::Connected);
        assert_eq!(denials.refusal(), None);
    }

    #[test]
    fn a_file_of_trusted_certificates_has_one() {
        let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        for text in ["", "<schema/>", key] {
            let error = check_certificates(text.as_bytes()).unwrap_err();
            assert!(error.contains("no certificate"), "{text}: {error}");
        }
        let cut = check_certificates(&certificate.as_bytes()[..40]).unwrap_err();
        assert!(cut.contains("no valid PEM"), "{cut}");
        assert_eq!(check_certificates([key, certificate].concat().as_bytes()), Ok(()));
    }

    #[test]
    fn a_file_that_holds_no_seed_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "server_name: \"organism\"\n").unwrap();
        let error = connect_options(&NatsCredentials::Nkey(file.path().to_owned()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
        assert!(error.contains("is not the seed of an nkey ("), "{error}");
        assert!(error.contains("; name the file"), "{error}");
        let missing = NatsCredentials::Nkey("/nowhere/pump.nk".into());
        let error = connect_options(&missing).unwrap_err().to_string();
        let expected = "the file /nowhere/pump.nk with the credentials cannot be read: there is no \
                        such file or directory";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_password_is_never_shown() {
        let password = NatsPassword("hunter2".to_owned());
        let credentials =
            NatsCredentials::Password { user: "pump".to_owned(), password, variable: None };
        assert!(!format!("{credentials:?}").contains("hunter2"));
    }
}
