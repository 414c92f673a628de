//! `durability = "synced"`: the sync settings that servers report, and the error messages about
//! these settings.

use super::super::{House, Running, numbered, say, talk_reply, until};
use super::lacking::refused;
use super::tls::{Echo, Solo, Way, ask, port};
use super::{CONFIG, Guarded, guarded, guarded_with};
use crate::bus::kit_language::KitLanguage;
use crate::nats::Server;
use organism::nats::NatsCredentials;

/// Sets `durability = "synced"`. `asks` names the key with which the servers are queried.
fn synced(guarded: &Guarded, asks: &str) {
    let config = CONFIG.replace("ADDRESS", &guarded.server.address());
    let nats = format!("nkey_file = \"nats/pump.nk\"\n{asks}");
    let config = config.replace("NKEY", &nats).replace("\"lazy\"", "\"synced\"");
    guarded.house.write("organism.toml", config);
}

const ASKS: &str = "system_nkey_file = \"nats/system.nk\"";

/// Starts the organism with a complete log.
fn run(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_LOG", "info");
    house.run_with(command)
}

/// The warning of a journal whose servers sync at intervals.
const LAZY: &str = "the journal is durable as the server syncs it, by default every two minutes: if the \
                    machine of the server loses its power";

#[test]
fn each_start_on_a_lazy_journal_warns_of_what_it_may_lose() {
    let guarded = guarded();
    let house = &guarded.house;
    for _ in 0..2 {
        assert_eq!(run(house).stop(), Some(0), "{}", house.log());
        assert_eq!(house.log().matches(LAZY).count(), 1, "{}", house.log());
    }
}

#[test]
fn servers_that_sync_are_taken_by_their_own_word_and_without_it_nothing_is_claimed() {
    let guarded = guarded();
    let house = &guarded.house;
    for (asks, told) in [
        (ASKS, "verified: test sync the journal before they acknowledge"),
        ("", "this host cannot verify that the servers sync"),
    ] {
        synced(&guarded, asks);
        let running = run(house);
        assert_eq!(running.stop(), Some(0));
        let log = house.log();
        assert!(log.contains(told), "{log}");
        assert_eq!(log.contains("cannot verify"), asks.is_empty(), "{log}");
        assert!(!log.contains("did not state"), "{log}");
        assert!(!log.contains(LAZY), "{log}");
    }
    // A key without the permission to query, and an unknown key.
    std::fs::copy(guarded.seed("operator"), guarded.seed("system")).unwrap();
    synced(&guarded, ASKS);
    let (code, told) = refused(house);
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("nats/system.nk"), "{told}");
}

#[test]
fn servers_that_sync_later_than_the_config_says_are_refused_by_name() {
    let guarded = guarded_with("sync_interval: 10s");
    synced(&guarded, ASKS);
    let (code, told) = refused(&guarded.house);
    assert_eq!(code, Some(69), "{told}");
    let (_, last) = told.rsplit_once("organism: ").unwrap();
    assert!(last.starts_with("no journal can be kept on test: "), "{last}");
    assert!(last.contains("sync_interval: always") && last.contains("\"lazy\""), "{last}");
}

#[test]
fn a_written_cluster_config_runs_and_each_server_is_checked() {
    let (port, routes) = (port().to_string(), port().to_string());
    let hosts = ["a=127.0.0.1", "b=127.0.0.2", "c=127.0.0.3"];
    let address = format!("nats://127.0.0.1:{port}");
    let first = CONFIG.replace("ADDRESS", &address).replace("NKEY", "");
    let house = House::settled(&first);
    let nodes: Vec<_> = hosts.iter().flat_map(|node| ["--node", node]).collect();
    let ports = ["--port", &port, "--cluster-port", &routes, "--store", "STORE"];
    let made = house.organism(&[&["nats-config"], &nodes[..], &ports].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let server = |name: &str| {
        let path = house.path(&format!("nats/server-{name}.conf"));
        // The hosts share no files.
        let store = house.path(&format!("store-{name}")).display().to_string();
        let text = std::fs::read_to_string(&path).unwrap().replace("STORE", &store);
        std::fs::write(&path, text).unwrap();
        Server::written(&path)
    };
    let _servers = ["a", "b", "c"].map(server);
    let nats = format!("nkey_file = \"nats/pump.nk\"\n{ASKS}");
    let config = CONFIG.replace("ADDRESS", &address).replace("NKEY", &nats);
    let config = config.replace("replicas = 1", "replicas = 3").replace("\"lazy\"", "\"synced\"");
    house.write("organism.toml", config);
    // A new cluster takes a moment to elect a leader.
    until("it has a leader", || {
        let told = house.send_text(&say("first"), &["--no-wait", "--key", "first"]);
        assert!(matches!(told.code, Some(0 | 69 | 75)), "{told:?}");
        (told.code == Some(0)).then_some(())
    });
    let way = |listener: &str| Way {
        address: address.clone(),
        credentials: NatsCredentials::Nkey(house.path(&format!("nats/listener-{listener}.nk"))),
        ca: None,
    };
    let (_echo, _solo) =
        (Echo::start(&way("echo")), Solo::start(KitLanguage::Python, &house, &way("solo")));
    let running = run(&house);
    let log = house.log();
    let (_, proved) = log.split_once("verified: ").unwrap_or_else(|| panic!("{log}"));
    let (names, _) = proved.split_once(" sync the journal").unwrap();
    let mut names: Vec<_> = names.split(", ").collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(ask(&house, &say("hello"), "1"), talk_reply("hello"));
    assert_eq!(ask(&house, &numbered("ping", "7"), "2"), numbered("pong", "7") + "\n");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
