//! What the servers do not let us do. They say so beside everything else, not to whoever asked:
//! it is kept here for those whom it concerns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::Credentials;
use crate::limits;

/// Something that whoever has our credentials may not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "NATS does not let {who} {what}; the right to it is missing: look whether that is its own key; \
     `organism nats-config` writes a server's config with all that is needed"
)]
pub struct Denied {
    who: Arc<str>,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Publish(String),
    Subscribe { subject: String, queue: Option<String> },
}

impl fmt::Display for What {
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

impl What {
    /// In the words of a server's error.
    fn read(said: &str) -> Option<Self> {
        let (_, what) = said.split_once("Permissions Violation for ")?;
        let mut quoted = what.split('"').skip(1).step_by(2).map(str::to_owned);
        let subject = quoted.next()?;

        match what.split_once(' ')?.0 {
            "Publish" => Some(Self::Publish(subject)),
            "Subscription" => Some(Self::Subscribe { subject, queue: quoted.next() }),
            _ => None,
        }
    }
}

/// Everything that one connection was denied lately. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Denials(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    who: Arc<str>,
    lately: Mutex<VecDeque<(Instant, Denied)>>,
    count: watch::Sender<u64>,
}

impl Denials {
    /// Of a connection with these.
    pub(super) fn of(credentials: &Credentials) -> Self {
        let who = match credentials {
            Credentials::Nobody => "whoever has no credentials".to_owned(),
            Credentials::File(path) => format!("the user of the credentials in {}", path.display()),
            Credentials::Nkey(path) => format!("the user of the key in {}", path.display()),
            Credentials::Password { user, .. } => format!("the user `{user}`"),
        };

        let (count, _) = watch::channel(0);
        Self(Arc::new(Kept { who: who.into(), lately: Mutex::default(), count }))
    }

    /// Keeps what a server's error says, where it is about this.
    pub(super) fn note(&self, said: &str) -> Option<Denied> {
        let denied = Denied { who: Arc::clone(&self.0.who), what: What::read(said)? };
        let mut lately = self.lately();
        if lately.len() >= limits::NATS_DENIALS_MAX {
            lately.pop_front();
        }

        lately.push_back((Instant::now(), denied.clone()));
        drop(lately);
        self.0.count.send_modify(|count| *count += 1);
        Some(denied)
    }

    /// A new connection subscribes anew, and is told anew.
    pub(super) fn forget_subscriptions(&self) {
        self.lately().retain(|(_, denied)| matches!(denied.what, What::Publish(_)));
    }

    fn lately(&self) -> MutexGuard<'_, VecDeque<(Instant, Denied)>> {
        self.0.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self, mut is: impl FnMut(Instant, &What) -> bool) -> Option<Denied> {
        let lately = self.lately();
        let found = lately.iter().rev().find(|(at, denied)| is(*at, &denied.what));
        found.map(|(_, denied)| denied.clone())
    }

    /// What was published to this subject since then went nowhere.
    pub fn of_publishing(&self, subject: &str, since: Instant) -> Option<Denied> {
        self.last(|at, what| {
            at >= since && matches!(what, What::Publish(denied) if denied == subject)
        })
    }

    /// What is published to subjects that begin so goes nowhere.
    pub fn of_publishing_beneath(&self, prefix: &str) -> Option<Denied> {
        self.last(|_, what| matches!(what, What::Publish(denied) if denied.starts_with(prefix)))
    }

    /// Denials of a publish to subjects that begin so, after that time; the oldest first.
    pub fn all_of_publishing_beneath(
        &self,
        prefix: &str,
        after: Instant,
    ) -> Vec<(Instant, Denied)> {
        let lately = self.lately();
        let denied = lately.iter().filter(|(at, denied)| {
            let is_beneath =
                matches!(&denied.what, What::Publish(subject) if subject.starts_with(prefix));
            *at > after && is_beneath
        });
        denied.cloned().collect()
    }

    /// Nothing is heard of subjects that begin so.
    pub fn of_hearing(&self, prefix: &str) -> Option<Denied> {
        self.last(|_, what| {
            matches!(what, What::Subscribe { subject, .. } if subject.starts_with(prefix))
        })
    }

    /// Why a question to `subject` has no answer: it went nowhere, or its answer does.
    pub(super) fn of_asking(&self, subject: &str, since: Instant) -> Option<Denied> {
        self.of_publishing(subject, since).or_else(|| self.of_hearing("_INBOX"))
    }

    /// Waits for the next one, and those that came since the last look.
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
        let read = |said: &str| What::read(said).map(|what| what.to_string());
        for (said, told) in [
            ("Permissions Violation for Publish to \"a.b\"", Some("publish to `a.b`")),
            ("Permissions Violation for Subscription to \"a.*\"", Some("subscribe to `a.*`")),
            (
                "Permissions Violation for Subscription to \"a\" using queue \"q\"",
                Some("subscribe to `a` in the queue group `q`"),
            ),
            ("Unknown Protocol Operation", None),
            ("Permissions Violation for ", None),
        ] {
            assert_eq!(read(said).as_deref(), told, "{said}");
        }
    }

    #[test]
    fn what_is_denied_is_found_by_its_subject() {
        let denials = Denials::of(&Credentials::Nkey("pump.nk".into()));
        let begun = Instant::now();
        denials.note("Permissions Violation for Publish to \"a.b\"").unwrap();
        denials.note("Permissions Violation for Subscription to \"_INBOX.x.*\"").unwrap();
        let told = denials.of_publishing("a.b", begun).unwrap().to_string();
        assert!(told.contains("pump.nk") && told.contains("`a.b`"), "{told}");
        assert!(denials.of_publishing("a.b", Instant::now()).is_none(), "it was before");
        assert!(denials.of_publishing("a.c", begun).is_none());
        assert_eq!(denials.all_of_publishing_beneath("a.", begun).len(), 1);
        assert!(denials.all_of_publishing_beneath("a.", Instant::now()).is_empty());
        assert!(denials.all_of_publishing_beneath("b.", begun).is_empty());
        assert!(denials.of_hearing("_INBOX.x").is_some());
        assert!(denials.of_asking("a.c", begun).is_some(), "its answer is not heard");
        denials.forget_subscriptions();
        assert!(denials.of_asking("a.c", begun).is_none());
        assert!(denials.of_asking("a.b", begun).is_some());
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        let denials = Denials::of(&Credentials::Nobody);
        for n in 0..2 * limits::NATS_DENIALS_MAX {
            denials.note(&format!("Permissions Violation for Publish to \"{n}\"")).unwrap();
        }
        assert_eq!(denials.lately().len(), limits::NATS_DENIALS_MAX);
    }
}
