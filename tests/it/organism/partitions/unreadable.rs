//! If a config does not load, operators still reach the pumps of all partitions from its directory,
//! or with `--data`. The organism states how many partitions it has.

use super::{CommandOutput, House, PARTITIONS, effects, host, root, run, say, until};
use crate::nats::Server;
use crate::organism::pauses::value;

/// Opens in this partition a call that is held for an approval. Returns the message and the hash of
/// the call.
fn hold(house: &House, partition: u32, number: u32) -> [String; 2] {
    let new = root(partition, number);
    let sent = house.send_text(&say("hello"), &["--new", &new, "--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json();
    let call = held.iter().find(|call| call["thread"] == new.as_str()).unwrap();
    ["message", "sha256"].map(|key| call[key].as_str().unwrap().to_owned())
}

/// The partitions that a pause reached, with the result of each.
fn reached(output: &CommandOutput) -> Vec<(u64, String)> {
    let partitions = value(output)["partitions"].as_array().unwrap().clone();
    let result = |one: &serde_json::Value| {
        (one["partition"].as_u64().unwrap(), one["result"].as_str().unwrap().to_owned())
    };
    partitions.iter().map(result).collect()
}

#[test]
fn decisions_by_the_data_directory_reach_the_pumps_of_all_partitions() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1");
    let second = run(&other, "2,3");
    let [approved, refused, listed] = [0, 1, 2].map(|number| hold(&one, 3, number));
    one.write("organism.toml", "[organism\nname =");
    let data = one.data().display().to_string();

    let by_broken_config = one.organism(&["approve", &approved[0], "--hash", &approved[1]]);
    assert_eq!(by_broken_config.code, Some(0), "{by_broken_config:?}");
    until("it is carried out", || {
        effects(&other).iter().any(|effect| effect.starts_with("echo ")).then_some(())
    });
    let by_directory = one.organism(&["refuse", &refused[0], "--data", &data]);
    assert_eq!(by_directory.code, Some(0), "{by_directory:?}");
    let waiting = one.organism(&["approvals", "--json", "--data", &data]);
    assert_eq!(waiting.code, Some(0), "{waiting:?}");
    assert_eq!(waiting.json().len(), 1, "{waiting:?}");
    assert_eq!(waiting.json()[0]["message"], listed[0].as_str());

    let all = one.organism(&["pause", "all", "--json", "--data", &data]);
    assert_eq!(all.code, Some(0), "{all:?}");
    let expected: Vec<_> = (0..u64::from(PARTITIONS)).map(|n| (n, "done".to_owned())).collect();
    assert_eq!(reached(&all), expected);
    let thread = one.organism(&["pause", &root(3, 2), "--json", "--data", &data]);
    assert_eq!(reached(&thread), [(3, "done".to_owned())], "{thread:?}");

    assert_eq!(second.stop(), Some(0));
    let partly = one.organism(&["resume", "all", "--data", &data]);
    assert_eq!(partly.code, Some(75), "{partly:?}");
    assert!(partly.err.contains("2 of 4 partitions did not resume"), "{partly:?}");
    assert!(partly.err.contains("partition 3: no pump of partition 3 responded"), "{partly:?}");
    assert_eq!(first.stop(), Some(0));
}
