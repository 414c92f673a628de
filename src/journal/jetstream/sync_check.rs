//! Checks whether the servers of a stream sync before they acknowledge. Servers state it only to
//! their system account.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;

use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{self, BlockingClient, NatsRequest};

use super::api::{JetStreamApi, StreamDescription};
use super::{Options, StreamDurability};

/// Subject that every server of a cluster answers individually.
const ASKED: &str = "$SYS.REQ.SERVER.PING.VARZ";

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
    /// Omitted if it is false, or if the server does not know it.
    #[serde(rename = "sync_always", default)]
    sync_always: bool,
}

/// Statements of the servers of the stream.
#[derive(Debug, PartialEq, Eq)]
enum SyncVerdict {
    Proved,
    /// These servers did not answer.
    Open(Vec<String>),
    /// These servers sync later.
    Refuted(Vec<String>),
}

/// Refuses a stream with a server that syncs later than the config states, and warns if the servers
/// prove nothing.
pub fn hold_to_its_word(
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
            "`durability` says that the servers sync before they acknowledge, and nothing proves \
             it: with `system_nkey_file` under [nats] each start asks them; `organism nats-config` \
             writes that key"
        );
        return Ok(());
    };

    let keepers = info.keepers().unwrap_or_else(|| vec![api.link.server_name()]);
    let as_system = nats::Options { credentials: (**system).clone(), ..servers.clone() };
    // Does not wait for servers that are offline.
    let present = info.keepers_present().unwrap_or_else(|| keepers.clone());
    let said = ask(&as_system, &present)?;
    let verdict = match mutant("trust-the-config") {
        true => SyncVerdict::Proved,
        false => judge(&keepers, &said),
    };

    match verdict {
        SyncVerdict::Proved => {
            let names = keepers.join(", ");
            tracing::info!("proved: {names} sync the journal before they acknowledge");
            Ok(())
        }
        SyncVerdict::Open(silent) => {
            tracing::warn!(
                "`durability` says that the servers sync before they acknowledge; that is not \
                 proved of {}, which did not say",
                silent.join(", ")
            );
            Ok(())
        }
        SyncVerdict::Refuted(later) => Err(Error::Unfit {
            server: later.join(", "),
            detail: "`durability` is \"synced\", and it syncs after it acknowledged: write \
                     sync_interval: always into the `jetstream` section of its config and restart \
                     it, or durability = \"lazy\" under [journal]"
                .to_owned(),
        }),
    }
}

/// Asks every server, until all of these have answered or the request times out.
fn ask(servers: &nats::Options, keepers: &[String]) -> Result<BTreeMap<String, bool>, Error> {
    let link = BlockingClient::open(servers, "organism pump, about durability")?;
    let patience = limits::STREAM_TIMEOUT;
    let question =
        NatsRequest { subject: ASKED.to_owned(), headers: None, body: Vec::new(), patience };
    let answers = link.request_from_all(question);
    let (begun, mut said) = (Instant::now(), BTreeMap::new());

    while !keepers.iter().all(|keeper| said.contains_key(keeper)) {
        let left = patience.saturating_sub(begun.elapsed());
        let Ok(answer) = answers.recv_timeout(left) else { break };
        if let Ok(ServerReply { server, data }) = serde_json::from_slice(&answer) {
            said.insert(server.name, data.jetstream.config.sync_always);
        }
    }

    match link.denied(ASKED) {
        Some(denied) if said.is_empty() => Err(Error::Denied(denied)),
        _ => Ok(said),
    }
}

fn judge(keepers: &[String], said: &BTreeMap<String, bool>) -> SyncVerdict {
    let of = |wanted: Option<bool>| -> Vec<String> {
        let fits = |keeper: &&String| said.get(*keeper).copied() == wanted;
        keepers.iter().filter(fits).cloned().collect()
    };

    let (later, silent) = (of(Some(false)), of(None));
    if !later.is_empty() {
        SyncVerdict::Refuted(later)
    } else if !silent.is_empty() {
        SyncVerdict::Open(silent)
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
        let keepers = names(&["a", "b"]);
        let judged = |said: &[(&str, bool)]| {
            let said = said.iter().map(|(name, synced)| ((*name).to_owned(), *synced)).collect();
            judge(&keepers, &said)
        };

        assert_eq!(judged(&[("a", true), ("b", true), ("c", false)]), SyncVerdict::Proved);
        assert_eq!(judged(&[("a", true), ("c", true)]), SyncVerdict::Open(names(&["b"])));
        assert_eq!(judged(&[("a", true), ("b", false)]), SyncVerdict::Refuted(names(&["b"])));
        assert_eq!(judged(&[("a", false)]), SyncVerdict::Refuted(names(&["a"])));
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
