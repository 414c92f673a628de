//! Checks whether the servers of a stream sync messages to disk before they acknowledge them.
//! Servers report this setting only to their system account.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;

use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{self, BlockingClient, NatsRequest};

use super::api::{JetStreamApi, StreamDescription};
use super::{Options, StreamDurability};

/// NATS subject to which every server of a cluster responds individually.
const VARZ_SUBJECT: &str = "$SYS.REQ.SERVER.PING.VARZ";

#[derive(Debug, Deserialize)]
struct ServerReply {
    #[serde(rename = "server")]
    server: ServerSection,
    #[serde(rename = "data")]
    data: ServerSettings,
}

#[derive(Debug, Deserialize)]
struct ServerSection {
    #[serde(rename = "name")]
    name: String,
}

#[derive(Debug, Deserialize)]
struct ServerSettings {
    #[serde(rename = "jetstream", default)]
    jetstream: JetStream,
}

#[derive(Debug, Default, Deserialize)]
struct JetStream {
    #[serde(rename = "config", default)]
    config: Config,
}

#[derive(Debug, Default, Deserialize)]
struct Config {
    /// Whether the server syncs messages before it acknowledges them. A server omits this key if
    /// the value is false, or if the server does not have this setting.
    #[serde(rename = "sync_always", default)]
    sync_always: bool,
}

/// Whether all servers of the stream sync messages before they acknowledge them.
#[derive(Debug, PartialEq, Eq)]
enum SyncVerdict {
    Proved,
    /// The named servers did not answer.
    Unanswered(Vec<String>),
    /// The named servers acknowledge messages before they sync them.
    Refuted(Vec<String>),
}

/// Refuses a stream if a server acknowledges messages before it syncs them, although the config
/// states the opposite. Warns if a server does not report how it syncs.
pub fn verify_durability(
    servers: &nats::Options,
    options: &Options,
    api: &JetStreamApi,
    info: &StreamDescription,
) -> Result<(), Error> {
    if options.durability != StreamDurability::Synced {
        return Ok(());
    }

    let Some(system) = &options.system else {
        tracing::warn!(
            "`durability` is \"synced\", but this host cannot verify that the servers sync before \
             they acknowledge: set `system_nkey_file` under [nats]; `organism nats-config` writes \
             that key"
        );
        return Ok(());
    };

    let replicas = info.replica_names().unwrap_or_else(|| vec![api.link.server_name()]);
    let as_system = nats::Options { credentials: (**system).clone(), ..servers.clone() };
    // Does not wait for servers that are offline.
    let present = info.online_replica_names().unwrap_or_else(|| replicas.clone());
    let synced_by_server = ask(&as_system, &present)?;
    let verdict = if mutant("trust-the-config") {
        SyncVerdict::Proved
    } else {
        judge(&replicas, &synced_by_server)
    };

    match verdict {
        SyncVerdict::Proved => {
            let names = replicas.join(", ");
            tracing::info!("verified: {names} sync the journal before they acknowledge");
            Ok(())
        }
        SyncVerdict::Unanswered(silent) => {
            tracing::warn!(
                "`durability` is \"synced\", but these servers did not state whether they sync \
                 before they acknowledge: {}",
                silent.join(", ")
            );
            Ok(())
        }
        SyncVerdict::Refuted(later) => Err(Error::UnsafeServer {
            server: later.join(", "),
            detail: "`durability` is \"synced\", and it syncs after it acknowledged: write \
                     sync_interval: always into the `jetstream` section of its config and restart \
                     it, or durability = \"lazy\" under [journal]"
                .to_owned(),
        }),
    }
}

/// Queries whether the servers sync messages before they acknowledge them, and returns the answers
/// by server name. Waits until all `replicas` have answered or the request times out.
fn ask(servers: &nats::Options, replicas: &[String]) -> Result<BTreeMap<String, bool>, Error> {
    let link = BlockingClient::open(servers, "organism pump, about durability")?;
    let patience = limits::STREAM_TIMEOUT;
    let question =
        NatsRequest { subject: VARZ_SUBJECT.to_owned(), headers: None, body: Vec::new(), patience };
    let answers = link.request_from_all(question);
    let begun = Instant::now();
    let mut synced_by_server = BTreeMap::new();

    while !replicas.iter().all(|replica| synced_by_server.contains_key(replica)) {
        let left = patience.saturating_sub(begun.elapsed());
        let Ok(answer) = answers.recv_timeout(left) else { break };
        if let Ok(ServerReply { server, data }) = serde_json::from_slice(&answer) {
            synced_by_server.insert(server.name, data.jetstream.config.sync_always);
        }
    }

    match link.denied(VARZ_SUBJECT) {
        Some(denied) if synced_by_server.is_empty() => Err(Error::Denied(denied)),
        _ => Ok(synced_by_server),
    }
}

fn judge(replicas: &[String], synced_by_server: &BTreeMap<String, bool>) -> SyncVerdict {
    let replicas_with = |wanted: Option<bool>| -> Vec<String> {
        let fits = |replica: &&String| synced_by_server.get(*replica).copied() == wanted;
        replicas.iter().filter(fits).cloned().collect()
    };

    let later = replicas_with(Some(false));
    let silent = replicas_with(None);
    if !later.is_empty() {
        SyncVerdict::Refuted(later)
    } else if !silent.is_empty() {
        SyncVerdict::Unanswered(silent)
    } else {
        SyncVerdict::Proved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_proved_when_every_server_that_keeps_the_stream_says_so() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let replicas = names(&["a", "b"]);
        let verdict_of = |synced_by_server: &[(&str, bool)]| {
            let synced_by_server = synced_by_server
                .iter()
                .map(|(name, synced)| ((*name).to_owned(), *synced))
                .collect();
            judge(&replicas, &synced_by_server)
        };

        assert_eq!(verdict_of(&[("a", true), ("b", true), ("c", false)]), SyncVerdict::Proved);
        assert_eq!(verdict_of(&[("a", true), ("c", true)]), SyncVerdict::Unanswered(names(&["b"])));
        assert_eq!(verdict_of(&[("a", true), ("b", false)]), SyncVerdict::Refuted(names(&["b"])));
        assert_eq!(verdict_of(&[("a", false)]), SyncVerdict::Refuted(names(&["a"])));
    }

    #[test]
    fn a_server_that_does_not_say_it_syncs_does_not() {
        let read = |text: &str| serde_json::from_str::<ServerReply>(text).unwrap();
        for (config, synced) in
            [(r#"{"sync_always":true}"#, true), (r#"{"sync_interval":1}"#, false)]
        {
            let text = format!(
                r#"{{"server":{{"name":"a"}},"data":{{"jetstream":{{"config":{config}}}}}}}"#
            );
            assert_eq!(read(&text).data.jetstream.config.sync_always, synced);
        }

        assert!(!read(r#"{"server":{"name":"a"},"data":{}}"#).data.jetstream.config.sync_always);
    }
}
