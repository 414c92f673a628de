//! Collects the permission errors of a connection. A server reports a permission error on the
//! connection, and not in the response to a request.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::watch;

use super::NatsCredentials;
use crate::limits;
use crate::locks::locked;

/// The servers refused an operation because the connection's credentials do not permit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "NATS does not let {who} {what}; the permission is missing: check that the key is the right one; \
     `organism nats-config` writes a server config with all necessary permissions"
)]
pub struct PermissionError {
    who: Arc<str>,
    what: DeniedOperation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DeniedOperation {
    Publish(String),
    Subscribe { subject: String, queue: Option<String> },
}

impl PermissionError {
    /// Returns the operation, as `publish SUBJECT` or `subscribe SUBJECT`.
    pub fn operation(&self) -> String {
        match &self.what {
            DeniedOperation::Publish(subject) => format!("publish {subject}"),
            DeniedOperation::Subscribe { subject, .. } => format!("subscribe {subject}"),
        }
    }

    /// Whether the error denies a publish to a subject that begins with `prefix`.
    pub fn is_publish_below(&self, prefix: &str) -> bool {
        matches!(&self.what, DeniedOperation::Publish(subject) if subject.starts_with(prefix))
    }
}

impl fmt::Display for DeniedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publish(subject) => write!(f, "publish to `{subject}`"),
            Self::Subscribe { subject, queue: None } => write!(f, "subscribe to `{subject}`"),
            Self::Subscribe { subject, queue: Some(queue) } => {
                write!(f, "subscribe to `{subject}` in the queue group `{queue}`")
            }
        }
    }
}

impl DeniedOperation {
    /// Parses the text of an error that a NATS server reports. Returns `None` if the text is no
    /// permission error.
    fn parse(server_error: &str) -> Option<Self> {
        let (_, what) = server_error.split_once("Permissions Violation for ")?;
        let mut quoted = what.split('"').skip(1).step_by(2).map(str::to_owned);
        let subject = quoted.next()?;

        match what.split_once(' ')?.0 {
            "Publish" => Some(Self::Publish(subject)),
            // A server that takes a right away quotes its id of the subscription there.
            "Subscription" => {
                let queue = quoted.next().filter(|_| what.contains(" using queue "));
                Some(Self::Subscribe { subject, queue })
            }
            _ => None,
        }
    }
}

/// The recent permission errors of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PermissionErrors(Arc<SharedErrors>);

#[derive(Debug)]
struct SharedErrors {
    who: Arc<str>,
    /// The recent errors, each with its time. Lock: the connection's task adds errors, and the OS
    /// threads that wait for a response search them. The lock is never held across an await. A
    /// panic leaves the list valid, because every change is a single method call.
    recent: Mutex<VecDeque<(Instant, PermissionError)>>,
    /// Number of errors so far. The number rises only after an error was added to `recent`, so that
    /// a task that waits for the new number finds the error there.
    count: watch::Sender<u64>,
    /// Why a server refused the credentials in the last attempt to connect again. `None` while the
    /// client is connected, and if the attempt failed for another reason. Lock: the connection's
    /// task sets the reason, and other OS threads read it.
    refusal: Mutex<Option<String>>,
}

impl PermissionErrors {
    /// Creates an empty list of permission errors for a connection with these credentials.
    pub(super) fn for_credentials(credentials: &NatsCredentials) -> Self {
        let who = match credentials {
            NatsCredentials::Anonymous => "a client without credentials".to_owned(),
            NatsCredentials::File(path) => {
                format!("the user of the credentials in {}", path.display())
            }
            NatsCredentials::Nkey(path) => format!("the user of the key in {}", path.display()),
            NatsCredentials::Password { user, .. } => format!("the user `{user}`"),
        };

        let (count, _) = watch::channel(0);
        let recent = Mutex::default();
        let refusal = Mutex::default();
        Self(Arc::new(SharedErrors { who: who.into(), recent, count, refusal }))
    }

    /// Sets the reason why the servers refuse the credentials; `None` if no server refuses the
    /// credentials.
    pub(super) fn set_refusal(&self, refusal: Option<String>) {
        *locked(&self.0.refusal) = refusal;
    }

    /// Returns the reason why the servers refuse the credentials of this connection, with advice.
    /// Returns `None` if no server has refused the credentials in the last attempt to connect.
    pub fn refusal(&self) -> Option<String> {
        locked(&self.0.refusal).clone()
    }

    /// Records and returns the permission error that a server reported. `server_error` is the text
    /// that the server sent. Returns `None` if this text is no permission error.
    pub(super) fn note(&self, server_error: &str) -> Option<PermissionError> {
        let denied = PermissionError {
            who: Arc::clone(&self.0.who),
            what: DeniedOperation::parse(server_error)?,
        };
        let mut recent = locked(&self.0.recent);
        if recent.len() >= limits::NATS_DENIALS_MAX {
            recent.pop_front();
        }

        recent.push_back((Instant::now(), denied.clone()));
        drop(recent);
        self.0.count.send_modify(|count| *count += 1);
        Some(denied)
    }

    /// Forgets every denied subscription. Must be called when the client has connected again: the
    /// client then repeats its subscriptions, and the server reports each denial again.
    pub(super) fn forget_subscriptions(&self) {
        locked(&self.0.recent)
            .retain(|(_, denied)| matches!(denied.what, DeniedOperation::Publish(_)));
    }

    fn last(
        &self,
        mut is: impl FnMut(Instant, &DeniedOperation) -> bool,
    ) -> Option<PermissionError> {
        let recent = locked(&self.0.recent);
        let found = recent.iter().rev().find(|(at, denied)| is(*at, &denied.what));
        found.map(|(_, denied)| denied.clone())
    }

    /// Returns the last permission error that a server reported for a publish to `subject` at the
    /// time `since` or later. Returns `None` if there is no such error.
    pub fn publish_denied(&self, subject: &str, since: Instant) -> Option<PermissionError> {
        self.last(|at, what| {
            at >= since && matches!(what, DeniedOperation::Publish(denied) if denied == subject)
        })
    }

    /// Returns the last permission error for a publish to a subject that begins with `prefix`;
    /// `None` if there is no such error.
    pub fn publish_denied_below(&self, prefix: &str) -> Option<PermissionError> {
        self.last(|_, what| matches!(what, DeniedOperation::Publish(denied) if denied.starts_with(prefix)))
    }

    /// Returns the permission errors for publishes to subjects that begin with `prefix`. Returns
    /// only errors that were reported later than `after`, the oldest first.
    pub fn publishes_denied_below(
        &self,
        prefix: &str,
        after: Instant,
    ) -> Vec<(Instant, PermissionError)> {
        let recent = locked(&self.0.recent);
        let denied = recent.iter().filter(|(at, denied)| {
            let is_beneath =
                matches!(&denied.what, DeniedOperation::Publish(subject) if subject.starts_with(prefix));
            *at > after && is_beneath
        });
        denied.cloned().collect()
    }

    /// Returns every permission error later than `after`, the oldest first.
    pub fn all_after(&self, after: Instant) -> Vec<(Instant, PermissionError)> {
        let recent = locked(&self.0.recent);
        recent.iter().filter(|(at, _)| *at > after).cloned().collect()
    }

    /// Returns the last permission error for a subscription to a subject that begins with `prefix`;
    /// `None` if there is no such error.
    pub fn subscription_denied(&self, prefix: &str) -> Option<PermissionError> {
        self.last(|_, what| {
            matches!(what, DeniedOperation::Subscribe { subject, .. } if subject.starts_with(prefix))
        })
    }

    /// Returns the last permission error that a server reported for a subscription to `subject` at
    /// the time `since` or later. Returns `None` if there is no such error.
    pub fn subscription_denied_since(
        &self,
        subject: &str,
        since: Instant,
    ) -> Option<PermissionError> {
        self.last(|at, what| {
            let is_it = matches!(what, DeniedOperation::Subscribe { subject: denied, .. } if denied == subject);
            at >= since && is_it
        })
    }

    /// Returns a permission error that explains why no response came from `subject`; `None` if
    /// there is none. The returned error is one of the following:
    ///
    /// - An error for a publish to `subject`, reported at the time `since` or later.
    /// - An error for the subscription to the client's inbox, where responses arrive, reported at
    ///   any time.
    pub(super) fn request_denied(&self, subject: &str, since: Instant) -> Option<PermissionError> {
        self.publish_denied(subject, since).or_else(|| self.subscription_denied("_INBOX"))
    }

    /// Waits until the number of recorded errors differs from `seen`, and sets `seen` to the new
    /// number.
    pub async fn changed(&self, seen: &mut u64) {
        let mut count = self.0.count.subscribe();
        let looked = count.wait_for(|count| *count != *seen).await;
        if let Ok(count) = looked {
            *seen = *count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_read() {
        let read = |text: &str| DeniedOperation::parse(text).map(|what| what.to_string());
        for (text, expected) in [
            ("Permissions Violation for Publish to \"a.b\"", Some("publish to `a.b`")),
            ("Permissions Violation for Subscription to \"a.*\"", Some("subscribe to `a.*`")),
            (
                "Permissions Violation for Subscription to \"a\" using queue \"q\"",
                Some("subscribe to `a` in the queue group `q`"),
            ),
            (
                "Permissions Violation for Subscription to \"a\" (sid \"4\")",
                Some("subscribe to `a`"),
            ),
            ("Unknown Protocol Operation", None),
            ("Permissions Violation for ", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_denied_is_found_by_its_subject() {
        let denials = PermissionErrors::for_credentials(&NatsCredentials::Nkey("pump.nk".into()));
        let begun = Instant::now();
        denials.note("Permissions Violation for Publish to \"a.b\"").unwrap();
        denials.note("Permissions Violation for Subscription to \"_INBOX.x.*\"").unwrap();
        let error = denials.publish_denied("a.b", begun).unwrap().to_string();
        assert!(error.contains("pump.nk") && error.contains("`a.b`"), "{error}");
        assert!(denials.publish_denied("a.b", Instant::now()).is_none(), "it was before");
        assert!(denials.publish_denied("a.c", begun).is_none());
        assert_eq!(denials.publishes_denied_below("a.", begun).len(), 1);
        assert!(denials.publishes_denied_below("a.", Instant::now()).is_empty());
        assert!(denials.publishes_denied_below("b.", begun).is_empty());
        assert!(denials.subscription_denied("_INBOX.x").is_some());
        assert!(denials.subscription_denied_since("_INBOX.x.*", begun).is_some());
        assert!(denials.subscription_denied_since("_INBOX.x.*", Instant::now()).is_none());
        assert!(denials.subscription_denied_since("_INBOX.x", begun).is_none());
        assert!(denials.request_denied("a.c", begun).is_some(), "its answer is not heard");
        denials.forget_subscriptions();
        assert!(denials.request_denied("a.c", begun).is_none());
        assert!(denials.request_denied("a.b", begun).is_some());
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        let denials = PermissionErrors::for_credentials(&NatsCredentials::Anonymous);
        for n in 0..2 * limits::NATS_DENIALS_MAX {
            denials.note(&format!("Permissions Violation for Publish to \"{n}\"")).unwrap();
        }
        assert_eq!(locked(&denials.0.recent).len(), limits::NATS_DENIALS_MAX);
    }
}
