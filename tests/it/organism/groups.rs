//! Groups of a client: several peers of the client accept the same payload name, so one request
//! calls all of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};

use super::{House, TALK, numbered, until};

/// A config with two listeners that crash, one that replies after it is released, and one that
/// never replies. `gather` is the config line that sets which replies the client gathers.
fn config(gather: &str, peers: &[&str]) -> String {
    let listener = |name: &str, file: &str| {
        format!(
            "[listeners.{name}]\ncommand = [\"./player.pl\", \"{name}\"{file}]\n\
             schema = \"talk.xsd\"\naccepts = [\"hold\"]\nreplies = [\"held\"]\n"
        )
    };
    format!(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = {peers:?}\n{gather}\n\
         {}attempts = 1\n{}{}{}attempts = 1\n",
        listener("broken", ""),
        listener("holder", ", \"let-go\""),
        listener("never", ", \"nothing\""),
        listener("torn", ""),
    )
}

/// Exit code of a `send`. For each call: how the call ended, and the payloads of its result.
type SentResults = (Option<i32>, Vec<(String, Vec<String>)>);

const FIRST: &str = "gather = \"first\"";

fn request() -> String {
    numbered("hold", "1")
}

fn reply() -> String {
    numbered("held", "1")
}

/// A `send` with a key, in the background.
struct Sending {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Sending {
    fn start(house: &House) -> Self {
        let mut command = house.command(&["send", "-", "--as", "desk", "--key", "k", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(request().as_bytes()).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The receipt of the submission.
    fn receipt(&mut self) -> Json {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) -> SentResults {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, text.lines().map(|line| result(&serde_json::from_str(line).unwrap())).collect())
    }

    fn after_receipt(mut self) -> SentResults {
        self.receipt();
        self.end()
    }
}

fn result(line: &Json) -> (String, Vec<String>) {
    assert_eq!(line["sent"], "result", "{line}");
    let replies = line["replies"].as_array().unwrap().iter();
    let payloads = replies.map(|reply| reply["payload"].as_str().unwrap().to_owned());
    (line["how"].as_str().unwrap().to_owned(), payloads.collect())
}

/// Waits until the failure of one of the called listeners is on record.
fn until_one_failed(house: &House) {
    until("a leg fails", || {
        let exported = house.organism(&["export", "--format", "jsonl"]).out;
        exported.contains("listener-failed").then_some(())
    });
}

fn won() -> Vec<(String, Vec<String>)> {
    let ended = |how: &str, payloads| (how.to_owned(), payloads);
    vec![
        ended("failed", Vec::new()),
        ended("completed", vec![reply()]),
        ended("cancelled", Vec::new()),
    ]
}

#[test]
fn a_client_that_gathers_the_first_reply_gets_it_alone_and_again_by_its_key() {
    let house = House::with(&config(FIRST, &["broken", "holder", "never"]));
    let running = house.run();
    let mut sending = Sending::start(&house);
    assert_eq!(sending.receipt()["again"], false);
    until_one_failed(&house);
    house.write("let-go", "");
    assert_eq!(sending.end(), (Some(0), won()));

    let shown = house.send_text(&request(), &["--key", "k"]);
    assert_eq!((shown.code, shown.out), (Some(0), format!("{}\n", reply())));
    assert!(shown.err.contains("from holder:"), "{}", shown.err);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_key_gets_the_same_result_of_a_first_group_also_where_its_pump_was_killed() {
    let house = House::with(&config(FIRST, &["broken", "holder", "never"]));
    let running = house.run();
    let accepted = house.send_text(&request(), &["--key", "k", "--no-wait"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    until_one_failed(&house);
    drop(running);

    let running = house.run();
    let mut sending = Sending::start(&house);
    assert_eq!(sending.receipt()["again"], true);
    house.write("let-go", "");
    assert_eq!(sending.end(), (Some(0), won()), "a leg that failed is waited for with its group");
    drop(running);

    let running = house.run();
    assert_eq!(Sending::start(&house).after_receipt(), (Some(0), won()));
    assert_eq!(house.recorded("hold"), 3, "nothing is sent twice");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

fn fault_of(results: &[(String, Vec<String>)]) -> Vec<String> {
    let payloads = results.iter().flat_map(|(_, payloads)| payloads);
    let from = |payload: &String| {
        let (_, rest) = payload.split_once(" from=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    payloads.map(from).collect()
}

#[test]
fn a_client_that_gathers_the_first_reply_gets_every_fault_when_every_leg_failed() {
    let house = House::with(&config(FIRST, &["torn", "broken"]));
    let (code, results) = Sending::start(&house).after_receipt();
    assert_eq!(code, Some(1));
    assert_eq!(fault_of(&results), ["broken", "torn"], "in the order of the config");
    assert_eq!(Sending::start(&house).after_receipt(), (code, results));
    house.verified();
}

#[test]
fn a_client_that_gathers_all_gets_each_reply_and_fault_with_its_sender() {
    let house = House::with(&config("gather = \"all\"", &["torn", "holder"]));
    house.write("let-go", "");
    let sent = house.send_text(&request(), &["--key", "k", "--json"]);
    assert_eq!(sent.code, Some(1), "a leg failed");
    let lines = sent.json();
    let held = json!({"from": "holder", "name": format!("{{{TALK}}}held"), "payload": reply()});
    assert_eq!(lines[1]["replies"], json!([held]));
    assert_eq!(fault_of(&[result(&lines[2])]), ["torn"]);

    let again = house.send_text(&request(), &["--key", "k", "--json"]);
    let results = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(results(&again.out), results(&sent.out));
    house.verified();
}
