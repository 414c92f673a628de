//! What each user may publish and hear.

use crate::bus::nats::ListenerSubjects;
use crate::ids::ListenerName;
use crate::journal::jetstream;
use crate::mutant::mutant;

/// Subjects, as a server's config has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectRights {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

impl SubjectRights {
    /// Its deliveries and its cancels come in, its answers go out. What services are asked (ADR-32)
    /// it answers in the operators' inboxes and nowhere else: who asks chooses where the answer
    /// goes, and no server checks that.
    pub fn of_listener(organism: &str, listener: &ListenerName) -> Self {
        let subjects = ListenerSubjects::new(organism, listener);
        let mut subscribe = vec![
            // A queue group of its own name and no other: nobody takes deliveries away.
            format!("{} {listener}", subjects.deliveries()),
            subjects.cancels(),
            format!("{}.>", subjects.inbox()),
        ];
        for verb in ["PING", "INFO", "STATS"] {
            let asked = format!("$SRV.{verb}");
            subscribe.extend([format!("{asked}.{listener}.*"), format!("{asked}.{listener}")]);
            subscribe.push(asked);
        }
        let mut publish = vec![subjects.answers(), format!("{OPERATORS}>")];
        if mutant("grant-too-much") {
            publish.push(format!("organism.{organism}.re.>"));
        }
        Self { publish, subscribe }
    }

    /// `hosted` are the listeners that remember calls, and the agents that ask it for what they
    /// remember: it publishes to their inboxes.
    pub fn of_pump<'a>(
        organism: &str,
        journal: Option<&jetstream::Options>,
        partitions: u32,
        hosted: impl Iterator<Item = &'a ListenerName>,
    ) -> Self {
        let own = |what: &str| format!("organism.{organism}.{what}");
        let mut publish = vec![own("to.*"), own("cancel.*"), own("pump.>")];
        publish.push("$SRV.PING.>".to_owned());
        // What other pumps of this organism ask is answered in their inboxes.
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

    /// Somebody who asks servers how they sync, and hears it.
    pub fn of_system() -> Self {
        let publish = vec!["$SYS.REQ.SERVER.PING.VARZ".to_owned()];
        Self { publish, subscribe: vec!["_INBOX.>".to_owned()] }
    }

    /// Somebody who asks services what they are. Nothing of JetStream: where a server's own answer
    /// goes is the asker's choice, and it would write it anywhere.
    pub fn of_operator() -> Self {
        Self { publish: vec!["$SRV.>".to_owned()], subscribe: vec![format!("{OPERATORS}>")] }
    }
}

/// What the inboxes of operators begin with.
const OPERATORS: &str = "_INBOX_operator.";

/// Of a journal. A wildcard stands for a whole token only, so each is named.
fn streams(journal: &jetstream::Options, partitions: u32) -> Vec<String> {
    let of = |partition| jetstream::Options { partition, ..journal.clone() }.stream();
    let all = (0..partitions).map(of);
    all.chain([format!("KV_{}", journal.bucket())]).collect()
}
