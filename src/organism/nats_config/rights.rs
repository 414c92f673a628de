//! Permissions of each NATS user to publish and to subscribe.

use crate::bus::nats::ListenerSubjects;
use crate::ids::ListenerName;
use crate::journal::jetstream;
use crate::mutant::mutant;

/// Subjects that a user may publish to and subscribe to, as the server config states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectRights {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

impl SubjectRights {
    /// Returns the permissions of a listener. The listener may receive its deliveries and
    /// cancellations, and may publish its answers. The listener may answer discovery requests
    /// (ADR-32) only in the inboxes of operators. The sender of such a request chooses the reply
    /// subject, and could otherwise make the listener publish on any subject.
    pub fn of_listener(organism: &str, listener: &ListenerName) -> Self {
        let subjects = ListenerSubjects::new(organism, listener);
        let mut subscribe = vec![
            // The listener may join only the queue group with its own name. In another group, it
            // would take deliveries away from its other replicas.
            format!("{} {listener}", subjects.deliveries()),
            subjects.cancels(),
            format!("{}.>", subjects.inbox()),
        ];
        for verb in ["PING", "INFO", "STATS"] {
            let subject = format!("$SRV.{verb}");
            subscribe.extend([format!("{subject}.{listener}.*"), format!("{subject}.{listener}")]);
            subscribe.push(subject);
        }

        let mut publish = vec![subjects.answers(), format!("{OPERATORS}>")];
        if mutant("grant-too-much") {
            publish.push(format!("organism.{organism}.re.>"));
        }

        Self { publish, subscribe }
    }

    /// Returns the permissions of the pump. `hosted` contains the listeners and agents that run on
    /// NATS. The pump may publish to their inboxes for two purposes: to send an agent the thread
    /// that it requests, and to send further deliveries of a call to a program that already has the
    /// earlier messages of the call.
    pub fn of_pump<'a>(
        organism: &str,
        journal: Option<&jetstream::Options>,
        partitions: u32,
        hosted: impl Iterator<Item = &'a ListenerName>,
    ) -> Self {
        let own = |what: &str| format!("organism.{organism}.{what}");
        let mut publish = vec![own("to.*"), own("cancel.*"), own("pump.>")];
        publish.push("$SRV.PING.>".to_owned());
        // Responses to requests of other pumps of this organism go to those pumps' inboxes.
        publish.push("_INBOX.>".to_owned());
        publish.extend(
            hosted.map(|name| format!("{}.>", ListenerSubjects::new(organism, name).inbox())),
        );
        if let Some(journal) = journal {
            for stream in streams(journal, partitions) {
                let api = ["STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"];
                publish.extend(api.map(|verb| format!("$JS.API.{verb}.{stream}")));
            }
            for partition in 0..partitions {
                let of = jetstream::Options { partition, ..journal.clone() };
                publish.extend([of.subject(), of.lease()]);
            }
            publish.push(journal.count());
        }

        let subscribe = vec![own("re.>"), own("pump.>"), "_INBOX.>".to_owned()];
        Self { publish, subscribe }
    }

    /// Returns the permissions of the user that reads the sync settings of servers.
    pub fn of_system() -> Self {
        let publish = vec!["$SYS.REQ.SERVER.PING.VARZ".to_owned()];
        Self { publish, subscribe: vec!["_INBOX.>".to_owned()] }
    }

    /// Returns the permissions of a user that sends discovery requests. The user has no permissions
    /// on JetStream: a JetStream request can name any subject for its response, so the user could
    /// make a server publish on any subject.
    pub fn of_operator() -> Self {
        Self { publish: vec!["$SRV.>".to_owned()], subscribe: vec![format!("{OPERATORS}>")] }
    }
}

/// Prefix of the inboxes of operators.
const OPERATORS: &str = "_INBOX_operator.";

/// Returns the names of a journal's streams. Permissions must list each name, because a wildcard of
/// NATS stands for a whole token of a subject, and cannot stand for the end of a token.
fn streams(journal: &jetstream::Options, partitions: u32) -> Vec<String> {
    let of = |partition| jetstream::Options { partition, ..journal.clone() }.stream();
    let all = (0..partitions).map(of);
    all.chain([format!("KV_{}", journal.bucket())]).collect()
}
