//! NATS programs without a kit, as listeners and as forgers.

use std::path::Path;
use std::process::Command;

use organism::bus::nats::{Options, check_max_payload};
use organism::envelope::{AttemptFailure, MessageKind};

use super::kits::Rust;
use super::{Kit, Meeting};
use crate::bus::harness::{
    HostHarness, SinkEvent, TRACEPARENT, attempt, call, done, message, name, repository,
};
use crate::bus::kit_language::KitLanguage;
use crate::docs::blocks::block;
use crate::nats::{Server, Settings, shared};

const ENVELOPE: &str = "https://xml-pipeline.org/ns/envelope/v1";

#[tokio::test]
async fn a_delivery_says_in_its_headers_what_it_is() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("one");
    let delivery = deliveries.next().await;
    assert_eq!(&*delivery.payload, b"<do xmlns=\"urn:test\">one</do>");
    let headers = delivery.headers.unwrap();
    let call = "00000000-0000-0000-0000-000000000001";
    for (name, value) in [
        ("Organism-Call", call),
        ("Organism-Attempt", "1.1"),
        ("Organism-Thread", "sess-k3v9t2m8"),
        ("Organism-From", "tester"),
        ("Organism-Message", call),
        ("Organism-Seq", "1"),
        ("Organism-Time", "1970-01-01T00:00:00.000000Z"),
        ("Organism-Timeout", "1.5"),
        ("traceparent", TRACEPARENT),
    ] {
        assert_eq!(headers.get(name).map(|value| value.as_str()), Some(value), "{name}");
    }
    assert_eq!(headers.len(), 9);
    stranger.say(&delivery.reply.unwrap(), &[], "<a/>\n<b/>").await;
    ear.expect(SinkEvent::Answer(number, vec!["<a/>".to_owned(), "<b/>".to_owned()])).await;
    ear.deliver(
        vec![message(1, MessageKind::Call, "one"), message(2, MessageKind::Reply, "two")],
        1,
    );
    let delivery = deliveries.next().await;
    let frame = std::str::from_utf8(&delivery.payload).unwrap();
    assert!(frame.starts_with("<e:delivery ") && frame.contains("two</do></e:message>"), "{frame}");
    assert_eq!(delivery.headers.unwrap().get("Organism-Messages").unwrap().as_str(), "2");
}

#[tokio::test]
async fn denied_operations_that_a_program_reports_are_one_report_when_the_host_ends() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let denied = meeting.subjects.denied();
    let reports = ["subscribe a.b", "nonsense", "publish c", "subscribe a.b", "publish x\ny"];
    for report in reports {
        stranger.say(&denied, &[], report).await;
    }

    // The reports arrived before the answers. The host reads its two subscriptions in turns, so each
    // answer that it has read stands for one report at least.
    for _ in 0..=reports.len() {
        let number = ear.tell("anything");
        stranger.say(&deliveries.next().await.reply.unwrap(), &[], "<a/>").await;
        ear.expect(SinkEvent::Answer(number, vec!["<a/>".to_owned()])).await;
    }
    ear.host.drain().await;
    ear.expect(SinkEvent::Denied("subscribe a.b, publish c".to_owned(), 3)).await;
    assert!(ear.is_quiet());
}

#[tokio::test]
async fn failures_of_foreign_listeners_are_distinguished() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    for (code, expected) in [
        ("409", AttemptFailure::Refused { detail: "why".to_owned() }),
        ("422", AttemptFailure::Garbage { detail: "why".to_owned() }),
        ("500", AttemptFailure::Crashed { detail: "why".to_owned() }),
    ] {
        let number = ear.tell("anything");
        let reply = deliveries.next().await.reply.unwrap();
        let headers = [("Nats-Service-Error-Code", code), ("Nats-Service-Error", "why")];
        stranger.say(&reply, &headers, "").await;
        ear.expect(SinkEvent::Failed(number, expected)).await;
    }

    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[("organism-heartbeat", "1")], "").await;
    ear.expect(SinkEvent::Beat(number)).await;
    stranger.say(&reply, &[("nats-service-error", "why")], "").await;
    let crashed = AttemptFailure::Crashed { detail: "why".to_owned() };
    ear.expect(SinkEvent::Failed(number, crashed)).await;
}

#[tokio::test]
async fn a_late_answer_is_reported_once_for_the_pump_to_refuse() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[("Organism-Lease", "1")], "").await;
    let failed = ear.next().await;
    assert!(
        matches!(failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if n == number),
        "{failed:?}"
    );
    stranger.say(&reply, &[], "<late/>").await;
    ear.expect(SinkEvent::Answer(number, vec!["<late/>".to_owned()])).await;
    stranger.say(&reply, &[], "<later/>").await;
    // The next message is the one that follows.
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[], "<next/>").await;
    ear.expect(SinkEvent::Answer(number, vec!["<next/>".to_owned()])).await;
}

#[tokio::test]
async fn a_second_answer_of_the_same_name_is_a_stray() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    let named = format!("call=\"{}\" attempt=\"{}\"", call(number), attempt(number));
    for text in ["first", "second"] {
        let payload = done(text);
        let answer = format!("<e:answer xmlns:e=\"{ENVELOPE}\" {named}>{payload}</e:answer>");
        stranger.say(&reply, &[], &answer).await;
    }

    ear.expect(SinkEvent::Answer(number, vec![done("first")])).await;
    let named = format!("attempt {} at call {} (already answered)", attempt(number), call(number));
    ear.expect(SinkEvent::Stray(named, vec![done("second")])).await;
}

#[tokio::test]
async fn the_third_answer_with_another_name_crashes_its_attempt_and_no_further_one_is_reported() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    // Longer than the host checks on the thread of the connection.
    let long = done(&"x".repeat(100_000));
    for payload in [&done("1"), &done("2"), &long, &done("4"), &long] {
        let named = "call=\"nobody\" attempt=\"0.0\"";
        let answer = format!("<e:answer xmlns:e=\"{ENVELOPE}\" {named}>{payload}</e:answer>");
        stranger.say(&reply, &[], &answer).await;
    }

    let named = || "attempt 0.0 at call nobody".to_owned();
    ear.expect(SinkEvent::Stray(named(), vec![done("1")])).await;
    ear.expect(SinkEvent::Stray(named(), vec![done("2")])).await;
    ear.expect(SinkEvent::Stray(named(), vec![long])).await;
    let detail = "answered 3 times to an attempt that was not delivered to it".to_owned();
    ear.expect(SinkEvent::Failed(number, AttemptFailure::Crashed { detail })).await;
    let number = ear.tell("anything");
    stranger.say(&deliveries.next().await.reply.unwrap(), &[], "<next/>").await;
    ear.expect(SinkEvent::Answer(number, vec!["<next/>".to_owned()])).await;
}

#[tokio::test]
async fn an_answer_with_a_wrong_name_or_without_an_attempt_is_not_delivered() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let other = Options::new(meeting.organism.clone(), name("other"));
    let mut others =
        HostHarness::hosting(|sink| std::sync::Arc::new(meeting.host_with(other, sink)));
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap().to_string();
    let elsewhere = reply.replace(".re.tested.", ".re.other.");
    let (own, _) = reply.rsplit_once('.').unwrap();
    let guessed = format!("{own}.0123456789abcdef0123456789abcdef");
    let another = meeting.subjects.answer("0123456789abcdef.0123456789abcdef0123456789abcdef");
    for subject in [&elsewhere, &guessed, &another, &format!("{own}.no-token")] {
        stranger.say(subject, &[], "<forged/>").await;
        stranger.say(subject, &[("Organism-Heartbeat", "1")], "").await;
    }
    stranger.say(&reply, &[], "<true/>").await;
    ear.expect(SinkEvent::Answer(number, vec!["<true/>".to_owned()])).await;
    others.host.drain().await;
    assert!(others.is_quiet());
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

#[tokio::test]
async fn a_payload_too_large_for_the_server_is_refused_at_the_start_or_fails_its_delivery() {
    let settings = Settings { jetstream: None, more: "max_payload: 20000" };
    let server = Server::start_with(settings);
    let meeting = Meeting::at(&server);
    assert!(check_max_payload(&meeting.wire.client(), 10_000).is_ok());
    let said = check_max_payload(&meeting.wire.client(), 20_000).unwrap_err().to_string();
    assert!(said.contains("20000") && said.contains("24096"), "{said}");
    let mut ear = meeting.ear();
    let number = ear.tell(&"x".repeat(20_000));
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::TooLarge { .. }) if *n == number),
        "{failed:?}"
    );
}

async fn an_answer_too_large_for_the_server_is_garbage_and_the_kit_goes_on(language: KitLanguage) {
    let server = Server::start_with(Settings { jetstream: None, more: "max_payload: 20000" });
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[]);
    // The second answer has 19,987 bytes, and is too large only with its headers.
    for request in ["many 1000", "many 609"] {
        let number = ear.tell(request);
        match ear.next().await {
            SinkEvent::Failed(n, AttemptFailure::Garbage { detail }) if n == number => {
                assert!(detail.starts_with("an answer of"), "{detail}");
            }
            other => panic!("{request}: expected a failure, heard {other:?}"),
        }
        assert_eq!(ear.ask("echo still here").await, "still here");
    }
}

#[tokio::test]
async fn a_delivery_that_the_python_kit_cannot_parse_is_a_refusal_and_the_kit_goes_on() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _kit = Kit::start(KitLanguage::Python, &meeting, &[]);
    let number = ear.tell("echo &undeclared;");
    match ear.next().await {
        SinkEvent::Failed(n, AttemptFailure::Refused { detail }) if n == number => {
            assert!(detail.starts_with("the delivery cannot be read: "), "{detail}");
        }
        other => panic!("expected a refusal, heard {other:?}"),
    }
    assert_eq!(ear.ask("echo still here").await, "still here");
}

async fn fails_as_unwritable(mut ear: HostHarness) {
    let number = ear.tell("control");
    match ear.next().await {
        SinkEvent::Failed(n, AttemptFailure::Garbage { detail }) if n == number => {
            let reason = "the answer cannot be sent: XML cannot contain the character U+0000";
            assert_eq!(detail, reason);
        }
        other => panic!("expected a failure, heard {other:?}"),
    }
    assert_eq!(ear.ask("echo still here").await, "still here");
}

async fn an_answer_that_is_no_xml_is_garbage_and_the_kit_goes_on(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let _kit = Kit::start(language, &meeting, &[]);
    fails_as_unwritable(meeting.ear()).await;
}

#[tokio::test]
async fn an_answer_that_is_no_xml_is_garbage_and_the_rust_kit_goes_on() {
    let meeting = Meeting::at(shared());
    let rust = Rust::start(&meeting);
    fails_as_unwritable(meeting.ear()).await;
    assert_eq!(rust.ask_to_end().join().unwrap(), Ok(()));
}

const PAGE: &str = "docs/PROTOCOL.md";

/// The program in docs/PROTOCOL.md: all indented lines after its heading.
fn documented() -> String {
    let text = std::fs::read_to_string(repository().join("docs/PROTOCOL.md")).unwrap();
    let (_, rest) = text.split_once("**Nothing but a stock client.**").unwrap();
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    let program = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    program.map(|line| line.get(4..).unwrap_or_default().to_owned() + "\n").collect()
}

#[tokio::test]
async fn the_documented_listener_needs_nothing_but_a_stock_client() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let program = documented()
        .replace("nats://127.0.0.1:4222", &meeting.address)
        .replace("organism.desk.to.shout", &meeting.subjects.deliveries())
        .replace("\"shout\"", "\"tested\"");
    let mut shouting = Kit(super::python().args(["-c", &program]).spawn().unwrap());
    assert_eq!(first_answer(&mut ear, &mut shouting).await, [done("HELLO &amp; GOODBYE")]);
}

/// Delivers until the listener has started, and returns the payloads of its first answer.
async fn first_answer(ear: &mut HostHarness, listener: &mut Kit) -> Vec<String> {
    let said = message(1, MessageKind::Call, "<text>hello &amp; <b>goodbye</b></text>");
    let mut number = ear.deliver(vec![said.clone()], 1);
    loop {
        match ear.next().await {
            SinkEvent::Answer(n, payloads) if n == number => return payloads,
            // The listener has not started yet.
            SinkEvent::Failed(_, AttemptFailure::Unreachable { .. }) => {
                assert_eq!(listener.0.try_wait().unwrap(), None, "the listener has ended");
                number = ear.deliver(vec![said.clone()], 1);
            }
            SinkEvent::Left(_) | SinkEvent::Joined => {}
            other => panic!("expected an answer, heard {other:?}"),
        }
    }
}

/// Runs a command line of docs/PROTOCOL.md. The line finds the Python interpreter of these tests
/// and the programs in `folder`.
fn run_line(folder: &Path, line: &str) -> Kit {
    let python = super::python().get_program().to_owned();
    let interpreters = Path::new(&python).parent().unwrap().display().to_string();
    let path = format!("{}:{interpreters}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec env {}", line.trim_end())]).current_dir(folder);
    shell.env("PATH", path).env("PYTHONPATH", repository().join("listeners/python"));
    Kit(shell.spawn().unwrap())
}

fn write_program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/usr/bin/env python3\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn the_documented_variables_lead_a_kit_to_its_server() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let folder = tempfile::tempdir().unwrap();
    let shout = r#"
import organism_listener as listener

@listener.accepts("{urn:test}do")
def shout(request):
    return listener.element("{urn:test}done", "".join(request.payload.itertext()).upper())

listener.serve()
"#;
    write_program(folder.path(), "shout.py", shout);
    let line = block(PAGE, "ORGANISM_BUS_URL=")
        .replace("nats://127.0.0.1:4222", &meeting.address)
        .replace("ORGANISM_NAME=desk", &format!("ORGANISM_NAME={}", meeting.organism))
        .replace("ORGANISM_LISTENER=shout", "ORGANISM_LISTENER=tested");
    let mut shouting = run_line(folder.path(), &line);
    assert_eq!(first_answer(&mut ear, &mut shouting).await, [done("HELLO &amp; GOODBYE")]);
}

/// The command `nats reply` in docs/PROTOCOL.md answers a delivery. A script replaces the program
/// `nats`, so the test checks the subject, the queue and the answer, but not the options of the
/// real program.
#[tokio::test]
async fn the_documented_reply_of_the_command_line_is_an_answer() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let folder = tempfile::tempdir().unwrap();
    let program = r#"
import asyncio, os, sys
import nats

async def main():
    verb, subject, option, queue, body = sys.argv[1:]
    assert (verb, option) == ("reply", "--queue"), sys.argv
    client = await nats.connect(os.environ["NATS_URL"])
    async def reply(delivery): await delivery.respond(body.encode())
    await client.subscribe(subject, queue=queue, cb=reply)
    await asyncio.Event().wait()

asyncio.run(main())
"#;
    write_program(folder.path(), "nats", program);
    let line = block(PAGE, "nats reply")
        .replace("organism.desk.to.shout", &meeting.subjects.deliveries())
        .replace("--queue shout", "--queue tested");
    let line = format!("NATS_URL={} {line}", meeting.address);
    let mut replying = run_line(folder.path(), &line);
    assert_eq!(first_answer(&mut ear, &mut replying).await, [done("HELLO")]);
}

each_kit!(
    an_answer_too_large_for_the_server_is_garbage_and_the_kit_goes_on
    an_answer_that_is_no_xml_is_garbage_and_the_kit_goes_on
);
