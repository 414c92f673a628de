//! The server fails and recovers.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use organism::envelope::AttemptFailure;

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

async fn a_listener_whose_files_are_wrong_names_them_without_a_traceback(language: KitLanguage) {
    let server = server();
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), "nothing of the kind").unwrap();
    let other = other.path().to_str().unwrap();
    for (variable, file) in [
        ("ORGANISM_BUS_NKEY", "/nowhere/echo.nk"),
        ("ORGANISM_BUS_CA", "/nowhere/ca.pem"),
        ("ORGANISM_BUS_CREDENTIALS", "/nowhere/echo.creds"),
        ("ORGANISM_BUS_NKEY", other),
    ] {
        let told = listener(language, &server.address()).env(variable, file).output().unwrap();
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(1), "{said}");
        assert!(said.contains(variable) && said.contains(file), "{said}");
        assert!(!said.contains("Traceback") && !said.contains("    at "), "{said}");
    }
}

each_kit!(
    a_kit_that_runs_through_an_outage_answers_after_it
    deliveries_during_an_outage_are_answered_after_it
    a_listener_without_a_server_logs_it_once_and_stops_on_request
    a_listener_whose_files_are_wrong_names_them_without_a_traceback
);
