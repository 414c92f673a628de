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
    /// Section with the settings of JetStream. A server omits it while JetStream does not run
    /// there, for example because the server has shut down JetStream after its disk became full.
    #[serde(rename = "config", default)]
    config: Option<Config>,
}

#[derive(Debug, Deserialize)]
struct Config {
    /// Whether the server syncs messages before it acknowledges them. A server omits this key if
    /// the value is false, or if the server does not have this setting.
    #[serde(rename = "sync_always", default)]
    sync_always: bool,
}

/// The sync setting that a server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedSync {
    BeforeAcknowledgement,
    AfterAcknowledgement,
    /// JetStream does not run on the server, so the server acknowledges nothing now, and reports no
    /// setting.
    NoJetStream,
}

impl ServerSettings {
    fn sync(&self) -> ReportedSync {
        match &self.jetstream.config {
            None => ReportedSync::NoJetStream,
            Some(config) if config.sync_always => ReportedSync::BeforeAcknowledgement,
            Some(_) => ReportedSync::AfterAcknowledgement,
        }
    }
}

/// Whether all servers of the stream sync messages before they acknowledge them.
#[derive(Debug, PartialEq, Eq)]
enum SyncVerdict {
    Proved,
    /// Some servers did not state the setting.
    Unproved {
        /// Servers that did not answer.
        silent: Vec<String>,
        /// Servers on which JetStream does not run.
        inactive: Vec<String>,
    },
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
    let sync_by_server = ask(&as_system, &present)?;
    let verdict = if mutant("trust-the-config") {
        SyncVerdict::Proved
    } else {
        judge(&replicas, &sync_by_server)
    };

    match verdict {
        SyncVerdict::Proved => {
            let names = replicas.join(", ");
            tracing::info!("verified: {names} sync the journal before they acknowledge");
            Ok(())
        }
        SyncVerdict::Unproved { silent, inactive } => {
            if !silent.is_empty() {
                tracing::warn!(
                    "`durability` is \"synced\", but these servers did not state whether they sync \
                     before they acknowledge: {}",
                    silent.join(", ")
                );
            }
            if !inactive.is_empty() {
                tracing::warn!(
                    "JetStream does not run on these servers of the stream, maybe because a disk \
                     is full, so they do not state whether they sync before they acknowledge: {}. \
                     Make room there, and restart them",
                    inactive.join(", ")
                );
            }
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
fn ask(
    servers: &nats::Options,
    replicas: &[String],
) -> Result<BTreeMap<String, ReportedSync>, Error> {
    let link = BlockingClient::open(servers, "organism pump, about durability")?;
    let patience = limits::STREAM_TIMEOUT;
    let question =
        NatsRequest { subject: VARZ_SUBJECT.to_owned(), headers: None, body: Vec::new(), patience };
    let answers = link.request_from_all(question);
    let begun = Instant::now();
    let mut sync_by_server = BTreeMap::new();

    while !replicas.iter().all(|replica| sync_by_server.contains_key(replica)) {
        let left = patience.saturating_sub(begun.elapsed());
        let Ok(answer) = answers.recv_timeout(left) else { break };
        if let Ok(ServerReply { server, data }) = serde_json::from_slice(&answer) {
            sync_by_server.insert(server.name, data.sync());
        }
    }

    match link.denied(VARZ_SUBJECT) {
        Some(denied) if sync_by_server.is_empty() => Err(Error::Denied(denied)),
        _ => Ok(sync_by_server),
    }
}

fn judge(replicas: &[String], sync_by_server: &BTreeMap<String, ReportedSync>) -> SyncVerdict {
    let replicas_with = |wanted: Option<ReportedSync>| -> Vec<String> {
        let fits = |replica: &&String| sync_by_server.get(*replica).copied() == wanted;
        replicas.iter().filter(fits).cloned().collect()
    };

    let later = replicas_with(Some(ReportedSync::AfterAcknowledgement));
    let silent = replicas_with(None);
    let inactive = replicas_with(Some(ReportedSync::NoJetStream));
    if !later.is_empty() {
        SyncVerdict::Refuted(later)
    } else if !silent.is_empty() || !inactive.is_empty() {
        SyncVerdict::Unproved { silent, inactive }
    } else {
        SyncVerdict::Proved
    }
}

#[cfg(test)]
mod tests {
    use super::ReportedSync::{AfterAcknowledgement, BeforeAcknowledgement, NoJetStream};
    use super::*;

    #[test]
    fn durability_is_proved_if_every_server_of_the_stream_states_that_it_syncs_first() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let replicas = names(&["a", "b"]);
        let verdict_of = |reported: &[(&str, ReportedSync)]| {
            let reported = reported.iter().map(|(name, sync)| ((*name).to_owned(), *sync));
            judge(&replicas, &reported.collect())
        };
        let before = BeforeAcknowledgement;
        let after = AfterAcknowledgement;
        let unproved = |silent: &[&str], inactive: &[&str]| SyncVerdict::Unproved {
            silent: names(silent),
            inactive: names(inactive),
        };

        assert_eq!(verdict_of(&[("a", before), ("b", before), ("c", after)]), SyncVerdict::Proved);
        assert_eq!(verdict_of(&[("a", before), ("c", before)]), unproved(&["b"], &[]));
        assert_eq!(verdict_of(&[("a", before), ("b", NoJetStream)]), unproved(&[], &["b"]));
        assert_eq!(verdict_of(&[("b", NoJetStream)]), unproved(&["a"], &["b"]));
        let refuted = SyncVerdict::Refuted(names(&["b"]));
        assert_eq!(verdict_of(&[("a", before), ("b", after)]), refuted);
        assert_eq!(verdict_of(&[("a", NoJetStream), ("b", after)]), refuted);
        assert_eq!(verdict_of(&[("a", after)]), SyncVerdict::Refuted(names(&["a"])));
    }

    #[test]
    fn a_server_with_jetstream_syncs_later_unless_it_states_the_opposite() {
        for (data, sync) in [
            (r#"{"jetstream":{"config":{"sync_always":true}}}"#, BeforeAcknowledgement),
            (r#"{"jetstream":{"config":{"sync_interval":1}}}"#, AfterAcknowledgement),
            // As a server answers after its disk became full.
            (r#"{"jetstream":{}}"#, NoJetStream),
            ("{}", NoJetStream),
        ] {
            let text = format!(r#"{{"server":{{"name":"a"}},"data":{data}}}"#);
            let reply = serde_json::from_str::<ServerReply>(&text).unwrap();
            assert_eq!(reply.data.sync(), sync, "{data}");
        }
    }
}
