//! Keys of other hosts that an operator's recorded action declares as trusted.

use super::{House, ask, host, stream};
use crate::nats::{Server, shared};

/// Warning of a start about keys that the host does not know.
const UNKNOWN: &str = "was written with keys that this host does not know";

/// A host whose config names the key of another host.
fn host_that_knows(server: &Server, stream: &str, key: &str) -> House {
    let house = host(server, stream);
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let known = format!("durability = \"synced\"\nknown_keys = [\"{key}\"]");
    house.write("organism.toml", config.replace("durability = \"synced\"", &known));
    house
}

fn key_of(house: &House) -> String {
    let shown = house.organism(&["key", "show"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.out.trim().to_owned()
}

fn trust(house: &House, key: &str) {
    let trusted = house.organism(&["key", "trust", key, "--note", "the second machine"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
}

/// Starts the organism, sends one request, and stops the organism after the answer.
fn lead(house: &House, number: &str) {
    let running = house.run();
    ask(house, number);
    assert_eq!(running.stop(), Some(0));
}

/// Whether the last start warned of an unknown key.
fn is_warned(house: &House) -> bool {
    house.log().contains(UNKNOWN)
}

#[test]
fn a_key_that_a_known_host_trusts_on_record_is_known_to_every_host_that_knows_that_one() {
    let stream = stream("trusted");
    let one = host(shared(), &stream);
    let second = host(shared(), &stream);
    let third = host_that_knows(shared(), &stream, &key_of(&one));
    lead(&one, "1");
    lead(&second, "2");
    lead(&third, "3");
    assert!(is_warned(&third), "{}", third.log());
    let unproved = third.organism(&["verify", "--stream"]);
    assert!(unproved.out.contains("unknown key"), "{unproved:?}");

    trust(&one, &key_of(&second));
    lead(&second, "4");
    lead(&third, "5");
    assert!(!is_warned(&third), "{}", third.log());
    let proved = third.organism(&["verify", "--stream"]);
    assert!(!proved.out.contains("unknown key"), "{proved:?}");
    let pinned = third.organism(&["verify", "--stream", "--key", &key_of(&third)]);
    assert!(pinned.out.contains("unknown key"), "only the pinned key counts: {pinned:?}");
    let shown = third.organism(&["thread", "sess-organism"]);
    assert!(shown.out.contains("the second machine"), "{shown:?}");
}

#[test]
fn a_key_that_an_unknown_host_trusts_stays_unknown() {
    let stream = stream("selftrust");
    let one = host(shared(), &stream);
    let stranger = host(shared(), &stream);
    let third = host_that_knows(shared(), &stream, &key_of(&one));
    lead(&one, "1");
    trust(&stranger, &key_of(&stranger));
    // A checkpoint of a known host after the action does not make the action that host's own.
    lead(&one, "2");
    lead(&stranger, "3");
    lead(&third, "4");
    assert!(is_warned(&third), "{}", third.log());
    let verified = third.organism(&["verify", "--stream"]);
    assert!(verified.out.contains("unknown key"), "{verified:?}");
}

#[test]
fn a_key_is_trusted_only_in_its_form_and_where_no_organism_runs() {
    let house = host(shared(), &stream("refusals"));
    let malformed = house.organism(&["key", "trust", "abc"]);
    assert_eq!(malformed.code, Some(2), "{malformed:?}");
    assert!(malformed.err.contains("organism key show"), "{malformed:?}");

    let key = key_of(&house);
    let running = house.run();
    let held = house.organism(&["key", "trust", &key]);
    assert_eq!(held.code, Some(75), "{held:?}");
    assert_eq!(running.stop(), Some(0));

    let embedded = House::settled(super::CONFIG);
    let refused = embedded.organism(&["key", "trust", &key]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("embedded"), "{refused:?}");
}
