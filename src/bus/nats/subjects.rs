//! The NATS subjects of one listener.

use crate::ids::ListenerName;

/// The NATS subjects of one listener. Each subject begins with the organism's name and contains the
/// listener's name, so that a server can grant a listener exactly its own subjects.
#[derive(Debug, Clone)]
pub struct ListenerSubjects {
    organism: String,
    listener: ListenerName,
    /// Prefix of all subjects that the listener publishes to.
    answers: String,
}

/// Last token of the subject on which the listener announces itself. The subject of an answer ends
/// with the token of an attempt instead.
const HERE: &str = "here";
/// Last token of the subject for reports of denied operations. The subject of an answer ends with
/// the token of an attempt instead.
const DENIED: &str = "denied";

impl ListenerSubjects {
    pub fn new(organism: &str, listener: &ListenerName) -> Self {
        let answers = format!("organism.{organism}.re.{listener}.");
        Self { organism: organism.to_owned(), listener: listener.clone(), answers }
    }

    /// Returns the subject of deliveries. The listener's replicas subscribe to this subject as a
    /// queue group with the listener's name.
    pub fn deliveries(&self) -> String {
        format!("organism.{}.to.{}", self.organism, self.listener)
    }

    /// Returns the subject on which every replica receives cancellations.
    pub fn cancels(&self) -> String {
        format!("organism.{}.cancel.{}", self.organism, self.listener)
    }

    /// Returns the wildcard subject that covers all subjects to which the listener may publish.
    pub fn answers(&self) -> String {
        format!("{}>", self.answers)
    }

    pub fn answer(&self, token: &str) -> String {
        format!("{}{token}", self.answers)
    }

    /// Returns the wildcard subject of all the listener's answers to one pump. `host` is the token
    /// of this pump in the subjects. A pump that subscribes to this subject receives no answers for
    /// other pumps.
    pub fn answers_to(&self, host: &str) -> String {
        format!("{}{host}.*", self.answers)
    }

    pub fn here(&self) -> String {
        self.answer(HERE)
    }

    /// Returns the subject on which programs of the listener report operations that the servers
    /// denied to them.
    pub fn denied(&self) -> String {
        self.answer(DENIED)
    }

    /// Returns the prefix of every inbox of the listener. Responses to the listener's requests go
    /// only to subjects with this prefix.
    pub fn inbox(&self) -> String {
        format!("_INBOX_{}", self.listener)
    }

    /// Returns the subject on which one replica receives deliveries without the messages that this
    /// replica remembers.
    pub fn replica(&self, replica: &str) -> String {
        format!("{}.{replica}", self.inbox())
    }

    /// Returns the subject of requests for previews. Only replicas that support previews subscribe
    /// to this subject, as a queue group with the listener's name. Requests for previews need a
    /// subject of their own, because a program without previews would mistake such a request for a
    /// call, and carry out the call.
    pub fn previews(&self) -> String {
        format!("{}.preview.{}", self.inbox(), self.organism)
    }

    /// Returns the subject for a discovery request to all services with the listener's name.
    pub fn ping(&self) -> String {
        format!("$SRV.PING.{}", self.listener)
    }

    /// Whether a discovery request with the reply subject `reply` may be answered. False for a
    /// request of another organism on the same NATS servers. That organism may have a listener with
    /// the same name, and would mistake this listener for its own.
    pub fn may_ask(&self, reply: &str) -> bool {
        !reply.starts_with("organism.") || reply == self.here()
    }

    pub(super) fn about<'s>(&self, subject: &'s str) -> SubjectScope<'s> {
        match subject.strip_prefix(&self.answers) {
            Some(HERE) => SubjectScope::Itself,
            Some(DENIED) => SubjectScope::Denied,
            Some(token) => SubjectScope::Attempt(token),
            None => SubjectScope::Attempt(subject),
        }
    }
}

/// Topic of a message, as its subject states it: the listener itself, operations that the servers
/// denied to the listener, or one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubjectScope<'s> {
    Itself,
    Denied,
    Attempt(&'s str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_speaks_about_itself_or_about_an_attempt() {
        let subjects = ListenerSubjects::new("desk", &ListenerName::parse("search").unwrap());
        let cases = [
            (subjects.here(), SubjectScope::Itself),
            (subjects.denied(), SubjectScope::Denied),
            (subjects.answer("0f"), SubjectScope::Attempt("0f")),
            ("organism.desk.re.search.a.b".to_owned(), SubjectScope::Attempt("a.b")),
        ];
        for (subject, about) in cases {
            assert_eq!(subjects.about(&subject), about, "{subject}");
        }
    }
}
