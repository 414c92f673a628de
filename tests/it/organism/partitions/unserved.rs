//! A partition is released if its new owner cannot serve requests.

use organism::organism::{PartitionStatus, PartitionedOrganism};
use serde_json::json;

use super::load::loaded;
use super::{ask_in, host, run, until};
use crate::nats::{DenyingServer, Server, Settings};

/// The stored lease on partition 0, with the acknowledged position. A released lease has no holder.
fn lease(server: &Server) -> String {
    use base64::Engine as _;
    let last = json!({"last_by_subj": "$KV.ORGANISM-talk-pumps.0"});
    let found = server.admin().must("STREAM.MSG.GET.KV_ORGANISM-talk-pumps", &last);
    let held = found["message"]["data"].as_str().unwrap_or_default();
    let held = base64::engine::general_purpose::STANDARD.decode(held).unwrap();
    String::from_utf8(held).unwrap()
}

#[test]
fn a_partition_whose_requests_cannot_be_served_is_drained_and_its_lease_released() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let mut config = loaded(&one);
    // A server with an invalid subject, while all else works as usual.
    config.name = "no subject".to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let partitioned = runtime.block_on(PartitionedOrganism::start(config, &[0])).unwrap();
    until("it is given up", || {
        assert_ne!(partitioned.statuses()[0], PartitionStatus::Here);
        partitioned.has_ended().then_some(())
    });
    let PartitionStatus::Broken(why) = partitioned.statuses().swap_remove(0) else {
        panic!("{:?}", partitioned.statuses());
    };
    assert!(why.contains("subject"), "{why}");
    // The worker releases it, and not the end of the process.
    let left = lease(&server);
    assert!(left.contains("acknowledged"), "{left}");
    assert!(!left.contains("holder"), "{left}");
    assert_eq!(runtime.block_on(partitioned.join()).unwrap_err().to_string(), why);
    drop(runtime);
    let running = run(&other, "0,1,2,3");
    assert_eq!(ask_in(&other, 0, 0).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let left = other.organism(&["export", "--format", "jsonl"]).out;
    assert!(left.contains("no client can be answered over NATS"), "{left}");
}

/// NATS denies all JetStream requests to this pump. Its partition is then not ready, and the
/// problem names the missing permission.
#[test]
fn a_partition_whose_journal_is_denied_is_not_ready_and_names_the_permission() {
    let more = "authorization { users: [{ user: a, password: a, permissions: {\n\
                publish: { allow: [\"organism.>\", \"_INBOX.>\", \"$SRV.>\"] }\n\
                subscribe: { allow: [\"organism.>\", \"_INBOX.>\"] }\n\
                } }] }\n\
                no_auth_user: a";
    let server = Server::start_with(Settings { jetstream: Some(""), more });
    let house = host(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let starting = PartitionedOrganism::start(loaded(&house), &[0]);
    let partitioned = runtime.block_on(starting).unwrap();
    until("its journal is denied", || {
        let is_waiting = matches!(partitioned.statuses()[0], PartitionStatus::Waiting { .. });
        is_waiting.then_some(())
    });

    let problems = partitioned.health().problems();
    let found: Vec<_> = problems.iter().map(|found| (found.what, found.partition)).collect();
    assert_eq!(found, [("journal-server", Some(0))]);
    assert!(problems[0].why.contains("permission is missing"), "{problems:?}");
    runtime.block_on(partitioned.stop("the test ends")).unwrap();
}

#[test]
fn a_pump_denied_its_requests_does_not_start_and_one_that_loses_the_right_waits_for_it() {
    let requests = "organism.talk.pump.>";
    let rights = DenyingServer::start(Some(""), requests);
    let house = host(&rights.server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = || runtime.block_on(PartitionedOrganism::start(loaded(&house), &[0]));
    let refused = start().err().unwrap().to_string();
    assert!(refused.contains("subscribe to `organism.talk.pump.0`"), "{refused}");

    rights.deny("of.no.use");
    let partitioned = start().unwrap();
    let problems = || partitioned.health().problems();
    until("it pumps", || (partitioned.statuses()[0] == PartitionStatus::Here).then_some(()));
    until("it is ready", || problems().is_empty().then_some(()));

    rights.deny(requests);
    let is_denied = || problems().into_iter().find(|problem| problem.what == "nats");
    let denied = until("it is not ready", is_denied);
    assert_eq!(denied.partition, Some(0));
    assert!(denied.why.contains("subscribe to `organism.talk.pump.0`;"), "{denied:?}");

    rights.deny("of.no.use");
    until("it is ready again", || problems().is_empty().then_some(()));
    runtime.block_on(partitioned.stop("the test ends")).unwrap();
}
