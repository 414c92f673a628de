//! `organism tail` follows the journal through the organism that runs, and polls nothing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value as Json;

use super::{CONFIG, House, Said, numbered, said, say};
use crate::web::{address, ask, listening, page::Page};

/// `organism tail` at work.
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

    /// Reads up to a message with this payload.
    pub fn find(&mut self, payload: &str) {
        while self.next()["payload"] != payload {}
    }

    /// Reads up to a message of this thread.
    pub fn find_thread(&mut self, thread: &str) {
        while self.next()["thread"] != thread {}
    }

    pub fn end(mut self) -> Said {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.wait_with_output().unwrap().into()
    }
}

#[test]
fn a_tail_shows_each_message_and_ends_with_the_organism() {
    let house = House::new();
    let running = house.run();
    let mut tail = Tail::start(&house);
    for text in ["first", "second", "third"] {
        assert_eq!(house.send_text(&say(text), &[]).code, Some(0));
        tail.find(said(text).trim());
    }

    assert_eq!(running.stop(), Some(0));
    let ended = tail.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("no organism responds to this command"), "{ended:?}");
}

#[test]
fn a_tail_without_an_organism_reads_the_journal_once_and_says_so() {
    let house = House::new();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));

    let tail = house.organism(&["tail", "-n", "100"]);
    assert_eq!(tail.code, Some(0), "{tail:?}");
    assert!(tail.out.contains("first"), "{tail:?}");
    assert!(tail.err.contains("is read as it stands now"), "{tail:?}");
    let short = house.organism(&["tail", "--no-follow"]);
    assert!(short.err.is_empty(), "{short:?}");
}

#[test]
fn a_tail_goes_on_with_the_organism_that_takes_the_place_of_the_first() {
    let house = House::new();
    let hold = numbered("hold", "1");
    house.write("hold.xml", &hold);
    // An organism of its own, which ends with its command.
    let mut command = house.command(&["send", "--as", "desk", "hold.xml"]);
    let sender = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    super::until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    let mut tail = Tail::start(&house);
    tail.find(&hold);

    // It announces itself and waits for the command, whose stop does not wait for the tail.
    let log = std::fs::File::create(house.path("log")).unwrap();
    let mut run = house.command(&["run"]);
    let child = run.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let running = super::Running { child };
    super::until("it waits for the command", || house.log().contains("waiting").then_some(()));
    house.write("let-go", "");
    let sent: Said = sender.wait_with_output().unwrap().into();
    assert_eq!(sent.out, numbered("held", "1") + "\n", "{sent:?}");
    tail.find(&numbered("held", "1"));

    super::until("the organism is ready", || house.log().contains("is ready").then_some(()));
    assert_eq!(house.send_text(&say("next"), &[]).code, Some(0));
    tail.find(said("next").trim());
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
        tail.find(said(&text).trim());
    }
    assert_eq!(reads(), before);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}
