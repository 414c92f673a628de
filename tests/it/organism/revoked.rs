//! Credentials that are revoked under load.

use std::time::Instant;

use super::nats_config::{Echo, guarded};
use super::{House, say, talk_reply, until};

/// Sends a request with this number. Returns the exit code, which is 0 for a correct answer, and
/// otherwise 1 or 75.
fn send(house: &House, number: u32) -> i32 {
    let text = number.to_string();
    let told = house.send_text(&say(&text), &["--key", &text]);
    match told.code.unwrap() {
        0 => assert_eq!(told.out, talk_reply(&text)),
        code => assert!(matches!(code, 1 | 75), "{told:?}"),
    }
    told.code.unwrap()
}

#[test]
fn a_listener_with_a_revoked_key_gets_no_delivery_until_it_has_a_new_key() {
    let guarded = guarded();
    let house = &guarded.house;
    let _revoked = Echo::start(&guarded);
    let running = house.run();
    assert_eq!(send(house, 1), 0);
    let begun = Instant::now();
    guarded.again(&["--revoke", "listener-echo"]);
    let mut number = 1;
    until("nobody answers", || {
        number += 1;
        (send(house, number) == 1).then_some(())
    });
    println!("a revoked listener was missed after {:?}", begun.elapsed());
    let left = house.organism(&["export", "--format", "jsonl"]).out;
    assert!(left.contains("<listener-left "), "{left}");
    let _again = Echo::start(&guarded);
    until("the new key answers", || {
        number += 1;
        (send(house, number) == 0).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("say"), number as usize);
    house.verified();
}

#[test]
fn a_pump_with_a_revoked_key_reports_it_and_waits_until_it_has_a_new_key() {
    let guarded = guarded();
    let house = &guarded.house;
    let _echo = Echo::start(&guarded);
    let mut running = house.run();
    assert_eq!(send(house, 1), 0);
    let begun = Instant::now();
    guarded.again(&["--revoke", "pump"]);
    until("it says so", || house.log().to_lowercase().contains("authorization").then_some(()));
    println!("a revoked pump said so after {:?}", begun.elapsed());
    until("it names the file", || {
        house.log().contains("the servers refuse the credentials in").then_some(())
    });
    let log = house.log();
    assert!(!log.contains("authorization violation error="), "each attempt is logged: {log}");
    let records = house.recorded("say");
    // A pump with revoked credentials cannot commit and waits; it continues with a new key.
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let running = house.run();
    assert_eq!((send(house, 1), send(house, 2)), (0, 0));
    assert_eq!(running.stop(), Some(0));
    assert_eq!((records, house.recorded("say"), house.recorded("said")), (1, 2, 2));
    house.verified();
}
