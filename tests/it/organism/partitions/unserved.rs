//! A partition is released if its new owner cannot serve requests.

use organism::organism::{PartitionStatus, PartitionedOrganism};
use serde_json::json;

use super::load::loaded;
use super::{ask_in, host, run, until};
use crate::nats::Server;

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
    assert!(left.contains("nobody can be answered over NATS"), "{left}");
}
