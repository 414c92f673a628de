//! A listener that sends in the name of the client in its config section, while the threads of this
//! client move to another process.

use std::process::Stdio;

use super::{
    CommandOutput, House, PARTITIONS, Running, TAKEOVER, command, config, effects, numbered, root,
    say, until, until_within,
};
use crate::nats::Server;

const SENDER: &str = r#"
[clients.errands]
peers = ["holder"]

[listeners.sender]
command = ["./commander.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
timeout = "5m"
client = "errands"
"#;

/// A host whose listener `sender` runs the commands that it receives.
fn host(server: &Server) -> House {
    let config = config(server, PARTITIONS).replace("peers = [\"echo\"", "peers = [\"sender\"");
    let house = House::settled(&format!("{config}{SENDER}"));
    house.copy("commander.py");
    house.write("payload.xml", numbered("hold", "1"));
    house
}

fn run(house: &House, partitions: &str) -> Running {
    let mut command = command(house, partitions);
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    house.run_with(command)
}

/// Design 5: a hosted process speaks as the one client that the config gives its listener. The wait
/// for the result goes on at the next pump, with another request.
#[test]
fn a_listener_that_waits_as_its_client_gets_its_result_from_the_next_pump() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let second = run(&other, "2,3");
    let first = run(&one, "0,1,2,3");
    one.write("say.xml", say(&format!("plain send --as errands --new {} -", root(2, 0))));
    let mut send = one.command(&["send", "say.xml", "--as", "desk", "--new", &root(0, 0)]);
    let sending = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the call is handed over", || {
        effects(&other).iter().any(|effect| effect.starts_with("holder ")).then_some(())
    });

    // The call is in flight, so the next pump hands it over again.
    second.stop();
    until_within(TAKEOVER, "the other process has the partition", || {
        one.log().contains("partition 2: pumped here").then_some(())
    });
    one.write("let-go", "");
    let sent = CommandOutput::from(sending.wait_with_output().unwrap());
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains(">0 "), "{sent:?}");
    assert_eq!(first.stop(), Some(0));
}
