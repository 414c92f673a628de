//! Processes that start with another number of partitions than the journal has.

use std::process::Stdio;

use super::{CommandOutput, PARTITIONS, Running, ask_in, command, config, host, numbered, root};
use super::{run, until};
use crate::nats::{Server, Settings};

#[test]
fn a_process_that_has_not_reached_its_journal_refuses_no_request_with_its_number() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    house.write("payload.xml", numbered("hold", "1"));
    let mut send = house.command(&["send", "payload.xml", "--as", "desk", "--new", &root(1, 0)]);
    let send = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    // Killed, as with kill -9.
    drop(running);

    // Without JetStream, the process cannot compare its number, and does not end its start.
    let bare = Server::start_with(Settings { jetstream: None, more: "" });
    house.write("organism.toml", config(&bare, 2));
    let log = std::fs::File::create(house.path("log")).unwrap();
    let child = command(&house, "0,1").stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let _starting = Running { child };
    until("its standbys wait", || house.log().contains("could not become a standby").then_some(()));

    house.write("organism.toml", config(&server, PARTITIONS));
    let new = ask_in(&house, 1, 1);
    assert_eq!(new.code, Some(75), "{new:?}");
    assert!(new.err.contains("has not compared its number with the journal yet"), "{new:?}");
    let sent = CommandOutput::from(send.wait_with_output().unwrap());
    assert_eq!(sent.code, Some(75), "{sent:?}");
    assert!(sent.err.contains("read the thread before you send again"), "{sent:?}");
    for output in [new, sent] {
        assert!(!output.err.contains("partitions = 2"), "{output:?}");
    }
}
