//! Clients and operators prove their identity over NATS, because no host can see their processes.

use std::os::unix::fs::PermissionsExt as _;

use organism::service::handshake::Handshake;
use organism::service::{
    BearerSecret, ResultsRequest, ServiceClient, ServiceRequest, ServiceResponse, SocketTransport,
};
use serde_json::{Value as Json, json};

use super::load::loaded;
use super::*;
use crate::organism::operator_keys::write_operator_key;

const SECRET: &str = "ZGVzay1zZWNyZXQtb2YtdGhlLXRlc3Rz";
const OTHER_SECRET: &str = "b3RoZXItc2VjcmV0LW9mLW5vLWNsaWVudA";

/// A host whose client `desk` has a secret. `more` is added to its config.
fn host_with_secret(server: &Server, more: &str) -> House {
    let secret = "[clients.desk]\nsecret_env = \"DESK_SECRET\"\n";
    let config = config(server, PARTITIONS).replace("[clients.desk]\n", secret);
    House::settled(&format!("{config}\n{more}\n"))
}

fn run_with_secret(house: &House, partitions: &str) -> Running {
    let mut command = command(house, partitions);
    command.env("DESK_SECRET", SECRET);
    house.run_with(command)
}

/// Verifies the journal of each host.
fn verified(hosts: &[House]) {
    for house in hosts {
        let verified = house.organism(&["verify", "--stream"]);
        assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    }
}

/// Sends a ping into a new thread of this partition, with the secret in the environment.
fn send(house: &House, secret: Option<&str>, partition: u32, number: u32) -> CommandOutput {
    house.write("ping.xml", numbered("ping", "1"));
    let thread = root(partition, number);
    let mut command = house.command(&["send", "ping.xml", "--as", "desk", "--new", &thread]);
    if let Some(secret) = secret {
        command.env("DESK_SECRET", secret);
    }
    command.output().unwrap().into()
}

#[test]
fn over_nats_a_client_with_a_secret_needs_it() {
    let server = Server::start();
    let hosts = [host_with_secret(&server, ""), host_with_secret(&server, "")];
    let running = [run_with_secret(&hosts[0], "0,1"), run_with_secret(&hosts[1], "2,3")];
    let outside = host_with_secret(&server, "");
    for secret in [None, Some(OTHER_SECRET)] {
        let refused = send(&outside, secret, 0, 0);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.contains("unknown-caller"), "{refused:?}");
        let names_key = "set secret_env or secret_file of [clients.desk]";
        assert!(refused.err.contains(names_key), "{refused:?}");
    }
    let sent = send(&outside, Some(SECRET), 0, 0);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    // A host that sees the process proves its identity, also if another host has the partition.
    for partition in [0, 2] {
        let vouched = send(&hosts[0], None, partition, 1);
        assert_eq!(vouched.code, Some(0), "{vouched:?}");
    }

    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
    let exported = hosts[0].organism(&["export", "--format", "jsonl"]).json();
    let refused = exported.iter().filter(|line| line["rule"] == "unknown-caller");
    let senders: Vec<_> = refused.map(|line| line["sender"].as_str().unwrap()).collect();
    assert_eq!(senders, ["unknown-caller"; 2]);
    for house in &hosts {
        assert!(!house.log().contains(SECRET));
    }
    verified(&hosts);
}

/// Requests the results of a submission to partition 0 in the name of `client`. `receipt` is the
/// receipt of the submission. The request goes to the organism of `house`, or over NATS if none
/// runs. Returns the last response.
fn results(house: &House, receipt: &Json, client: Option<&str>, secret: Option<&str>) -> String {
    let secret: Option<BearerSecret> = serde_json::from_value(json!(secret)).unwrap();
    let request = ServiceRequest::AwaitResults(ResultsRequest {
        thread: serde_json::from_value(receipt["thread"].clone()).unwrap(),
        calls: serde_json::from_value(receipt["calls"].clone()).unwrap(),
        client: serde_json::from_value(json!(client)).unwrap(),
        secret,
    });
    let socket =
        SocketTransport::new(&house.data(), Handshake::of_path(&house.path("organism.toml")));
    let client = ServiceClient::of_partitions(loaded(house), socket);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut last = None;
    let attempt = client.attempt(0, &request, |response| last = Some(response));
    runtime.block_on(attempt).unwrap();
    match last.unwrap() {
        ServiceResponse::Failed(refused) => refused,
        other => serde_json::to_string(&other).unwrap(),
    }
}

#[test]
fn over_nats_a_client_with_a_secret_needs_it_for_results_of_earlier_submissions() {
    let server = Server::start();
    let plain = "[clients.plain]\npeers = [\"solo\"]\n";
    let host = host_with_secret(&server, plain);
    let running = run_with_secret(&host, "0,2,3");
    let outside = host_with_secret(&server, plain);
    host.write("ping.xml", numbered("ping", "1"));
    let receipt = |client: &str, number: u32| {
        let thread = root(0, number);
        let sent = host.organism(&["send", "ping.xml", "--as", client, "--new", &thread, "--json"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        sent.json().remove(0)
    };
    let of_desk = receipt("desk", 0);
    let of_plain = receipt("plain", 1);

    for (client, secret, expected) in [
        (Some("desk"), None, "set secret_env or secret_file of [clients.desk]"),
        (Some("desk"), Some(OTHER_SECRET), "set secret_env or secret_file of [clients.desk]"),
        (None, None, "has to name the client"),
        (None, Some(SECRET), "has to name the client"),
        (Some("plain"), None, "the client `plain` has no thread"),
    ] {
        let refused = results(&outside, &of_desk, client, secret);
        assert!(refused.contains(expected), "{client:?}, {secret:?}: {refused}");
        assert!(!refused.contains("pong"), "{client:?}, {secret:?}: {refused}");
    }
    let own = results(&outside, &of_desk, Some("desk"), Some(SECRET));
    assert!(own.contains("pong"), "{own}");
    let own = results(&outside, &of_plain, Some("plain"), None);
    assert!(own.contains("pong"), "{own}");

    // A host that sees the process adds the secret for the pump of another host.
    let between = host_with_secret(&server, plain);
    let without_pump = run_with_secret(&between, "1");
    let vouched = results(&between, &of_desk, Some("desk"), None);
    assert!(vouched.contains("pong"), "{vouched}");
    assert_eq!(without_pump.stop(), Some(0));
    assert_eq!(running.stop(), Some(0));
    verified(&[host]);
}

#[test]
fn over_nats_a_decision_needs_the_signature_of_an_operator() {
    let server = Server::start();
    let outside = host_with_secret(&server, "");
    outside.write("passphrase", "correct horse battery\n");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(outside.path("passphrase"), private).unwrap();
    let signs = |arguments: &[&str]| -> CommandOutput {
        let mut command = outside.command(arguments);
        command.env("ORGANISM_PASSPHRASE_FILE", outside.path("passphrase"));
        command.output().unwrap().into()
    };
    let key = write_operator_key(&outside.path("ana.key"), "correct horse battery");
    let operators = format!("[operators.ana]\nkey = \"{key}\"");
    let own = std::fs::read_to_string(outside.path("organism.toml")).unwrap();
    outside.write("organism.toml", format!("{own}\n{operators}\n"));

    let hosts = [host_with_secret(&server, &operators), host_with_secret(&server, &operators)];
    let running = [run_with_secret(&hosts[0], "0,1"), run_with_secret(&hosts[1], "2,3")];
    for partition in [1, 2] {
        let thread = root(partition, 0);
        let sent = hosts[0].send_text(&say("hello"), &["--new", &thread, "--no-wait"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        let pumping = &hosts[usize::from(partition == 2)];
        let held = pumping.organism(&["approvals", "--json"]).json();
        let held = held.iter().find(|call| call["thread"] == *thread).unwrap().clone();
        let (message, hash) = (held["message"].as_str().unwrap(), held["sha256"].as_str().unwrap());

        let approve = ["approve", message, "--hash", hash];
        for (house, from) in [(&outside, "NATS"), (&hosts[0], "a socket")] {
            let unsigned = house.organism(&approve);
            assert_eq!(unsigned.code, Some(65), "over {from}: {unsigned:?}");
            assert!(unsigned.err.contains("not-signed"), "over {from}: {unsigned:?}");
        }
        let other = root(partition, 1);
        let sent = hosts[0].send_text(&say("goodbye"), &["--new", &other, "--no-wait"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        let cancelled = outside.organism(&["cancel", &other]);
        assert_eq!(cancelled.code, Some(65), "{cancelled:?}");
        let signed = signs(&[&approve[..], &["--sign", "ana.key"]].concat());
        assert_eq!(signed.code, Some(0), "{signed:?}");
        let second = signs(&[&approve[..], &["--sign", "ana.key"]].concat());
        assert_eq!(second.code, Some(65), "{second:?}");
        assert!(second.err.contains("not-waiting"), "{second:?}");
        let cancelled = signs(&["cancel", &other, "--sign", "ana.key"]);
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
        let shown = [&thread, &other].map(|thread| pumping.organism(&["thread", thread]).out);
        let shown = shown.concat();
        assert!(shown.contains("approve by ana: "), "{shown}");
        assert!(shown.contains("cancel by ana: "), "{shown}");
        assert_eq!(shown.matches("signed by ana").count(), 2, "{shown}");
        assert_eq!(shown.matches("the signature is valid").count(), 2, "{shown}");
    }
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
    // The partition of a call that is over is unknown, so the first partition refuses a second
    // decision.
    let query = "SELECT person, signed, accepted FROM action WHERE action = 'approve' AND signed";
    let decided = |accepted: u32| json!({ "person": "ana", "signed": 1, "accepted": accepted });
    for (house, partition, expected) in [
        (&hosts[0], "0", vec![decided(0), decided(0)]),
        (&hosts[0], "1", vec![decided(1)]),
        (&hosts[1], "2", vec![decided(1)]),
    ] {
        let rows = house.organism(&["sql", query, "--json", "--partition", partition]).json();
        assert_eq!(rows, expected, "partition {partition}");
    }
    verified(&hosts);
}
