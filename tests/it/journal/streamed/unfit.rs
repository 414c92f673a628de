//! Streams and servers that could lose records are refused, each with the reason.

use std::sync::Arc;
use std::time::Instant;

use organism::journal::{Error, Journal as _, jetstream, sqlite};
use organism::limits;
use serde_json::{Value, json};

use super::Place;
use crate::journal::script::Script;
use crate::nats::{Server, Settings};
use crate::organism::until;

/// The error on opening a stream with this setting; `None` if the server does not know the setting.
fn refused_with(key: &str, value: Value) -> Option<String> {
    let place = Place::new();
    let mut config = json!({
        "name": place.options.stream(),
        "subjects": [place.options.subject()],
        "storage": "file",
        "discard": "new",
        "deny_delete": true,
        "deny_purge": true,
    });
    if key == "mirror" {
        // The content of a mirror depends on the other stream.
        config
            .as_object_mut()
            .unwrap()
            .retain(|key, _| ["name", "storage"].contains(&key.as_str()));
    }
    config[key] = value;
    let create = format!("STREAM.CREATE.{}", place.options.stream());
    let made = place.admin().must(&create, &config);
    made["config"].get(key).or((config[key] == json!(false)).then_some(&Value::Null))?;
    let refused = place.open().unwrap_err();
    assert!(matches!(refused, Error::UnsafeServer { .. }), "{key}: {refused}");
    Some(refused.to_string())
}

#[test]
fn a_stream_that_loses_something_is_refused_by_the_setting() {
    let lossy = [
        ("storage", json!("memory")),
        ("discard", json!("old")),
        ("max_age", json!(3_600_000_000_000_u64)),
        ("max_msgs", json!(1000)),
        ("max_bytes", json!(1 << 20)),
        ("max_msgs_per_subject", json!(5)),
        ("max_msg_size", json!(1000)),
        ("deny_delete", json!(false)),
        ("deny_purge", json!(false)),
        ("retention", json!("interest")),
        ("allow_rollup_hdrs", json!(true)),
        ("no_ack", json!(true)),
        ("subjects", json!(["organism.journal.somebody-else.>"])),
        ("allow_msg_ttl", json!(true)),
        ("mirror", json!({ "name": "elsewhere" })),
        ("sources", json!([{ "name": "elsewhere" }])),
        ("republish", json!({ "src": ">", "dest": "copy.>" })),
    ];
    for (key, value) in lossy {
        let (key, value) = match key {
            // The server accepts these settings only together.
            "allow_rollup_hdrs" => ("deny_purge", json!(false)),
            "subjects" => ("subjects", json!([format!("other.{}", std::process::id())])),
            _ => (key, value),
        };
        let newer = ["allow_msg_ttl"].contains(&key);
        let Some(said) = refused_with(key, value) else {
            assert!(newer, "{key} is not known");
            continue;
        };
        assert!(said.contains(&format!("`{key}`")), "{key}: {said}");
    }
}

#[test]
fn a_stream_with_fewer_replicas_than_configured_is_refused() {
    let mut place = Place::new();
    drop(place.open().unwrap());
    place.options.replicas = 3;
    let refused = place.open().unwrap_err();
    assert!(matches!(refused, Error::UnsafeServer { .. }), "{refused}");
    assert!(refused.to_string().contains("`num_replicas` is 1, not 3"), "{refused}");
}

#[test]
fn a_stream_that_differs_in_what_loses_nothing_is_taken() {
    for (key, value) in [
        ("allow_direct", json!(true)),
        ("description", json!("somebody else's words")),
        ("duplicate_window", json!(60_000_000_000_u64)),
        ("max_consumers", json!(5)),
    ] {
        let place = Place::new();
        let mut config = json!({
            "name": place.options.stream(),
            "subjects": [place.options.subject()],
            "storage": "file",
            "discard": "new",
            "deny_delete": true,
            "deny_purge": true,
        });
        config[key] = value.clone();
        let made =
            place.admin().must(&format!("STREAM.CREATE.{}", place.options.stream()), &config);
        assert_eq!(made["config"][key], value, "{key}");
        let mut journal = place.open().unwrap_or_else(|error| panic!("{key}: {error}"));
        journal.append(&mut [Script::default().boot(1)]).unwrap();
    }
}

/// A server that reports this version and serves nothing else. Returns its address.
fn of_version(version: &'static str) -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("nats://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let info = json!({
                    "server_id": "N", "server_name": "old", "version": version, "proto": 1,
                    "host": "127.0.0.1", "port": 4222, "headers": true, "max_payload": 8 << 20,
                });
                write!(stream, "INFO {info}\r\n").ok();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    if line == "PING" {
                        write!(stream, "PONG\r\n").ok();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn an_old_server_is_refused_and_one_that_may_lose_records_is_reported() {
    use crate::organism::{CONFIG, House};
    for (version, told) in [
        ("2.8.4", "its version is 2.8.4; 2.9 or later is needed"),
        ("2.9.10", "older than 2.10.23"),
        ("2.10.22", "older than 2.10.23"),
        ("2.10.23", "the journal's server is unavailable"),
    ] {
        let address = of_version(version);
        let jetstream = "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"";
        let config = format!("{CONFIG}\n{jetstream}\n\n[nats]\nurl = \"{address}\"\n");
        let refused = House::settled(&config).organism(&["run"]);
        let code = if version == "2.8.4" { 69 } else { 75 };
        assert_eq!(refused.code, Some(code), "{version}: {refused:?}");
        assert!(refused.err.contains(told), "{version}: {refused:?}");
        let is_old = !["2.10.23", "2.8.4"].contains(&version);
        assert_eq!(refused.err.contains("older than"), is_old, "{version}: {refused:?}");
    }
}

#[test]
fn a_server_that_takes_smaller_messages_is_refused() {
    let server =
        Arc::new(Server::start_with(Settings { jetstream: Some(""), more: "max_payload: 512KB" }));
    let refused = Place::on(&server).open().unwrap_err();
    assert!(matches!(refused, Error::UnsafeServer { .. }), "{refused}");
    assert!(refused.to_string().contains("max_payload"), "{refused}");
}

#[test]
fn a_server_without_jetstream_and_a_missing_server_give_different_errors() {
    let server = Arc::new(Server::start_with(Settings::default()));
    let away = Place::on(&server).open().unwrap_err();
    assert!(
        matches!(away, Error::Unavailable { .. }) && away.to_string().contains("JetStream"),
        "{away}"
    );
    let server = Server::start();
    server.kill();
    let nobody = Place::on(&Arc::new(server)).open().unwrap_err();
    assert!(matches!(nobody, Error::Nats(_)), "{nobody}");
}

#[test]
fn a_cluster_without_a_leader_is_unavailable_and_neither_broken_nor_unsafe() {
    // One of three servers, which cannot reach the others.
    let more = "server_name: n0\ncluster { name: test, host: 127.0.0.1, port: -1, routes: [\
                \"nats://127.0.0.1:1\", \"nats://127.0.0.1:2\"] }";
    let server = Arc::new(Server::start_with(Settings { jetstream: Some(""), more }));
    let begun = Instant::now();
    let away = Place::on(&server).open().unwrap_err();
    assert!(matches!(away, Error::Unavailable { .. }), "{away}");
    assert!(begun.elapsed() >= limits::STREAM_OPEN_TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn a_stream_that_is_gone_is_never_silently_begun_anew() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    drop(journal);
    place.admin().delete(&place.options.stream());
    let gone = place.open().unwrap_err();
    assert!(matches!(gone, Error::StreamShorter { .. }), "{gone}");
    assert!(gone.to_string().contains("is gone"), "{gone}");
    let answer = place.admin().ask(&format!("STREAM.INFO.{}", place.options.stream()), &json!({}));
    assert!(answer.get("error").is_some(), "it was made again: {answer}");
}

/// The servers have lost the stream, and the host has lost its projection. A repair cannot bring
/// the records back, and states so. If the host has no notes about the records either, a new
/// journal begins.
#[test]
fn a_repair_without_a_projection_refuses_a_stream_that_is_gone() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    journal.append(&mut [Script::default().boot(1)]).unwrap();
    drop(journal);
    let data = place.data();
    let state = place.state();
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(data.join(name)).ok();
    }
    let servers = place.server().options();
    let repair = || jetstream::repair(&servers, &place.options, &data, &state, None);
    assert_eq!(repair().unwrap(), None, "the stream has every record");

    place.admin().delete(&place.options.stream());
    place.admin().delete(&format!("KV_{}", place.options.bucket()));
    let gone = repair().unwrap_err();
    assert!(matches!(gone, Error::StreamShorter { .. }), "{gone}");
    assert!(gone.to_string().contains("up to record 1"), "{gone}");
    assert!(gone.to_string().contains("A server is down"), "{gone}");

    place.admin().delete(&format!("KV_{}", place.options.bucket()));
    for note in std::fs::read_dir(&state).unwrap() {
        let path = note.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "journal") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(place.open().unwrap().next(), organism::ids::Position(1));
}

#[test]
fn a_stream_that_looks_shorter_for_a_moment_is_waited_for() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    journal.append(&mut [script.boot(1)]).unwrap();
    journal.append(&mut [script.boot(1)]).unwrap();
    drop(journal);
    let (admin, stream, subject) = (place.admin(), place.options.stream(), place.options.subject());
    let bodies: Vec<_> = (1..=4).map(|seq| body(&admin, &stream, seq)).collect();
    let config = admin.info(&stream)["config"].clone();
    admin.delete(&stream);
    admin.must(&format!("STREAM.CREATE.{stream}"), &config);
    bodies[..3].iter().for_each(|body| drop(admin.publish(&subject, body)));
    // A follower that becomes the leader and catches up during the check.
    let leases = format!("KV_{}", place.options.bucket());
    let beats = || admin.info(&leases)["state"]["last_seq"].as_u64().unwrap();
    let before = beats();
    let journal = std::thread::scope(|scope| {
        let opened = scope.spawn(|| place.open());
        let has_begun = || beats() != before || opened.is_finished();
        until("the pump renews its lease", || has_begun().then_some(()));
        admin.publish(&subject, &bodies[3]);
        opened.join().unwrap()
    });
    assert_eq!(journal.unwrap().next(), organism::ids::Position(3));
}

/// Body of a message of a stream.
pub(super) fn body(admin: &crate::nats::Admin, stream: &str, seq: u64) -> String {
    use base64::Engine as _;
    let got = admin.must(&format!("STREAM.MSG.GET.{stream}"), &json!({ "seq": seq }));
    let data = got["message"]["data"].as_str().unwrap().to_owned();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap()
}

#[test]
fn a_directory_of_another_kind_of_journal_or_of_another_stream_is_refused() {
    let place = Place::new();
    let embedded = place.home.open().unwrap();
    drop(embedded);
    let strange = place.open().unwrap_err();
    assert!(matches!(strange, Error::ForeignJournal { .. }), "{strange}");
    let (one, other) = (Place::new(), Place::new());
    drop(one.open().unwrap());
    drop(other.open().unwrap());
    let strange =
        sqlite::SqliteJournal::open(&one.data(), &one.state(), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(strange, Error::ForeignJournal { .. }), "{strange}");
    let mut swapped = one;
    swapped.options = other.options.clone();
    let strange = swapped.open().unwrap_err();
    assert!(matches!(strange, Error::ForeignJournal { .. }), "{strange}");
}
