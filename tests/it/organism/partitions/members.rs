//! Processes that announce themselves to each other.

use std::time::Instant;

use organism::ids::Digest;
use organism::journal::jetstream::{MemberId, ProjectionReport};
use organism::limits;
use organism::nats::connect;
use organism::organism::PartitionedOrganism;
use serde_json::json;

use super::load::loaded;
use super::{host, until};
use crate::nats::Server;

/// A process that has left is no member, so a takeover does not wait for its report.
#[test]
fn a_process_that_left_in_order_is_no_member_from_then_on() {
    let server = Server::start();
    let house = host(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let partitioned = runtime.block_on(PartitionedOrganism::start(loaded(&house), &[0])).unwrap();
    let client = runtime.block_on(connect(&server.options(), "member")).unwrap();
    let member = MemberId::new();
    let announce = |is_leaving: bool| {
        let announcement = json!({
            "id": member, "holder": "process 7 on attic", "config": Digest::ZERO,
            "has": [], "ready": [], "is_moving": false, "is_leaving": is_leaving,
        });
        let announcement = announcement.to_string().into();
        runtime.block_on(client.publish("organism.talk.pump.roll", announcement)).unwrap();
    };
    let is_member = || {
        let subject = "organism.talk.pump.bound.ORGANISM-talk.0";
        let report = runtime.block_on(client.request(subject, "".into())).ok()?;
        let report: ProjectionReport = serde_json::from_slice(&report.payload).unwrap();
        Some(report.members.contains_key(&member))
    };

    let rounds = (0..3).map(|_| {
        until("it is a member", || {
            announce(false);
            (is_member() == Some(true)).then_some(())
        });
        announce(true);
        let left = Instant::now();
        until("it is no member", || (is_member() == Some(false)).then_some(()));
        left.elapsed()
    });
    // The running process announces itself, too, and does not wait for that.
    let fastest = rounds.min().unwrap();
    assert!(fastest < limits::MEMBER_ANNOUNCE_INTERVAL / 2, "{fastest:?}");
    runtime.block_on(partitioned.stop("the test ends")).unwrap();
}
