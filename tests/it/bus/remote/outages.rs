//! The server fails and recovers.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use organism::envelope::AttemptFailure;
use organism::nats::{HeaderMap, connect};

use super::kits::{Rust, log_of_refusals};
use super::{Kit, Meeting};
use crate::bus::harness::{SinkEvent, done};
use crate::bus::kit_language::KitLanguage;
use crate::nats::{Server, Settings};

fn server() -> Server {
    Server::start_with(Settings { jetstream: None, more: "" })
}

#[tokio::test]
async fn deliveries_of_a_foreign_listener_are_repeated_after_a_broken_connection() {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    deliveries.next().await;
    server.kill();
    server.restart();
    let failed = ear.next().await;
    let SinkEvent::Failed(n, failure @ AttemptFailure::Lost { .. }) = &failed else {
        panic!("expected a failure, heard {failed:?}");
    };
    assert!(*n == number && failure.to_string().contains("broke"), "{failed:?}");
}

async fn a_kit_that_runs_through_an_outage_answers_after_it(language: KitLanguage) {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[]);
    let number = ear.tell("wait");
    ear.expect(SinkEvent::Beat(number)).await;
    let stranger = meeting.stranger().await;
    server.kill();
    server.restart();
    let mut here = stranger.hears(&meeting.subjects.here()).await;
    here.next().await;
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![done("gone")])).await;
    assert_eq!(ear.ask("echo as before").await, "as before");
}

async fn deliveries_during_an_outage_are_answered_after_it(language: KitLanguage) {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[("ORGANISM_BUS_LEASE", "1")]);
    assert_eq!(ear.ask("echo before").await, "before");
    server.kill();
    let number = ear.tell("echo during");
    server.restart();
    // The test repeats the delivery as a pump would, because the listener may reconnect later than
    // the host.
    let mut pending = number;
    loop {
        match ear.next().await {
            SinkEvent::Answer(n, payloads) if n == pending => {
                return assert_eq!(payloads, [done("during")]);
            }
            SinkEvent::Failed(n, failure) if n == pending && failure.is_retried() => {
                pending = ear.tell("echo during");
            }
            SinkEvent::Left(_) | SinkEvent::Joined => {}
            other => panic!("expected an answer, heard {other:?}"),
        }
    }
}

/// Headers of the delivery of a test that acts as the pump.
const HEADERS: [(&str, &str); 8] = [
    ("Organism-Call", "01970000-0000-7000-8000-000000000000"),
    ("Organism-Attempt", "1.1"),
    ("Organism-Message", "01970000-0000-7000-8000-000000000000"),
    ("Organism-Thread", "sess-k3v9t2m8"),
    ("Organism-Timeout", "60"),
    ("Organism-From", "tester"),
    ("Organism-Seq", "1"),
    ("Organism-Time", "2026-11-20T10:00:00.000000Z"),
];

/// Checks that a listener which answers after an outage, but before the pump has subscribed to its
/// answers again, sends the answer when the pump has done so. This test acts as the pump. It must
/// subscribe again within the 5 seconds for which the listener waits. It also acts as a stream that
/// acknowledges each message with a reply subject: the listener sends one such keep-alive, not many.
async fn answers_when_the_pump_is_back(server: &Server, meeting: &Meeting) {
    let reply = meeting.subjects.answer("pump.1");
    let stranger = meeting.stranger().await;
    let mut signs = stranger.hears(&reply).await;
    let mut headers = HeaderMap::new();
    HEADERS.iter().for_each(|(name, value)| headers.insert(*name, *value));
    let body = "<do xmlns=\"urn:test\">wait</do>".into();
    let subject = meeting.subjects.deliveries();
    let sent = stranger.0.publish_with_reply_and_headers(subject, reply.clone(), headers, body);
    sent.await.unwrap();
    // The heartbeat shows that the handler has begun.
    while signs.next().await.headers.unwrap().get("Organism-Heartbeat").is_none() {}
    drop((signs, stranger));

    server.kill();
    server.restart();
    let stranger = meeting.stranger().await;
    let asked = async |verb: &str| {
        let subject = format!("$SRV.{verb}.tested");
        stranger.0.request(subject, "".into()).await
    };
    while asked("PING").await.is_err() {}
    stranger.say(&meeting.subjects.cancels(), &HEADERS, "").await;
    let is_handled = async || {
        let stats = asked("STATS").await.unwrap().payload;
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        stats["endpoints"][0]["num_requests"] == 1
    };
    while !is_handled().await {}
    let mut answers = stranger.hears(&reply).await;
    let mut probes = 0;
    loop {
        let message = answers.next().await;
        if let Some(inbox) = message.reply.clone() {
            probes += 1;
            stranger.0.publish(inbox, "".into()).await.unwrap();
        }
        let is_lease =
            message.headers.as_ref().is_some_and(|headers| headers.get("Organism-Lease").is_some());
        if !is_lease {
            let text = String::from_utf8_lossy(&message.payload);
            assert!(text.contains(&done("gone")), "{message:?}");
            return assert!(probes <= 1, "{probes}");
        }
    }
}

async fn a_kit_that_answers_after_an_outage_waits_for_the_pump(language: KitLanguage) {
    let server = server();
    let meeting = Meeting::at(&server);
    let _kit = Kit::start(language, &meeting, &[]);
    answers_when_the_pump_is_back(&server, &meeting).await;
}

#[tokio::test]
async fn a_rust_kit_that_answers_after_an_outage_waits_for_the_pump() {
    let server = server();
    let meeting = Meeting::at(&server);
    let _rust = Rust::start(&meeting);
    answers_when_the_pump_is_back(&server, &meeting).await;
}

/// Creates the command of a kit's listener. A test starts the listener itself, apart from the
/// organism.
fn listener(language: KitLanguage, address: &str) -> Command {
    let mut command = language.on_nats("obedient");
    command
        .env("ORGANISM_BUS_URL", address)
        .env("ORGANISM_NAME", "talk")
        .env("ORGANISM_LISTENER", "echo")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// A process of a test. Dropping this value kills the process if it still runs.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // A process that has exited cannot be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn a_listener_without_a_server_logs_it_once_and_stops_on_request(language: KitLanguage) {
    // A server that closes the connection is not available.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("nats://{}", nobody.local_addr().unwrap());
    let mut waiting = Waiting(listener(language, &address).spawn().unwrap());
    for _ in 0..5 {
        drop(nobody.accept().unwrap());
    }
    let pid = rustix::process::Pid::from_child(&waiting.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = crate::organism::until("it ends", || waiting.0.try_wait().unwrap());
    let mut said = String::new();
    waiting.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((ended.code(), said.lines().count()), (Some(0), 2), "{language:?}: {said}");
}

/// The programs of the Rust kit have no log of their own.
#[test]
fn a_program_of_the_rust_kit_logs_that_its_server_is_lost() {
    let server = server();
    let log = tempfile::NamedTempFile::new().unwrap();
    let search = std::path::Path::new(env!("CARGO_BIN_EXE_organism")).with_file_name("code-search");
    let mut command = Command::new(search);
    command.arg(env!("CARGO_MANIFEST_DIR")).env("ORGANISM_BUS_URL", server.address());
    command.env("ORGANISM_NAME", "talk").env("ORGANISM_LISTENER", "echo");
    command.stdin(Stdio::null()).stderr(log.reopen().unwrap());
    let _program = Waiting(command.spawn().unwrap());

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(connect(&server.options(), "test")).unwrap();
    let ping = || runtime.block_on(client.request("$SRV.PING", "".into()));
    crate::organism::until("the program is connected", || ping().ok());
    server.kill();
    crate::organism::until("the outage is logged", || {
        let text = std::fs::read_to_string(log.path()).unwrap();
        text.contains("disconnected from NATS").then_some(())
    });
}

async fn a_listener_whose_files_are_wrong_names_them_without_a_traceback(language: KitLanguage) {
    let server = server();
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), "nothing of the kind").unwrap();
    let other = other.path().to_str().unwrap();
    let files = [
        ("ORGANISM_BUS_NKEY", "/nowhere/echo.nk"),
        ("ORGANISM_BUS_CA", "/nowhere/ca.pem"),
        ("ORGANISM_BUS_CREDENTIALS", "/nowhere/echo.creds"),
        ("ORGANISM_BUS_NKEY", other),
        ("ORGANISM_BUS_CA", other),
    ];
    let said = log_of_refusals(language, &server.address(), &files.map(|file| vec![file]));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), files.len(), "{said}");
    for (line, (variable, file)) in lines.iter().zip(files) {
        assert!(line.contains(variable) && line.contains(file), "{said}");
        let others = ["ORGANISM_BUS_NKEY", "ORGANISM_BUS_CA", "ORGANISM_BUS_CREDENTIALS"];
        let is_other = |other: &&&str| **other != variable && line.contains(**other);
        assert_eq!(others.iter().find(is_other), None, "{said}");
    }
    assert!(!said.contains("Traceback") && !said.contains("    at "), "{said}");
}

each_kit!(
    a_kit_that_runs_through_an_outage_answers_after_it
    deliveries_during_an_outage_are_answered_after_it
    a_kit_that_answers_after_an_outage_waits_for_the_pump
    a_listener_without_a_server_logs_it_once_and_stops_on_request
    a_listener_whose_files_are_wrong_names_them_without_a_traceback
);
