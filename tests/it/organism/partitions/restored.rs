//! A backup of several partitions, which is restored after the streams and the directories are
//! lost.

use std::path::Path;

use super::{PARTITIONS, all_verified, ask_in, host, root, run};
use crate::nats::Server;
use crate::organism::{CommandOutput, House, numbered};

#[track_caller]
fn done(output: &CommandOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
}

fn ask_with_key(house: &House, partition: u32) -> String {
    let (new, key) = (root(partition, 0), format!("key-{partition}"));
    let sent = house.send_text(&numbered("ping", "1"), &["--new", &new, "--key", &key]);
    done(&sent);
    sent.out
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    crate::nats::copy_directory(from, to);
}

/// Deletes the streams, the leases and the directories. Then restores the directories from the
/// backup, and the host's key from a separate copy.
fn lose_and_restore(server: &Server, house: &House, backup: &Path) {
    let admin = server.admin();
    for partition in 0..PARTITIONS {
        admin.delete(&format!("ORGANISM-talk-{partition}"));
    }
    admin.delete("KV_ORGANISM-talk-pumps");
    let kept = house.path("kept-key");
    std::fs::copy(house.state().join("key"), &kept).unwrap();
    for (from, to) in [("data", house.data()), ("state", house.state())] {
        std::fs::remove_dir_all(&to).unwrap();
        copy_all(&backup.join(from), &to);
    }
    std::fs::copy(&kept, house.state().join("key")).unwrap();
}

/// Runs an organism that must refuse to pump a partition. Returns its log.
fn refused(house: &House) -> String {
    let log = std::fs::File::create(house.path("log")).unwrap();
    let child = house.command(&["run", "--partitions", "0,1,2,3"]).stderr(log).spawn().unwrap();
    let running = crate::organism::Running { child };
    crate::organism::until("a partition is refused", || {
        house.log().contains("stopped pumping the partition").then_some(())
    });
    drop(running);
    house.log()
}

#[test]
fn a_backup_of_several_partitions_is_proved_and_brings_lost_streams_back() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    let answers: Vec<_> =
        (0..PARTITIONS).map(|partition| ask_with_key(&house, partition)).collect();
    assert_eq!(running.stop(), Some(0));
    let backup = house.path("backup");
    let path = backup.to_str().unwrap();
    let made = house.organism(&["backup", path, "--json"]);
    done(&made);
    assert_eq!(made.json().len(), PARTITIONS as usize, "{made:?}");
    assert!(!backup.join("state/key").exists());

    let proved = house.organism(&["verify", path, "--json"]);
    assert_eq!(proved.code, Some(5), "{proved:?}");
    for report in proved.json() {
        assert_eq!(report["covered"], report["records"], "{report}");
        let reasons = report["unproved"].as_array().unwrap();
        assert_eq!(reasons.len(), 1, "only the stream was not compared: {report}");
        assert!(reasons[0].as_str().unwrap().contains("projection of a stream"), "{report}");
    }

    lose_and_restore(&server, &house, &backup);
    assert!(refused(&house).contains("organism repair"), "{}", house.log());
    let repaired = house.organism(&["repair", "--note", "restored"]);
    done(&repaired);
    assert_eq!(repaired.out.matches("published    records 1 to").count(), 4, "{repaired:?}");
    let running = run(&house, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_with_key(&house, partition), answers[partition as usize]);
        assert_eq!(ask_in(&house, partition, 1).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));
    let verified = house.organism(&["verify", "--stream"]);
    done(&verified);
}

/// A backup of several partitions continues after an operator has accepted the loss of later
/// records. Newer copies of the checkpoints prove that these records existed.
#[test]
fn a_backup_of_several_partitions_beside_newer_copies_continues_after_the_loss_is_accepted() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    let backup = house.path("backup");
    let before: Vec<_> = (0..PARTITIONS).map(|partition| ask_with_key(&house, partition)).collect();
    done(&house.organism(&["backup", backup.to_str().unwrap()]));
    for partition in 0..PARTITIONS {
        assert_eq!(ask_in(&house, partition, 1).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));

    lose_and_restore(&server, &house, &backup);
    let published = house.organism(&["repair", "--note", "restored"]);
    assert_eq!(published.code, Some(4), "{published:?}");
    assert!(published.err.contains("the checkpoints in"), "{published:?}");
    let accepted = house.organism(&["repair", "--from", "stream", "--note", "restored"]);
    done(&accepted);
    assert_eq!(accepted.out.matches("given up").count(), 4, "{accepted:?}");
    let running = run(&house, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_with_key(&house, partition), before[partition as usize]);
    }
    assert_eq!(running.stop(), Some(0));
    let verified = house.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

/// If a host has lost its copy of one partition, commands that read the others name the lost
/// partition. They do not present the rest as the whole journal.
#[test]
fn a_lost_copy_of_a_partition_is_named_by_every_command_that_reads_the_others() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_in(&house, partition, 0).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));
    std::fs::remove_dir_all(house.data().join("p1")).unwrap();

    let verified = house.organism(&["verify", "--stream"]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    assert!(verified.err.contains("BROKEN: partition 1: this host had its"), "{verified:?}");
    let backup = house.organism(&["backup", "copy"]);
    assert_eq!(backup.code, Some(4), "{backup:?}");
    assert!(backup.err.contains("partition 1: this host had its"), "{backup:?}");
    assert!(!house.path("copy").exists());

    let known = root(0, 0);
    let readers: [&[&str]; 4] =
        [&["threads"], &["export"], &["search", "ping"], &["thread", &known]];
    for command in readers {
        let read = house.organism(command);
        assert_eq!(read.code, Some(0), "{read:?}");
        assert_eq!(read.err.matches("are missing from this answer: 1;").count(), 1, "{read:?}");
    }
    let unread = house.organism(&["thread", &root(1, 0)]);
    assert_eq!(unread.code, Some(69), "{unread:?}");
    assert!(unread.err.contains("are missing from this answer: 1;"), "{unread:?}");

    // Without any journal of a partition, the advice is the same.
    for partition in [0, 2, 3] {
        std::fs::remove_dir_all(house.data().join(format!("p{partition}"))).unwrap();
    }
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    assert!(verified.err.contains("BROKEN: partition 3: this host had its"), "{verified:?}");
    let backup = house.organism(&["backup", "copy"]);
    assert_eq!(backup.code, Some(4), "{backup:?}");
    let exported = house.organism(&["export"]);
    assert_ne!(exported.code, Some(0), "{exported:?}");
    for output in [&verified.out, &verified.err, &backup.err, &exported.err] {
        assert!(output.contains("`organism run` copies it again from its stream"), "{output}");
        assert!(!output.contains("--accept-loss"), "{output}");
    }

    // The next start copies each again.
    let running = run(&house, "0,1,2,3");
    assert_eq!(ask_in(&house, 1, 1).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    all_verified(&house);
}

#[test]
fn a_host_of_some_partitions_names_the_others_and_its_backup_lacks_them() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1");
    assert_eq!(ask_in(&house, 0, 0).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    let verified = house.organism(&["verify", "--stream"]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    for partition in [2, 3] {
        let text = format!("NOT PROVED: partition {partition}: this host has no copy");
        assert!(verified.err.contains(&text), "{verified:?}");
    }
    let backup = house.organism(&["backup", "copy"]);
    done(&backup);
    assert!(backup.err.contains("not in the copy: partition 3: "), "{backup:?}");
    let threads = house.organism(&["threads"]);
    assert!(threads.err.contains("are missing from this answer: 2, 3;"), "{threads:?}");

    // A number in the config that is too high adds no partitions.
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let changed = config.replace("partitions = 4", "partitions = 8");
    assert_ne!(changed, config);
    house.write("organism.toml", changed);
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    assert!(verified.err.contains("NOT PROVED: partition 3: "), "{verified:?}");
    assert!(!verified.err.contains("partition 4"), "{verified:?}");
    let cause = "has 4 partitions and the config says 8";
    assert_eq!(verified.err.matches(cause).count(), 1, "{verified:?}");
    let threads = house.organism(&["threads"]);
    assert!(threads.err.contains(cause), "{threads:?}");
    assert!(threads.err.contains("are missing from this answer: 2, 3;"), "{threads:?}");

    // Nor does a number that is too low, or none, remove those after its partitions. This host has
    // exactly the partitions of the first of these configs.
    for (number, count) in [("partitions = 2", 2), ("", 1)] {
        house.write("organism.toml", config.replace("partitions = 4", number));
        let threads = house.organism(&["threads"]);
        let cause = format!("has 4 partitions and the config says {count}");
        assert!(threads.err.contains(&cause), "{threads:?}");
        assert!(threads.err.contains("are missing from this answer: 2, 3;"), "{threads:?}");
    }
}
