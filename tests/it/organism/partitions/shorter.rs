//! Servers that lose the end of a partition's stream together with the leases.

use serde_json::json;

use super::{PARTITIONS, Running, ask_in, command, host, run, until};
use crate::nats::Server;

#[test]
fn a_stream_lost_with_its_leases_is_not_made_anew_by_the_other_machine() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1,2,3");
    for partition in 0..PARTITIONS {
        let sent = ask_in(&one, partition, 0);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let admin = server.admin();
    admin.delete("ORGANISM-talk-0");
    admin.delete("KV_ORGANISM-talk-pumps");

    let log = std::fs::File::create(other.path("log")).unwrap();
    let child = command(&other, "0,1,2,3").stderr(log).spawn().unwrap();
    let second = Running { child };
    let holder = format!("the projection of process {}", first.child.id());
    until("the other machine refuses", || {
        let log = other.log();
        (log.contains("is gone, but more was acknowledged") && log.contains(&holder)).then_some(())
    });
    let gone = admin.ask("STREAM.INFO.ORGANISM-talk-0", &json!({}));
    assert!(gone.get("error").is_some(), "it was made anew: {gone}");
    until("the first machine refuses, too", || {
        one.log().contains("stopped pumping the partition").then_some(())
    });
    drop((first, second));

    let repaired = one.organism(&["repair"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains("ORGANISM-talk-0"), "{repaired:?}");
    assert!(!repaired.out.contains("ORGANISM-talk-1"), "{repaired:?}");
    let running = run(&one, "0,1,2,3");
    let sent = ask_in(&one, 0, 1);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
}
