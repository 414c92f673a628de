//! What each user may publish and hear.

use crate::bus::nats::Subjects;
use crate::ids::ListenerName;
use crate::journal::jetstream;
use crate::mutant::mutant;

/// Subjects, as a server's config has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
    /// Whether it may answer, once and within seconds, where somebody asked it to.
    pub answers: bool,
}

impl Rights {
    /// Its deliveries and its cancels come in, its answers go out. What services are asked (ADR-32)
    /// it answers where the asker wants; only the pump and operators can ask.
    pub fn of_listener(organism: &str, listener: &ListenerName) -> Self {
        let subjects = Subjects::new(organism, listener);
        let mut subscribe = vec![
            // A queue group of its own name and no other: nobody takes deliveries away.
            format!("{} {listener}", subjects.deliveries()),
            subjects.cancels(),
            format!("_INBOX_{listener}.>"),
        ];
        for verb in ["PING", "INFO", "STATS"] {
            let asked = format!("$SRV.{verb}");
            subscribe.extend([format!("{asked}.{listener}.*"), format!("{asked}.{listener}")]);
            subscribe.push(asked);
        }
        let mut publish = vec![subjects.answers()];
        if mutant("grant-too-much") {
            publish.push(format!("organism.{organism}.re.>"));
        }
        Self { publish, subscribe, answers: true }
    }

    pub fn of_pump(organism: &str, journal: Option<&jetstream::Options>) -> Self {
        let own = |what: &str| format!("organism.{organism}.{what}");
        let mut publish = vec![own("to.*"), own("cancel.*"), own("pump.>")];
        publish.push("$SRV.PING.>".to_owned());
        // What other pumps of this organism ask is answered in their inboxes.
        publish.push("_INBOX.>".to_owned());
        if let Some(journal) = journal {
            for stream in streams(journal) {
                let api = ["STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"];
                publish.extend(api.map(|verb| format!("$JS.API.{verb}.{stream}")));
            }
            publish.push(format!("organism.journal.{}.*", journal.stream));
            publish.push(format!("$KV.{}.*", journal.bucket()));
        }
        let subscribe = vec![own("re.>"), own("pump.>"), "_INBOX.>".to_owned()];
        Self { publish, subscribe, answers: false }
    }

    /// Somebody who looks, and asks a running organism: reads streams, changes none.
    pub fn of_operator(organism: &str, journal: Option<&jetstream::Options>) -> Self {
        let mut publish = vec!["$SRV.>".to_owned(), format!("organism.{organism}.pump.>")];
        if let Some(journal) = journal {
            let read = ["INFO", "STREAM.NAMES", "STREAM.LIST"];
            publish.extend(read.map(|verb| format!("$JS.API.{verb}")));
            for stream in streams(journal) {
                let read = ["STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.NAMES", "CONSUMER.LIST"];
                publish.extend(read.map(|verb| format!("$JS.API.{verb}.{stream}")));
                // Consumers say where a stream's messages are sent, so none are granted.
            }
        }
        let subscribe = vec!["_INBOX_operator.>".to_owned()];
        Self { publish, subscribe, answers: false }
    }
}

/// Of a journal. A wildcard stands for a whole token only, so each is named.
fn streams(journal: &jetstream::Options) -> [String; 2] {
    [journal.stream(), format!("KV_{}", journal.bucket())]
}
