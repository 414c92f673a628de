//! `organism tail` follows the journal through the running organism and does not poll the journal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdout, Stdio};
use std::thread::JoinHandle;

use organism::ids::Position;
use organism::journal::sqlite::DirectoryLock;
use organism::service::{
    Error, PartitionUnavailable, ServiceClient, ServiceResponse, ServiceTransport, SocketTransport,
    encoding, socket_path,
};
use serde_json::Value as Json;

use super::{CONFIG, CommandOutput, House, numbered, say, talk_reply, until};
use crate::nats::is_streamed;
use crate::web::{address, ask, listening, page::Page};

/// A running `organism tail`.
pub struct Tail {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Tail {
    pub fn start(house: &House) -> Self {
        let mut command = house.command(&["tail", "--json", "-n", "1000"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next message.
    fn next(&mut self) -> Json {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Reads messages until one has this payload.
    pub fn find(&mut self, payload: &str) {
        while self.next()["payload"] != payload {}
    }

    /// Reads messages until one belongs to this thread.
    pub fn find_thread(&mut self, thread: &str) {
        while self.next()["thread"] != thread {}
    }

    pub fn end(mut self) -> CommandOutput {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.wait_with_output().unwrap().into()
    }
}

#[test]
fn a_tail_shows_each_message_and_ends_with_the_organism() {
    let house = House::with_echo();
    let running = house.run();
    let mut tail = Tail::start(&house);
    for text in ["first", "second", "third"] {
        assert_eq!(house.send_text(&say(text), &[]).code, Some(0));
        tail.find(talk_reply(text).trim());
    }

    assert_eq!(running.stop(), Some(0));
    let ended = tail.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("no organism responds to this command"), "{ended:?}");
}

#[test]
fn a_tail_shows_what_is_recorded_after_a_stop_has_begun() {
    let house = House::new();
    let mut command = house.command(&["run"]);
    command.env("EFFECTS", house.path("effects"));
    let running = house.run_with(command);
    let mut tail = Tail::start(&house);
    // Messages that are shown after the first read of the journal come from the organism.
    for text in ["first", "second"] {
        assert_eq!(house.send_text(&say(text), &[]).code, Some(0));
        tail.find(talk_reply(text).trim());
    }
    let hold = numbered("hold", "1");
    assert_eq!(house.send_text(&hold, &["--no-wait"]).code, Some(0));
    tail.find(&hold);
    let effects = || std::fs::read_to_string(house.path("effects")).unwrap_or_default();
    until("its handler has begun", || (!effects().is_empty()).then_some(()));

    running.signal("-TERM");
    let socket = house.data().join("control.sock");
    until("the socket is closed", || (!socket.exists()).then_some(()));
    // Time that a tail needs to end after the socket closed.
    assert_eq!(house.organism(&["threads"]).code, Some(0));
    assert_eq!(tail.child.try_wait().unwrap(), None, "it ends with the organism, not before");
    house.write("let-go", "");

    tail.find(&numbered("held", "1"));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

#[test]
fn a_tail_without_an_organism_reads_the_journal_once_and_says_so() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));

    let tail = house.organism(&["tail", "-n", "100"]);
    assert_eq!(tail.code, Some(0), "{tail:?}");
    assert!(tail.out.contains("first"), "{tail:?}");
    assert!(tail.err.contains("in its present state"), "{tail:?}");
    let short = house.organism(&["tail", "--no-follow"]);
    assert!(short.err.is_empty(), "{short:?}");
}

#[test]
fn a_tail_continues_with_the_next_organism_on_the_journal() {
    let house = House::new();
    let hold = numbered("hold", "1");
    house.write("hold.xml", &hold);
    // The command starts its own organism, which ends with the command.
    let mut command = house.command(&["send", "--as", "desk", "hold.xml"]);
    let sender = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    super::until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    let mut tail = Tail::start(&house);
    tail.find(&hold);

    // The organism announces itself and waits for the command; the command does not wait for the
    // tail.
    let log = std::fs::File::create(house.path("log")).unwrap();
    let mut run = house.command(&["run"]);
    let child = run.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let running = super::Running { child };
    super::until("it waits for the command", || house.log().contains("waiting").then_some(()));
    house.write("let-go", "");
    let sent: CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!(sent.out, numbered("held", "1") + "\n", "{sent:?}");
    tail.find(&numbered("held", "1"));

    super::until("the organism is ready", || house.log().contains("is ready").then_some(()));
    assert_eq!(house.send_text(&say("next"), &[]).code, Some(0));
    tail.find(talk_reply("next").trim());
    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

#[test]
fn followers_cause_no_read_of_the_journal_in_the_organism() {
    let house = House::with(&listening(CONFIG));
    let running = house.run();
    let reads = || {
        let page = ask(address(&house), "/metrics").body;
        Page::read(&page).get("organism_journal_reads_total", &[])
    };
    let mut tail = Tail::start(&house);
    let before = reads();
    for number in 0..10 {
        let text = number.to_string();
        assert_eq!(house.send_text(&say(&text), &[]).code, Some(0));
        tail.find(talk_reply(&text).trim());
    }
    assert_eq!(reads(), before);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

/// A fake organism. It holds the lock of the journal's directory, and answers each connection with
/// the next of its prepared responses.
pub struct ScriptedOrganism {
    serving: JoinHandle<()>,
    _lock: DirectoryLock,
}

impl ScriptedOrganism {
    pub fn start(house: &House, answers: Vec<Vec<u8>>) -> Self {
        let lock = DirectoryLock::take(&house.data()).unwrap();
        let path = socket_path(&house.data());
        let socket = UnixListener::bind(&path).unwrap();
        let serving = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = socket.accept().unwrap();
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(&answer).unwrap();
            }
        });
        Self { serving, _lock: lock }
    }
}

pub fn lines(responses: &[ServiceResponse]) -> Vec<u8> {
    let lines = responses.iter().map(|response| encoding::encode(response).unwrap());
    lines.flat_map(|line| [&*line, b"\n"].concat()).collect()
}

fn recorded(position: u64) -> ServiceResponse {
    ServiceResponse::Recorded { partition: 0, position: Position(position) }
}

/// A house whose journal has a first message.
pub fn settled() -> House {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    house
}

#[test]
fn a_tail_that_may_not_follow_fails_with_the_reason() {
    let refused = lines(&[ServiceResponse::failed("hosted-process: this is one")]);
    let other_version = b"organism/9 \"end\"\n".to_vec();
    for (answer, reason) in [(refused, "hosted-process"), (other_version, "version 9")] {
        let house = settled();
        // It first asks which config runs.
        let organism = ScriptedOrganism::start(&house, vec![answer; 2]);

        let tail = house.organism(&["tail"]);
        assert_eq!(tail.code, Some(69), "{tail:?}");
        assert!(tail.err.contains(reason), "{tail:?}");
        assert!(!tail.err.contains("no organism responds"), "{tail:?}");
        organism.serving.join().unwrap();
    }
}

#[test]
fn a_tail_without_a_place_tries_again() {
    let house = settled();
    let full = PartitionUnavailable::lasting("too many commands");
    let full = lines(&[ServiceResponse::Unavailable(full)]);
    // It first asks which config runs.
    let answers = vec![full.clone(), full, lines(&[recorded(1)])];
    let organism = ScriptedOrganism::start(&house, answers);

    let tail = house.organism(&["tail"]);
    assert_eq!(tail.code, Some(0), "{tail:?}");
    until("it has tried again", || organism.serving.is_finished().then_some(()));
}

#[test]
fn a_list_that_an_organism_refuses_is_read_from_the_journal_and_gives_the_reason() {
    let house = settled();
    let refused = lines(&[ServiceResponse::failed("hosted-process: this is one")]);
    let organism = ScriptedOrganism::start(&house, vec![refused; 2]);

    let listed = house.organism(&["approvals"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    // Which journal was read depends on where its records are.
    let source = if is_streamed() { "copy of the journal" } else { "in its present state" };
    for text in ["hosted-process", source] {
        assert!(listed.err.contains(text), "{text}: {listed:?}");
    }
    organism.serving.join().unwrap();
}

#[tokio::test]
async fn a_follower_gets_nothing_after_its_break_and_the_first_reason_of_an_end() {
    let house = settled();
    let failed = |text: &str| ServiceResponse::failed(text);
    let all = lines(&[recorded(1), recorded(2), failed("the first"), failed("the second")]);
    let _organism = ScriptedOrganism::start(&house, vec![all; 2]);
    let socket = SocketTransport::new(&house.data(), house.handshake());
    let client = ServiceClient::new(&house.data(), ServiceTransport::Socket(socket));

    let mut seen = Vec::new();
    let left = client.follow(|_, position| {
        seen.push(position);
        ControlFlow::Break(())
    });
    left.await.unwrap();
    assert_eq!(seen, [Position(1)]);

    let ended = client.follow(|_, _| ControlFlow::Continue(())).await;
    let expected = "the first";
    assert!(matches!(&ended, Err(Error::Failed { detail }) if detail == expected), "{ended:?}");
}

/// Number of calls of `read` and of similar system calls by this process.
#[cfg(target_os = "linux")]
fn reads_of(process: &Child) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{}/io", process.id())).unwrap();
    let count = counters.lines().find_map(|line| line.strip_prefix("syscr: "));
    count.unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_tail_reads_nothing_while_nothing_is_recorded() {
    let house = House::with_echo();
    let running = house.run();
    let mut tail = Tail::start(&house);
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    tail.find(talk_reply("first").trim());

    let look = || {
        assert_eq!(house.organism(&["threads"]).code, Some(0));
        reads_of(&tail.child)
    };
    let mut before = look();
    let mut equal = 0;
    // Six looks take longer than the poll interval of a tail that polls.
    until("it reads nothing while nothing is recorded", || {
        let now = look();
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
        (equal == 5).then_some(())
    });

    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

#[test]
fn a_tail_whose_reader_has_left_ends_while_the_organism_runs() {
    let house = House::with_echo();
    let running = house.run();
    let mut tail = Tail::start(&house);
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    tail.find(talk_reply("first").trim());

    let Tail { mut child, lines } = tail;
    drop(lines);
    until("the tail has ended", || {
        assert_eq!(house.send_text(&say("more"), &[]).code, Some(0));
        child.try_wait().unwrap()
    });
    assert_eq!(running.stop(), Some(0));
}
