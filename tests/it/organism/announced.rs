//! `organism run`, and a command that starts an organism of its own, wait for each other.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use organism::config::{self, ConfigEnvironment};
use organism::journal::sqlite::DirectoryLock;
use organism::organism::{Error, OrganismClient};
use organism::service::SocketTransport;
use organism::service::announcement::{Announcement, is_announced};

use super::{CONFIG, CommandOutput, House, Running, numbered, say, talk_reply, until};

/// Starts a command in the background. Its output is read when it has ended.
fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

/// An `organism run` that may have to wait; its log shows when it is ready.
fn run(house: &House, log: &str) -> Running {
    let log = File::create(house.path(log)).unwrap();
    let child = house.command(&["run"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    Running { child }
}

fn is_ready(house: &House, running: &mut Running, log: &str) {
    until("it is ready", || {
        let text = std::fs::read_to_string(house.path(log)).unwrap();
        assert_eq!(running.child.try_wait().unwrap(), None, "{text}");
        text.contains("is ready").then_some(())
    });
}

/// Starts a `send` that runs its own organism. The `send` holds the journal, because its listener
/// answers only when a test releases the answer.
fn holding(house: &House) -> Child {
    house.write("hold.xml", numbered("hold", "1"));
    let sending = spawn(house.command(&["send", "hold.xml", "--as", "desk"]));
    until("it holds the journal", || house.data().join("control.sock").exists().then_some(()));
    sending
}

fn send(house: &House, text: &str) -> Child {
    let file = format!("{text}.xml");
    house.write(&file, say(text));
    spawn(house.command(&["send", &file, "--as", "desk"]))
}

#[test]
fn a_run_waits_for_a_send_that_holds_the_journal_and_takes_over_when_it_ends() {
    let house = House::new();
    let holding = holding(&house);
    let mut running = run(&house, "run.log");
    until("it is announced and waits", || {
        let log = std::fs::read_to_string(house.path("run.log")).unwrap();
        assert_eq!(running.child.try_wait().unwrap(), None, "{log}");
        (is_announced(&house.data()) && log.contains("waiting until it ends")).then_some(())
    });
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(75), "a second one is refused: {refused:?}");
    let process = format!("in use by process {}", running.child.id());
    assert!(refused.err.contains(&process), "{refused:?}");

    let others: Vec<_> =
        (0..8).map(|number| (number, send(&house, &format!("n{number}")))).collect();
    house.write("let-go", "");
    let held = ended(holding);
    assert_eq!(held.code, Some(0), "{held:?}");
    is_ready(&house, &mut running, "run.log");
    for (number, other) in others {
        let answered = ended(other);
        assert_eq!(answered.out, talk_reply(&format!("n{number}")), "{answered:?}");
    }
    assert!(!is_announced(&house.data()), "it is there, and announces nothing");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_run_that_is_killed_while_it_is_announced_blocks_no_command() {
    let house = House::new();
    let holding = holding(&house);
    let mut running = run(&house, "run.log");
    until("it is announced", || is_announced(&house.data()).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    house.write("let-go", "");
    assert_eq!(ended(holding).code, Some(0));
    let answered = ended(send(&house, "after"));
    assert_eq!(answered.out, talk_reply("after"), "{answered:?}");
    let mut again = run(&house, "again.log");
    is_ready(&house, &mut again, "again.log");
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn no_command_starts_a_pump_while_an_organism_is_announced() {
    let house = House::with_echo();
    assert_eq!(ended(send(&house, "first")).code, Some(0));
    let epochs = || house.reader().about().unwrap().epoch;
    let before = epochs();
    let announcement = Announcement::make(&house.data()).unwrap();
    let mut waiting = send(&house, "second");
    let mut resuming = spawn(house.command(&["resume", "all"]));
    // Meanwhile, other organisms start, each of which takes as long as a start here would.
    let elsewhere = House::with_echo();
    for _ in 0..3 {
        assert_eq!(ended(send(&elsewhere, "other")).code, Some(0));
        assert_eq!(waiting.try_wait().unwrap(), None, "it waits for the socket");
        assert_eq!(resuming.try_wait().unwrap(), None, "it waits for the socket");
        assert_eq!(epochs(), before, "it has started a pump of its own");
    }
    drop(announcement);
    let answered = ended(waiting);
    assert_eq!(answered.out, talk_reply("second"), "nobody is announced any more: {answered:?}");
    // It may find the organism of the other command, also before its start or during its stop.
    let resumed = ended(resuming);
    assert!(resumed.code.is_some_and(|code| [0, 69, 75].contains(&code)), "{resumed:?}");
    assert!(epochs() > before);
}

#[test]
fn a_run_is_refused_within_its_patience_while_another_holder_has_the_journal() {
    let house = House::with_echo();
    assert_eq!(ended(send(&house, "first")).code, Some(0));
    let _lock = DirectoryLock::take(&house.data()).unwrap();
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let process = format!("in use by process {}", std::process::id());
    assert!(refused.err.contains(&process), "{refused:?}");
    assert!(!refused.err.contains("waiting"), "{refused:?}");
}

#[test]
fn a_command_names_the_holder_of_a_journal_that_takes_no_requests() {
    let house = House::new();
    assert_eq!(ended(send(&house, "first")).code, Some(0));
    let _lock = DirectoryLock::take(&house.data()).unwrap();
    let refused = ended(send(&house, "second"));
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let process = format!("in use by process {}", std::process::id());
    assert!(refused.err.contains(&process), "{refused:?}");
    assert!(
        refused.err.contains("or stopping, or runs on another machine; try again"),
        "{refused:?}"
    );
}

#[test]
fn a_command_gives_up_on_an_announced_organism_that_does_not_open_its_socket() {
    let house = House::with_echo();
    assert_eq!(ended(send(&house, "first")).code, Some(0));
    let before = house.reader().about().unwrap().epoch;
    let announcement = Announcement::make(&house.data()).unwrap();
    let mut around = ConfigEnvironment::of_process();
    let place = |name: &str| house.path(name).display().to_string();
    around.variables.insert("XDG_DATA_HOME".to_owned(), place("data"));
    around.variables.insert("XDG_STATE_HOME".to_owned(), place("state"));
    let config = config::load(&house.path("organism.toml"), &around).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();

    let socket = SocketTransport::new(&house.data(), house.handshake());
    let opening = OrganismClient::open_over(socket, config, Duration::from_millis(100));
    let error = runtime.block_on(opening).err().unwrap();

    let process = format!("process {}", std::process::id());
    assert!(matches!(error, Error::NotUp { .. }), "{error}");
    assert!(error.to_string().contains(&process), "{error}");
    assert_eq!(house.reader().about().unwrap().epoch, before, "no pump was started");
    drop(announcement);
}

#[test]
fn a_run_that_cannot_start_announces_nothing() {
    let house = House::new();
    house.write("organism.toml", CONFIG.replace("peers = [\"echo\"]", "peers = [\"nobody\"]"));
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(!house.data().exists(), "nothing was made");
}

#[test]
fn a_run_among_many_sends_gets_ready_and_every_send_is_answered() {
    let house = House::with_echo();
    let sends: Vec<_> =
        (0..6).map(|number| (number, send(&house, &format!("a{number}")))).collect();
    let mut running = run(&house, "run.log");
    let more: Vec<_> =
        (6..12).map(|number| (number, send(&house, &format!("a{number}")))).collect();
    is_ready(&house, &mut running, "run.log");
    for (number, child) in sends.into_iter().chain(more) {
        let answered = ended(child);
        assert_eq!(answered.out, talk_reply(&format!("a{number}")), "{answered:?}");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
