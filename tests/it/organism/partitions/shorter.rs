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

#[test]
fn a_partition_that_cannot_be_repaired_is_named_and_the_others_are_repaired_on_record() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    for partition in [0, 2] {
        let sent = ask_in(&house, partition, 0);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));
    let admin = server.admin();
    admin.delete("ORGANISM-talk-0");
    admin.delete("ORGANISM-talk-2");
    std::fs::remove_dir_all(house.data().join("p2")).unwrap();

    let chosen = house.organism(&["repair", "--partitions", "1,3"]);
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
    assert!(chosen.out.contains("nothing was done"), "{chosen:?}");
    let partly = house.organism(&["repair"]);
    assert_eq!(partly.code, Some(4), "{partly:?}");
    assert!(partly.out.contains("ORGANISM-talk-0"), "{partly:?}");
    assert!(partly.out.contains("published    records 1 to "), "{partly:?}");
    assert!(partly.err.contains("ORGANISM-talk-2 is gone"), "{partly:?}");
    let data = house.data().join("p0");
    let export = ["export", "--format", "jsonl", "--data", data.to_str().unwrap()];
    let exported = house.organism(&export);
    assert_eq!(exported.out.matches("published-from").count(), 1, "{exported:?}");
    let again = house.organism(&["repair", "--partitions", "0", "--json"]);
    assert_eq!((again.code, &again.json()[0]["repaired"]), (Some(0), &json!([])), "{again:?}");
    let beyond = house.organism(&["repair", "--partitions", "4"]);
    assert_eq!(beyond.code, Some(2), "{beyond:?}");
}
