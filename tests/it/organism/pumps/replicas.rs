//! The number of the stream's replicas is changed while an organism runs on it.

use serde_json::{Value, json};

use super::{ask, stream};
use crate::nats::{Cluster, shared};
use crate::organism::{CONFIG, House, until_within};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const MORE: &str = "has 3 replicas, and the config says 1";
const ADVICE: &str = "Raise the number of the stream's replicas, or start with `replicas = 1`";

fn config(urls: &str, stream: &str, replicas: u32) -> String {
    format!(
        "{CONFIG}\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         durability = \"synced\"\nreplicas = {replicas}\n\n[nats]\nurl = {urls}\n"
    )
}

/// Sets a setting of a stream, as `nats stream edit` does.
fn set(admin: &crate::nats::Admin, stream: &str, key: &str, value: Value) {
    let mut config = admin.info(stream)["config"].clone();
    config[key] = value;
    admin.must(&format!("STREAM.UPDATE.{stream}"), &config);
}

/// Waits until a running organism has ended, and asserts that the settings of its stream were the
/// reason.
fn assert_refused(house: &House, mut running: crate::organism::Running, advice: &str) {
    let ended = until_within(PATIENCE, "the pump notices", || running.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(69), "{}", house.log());
    for text in [house.log(), house.organism(&["run"]).err] {
        assert!(text.contains(advice), "{text}");
        assert!(!text.contains("backup") && !text.contains("is broken"), "{text}");
    }
}

#[test]
fn replicas_are_raised_without_an_outage_and_fewer_than_configured_are_refused_with_advice() {
    let cluster = Cluster::start();
    let admin = cluster.nodes[0].admin();
    let name = stream("replicas");
    let journal = format!("{name}-0");
    let house = House::settled(&config(&cluster.urls(), &name, 1));
    let running = house.run();
    ask(&house, "1");

    set(&admin, &journal, "num_replicas", json!(3));
    until_within(PATIENCE, "the pump notices", || house.log().contains(MORE).then_some(()));
    ask(&house, "2");
    cluster.wait_until_whole(&[&journal]);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.log().matches(MORE).count(), 1, "{}", house.log());

    let running = house.run();
    assert!(house.log().contains(MORE), "{}", house.log());
    assert_eq!(running.stop(), Some(0));

    house.write("organism.toml", config(&cluster.urls(), &name, 3));
    let running = house.run();
    assert!(!house.log().contains(MORE), "{}", house.log());
    ask(&house, "3");

    set(&admin, &journal, "num_replicas", json!(1));
    assert_refused(&house, running, ADVICE);
    house.write("organism.toml", config(&cluster.urls(), &name, 1));
    let running = house.run();
    ask(&house, "4");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_stream_that_is_made_unsafe_under_a_pump_is_put_right_without_a_repair() {
    let name = stream("unsafe");
    let urls = format!("\"{}\"", shared().address());
    let house = House::settled(&config(&urls, &name, 1));
    let running = house.run();
    ask(&house, "1");

    let admin = shared().admin();
    let journal = format!("{name}-0");
    set(&admin, &journal, "discard", json!("old"));
    assert_refused(
        &house,
        running,
        "Put the settings of the stream right; a pump that waits then continues by itself",
    );
    set(&admin, &journal, "discard", json!("new"));
    let running = house.run();
    ask(&house, "2");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
