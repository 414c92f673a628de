//! A start on JetStream that continues from a snapshot of its projection.

use std::path::PathBuf;

use organism::journal::sqlite::DATABASE;

use super::super::snapshots::{
    CONTINUES, decide, ended_run, file, killed_after_a_snapshot, run, snapshot,
};
use super::super::{House, numbered, say, talk_reply, until};
use super::shorter::answer;
use super::{host, stream};
use crate::nats::{Server, shared};

/// Asserts that the answer to a repeated key comes from the record.
fn remembers(house: &House) {
    assert_eq!(house.send_text(&say("one"), &["--key", "k-1"]).out, talk_reply("one"));
    assert_eq!(house.recorded("say"), 1);
}

/// Deletes the projection.
fn forget_projection(data: &std::path::Path) {
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(data.join(format!("{DATABASE}{end}"))).ok();
    }
}

#[test]
fn a_start_on_a_stream_continues_from_a_snapshot_of_its_projection() {
    let house = host(shared(), &stream("snapshot"));
    killed_after_a_snapshot(&house);

    let running = run(&house, None);
    assert!(house.log().contains(CONTINUES), "{}", house.log());
    remembers(&house);
    house.write("let-go", "");
    until("the open call goes on", || (house.recorded("held") == 1).then_some(()));
    let held = house.send_text(&numbered("hold", "7"), &["--key", "k-7"]);
    assert_eq!(held.out, numbered("held", "7") + "\n", "{held:?}");
    assert_eq!(house.recorded("hold"), 2, "a repeated key opens no call");
    until("the rest is proved", || house.log().contains("are proved").then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

#[test]
fn a_snapshot_that_its_projection_does_not_cover_is_ignored_and_the_stream_is_read() {
    let flip = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    type Damage<'d> = &'d dyn Fn(&House);
    let damages: [(&str, Damage<'_>); 3] = [
        ("a flipped bit", &|house| flip(file(house, "snapshot.json").unwrap())),
        ("a lost database", &|house| {
            std::fs::remove_file(file(house, ".state.db").unwrap()).unwrap()
        }),
        ("a lost projection", &|house| forget_projection(&house.data())),
    ];

    for (number, (what, damage)) in damages.into_iter().enumerate() {
        let house = host(shared(), &stream(&format!("ignored-{number}")));
        killed_after_a_snapshot(&house);
        damage(&house);
        let running = house.run();
        let log = house.log();
        assert!(log.contains("is ignored, and every record is read"), "{what}: {log}");
        remembers(&house);
        assert_eq!(snapshot(&house), None, "{what}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// A start does not continue from a snapshot of another fork of the stream. The snapshot is bound
/// to the projection, and the projection to the stream.
#[test]
fn a_snapshot_of_another_fork_of_the_stream_is_never_continued() {
    let server = Server::start();
    let name = stream("snapshot-fork");
    let (house, other) = (host(&server, &name), host(&server, &name));
    answer(&house, 1..3);
    server.kill();
    let before = server.copy_store();
    server.restart();
    let last = house.reader().last().unwrap();
    let running = run(&house, None);
    remembers(&house);
    // The maker pauses after each snapshot, so one decision may not lead to one.
    until("a snapshot is made of what the stream loses", || {
        decide(&house);
        snapshot(&house).filter(|at| *at > last.0)
    });
    drop(running);
    server.kill();
    server.put_back(&before);
    server.restart();
    answer(&other, 7..40);

    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("is forked at record"), "{refused:?}");
    let kept = house.organism(&["repair", "--from", "stream"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let running = run(&house, None);
    assert!(!house.log().contains(CONTINUES), "{}", house.log());
    assert_eq!(house.recorded("say"), 0);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_proof_of_a_projection_that_fails_stops_the_pump_and_the_snapshot_is_not_trusted_again() {
    let house = host(shared(), &stream("snapshot-proof"));
    killed_after_a_snapshot(&house);
    let db = rusqlite::Connection::open(house.data().join(DATABASE)).unwrap();
    let first = "(SELECT min(position) FROM step WHERE length(payloads) > 0)";
    let damage = format!("UPDATE step SET time = time + 1 WHERE position = {first}");
    assert_eq!(db.execute(&damage, []).unwrap(), 1);
    drop(db);

    let (code, running) = ended_run(&house);
    assert!(running.contains(CONTINUES), "{running}");
    assert!(running.contains("its hash does not match"), "{running}");
    assert_eq!(snapshot(&house), None, "it is not trusted again");
    let (refused, starting) = ended_run(&house);
    assert!(!starting.contains(CONTINUES), "{starting}");
    assert!(starting.contains("its hash does not match"), "{starting}");
    assert_eq!(code, refused, "{running}");
}
