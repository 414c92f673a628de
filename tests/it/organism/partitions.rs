//! Several pumps share the threads of one organism, each on a separate host. Every request reaches
//! the right pump, and another pump continues the work of a killed one.

mod follows;
mod hosted_client;
mod kept_state;
mod live;
mod load;
mod members;
mod numbers;
mod outages;
mod pauses;
mod proved;
mod reloads;
mod repeated;
mod restored;
mod schedules;
mod shares;
mod shorter;
mod takeover;
mod unreadable;
mod unserved;

use std::process::{Command, Stdio};
use std::time::Instant;

use organism::ids::ThreadId;
use organism::service::encoding;

use super::approvals::{OnTerminal, QUESTION};
use super::{
    CommandOutput, House, PATIENCE, Running, TALK, numbered, say, talk_reply, until, until_within,
};
use crate::nats::Server;
use crate::web::page::Page;
use crate::web::{address, ask as ask_for, listening};
use shares::{has, share};

const PARTITIONS: u32 = 4;

/// Time-out that is longer than a takeover takes on a busy machine.
const TAKEOVER: std::time::Duration = std::time::Duration::from_secs(40);

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "holder", "solo"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[listeners.holder]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[journal]
store = "jetstream"
durability = "synced"
"#;

fn config(server: &Server, partitions: u32) -> String {
    let address = server.address();
    let config = format!("{CONFIG}partitions = {partitions}\n\n[nats]\nurl = \"{address}\"\n");
    listening(&config)
}

/// A host of an organism whose partitions are on `server`.
fn host(server: &Server) -> House {
    House::settled(&config(server, PARTITIONS))
}

/// Runs these partitions on a host, and waits until each of them has an owner.
fn run(house: &House, partitions: &str) -> Running {
    house.run_with(command(house, partitions))
}

fn command(house: &House, partitions: &str) -> Command {
    let mut command = house.command(&["run", "--partitions", partitions]);
    command.env("EFFECTS", house.path("effects"));
    command
}

/// Exit code and output of an `organism run` that exits by itself; `None` if it becomes ready.
fn run_that_ends(house: &House) -> (Option<i32>, String) {
    let log = std::fs::File::create(house.path("log")).unwrap();
    let child = house.command(&["run"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut running = Running { child };
    let code = until("it ends, or is ready", || match running.child.try_wait().unwrap() {
        Some(status) => Some(status.code()),
        None => house.log().contains("is ready").then_some(None),
    });
    (code, house.log())
}

/// A thread id in this partition. Equal numbers give equal ids.
fn root(partition: u32, number: u32) -> String {
    let ids = (0..).map(|n: u32| format!("sess-part{n:06}"));
    let mut fitting =
        ids.filter(|id| ThreadId::parse(id).unwrap().partition(PARTITIONS) == partition);
    fitting.nth(number as usize).unwrap()
}

fn ask(house: &House, number: &str) -> String {
    let sent = house.send_text(&numbered("ping", number), &["--key", number]);
    assert_eq!(sent.code, Some(0), "{sent:?}\n{}", house.log());
    sent.out
}

/// Submits into a new thread of this partition.
fn ask_in(house: &House, partition: u32, number: u32) -> CommandOutput {
    house.send_text(&numbered("ping", "1"), &["--new", &root(partition, number)])
}

/// Submits into a new thread while another process takes the partition over. A command that timed
/// out is repeated with its key, as its message advises.
fn ask_until_served(house: &House, partition: u32, number: u32) -> CommandOutput {
    let (new, key) = (root(partition, number), format!("{partition}-{number}"));
    let ask = || house.send_text(&numbered("ping", "1"), &["--new", &new, "--key", &key]);
    until_within(2 * PATIENCE, "the partition is taken over", || {
        let sent = ask();
        (sent.code != Some(75)).then_some(sent)
    })
}

/// Effects of a host's listeners. Each line names the listener, the message and the attempt.
fn effects(house: &House) -> Vec<String> {
    let noted = std::fs::read_to_string(house.path("effects")).unwrap_or_default();
    noted.lines().map(str::to_owned).collect()
}

/// Asserts that `verify` accepts each partition on this host.
fn all_verified(house: &House) {
    let verified = house.organism(&["verify", "--stream", "--json"]);
    // This host lacks the keys of the others.
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    assert_eq!(verified.json().len(), PARTITIONS as usize, "{verified:?}");
}

/// For each partition, whether the metrics at this address report it as pumped (1) or not (0).
fn pumped(at: std::net::SocketAddr) -> Vec<f64> {
    let page = Page::read(&ask_for(at, "/metrics").body);
    let pumped = |n: u32| page.get("organism_partition_pumped", &[("partition", &n.to_string())]);
    (0..PARTITIONS).map(pumped).collect()
}

#[test]
fn two_processes_share_the_partitions_and_take_each_message_once() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1");
    let second = run(&other, "0,1,2,3");
    assert!(one.log().contains("pumps 0, 1 of 4 partitions"), "{}", one.log());
    let shared = "pumps 2, 3 of 4 partitions, stands by for 0, 1";
    assert!(other.log().contains(shared), "{}", other.log());
    for number in 0..12 {
        let house = [&one, &other][number % 2];
        assert_eq!(ask(house, &number.to_string()), numbered("pong", &number.to_string()) + "\n");
    }
    let (here, there) = (effects(&one).len(), effects(&other).len());
    assert!(here + there == 12 && here > 0 && there > 0, "{here} and {there}");
    let at = address(&other);
    assert_eq!(ask_for(at, "/readyz").status, 200);
    assert_eq!(pumped(at), [0.0, 0.0, 1.0, 1.0]);
    let page = Page::read(&ask_for(at, "/metrics").body);
    let answered = |partition| {
        let labels = [("partition", partition), ("listener", "solo"), ("outcome", "answered")];
        page.get("organism_deliveries_total", &labels)
    };
    assert_eq!(answered("2") + answered("3"), there as f64);
    assert!(page.get("organism_journal_position", &[("partition", "3")]) > 0.0);
    assert_eq!(first.stop(), Some(0));
    until("the other has all", || {
        let log = other.log();
        (log.contains("partition 0: pumped here") && log.contains("partition 1: pumped here"))
            .then_some(())
    });
    assert_eq!(pumped(at), [1.0; 4]);
    assert_eq!(second.stop(), Some(0));
    assert_eq!((other.recorded("ping"), other.recorded("pong")), (12, 12));
    all_verified(&other);
    let threads = other.organism(&["threads", "--json"]).json();
    let updated: Vec<_> =
        threads.iter().map(|thread| thread["updated"].as_str().unwrap()).collect();
    assert!(threads.len() == 12 && updated.is_sorted(), "{threads:?}");
    let found = other.organism(&["search", "ping", "--json", "--limit", "5"]).json();
    assert_eq!(found.len(), 5);
    let newest = threads.last().unwrap()["thread"].as_str().unwrap();
    let shown = other.organism(&["thread", newest]);
    assert!(shown.code == Some(0) && shown.out.contains("pong"), "{shown:?}");
    let tail = other.organism(&["tail", "--no-follow", "-n", "100", "--json"]).json();
    let times: Vec<_> = tail.iter().map(|line| line["time"].as_str().unwrap()).collect();
    assert!(times.len() >= 24 && times.is_sorted(), "{times:?}");
}

#[test]
fn a_resumed_process_writes_nothing_and_becomes_a_standby() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1,2,3");
    let second = run(&other, "0,1,2,3");
    // Half of the partitions are handed over once both processes are stable, which must not happen
    // during this test.
    share(&[&one, &other], &[2, 2]);
    let frozen = has(address(&one));
    let held = root(frozen[0], 7);
    let hold = ["--new", &held, "--key", "held", "--no-wait"];
    assert_eq!(one.send_text(&numbered("hold", "1"), &hold).code, Some(0));
    until("it is handed over", || (effects(&one).len() == 1).then_some(()));
    first.signal("-STOP");
    let begun = Instant::now();
    for partition in 0..PARTITIONS {
        let sent = ask_until_served(&other, partition, 0);
        assert_eq!(sent.code, Some(0), "{sent:?}\n{}", other.log());
    }
    println!("the takeover of two partitions from a frozen process: {:?}", begun.elapsed());
    // Both listeners answer, and one of the pumps leads.
    for house in [&one, &other] {
        house.write("let-go", "");
    }
    first.signal("-CONT");
    until_within(PATIENCE, "the first stands by for what it had", || {
        let log = one.log();
        frozen
            .iter()
            .all(|partition| log.contains(&format!("partition {partition}: pumped by process")))
            .then_some(())
    });
    let told = one.send_text(&numbered("hold", "1"), &["--new", &held, "--key", "held"]);
    assert_eq!((told.code, told.out), (Some(0), numbered("held", "1") + "\n"), "{}", told.err);
    assert_eq!(ask_in(&one, 1, 1).code, Some(0), "its door leads to the other");
    assert_eq!(first.stop(), Some(0));
    assert_eq!(second.stop(), Some(0));
    assert_eq!((other.recorded("hold"), other.recorded("held")), (1, 1));
    assert_eq!((other.recorded("ping"), other.recorded("pong")), (5, 5));
    let pings = |house: &House| effects(house).iter().filter(|e| e.starts_with("solo")).count();
    assert_eq!(pings(&one) + pings(&other), 5, "one dispatches");
    all_verified(&other);
}

#[test]
fn the_same_key_is_the_same_message_in_every_process() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let running = [run(&one, "0,1"), run(&other, "2,3")];
    for number in ["1", "2", "3", "4", "5"] {
        assert_eq!(ask(&one, number), ask(&other, number));
        let reused = other.send_text(&numbered("ping", "other"), &["--key", number]);
        assert_eq!(reused.code, Some(65), "{reused:?}");
        assert!(reused.err.contains("new key"), "{reused:?}");
    }
    assert_eq!(effects(&one).len() + effects(&other).len(), 5);
    // Also with a thread, to which the key then belongs.
    let thread = root(3, 0);
    let sent = [&one, &other].map(|house| {
        let sent = house.send_text(&numbered("ping", "6"), &["--key", "6", "--new", &thread]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        sent.out
    });
    assert_eq!(sent[0], sent[1]);
    // The same again over the control socket, without the command.
    for number in ["1", "2", "3", "4", "5"] {
        let threads = [&one, &other].map(|house| threads_of(house, number));
        assert_eq!(threads[0].len(), 1);
        assert_eq!(threads[0], threads[1]);
    }
    assert_eq!(effects(&one).len() + effects(&other).len(), 6);
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
}

/// Sends the ping with this key through the process on this host. Returns the thread that each
/// response names.
fn threads_of(house: &House, key: &str) -> Vec<String> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let path = organism::service::socket_path(&house.data());
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let payload = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(numbered("ping", key))
    };
    let handshake = house.handshake();
    let ask = serde_json::json!({
        "do": "send", "client": "desk", "key": key, "payload": payload, "wait": true,
        "project": handshake.project, "config": handshake.config,
    });
    socket.write_all(&encoding::encode(&ask).unwrap()).unwrap();
    socket.write_all(b"\n").unwrap();
    let lines = BufReader::new(socket).lines().map(|line| line.unwrap());
    let said = lines.map(|line| encoding::decode::<serde_json::Value>(line.as_bytes()).unwrap());
    let threads = said.filter_map(|said| said["sent"]["thread"].as_str().map(str::to_owned));
    threads.collect()
}

#[test]
fn a_decision_reaches_its_partition_from_any_host() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let running = [run(&one, "0,1"), run(&other, "2,3")];
    let thread = root(1, 0);
    let sent = other.send_text(&say("hello"), &["--new", &thread, "--no-wait", "--key", "k"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let listed = one.organism(&["approvals", "--json"]);
    let held = listed.json();
    let id = held[0]["message"].as_str().unwrap();
    assert_eq!(other.organism(&["approvals", "--json"]).out, listed.out, "any host lists it");
    let wrong = other.organism(&["approve", id, "--hash", "00000000"]);
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    let hash = organism::ids::Digest::of(say("hello").as_bytes()).to_string();
    let approved = other.organism(&["approve", id, "--hash", &hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let told = other.send_text(&say("hello"), &["--new", &thread, "--key", "k"]);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("hello")), "{}", told.err);
    let again = other.organism(&["approve", id, "--hash", &hash]);
    assert_eq!(again.code, Some(65), "{again:?}");

    let hold = other.send_text(&numbered("hold", "1"), &["--thread", &thread, "--no-wait"]);
    assert_eq!(hold.code, Some(0), "{hold:?}");
    assert_eq!(other.organism(&["cancel", &thread]).code, Some(0));
    until("it is cancelled", || {
        one.organism(&["thread", &thread]).out.contains("cancelled").then_some(())
    });
    let unknown = other.organism(&["cancel", &root(1, 9)]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
}

#[test]
fn a_host_without_a_process_lists_the_held_calls_of_every_pump() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    // Afterwards, the other host has a copy of each journal.
    assert_eq!(run(&other, "0,1,2,3").stop(), Some(0));
    let running = run(&one, "0,1,2,3");
    for partition in [1, 3] {
        let new = root(partition, 0);
        let sent = one.send_text(&say("hello"), &["--new", &new, "--no-wait", "--key", &new]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
    }

    let here = one.organism(&["approvals", "--json"]);
    assert_eq!(here.json().len(), 2, "{here:?}");
    let there = other.organism(&["approvals", "--json"]);
    assert_eq!(there.code, Some(0), "{there:?}");
    assert_eq!(there.out, here.out);
    assert_eq!(there.err, "");

    let mut watch = OnTerminal::start(&other, &["approvals", "--watch"]);
    watch.answer(QUESTION, 1, "skip");
    watch.answer(QUESTION, 2, "skip");
    until("both wait on", || (watch.printed().matches(": it waits on").count() == 2).then_some(()));
    let sent = one.send_text(&say("later"), &["--new", &root(2, 0), "--no-wait", "--key", "later"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    watch.answer(QUESTION, 3, "quit");
    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(&say("later")), "{printed}");

    assert_eq!(running.stop(), Some(0));
    let read = other.organism(&["approvals", "--json"]);
    assert_eq!(read.code, Some(0), "{read:?}");
    assert!(read.err.contains("no pump responds to this command"), "{read:?}");
    assert!(read.err.contains("this host's copy of the journal"), "{read:?}");
    assert!(read.err.contains("in partition 3"), "{read:?}");
}

#[test]
fn calls_of_partitions_that_are_neither_queried_nor_read_are_unknown_and_not_missing() {
    let server = Server::start();
    let house = host(&server);
    for list in ["approvals", "answer"] {
        let listed = house.organism(&[list]);
        assert_eq!(listed.code, Some(69), "{listed:?}");
        assert_eq!(listed.out, "");
        assert!(listed.err.contains("the calls that wait in partition 3"), "{listed:?}");
        assert!(!listed.err.contains("no calls wait"), "{listed:?}");
        assert!(!listed.err.contains("no open questions"), "{listed:?}");
    }

    let refused = house.organism(&["refuse", "0197c0de"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    let notes = refused.err.matches("the calls that wait in partition 3").count();
    assert_eq!(notes, 1, "{refused:?}");
}

#[test]
fn a_large_payload_crosses_to_another_process_and_back() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let running = [run(&one, "0"), run(&other, "1,2,3")];
    let text = "x".repeat(900_000);
    let sent = other.send_text(&say(&text), &["--new", &root(0, 0), "--no-wait", "--key", "k"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let id = one.organism(&["approvals", "--json"]).json()[0]["message"].clone();
    let hash = organism::ids::Digest::of(say(&text).as_bytes()).to_string();
    let approved = other.organism(&["approve", id.as_str().unwrap(), "--hash", &hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let told = other.send_text(&say(&text), &["--new", &root(0, 0), "--key", "k"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    assert!(told.out == talk_reply(&text), "{} bytes came back", told.out.len());
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
}

#[test]
fn a_partition_without_a_pump_is_named_and_the_request_can_be_retried() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,2");
    for number in 0..3 {
        let refused = house.send_text("<nonsense/>", &["--new", &root(2, number)]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
    }
    assert_eq!(running.stop(), Some(0));

    let running = run(&house, "0");
    assert_eq!(ask_in(&house, 0, 0).code, Some(0));
    let refused = ask_in(&house, 2, 0);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.err.contains("no pump of partition 2 responded"), "{refused:?}");
    // Only the first retry waits for the pump.
    let retried = house.organism(&["retry", "--all", "--json"]);
    assert_eq!(retried.code, Some(75), "{retried:?}");
    assert_eq!(retried.err.matches("no pump of partition 2 responded").count(), 1, "{retried:?}");
    assert!(retried.err.contains("partition 2: 2 more messages not tried"), "{retried:?}");
    let lines = retried.json();
    assert_eq!(lines.len(), 3, "{retried:?}");
    assert!(lines.iter().all(|line| line["result"] == "failed"), "{retried:?}");
    assert_eq!(running.stop(), Some(0));
    let beyond = house.organism(&["run", "--partitions", "4"]);
    assert_eq!(beyond.code, Some(2), "{beyond:?}");
    assert_eq!(house.recorded("pong"), 1);
    let exported = house.organism(&["export"]);
    assert!(exported.code == Some(0) && exported.out.contains(TALK), "{exported:?}");
}

#[test]
fn another_number_of_partitions_than_the_journals_is_refused_with_both() {
    let server = Server::start();
    let house = host(&server);
    assert_eq!(run(&house, "0,1,2,3").stop(), Some(0));
    for (partitions, empty) in [(8, false), (1, false), (8, true)] {
        if empty {
            // The streams show the same.
            server.admin().must("STREAM.PURGE.KV_ORGANISM-talk-pumps", &serde_json::json!({}));
        }
        house.write("organism.toml", config(&server, partitions));
        let (code, log) = run_that_ends(&house);
        assert_eq!(code, Some(78), "{partitions}: {log}");
        assert!(log.contains("write `partitions = 4` under [journal]"), "{log}");
    }
    house.write("organism.toml", config(&server, PARTITIONS));
    assert_eq!(run(&house, "0,1,2,3").stop(), Some(0));
}

#[test]
fn a_frozen_process_without_a_standby_is_given_up_and_reported() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0");
    let second = run(&other, "1");
    first.signal("-STOP");
    let told = ask_in(&other, 0, 0);
    assert_eq!(told.code, Some(75), "{told:?}");
    assert!(told.err.contains("no pump of partition 0 gave a result"), "{told:?}");
    assert!(told.err.contains("does not respond"), "{told:?}");
    first.signal("-CONT");
    assert_eq!(ask_in(&other, 0, 1).code, Some(0));
    assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
}

#[test]
fn verify_names_the_partition_that_is_broken() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_in(&house, partition, 0).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));
    all_verified(&house);
    let file = house.data().join("p2/journal.db");
    let journal = rusqlite::Connection::open(file).unwrap();
    journal.execute("UPDATE step SET hash = zeroblob(32) WHERE position = 2", []).unwrap();
    drop(journal);
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(4), "{verified:?}");
    assert!(verified.err.contains("broken: partition 2 of the 4 here"), "{verified:?}");
    let reports = house.organism(&["verify", "--json"]).json();
    let broken: Vec<_> = reports.iter().filter(|report| !report["broken"].is_null()).collect();
    assert!(matches!(broken.as_slice(), [one] if one["partition"] == 2), "{reports:?}");
    // The other partitions continue here, and the operator is not advised to repair this one
    // blindly.
    let running = run(&house, "0,1,2,3");
    assert!(house.log().contains("broken at position 2"), "{}", house.log());
    assert_eq!(ask_in(&house, 1, 1).code, Some(0));
    assert_eq!(running.stop(), Some(4));
}

/// A pump responds only to the inbox of a request. A process that may send requests cannot make the
/// pump publish to a forbidden subject.
#[test]
fn a_response_goes_only_to_the_inbox_of_the_request() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0");
    let ask = || {
        format!(
            "{{\"of\":\"{}\",\"n\":0,\"is\":\"last\"}}\norganism/{} {{\"do\":\"where\",\
             \"message\":\"{}\",\"partition\":0}}",
            uuid::Uuid::now_v7(),
            encoding::VERSION,
            uuid::Uuid::now_v7(),
        )
    };
    // The last requests are answered after all responses to the earlier ones.
    let replies = ["organism.talk.to.solo", "organism.talk._INBOX.a", "_INBOX.asker.1"];
    let questions = [&replies[..2], &replies[2..], &replies[2..]].concat();
    let options = server.options();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let heard = runtime.block_on(async {
        use futures_util::StreamExt as _;
        let client = organism::nats::connect(&options, "asker").await.unwrap();
        let mut all = client.subscribe(">").await.unwrap();
        let mut heard = Vec::new();
        for reply in questions {
            let subject = "organism.talk.pump.0";
            client.publish_with_reply(subject, reply, ask().into()).await.unwrap();
            if reply != replies[2] {
                continue;
            }
            loop {
                let message = all.next().await.unwrap();
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                if *message.subject != *subject && text.contains("\"of\"") {
                    heard.push(message.subject.to_string());
                }
                if *message.subject == *reply && text.contains("\"end\"") {
                    break;
                }
            }
        }
        heard
    });
    assert!(!heard.is_empty());
    assert!(heard.iter().all(|subject| subject == "_INBOX.asker.1"), "{heard:?}");
    assert_eq!(running.stop(), Some(0));
}
